// tenurectl job enqueue: one job from arguments, or many from JSON lines. Layer: client/cli. Not thread-safe.
//
// Lines are sent in batches of up to 1,000 jobs that stay below the daemon's message limit. A line that does not parse
// and a job that is refused are reported with their line numbers; all others go on, and the exit status is 1 at the
// end.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <istream>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/enqueue_lines.h"
#include "client/cli/job_output.h"
#include "client/cli/options.h"
#include "client/cli/output.h"
#include "client/cli/queue_watch.h"
#include "client/cli/values.h"

namespace tenure::cli {
namespace {

// How long --wait waits before it looks whether anybody works the queue.
constexpr absl::Duration kPatience = absl::Seconds(2);

struct EnqueueOptions {
  std::string queue;
  std::string kind;
  PayloadOptions payload;
  std::map<std::string, std::string> headers;
  int32_t priority = 0;
  std::string tenant;
  std::optional<absl::Duration> delay, ttl, idempotency_retention, backoff_initial, backoff_max;
  std::optional<absl::Time> due, expires;
  std::optional<double> backoff_multiplier;
  int32_t max_attempts = 0;
  int32_t crash_budget = 0;
  std::string idempotency_key;
  std::string effect_key;
  std::vector<std::string> keys;
  std::string group;
  std::string unique_key;
  bool unique_by_kind = false;
  std::vector<std::string> unique_states;
  std::optional<absl::Duration> unique_period;
  std::string on_conflict;
  std::vector<std::string> after;
  bool after_any_end = false;
  std::string on_failure;
  std::string file;
  bool wait = false;
  std::optional<absl::Duration> wait_timeout;
};

const std::map<std::string, v1::UniqueConflict>& Policies() {
  static const std::map<std::string, v1::UniqueConflict> policies{
      {"return", v1::UNIQUE_CONFLICT_RETURN_EXISTING},
      {"replace", v1::UNIQUE_CONFLICT_REPLACE},
      {"reschedule", v1::UNIQUE_CONFLICT_RESCHEDULE},
      {"replace-and-reschedule", v1::UNIQUE_CONFLICT_REPLACE_AND_RESCHEDULE},
      {"reject", v1::UNIQUE_CONFLICT_REJECT}};
  return policies;
}

absl::Status SetUnique(const EnqueueOptions& options, v1::Unique& unique) {
  unique.set_key(options.unique_key);
  if (options.unique_by_kind) unique.set_scope(v1::UNIQUE_SCOPE_KIND);
  for (const std::string& name : options.unique_states) {
    const absl::StatusOr<v1::JobState> state = ParseState(name);
    if (!state.ok()) return state.status();
    unique.add_states(*state);
  }
  if (options.unique_period) *unique.mutable_period() = ToProto(*options.unique_period);
  if (!options.on_conflict.empty()) unique.set_on_conflict(Policies().at(options.on_conflict));
  return absl::OkStatus();
}

absl::Status MakeSpec(const EnqueueOptions& options, std::istream& in, v1::JobSpec& spec) {
  spec.set_queue(options.queue);
  spec.set_kind(options.kind);
  if (options.payload.given() || !options.payload.content_type.empty()) {
    absl::Status read = ReadPayload(options.payload, "payload", in, *spec.mutable_payload());
    if (!read.ok()) return read;
  }
  spec.mutable_headers()->insert(options.headers.begin(), options.headers.end());
  spec.set_priority(options.priority);
  spec.set_tenant(options.tenant);
  if (options.due) *spec.mutable_due_time() = ToProto(*options.due);
  if (options.delay) *spec.mutable_delay() = ToProto(*options.delay);
  if (options.expires) *spec.mutable_expire_time() = ToProto(*options.expires);
  if (options.ttl) *spec.mutable_ttl() = ToProto(*options.ttl);
  spec.set_max_attempts(options.max_attempts);
  spec.set_crash_budget(options.crash_budget);
  if (options.backoff_initial) *spec.mutable_backoff()->mutable_initial() = ToProto(*options.backoff_initial);
  if (options.backoff_multiplier) spec.mutable_backoff()->set_multiplier(*options.backoff_multiplier);
  if (options.backoff_max) *spec.mutable_backoff()->mutable_max() = ToProto(*options.backoff_max);
  if (options.idempotency_retention) {
    *spec.mutable_idempotency_retention() = ToProto(*options.idempotency_retention);
  }
  spec.set_idempotency_key(options.idempotency_key);
  spec.set_effect_key(options.effect_key);
  for (const std::string& key : options.keys) spec.add_concurrency_keys(key);
  spec.set_group_key(options.group);
  if (!options.unique_key.empty()) {
    if (absl::Status set = SetUnique(options, *spec.mutable_unique()); !set.ok()) return set;
  }
  for (const std::string& id : options.after) spec.mutable_depends_on()->add_job_ids(id);
  if (options.after_any_end) spec.mutable_depends_on()->set_condition(v1::DEPENDENCY_CONDITION_ENDED);
  if (options.on_failure == "release") spec.mutable_depends_on()->set_on_failure(v1::DEPENDENCY_FAILURE_RELEASE);
  return absl::OkStatus();
}

class Enqueuer {
 public:
  // `numbered`: jobs come from lines, and reports name them.
  Enqueuer(Context& context, bool numbered, bool print_ids)
      : context_(context), numbered_(numbered), print_ids_(print_ids) {}

  // Sends one batch and counts what became of it; false if no daemon was reached.
  bool Send(const EnqueueBatch& batch) {
    const auto response = context_.connection().Enqueue(batch.request);
    if (!response.ok()) {
      exit_status_ = Worse(exit_status_, context_.Report(response.status(), Subject(batch)));
      refused_ += batch.lines.size();
      if (exit_status_ == kExitUnreachable && numbered_) {
        context_.err()
            << "  these lines may or may not have been accepted; with --idempotency-key the whole file can be "
               "enqueued again without doubles\n";
      }
      return exit_status_ != kExitUnreachable;
    }
    for (int i = 0; i < response->results_size(); ++i) {
      const v1::EnqueueResult& result = response->results(i);
      const int64_t line = static_cast<size_t>(i) < batch.lines.size() ? batch.lines[static_cast<size_t>(i)] : 0;
      Count(result, line);
    }
    return true;
  }

  void CountBadLine(int64_t line, const absl::Status& status) {
    ++refused_;
    context_.err() << "error: INVALID_LINE: line " << line << ": " << OneLine(std::string(status.message()), 500)
                   << '\n';
    exit_status_ = Worse(exit_status_, kExitRefused);
  }

  void PrintProgress() {
    if (context_.streams().err_is_terminal) context_.err() << '\r' << Summary() << std::flush;
  }

  void PrintSummary() { context_.err() << (context_.streams().err_is_terminal ? "\r" : "") << Summary() << '\n'; }

  int exit_status() const { return exit_status_; }
  const std::vector<std::string>& ids() const { return ids_; }

 private:
  std::string Subject(const EnqueueBatch& batch) const {
    if (!numbered_) return "";
    return absl::StrCat("lines: ", batch.lines.front(), " to ", batch.lines.back());
  }

  std::string Summary() const {
    return absl::StrCat("enqueued ", accepted_, " jobs, ", duplicates_, " already there, ", refused_, " refused");
  }

  void Count(const v1::EnqueueResult& result, int64_t line) {
    if (context_.json && print_ids_) PrintJson(context_.out(), result);
    if (result.has_error()) {
      ++refused_;
      exit_status_ =
          Worse(exit_status_, context_.ReportItem(result.error(), numbered_ ? absl::StrCat("line: ", line) : ""));
      return;
    }
    ++(result.duplicate() || result.existing() ? duplicates_ : accepted_);
    ids_.push_back(result.job_id());
    if (!print_ids_ || context_.json) return;
    context_.out() << result.job_id() << '\n';
    if (numbered_) return;
    if (result.duplicate()) {
      context_.err() << "an earlier enqueue with this idempotency key made the job\n";
    } else if (result.existing()) {
      context_.err() << "this job has the unique key already; no other was made\n";
    }
  }

  Context& context_;
  const bool numbered_;
  const bool print_ids_;
  int64_t accepted_ = 0;
  int64_t duplicates_ = 0;
  size_t refused_ = 0;
  int exit_status_ = kExitDone;
  std::vector<std::string> ids_;
};

// WaitForJob that says, the first time a job has not ended after a while, if nobody takes jobs of its queue. `looked`
// keeps that it has been said, or need not be.
absl::StatusOr<v1::Job> WaitWithHint(Context& context, const std::string& id, absl::Duration limit, bool& looked) {
  if (looked || limit <= kPatience) return WaitForJob(context, id, limit);
  const auto job = WaitForJob(context, id, kPatience);
  if (job.ok() ? IsFinal(job->state()) : !absl::IsUnavailable(job.status())) return job;
  if (job.ok()) {
    looked = true;
    // A look that fails only costs the hint: the wait goes on, and says itself if the daemon is gone.
    const absl::StatusOr<bool> polled = IsPolled(context, job->queue());
    if (job->state() != v1::JOB_STATE_LEASED && polled.ok() && !*polled) {
      context.err() << "warning: no worker polls queue " << job->queue() << "; start one: tenurectl work -q "
                    << job->queue() << " --exec CMD" << std::endl;
    }
  }
  return WaitForJob(context, id, limit - kPatience);
}

// Waits for all `ids` and prints what they returned: one job's result as it is, several as a table. kExitDone only if
// each of them completed.
int AwaitResults(Context& context, const std::vector<std::string>& ids, bool one_result, absl::Duration limit) {
  const absl::Time end = limit == absl::InfiniteDuration() ? absl::InfiniteFuture() : absl::Now() + limit;
  int exit_status = kExitDone;
  bool looked = false;
  Table table({{"ID"}, {"STATE"}, {"ATTEMPT", true}, {"RESULT OR ERROR"}});
  for (const std::string& id : ids) {
    const absl::Duration rest =
        end == absl::InfiniteFuture() ? absl::InfiniteDuration() : std::max(absl::ZeroDuration(), end - absl::Now());
    const auto job = WaitWithHint(context, id, rest, looked);
    if (!job.ok()) {
      table.Print(context.out());
      exit_status = Worse(exit_status, context.Report(job.status(), absl::StrCat("job: ", id), id));
      if (exit_status == kExitUnreachable) return exit_status;
      continue;
    }
    const bool completed = job->state() == v1::JOB_STATE_COMPLETED;
    if (context.json) {
      PrintJson(context.out(), *job);
    } else if (one_result && completed) {
      context.out() << BytesOf(job->result());
      // A shell prompt belongs on its own line; a program that captures gets the bytes as they are.
      if (context.streams().out_is_terminal && !absl::EndsWith(BytesOf(job->result()), "\n")) context.out() << '\n';
    } else if (!one_result) {
      table.AddRow({id, StateName(job->state()), absl::StrCat(job->attempt()),
                    OneLine(completed ? BytesOf(job->result()) : job->error().message(), 200)});
    }
    if (completed) continue;
    exit_status = Worse(exit_status, kExitRefused);
    if (one_result) {
      const bool ended = IsFinal(job->state());
      context.err() << "error: " << (ended ? "NOT_COMPLETED: the job ended as " : "STILL_RUNNING: the job is still ")
                    << StateName(job->state());
      if (!job->error().message().empty()) context.err() << ": " << OneLine(job->error().message(), 1000);
      context.err() << "\n  job: " << id << "\n  next: tenurectl job get " << id << '\n';
    }
  }
  table.Print(context.out());
  return exit_status;
}

int EnqueueOne(Context& context, const EnqueueOptions& options, const v1::JobSpec& spec) {
  Enqueuer enqueuer(context, /*numbered=*/false, /*print_ids=*/!options.wait);
  EnqueueBatch batch;
  *batch.request.add_jobs() = spec;
  batch.lines.push_back(1);
  enqueuer.Send(batch);
  if (enqueuer.exit_status() != kExitDone || !options.wait) return enqueuer.exit_status();
  context.err() << "job " << enqueuer.ids().front() << '\n';
  return AwaitResults(context, enqueuer.ids(), /*one_result=*/true,
                      options.wait_timeout.value_or(absl::InfiniteDuration()));
}

int EnqueueLines(Context& context, const EnqueueOptions& options, const v1::JobSpec& defaults, std::istream& lines) {
  Enqueuer enqueuer(context, /*numbered=*/true, /*print_ids=*/!options.wait);
  EnqueueBatch batch;
  LineReader reader(lines, defaults);
  while (reader.Next()) {
    if (!reader.spec().ok()) {
      enqueuer.CountBadLine(reader.line(), reader.spec().status());
      continue;
    }
    if (!batch.HasRoomFor(*reader.spec())) {
      if (!enqueuer.Send(batch)) break;
      enqueuer.PrintProgress();
      batch = EnqueueBatch();
    }
    batch.Add(*reader.spec(), reader.line());
  }
  if (!batch.lines.empty() && enqueuer.exit_status() != kExitUnreachable) enqueuer.Send(batch);
  if (reader.line() == 0 && options.file.empty()) {
    // Nothing was piped in: somebody forgot the arguments rather than meant to enqueue nothing.
    return context.ReportUsage("job enqueue needs --kind for one job, or JSON lines from --file or stdin");
  }
  enqueuer.PrintSummary();
  if (enqueuer.exit_status() == kExitUnreachable || !options.wait) return enqueuer.exit_status();
  const int waited = AwaitResults(context, enqueuer.ids(), /*one_result=*/false,
                                  options.wait_timeout.value_or(absl::InfiniteDuration()));
  return Worse(enqueuer.exit_status(), waited);
}

int Enqueue(Context& context, const EnqueueOptions& options) {
  const bool from_stdin =
      options.file == "-" || (options.file.empty() && options.kind.empty() && !context.streams().in_is_terminal);
  const bool many = from_stdin || !options.file.empty();
  if (!many && (options.queue.empty() || options.kind.empty())) {
    return context.ReportUsage(
        "job enqueue needs --queue and --kind for one job, or JSON lines from --file or stdin; see tenurectl job "
        "enqueue --help");
  }
  if (from_stdin && options.payload.file == "-") {
    return context.ReportUsage("--payload-file: stdin already gives the JSON lines; name a file");
  }
  v1::JobSpec spec;
  const absl::Status made = MakeSpec(options, context.in(), spec);
  if (!made.ok()) return context.ReportUsage(std::string(made.message()));
  if (!many) return EnqueueOne(context, options, spec);
  if (from_stdin) return EnqueueLines(context, options, spec, context.in());
  std::ifstream file(options.file);
  if (!file.is_open() || (file.peek(), file.bad())) {
    return context.ReportUsage(absl::StrCat("--file: cannot read ", options.file, ": ", std::strerror(errno)));
  }
  return EnqueueLines(context, options, spec, file);
}

}  // namespace

void AddEnqueueCommand(CLI::App& job, Context& context) {
  auto options = std::make_shared<EnqueueOptions>();
  CLI::App* command = job.add_subcommand("enqueue", "Enqueue one job from arguments, or many from JSON lines");
  command->footer(
      "Prints the id of each accepted job. With --file, or without --kind, each line is a JobSpec as JSON, such as\n"
      "  {\"queue\":\"mail\",\"kind\":\"send\",\"payload\":{\"text\":\"{\\\"to\\\":1}\"},\"delay\":\"5s\"}\n"
      "and the options are defaults for what a line leaves out.\n"
      "With --wait the exit status is 0 only if each job completed; one job's result goes to stdout as it is.");
  command->add_option("-q,--queue", options->queue, "Name of the queue");
  command->add_option("-k,--kind", options->kind, "Names the handler");
  AddPayload(*command, "payload", options->payload, "The payload", /*positional=*/true);
  AddPairs(*command, "--header", options->headers, "A header; may be repeated");
  command->add_option("--priority", options->priority, "Higher first, -100 to 100 [0]");
  command->add_option("--tenant", options->tenant, "The fairness key");
  CLI::Option* delay = AddDuration(*command, "--delay", options->delay, "Due so long after it is accepted");
  AddTime(*command, "--due", options->due, "Due at this time")->excludes(delay);
  CLI::Option* ttl =
      AddDuration(*command, "--ttl", options->ttl, "Expires unless it has started so long after it is accepted");
  AddTime(*command, "--expires", options->expires, "Expires unless it has started by then")->excludes(ttl);
  command->add_option("--max-attempts", options->max_attempts, "Failures until it becomes a dead letter [the queue's]")
      ->check(CLI::Range(1, 10'000));
  command->add_option("--crash-budget", options->crash_budget, "Leases that may run out under it [the queue's]")
      ->check(CLI::Range(1, 1'000));
  AddDuration(*command, "--backoff-initial", options->backoff_initial, "Wait after the first failure [the queue's]");
  command->add_option("--backoff-multiplier", options->backoff_multiplier, "Growth of the wait per failure");
  AddDuration(*command, "--backoff-max", options->backoff_max, "The longest wait");
  command
      ->add_option("--idempotency-key", options->idempotency_key,
                   "Makes enqueueing safe to repeat; with lines, each gets KEY-<line number>")
      ->check(NotEmpty());
  AddDuration(*command, "--idempotency-retention", options->idempotency_retention, "How long the key is kept [1d]");
  command->add_option("--effect-key", options->effect_key, "Passed to the worker for the outside world [the job's id]");
  AddRepeated(*command, "--key", options->keys, "A concurrency key, whose limit holds it up; may be repeated");
  command->add_option("--group", options->group, "Strict order: one job of a group at a time")->check(NotEmpty());
  CLI::Option* unique =
      command->add_option("--unique", options->unique_key, "Unique key: no second job while one with it counts")
          ->check(NotEmpty());
  command->add_flag("--unique-by-kind", options->unique_by_kind, "Only jobs of the same kind count")->needs(unique);
  AddRepeated(*command, "--unique-state", options->unique_states,
              "A state in which the other job counts, such as ready; may be repeated [all live ones]")
      ->needs(unique);
  AddDuration(*command, "--unique-period", options->unique_period,
              "The job counts for so long since its enqueue, also once it has ended")
      ->needs(unique);
  std::vector<std::string> policies;
  for (const auto& [name, unused] : Policies()) policies.push_back(name);
  command->add_option("--on-conflict", options->on_conflict, "What becomes of the other job, or of this one [return]")
      ->check(CLI::IsMember(policies))
      ->needs(unique);
  CLI::Option* after = AddRepeated(*command, "--after", options->after,
                                   "Wait until this job has completed; may be repeated, and all of them count");
  CLI::Option* any_end = command->add_flag("--after-any-end", options->after_any_end, "However they end")->needs(after);
  command
      ->add_option("--on-failure", options->on_failure,
                   "What becomes of this job as soon as one of them ends otherwise [cancel]")
      ->check(CLI::IsMember({"cancel", "release"}))
      ->needs(after)
      ->excludes(any_end);
  command->add_option("-f,--file", options->file, "JSON lines, one job a line; - for stdin")->type_name("FILE");
  CLI::Option* wait = command->add_flag("--wait", options->wait, "Wait for the outcome and print the result");
  AddDuration(*command, "--wait-timeout", options->wait_timeout, "Wait at most so long [for ever]")->needs(wait);
  OnRun(*command, context, [&context, options] { return Enqueue(context, *options); });
}

}  // namespace tenure::cli
