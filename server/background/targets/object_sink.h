// Where objects (files) for targets are written: a directory, or a bucket that speaks S3. Layer: background/targets.
// Not thread-safe.
#pragma once

#include <memory>
#include <stop_token>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/background/targets/access.h"
#include "server/background/targets/http_client.h"
#include "server/store/targets.h"

namespace tenure::background::targets {

class ObjectSink {
 public:
  virtual ~ObjectSink() = default;
  // Writes an object whole or not at all, in the place of one of the same name; durable when it returns. `name`:
  // segments with / between them, none of which is empty, . or ..
  virtual absl::Status Put(const std::string& name, const std::string& bytes, std::string_view content_type,
                           const std::stop_token& stop) = 0;
  // NOT_FOUND, or PERMISSION_DENIED from stores that tell no more, if there is none.
  virtual absl::StatusOr<std::string> Read(const std::string& name, size_t max_bytes, const std::stop_token& stop) = 0;
};

// For a target with objects. `http` outlives it. The error is for the target's owner.
absl::StatusOr<std::unique_ptr<ObjectSink>> MakeSink(const store::TargetSettings& settings, const Access& access,
                                                     HttpClient& http);

// Writes an object, reads it back and compares every byte. DATA_LOSS if it is another one.
absl::Status PutVerified(ObjectSink& sink, const std::string& name, const std::string& bytes,
                         std::string_view content_type, const std::stop_token& stop);

// The folder that a target has for itself, below its prefix: its name and when it was made, so that neither another
// target nor a later one of the same name overwrites its objects.
std::string FolderOf(const store::Target& target);

// A name of a queue as one segment: what is neither a letter nor a digit nor one of . _ - as %XX.
std::string SegmentOf(std::string_view name);

}  // namespace tenure::background::targets
