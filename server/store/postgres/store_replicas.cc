// PostgresStore: replicas of the daemon, leaders of background workers, client workers, and the database itself.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/status.h"
#include "server/store/postgres/errors.h"
#include "server/store/postgres/migrator.h"
#include "server/store/postgres/postgres_store.h"
#include "statements.sql.h"

namespace tenure::store::postgres {
namespace {

// How long a replica lives without a heartbeat when it registers; Heartbeat then says its own.
constexpr absl::Duration kFirstLease = absl::Seconds(10);

}  // namespace

absl::StatusOr<int32_t> PostgresStore::RegisterReplica(std::string_view name, std::string_view version) {
  Params params;
  params.Add(name).Add(version).Add(absl::ToInt64Microseconds(kFirstLease));
  TENURE_ASSIGN_OR_RETURN(Result rows, RunOne("register_replica", sql::kRegisterReplica, params));
  return rows.Int32(0, 0);
}

absl::Status PostgresStore::Heartbeat(int32_t replica, bool draining, absl::Duration lease, absl::Time seen) {
  const auto backends = pool_.Backends();
  Params params;
  params.Add(replica)
      .Add(absl::ToInt64Microseconds(lease))
      .Add(draining)
      .AddArray(backends, [](const auto& b) { return b.first; })
      .AddArray(backends, [](const auto& b) { return b.second; })
      .Add(seen);
  TENURE_ASSIGN_OR_RETURN(Result rows, RunOne("heartbeat", sql::kHeartbeat, params));
  if (rows.rows() == 0) {
    return MakeError(absl::StatusCode::kNotFound, "REPLICA_LOST",
                     "this replica's own lease ran out; it registers anew");
  }
  return absl::OkStatus();
}

absl::Status PostgresStore::UnregisterReplica(int32_t replica) {
  return RunOne("unregister_replica", sql::kUnregisterReplica, Params().Add(replica)).status();
}

absl::StatusOr<std::vector<ReplicaRow>> PostgresStore::ListReplicas() {
  TENURE_ASSIGN_OR_RETURN(Result r, RunOne("list_replicas", sql::kListReplicas, Params()));
  std::vector<ReplicaRow> replicas;
  for (int row = 0; row < r.rows(); ++row) {
    ReplicaRow replica;
    replica.id = r.Int(row, r.Column("id"));
    replica.name = r.Text(row, r.Column("name"));
    replica.version = r.Text(row, r.Column("version"));
    replica.started = r.Time(row, r.Column("started_at"));
    replica.heartbeat = r.Time(row, r.Column("heartbeat_at"));
    replica.draining = r.Bool(row, r.Column("draining"));
    replica.alive = r.Bool(row, r.Column("alive"));
    replica.leads = r.TextArray(row, r.Column("leads"));
    replicas.push_back(std::move(replica));
  }
  return replicas;
}

absl::StatusOr<int> PostgresStore::EvictReplicas(const ShardFence& fence) {
  TENURE_ASSIGN_OR_RETURN(Result rows, RunOne("evict_replicas", sql::kEvictReplicas,
                                              Params().Add(fence.worker).Add(fence.first).Add(fence.term)));
  return rows.Int32(0, 0);
}

absl::Status PostgresStore::RecordOutage(absl::Duration length) {
  return RunOne("record_outage", sql::kRecordOutage, Params().Add(absl::ToInt64Microseconds(length))).status();
}

absl::StatusOr<std::optional<Fence>> PostgresStore::AcquireLeader(std::string_view worker, int32_t replica,
                                                                  absl::Duration lease) {
  Params params;
  params.Add(worker).Add(replica).Add(absl::ToInt64Microseconds(lease));
  TENURE_ASSIGN_OR_RETURN(Result rows, RunOne("acquire_leader", sql::kAcquireLeader, params));
  if (rows.rows() == 0) return std::optional<Fence>();
  return std::optional<Fence>(Fence{std::string(worker), rows.Int(0, 0)});
}

absl::Status PostgresStore::RenewLeader(const Fence& fence, absl::Duration lease) {
  Params params;
  params.Add(fence.worker).Add(fence.term).Add(absl::ToInt64Microseconds(lease));
  TENURE_ASSIGN_OR_RETURN(Result rows, RunOne("renew_leader", sql::kRenewLeader, params));
  return rows.rows() > 0 ? absl::OkStatus() : TermOver(fence);
}

absl::Status PostgresStore::ReleaseLeader(const Fence& fence) {
  return RunOne("release_leader", sql::kReleaseLeader, Params().Add(fence.worker).Add(fence.term)).status();
}

absl::Status PostgresStore::ReportRun(std::string_view worker, const RunReport& report) {
  Params params;
  params.Add(worker).Add(report.ok).Add(report.error).Add(report.restarted).Add(report.runs);
  return RunOne("report_run", sql::kReportRun, params).status();
}

absl::Status PostgresStore::RecordWorkers(std::span<const WorkerSeen> workers) {
  std::map<std::string, std::string> sorted;
  for (const WorkerSeen& worker : workers) sorted[worker.worker] = absl::StrJoin(worker.queues, ",");
  Params params;
  params.AddArray(sorted, [](const auto& w) { return std::string_view(w.first); }).AddArray(sorted, [](const auto& w) {
    return std::string_view(w.second);
  });
  return RunOne("record_workers", sql::kRecordWorkers, params).status();
}

absl::StatusOr<std::vector<WorkerRow>> PostgresStore::ListWorkers(std::string_view after, int limit) {
  TENURE_ASSIGN_OR_RETURN(
      Result r, RunOne("list_workers", sql::kListWorkers, Params().Add(after).Add(static_cast<int64_t>(limit))));
  std::vector<WorkerRow> workers;
  for (int row = 0; row < r.rows(); ++row) {
    workers.push_back({r.Text(row, 0), r.Time(row, 1), r.Int32(row, 3), r.TextArray(row, 2)});
  }
  return workers;
}

absl::Status PostgresStore::Ping() {
  TENURE_ASSIGN_OR_RETURN(Result rows, RunOne("ping", sql::kPing, Params()));
  if (rows.Int(0, 0) < kRequiredSchema) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "SCHEMA_TOO_OLD",
                     absl::StrCat("the database schema is at version ", rows.Int(0, 0), ", this daemon needs ",
                                  kRequiredSchema, "; run `tenured migrate up`"));
  }
  return absl::OkStatus();
}

}  // namespace tenure::store::postgres
