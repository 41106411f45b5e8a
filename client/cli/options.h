// CLI11 options of our value types. A value that does not parse is a usage error that names the option and states the
// rule. The target is written while the arguments are parsed and must outlive that. Layer: client/cli. Not thread-safe.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tenure/v1/job.pb.h"

namespace tenure::cli {

CLI::Option* AddDuration(CLI::App& app, const std::string& names, std::optional<absl::Duration>& target,
                         const std::string& description);
CLI::Option* AddTime(CLI::App& app, const std::string& names, std::optional<absl::Time>& target,
                     const std::string& description);
// "true" or "false".
CLI::Option* AddBool(CLI::App& app, const std::string& names, std::optional<bool>& target,
                     const std::string& description);
// key=value; may be repeated.
CLI::Option* AddPairs(CLI::App& app, const std::string& names, std::map<std::string, std::string>& target,
                      const std::string& description);
// Names of states; may be repeated or separated by commas.
CLI::Option* AddStates(CLI::App& app, const std::string& names, std::vector<v1::JobState>& target,
                       const std::string& description);
// A list that is given by repeating the option, one value each time, so that it never swallows what follows.
CLI::Option* AddRepeated(CLI::App& app, const std::string& names, std::vector<std::string>& target,
                         const std::string& description);
// A check for counts: a whole number of at least 1.
CLI::Validator AtLeastOne();

// A check for keys: an empty one, as from a variable that is not set, is not silently none.
CLI::Validator NotEmpty();

// Bytes that a user hands over: as text on the command line, or from a file ("-" for stdin).
struct PayloadOptions {
  std::optional<std::string> text;
  std::string file;
  std::string content_type;

  bool given() const { return text.has_value() || !file.empty(); }
};

// --<name> TEXT (also as an argument without a name, if `positional`), --<name>-file FILE and --content-type TYPE.
void AddPayload(CLI::App& app, const std::string& name, PayloadOptions& target, const std::string& what,
                bool positional = false);

// Reads the options into `payload`. INVALID_ARGUMENT, for Context::ReportUsage, if the file cannot be read.
absl::Status ReadPayload(const PayloadOptions& options, const std::string& name, std::istream& in,
                         v1::Payload& payload);

}  // namespace tenure::cli
