#include "server/store/postgres/postgres_store.h"

#include <chrono>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/base/logging.h"
#include "server/base/status.h"
#include "server/store/postgres/errors.h"
#include "statements.sql.h"

namespace tenure::store::postgres {
namespace {

constexpr int kMaxTries = 6;

bool IsMissingPartition(const absl::Status& status) {
  return SqlStateOf(status) == "23514" && absl::StrContains(status.message(), "no partition of relation");
}

}  // namespace

std::unique_ptr<PostgresStore> PostgresStore::Open(const PostgresOptions& options, Metrics& metrics) {
  return std::make_unique<PostgresStore>(options, metrics);
}

PostgresStore::PostgresStore(const PostgresOptions& options, Metrics& metrics)
    : options_(options),
      metrics_(metrics),
      pool_(options.url, options.application_name, options.connections, metrics) {}

absl::Status PostgresStore::RunLoop(const char* name, Transaction::Limits limits,
                                    const std::function<absl::Status(Transaction&)>& attempt) {
  const auto began = std::chrono::steady_clock::now();
  absl::Status status;
  for (int tries = 1; tries <= kMaxTries; ++tries) {
    auto lease = pool_.Acquire(limits.statement);
    if (!lease.ok()) return lease.status();
    {
      Transaction tx(**lease, limits);
      status = attempt(tx);
    }
    if (status.ok()) break;
    const std::string sqlstate = SqlStateOf(status);
    if (!sqlstate.empty()) Metrics::Add(metrics_.db_errors, {{"class", sqlstate.substr(0, 2)}});
    if (IsRetryable(status)) {
      Metrics::Add(metrics_.db_retries, {{"reason", sqlstate == "40P01" ? "deadlock" : "serialization"}});
      continue;
    }
    if (IsMissingPartition(status) && tries == 1) {
      // A daemon that was off over midnight, or a clock that jumped: make today's, then do it again.
      Metrics::Add(metrics_.db_retries, {{"reason", "partition"}});
      if (absl::Status made = EnsurePartitions(1); !made.ok()) return made;
      continue;
    }
    break;
  }
  if (IsRetryable(status)) {
    status = MakeError(absl::StatusCode::kUnavailable, "DATABASE_UNAVAILABLE",
                       "the transaction kept conflicting with others; nothing was written, try again", {},
                       absl::Milliseconds(100));
  }
  metrics_.db_statement_duration.Observe(
      {{"statement", name}}, std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  return status;
}

absl::StatusOr<Result> PostgresStore::RunOne(const char* name, std::string_view sql, const Params& params) {
  return Run<Result>(name, [&](Transaction& tx) { return tx.RunAndCommit(sql, params); });
}

absl::Status PostgresStore::FetchPayloads(std::span<Job* const> jobs, std::span<const int32_t> days) {
  std::map<int32_t, std::vector<Job*>> by_day;
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (days[i] >= 0) by_day[days[i]].push_back(jobs[i]);
  }
  for (const auto& [day, of_day] : by_day) {
    std::map<int64_t, Job*> by_id;
    for (Job* job : of_day) by_id[job->id.seq] = job;
    Params params;
    params.Add(day).AddArray(of_day, [](Job* job) { return job->id.seq; });
    TENURE_ASSIGN_OR_RETURN(Result rows, RunOne("fetch_payloads", sql::kFetchPayloads, params));
    for (int row = 0; row < rows.rows(); ++row) {
      if (auto job = by_id.find(rows.Int(row, 0)); job != by_id.end()) job->second->payload.data = rows.Text(row, 1);
    }
    if (rows.rows() != static_cast<int>(by_id.size())) {
      return MakeError(absl::StatusCode::kInternal, "PAYLOAD_MISSING",
                       absl::StrCat("the payload of a job of day ", day,
                                    " is gone from tenure.payload; was a partition dropped by hand?"));
    }
  }
  return absl::OkStatus();
}

std::vector<int64_t> PostgresStore::Secrets(size_t n) {
  thread_local absl::BitGen generator;
  std::vector<int64_t> secrets(n);
  for (int64_t& secret : secrets) secret = static_cast<int64_t>(absl::Uniform<uint64_t>(generator));
  return secrets;
}

}  // namespace tenure::store::postgres
