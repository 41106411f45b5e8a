// A command's end as an outcome. Layer: client/cli. Thread-safe: pure functions.
#include "client/cli/work_outcome.h"

#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/cli/values.h"

namespace tenure::cli {

client::Outcome OutcomeOf(const ChildResult& result, const std::string& result_type) {
  const bool succeeded = result.signal == 0 && result.exit_status == 0;
  if (result.stopped && !succeeded) return client::Cancelled{};
  if (succeeded && result.output_cut) {
    return client::Fail{absl::StrCat("the command wrote more than ", result.output.size(), " bytes to stdout"),
                        "result too large", ""};
  }
  if (succeeded) {
    if (result.output.empty()) return client::Complete{};
    std::string type = result_type;
    if (type.empty()) type = IsValidUtf8(result.output) ? "text/plain" : "application/octet-stream";
    return client::Complete{client::Payload{result.output, std::move(type)}};
  }
  const std::string how = result.signal != 0
                              ? absl::StrCat("signal ", result.signal, " (", strsignal(result.signal), ")")
                              : absl::StrCat("exit status ", result.exit_status);
  std::string message = std::string(absl::StripAsciiWhitespace(result.error_tail));
  if (message.empty()) message = absl::StrCat(how, ", with nothing on stderr");
  if (result.signal == 0 && result.exit_status == kExitDiscard) return client::Discard{std::move(message)};
  return client::Fail{std::move(message), how, ""};
}

}  // namespace tenure::cli
