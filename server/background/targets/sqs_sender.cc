// SQS: see the header. A message carries the event's id as an attribute; in a FIFO queue it is the deduplication id, so
// that a repeat within five minutes is dropped by the service, and the number of the job's queue
// makes the message group. Layer:
// background/targets.
#include "server/background/targets/sqs_sender.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "server/background/targets/webhook_sender.h"
#include "server/base/status.h"

namespace tenure::background::targets {
namespace {

constexpr auto kReplace = nlohmann::json::error_handler_t::replace;

std::string Text(const nlohmann::json& object, const char* field) {
  const auto found = object.find(field);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

SqsSender::SqsSender(const store::TargetUrl& url, AwsCredentials credentials)
    : endpoint_(url.url.substr(0, url.url.size() - url.path.size()) + "/"),
      queue_url_(url.url),
      region_(url.region),
      fifo_(absl::EndsWith(url.path, ".fifo")),
      credentials_(std::move(credentials)) {}

HttpRequest SqsSender::Request(const std::vector<Message>& messages, absl::Time now) const {
  nlohmann::json entries = nlohmann::json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    nlohmann::json entry = {
        {"Id", absl::StrCat(i)},
        {"MessageBody", messages[i].body},
        {"MessageAttributes", {{"tenure-event-id", {{"DataType", "String"}, {"StringValue", messages[i].event_id}}}}}};
    if (fifo_) {
      entry["MessageDeduplicationId"] = messages[i].event_id;
      // The event's id begins with the number of the queue; its name has letters that a group's may not have.
      entry["MessageGroupId"] = absl::StrCat("queue-", messages[i].event_id.substr(0, messages[i].event_id.find('-')));
    }
    entries.push_back(std::move(entry));
  }
  const nlohmann::json body = {{"QueueUrl", queue_url_}, {"Entries", std::move(entries)}};
  HttpRequest request;
  request.url = endpoint_;
  request.body = body.dump(-1, ' ', false, kReplace);
  request.headers = {"Content-Type: application/x-amz-json-1.0", "x-amz-target: AmazonSQS.SendMessageBatch"};
  SignAws(credentials_, "sqs", region_, now, request);
  return request;
}

std::vector<Verdict> SqsSender::Judge(const std::vector<Message>& messages,
                                      const absl::StatusOr<HttpResponse>& response) const {
  Verdict whole = JudgeHttp(response);
  const nlohmann::json answer =
      response.ok() ? nlohmann::json::parse(response->body, nullptr, false) : nlohmann::json();
  if (!whole.accepted) {
    if (answer.is_object()) {
      absl::StrAppend(&whole.error, " ", Text(answer, "__type"), " ", Text(answer, "message"));
      // Throttling and clock skew come as 400: no fault of the messages. Nor is a wrong credential.
    }
    whole.trouble = true;
    return std::vector<Verdict>(messages.size(), whole);
  }
  std::vector<Verdict> verdicts(messages.size(), Verdict{false, true, "the answer does not mention the message", {}});
  if (!answer.is_object()) return verdicts;
  const auto each = [&](const char* list, auto body) {
    const auto found = answer.find(list);
    if (found == answer.end() || !found->is_array()) return;
    for (const nlohmann::json& entry : *found) {
      if (!entry.is_object()) continue;
      for (size_t i = 0; i < messages.size(); ++i) {
        if (Text(entry, "Id") == absl::StrCat(i)) body(entry, verdicts[i]);
      }
    }
  };
  each("Successful", [](const nlohmann::json&, Verdict& verdict) { verdict = {true, false, "", {}}; });
  each("Failed", [](const nlohmann::json& entry, Verdict& verdict) {
    const auto fault = entry.find("SenderFault");
    const bool ours = fault != entry.end() && fault->is_boolean() && fault->get<bool>();
    verdict = {false, !ours, absl::StrCat(Text(entry, "Code"), " ", Text(entry, "Message")), {}};
  });
  return verdicts;
}

absl::StatusOr<std::unique_ptr<Sender>> MakeSender(const store::TargetSettings& settings, const Access& access) {
  TENURE_ASSIGN_OR_RETURN(
      const store::TargetUrl url,
      store::ParseTargetUrl(settings.purpose, settings.url, settings.region, settings.endpoint,
                            access.aws.region.empty() ? "us-east-1" : std::string_view(access.aws.region)));
  if (url.scheme == store::TargetScheme::kHttp) return std::make_unique<WebhookSender>(url.url, settings.secret);
  if (!access.aws.given()) {
    return absl::FailedPreconditionError(
        "the daemon has no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in its environment");
  }
  return std::make_unique<SqsSender>(url, access.aws);
}

}  // namespace tenure::background::targets
