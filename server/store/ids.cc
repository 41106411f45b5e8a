#include "server/store/ids.h"

#include <array>
#include <charconv>
#include <cstdio>

#include "server/base/status.h"

namespace tenure::store {
namespace {

// A canonical decimal (no sign, no leading zero), so that each id has one spelling.
template <typename T>
bool ParseNumber(std::string_view text, T& out) {
  if (text.empty() || (text.size() > 1 && text[0] == '0')) return false;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() && out >= 0;
}

template <size_t N>
bool SplitExactly(std::string_view text, char separator, std::array<std::string_view, N>& parts) {
  for (size_t i = 0; i + 1 < N; ++i) {
    size_t at = text.find(separator);
    if (at == std::string_view::npos) return false;
    parts[i] = text.substr(0, at);
    text.remove_prefix(at + 1);
  }
  parts[N - 1] = text;
  return true;
}

bool ParseJob(std::string_view text, JobId& id) {
  std::array<std::string_view, 3> parts;
  return SplitExactly(text, '-', parts) && ParseNumber(parts[0], id.queue) && ParseNumber(parts[1], id.day) &&
         ParseNumber(parts[2], id.seq);
}

}  // namespace

std::string JobId::ToString() const {
  return std::to_string(queue) + "-" + std::to_string(day) + "-" + std::to_string(seq);
}

absl::StatusOr<JobId> JobId::Parse(std::string_view text, std::string_view field) {
  JobId id;
  if (!ParseJob(text, id)) {
    return InvalidField(field, text.empty() ? "a job id is required" : "is not a job id; ids look like 7-20786-123456");
  }
  return id;
}

std::string LeaseToken::ToString() const {
  char tail[64];
  std::snprintf(tail, sizeof tail, ".%d.%d.%016llx", number, claim_day, static_cast<unsigned long long>(secret));
  return job.ToString() + tail;
}

absl::StatusOr<LeaseToken> LeaseToken::Parse(std::string_view text, std::string_view field) {
  LeaseToken token;
  std::array<std::string_view, 4> parts;
  unsigned long long secret = 0;
  bool good = SplitExactly(text, '.', parts) && ParseJob(parts[0], token.job) && ParseNumber(parts[1], token.number) &&
              ParseNumber(parts[2], token.claim_day) && parts[3].size() == 16;
  if (good) {
    auto [end, error] = std::from_chars(parts[3].data(), parts[3].data() + 16, secret, 16);
    good = error == std::errc() && end == parts[3].data() + 16;
  }
  if (!good) {
    return InvalidField(field, text.empty() ? "a lease token is required; Claim returns it"
                                            : "is not a lease token; pass the lease_token of a claimed job unchanged");
  }
  token.secret = static_cast<int64_t>(secret);
  return token;
}

}  // namespace tenure::store
