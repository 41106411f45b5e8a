// The command tree, its global options, and exit statuses. Layer: client/cli. Not thread-safe.
#include "client/cli/app.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <optional>
#include <ostream>

#include "client/cli/commands.h"
#include "client/cli/options.h"

#ifndef TENURE_VERSION
#error "TENURE_VERSION must be defined by the build"
#endif

namespace tenure::cli {
namespace {

int PrintVersion(Context& context) {
  if (context.json) {
    context.out() << "{\"version\":\"" TENURE_VERSION "\"}\n";
  } else {
    context.out() << "tenurectl " TENURE_VERSION "\n";
  }
  return kExitDone;
}

// The command that the arguments led to, for "see ... --help".
std::string Deepest(const CLI::App& root) {
  std::string path = root.get_name();
  const CLI::App* app = &root;
  while (!app->get_subcommands().empty()) {
    app = app->get_subcommands().front();
    path += " " + app->get_name();
  }
  return path;
}

}  // namespace

std::unique_ptr<CLI::App> MakeCommandTree(Context& context) {
  auto root = std::make_unique<CLI::App>("Tenure's command line", "tenurectl");
  root->require_subcommand(1);
  // Global options may stand anywhere.
  root->fallthrough();
  root->set_version_flag("--version", "tenurectl " TENURE_VERSION, "Print the version and exit");
  root->add_option("-s,--server", context.server, "Address of the daemon [127.0.0.1:8470]")->envname("TENURE_SERVER");
  // Lives in the tree's options as long as the tree.
  auto timeout = std::make_shared<std::optional<absl::Duration>>();
  AddDuration(*root, "--timeout", *timeout, "How long a call may take, beyond what it waits for [10s]")
      ->envname("TENURE_TIMEOUT");
  root->add_flag("--json", context.json, "Print JSON, one object a line, for programs");
  root->parse_complete_callback([&context, timeout] {
    if (timeout->has_value()) context.timeout = **timeout;
  });
  root->footer(
      "Exit status: 0 done, 1 refused by the daemon, 2 wrong usage, 3 daemon out of reach.\n"
      "Durations are written 500ms, 2s, 1m30s, 1h, 7d. tenurectl COMMAND --help tells more.");
  AddQueueCommands(*root, context);
  AddJobCommands(*root, context);
  AddScheduleCommands(*root, context);
  AddTargetCommands(*root, context);
  AddMoveCommands(*root, context);
  AddLimitCommands(*root, context);
  AddLeaseCommands(*root, context);
  AddWorkCommand(*root, context);
  AddAdminCommands(*root, context);
  AddTopCommand(*root, context);
  AddCompletionCommand(*root, context);
  CLI::App* version = root->add_subcommand("version", "Print the version");
  OnRun(*version, context, [&context] { return PrintVersion(context); });
  return root;
}

int RunCommandLine(const std::vector<std::string>& arguments, const Streams& streams) {
  Context context(streams);
  const std::unique_ptr<CLI::App> root = MakeCommandTree(context);
  try {
    // CLI11 takes them from the back.
    root->parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    // Help and version arrive as errors with status 0.
    if (error.get_exit_code() == 0) return root->exit(error, streams.out, streams.err) == 0 ? kExitDone : kExitUsage;
    // CLI11 would say that a command is missing; the reader wrote one, only it is unknown.
    const std::vector<std::string> unknown = root->remaining(/*recurse=*/true);
    const bool no_command = error.get_name() == "RequiredError" && !unknown.empty();
    return context.ReportUsage((no_command ? "unknown command or option: " + unknown.front() : error.what()) +
                               "\n  next: " + Deepest(*root) + " --help");
  }
  if (context.timeout <= absl::ZeroDuration()) return context.ReportUsage("--timeout: must be more than 0");
  int exit_status = context.RunAction();
  streams.out.flush();
  if (!streams.out.good()) {
    streams.err << "error: OUTPUT: cannot write to standard output\n";
    exit_status = Worse(exit_status, kExitRefused);
  }
  return exit_status;
}

}  // namespace tenure::cli
