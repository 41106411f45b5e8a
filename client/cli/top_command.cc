// tenurectl top: queues and their rates, redrawn on a terminal until a signal comes; one snapshot otherwise. Rates are
// differences of the daemon's totals between two looks, so nothing is counted here. Layer: client/cli. Not thread-safe.
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/commands.h"
#include "client/cli/options.h"
#include "client/cli/output.h"
#include "client/cli/top_rates.h"
#include "client/cli/values.h"

namespace tenure::cli {
namespace {

constexpr char kClearScreen[] = "\x1b[H\x1b[J";

struct TopOptions {
  std::string prefix;
  std::optional<absl::Duration> interval;
  bool once = false;
};

absl::StatusOr<std::vector<v1::Queue>> FetchQueues(Context& context, const std::string& prefix) {
  std::vector<v1::Queue> queues;
  v1::ListQueuesRequest request;
  request.set_name_prefix(prefix);
  request.set_page_size(1000);
  do {
    auto response = context.connection().ListQueues(request);
    if (!response.ok()) return response.status();
    for (v1::Queue& queue : *response->mutable_queues()) queues.push_back(std::move(queue));
    request.set_page_token(response->next_page_token());
  } while (!request.page_token().empty());
  return queues;
}

// Waits for SIGINT or SIGTERM, both blocked; true if one came.
bool StopSignalled(absl::Duration wait) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  const timespec timeout = absl::ToTimespec(wait);
  while (true) {
    if (sigtimedwait(&signals, nullptr, &timeout) > 0) return true;
    if (errno != EINTR) return false;
  }
}

void BlockStopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

int Once(Context& context, const TopOptions& options) {
  const auto queues = FetchQueues(context, options.prefix);
  if (!queues.ok()) return context.Report(queues.status());
  if (context.json) {
    for (const v1::Queue& queue : *queues) PrintJson(context.out(), queue);
    return kExitDone;
  }
  QueueRates rates;
  rates.Update(*queues, absl::Now());
  PrintTop(context.out(), *queues, rates);
  return kExitDone;
}

// Redraws until a signal comes. A daemon that is away for a while is shown as such and asked again.
int Live(Context& context, const TopOptions& options) {
  const absl::Duration interval = options.interval.value_or(absl::Seconds(1));
  // Before the connection starts its threads, so that they do not take the signal.
  BlockStopSignals();
  QueueRates rates;
  bool reached = false;
  do {
    const auto queues = FetchQueues(context, options.prefix);
    std::ostringstream screen;
    screen << kClearScreen << "tenure at " << context.server << "   " << ShowTime(absl::Now()) << "   every "
           << ShowDuration(interval) << "   Ctrl-C ends\n\n";
    if (queues.ok()) {
      reached = true;
      rates.Update(*queues, absl::Now());
      PrintTop(screen, *queues, rates);
    } else if (!reached) {
      return context.Report(queues.status());
    } else {
      screen << "error: " << OneLine(std::string(queues.status().message()), 500) << '\n';
    }
    // One write a frame, or it flickers.
    context.out() << screen.str() << std::flush;
  } while (!StopSignalled(interval));
  return kExitDone;
}

}  // namespace

void AddTopCommand(CLI::App& root, Context& context) {
  auto options = std::make_shared<TopOptions>();
  CLI::App* command = root.add_subcommand("top", "Show queues and their rates, live on a terminal");
  command->add_option("--prefix", options->prefix, "Only queues whose names start so");
  AddDuration(*command, "--interval", options->interval, "Between two looks, from 100ms [1s]");
  command->add_flag("--once", options->once, "One snapshot, also on a terminal");
  OnRun(*command, context, [&context, options] {
    if (options->interval && *options->interval < absl::Milliseconds(100)) {
      return context.ReportUsage("--interval: must be at least 100ms");
    }
    const bool live = context.streams().out_is_terminal && !options->once && !context.json;
    return live ? Live(context, *options) : Once(context, *options);
  });
}

}  // namespace tenure::cli
