// tenurectl work: a worker for any program, on the client library's WorkerPool, so that it drains, extends and hears of
// cancels like any other pool. Layer: client/cli. Hooks and handlers run on the pool's threads; they share the output's
// mutex.
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/cli/child_process.h"
#include "client/cli/commands.h"
#include "client/cli/options.h"
#include "client/cli/output.h"
#include "client/cli/selection.h"
#include "client/cli/values.h"
#include "client/cli/work_outcome.h"
#include "google/protobuf/struct.pb.h"
#include "tenure/worker_pool.h"

namespace tenure::cli {
namespace {

struct WorkOptions {
  std::vector<std::string> queues;
  std::vector<std::string> kinds;
  std::string command;
  std::string order = "strict";
  int concurrency = 1;
  std::optional<absl::Duration> lease;
  std::optional<absl::Duration> grace;
  std::optional<absl::Duration> kill_grace;
  std::string worker_id;
  std::string result_type;
  size_t max_result = 1 << 20;
  bool quiet = false;
};

constexpr absl::Duration kDefaultKillGrace = absl::Seconds(5);

client::Outcome RunJob(const WorkOptions& options, const std::string& server, client::JobContext& job) {
  ChildSpec spec;
  spec.command = options.command;
  spec.input = job.payload().data;
  spec.max_output = options.max_result;
  spec.kill_grace = options.kill_grace.value_or(kDefaultKillGrace);
  spec.environment = {{"TENURE_JOB_ID", job.id()},
                      {"TENURE_QUEUE", job.queue()},
                      {"TENURE_KIND", job.kind()},
                      {"TENURE_ATTEMPT", absl::StrCat(job.attempt())},
                      {"TENURE_EFFECT_KEY", job.effect_key()},
                      {"TENURE_CONTENT_TYPE", job.payload().content_type},
                      // So that a tenurectl inside the command talks to the same daemon.
                      {"TENURE_SERVER", server}};
  const absl::StatusOr<ChildResult> result = RunChild(spec, job.stop_token());
  if (!result.ok()) return client::Fail{std::string(result.status().message()), "cannot start", ""};
  return OutcomeOf(*result, options.result_type);
}

std::string StateWord(client::JobState state) { return absl::AsciiStrToLower(std::string(client::ToString(state))); }

// One line for each job that was settled.
void PrintSettled(Context& context, const client::SettledEvent& event) {
  const client::Job& job = event.job;
  if (context.json) {
    google::protobuf::Struct line;
    auto& fields = *line.mutable_fields();
    fields["id"].set_string_value(job.id);
    fields["kind"].set_string_value(job.kind);
    fields["attempt"].set_number_value(job.attempt);
    fields["verb"].set_string_value(std::string(event.verb));
    fields["state"].set_string_value(event.status.ok() ? StateWord(event.result.state) : "");
    fields["refused"].set_string_value(event.status.ok() ? "" : client::ErrorReason(event.status));
    context.out() << ToJson(line) << std::endl;
    return;
  }
  context.out() << job.id << ' ' << job.kind << " attempt " << job.attempt << ": ";
  if (event.status.ok()) {
    context.out() << StateWord(event.result.state);
  } else {
    context.out() << event.verb << " refused: " << client::ErrorReason(event.status);
  }
  // Each line at once: this is a log.
  context.out() << std::endl;
}

// A pool's final status as exit status.
int ReportPool(Context& context, const absl::Status& status) {
  if (status.ok()) return kExitDone;
  v1::ItemError error;
  error.set_code(static_cast<int>(status.code()));
  error.set_reason(client::ErrorReason(status));
  error.set_message(std::string(status.message()));
  for (const auto& [key, value] : client::ErrorMetadata(status)) (*error.mutable_metadata())[key] = value;
  return context.ReportItem(error, "");
}

absl::Status MakePoolOptions(const WorkOptions& options, client::WorkerPoolOptions& pool) {
  for (const std::string& text : options.queues) {
    const absl::StatusOr<v1::QueueSelection> selection = ParseSelection(text);
    if (!selection.ok()) return selection.status();
    pool.queues.push_back({selection->queue(), selection->weight() == 0 ? 1 : selection->weight()});
  }
  pool.order = options.order == "weighted" ? client::QueueOrder::kWeighted : client::QueueOrder::kStrict;
  pool.worker_id = options.worker_id;
  pool.slots = options.concurrency;
  if (options.lease) pool.lease = absl::ToChronoNanoseconds(*options.lease);
  if (options.grace) pool.grace = absl::ToChronoNanoseconds(*options.grace);
  // The pool must not give up on a handler that is still within the command's own grace.
  pool.stop_wait = absl::ToChronoNanoseconds(options.kill_grace.value_or(kDefaultKillGrace) + absl::Seconds(1));
  return absl::OkStatus();
}

int Work(Context& context, const WorkOptions& options) {
  client::WorkerPoolOptions pool_options;
  const absl::Status made = MakePoolOptions(options, pool_options);
  if (!made.ok()) return context.ReportUsage(absl::StrCat("--queue: ", std::string(made.message())));
  // A pool waits for its daemon for ever; a person who mistyped an address wants to know now.
  const auto info = context.connection().GetServerInfo(v1::GetServerInfoRequest());
  if (!info.ok() && FactsOf(info.status()).reason == kUnreachable) return context.Report(info.status());

  client::ClientOptions client_options;
  client_options.targets = {context.server};
  client_options.timeout = absl::ToChronoNanoseconds(context.timeout);
  absl::StatusOr<client::Client> client = client::Client::Connect(client_options);
  if (!client.ok()) return ReportPool(context, client.status());

  std::mutex output;
  if (!options.quiet) {
    pool_options.hooks.settled = [&context, &output](const client::SettledEvent& event) {
      const std::lock_guard<std::mutex> lock(output);
      PrintSettled(context, event);
    };
  }
  pool_options.hooks.lost = [&context, &output](const client::Job& job, client::LeaseState state, const absl::Status&) {
    const std::lock_guard<std::mutex> lock(output);
    context.err() << job.id << ' ' << job.kind
                  << (state == client::LeaseState::kCancelled ? ": cancelled" : ": the lease was lost")
                  << ", stopping it" << std::endl;
  };
  pool_options.logger = [&context, &output](client::LogLevel level, std::string_view message) {
    if (level < client::LogLevel::kWarning) return;
    const std::lock_guard<std::mutex> lock(output);
    context.err() << (level == client::LogLevel::kError ? "error: " : "warning: ") << message << std::endl;
  };
  // Commands need not read their input.
  signal(SIGPIPE, SIG_IGN);
  client::WorkerPool pool(*std::move(client), std::move(pool_options));
  const client::Handler handler = [&options, &context](client::JobContext& job) {
    return RunJob(options, context.server, job);
  };
  for (const std::string& kind : options.kinds) pool.Handle(kind, handler);
  if (options.kinds.empty()) pool.HandleOther(handler);
  context.err() << "working as " << pool.worker_id() << "; Ctrl-C drains, a second one ends at once" << std::endl;
  const int exit_status = ReportPool(context, pool.RunUntilSignal());
  if (pool.Stats().abandoned > 0) {
    // Threads of commands that not even SIGKILL could end still use what a return would destroy.
    context.out().flush();
    context.err().flush();
    std::_Exit(exit_status);
  }
  return exit_status;
}

}  // namespace

void AddWorkCommand(CLI::App& root, Context& context) {
  auto options = std::make_shared<WorkOptions>();
  CLI::App* command = root.add_subcommand("work", "Work jobs with any program");
  command->footer(
      "The command gets the payload on stdin and TENURE_JOB_ID, TENURE_QUEUE, TENURE_KIND, TENURE_ATTEMPT, "
      "TENURE_EFFECT_KEY\n"
      "and TENURE_CONTENT_TYPE in its environment. Exit status 0 completes the job with stdout as its result, 75 "
      "retries it, 65\n"
      "discards it; any other retries it with the tail of stderr as the error. When the job is cancelled, its lease is "
      "lost or\n"
      "the worker shuts down, the command and all it started get SIGTERM, and SIGKILL after --kill-grace.");
  AddRepeated(*command, "-q,--queue", options->queues,
              "Queue to work, or NAME=WEIGHT; may be repeated, the first goes first")
      ->required();
  command->add_option("-x,--exec", options->command, "The command, for /bin/sh -c")->required()->type_name("CMD");
  command->add_option("-c,--concurrency", options->concurrency, "So many at once [1]")->check(CLI::Range(1, 1000));
  AddRepeated(*command, "-k,--kind", options->kinds, "Only these kinds; may be repeated, others are put off [all]");
  command->add_option("--order", options->order, "How several queues are served: strict or weighted [strict]")
      ->check(CLI::IsMember({"strict", "weighted"}));
  AddDuration(*command, "--lease", options->lease, "How long a lease lasts; it is extended meanwhile, 1s to 12h [30s]");
  AddDuration(*command, "--grace", options->grace, "At shutdown: how long commands may finish [10s]");
  AddDuration(*command, "--kill-grace", options->kill_grace, "From SIGTERM to SIGKILL [5s]");
  command->add_option("--worker-id", options->worker_id, "Shown as the holder [host-process-random]")
      ->envname("TENURE_WORKER_ID");
  command->add_option("--result-type", options->result_type, "Media type of the result [text/plain, or octet-stream]");
  command->add_option("--max-result-bytes", options->max_result, "Fail a command that writes more to stdout [1048576]");
  command->add_flag("--quiet", options->quiet, "No line for each job");
  OnRun(*command, context, [&context, options] { return Work(context, *options); });
}

}  // namespace tenure::cli
