// What claim and work share: which queues, and under which name. Layer: client/cli. Thread-safe: values only.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "tenure/v1/worker_service.pb.h"

namespace tenure::cli {

// "mail" or "mail=3" (a weight from 1 to 1,000; '=' is in no queue's name). INVALID_ARGUMENT states the rule.
absl::StatusOr<v1::QueueSelection> ParseSelection(const std::string& text);

// host-process-random, unique for each process.
std::string DefaultWorkerId();

}  // namespace tenure::cli
