// PostgresStore: jobs that were ready before their queue got a gate go back to it; and how queues admit, in numbers.
#include <limits>
#include <optional>

#include "server/base/status.h"
#include "server/store/postgres/postgres_store.h"
#include "server/store/postgres/result.h"
#include "statements.sql.h"

namespace tenure::store::postgres {

absl::StatusOr<std::vector<int32_t>> PostgresStore::Recalls(int limit) {
  TENURE_ASSIGN_OR_RETURN(const Result rows,
                          RunOne("recalls", sql::kRecalls, Params().Add(static_cast<int64_t>(limit))));
  std::vector<int32_t> queues;
  for (int row = 0; row < rows.rows(); ++row) queues.push_back(rows.Int32(row, 0));
  return queues;
}

absl::StatusOr<RecallStep> PostgresStore::Recall(int32_t queue, int limit) {
  return Run<RecallStep>("recall", [&](Transaction& tx) -> absl::StatusOr<RecallStep> {
    tx.Queue(sql::kAdmissionBegin, Params().Add(queue));
    tx.Queue(sql::kAdmissionTurn, Params().Add(queue));
    TENURE_ASSIGN_OR_RETURN(const Result at, tx.Run(sql::kRecallBegin, Params().Add(queue)));
    if (at.rows() == 0) {
      TENURE_RETURN_IF_ERROR(tx.Commit());
      return RecallStep();
    }
    const std::string began = at.Text(0, at.Column("began"));
    const absl::Time since = at.Time(0, at.Column("since"));
    Params end;
    end.Add(queue);
    if (!at.Bool(0, at.Column("gated"))) {  // It has no gate any more.
      end.AddNull().AddNull().AddNull().Add(int64_t{0}).Add(false).Add(true).Add(began);
      TENURE_RETURN_IF_ERROR(tx.RunAndCommit(sql::kRecallEnd, end).status());
      return RecallStep();
    }
    const int id = at.Column("id");
    const bool begins = at.IsNull(0, id);
    const bool last = at.Bool(0, at.Column(begins ? "settled" : "last"));
    constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();
    Params params;
    params.Add(queue)
        .Add(begins ? std::numeric_limits<int16_t>::max() : static_cast<int16_t>(at.Int(0, at.Column("priority"))))
        .Add(begins ? kEnd : at.Int(0, at.Column("rank")))
        .Add(begins ? kEnd : at.Int(0, id))
        .Add(static_cast<int64_t>(limit))
        .Add(since);
    TENURE_ASSIGN_OR_RETURN(const Result rows, tx.Run(sql::kRecall, params));
    RecallStep step;
    step.recalled = rows.Int32(0, rows.Column("sent"));
    step.more = rows.Int(0, rows.Column("read")) == limit;
    const int64_t found = at.Int(0, at.Column("found")) + step.recalled + rows.Int(0, rows.Column("passed_over"));
    if (step.more) {
      end.Add(static_cast<int16_t>(rows.Int(0, rows.Column("priority"))))
          .Add(rows.Int(0, rows.Column("rank")))
          .Add(rows.Int(0, rows.Column("id")))
          .Add(found)
          .Add(last)
          .Add(false)
          .Add(began);
    } else {
      end.AddNull().AddNull().AddNull().Add(int64_t{0}).Add(false).Add(last && found == 0).Add(began);
    }
    // Whoever claims now has read none of what goes back: it was locked, and is not there for who begins after this.
    if (step.recalled > 0) tx.Queue(sql::kLockQueue, Params().Add(queue));
    TENURE_RETURN_IF_ERROR(tx.RunAndCommit(sql::kRecallEnd, end).status());
    return step;
  });
}

absl::StatusOr<std::vector<AdmissionCounts>> PostgresStore::CountBlocked() {
  TENURE_ASSIGN_OR_RETURN(const Result rows,
                          RunOne("count_blocked", sql::kCountBlocked,
                                 Params().Add(AdmissionCounts::kMost).Add(AdmissionCounts::kMostTenants)));
  std::vector<AdmissionCounts> queues;
  const int max = rows.Column("max_leased");
  for (int row = 0; row < rows.rows(); ++row) {
    AdmissionCounts& counts = queues.emplace_back();
    counts.queue = rows.Int32(row, rows.Column("queue_id"));
    counts.name = rows.Text(row, rows.Column("name"));
    counts.fair = rows.Bool(row, rows.Column("fair_tenants"));
    counts.dependency = rows.Int(row, rows.Column("dependency"));
    counts.group = rows.Int(row, rows.Column("in_group"));
    counts.key = rows.Int(row, rows.Column("in_key"));
    counts.gate = rows.Int(row, rows.Column("in_queue"));
    counts.tenants = rows.Int(row, rows.Column("tenants"));
    if (!rows.IsNull(row, max)) counts.max = rows.Int32(row, max);
    counts.held = rows.Int(row, rows.Column("held"));
    counts.has_rate = rows.Bool(row, rows.Column("has_rate"));
  }
  return queues;
}

}  // namespace tenure::store::postgres
