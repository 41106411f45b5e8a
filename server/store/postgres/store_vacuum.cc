// PostgresStore: what an operator wants to know of the database, and the upkeep of its indexes.
#include <mutex>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/base/status.h"
#include "server/store/postgres/errors.h"
#include "server/store/postgres/migrator.h"
#include "server/store/postgres/postgres_store.h"
#include "statements.sql.h"

namespace tenure::store::postgres {
namespace {

constexpr absl::Duration kConnect = absl::Seconds(5);

void ReadHolders(const Result& r, DatabaseInfo& info) {
  for (int row = 0; row < r.rows(); ++row) {
    VacuumHolder holder;
    holder.kind = r.Text(row, 0);
    if (!r.IsNull(row, 1)) holder.age = absl::Seconds(r.Double(row, 1));
    holder.transactions = r.Int(row, 2);
    holder.pid = r.Int32(row, 3);
    holder.name = r.Text(row, 4);
    holder.owner = r.Text(row, 5);
    holder.state = r.Text(row, 6);
    holder.query_start = r.OptionalTime(row, 7);
    info.holders.push_back(std::move(holder));
  }
}

}  // namespace

absl::StatusOr<DatabaseInfo> PostgresStore::Inspect() {
  const absl::Time before = absl::Now();
  TENURE_ASSIGN_OR_RETURN(const Result r, RunOne("inspect", sql::kInspect, Params()));
  const absl::Time after = absl::Now();
  DatabaseInfo info;
  info.version = r.Text(0, r.Column("version"));
  info.version_number = r.Int32(0, r.Column("version_number"));
  info.role = r.Text(0, r.Column("role"));
  info.pooled = pool_.pooled();
  info.schema_version = r.Int32(0, r.Column("schema_version"));
  info.synchronous_commit = r.Bool(0, r.Column("synchronous_commit"));
  info.clock_difference = r.Time(0, r.Column("clock")) - (before + (after - before) / 2);
  info.required_schema = kRequiredSchema;
  TENURE_ASSIGN_OR_RETURN(const Result holders, RunOne("inspect_holders", sql::kInspectHolders, Params()));
  ReadHolders(holders, info);
  TENURE_ASSIGN_OR_RETURN(const Result tables, RunOne("inspect_tables", sql::kInspectTables, Params()));
  for (int row = 0; row < tables.rows(); ++row) {
    info.tables.push_back({tables.Text(row, 0), tables.Int(row, 1), tables.Int(row, 2)});
  }
  TENURE_ASSIGN_OR_RETURN(const Result indexes, RunOne("inspect_indexes", sql::kInspectIndexes, Params()));
  for (int row = 0; row < indexes.rows(); ++row) {
    if (indexes.Bool(row, 4)) {
      info.leftover_indexes.push_back(indexes.Text(row, 0));
    } else {
      info.indexes.push_back({indexes.Text(row, 0), indexes.Text(row, 1), indexes.Int(row, 2), indexes.Int(row, 3)});
    }
  }
  return info;
}

absl::Status PostgresStore::WorkOnIndex(const Fence& fence, std::string_view index, bool rebuild,
                                        const IndexWorkLimits& limits, const std::stop_token& stop) {
  TENURE_ASSIGN_OR_RETURN(const Result leading,
                          RunOne("check_leader", sql::kCheckLeader, Params().Add(fence.worker).Add(fence.term)));
  if (leading.rows() == 0) return TermOver(fence);
  TENURE_ASSIGN_OR_RETURN(const Result found, RunOne("find_index", sql::kFindIndex, Params().Add(index)));
  if (found.rows() == 0) {
    if (!rebuild) return absl::OkStatus();
    return MakeError(absl::StatusCode::kNotFound, "INDEX_NOT_FOUND",
                     absl::StrCat("there is no index ", std::string(index), " in the schema tenure"));
  }
  const bool leftover = !found.Bool(0, 0) && found.Bool(0, 1) && !found.Bool(0, 3);
  if (!rebuild && !leftover) return absl::OkStatus();
  // A session of its own: the limits have to be set on it, since neither statement can run inside a transaction.
  TENURE_ASSIGN_OR_RETURN(const auto connection,
                          Connection::Open(options_.url, options_.application_name + " index upkeep", kConnect));
  if (connection->pooled()) {
    return MakeError(
        absl::StatusCode::kFailedPrecondition, "NEEDS_DIRECT_CONNECTION",
        "indexes cannot be rebuilt through a transaction pooler; run REINDEX INDEX CONCURRENTLY by hand on "
        "a direct connection");
  }
  TENURE_RETURN_IF_ERROR(connection->Script(
      absl::StrCat("set lock_timeout = '", std::max<int64_t>(1, absl::ToInt64Milliseconds(limits.lock)), "ms'"),
      kConnect));
  const std::string quoted = found.Text(0, 2);
  const std::stop_callback on_stop(stop, [&] { connection->Cancel(); });
  if (stop.stop_requested()) return absl::CancelledError("stopped");
  return connection->Script(rebuild ? absl::StrCat("reindex index concurrently tenure.", quoted)
                                    : absl::StrCat("drop index concurrently if exists tenure.", quoted),
                            limits.total);
}

absl::Status PostgresStore::RebuildIndex(const Fence& fence, std::string_view index, const IndexWorkLimits& limits,
                                         const std::stop_token& stop) {
  const absl::Status done = WorkOnIndex(fence, index, true, limits, stop);
  Metrics::Add(metrics_.db_index_work, {{"what", done.ok() ? "rebuilt" : "failed"}});
  return done;
}

absl::Status PostgresStore::DropLeftoverIndex(const Fence& fence, std::string_view index, const IndexWorkLimits& limits,
                                              const std::stop_token& stop) {
  const absl::Status done = WorkOnIndex(fence, index, false, limits, stop);
  Metrics::Add(metrics_.db_index_work, {{"what", done.ok() ? "dropped" : "failed"}});
  return done;
}

}  // namespace tenure::store::postgres
