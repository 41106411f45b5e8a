// What claim and work share: how queues are named on the command line. Layer: client/cli. Thread-safe: values only.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "tenure/v1/worker_service.pb.h"

namespace tenure::cli {

// "mail" or "mail=3" (a weight from 1 to 1,000; '=' is in no queue's name). INVALID_ARGUMENT states the rule.
absl::StatusOr<v1::QueueSelection> ParseSelection(const std::string& text);

}  // namespace tenure::cli
