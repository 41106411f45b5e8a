// Compares JSON with a message's description. Layer: rpc. Thread-safe: values only.
#include "server/rpc/json_shape.h"

#include <cmath>
#include <limits>
#include <map>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/timestamp.pb.h"
#include "google/protobuf/util/json_util.h"
#include "google/protobuf/util/time_util.h"
#include "server/base/status.h"
#include "server/rpc/text.h"

namespace tenure::rpc {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Struct;
using google::protobuf::Value;
using google::protobuf::util::TimeUtil;

constexpr size_t kMaxShown = 100;  // Of a name or a value that the caller sent.
constexpr int kMaxNamed = 10;      // Fields or enumerators that a message names.

std::string KindOf(const Value& value) {
  switch (value.kind_case()) {
    case Value::kNumberValue:
      return "a number";
    case Value::kStringValue:
      return absl::StrCat("\"", SanitizeText(value.string_value(), kMaxShown), "\"");
    case Value::kBoolValue:
      return value.bool_value() ? "true" : "false";
    case Value::kStructValue:
      return "an object";
    case Value::kListValue:
      return "a list";
    default:
      return "null";
  }
}

std::string Expected(std::string_view what, const Value& value) {
  return absl::StrCat("expected ", absl::string_view(what.data(), what.size()), ", not ", KindOf(value));
}

// As JSON: a whole number, also written as a string.
bool IsWhole(const Value& value, double min, double max) {
  double number = value.number_value();
  if (value.kind_case() == Value::kStringValue) {
    if (!absl::SimpleAtod(value.string_value(), &number)) return false;
  } else if (value.kind_case() != Value::kNumberValue) {
    return false;
  }
  return std::floor(number) == number && number >= min && number <= max;
}

template <typename T>
std::optional<std::string> CheckWhole(const Value& value) {
  using Limits = std::numeric_limits<T>;
  if (IsWhole(value, static_cast<double>(Limits::min()), static_cast<double>(Limits::max()))) return std::nullopt;
  if (sizeof(T) > 4) return Expected("a whole number", value);
  return Expected(absl::StrCat("a whole number from ", Limits::min(), " to ", Limits::max()), value);
}

bool IsNumber(const Value& value) {
  double ignored = 0;
  return value.kind_case() == Value::kNumberValue ||
         (value.kind_case() == Value::kStringValue && absl::SimpleAtod(value.string_value(), &ignored));
}

std::optional<std::string> CheckBytes(const Value& value) {
  if (value.kind_case() != Value::kStringValue) return Expected("a string of base64", value);
  std::string ignored;
  if (absl::Base64Unescape(value.string_value(), &ignored) ||
      absl::WebSafeBase64Unescape(value.string_value(), &ignored))
    return std::nullopt;
  return Expected("a string of base64", value);
}

std::optional<std::string> CheckEnum(const google::protobuf::EnumDescriptor& type, const Value& value) {
  if (value.kind_case() == Value::kNumberValue) return CheckWhole<int32_t>(value);
  if (value.kind_case() == Value::kStringValue && type.FindValueByName(value.string_value()) != nullptr)
    return std::nullopt;
  std::string names;
  for (int i = 0; i < type.value_count() && i < kMaxNamed; ++i) {
    if (type.value(i)->number() != 0) absl::StrAppend(&names, names.empty() ? "" : ", ", type.value(i)->name());
  }
  return Expected(absl::StrCat("one of ", names), value);
}

// A single value that is no message; the rule that it breaks.
std::optional<std::string> CheckScalar(const FieldDescriptor& field, const Value& value) {
  switch (field.type()) {
    case FieldDescriptor::TYPE_STRING:
      if (value.kind_case() == Value::kStringValue) return std::nullopt;
      return Expected("a string", value);
    case FieldDescriptor::TYPE_BYTES:
      return CheckBytes(value);
    case FieldDescriptor::TYPE_BOOL:
      if (value.kind_case() == Value::kBoolValue) return std::nullopt;
      return Expected("true or false", value);
    case FieldDescriptor::TYPE_ENUM:
      return CheckEnum(*field.enum_type(), value);
    case FieldDescriptor::TYPE_DOUBLE:
    case FieldDescriptor::TYPE_FLOAT:
      if (IsNumber(value)) return std::nullopt;
      return Expected("a number", value);
    case FieldDescriptor::TYPE_INT32:
    case FieldDescriptor::TYPE_SINT32:
    case FieldDescriptor::TYPE_SFIXED32:
      return CheckWhole<int32_t>(value);
    case FieldDescriptor::TYPE_UINT32:
    case FieldDescriptor::TYPE_FIXED32:
      return CheckWhole<uint32_t>(value);
    case FieldDescriptor::TYPE_UINT64:
    case FieldDescriptor::TYPE_FIXED64:
      return CheckWhole<uint64_t>(value);
    default:
      return CheckWhole<int64_t>(value);
  }
}

// The messages that have a form of their own in JSON; nullopt if `value` is written so.
std::optional<std::string> CheckWellKnown(const Descriptor& type, const Value& value) {
  const bool text = value.kind_case() == Value::kStringValue;
  if (type.full_name() == "google.protobuf.Duration") {
    google::protobuf::Duration ignored;
    if (text && TimeUtil::FromString(value.string_value(), &ignored)) return std::nullopt;
    return Expected("a duration in seconds such as \"90s\" or \"0.5s\"", value);
  }
  if (type.full_name() == "google.protobuf.Timestamp") {
    google::protobuf::Timestamp ignored;
    if (text && TimeUtil::FromString(value.string_value(), &ignored)) return std::nullopt;
    return Expected("a time such as \"2026-11-29T12:00:00Z\"", value);
  }
  if (text) return std::nullopt;
  return Expected("a string of field names with commas between them", value);
}

bool IsWellKnown(const Descriptor& type) {
  return type.full_name() == "google.protobuf.Duration" || type.full_name() == "google.protobuf.Timestamp" ||
         type.full_name() == "google.protobuf.FieldMask";
}

std::string ObjectOf(const Descriptor& type) {
  if (type.field_count() > kMaxNamed) return "an object";
  std::string names;
  for (int i = 0; i < type.field_count(); ++i) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", type.field(i)->json_name());
  }
  return absl::StrCat("an object of ", names);
}

// Walks text and description side by side; the first error ends the walk.
class Walk {
 public:
  std::optional<absl::Status> Message(const std::string& path, const Descriptor& type, const Struct& object) {
    const std::string prefix = path.empty() ? "" : path + ".";
    // By name, since the object's own order is not kept.
    std::map<std::string, const Value*> sent;
    for (const auto& [name, value] : object.fields()) sent.emplace(name, &value);
    for (const auto& [name, value] : sent) {
      if (Find(type, name) == nullptr) {
        return InvalidField(prefix + SanitizeText(name, kMaxShown),
                            "is not a field of this request; check its spelling");
      }
    }
    std::map<const google::protobuf::OneofDescriptor*, const FieldDescriptor*> chosen;
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      if (field.json_name() != field.name() && sent.contains(field.json_name()) && sent.contains(field.name())) {
        return InvalidField(prefix + field.name(),
                            absl::StrCat("stands twice in its object, also as ", field.json_name(), "; give it once"));
      }
      for (const std::string& name : {field.json_name(), field.name()}) {
        const auto found = sent.find(name);
        if (found == sent.end() || found->second->kind_case() == Value::kNullValue) continue;
        if (auto wrong = OneField(prefix + field.name(), field, *found->second)) return wrong;
        if (const auto* oneof = field.real_containing_oneof(); oneof != nullptr) {
          const auto [other, first] = chosen.emplace(oneof, &field);
          if (!first && other->second != &field) {
            return InvalidField(path.empty() ? "body" : path,
                                absl::StrCat("may hold only one of ", other->second->name(), " and ", field.name()));
          }
        }
      }
    }
    return std::nullopt;
  }

 private:
  static const FieldDescriptor* Find(const Descriptor& type, const std::string& name) {
    for (int i = 0; i < type.field_count(); ++i) {
      if (type.field(i)->json_name() == name || type.field(i)->name() == name) return type.field(i);
    }
    return nullptr;
  }

  std::optional<absl::Status> OneField(const std::string& path, const FieldDescriptor& field, const Value& value) {
    if (field.is_map()) {
      if (value.kind_case() != Value::kStructValue) return InvalidField(path, Expected("an object of strings", value));
      const FieldDescriptor& content = *field.message_type()->map_value();
      const std::map<std::string, Value> entries(value.struct_value().fields().begin(),
                                                 value.struct_value().fields().end());
      for (const auto& [key, entry] : entries) {
        if (auto wrong = Single(absl::StrCat(path, "[", SanitizeText(key, kMaxShown), "]"), content, entry))
          return wrong;
      }
      return std::nullopt;
    }
    if (!field.is_repeated()) return Single(path, field, value);
    // The parser takes a single value for a list of one.
    if (value.kind_case() == Value::kStructValue && field.message_type() != nullptr)
      return Single(path + "[0]", field, value);
    if (value.kind_case() != Value::kListValue) return InvalidField(path, Expected("a list", value));
    for (int i = 0; i < value.list_value().values_size(); ++i) {
      const Value& element = value.list_value().values(i);
      if (auto wrong = Single(absl::StrCat(path, "[", i, "]"), field, element)) return wrong;
    }
    return std::nullopt;
  }

  std::optional<absl::Status> Single(const std::string& path, const FieldDescriptor& field, const Value& value) {
    const Descriptor* type = field.message_type();
    std::optional<std::string> rule;
    if (type == nullptr) {
      rule = CheckScalar(field, value);
    } else if (IsWellKnown(*type)) {
      rule = CheckWellKnown(*type, value);  // Also refuses an object of its fields, of which {} would be 1970.
    } else if (value.kind_case() == Value::kStructValue) {
      return Message(path, *type, value.struct_value());
    } else {
      rule = Expected(ObjectOf(*type), value);
    }
    if (!rule) return std::nullopt;
    return InvalidField(path, *rule);
  }
};

}  // namespace

std::optional<absl::Status> WrongShape(const std::string& json, const Descriptor& type) {
  Struct object;
  if (!google::protobuf::util::JsonStringToMessage(json, &object).ok()) return std::nullopt;
  return Walk().Message("", type, object);
}

}  // namespace tenure::rpc
