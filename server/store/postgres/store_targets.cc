// PostgresStore: targets, as their owners see them.
#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/store/postgres/postgres_store.h"
#include "server/store/postgres/target_rows.h"
#include "server/store/schedule_timing.h"
#include "statements.sql.h"

namespace tenure::store::postgres {
namespace {

constexpr int64_t kBatch = 5'000;

absl::Status TargetNotFound(std::string_view name) {
  return MakeError(absl::StatusCode::kNotFound, "TARGET_NOT_FOUND",
                   absl::StrCat("there is no target \"", std::string(name), "\""), {{"target", std::string(name)}});
}

// In the order of update_target.sql from its $2.
void AddSettings(Params& params, const TargetSettings& settings, std::span<const int32_t> queues) {
  params.Add(settings.url).Add(settings.region).Add(settings.endpoint).AddArray(queues).Add(settings.events);
  if (settings.interval) {
    params.Add(absl::ToInt64Microseconds(*settings.interval));
  } else {
    params.AddNull();
  }
  params.Add(settings.cron).Add(settings.time_zone);
  params.Add(settings.min_age_days).Add(settings.secret).Add(settings.description);
}

// When a target with a cron expression runs next; nothing for others.
absl::StatusOr<std::optional<absl::Time>> NextSlot(const TargetSettings& settings, absl::Time now) {
  if (settings.cron.empty()) return std::nullopt;
  TENURE_ASSIGN_OR_RETURN(const Timing timing, Timing::Make(TimingOf(settings), "spec."));
  return timing.Next(now);
}

void Merge(const TargetSettings& from, const std::set<std::string>& fields, TargetSettings& to) {
  if (fields.contains("url")) to.url = from.url;
  if (fields.contains("region")) to.region = from.region;
  if (fields.contains("endpoint")) to.endpoint = from.endpoint;
  if (fields.contains("queues")) to.queues = from.queues;
  if (fields.contains("events")) to.events = from.events;
  // Reset, it takes all; 0 is for purposes that take none.
  const bool takes_events = to.purpose == TargetPurpose::kNotify || to.purpose == TargetPurpose::kEventLog;
  if (takes_events && to.events == 0) to.events = kAllEvents;
  if (fields.contains("interval")) to.interval = from.interval;
  if (fields.contains("cron")) to.cron = from.cron;
  if (fields.contains("time_zone")) to.time_zone = from.time_zone;
  if (fields.contains("cron") && !to.cron.empty() && !fields.contains("interval")) to.interval.reset();
  if (fields.contains("interval") && to.interval && !fields.contains("cron")) to.cron.clear();
  if (to.cron.empty() && !fields.contains("time_zone")) to.time_zone.clear();
  if (fields.contains("min_age_days")) to.min_age_days = from.min_age_days;
  if (fields.contains("secret")) to.secret = from.secret;
  if (fields.contains("description")) to.description = from.description;
}

}  // namespace

absl::StatusOr<Target> PostgresStore::FindTarget(Transaction& tx, std::string_view name) {
  TENURE_ASSIGN_OR_RETURN(Result found, tx.RunAndCommit(sql::kFindTarget, Params().Add(name)));
  if (found.rows() == 0) return TargetNotFound(name);
  return ReadTarget(found, 0);
}

absl::Status PostgresStore::DeriveInterest(Transaction& tx) {
  // One at a time, so that the last one sees all. LOCK cannot be planned ahead, so it is no statement of sql/.
  static constexpr std::string_view kLock = "lock table tenure.outbox_interest in share row exclusive mode";
  TENURE_RETURN_IF_ERROR(tx.Run(kLock, Params()).status());
  return tx.Run(sql::kDeriveInterest, Params()).status();
}

absl::StatusOr<Target> PostgresStore::CreateTarget(std::string_view name, const TargetSettings& settings,
                                                   std::span<const int32_t> queues, bool paused) {
  return Run<Target>("create_target", [&](Transaction& tx) -> absl::StatusOr<Target> {
    TENURE_ASSIGN_OR_RETURN(const Result time, tx.Run(sql::kTransactionTime, Params()));
    TENURE_ASSIGN_OR_RETURN(const std::optional<absl::Time> first, NextSlot(settings, time.Time(0, 0)));
    Params params;
    params.Add(name).Add(static_cast<int16_t>(settings.purpose)).Add(paused).Add(static_cast<int64_t>(kMaxTargets));
    AddSettings(params, settings, queues);
    params.Add(first);
    TENURE_ASSIGN_OR_RETURN(Result made, tx.Run(sql::kCreateTarget, params));
    if (made.rows() == 0) {
      TENURE_ASSIGN_OR_RETURN(Result had, tx.Run(sql::kFindTarget, Params().Add(name)));
      if (had.rows() == 0) {
        return MakeError(
            absl::StatusCode::kResourceExhausted, "TOO_MANY_TARGETS",
            absl::StrCat("there are ", kMaxTargets, " targets already; delete one, or let one serve more queues"));
      }
      return MakeError(absl::StatusCode::kAlreadyExists, "TARGET_EXISTS",
                       absl::StrCat("the target \"", std::string(name), "\" exists; UpdateTarget changes it"),
                       {{"target", std::string(name)}});
    }
    TENURE_RETURN_IF_ERROR(DeriveInterest(tx));
    return FindTarget(tx, name);
  });
}

absl::StatusOr<Target> PostgresStore::UpdateTarget(std::string_view name, const TargetSettings& settings,
                                                   std::span<const int32_t> queues, const std::set<std::string>& fields,
                                                   const std::function<absl::Status(const TargetSettings&)>& check) {
  return Run<Target>("update_target", [&](Transaction& tx) -> absl::StatusOr<Target> {
    TENURE_ASSIGN_OR_RETURN(const Result time, tx.Run(sql::kTransactionTime, Params()));
    TENURE_ASSIGN_OR_RETURN(Result old, tx.Run(sql::kLockTarget, Params().Add(name)));
    if (old.rows() == 0) return TargetNotFound(name);
    Target target = ReadTarget(old, 0);
    Merge(settings, fields, target.settings);
    TENURE_RETURN_IF_ERROR(check(target.settings));
    std::vector<int32_t> ids(queues.begin(), queues.end());
    if (!fields.contains("queues")) ids = ReadQueueIds(old, 0);
    Params params;
    params.Add(target.id);
    AddSettings(params, target.settings, ids);
    std::optional<absl::Time> next;
    if (fields.contains("cron") || fields.contains("time_zone")) {
      TENURE_ASSIGN_OR_RETURN(next, NextSlot(target.settings, time.Time(0, 0)));
    }
    params.Add(next);
    TENURE_RETURN_IF_ERROR(tx.Run(sql::kUpdateTarget, params).status());
    if (fields.contains("queues") || fields.contains("events")) TENURE_RETURN_IF_ERROR(DeriveInterest(tx));
    return FindTarget(tx, name);
  });
}

absl::StatusOr<Target> PostgresStore::GetTarget(std::string_view name) {
  TENURE_ASSIGN_OR_RETURN(Result found, RunOne("find_target", sql::kFindTarget, Params().Add(name)));
  if (found.rows() == 0) return TargetNotFound(name);
  return ReadTarget(found, 0);
}

absl::StatusOr<std::vector<Target>> PostgresStore::ListTargets(std::string_view after_name, std::string_view prefix,
                                                               int limit) {
  Params params;
  params.Add(after_name).Add(prefix).Add(static_cast<int64_t>(limit));
  TENURE_ASSIGN_OR_RETURN(Result rows, RunOne("list_targets", sql::kListTargets, params));
  std::vector<Target> targets;
  for (int row = 0; row < rows.rows(); ++row) targets.push_back(ReadTarget(rows, row));
  return targets;
}

absl::Status PostgresStore::DeleteTarget(std::string_view name) {
  // In batches: a target that was away for long may have more than one statement's time is worth.
  for (int64_t gone = 1; gone > 0;) {
    TENURE_ASSIGN_OR_RETURN(Result rows,
                            RunOne("delete_deliveries", sql::kDeleteDeliveries, Params().Add(name).Add(kBatch)));
    gone = rows.Int(0, 0);
  }
  return Run<bool>("delete_target",
                   [&](Transaction& tx) -> absl::StatusOr<bool> {
                     TENURE_ASSIGN_OR_RETURN(Result gone, tx.Run(sql::kDeleteTarget, Params().Add(name)));
                     if (gone.rows() == 0) return TargetNotFound(name);
                     TENURE_RETURN_IF_ERROR(DeriveInterest(tx));
                     TENURE_RETURN_IF_ERROR(tx.Commit());
                     return true;
                   })
      .status();
}

absl::StatusOr<Target> PostgresStore::SetTargetPaused(std::string_view name, bool paused) {
  return Run<Target>("pause_target", [&](Transaction& tx) -> absl::StatusOr<Target> {
    TENURE_ASSIGN_OR_RETURN(Result old, tx.Run(sql::kLockTarget, Params().Add(name)));
    if (old.rows() == 0) return TargetNotFound(name);
    TENURE_RETURN_IF_ERROR(tx.Run(sql::kPauseTarget, Params().Add(ReadTarget(old, 0).id).Add(paused)).status());
    return FindTarget(tx, name);
  });
}

absl::StatusOr<std::vector<Delivery>> PostgresStore::ListDeadDeliveries(std::string_view name, int64_t after,
                                                                        int limit) {
  TENURE_ASSIGN_OR_RETURN(Result rows, RunOne("dead_deliveries", sql::kDeadDeliveries,
                                              Params().Add(name).Add(after).Add(static_cast<int64_t>(limit))));
  if (rows.rows() == 0) return TargetNotFound(name);
  return ReadDeliveries(rows);
}

absl::StatusOr<Redriven> PostgresStore::RedriveDeliveries(std::string_view name, std::span<const int64_t> ids) {
  TENURE_ASSIGN_OR_RETURN(
      Result rows, RunOne("redrive_deliveries", sql::kRedriveDeliveries, Params().Add(name).AddArray(ids).Add(kBatch)));
  if (rows.rows() == 0) return TargetNotFound(name);
  return Redriven{rows.Int32(0, 0), rows.Int(0, 0) >= kBatch};
}

}  // namespace tenure::store::postgres
