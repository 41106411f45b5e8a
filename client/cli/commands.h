// The command groups; each function adds one to the CLI11 tree. A command's callback leaves its action in the context,
// which must outlive the tree. Layer: client/cli. Not thread-safe.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <utility>

#include "client/cli/context.h"

namespace tenure::cli {

void AddQueueCommands(CLI::App& root, Context& context);  // queue create|update|get|list|pause|resume
// schedule create|update|get|list|pause|resume|delete|trigger
void AddScheduleCommands(CLI::App& root, Context& context);
// target create|update|get|list|pause|resume|delete|dead|redrive
void AddTargetCommands(CLI::App& root, Context& context);
void AddMoveCommands(CLI::App& root, Context& context);       // move create|get|list|pause|resume|cancel
void AddLimitCommands(CLI::App& root, Context& context);      // limit set|get|list|delete
void AddJobCommands(CLI::App& root, Context& context);        // job get|list|cancel|retry, and enqueue:
void AddEnqueueCommand(CLI::App& job, Context& context);      // job enqueue
void AddLeaseCommands(CLI::App& root, Context& context);      // claim extend complete fail release snooze
void AddWorkCommand(CLI::App& root, Context& context);        // work
void AddAdminCommands(CLI::App& root, Context& context);      // worker, server, background list; doctor
void AddTopCommand(CLI::App& root, Context& context);         // top
void AddCompletionCommand(CLI::App& root, Context& context);  // completion bash|zsh|fish, from the tree as it stands

// Makes `action` what the process does if `command` is the one that was given.
inline void OnRun(CLI::App& command, Context& context, std::function<int()> action) {
  command.callback([&context, action = std::move(action)] { context.SetAction(action); });
}

}  // namespace tenure::cli
