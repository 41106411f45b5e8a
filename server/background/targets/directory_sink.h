// Objects as files of a directory. Layer: background/targets. Not thread-safe.
#pragma once

#include <memory>
#include <string>

#include "server/background/targets/object_sink.h"

namespace tenure::background::targets {

class DirectorySink : public ObjectSink {
 public:
  // PERMISSION_DENIED unless `path` lies in `allowed` (or is it) after links are followed.
  static absl::StatusOr<std::unique_ptr<ObjectSink>> Open(const std::string& path, const std::string& allowed);
  absl::Status Put(const std::string& name, const std::string& bytes, std::string_view content_type,
                   const std::stop_token& stop) override;
  absl::StatusOr<std::string> Read(const std::string& name, size_t max_bytes, const std::stop_token& stop) override;

 private:
  explicit DirectorySink(std::string root) : root_(std::move(root)) {}
  const std::string root_;
};

}  // namespace tenure::background::targets
