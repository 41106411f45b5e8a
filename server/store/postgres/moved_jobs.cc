#include "server/store/postgres/moved_jobs.h"

#include <vector>

#include "server/base/status.h"
#include "server/store/postgres/postgres_store.h"
#include "statements.sql.h"

namespace tenure::store::postgres {

absl::StatusOr<std::map<JobId, JobId>> MovedTo(Transaction& tx, std::span<const JobId> ids) {
  std::map<JobId, JobId> moved;
  if (ids.empty()) return moved;
  TENURE_ASSIGN_OR_RETURN(const Result rows,
                          tx.Run(sql::kFindForward, Params()
                                                        .AddArray(ids, [](const JobId& id) { return id.seq; })
                                                        .AddArray(ids, [](const JobId& id) { return id.queue; })
                                                        .AddArray(ids, [](const JobId& id) { return id.day; })));
  for (int row = 0; row < rows.rows(); ++row) {
    moved[ids[static_cast<size_t>(rows.Int(row, 0) - 1)]] = {rows.Int32(row, 1), rows.Int32(row, 2), rows.Int(row, 3)};
  }
  return moved;
}

absl::StatusOr<std::vector<JobId>> PostgresStore::WhereNow(std::span<const JobId> ids) {
  using Moved = std::map<JobId, JobId>;
  TENURE_ASSIGN_OR_RETURN(const Moved moved, Run<Moved>("find_forward", [&](Transaction& tx) -> absl::StatusOr<Moved> {
                            TENURE_ASSIGN_OR_RETURN(Moved found, MovedTo(tx, ids));
                            TENURE_RETURN_IF_ERROR(tx.Commit());
                            return found;
                          }));
  std::vector<JobId> now(ids.begin(), ids.end());
  for (JobId& id : now) {
    if (const auto to = moved.find(id); to != moved.end()) id = to->second;
  }
  return now;
}

}  // namespace tenure::store::postgres
