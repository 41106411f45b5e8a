// Queues on the command line. Layer: client/cli. Thread-safe: values only.
#include "client/cli/selection.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace tenure::cli {

absl::StatusOr<v1::QueueSelection> ParseSelection(const std::string& text) {
  v1::QueueSelection selection;
  const size_t equals = text.find('=');
  selection.set_queue(text.substr(0, equals));
  if (equals != std::string::npos) {
    int32_t weight = 0;
    if (!absl::SimpleAtoi(text.substr(equals + 1), &weight) || weight < 1 || weight > 1000) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", text, "\" has no weight from 1 to 1000: write NAME or NAME=WEIGHT"));
    }
    selection.set_weight(weight);
  }
  if (selection.queue().empty()) return absl::InvalidArgumentError("the name of a queue must not be empty");
  return selection;
}

}  // namespace tenure::cli
