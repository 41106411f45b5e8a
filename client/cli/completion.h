// Shell completion, generated from the command tree itself, so that no command or option is ever listed by hand.
// Layer: client/cli. Thread-safe: pure functions.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace tenure::cli {

// A script for the shell to source; completes commands, options, the words an option takes where they are a closed set,
// and files.
std::string BashCompletion(const CLI::App& root);
std::string ZshCompletion(const CLI::App& root);
std::string FishCompletion(const CLI::App& root);

}  // namespace tenure::cli
