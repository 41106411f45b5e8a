// Webhooks. Layer: background/targets. Thread-safe: values only.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "server/background/targets/sender.h"

namespace tenure::background::targets {

class WebhookSender : public Sender {
 public:
  WebhookSender(std::string url, std::string secret) : url_(std::move(url)), secret_(std::move(secret)) {}
  size_t batch() const override { return 1; }
  HttpRequest Request(const std::vector<Message>& messages, absl::Time now) const override;
  std::vector<Verdict> Judge(const std::vector<Message>& messages,
                             const absl::StatusOr<HttpResponse>& response) const override;

 private:
  const std::string url_;
  const std::string secret_;
};

// 2xx is accepted; anything else is not, and 408, 429, 5xx and no answer mean that the target is in trouble.
Verdict JudgeHttp(const absl::StatusOr<HttpResponse>& response);

}  // namespace tenure::background::targets
