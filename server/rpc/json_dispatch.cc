#include "server/rpc/json_dispatch.h"

#include <cmath>
#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "google/protobuf/util/json_util.h"
#include "google/rpc/error_details.pb.h"
#include "server/base/status.h"
#include "server/rpc/json_keys.h"
#include "server/rpc/json_shape.h"
#include "server/rpc/method_table.h"
#include "server/rpc/status_mapping.h"
#include "server/rpc/text.h"
#include "server/rpc/wire_repair.h"
#include "tenure/v1/worker_service.pb.h"

namespace tenure::rpc {
namespace {

using google::protobuf::Message;

// The table of the Connect protocol.
int HttpStatus(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return 200;
    case absl::StatusCode::kCancelled:
      return 499;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
      return 400;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kAborted:
      return 409;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kUnimplemented:
      return 501;
    case absl::StatusCode::kUnavailable:
      return 503;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    default:
      return 500;
  }
}

// The codes' names in lower case; Connect spells one of them with a single l.
std::string ConnectCode(absl::StatusCode code) {
  if (code == absl::StatusCode::kCancelled) return "canceled";
  const std::string_view name = CodeName(code);
  return absl::AsciiStrToLower(absl::string_view(name.data(), name.size()));
}

// `text` as a JSON string. It is valid UTF-8.
std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", c);
      out.append(escape);
    } else {
      out.push_back(c);
    }
  }
  out.push_back('"');
  return out;
}

template <typename Detail>
bool AppendDetail(const google::protobuf::Any& any, std::string& out) {
  Detail detail;
  if (!any.UnpackTo(&detail)) return false;
  std::string value = absl::Base64Escape(any.value());
  value.resize(value.find_last_not_of('=') + 1);  // Connect leaves the padding out.
  std::string debug;
  if (!google::protobuf::util::MessageToJsonString(detail, &debug).ok()) debug = "{}";
  absl::StrAppend(&out, "{\"type\":", Quoted(Detail::descriptor()->full_name()), ",\"value\":", Quoted(value),
                  ",\"debug\":", debug, "}");
  return true;
}

JsonAnswer ErrorAnswer(const absl::Status& status) {
  const google::rpc::Status rpc = ToRpcStatus(status);
  JsonAnswer answer;
  answer.http_status = HttpStatus(status.code());
  answer.body = absl::StrCat("{\"code\":", Quoted(ConnectCode(status.code())), ",\"message\":", Quoted(rpc.message()),
                             ",\"details\":[");
  bool first = true;
  for (const google::protobuf::Any& any : rpc.details()) {
    if (!first) answer.body.push_back(',');
    first = false;
    if (!AppendDetail<google::rpc::ErrorInfo>(any, answer.body) &&
        !AppendDetail<google::rpc::BadRequest>(any, answer.body)) {
      AppendDetail<google::rpc::RetryInfo>(any, answer.body);
    }
  }
  answer.body.append("]}");
  if (const auto retry_after = DetailsOf(status).retry_after) {
    const double seconds = std::ceil(absl::ToDoubleSeconds(*retry_after));
    answer.headers.emplace_back("Retry-After", absl::StrCat(static_cast<int64_t>(seconds)));
  }
  return answer;
}

JsonAnswer OkAnswer(const Message& response) {
  JsonAnswer answer;
  const auto printed = google::protobuf::util::MessageToJsonString(response, &answer.body);
  if (printed.ok()) return answer;
  return ErrorAnswer(MakeError(absl::StatusCode::kInternal, "INTERNAL",
                               absl::StrCat("the answer cannot be written as JSON: ", printed.ToString())));
}

// The parser's message in our form, for what WrongShape does not find. It says "(jobs[0].delay): invalid value ..." or,
// for bad syntax, a sentence with an excerpt.
absl::Status ParseError(std::string_view message) {
  absl::string_view rest(message.data(), message.size());
  std::string field;
  if (absl::ConsumePrefix(&rest, "(")) {
    const size_t end = rest.find(')');
    if (end != absl::string_view::npos) {
      field = std::string(rest.substr(0, end));
      rest.remove_prefix(end + 1);
    }
  }
  absl::ConsumePrefix(&rest, ":");
  rest = absl::StripAsciiWhitespace(rest);
  if (field.empty()) {
    std::string one_line = SanitizeText(std::string(rest), 300);
    for (char& c : one_line) {
      if (c == '\n') c = ' ';
    }
    return InvalidField("body", absl::StrCat("is not the JSON of this request: ", one_line));
  }
  return InvalidField(field, SanitizeText(std::string(rest), 300));
}

// No request needs more. The parser bounds the depth of objects only, and the time that it takes for lists grows with
// the square of theirs.
constexpr int kMaxDepth = 100;

bool IsTooDeep(std::string_view json) {
  int depth = 0;
  bool in_text = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_text) {
      if (c == '\\') ++i;
      if (c == '"') in_text = false;
    } else if (c == '"') {
      in_text = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kMaxDepth) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

absl::Status Parse(const JsonRequest& request, Message& message) {
  if (absl::StripAsciiWhitespace(request.body).empty()) return absl::OkStatus();
  if (IsTooDeep(request.body)) {
    return InvalidField("body", absl::StrCat("must not be nested deeper than ", kMaxDepth, " levels"));
  }
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = false;
  std::string repaired;
  const std::string* text = &request.body;
  auto parsed = google::protobuf::util::JsonStringToMessage(*text, &message, options);
  // A failure report is not to fail for the bytes of its text (see wire_repair.h).
  const auto* type = message.GetDescriptor();
  if (!parsed.ok() && (type == v1::FailRequest::descriptor() || type == v1::ExtendRequest::descriptor())) {
    message.Clear();
    text = &(repaired = RepairJson(request.body));
    parsed = google::protobuf::util::JsonStringToMessage(*text, &message, options);
  }
  // Also what the parser takes: it drops a null in a list, so that results would not stand beside their items, and
  // reads words as booleans.
  if (auto wrong = WrongShape(*text, *type)) return *wrong;
  if (parsed.ok()) {
    const auto repeated = RepeatedKey(*text);
    if (!repeated) return absl::OkStatus();
    return InvalidField(SanitizeText(*repeated, 200), "stands twice in its object; give it once");
  }
  return ParseError(std::string_view(parsed.message().data(), parsed.message().size()));
}

// Closes the call when the transport lets go of it.
class Handle final : public JsonCall {
 public:
  explicit Handle(std::shared_ptr<CallBase> call) : call_(std::move(call)) {}
  ~Handle() override { call_->Close(); }
  void Cancel() override { call_->Cancel(); }

 private:
  const std::shared_ptr<CallBase> call_;
};

class NoCall final : public JsonCall {
 public:
  void Cancel() override {}
};

}  // namespace

bool JsonDispatcher::Serves(std::string_view path) const { return methods_.Find(path) != nullptr; }

std::shared_ptr<JsonCall> JsonDispatcher::Call(JsonRequest request, std::function<void(JsonAnswer)> done) const {
  const Method* method = methods_.Find(request.path);
  if (method == nullptr) {
    // 404 and not the 501 of the code: there is no such resource, and Connect's clients read the code from the body.
    JsonAnswer answer = ErrorAnswer(MakeError(absl::StatusCode::kUnimplemented, "UNKNOWN_METHOD",
                                              absl::StrCat("there is no method ", SanitizeText(request.path, 200),
                                                           "; paths look like /tenure.v1.JobService/Enqueue")));
    answer.http_status = 404;
    done(std::move(answer));
    return std::make_shared<NoCall>();
  }
  std::shared_ptr<CallBase> call = method->NewCall(
      request.timeout, std::move(request.peer), [done = std::move(done)](CallBase& ended, const absl::Status& status) {
        done(status.ok() ? OkAnswer(ended.response_message()) : ErrorAnswer(status));
      });
  auto handle = std::make_shared<Handle>(call);
  absl::Status parsed = Parse(request, call->request_message());
  if (parsed.ok()) {
    method->Run(call);
  } else {
    call->Finish(parsed);
  }
  return handle;
}

}  // namespace tenure::rpc
