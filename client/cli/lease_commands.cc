// The lease primitives for scripts: claim, extend, complete, fail, release, snooze. Layer: client/cli. Not thread-safe.
#include <algorithm>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/enqueue_lines.h"
#include "client/cli/options.h"
#include "client/cli/output.h"
#include "client/cli/selection.h"
#include "client/cli/values.h"
#include "tenure/lease.h"

namespace tenure::cli {
namespace {

// The daemon's longest poll; a longer --wait is several of them.
constexpr absl::Duration kLongestWait = absl::Seconds(60);
constexpr absl::Duration kPauseAfterEarlyAnswer = absl::Milliseconds(200);

struct ClaimOptions {
  std::vector<std::string> queues;
  std::vector<std::string> jobs;
  std::vector<std::string> exclude_tenants;
  std::string order = "strict";
  int32_t max_jobs = 1;
  std::optional<absl::Duration> lease;
  std::optional<absl::Duration> wait;
  std::string worker_id;
  std::string request_id;
  bool token_only = false;
  bool fail_if_empty = false;
};

absl::Status MakeClaimRequest(const ClaimOptions& options, v1::ClaimRequest& request) {
  for (const std::string& queue : options.queues) {
    absl::StatusOr<v1::QueueSelection> selection = ParseSelection(queue);
    if (!selection.ok()) return selection.status();
    *request.add_queues() = *std::move(selection);
  }
  request.mutable_exclude_tenants()->Add(options.exclude_tenants.begin(), options.exclude_tenants.end());
  request.mutable_job_ids()->Add(options.jobs.begin(), options.jobs.end());
  request.set_worker_id(options.worker_id.empty() ? client::NewWorkerId() : options.worker_id);
  request.set_order(options.order == "weighted" ? v1::QUEUE_ORDER_WEIGHTED : v1::QUEUE_ORDER_STRICT);
  request.set_max_jobs(options.max_jobs);
  request.set_request_id(options.request_id);
  if (options.lease) *request.mutable_lease_duration() = ToProto(*options.lease);
  return absl::OkStatus();
}

// Polls until something was claimed, an item was refused or the wait is over.
absl::StatusOr<v1::ClaimResponse> Poll(Context& context, v1::ClaimRequest request, absl::Duration total_wait) {
  const absl::Time end = absl::Now() + total_wait;
  while (true) {
    const absl::Duration wait = std::max(absl::ZeroDuration(), std::min(kLongestWait, end - absl::Now()));
    *request.mutable_wait() = ToProto(wait);
    const absl::Time asked = absl::Now();
    absl::StatusOr<v1::ClaimResponse> response = context.connection().Claim(request);
    // A request id names one claim: its empty answer would only be repeated.
    if (!response.ok() || response->jobs_size() > 0 || response->refusals_size() > 0 || absl::Now() >= end ||
        !request.request_id().empty() || !request.job_ids().empty()) {
      return response;
    }
    // The daemon answers a little before the wait is over; the rest is not worth another poll.
    if (end - absl::Now() < absl::Milliseconds(500)) return response;
    if (absl::Now() < asked + wait / 2) Pause(kPauseAfterEarlyAnswer);
  }
}

void PrintClaims(Context& context, const v1::ClaimResponse& response, bool token_only) {
  Table table({{"ID"}, {"QUEUE"}, {"KIND"}, {"ATTEMPT", true}, {"UNTIL"}, {"TOKEN NO", true}, {"TOKEN"}});
  for (const v1::ClaimedJob& claimed : response.jobs()) {
    if (token_only) {
      context.out() << claimed.lease_token() << '\n';
    } else if (context.json) {
      PrintJson(context.out(), claimed);
    } else {
      const v1::Job& job = claimed.job();
      // From the lease's duration, not from its end: this machine's clock may differ from the database's.
      table.AddRow({job.id(), job.queue(), job.kind(), absl::StrCat(job.attempt()),
                    absl::StrCat("in ", ShowDuration(FromProto(claimed.lease_duration()))),
                    absl::StrCat(job.lease().token_number()), claimed.lease_token()});
    }
  }
  table.Print(context.out());
}

int Claim(Context& context, const ClaimOptions& options) {
  if (options.queues.empty() && options.jobs.empty()) {
    return context.ReportUsage("claim needs --queue or --job; see tenurectl claim --help");
  }
  v1::ClaimRequest request;
  const absl::Status made = MakeClaimRequest(options, request);
  if (!made.ok()) return context.ReportUsage(absl::StrCat("--queue: ", std::string(made.message())));
  const auto response = Poll(context, request, options.wait.value_or(absl::ZeroDuration()));
  if (!response.ok()) return context.Report(response.status());
  PrintClaims(context, *response, options.token_only);
  int exit_status = kExitDone;
  for (const v1::ClaimRefusal& refusal : response->refusals()) {
    if (context.json) PrintJson(context.out(), refusal);
    exit_status = context.ReportItem(refusal.error(), absl::StrCat("job: ", refusal.job_id()), refusal.job_id());
  }
  if (response->jobs_size() == 0 && response->refusals_size() == 0) {
    context.err() << "nothing to claim\n";
    if (options.fail_if_empty) exit_status = kExitRefused;
  }
  return exit_status;
}

void AddClaim(CLI::App& root, Context& context) {
  auto options = std::make_shared<ClaimOptions>();
  CLI::App* command = root.add_subcommand("claim", "Take ready jobs under a lease and print their tokens");
  command->footer(
      "An empty claim exits 0 with a note on stderr. In a script:\n"
      "  T=$(tenurectl claim -q mail --lease 30s --token-only)\n"
      "  tenurectl complete \"$T\"");
  CLI::Option* queue = AddRepeated(*command, "-q,--queue", options->queues,
                                   "Queue to claim from, or NAME=WEIGHT; may be repeated, the first goes first");
  AddRepeated(*command, "--job", options->jobs, "Claim this job by its id; may be repeated")->excludes(queue);
  AddRepeated(*command, "--exclude-tenant", options->exclude_tenants, "Leave out jobs of this tenant; may be repeated");
  command->add_option("--order", options->order, "How several queues are served: strict or weighted [strict]")
      ->check(CLI::IsMember({"strict", "weighted"}));
  command->add_option("-n,--max", options->max_jobs, "At most so many jobs, 1 to 1000 [1]")->check(CLI::Range(1, 1000));
  AddDuration(*command, "--lease", options->lease, "How long the lease lasts unless extended, 1s to 12h [30s]");
  AddDuration(*command, "--wait", options->wait, "Wait up to so long for a job [answer at once]");
  command->add_option("--worker-id", options->worker_id, "Shown as the holder [host-process-random]")
      ->envname("TENURE_WORKER_ID");
  command->add_option("--request-id", options->request_id,
                      "Makes the claim safe to repeat: the same id answers the same leases");
  command->add_flag("--token-only", options->token_only, "Print the tokens alone, one a line");
  command->add_flag("--fail-if-empty", options->fail_if_empty, "Exit 1 if there was nothing to claim");
  OnRun(*command, context, [&context, options] { return Claim(context, *options); });
}

// Prints what became of each token, in order; kExitRefused if one was refused.
template <typename Results>
int PrintSettled(Context& context, const std::vector<std::string>& tokens, const Results& results) {
  int exit_status = kExitDone;
  for (int i = 0; i < results.size(); ++i) {
    const v1::SettleResult& result = results.Get(i);
    const std::string job = static_cast<size_t>(i) < tokens.size() ? JobOfToken(tokens[static_cast<size_t>(i)]) : "";
    if (context.json) PrintJson(context.out(), result);
    if (result.has_error()) {
      exit_status = context.ReportItem(result.error(), absl::StrCat("job: ", job), job);
      continue;
    }
    if (context.json) continue;
    context.out() << job << ' ' << StateName(result.state());
    if (result.has_due_time()) context.out() << ", due " << ShowWhen(FromProto(result.due_time()), absl::Now());
    for (const std::string& id : result.follow_up_ids()) context.out() << ", then " << id;
    if (result.replayed()) context.out() << " (settled so before)";
    context.out() << '\n';
  }
  return exit_status;
}

CLI::Option* AddTokens(CLI::App& command, std::vector<std::string>& tokens) {
  return command.add_option("token", tokens, "Lease tokens, as claim printed them")->required();
}

// Fills a request with one item for each token, sends it and prints what became of each.
template <typename Request, typename Fill, typename Send>
int Settle(Context& context, const std::vector<std::string>& tokens, Fill fill, Send send) {
  Request request;
  for (const std::string& token : tokens) {
    auto* item = request.add_items();
    item->set_lease_token(token);
    fill(*item);
  }
  const auto response = send(request);
  // With one token the refusal of the call is the refusal of the item.
  if (!response.ok()) return context.Report(response.status(), "", JobOfToken(tokens.front()));
  return PrintSettled(context, tokens, response->results());
}

struct ExtendOptions {
  std::vector<std::string> tokens;
  std::optional<absl::Duration> duration;
  std::optional<double> progress;
  std::string message;
};

int Extend(Context& context, const ExtendOptions& options) {
  v1::ExtendRequest request;
  for (const std::string& token : options.tokens) {
    v1::ExtendItem* item = request.add_items();
    item->set_lease_token(token);
    if (options.duration) *item->mutable_duration() = ToProto(*options.duration);
    if (options.progress) item->mutable_progress()->set_fraction(*options.progress);
    if (!options.message.empty()) item->mutable_progress()->set_message(options.message);
  }
  const auto response = context.connection().Extend(request);
  if (!response.ok()) return context.Report(response.status(), "", JobOfToken(options.tokens.front()));
  int exit_status = kExitDone;
  for (int i = 0; i < response->results_size(); ++i) {
    const v1::ExtendResult& result = response->results(i);
    const auto index = static_cast<size_t>(i);
    const std::string job = index < options.tokens.size() ? JobOfToken(options.tokens[index]) : "";
    if (context.json) PrintJson(context.out(), result);
    if (result.has_error()) {
      exit_status = context.ReportItem(result.error(), absl::StrCat("job: ", job), job);
    } else if (!context.json) {
      context.out() << job << " extended for " << ShowDuration(FromProto(result.lease_duration())) << '\n';
    }
  }
  return exit_status;
}

void AddExtend(CLI::App& root, Context& context) {
  auto options = std::make_shared<ExtendOptions>();
  CLI::App* command = root.add_subcommand("extend", "Move the end of leases to now and a duration");
  AddTokens(*command, options->tokens);
  AddDuration(*command, "--for", options->duration, "The new remaining time, 1s to 12h [the claim's]");
  command->add_option("--progress", options->progress, "How far the job is, 0 to 1");
  command->add_option("--message", options->message, "How far it is, in words");
  OnRun(*command, context, [&context, options] { return Extend(context, *options); });
}

struct CompleteOptions {
  std::vector<std::string> tokens;
  PayloadOptions result;
  std::vector<std::string> follow_ups;
};

int Complete(Context& context, const CompleteOptions& options) {
  v1::CompleteItem model;
  if (options.result.given() || !options.result.content_type.empty()) {
    const absl::Status read = ReadPayload(options.result, "result", context.in(), *model.mutable_result());
    if (!read.ok()) return context.ReportUsage(std::string(read.message()));
  }
  for (const std::string& text : options.follow_ups) {
    absl::StatusOr<v1::JobSpec> spec = ParseLine(text, 0, v1::JobSpec());
    if (!spec.ok()) return context.ReportUsage(absl::StrCat("--follow-up: ", std::string(spec.status().message())));
    *model.add_follow_ups() = *std::move(spec);
  }
  return Settle<v1::CompleteRequest>(
      context, options.tokens,
      [&model](v1::CompleteItem& item) {
        const std::string token = item.lease_token();
        item = model;
        item.set_lease_token(token);
      },
      [&context](const v1::CompleteRequest& request) { return context.connection().Complete(request); });
}

void AddComplete(CLI::App& root, Context& context) {
  auto options = std::make_shared<CompleteOptions>();
  CLI::App* command = root.add_subcommand("complete", "End jobs as completed");
  AddTokens(*command, options->tokens);
  AddPayload(*command, "result", options->result, "The result");
  AddRepeated(*command, "--follow-up", options->follow_ups,
              "A job to enqueue in the same transaction: a JobSpec as JSON; may be repeated");
  OnRun(*command, context, [&context, options] { return Complete(context, *options); });
}

struct FailOptions {
  std::vector<std::string> tokens;
  std::string message;
  std::string type;
  std::string detail;
  bool discard = false;
  std::optional<absl::Duration> retry_after;
  std::optional<absl::Duration> pause_key_for;
  std::string pause_key;
};

void AddFail(CLI::App& root, Context& context) {
  auto options = std::make_shared<FailOptions>();
  CLI::App* command =
      root.add_subcommand("fail", "Report failures: the jobs wait for their next attempt or become dead letters");
  AddTokens(*command, options->tokens);
  command->add_option("-m,--message", options->message, "What went wrong");
  command->add_option("--type", options->type, "A class or code, for grouping");
  command->add_option("--detail", options->detail, "Stack trace or other detail");
  CLI::Option* discard = command->add_flag("--discard", options->discard, "Do not retry: make it a dead letter now");
  AddDuration(*command, "--retry-after", options->retry_after, "Wait so long instead of the backoff")
      ->excludes(discard);
  CLI::Option* pause = AddDuration(*command, "--pause-key-for", options->pause_key_for,
                                   "Start nothing that names one of its keys for so long");
  command->add_option("--pause-key", options->pause_key, "Only this one of its keys")->needs(pause);
  OnRun(*command, context, [&context, options] {
    return Settle<v1::FailRequest>(
        context, options->tokens,
        [&options](v1::FailItem& item) {
          item.mutable_error()->set_message(options->message);
          item.mutable_error()->set_type(options->type);
          item.mutable_error()->set_detail(options->detail);
          item.set_non_retryable(options->discard);
          if (options->retry_after) *item.mutable_retry_after() = ToProto(*options->retry_after);
          if (options->pause_key_for) *item.mutable_pause_key_for() = ToProto(*options->pause_key_for);
          item.set_pause_key(options->pause_key);
        },
        [&context](const v1::FailRequest& request) { return context.connection().Fail(request); });
  });
}

struct DelayOptions {
  std::vector<std::string> tokens;
  std::optional<absl::Duration> delay;
};

void AddRelease(CLI::App& root, Context& context) {
  auto options = std::make_shared<DelayOptions>();
  CLI::App* command = root.add_subcommand("release", "Give jobs back unstarted; spends no budget");
  AddTokens(*command, options->tokens);
  AddDuration(*command, "--delay", options->delay, "Ready again after so long [at once]");
  OnRun(*command, context, [&context, options] {
    return Settle<v1::ReleaseRequest>(
        context, options->tokens,
        [&options](v1::ReleaseItem& item) {
          if (options->delay) *item.mutable_delay() = ToProto(*options->delay);
        },
        [&context](const v1::ReleaseRequest& request) { return context.connection().Release(request); });
  });
}

void AddSnooze(CLI::App& root, Context& context) {
  auto options = std::make_shared<DelayOptions>();
  CLI::App* command = root.add_subcommand("snooze", "Give jobs back for later; spends no budget");
  AddTokens(*command, options->tokens);
  AddDuration(*command, "--for", options->delay, "Due again after so long")->required();
  OnRun(*command, context, [&context, options] {
    return Settle<v1::SnoozeRequest>(
        context, options->tokens,
        [&options](v1::SnoozeItem& item) { *item.mutable_delay() = ToProto(*options->delay); },
        [&context](const v1::SnoozeRequest& request) { return context.connection().Snooze(request); });
  });
}

}  // namespace

void AddLeaseCommands(CLI::App& root, Context& context) {
  AddClaim(root, context);
  AddExtend(root, context);
  AddComplete(root, context);
  AddFail(root, context);
  AddRelease(root, context);
  AddSnooze(root, context);
}

}  // namespace tenure::cli
