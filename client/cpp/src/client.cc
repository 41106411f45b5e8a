// Making Clients, and the names they give out. See tenure/client.h.
#include "tenure/client.h"

#include <unistd.h>

#include <array>
#include <random>
#include <utility>

#include "batch.h"
#include "connection.h"
#include "utf8.h"

namespace tenure::client {
namespace {

std::string RandomHex(int words) {
  // Straight from the system: ids must differ between processes that started at the same instant, and after a fork.
  std::random_device device;
  std::string hex;
  for (int i = 0; i < words; ++i) {
    std::array<char, 9> digits;
    std::snprintf(digits.data(), digits.size(), "%08x", device());
    hex.append(digits.data());
  }
  return hex;
}

}  // namespace

absl::StatusOr<Client> Client::Connect(ClientOptions options) {
  auto connection = internal::Connection::Open(std::move(options));
  if (!connection.ok()) return connection.status();
  return Client(*std::move(connection));
}

Client Client::FromChannels(std::vector<std::shared_ptr<grpc::ChannelInterface>> channels, ClientOptions options) {
  return Client(std::make_shared<internal::Connection>(std::move(channels), std::move(options)));
}

std::string NewWorkerId() {
  std::array<char, 129> host{};
  const bool known = gethostname(host.data(), host.size() - 1) == 0 && host[0] != '\0';
  return (known ? internal::CleanUtf8(host.data(), 128) : "unknown-host") + "-" + std::to_string(getpid()) + "-" +
         RandomHex(1);
}

std::string NewRequestId() { return RandomHex(4); }

std::string_view ToString(JobState state) {
  switch (state) {
    case JobState::kScheduled:
      return "SCHEDULED";
    case JobState::kBlocked:
      return "BLOCKED";
    case JobState::kReady:
      return "READY";
    case JobState::kLeased:
      return "LEASED";
    case JobState::kSuspended:
      return "SUSPENDED";
    case JobState::kCompleted:
      return "COMPLETED";
    case JobState::kDiscarded:
      return "DISCARDED";
    case JobState::kCancelled:
      return "CANCELLED";
    case JobState::kExpired:
      return "EXPIRED";
    case JobState::kUnknown:
      break;
  }
  return "UNKNOWN";
}

absl::Status internal::WrongCount(int asked, int answered) {
  return absl::InternalError("the daemon answered " + std::to_string(answered) + " results for " +
                             std::to_string(asked) + " items");
}

}  // namespace tenure::client
