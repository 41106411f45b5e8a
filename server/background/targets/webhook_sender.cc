// Webhooks: one POST per event, signed as the Standard Webhooks specification has it. Layer: background/targets.
#include "server/background/targets/webhook_sender.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/background/targets/digest.h"

namespace tenure::background::targets {

HttpRequest WebhookSender::Request(const std::vector<Message>& messages, absl::Time now) const {
  const Message& message = messages.front();
  const int64_t seconds = absl::ToUnixSeconds(now);
  HttpRequest request;
  request.url = url_;
  request.body = message.body;
  request.max_response = 16 << 10;
  request.headers = {
      "Content-Type: application/json", absl::StrCat("webhook-id: ", message.event_id),
      absl::StrCat("webhook-timestamp: ", seconds),
      absl::StrCat("webhook-signature: ", WebhookSignature(secret_, message.event_id, seconds, message.body))};
  return request;
}

std::vector<Verdict> WebhookSender::Judge(const std::vector<Message>&,
                                          const absl::StatusOr<HttpResponse>& response) const {
  return {JudgeHttp(response)};
}

Verdict JudgeHttp(const absl::StatusOr<HttpResponse>& response) {
  Verdict verdict;
  if (!response.ok()) {
    verdict.trouble = true;
    verdict.error = std::string(response.status().message());
    return verdict;
  }
  if (response->status >= 200 && response->status < 300) {
    verdict.accepted = true;
    return verdict;
  }
  verdict.trouble = response->status >= 500 || response->status == 429 || response->status == 408;
  verdict.error = absl::StrCat("status ", response->status);
  if (response->status >= 300 && response->status < 400)
    absl::StrAppend(&verdict.error, ": redirects are not followed");
  if (const auto after = response->headers.find("retry-after"); after != response->headers.end()) {
    int seconds = 0;
    if (absl::SimpleAtoi(after->second, &seconds)) verdict.retry_after = absl::Seconds(std::clamp(seconds, 0, 3600));
  }
  return verdict;
}

}  // namespace tenure::background::targets
