// PostgresStore: days of history and dead letters for export, and live jobs for inventories. Every write names the
// leader's term and is refused once it is over.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "server/base/logging.h"
#include "server/base/status.h"
#include "server/store/postgres/postgres_store.h"
#include "statements.sql.h"

namespace tenure::store::postgres {
namespace {

absl::Status TermOver() {
  return MakeError(absl::StatusCode::kFailedPrecondition, "TERM_OVER", "the leader's term is over");
}

// A statement on the table of a day, which no parameter can name. The name is one that the catalogue has told. Sent
// without parameters, so that no plan is kept for each day.
std::string OfTable(std::string_view statement, const std::string& table) {
  return absl::StrReplaceAll(absl::string_view(statement.data(), statement.size()),
                             {{"from tenure.history ", absl::StrCat("from tenure.", table, " ")}});
}

}  // namespace

absl::StatusOr<std::vector<DayPartition>> PostgresStore::ListExports(int64_t target, int32_t min_age_days) {
  TENURE_ASSIGN_OR_RETURN(Result rows,
                          RunOne("list_exports", sql::kListExports, Params().Add(target).Add(min_age_days)));
  std::vector<DayPartition> days;
  for (int row = 0; row < rows.rows(); ++row)
    days.push_back({rows.Text(row, 1), rows.Text(row, 0), rows.Int32(row, 2)});
  return days;
}

absl::StatusOr<std::vector<Job>> PostgresStore::ReadDay(const DayPartition& day, int64_t after, int limit) {
  const std::string text = absl::StrReplaceAll(OfTable(sql::kReadDay, day.table),
                                               {{"$1", absl::StrCat(after)}, {"$2", absl::StrCat(limit)}});
  auto read = Run<Result>("read_day", Transaction::Limits{absl::Seconds(60)},
                          [&](Transaction& tx) { return tx.RunAndCommit(text, Params()); });
  if (!read.ok()) return read.status();
  const JobReader reader(*read);
  std::vector<Job> jobs;
  std::vector<int32_t> payload_days;
  for (int row = 0; row < read->rows(); ++row) {
    jobs.push_back(reader.Read(row));
    payload_days.push_back(reader.PayloadDay(row));
  }
  std::vector<Job*> pointers;
  for (Job& job : jobs) pointers.push_back(&job);
  TENURE_RETURN_IF_ERROR(FetchPayloads(pointers, payload_days));
  return jobs;
}

absl::StatusOr<LivePage> PostgresStore::ReadLive(int32_t queue, int64_t after, int limit) {
  TENURE_ASSIGN_OR_RETURN(Result rows, RunOne("live_page", sql::kLivePage,
                                              Params().Add(queue).Add(after).Add(static_cast<int64_t>(limit))));
  const JobReader reader(rows);
  const int id = rows.Column("id"), size = rows.Column("payload_size");
  LivePage page;
  for (int row = 0; row < rows.rows(); ++row) {
    if (rows.Int(row, 0) == 1) {
      page.more = rows.Int(row, 1) >= limit;
      page.after = rows.Int(row, id);
      continue;
    }
    page.jobs.push_back(reader.Read(row));
    page.payload_sizes.push_back(rows.Int(row, size));
  }
  return page;
}

absl::Status PostgresStore::RecordExport(const Fence& fence, int64_t target, const DayPartition& day, int64_t count) {
  Params params;
  params.Add(fence.worker).Add(fence.term).Add(target).Add(day.table).Add(count);
  TENURE_ASSIGN_OR_RETURN(Result rows, RunOne("record_export", sql::kRecordExport, params));
  return rows.Bool(0, 0) ? absl::OkStatus() : TermOver();
}

absl::StatusOr<bool> PostgresStore::DropExported(const Fence& fence, const DayPartition& day) {
  TENURE_ASSIGN_OR_RETURN(Result rows, RunOne("list_partitions", sql::kListPartitions, Params()));
  const int name = rows.Column("name");
  for (int row = 0; row < rows.rows(); ++row) {
    if (rows.Bytes(row, name) != day.table) continue;
    if (rows.Bool(row, rows.Column("held"))) return false;
    TENURE_ASSIGN_OR_RETURN(Result leading,
                            RunOne("check_leader", sql::kCheckLeader, Params().Add(fence.worker).Add(fence.term)));
    if (leading.rows() == 0) return TermOver();
    return DropPartition(day.parent, day.table, rows.Bool(row, rows.Column("attached")),
                         rows.Bool(row, rows.Column("detaching")));
  }
  return true;
}

absl::StatusOr<bool> PostgresStore::DropPartition(const std::string& parent, const std::string& table, bool attached,
                                                  bool detaching) {
  TENURE_ASSIGN_OR_RETURN(Result taken, RunOne("exported_rows", sql::kExportedRows, Params().Add(table)));
  // CONCURRENTLY waits for readers without holding anybody up, and may be cut short: what is then left half done is
  // finished in a later round. It cannot run inside a transaction.
  auto connection = pool_.Acquire(absl::Seconds(5));
  if (!connection.ok()) return connection.status();
  absl::Status status;
  if (attached) {
    status = (*connection)
                 ->Script(absl::StrCat("alter table tenure.", parent, " detach partition tenure.", table,
                                       detaching ? " finalize" : " concurrently"),
                          absl::Seconds(10));
  }
  if (status.ok() && taken.rows() > 0) {
    // Nobody can write to it any more. A transaction that began on that day and ended after the export may have.
    Transaction tx(**connection, {absl::Seconds(60)});
    const std::string text = OfTable(sql::kCountDay, table);
    const absl::StatusOr<Result> count = tx.RunAndCommit(text, Params());
    status = count.status();
    for (int row = 0; status.ok() && row < taken.rows(); ++row) {
      if (taken.Int(row, 0) == count->Int(0, 0)) continue;
      LogWarn("a day has rows that came after its export; it is exported again",
              {{"partition", table},
               {"rows", absl::StrCat(count->Int(0, 0))},
               {"exported", absl::StrCat(taken.Int(row, 0))}});
      TENURE_RETURN_IF_ERROR(RunOne("forget_export", sql::kForgetExport, Params().Add(table)).status());
      return false;
    }
  }
  if (status.ok()) {
    Transaction tx(**connection, {absl::Seconds(30), absl::Seconds(1)});
    const std::string drop = absl::StrCat("drop table tenure.", table);
    status = tx.RunAndCommit(drop, Params()).status();
  }
  if (!status.ok()) {
    // A reader still uses it: history and settles go on; the next round tries again.
    LogInfo("partition kept for now", {{"partition", table}, {"reason", std::string(status.message())}});
    return false;
  }
  if (taken.rows() > 0)
    TENURE_RETURN_IF_ERROR(RunOne("forget_export", sql::kForgetExport, Params().Add(table)).status());
  return true;
}

}  // namespace tenure::store::postgres
