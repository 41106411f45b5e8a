// The command line as a function, so that tests run it in their own process. Layer: client/cli.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "client/cli/context.h"

namespace tenure::cli {

// Parses the arguments (without the program's name), runs the command and answers the exit status. Never throws. Not
// thread-safe: `top` and `work` change the process's signal handling.
int RunCommandLine(const std::vector<std::string>& arguments, const Streams& streams);

// For tests: the tree of commands. The context must outlive it.
std::unique_ptr<CLI::App> MakeCommandTree(Context& context);

}  // namespace tenure::cli
