// PostgresStore: what background workers do. Every write names a term, of the leader or of shards, and is refused once
// it is over.
#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "server/base/logging.h"
#include "server/base/status.h"
#include "server/store/postgres/errors.h"
#include "server/store/postgres/postgres_store.h"
#include "statements.sql.h"

namespace tenure::store::postgres {

absl::StatusOr<PromoteResult> PostgresStore::Promote(const Fence& fence, absl::Time after, int limit) {
  Params params;
  params.Add(fence.worker).Add(fence.term).Add(after).Add(int64_t{-1}).Add(static_cast<int64_t>(limit));
  TENURE_ASSIGN_OR_RETURN(Result rows, RunOne("promote", sql::kPromote, params));
  PromoteResult result;
  int64_t read = 0;
  absl::Time last_due = absl::InfinitePast(), first_missed = absl::InfiniteFuture();
  for (int row = 0; row < rows.rows(); ++row) {
    switch (rows.Int(row, 0)) {
      case 0: {
        ReadyRange range{rows.Int32(row, 1),
                         static_cast<int16_t>(rows.Int(row, 2)),
                         {rows.Int(row, 3), rows.Int(row, 4)},
                         {rows.Int(row, 5), rows.Int(row, 6)},
                         rows.Int32(row, 7)};
        result.promoted += range.count;
        result.ready.push_back(range);
        break;
      }
      case 1:
        first_missed = rows.Time(row, 8);
        break;
      case 2:
        read = rows.Int(row, 7);
        last_due = rows.Time(row, 8);
        break;
      case 5: {
        GateNames& blocked = result.blocked[rows.Int32(row, 1)];
        GateReader(rows).Add(row, blocked);
        blocked.emplace_back("q");
        result.promoted += rows.Int32(row, 7);
        break;
      }
      case 3:
        result.next_due = absl::Seconds(rows.Double(row, 9));
        break;
      default:
        result.now = rows.Time(row, 8);
    }
  }
  result.more = read >= limit;
  result.cursor = std::min(result.more ? last_due : result.now, first_missed);
  return result;
}

absl::StatusOr<int> PostgresStore::ExpireJobs(const Fence& fence, int limit, GatesByQueue* freed) {
  TENURE_ASSIGN_OR_RETURN(
      Result rows,
      RunOne("expire", sql::kExpire, Params().Add(fence.worker).Add(fence.term).Add(static_cast<int64_t>(limit))));
  int expired = 0;
  const int awaited = rows.Column("awaited_ids");
  for (int row = 0; row < rows.rows(); ++row) {
    const int32_t jobs = rows.Int32(row, 1);
    Metrics::Add(metrics_.jobs_settled, {{"queue", rows.Text(row, 0)}, {"outcome", "expired"}}, jobs);
    expired += jobs;
    if (freed != nullptr) {
      GateNames& names = (*freed)[rows.Int32(row, 2)];
      GateReader(rows).Add(row, names);
      names.emplace_back("q");
      if (rows.IsNull(row, awaited)) continue;
      for (int64_t id : rows.IntArray(row, awaited)) names.push_back(AwaitedName(id));
    }
  }
  return expired;
}

absl::Status PostgresStore::EnsurePartitions(int days_ahead) {
  // Another maker, or a long reader of the new table's parent, holds it up at most so long; the next round tries again.
  const Transaction::Limits limits{absl::Seconds(30), absl::Seconds(5)};
  return Run<Result>("ensure_days", limits,
                     [&](Transaction& tx) { return tx.RunAndCommit(sql::kEnsureDays, Params().Add(days_ahead)); })
      .status();
}

absl::StatusOr<std::vector<std::string>> PostgresStore::DropPartitions(const ShardFence& fence, int history_days,
                                                                       int dead_letter_days) {
  TENURE_ASSIGN_OR_RETURN(Result rows, RunOne("list_partitions", sql::kListPartitions, Params()));
  const int parent_column = rows.Column("parent"), name_column = rows.Column("name"), day_column = rows.Column("day"),
            today_column = rows.Column("today"), held = rows.Column("held"), attached = rows.Column("attached"),
            detaching = rows.Column("detaching");
  std::vector<std::string> dropped;
  for (int row = 0; row < rows.rows(); ++row) {
    const std::string parent = rows.Text(row, parent_column), name = rows.Text(row, name_column);
    const int32_t day = rows.Int32(row, day_column), today = rows.Int32(row, today_column);
    const int age = parent == "history"       ? history_days
                    : parent == "dead_letter" ? dead_letter_days
                                              : std::max(history_days, dead_letter_days);
    if (day >= today - age) continue;
    // Kept beyond its age until every export target has taken it.
    if (rows.Bool(row, held)) continue;
    if (parent == "payload") {
      TENURE_ASSIGN_OR_RETURN(Result used, RunOne("payload_in_use", sql::kPayloadInUse, Params().Add(day)));
      if (used.Bool(0, 0)) continue;
    }
    TENURE_ASSIGN_OR_RETURN(Result holding, RunOne("check_shard", sql::kCheckShard,
                                                   Params().Add(fence.worker).Add(fence.first).Add(fence.term)));
    if (holding.rows() == 0) return ShardTermOver(fence);
    TENURE_ASSIGN_OR_RETURN(const bool gone,
                            DropPartition(parent, name, rows.Bool(row, attached), rows.Bool(row, detaching)));
    if (gone) dropped.push_back(name);
  }
  return dropped;
}

absl::StatusOr<int> PostgresStore::Prune(const ShardFence& fence, int limit) {
  Params params;
  params.Add(fence.worker).Add(fence.first).Add(fence.term).Add(static_cast<int64_t>(limit));
  TENURE_ASSIGN_OR_RETURN(Result rows, RunOne("prune", sql::kPrune, params));
  return rows.Int32(0, 0);
}

}  // namespace tenure::store::postgres
