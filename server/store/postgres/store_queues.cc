// PostgresStore: queues.
#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/store/postgres/errors.h"
#include "server/store/postgres/postgres_store.h"
#include "statements.sql.h"

namespace tenure::store::postgres {
namespace {

absl::Status QueueNotFound(std::string_view name) {
  return MakeError(absl::StatusCode::kNotFound, "QUEUE_NOT_FOUND",
                   absl::StrCat("there is no queue \"", std::string(name), "\"; create it, or enqueue a job to it"),
                   {{"queue", std::string(name)}});
}

absl::StatusOr<std::vector<Queue>> ReadQueues(absl::StatusOr<Result> rows) {
  if (!rows.ok()) return rows.status();
  std::vector<Queue> queues;
  for (int row = 0; row < rows->rows(); ++row) queues.push_back(ReadQueue(*rows, row));
  return queues;
}

std::optional<int64_t> InMicroseconds(const std::optional<absl::Duration>& duration) {
  if (!duration) return std::nullopt;
  return absl::ToInt64Microseconds(*duration);
}

void AddBackoff(Params& params, const std::optional<Backoff>& backoff) {
  if (backoff) {
    params.Add(backoff->initial_us).Add(backoff->multiplier).Add(backoff->max_us);
  } else {
    params.AddNull().AddNull().AddNull();
  }
}

std::optional<std::string_view> NonEmpty(const std::string& text) {
  if (text.empty()) return std::nullopt;
  return text;
}

// Rules must not go round in a circle. Until the transaction ends nobody else sets one.
absl::Status CheckRule(Transaction& tx, std::string_view queue, const std::string& to) {
  if (to.empty()) return absl::OkStatus();
  TENURE_RETURN_IF_ERROR(tx.Run(sql::kLockRules, Params()).status());
  TENURE_ASSIGN_OR_RETURN(const Result found, tx.Run(sql::kFindQueue, Params().Add(to)));
  // A queue that is being made may name itself.
  if (found.rows() == 0 && to != queue) return QueueNotFound(to);
  TENURE_ASSIGN_OR_RETURN(const Result loop, tx.Run(sql::kFindRuleLoop, Params().Add(queue).Add(to)));
  if (loop.rows() == 0) return absl::OkStatus();
  return InvalidField("settings.dead_letter_queue",
                      absl::StrCat("must not lead back to this queue, but the rules go ", loop.Text(0, 0)));
}

// An application may be making a queue of this name in a transaction that it holds open: nobody waits for that.
absl::Status OrQueueBusy(const absl::Status& status, std::string_view name) {
  if (SqlStateOf(status) != kLockNotAvailable) return status;
  return MakeError(absl::StatusCode::kUnavailable, "QUEUE_BUSY",
                   absl::StrCat("another transaction is making the queue \"", std::string(name),
                                "\" and has not committed yet; try again, or make queues beforehand"),
                   {{"queue", std::string(name)}}, absl::Milliseconds(200));
}

}  // namespace

absl::StatusOr<Queue> PostgresStore::EnsureQueue(std::string_view name, bool create) {
  TENURE_ASSIGN_OR_RETURN(Result found, RunOne("find_queue", sql::kFindQueue, Params().Add(name)));
  if (found.rows() > 0) return ReadQueue(found, 0);
  if (!create) return QueueNotFound(name);
  const auto made =
      Run<Result>("ensure_queue", Transaction::Limits{options_.statement_timeout, kKeyWait},
                  [&](Transaction& tx) { return tx.RunAndCommit(sql::kEnsureQueue, Params().Add(name)); });
  if (!made.ok()) return OrQueueBusy(made.status(), name);
  if (made->rows() > 0) return ReadQueue(*made, 0);
  // Somebody else made it while we waited: its row is visible to the next statement.
  TENURE_ASSIGN_OR_RETURN(Result again, RunOne("find_queue", sql::kFindQueue, Params().Add(name)));
  if (again.rows() == 0) return QueueNotFound(name);
  return ReadQueue(again, 0);
}

absl::StatusOr<Queue> PostgresStore::CreateQueue(std::string_view name, const QueueSettings& settings, bool paused) {
  Params params;
  params.Add(name).Add(paused).Add(settings.max_attempts).Add(settings.crash_budget);
  AddBackoff(params, settings.backoff);
  params.Add(settings.description).Add(settings.max_depth).Add(settings.max_tenant_depth).Add(settings.skip_retrying);
  params.Add(settings.fair_tenants).Add(InMicroseconds(settings.priority_ageing));
  params.Add(InMicroseconds(settings.start_within))
      .Add(NonEmpty(settings.dead_letter_queue))
      .Add(settings.dead_letter_rate);
  const Transaction::Limits limits{options_.statement_timeout, kKeyWait};
  absl::StatusOr<Queue> queue = Run<Queue>("create_queue", limits, [&](Transaction& tx) -> absl::StatusOr<Queue> {
    TENURE_RETURN_IF_ERROR(CheckRule(tx, name, settings.dead_letter_queue));
    TENURE_ASSIGN_OR_RETURN(Result made, tx.RunAndCommit(sql::kCreateQueue, params));
    if (made.rows() == 0) {
      return MakeError(absl::StatusCode::kAlreadyExists, "QUEUE_EXISTS",
                       absl::StrCat("the queue \"", std::string(name), "\" exists; UpdateQueue changes its settings"),
                       {{"queue", std::string(name)}});
    }
    return ReadQueue(made, 0);
  });
  if (!queue.ok()) return OrQueueBusy(queue.status(), name);
  return queue;
}

absl::StatusOr<Queue> PostgresStore::UpdateQueue(std::string_view name, const QueueSettings& settings,
                                                 const std::set<std::string>& fields) {
  Params params;
  params.Add(name)
      .Add(fields.contains("max_attempts"))
      .Add(settings.max_attempts)
      .Add(fields.contains("crash_budget"))
      .Add(settings.crash_budget)
      .Add(fields.contains("backoff"));
  AddBackoff(params, settings.backoff);
  params.Add(fields.contains("description"))
      .Add(settings.description)
      .Add(fields.contains("max_depth"))
      .Add(settings.max_depth)
      .Add(fields.contains("max_tenant_depth"))
      .Add(settings.max_tenant_depth)
      .Add(fields.contains("groups_skip_retrying"))
      .Add(settings.skip_retrying)
      .Add(fields.contains("fair_tenants"))
      .Add(settings.fair_tenants)
      .Add(fields.contains("priority_ageing"))
      .Add(InMicroseconds(settings.priority_ageing))
      .Add(fields.contains("start_within"))
      .Add(InMicroseconds(settings.start_within))
      .Add(fields.contains("dead_letter_queue"))
      .Add(NonEmpty(settings.dead_letter_queue))
      .Add(fields.contains("dead_letter_jobs_per_second"))
      .Add(settings.dead_letter_rate);
  return Run<Queue>("update_queue", [&](Transaction& tx) -> absl::StatusOr<Queue> {
    if (fields.contains("dead_letter_queue")) {
      TENURE_RETURN_IF_ERROR(CheckRule(tx, name, settings.dead_letter_queue));
    }
    TENURE_ASSIGN_OR_RETURN(Result changed, tx.Run(sql::kUpdateQueue, params));
    if (changed.rows() == 0) return QueueNotFound(name);
    Queue queue = ReadQueue(changed, 0);
    // One that is paused keeps its rate.
    if (fields.contains("dead_letter_jobs_per_second") && !fields.contains("dead_letter_queue") &&
        settings.dead_letter_rate && queue.settings.dead_letter_queue.empty()) {
      return InvalidField("settings.dead_letter_jobs_per_second",
                          "needs dead_letter_queue: the queue has no rule for its dead letters");
    }
    TENURE_RETURN_IF_ERROR(tx.Commit());
    return queue;
  });
}

absl::StatusOr<Queue> PostgresStore::SetPaused(std::string_view name, bool paused) {
  return Run<Queue>("set_paused", [&](Transaction& tx) -> absl::StatusOr<Queue> {
    TENURE_ASSIGN_OR_RETURN(Result found, tx.Run(sql::kFindQueue, Params().Add(name)));
    if (found.rows() == 0) return QueueNotFound(name);
    const int32_t id = ReadQueue(found, 0).id;
    tx.Queue(sql::kLockQueue, Params().Add(id));
    TENURE_ASSIGN_OR_RETURN(Result changed, tx.RunAndCommit(sql::kSetPaused, Params().Add(id).Add(paused)));
    if (changed.rows() == 0) return QueueNotFound(name);
    return ReadQueue(changed, 0);
  });
}

absl::StatusOr<std::vector<Queue>> PostgresStore::ListQueues(std::string_view after_name, std::string_view prefix,
                                                             int limit) {
  return ReadQueues(
      RunOne("list_queues", sql::kListQueues, Params().Add(after_name).Add(prefix).Add(static_cast<int64_t>(limit))));
}

absl::StatusOr<std::vector<Queue>> PostgresStore::LoadQueues(std::span<const int32_t> ids) {
  return ReadQueues(RunOne("load_queues", sql::kLoadQueues, Params().AddArray(ids)));
}

}  // namespace tenure::store::postgres
