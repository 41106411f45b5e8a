// PostgresStore: schedules, and what the scheduler does with them.
#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/store/postgres/postgres_store.h"
#include "server/store/schedule_timing.h"
#include "statements.sql.h"

namespace tenure::store::postgres {
namespace {

absl::Status ScheduleNotFound(std::string_view name) {
  return MakeError(absl::StatusCode::kNotFound, "SCHEDULE_NOT_FOUND",
                   absl::StrCat("there is no schedule \"", std::string(name), "\""), {{"schedule", std::string(name)}});
}

ScheduleTiming ReadTiming(const Result& r, int row) {
  ScheduleTiming timing;
  timing.cron = r.Text(row, r.Column("cron"));
  timing.time_zone = r.Text(row, r.Column("time_zone"));
  timing.interval = absl::Microseconds(r.Int(row, r.Column("interval_us")));
  timing.anchor = r.Time(row, r.Column("anchor_at"));
  return timing;
}

Schedule ReadSchedule(const Result& r, int row) {
  Schedule schedule;
  schedule.id = r.Int(row, r.Column("id"));
  schedule.name = r.Text(row, r.Column("name"));
  schedule.paused = r.Bool(row, r.Column("paused"));
  schedule.next = r.OptionalTime(row, r.Column("next_at"));
  schedule.last_slot = r.OptionalTime(row, r.Column("last_slot"));
  if (const int job = r.Column("last_job_id"); !r.IsNull(row, job)) {
    schedule.last_job =
        JobId{r.Int32(row, r.Column("last_job_queue_id")), r.Int32(row, r.Column("last_job_day")), r.Int(row, job)};
  }
  schedule.fired = r.Int(row, r.Column("fired"));
  schedule.skipped_missed = r.Int(row, r.Column("skipped_missed"));
  schedule.skipped_overlap = r.Int(row, r.Column("skipped_overlap"));
  schedule.created = r.Time(row, r.Column("created_at"));
  schedule.updated = r.Time(row, r.Column("updated_at"));

  ScheduleSettings& settings = schedule.settings;
  settings.timing = ReadTiming(r, row);
  settings.overlap = static_cast<Overlap>(r.Int(row, r.Column("overlap")));
  settings.catch_up = r.Int32(row, r.Column("catch_up"));
  settings.description = r.Text(row, r.Column("description"));
  settings.queue = r.Text(row, r.Column("queue"));
  NewJob& job = settings.job;
  job.kind = r.Text(row, r.Column("kind"));
  job.priority = static_cast<int16_t>(r.Int(row, r.Column("priority")));
  job.tenant = r.Text(row, r.Column("tenant"));
  job.payload = {r.Text(row, r.Column("payload")), r.Text(row, r.Column("content_type"))};
  if (const int headers = r.Column("headers"); !r.IsNull(row, headers)) job.headers = FromJson(r.Json(row, headers));
  if (const int ttl = r.Column("ttl_us"); !r.IsNull(row, ttl)) job.ttl = absl::Microseconds(r.Int(row, ttl));
  if (const int n = r.Column("max_attempts"); !r.IsNull(row, n)) job.max_attempts = r.Int32(row, n);
  if (const int n = r.Column("crash_budget"); !r.IsNull(row, n)) job.crash_budget = r.Int32(row, n);
  if (const int initial = r.Column("backoff_initial_us"); !r.IsNull(row, initial)) {
    job.backoff = Backoff{r.Int(row, initial), r.Double(row, r.Column("backoff_multiplier")),
                          r.Int(row, r.Column("backoff_max_us"))};
  }
  return schedule;
}

std::optional<std::string_view> NonEmpty(const std::string& text) {
  if (text.empty()) return std::nullopt;
  return text;
}

// cron to backoff: $3..$22 of update_schedule.sql, $5..$24 of create_schedule.sql.
void AddSettings(Params& params, const ScheduleSettings& settings, int32_t queue) {
  const ScheduleTiming& timing = settings.timing;
  const NewJob& job = settings.job;
  params.Add(NonEmpty(timing.cron)).Add(timing.time_zone);
  if (timing.cron.empty()) {
    params.Add(absl::ToInt64Microseconds(timing.interval));
  } else {
    params.AddNull();
  }
  params.Add(timing.anchor)
      .Add(settings.catch_up)
      .Add(static_cast<int16_t>(settings.overlap))
      .Add(settings.description)
      .Add(queue)
      .Add(job.kind)
      .Add(job.priority)
      .Add(NonEmpty(job.tenant))
      .Add(job.payload.data)
      .Add(NonEmpty(job.payload.content_type));
  const std::string headers = job.headers.empty() ? std::string() : ToJson(job.headers);
  params.Add(NonEmpty(headers));
  if (job.ttl) {
    params.Add(absl::ToInt64Microseconds(*job.ttl));
  } else {
    params.AddNull();
  }
  params.Add(job.max_attempts).Add(job.crash_budget);
  if (job.backoff) {
    params.Add(job.backoff->initial_us).Add(job.backoff->multiplier).Add(job.backoff->max_us);
  } else {
    params.AddNull().AddNull().AddNull();
  }
}

// An interval counts from whole seconds, so that its slots are readable.
absl::Time AnchorAt(absl::Time now) { return absl::FromUnixSeconds(absl::ToUnixSeconds(now)); }

// nullopt: never (beyond the calendar's end).
absl::StatusOr<std::optional<absl::Time>> NextSlot(const ScheduleTiming& timing, absl::Time now) {
  TENURE_ASSIGN_OR_RETURN(const Timing rules, Timing::Make(timing, "spec."));
  return rules.Next(now);
}

// What an update makes of a schedule; true if its slots are new ones.
bool Merge(const ScheduleSettings& from, const std::set<std::string>& fields, ScheduleSettings& to) {
  bool timing = false;
  if (fields.contains("cron") || fields.contains("interval")) {
    to.timing.cron = fields.contains("cron") ? from.timing.cron : std::string();
    to.timing.interval = fields.contains("interval") ? from.timing.interval : absl::ZeroDuration();
    if (!fields.contains("cron")) to.timing.time_zone = "UTC";
    timing = true;
  }
  if (fields.contains("time_zone")) {
    timing = timing || to.timing.time_zone != from.timing.time_zone;
    to.timing.time_zone = from.timing.time_zone;
  }
  if (fields.contains("job")) {
    to.queue = from.queue;
    to.job = from.job;
  }
  if (fields.contains("overlap_policy")) to.overlap = from.overlap;
  if (fields.contains("catch_up")) to.catch_up = from.catch_up;
  if (fields.contains("description")) to.description = from.description;
  return timing;
}

}  // namespace

absl::StatusOr<Schedule> PostgresStore::CreateSchedule(std::string_view name, const ScheduleSettings& settings,
                                                       int32_t queue, bool paused) {
  return Run<Schedule>("create_schedule", [&](Transaction& tx) -> absl::StatusOr<Schedule> {
    TENURE_ASSIGN_OR_RETURN(Result time, tx.Run(sql::kTransactionTime, Params()));
    const absl::Time now = time.Time(0, 0);
    ScheduleSettings anchored = settings;
    anchored.timing.anchor = AnchorAt(now);
    TENURE_ASSIGN_OR_RETURN(std::optional<absl::Time> next, NextSlot(anchored.timing, now));
    if (paused) next = std::nullopt;
    Params params;
    params.Add(name).Add(now).Add(paused).Add(next);
    AddSettings(params, anchored, queue);
    TENURE_ASSIGN_OR_RETURN(Result made, tx.Run(sql::kCreateSchedule, params));
    if (made.rows() == 0) {
      return MakeError(absl::StatusCode::kAlreadyExists, "SCHEDULE_EXISTS",
                       absl::StrCat("the schedule \"", std::string(name), "\" exists; UpdateSchedule changes it"),
                       {{"schedule", std::string(name)}});
    }
    TENURE_ASSIGN_OR_RETURN(Result found, tx.RunAndCommit(sql::kFindSchedule, Params().Add(name)));
    return ReadSchedule(found, 0);
  });
}

absl::StatusOr<Schedule> PostgresStore::UpdateSchedule(std::string_view name, const ScheduleSettings& settings,
                                                       int32_t queue, const std::set<std::string>& fields) {
  return Run<Schedule>("update_schedule", [&](Transaction& tx) -> absl::StatusOr<Schedule> {
    TENURE_ASSIGN_OR_RETURN(Result time, tx.Run(sql::kTransactionTime, Params()));
    TENURE_ASSIGN_OR_RETURN(Result old, tx.Run(sql::kLockSchedule, Params().Add(name)));
    if (old.rows() == 0) return ScheduleNotFound(name);
    Schedule schedule = ReadSchedule(old, 0);
    const absl::Time now = time.Time(0, 0);
    if (Merge(settings, fields, schedule.settings)) {
      if (schedule.settings.timing.cron.empty() && schedule.settings.timing.time_zone != "UTC") {
        return InvalidField("spec.time_zone", "goes with cron; an interval is the same everywhere");
      }
      schedule.settings.timing.anchor = AnchorAt(now);
      TENURE_ASSIGN_OR_RETURN(const std::optional<absl::Time> next, NextSlot(schedule.settings.timing, now));
      if (!schedule.paused) schedule.next = next;
    }
    Params params;
    params.Add(schedule.id).Add(schedule.next);
    AddSettings(params, schedule.settings, fields.contains("job") ? queue : old.Int32(0, old.Column("queue_id")));
    TENURE_RETURN_IF_ERROR(tx.Run(sql::kUpdateSchedule, params).status());
    TENURE_ASSIGN_OR_RETURN(Result found, tx.RunAndCommit(sql::kFindSchedule, Params().Add(name)));
    return ReadSchedule(found, 0);
  });
}

absl::StatusOr<Schedule> PostgresStore::GetSchedule(std::string_view name) {
  TENURE_ASSIGN_OR_RETURN(Result found, RunOne("find_schedule", sql::kFindSchedule, Params().Add(name)));
  if (found.rows() == 0) return ScheduleNotFound(name);
  return ReadSchedule(found, 0);
}

absl::StatusOr<std::vector<Schedule>> PostgresStore::ListSchedules(std::string_view after_name, std::string_view prefix,
                                                                   int limit) {
  Params params;
  params.Add(after_name).Add(prefix).Add(static_cast<int64_t>(limit));
  TENURE_ASSIGN_OR_RETURN(Result rows, RunOne("list_schedules", sql::kListSchedules, params));
  std::vector<Schedule> schedules;
  for (int row = 0; row < rows.rows(); ++row) schedules.push_back(ReadSchedule(rows, row));
  return schedules;
}

absl::Status PostgresStore::DeleteSchedule(std::string_view name) {
  TENURE_ASSIGN_OR_RETURN(Result gone, RunOne("delete_schedule", sql::kDeleteSchedule, Params().Add(name)));
  return gone.rows() > 0 ? absl::OkStatus() : ScheduleNotFound(name);
}

absl::StatusOr<Schedule> PostgresStore::SetSchedulePaused(std::string_view name, bool paused) {
  return Run<Schedule>("pause_schedule", [&](Transaction& tx) -> absl::StatusOr<Schedule> {
    TENURE_ASSIGN_OR_RETURN(Result time, tx.Run(sql::kTransactionTime, Params()));
    TENURE_ASSIGN_OR_RETURN(Result old, tx.Run(sql::kLockSchedule, Params().Add(name)));
    if (old.rows() == 0) return ScheduleNotFound(name);
    const Schedule schedule = ReadSchedule(old, 0);
    if (schedule.paused != paused) {
      std::optional<absl::Time> next;
      if (!paused) {
        TENURE_ASSIGN_OR_RETURN(next, NextSlot(schedule.settings.timing, time.Time(0, 0)));
      }
      TENURE_RETURN_IF_ERROR(tx.Run(sql::kPauseSchedule, Params().Add(schedule.id).Add(paused).Add(next)).status());
    }
    TENURE_ASSIGN_OR_RETURN(Result found, tx.RunAndCommit(sql::kFindSchedule, Params().Add(name)));
    return ReadSchedule(found, 0);
  });
}

absl::StatusOr<TriggeredJob> PostgresStore::TriggerSchedule(std::string_view name, std::string_view request_id,
                                                            std::vector<ReadyRange>* ready) {
  std::optional<std::string_view> key;
  if (!request_id.empty()) key = request_id;
  auto made = Run<TriggeredJob>("trigger_schedule", [&](Transaction& tx) -> absl::StatusOr<TriggeredJob> {
    ready->clear();
    TENURE_ASSIGN_OR_RETURN(Result rows, tx.Run(sql::kTriggerSchedule, Params().Add(name).Add(key)));
    if (rows.rows() == 0) return ScheduleNotFound(name);
    std::optional<TriggeredJob> job;
    int64_t id = 0;
    for (int row = 0; row < rows.rows(); ++row) {
      id = rows.Int(row, 1);
      if (rows.Int(row, 0) == 0) continue;
      job = TriggeredJob{{rows.Int32(row, 4), rows.Int32(row, 3), rows.Int(row, 2)}};
      const Key at{0, job->id.seq};
      ready->push_back({job->id.queue, static_cast<int16_t>(rows.Int(row, 5)), at, at, 1});
    }
    if (!job && key) {
      TENURE_ASSIGN_OR_RETURN(Result had, tx.Run(sql::kFindTrigger, Params().Add(id).Add(*key)));
      if (had.rows() > 0) job = TriggeredJob{{had.Int32(0, 0), had.Int32(0, 1), had.Int(0, 2)}, /*repeated=*/true};
    }
    if (!job) {
      // Two runs in one microsecond, or a request whose run was pruned between the two statements.
      return MakeError(absl::StatusCode::kUnavailable, "KEY_BUSY", "another run is being made just now; try again", {},
                       absl::Milliseconds(50));
    }
    TENURE_RETURN_IF_ERROR(tx.Commit());
    return *job;
  });
  if (made.ok() && !made->repeated) Metrics::Add(metrics_.schedule_runs, {{"outcome", "triggered"}});
  return made;
}

absl::StatusOr<DueSchedules> PostgresStore::ListDueSchedules(int limit, std::span<const int64_t> except) {
  TENURE_ASSIGN_OR_RETURN(Result rows, RunOne("due_schedules", sql::kDueSchedules,
                                              Params().Add(static_cast<int64_t>(limit)).AddArray(except)));
  DueSchedules due;
  const int next_at = rows.Column("next_at"), due_in = rows.Column("due_in");
  for (int row = 0; row < rows.rows(); ++row) {
    if (rows.Int(row, 0) == 1) {
      due.now = rows.Time(row, next_at);
      if (!rows.IsNull(row, due_in)) due.next_due = absl::Seconds(rows.Double(row, due_in));
      continue;
    }
    DueSchedule schedule;
    schedule.id = rows.Int(row, rows.Column("id"));
    schedule.version = rows.Int(row, rows.Column("version"));
    schedule.name = rows.Text(row, rows.Column("name"));
    schedule.timing = ReadTiming(rows, row);
    schedule.next = rows.Time(row, next_at);
    schedule.overlap = static_cast<Overlap>(rows.Int(row, rows.Column("overlap")));
    schedule.catch_up = rows.Int32(row, rows.Column("catch_up"));
    due.schedules.push_back(std::move(schedule));
  }
  return due;
}

absl::StatusOr<FireResult> PostgresStore::FireSchedules(const Fence& fence, std::span<const Firing> firings) {
  std::vector<const Firing*> sorted;
  for (const Firing& firing : firings) sorted.push_back(&firing);
  std::sort(sorted.begin(), sorted.end(), [](const Firing* a, const Firing* b) { return a->id < b->id; });
  std::vector<std::pair<int64_t, absl::Time>> slots;
  for (const Firing* firing : sorted) {
    for (const absl::Time slot : firing->slots) slots.emplace_back(firing->id, slot);
  }
  Params params;
  params.Add(fence.worker)
      .Add(fence.term)
      .AddArray(sorted, [](const Firing* f) { return f->id; })
      .AddArray(sorted, [](const Firing* f) { return f->version; })
      .AddArray(sorted, [](const Firing* f) { return f->was; })
      .AddArray(sorted, [](const Firing* f) { return f->next; })
      .AddArray(sorted, [](const Firing* f) { return f->missed; })
      .AddArray(slots, [](const auto& slot) { return slot.first; })
      .AddArray(slots, [](const auto& slot) { return slot.second; });

  // What may have to cancel a job takes two statements, all else one round trip.
  const bool cancels = std::any_of(firings.begin(), firings.end(), [](const Firing& f) { return f.cancels; });
  int64_t missed = 0, held_back = 0, cancelled = 0;
  std::vector<double> late;
  auto fired = Run<FireResult>("fire_schedules", [&](Transaction& tx) -> absl::StatusOr<FireResult> {
    missed = held_back = cancelled = 0;
    late.clear();
    FireResult result;
    for (const Firing* firing : sorted) result.busy.push_back(firing->id);
    TENURE_ASSIGN_OR_RETURN(
        Result rows, cancels ? tx.Run(sql::kFireSchedules, params) : tx.RunAndCommit(sql::kFireSchedules, params));
    if (rows.rows() == 0)
      return MakeError(absl::StatusCode::kFailedPrecondition, "TERM_OVER", "the leader's term is over");
    std::optional<JobId> previous;
    std::map<std::pair<int32_t, int16_t>, ReadyRange> ready;
    for (int row = 0; row < rows.rows(); ++row) {
      if (rows.Int(row, 0) == 1) {
        std::erase(result.busy, rows.Int(row, 1));
        held_back += rows.Int(row, 7);
        missed += rows.Int(row, 8);
        if (static_cast<Overlap>(rows.Int(row, 5)) == Overlap::kCancelPrevious && !rows.IsNull(row, 2)) {
          previous = JobId{rows.Int32(row, 4), rows.Int32(row, 3), rows.Int(row, 2)};
        }
      } else if (rows.Int(row, 0) == 2) {
        const Key at{0, rows.Int(row, 2)};
        const int32_t of_queue = rows.Int32(row, 4);
        const int16_t priority = static_cast<int16_t>(rows.Int(row, 5));
        ReadyRange& range =
            ready.try_emplace({of_queue, priority}, ReadyRange{of_queue, priority, at, at, 0}).first->second;
        range.low = std::min(range.low, at);
        range.high = std::max(range.high, at);
        ++range.count;
        late.push_back(rows.Double(row, 6));
        ++result.jobs;
      }
    }
    if (cancels && previous && result.jobs > 0) {
      // In this transaction, which holds the leader's row, so that a stale leader cancels nothing either.
      const std::vector<int64_t> ids{previous->seq};
      const std::vector<int32_t> days{previous->day};
      Params cancel;
      cancel.Add(previous->queue).AddArray(ids).Add("the schedule's next slot is due").AddArray(days);
      TENURE_ASSIGN_OR_RETURN(Result gone, tx.Run(sql::kCancel, cancel));
      cancelled = gone.rows();
      if (cancelled == 0) {
        // It has ended meanwhile, or somebody (an application that settles in its own transaction) has its row locked.
        TENURE_ASSIGN_OR_RETURN(Result live, tx.Run(sql::kResolveLive, Params().Add(previous->queue).AddArray(ids)));
        if (live.rows() > 0) {
          FireResult nothing;
          for (const Firing* firing : sorted) nothing.busy.push_back(firing->id);
          missed = held_back = 0;
          late.clear();
          return nothing;  // Without a commit: the transaction is rolled back.
        }
      }
    }
    for (const auto& [unused, range] : ready) result.ready.push_back(range);
    if (cancels) TENURE_RETURN_IF_ERROR(tx.Commit());
    return result;
  });
  if (!fired.ok()) return fired;
  Metrics::Add(metrics_.schedule_runs, {{"outcome", "fired"}}, static_cast<double>(late.size()));
  Metrics::Add(metrics_.schedule_runs, {{"outcome", "missed"}}, static_cast<double>(missed));
  Metrics::Add(metrics_.schedule_runs, {{"outcome", "overlapped"}}, static_cast<double>(held_back));
  Metrics::Add(metrics_.schedule_runs, {{"outcome", "cancelled_previous"}}, static_cast<double>(cancelled));
  for (const double seconds : late) metrics_.schedule_lateness.Add({}).Observe(seconds);
  return fired;
}

absl::StatusOr<int> PostgresStore::PruneScheduleRuns(const Fence& fence, absl::Duration age, int limit) {
  Params params;
  params.Add(fence.worker).Add(fence.term).Add(absl::ToInt64Microseconds(age)).Add(static_cast<int64_t>(limit));
  TENURE_ASSIGN_OR_RETURN(Result rows, RunOne("prune_schedule_runs", sql::kPruneScheduleRuns, params));
  return rows.Int32(0, 0);
}

}  // namespace tenure::store::postgres
