// CLI11 options of our value types. Layer: client/cli. Not thread-safe.
#include "client/cli/options.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cli/values.h"

namespace tenure::cli {
namespace {

// CLI11 takes a check's non-empty answer as the error text and puts the option's name before it.
template <typename Parse>
CLI::Option* AddParsed(CLI::App& app, const std::string& names, const std::string& description, const std::string& type,
                       Parse parse) {
  // The option needs a place for its text; nobody reads it.
  auto text = std::make_shared<std::vector<std::string>>();
  CLI::Option* option = app.add_option(names, *text, description)
                            ->allow_extra_args(false)
                            ->type_name(type)
                            ->check(CLI::Validator([text, parse](std::string& value) { return parse(value); }, ""));
  return option;
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

}  // namespace

CLI::Option* AddDuration(CLI::App& app, const std::string& names, std::optional<absl::Duration>& target,
                         const std::string& description) {
  return AddParsed(app, names, description, "DURATION",
                   [&target](const std::string& value) {
                     absl::StatusOr<absl::Duration> duration = ParseDuration(value);
                     if (!duration.ok()) return Message(duration.status());
                     target = *duration;
                     return std::string();
                   })
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

CLI::Option* AddTime(CLI::App& app, const std::string& names, std::optional<absl::Time>& target,
                     const std::string& description) {
  return AddParsed(app, names, description, "TIME",
                   [&target](const std::string& value) {
                     absl::StatusOr<absl::Time> time = ParseTime(value, absl::Now());
                     if (!time.ok()) return Message(time.status());
                     target = *time;
                     return std::string();
                   })
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

CLI::Option* AddBool(CLI::App& app, const std::string& names, std::optional<bool>& target,
                     const std::string& description) {
  return AddParsed(app, names, description, "true|false",
                   [&target](const std::string& value) {
                     if (value != "true" && value != "false") {
                       return absl::StrCat("must be true or false, not \"", OneLine(value, 100), "\"");
                     }
                     target = value == "true";
                     return std::string();
                   })
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

CLI::Option* AddPairs(CLI::App& app, const std::string& names, std::map<std::string, std::string>& target,
                      const std::string& description) {
  return AddParsed(app, names, description, "KEY=VALUE", [&target](const std::string& value) {
    auto pair = ParsePair(value);
    if (!pair.ok()) return Message(pair.status());
    target[pair->first] = pair->second;
    return std::string();
  });
}

CLI::Option* AddStates(CLI::App& app, const std::string& names, std::vector<v1::JobState>& target,
                       const std::string& description) {
  return AddParsed(app, names, description, "STATE", [&target](const std::string& value) {
    const std::vector<std::string> parts = absl::StrSplit(value, ',');
    for (const std::string& part : parts) {
      absl::StatusOr<v1::JobState> state = ParseState(part);
      if (!state.ok()) return Message(state.status());
      target.push_back(*state);
    }
    return std::string();
  });
}

CLI::Option* AddRepeated(CLI::App& app, const std::string& names, std::vector<std::string>& target,
                         const std::string& description) {
  return app.add_option(names, target, description)->allow_extra_args(false)->type_name("TEXT");
}

CLI::Validator NotEmpty() {
  return CLI::Validator([](std::string& text) { return text.empty() ? std::string("must not be empty") : ""; }, "");
}

CLI::Validator AtLeastOne() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        int64_t number = 0;
        if (absl::SimpleAtoi(text, &number) && number >= 1) return "";
        return absl::StrCat("must be a whole number of at least 1, not ", text);
      },
      "");
}

void AddPayload(CLI::App& app, const std::string& name, PayloadOptions& target, const std::string& what,
                bool positional) {
  CLI::Option* text = app.add_option("--" + name + (positional ? "," + name : ""), target.text, what + " as text");
  app.add_option("--" + name + "-file", target.file, what + " from a file; - for stdin")
      ->type_name("FILE")
      ->excludes(text);
  app.add_option("--content-type", target.content_type,
                 "Media type of the " + name + " [application/json for text, application/octet-stream for a file]");
}

absl::Status ReadPayload(const PayloadOptions& options, const std::string& name, std::istream& in,
                         v1::Payload& payload) {
  if (options.text.has_value()) {
    payload.set_text(*options.text);
  } else if (options.file == "-") {
    payload.set_data(std::string(std::istreambuf_iterator<char>(in), {}));
  } else if (!options.file.empty()) {
    std::ifstream file(options.file, std::ios::binary);
    std::string bytes(std::istreambuf_iterator<char>(file), {});
    // A folder opens but does not read.
    if (!file.is_open() || file.bad()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", name, "-file: cannot read ", options.file, ": ", std::strerror(errno)));
    }
    payload.set_data(std::move(bytes));
  }
  if (!options.content_type.empty()) payload.set_content_type(options.content_type);
  return absl::OkStatus();
}

}  // namespace tenure::cli
