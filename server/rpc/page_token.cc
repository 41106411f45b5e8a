#include "server/rpc/page_token.h"

#include <cstdint>
#include <memory>

#include "absl/strings/escaping.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "server/base/status.h"

namespace tenure::rpc {
namespace {

constexpr char kVersion = 1;
constexpr size_t kHeadBytes = 9;  // Version and hash.

// FNV-1a, 64 bits: has to come out alike on every replica and in every release; nothing secret hangs on it.
uint64_t Fnv1a(std::string_view text, uint64_t hash = 14695981039346656037u) {
  for (char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 1099511628211u;
  return hash;
}

std::string Head(std::string_view position, const google::protobuf::Message& filters) {
  std::unique_ptr<google::protobuf::Message> copy(filters.New());
  copy->CopyFrom(filters);
  for (const char* name : {"page_size", "page_token", "include_payloads"}) {
    if (const auto* field = copy->GetDescriptor()->FindFieldByName(name))
      copy->GetReflection()->ClearField(copy.get(), field);
  }
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);  // Maps in key order.
    copy->SerializeToCodedStream(&coded);
  }
  const std::string& type = copy->GetDescriptor()->full_name();
  const uint64_t hash = Fnv1a(position, Fnv1a(bytes, Fnv1a(type)));
  std::string head(1, kVersion);
  for (int shift = 56; shift >= 0; shift -= 8) head.push_back(static_cast<char>(hash >> shift));
  return head;
}

}  // namespace

std::string EncodePageToken(std::string_view position, const google::protobuf::Message& filters) {
  if (position.empty()) return "";
  std::string bytes = Head(position, filters);
  bytes.append(position);
  return absl::WebSafeBase64Escape(bytes);
}

absl::StatusOr<std::string> DecodePageToken(std::string_view token, const google::protobuf::Message& filters) {
  if (token.empty()) return std::string();
  std::string bytes;
  if (absl::WebSafeBase64Unescape(absl::string_view(token.data(), token.size()), &bytes) && bytes.size() > kHeadBytes &&
      Head(std::string_view(bytes).substr(kHeadBytes), filters) == bytes.substr(0, kHeadBytes)) {
    return bytes.substr(kHeadBytes);
  }
  return InvalidField(
      "page_token",
      "is not the next_page_token of an answer to the same call with the same filters; begin without one");
}

}  // namespace tenure::rpc
