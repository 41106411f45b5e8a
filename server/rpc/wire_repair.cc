#include "server/rpc/wire_repair.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/wire_format_lite.h"
#include "server/rpc/field_rules.h"
#include "server/rpc/text.h"
#include "tenure/v1/job.pb.h"

namespace tenure::rpc {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

constexpr int kMaxDepth = 100;  // As protobuf's own parser.

std::string NulForInvalid(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t good = ValidUtf8Prefix(text);
    out.append(text.substr(0, good));
    text.remove_prefix(good);
    if (text.empty()) break;
    out.push_back('\0');
    text.remove_prefix(1);
  }
  return out;
}

void WriteBytes(std::string_view value, CodedOutputStream& out) {
  out.WriteVarint32(static_cast<uint32_t>(value.size()));
  out.WriteRaw(value.data(), static_cast<int>(value.size()));
}

bool Repair(std::string_view wire, const Descriptor& type, int depth, std::string& result) {
  if (depth > kMaxDepth) return false;
  CodedInputStream in(reinterpret_cast<const uint8_t*>(wire.data()), static_cast<int>(wire.size()));
  google::protobuf::io::StringOutputStream stream(&result);
  CodedOutputStream out(&stream);
  bool text_was_invalid = false;
  while (uint32_t tag = in.ReadTag()) {
    const FieldDescriptor* field = type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
    switch (WireFormatLite::GetTagWireType(tag)) {
      case WireFormatLite::WIRETYPE_VARINT: {
        uint64_t value = 0;
        if (!in.ReadVarint64(&value)) return false;
        out.WriteTag(tag);
        out.WriteVarint64(value);
        break;
      }
      case WireFormatLite::WIRETYPE_FIXED64: {
        uint64_t value = 0;
        if (!in.ReadLittleEndian64(&value)) return false;
        out.WriteTag(tag);
        out.WriteLittleEndian64(value);
        break;
      }
      case WireFormatLite::WIRETYPE_FIXED32: {
        uint32_t value = 0;
        if (!in.ReadLittleEndian32(&value)) return false;
        out.WriteTag(tag);
        out.WriteLittleEndian32(value);
        break;
      }
      case WireFormatLite::WIRETYPE_LENGTH_DELIMITED: {
        uint32_t length = 0;
        std::string value;
        if (!in.ReadVarint32(&length) || length > wire.size() || !in.ReadString(&value, static_cast<int>(length)))
          return false;
        out.WriteTag(tag);
        if (field != nullptr && field->type() == FieldDescriptor::TYPE_STRING && !IsUtf8(value)) {
          text_was_invalid |= type.full_name() == v1::Payload::descriptor()->full_name() &&
                              field->number() == v1::Payload::kTextFieldNumber;
          WriteBytes(NulForInvalid(value), out);
        } else if (field != nullptr && field->type() == FieldDescriptor::TYPE_MESSAGE) {
          std::string repaired;
          if (!Repair(value, *field->message_type(), depth + 1, repaired)) return false;
          WriteBytes(repaired, out);
        } else {
          WriteBytes(value, out);
        }
        break;
      }
      default:  // Groups: no message of ours has one.
        return false;
    }
  }
  if (!in.ConsumedEntireMessage()) return false;
  if (text_was_invalid) {
    // The last value of a field wins.
    out.WriteTag(
        WireFormatLite::MakeTag(v1::Payload::kContentTypeFieldNumber, WireFormatLite::WIRETYPE_LENGTH_DELIMITED));
    WriteBytes(kTextWasInvalid, out);
  }
  return true;
}

// The number of a \uXXXX escape at the head of `text`, or -1.
int UnicodeEscape(std::string_view text) {
  if (text.size() < 6 || text[0] != '\\' || text[1] != 'u') return -1;
  int value = 0;
  for (char c : text.substr(2, 4)) {
    if (!absl::ascii_isxdigit(static_cast<unsigned char>(c))) return -1;
    value = value * 16 + (c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
  }
  return value;
}

bool IsHighSurrogate(int unit) { return unit >= 0xD800 && unit <= 0xDBFF; }
bool IsLowSurrogate(int unit) { return unit >= 0xDC00 && unit <= 0xDFFF; }

}  // namespace

std::optional<std::string> RepairWire(std::string_view wire, const Descriptor& type) {
  std::string repaired;
  if (!Repair(wire, type, 0, repaired)) return std::nullopt;
  return repaired;
}

std::string RepairJson(std::string_view json) {
  constexpr std::string_view kNul = "\\u0000";
  std::string out;
  out.reserve(json.size());
  while (!json.empty()) {
    size_t take = 1;
    std::string_view instead;
    if (json[0] == '\\') {
      const int unit = UnicodeEscape(json);
      const bool pair = IsHighSurrogate(unit) && IsLowSurrogate(UnicodeEscape(json.substr(6)));
      take = unit < 0 ? std::min<size_t>(2, json.size()) : pair ? 12 : 6;
      if (!pair && (IsHighSurrogate(unit) || IsLowSurrogate(unit))) instead = kNul;
    } else if (!absl::ascii_isascii(static_cast<unsigned char>(json[0]))) {
      take = 2;
      while (take <= 4 && ValidUtf8Prefix(json.substr(0, take)) != take) ++take;
      if (take > 4) take = 1, instead = kNul;
    }
    out.append(instead.empty() ? json.substr(0, take) : instead);
    json.remove_prefix(take);
  }
  return out;
}

}  // namespace tenure::rpc
