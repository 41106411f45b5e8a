// The same call for each of several named things (queues, schedules, targets). Layer: client/cli.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/context.h"

namespace tenure::cli {

// Calls `rpc` with a Request for each name and hands its answer to `print(response, name)`; what went wrong is reported
// with "`what`: name". The first daemon that cannot be reached ends it. Returns the exit status.
template <typename Request, typename Rpc, typename Print>
int ForEachName(Context& context, const char* what, const std::vector<std::string>& names, Rpc rpc, Print print) {
  int exit_status = kExitDone;
  for (const std::string& name : names) {
    Request request;
    request.set_name(name);
    const auto response = rpc(request);
    if (!response.ok()) {
      exit_status = Worse(exit_status, context.Report(response.status(), absl::StrCat(what, ": ", name)));
      if (exit_status == kExitUnreachable) return exit_status;
      continue;
    }
    print(*response, name);
  }
  return exit_status;
}

}  // namespace tenure::cli
