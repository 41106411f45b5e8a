// Objects of a bucket of Amazon S3, or of a store that speaks like it. Layer: background/targets. Not thread-safe.
#pragma once

#include <string>

#include "server/background/targets/object_sink.h"
#include "server/store/target_url.h"

namespace tenure::background::targets {

class S3Sink : public ObjectSink {
 public:
  S3Sink(const store::TargetUrl& url, AwsCredentials credentials, HttpClient& http)
      : url_(url), credentials_(std::move(credentials)), http_(http) {}
  absl::Status Put(const std::string& name, const std::string& bytes, std::string_view content_type,
                   const std::stop_token& stop) override;
  absl::StatusOr<std::string> Read(const std::string& name, size_t max_bytes, const std::stop_token& stop) override;

 private:
  absl::StatusOr<HttpResponse> Send(HttpRequest request, const std::string& name, const std::stop_token& stop);

  const store::TargetUrl url_;
  const AwsCredentials credentials_;
  HttpClient& http_;
};

}  // namespace tenure::background::targets
