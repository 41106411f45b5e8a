// Amazon SQS, and what speaks like it: SendMessageBatch of its JSON protocol. Layer: background/targets. Thread-safe:
// values only.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "server/background/targets/sender.h"
#include "server/store/target_url.h"

namespace tenure::background::targets {

class SqsSender : public Sender {
 public:
  SqsSender(const store::TargetUrl& url, AwsCredentials credentials);
  size_t batch() const override { return 10; }  // The service's bound.
  HttpRequest Request(const std::vector<Message>& messages, absl::Time now) const override;
  std::vector<Verdict> Judge(const std::vector<Message>& messages,
                             const absl::StatusOr<HttpResponse>& response) const override;

 private:
  const std::string endpoint_;   // https://host/
  const std::string queue_url_;  // As the service knows it.
  const std::string region_;
  const bool fifo_;
  const AwsCredentials credentials_;
};

}  // namespace tenure::background::targets
