// PostgresStore: shards of background workers, who holds them, and the list of all background workers.
#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/store/postgres/errors.h"
#include "server/store/postgres/postgres_store.h"
#include "statements.sql.h"

namespace tenure::store::postgres {
namespace {

// A plan is made anew so often if another replica was faster; the next look makes it in any case.
constexpr int kPlans = 3;

struct Division {
  std::vector<ShardRow> rows;
  std::vector<int32_t> members;
  absl::Time now;
};

Division ReadDivision(const Result& r) {
  Division division;
  for (int row = 0; row < r.rows(); ++row) {
    division.now = r.Time(row, 10);
    if (r.Int(row, 0) == 1) {
      division.members.push_back(r.Int32(row, 4));
      continue;
    }
    division.rows.push_back({r.Int32(row, 1), r.Int32(row, 2), r.Int(row, 3), r.Int32(row, 4),
                             r.OptionalTime(row, 5).value_or(absl::InfinitePast()), r.Time(row, 6), r.Int32(row, 7),
                             r.Time(row, 8), r.Text(row, 9)});
  }
  return division;
}

}  // namespace

absl::StatusOr<bool> PostgresStore::ApplyShards(std::string_view worker, int32_t replica, absl::Duration lease,
                                                const ShardChange& change) {
  Params params;
  params.Add(worker).Add(replica).Add(absl::ToInt64Microseconds(lease));
  for (const auto* rows : {&change.remove, &change.add}) {
    params.AddArray(*rows, [](const ShardRow& row) { return row.first; })
        .AddArray(*rows, [](const ShardRow& row) { return row.last; })
        .AddArray(*rows, [](const ShardRow& row) { return row.term; })
        .AddArray(*rows, [](const ShardRow& row) { return row.replica; });
  }
  params.AddArray(change.add, [](const ShardRow& row) { return row.since; })
      .AddArray(change.add, [](const ShardRow& row) { return row.failures; })
      .AddArray(change.add, [](const ShardRow& row) { return row.retry; })
      .AddArray(change.add, [](const ShardRow& row) { return std::string_view(row.last_error); });
  TENURE_ASSIGN_OR_RETURN(const Result rows, RunOne("apply_shards", sql::kApplyShards, params));
  return rows.Int(0, 0) > 0;
}

absl::StatusOr<std::vector<ShardLease>> PostgresStore::LeaseShards(std::string_view worker, int32_t replica,
                                                                   absl::Duration lease) {
  TENURE_RETURN_IF_ERROR(
      RunOne("renew_shards", sql::kRenewShards, Params().Add(worker).Add(replica).Add(absl::ToInt64Microseconds(lease)))
          .status());
  Division division;
  for (int plan = 0; plan <= kPlans; ++plan) {
    TENURE_ASSIGN_OR_RETURN(const Result rows, RunOne("read_shards", sql::kReadShards, Params().Add(worker)));
    division = ReadDivision(rows);
    const ShardChange change = PlanShards(division.rows, division.members, replica, division.now);
    if (change.remove.empty() || plan == kPlans) break;
    TENURE_RETURN_IF_ERROR(ApplyShards(worker, replica, lease, change).status());
  }
  std::vector<ShardLease> held;
  for (const ShardRow& row : division.rows) {
    if (row.replica != replica || row.expires <= division.now) continue;
    held.push_back({{std::string(worker), row.first, row.last, row.term}, row.expires - division.now});
  }
  return held;
}

absl::Status PostgresStore::GiveUpShard(const ShardFence& fence, int32_t replica, int shard, std::string_view error) {
  TENURE_ASSIGN_OR_RETURN(const Result rows, RunOne("read_shards", sql::kReadShards, Params().Add(fence.worker)));
  const Division division = ReadDivision(rows);
  for (const ShardRow& row : division.rows) {
    if (row.replica != replica || row.first != fence.first || row.term != fence.term || row.last < shard) continue;
    // What stays held gets what was left of its lease.
    TENURE_ASSIGN_OR_RETURN(const bool done,
                            ApplyShards(fence.worker, replica, row.expires - division.now,
                                        store::FailShard(row, shard, std::string(error), division.now)));
    if (done) return absl::OkStatus();
  }
  return ShardTermOver(fence);
}

absl::Status PostgresStore::LeaveShards(std::string_view worker, int32_t replica) {
  return RunOne("leave_shards", sql::kLeaveShards, Params().Add(worker).Add(replica)).status();
}

absl::Status PostgresStore::ReportShardRun(std::string_view worker, int32_t replica, const RunReport& report) {
  Params params;
  params.Add(worker).Add(replica).Add(report.ok).Add(report.error).Add(report.restarted).Add(report.runs);
  return RunOne("report_shard_run", sql::kReportShardRun, params).status();
}

absl::StatusOr<std::vector<BackgroundRow>> PostgresStore::ListBackground() {
  TENURE_ASSIGN_OR_RETURN(const Result led, RunOne("list_background", sql::kListBackground, Params()));
  std::vector<BackgroundRow> workers;
  for (int row = 0; row < led.rows(); ++row) {
    workers.push_back({.name = led.Text(row, 0),
                       .holder = led.Text(row, 1),
                       .term = led.Int(row, 2),
                       .since = led.OptionalTime(row, 3),
                       .last_success = led.OptionalTime(row, 4),
                       .last_error = led.Text(row, 5),
                       .runs = led.Int(row, 6),
                       .restarts = led.Int(row, 7)});
  }
  TENURE_ASSIGN_OR_RETURN(const Result shards, RunOne("list_shards", sql::kListShards, Params()));
  // By worker and replica; 0 for what nobody holds.
  std::map<std::pair<std::string, int32_t>, std::pair<BackgroundRow, std::vector<ShardRow>>> folded;
  for (int row = 0; row < shards.rows(); ++row) {
    auto& [worker, ranges] = folded[{shards.Text(row, 0), shards.Int32(row, 4)}];
    worker.name = shards.Text(row, 0);
    worker.holder = shards.Text(row, 5);
    worker.term = std::max(worker.term, shards.Int(row, 3));
    if (const auto since = shards.OptionalTime(row, 6)) worker.since = std::min(worker.since.value_or(*since), *since);
    worker.last_success = shards.OptionalTime(row, 7);
    if (!shards.Text(row, 8).empty()) worker.last_error = shards.Text(row, 8);
    worker.runs = shards.Int(row, 9);
    worker.restarts = shards.Int(row, 10);
    ranges.push_back({.first = shards.Int32(row, 1), .last = shards.Int32(row, 2)});
  }
  for (auto& [unused, entry] : folded) {
    entry.first.shards = FormatShards(entry.second);
    workers.push_back(std::move(entry.first));
  }
  return workers;
}

}  // namespace tenure::store::postgres
