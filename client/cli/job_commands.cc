// tenurectl job get|list|cancel|retry. Layer: client/cli. Not thread-safe.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/job_output.h"
#include "client/cli/options.h"
#include "client/cli/output.h"
#include "client/cli/values.h"
#include "tenure/lease.h"

namespace tenure::cli {
namespace {

// Well below the daemon's limits of items a call.
constexpr size_t kIdsPerCall = 1000;

std::string JobSubject(const std::string& id) { return absl::StrCat("job: ", id); }

struct GetOptions {
  std::vector<std::string> ids;
  std::optional<absl::Duration> wait;
  bool exact = false;
};

absl::StatusOr<v1::Job> GetRecord(Context& context, const std::string& id) {
  v1::GetRequest request;
  request.set_id(id);
  request.set_exact(true);
  auto response = context.connection().Get(request);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_job());
}

// Tells people who asked for a job that goes on under another id, and answers that.
const std::string& SayMoved(Context& context, const std::string& asked, const std::string& job) {
  if (job.empty()) return asked;  // A daemon that does not say.
  if (!context.json && asked != job) {
    context.err() << asked << " was moved; it is " << job << " now (its own record: job get --exact)\n";
  }
  return job;
}

int Get(Context& context, const GetOptions& options) {
  int exit_status = kExitDone;
  for (const std::string& id : options.ids) {
    const auto job =
        options.exact ? GetRecord(context, id) : WaitForJob(context, id, options.wait.value_or(absl::ZeroDuration()));
    if (!job.ok()) {
      exit_status = Worse(exit_status, context.Report(job.status(), JobSubject(id), id));
      if (exit_status == kExitUnreachable) return exit_status;
    } else if (context.json) {
      PrintJson(context.out(), *job);
    } else {
      SayMoved(context, id, job->id());
      PrintJob(context.out(), *job, absl::Now());
    }
  }
  return exit_status;
}

struct ListOptions {
  std::string queue;
  std::vector<std::string> kinds;
  std::vector<v1::JobState> states;
  bool all_states = false;
  std::map<std::string, std::string> headers;
  std::string holder;
  std::optional<absl::Time> created_after, created_before, updated_after, updated_before, due_after, due_before;
  bool payloads = false;
  int32_t page_size = 0;
  int64_t limit = 0;
};

v1::ListRequest MakeListRequest(const ListOptions& options) {
  v1::ListRequest request;
  request.set_queue(options.queue);
  request.mutable_kinds()->Add(options.kinds.begin(), options.kinds.end());
  if (options.all_states) {
    for (int state = v1::JOB_STATE_SCHEDULED; state <= v1::JobState_MAX; ++state) {
      request.add_states(static_cast<v1::JobState>(state));
    }
  }
  for (const v1::JobState state : options.states) request.add_states(state);
  request.mutable_headers()->insert(options.headers.begin(), options.headers.end());
  request.set_holder(options.holder);
  if (options.created_after) *request.mutable_created_after() = ToProto(*options.created_after);
  if (options.created_before) *request.mutable_created_before() = ToProto(*options.created_before);
  if (options.updated_after) *request.mutable_updated_after() = ToProto(*options.updated_after);
  if (options.updated_before) *request.mutable_updated_before() = ToProto(*options.updated_before);
  if (options.due_after) *request.mutable_due_after() = ToProto(*options.due_after);
  if (options.due_before) *request.mutable_due_before() = ToProto(*options.due_before);
  request.set_include_payloads(options.payloads);
  request.set_page_size(options.page_size);
  return request;
}

int List(Context& context, const ListOptions& options) {
  v1::ListRequest request = MakeListRequest(options);
  Table table = MakeJobTable();
  int64_t printed = 0;
  do {
    const auto response = context.connection().List(request);
    if (!response.ok()) return context.Report(response.status());
    const absl::Time now = absl::Now();
    for (const v1::Job& job : response->jobs()) {
      if (options.limit > 0 && printed == options.limit) break;
      ++printed;
      if (context.json) {
        PrintJson(context.out(), job);
      } else {
        AddJobRow(table, job, now);
      }
    }
    table.Print(context.out());
    request.set_page_token(response->next_page_token());
  } while (!request.page_token().empty() && (options.limit == 0 || printed < options.limit));
  if (printed == 0) {
    const bool live_only = options.states.empty() && !options.all_states;
    context.err() << (live_only ? "no live jobs; ended ones are listed with --all or --state\n" : "no jobs\n");
  }
  return kExitDone;
}

void AddListCommand(CLI::App& group, Context& context) {
  auto options = std::make_shared<ListOptions>();
  CLI::App* list = group.add_subcommand("list", "List jobs, newest first within live and ended ones");
  list->add_option("-q,--queue", options->queue, "Only of this queue");
  AddRepeated(*list, "-k,--kind", options->kinds, "Only of these kinds; may be repeated");
  CLI::Option* state =
      AddStates(*list, "--state", options->states, "Only in these states, such as ready,leased [all live states]");
  list->add_flag("--all", options->all_states, "In any state, ended jobs too")->excludes(state);
  AddPairs(*list, "--header", options->headers, "Only with this header; may be repeated, all must match");
  list->add_option("--holder", options->holder, "Only jobs that this worker holds");
  AddTime(*list, "--created-after", options->created_after, "Created at or after, such as -1h or 2026-11-29T12:00:00Z");
  AddTime(*list, "--created-before", options->created_before, "Created before");
  AddTime(*list, "--updated-after", options->updated_after, "Changed state at or after");
  AddTime(*list, "--updated-before", options->updated_before, "Changed state before");
  AddTime(*list, "--due-after", options->due_after, "Due at or after");
  AddTime(*list, "--due-before", options->due_before, "Due before");
  list->add_flag("--payloads", options->payloads, "With payloads and results (shown with --json)");
  list->add_option("--limit", options->limit, "At most so many [all]")->check(AtLeastOne());
  list->add_option("--page-size", options->page_size, "So many per call, at most 1000 [50]")
      ->check(CLI::Range(1, 1000));
  OnRun(*list, context, [&context, options] { return List(context, *options); });
}

// Calls `send` with the ids in batches; it answers an exit status.
template <typename Send>
int InBatches(const std::vector<std::string>& ids, Send send) {
  int exit_status = kExitDone;
  for (size_t begin = 0; begin < ids.size(); begin += kIdsPerCall) {
    const size_t end = std::min(ids.size(), begin + kIdsPerCall);
    exit_status = Worse(exit_status, send(std::vector<std::string>(ids.begin() + static_cast<std::ptrdiff_t>(begin),
                                                                   ids.begin() + static_cast<std::ptrdiff_t>(end))));
    if (exit_status == kExitUnreachable) break;
  }
  return exit_status;
}

int Cancel(Context& context, const std::vector<std::string>& ids, const std::string& reason) {
  return InBatches(ids, [&](const std::vector<std::string>& batch) {
    v1::CancelRequest request;
    request.mutable_ids()->Add(batch.begin(), batch.end());
    request.set_reason(reason);
    const auto response = context.connection().Cancel(request);
    if (!response.ok()) return context.Report(response.status());
    int exit_status = kExitDone;
    for (const v1::CancelResult& result : response->results()) {
      if (context.json) PrintJson(context.out(), result);
      if (result.has_error()) {
        exit_status = context.ReportItem(result.error(), JobSubject(result.id()), result.id());
      } else if (!context.json) {
        context.out() << SayMoved(context, result.id(), result.job_id()) << " cancelled (was "
                      << StateName(result.previous_state()) << ")\n";
      }
    }
    return exit_status;
  });
}

int Retry(Context& context, const std::vector<std::string>& ids) {
  return InBatches(ids, [&](const std::vector<std::string>& batch) {
    v1::RetryRequest request;
    request.mutable_ids()->Add(batch.begin(), batch.end());
    // Makes the call safe to repeat, should its answer get lost.
    request.set_request_id(client::NewRequestId());
    const auto response = context.connection().Retry(request);
    if (!response.ok()) return context.Report(response.status());
    int exit_status = kExitDone;
    for (const v1::RetryResult& result : response->results()) {
      if (context.json) PrintJson(context.out(), result);
      if (result.has_error()) {
        exit_status = context.ReportItem(result.error(), JobSubject(result.id()), result.id());
      } else if (!context.json) {
        context.out() << result.id()
                      << (result.job_id() == result.id() ? " is due now" : " runs again as " + result.job_id()) << '\n';
      }
    }
    return exit_status;
  });
}

int Explain(Context& context, const std::vector<std::string>& ids) {
  int exit_status = kExitDone;
  for (const std::string& id : ids) {
    v1::ExplainRequest request;
    request.set_id(id);
    const auto response = context.connection().Explain(request);
    if (!response.ok()) {
      exit_status = Worse(exit_status, context.Report(response.status(), JobSubject(id), id));
      if (exit_status == kExitUnreachable) return exit_status;
      continue;
    }
    if (context.json) {
      PrintJson(context.out(), *response);
      continue;
    }
    context.out() << "Job " << SayMoved(context, id, response->job_id()) << " is " << StateName(response->state())
                  << '\n';
    for (const v1::WaitCause& cause : response->causes()) {
      context.out() << "  " << OneLine(cause.message(), 1024) << '\n';
      if (cause.holder_job_ids().empty()) continue;
      context.out() << "    held by";
      for (const std::string& holder : cause.holder_job_ids()) context.out() << ' ' << holder;
      context.out() << '\n';
    }
  }
  return exit_status;
}

}  // namespace

void AddJobCommands(CLI::App& root, Context& context) {
  CLI::App* group = root.add_subcommand("job", "Enqueue, look up, cancel and retry jobs");
  group->require_subcommand(1);
  AddEnqueueCommand(*group, context);

  auto get_options = std::make_shared<GetOptions>();
  CLI::App* get = group->add_subcommand("get", "Show jobs with all that is known about them");
  get->add_option("id", get_options->ids, "Ids of jobs")->required();
  CLI::Option* wait = AddDuration(*get, "--wait", get_options->wait, "Wait up to so long for each to end");
  get->add_flag("--exact", get_options->exact, "Of a job that was moved, its own record and not the job that it became")
      ->excludes(wait);
  OnRun(*get, context, [&context, get_options] { return Get(context, *get_options); });

  AddListCommand(*group, context);

  auto explain_ids = std::make_shared<std::vector<std::string>>();
  CLI::App* explain = group->add_subcommand("explain", "Say why jobs are not running: all that holds them up now");
  explain->add_option("id", *explain_ids, "Ids of jobs")->required();
  OnRun(*explain, context, [&context, explain_ids] { return Explain(context, *explain_ids); });

  auto cancel_ids = std::make_shared<std::vector<std::string>>();
  auto reason = std::make_shared<std::string>();
  CLI::App* cancel = group->add_subcommand("cancel", "End live jobs at once and for good, in whatever state");
  cancel->add_option("id", *cancel_ids, "Ids of jobs")->required();
  cancel->add_option("--reason", *reason, "Recorded with the job and passed to its worker");
  OnRun(*cancel, context, [&context, cancel_ids, reason] { return Cancel(context, *cancel_ids, *reason); });

  auto retry_ids = std::make_shared<std::vector<std::string>>();
  CLI::App* retry =
      group->add_subcommand("retry", "Make scheduled jobs due now; run ended jobs once more, each as a new job");
  retry->add_option("id", *retry_ids, "Ids of jobs")->required();
  OnRun(*retry, context, [&context, retry_ids] { return Retry(context, *retry_ids); });
}

}  // namespace tenure::cli
