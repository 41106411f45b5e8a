// PostgresStore: jobs with unique keys, and the keys that nobody holds any more.
#include <numeric>
#include <set>

#include "server/base/status.h"
#include "server/store/postgres/errors.h"
#include "server/store/postgres/fingerprint.h"
#include "server/store/postgres/named_enqueue.h"
#include "server/store/postgres/postgres_store.h"
#include "statements.sql.h"

namespace tenure::store::postgres {

absl::Status PostgresStore::SplitOnLockTimeout(std::span<const size_t> part,
                                               const std::function<absl::Status(std::span<const size_t>)>& run,
                                               const std::function<void(size_t)>& busy) {
  if (part.empty()) return absl::OkStatus();
  const absl::Status done = run(part);
  if (SqlStateOf(done) != "55P03") return done;
  Metrics::Add(metrics_.db_retries, {{"reason", "lock_timeout"}});
  if (part.size() == 1) {
    busy(part[0]);
    return absl::OkStatus();
  }
  TENURE_RETURN_IF_ERROR(SplitOnLockTimeout(part.first(part.size() / 2), run, busy));
  return SplitOnLockTimeout(part.subspan(part.size() / 2), run, busy);
}

absl::StatusOr<EnqueueResult> PostgresStore::EnqueueUnique(int32_t queue, std::span<const NewJob> jobs) {
  EnqueueResult result;
  result.jobs.resize(jobs.size());
  std::vector<size_t> all(jobs.size());
  std::iota(all.begin(), all.end(), size_t{0});
  // Names and keys that somebody holds: found once, whoever else of the batch has them.
  std::set<std::string> held;
  const auto is_held = [&](const NewJob& job) {
    return (job.unique && held.contains("u" + UniqueName(job))) ||
           (!job.idempotency_key.empty() && held.contains("i" + job.idempotency_key));
  };
  const auto write = [&](std::span<const size_t> all_of_part) -> absl::Status {
    std::vector<size_t> part;
    for (size_t at : all_of_part) {
      if (is_held(jobs[at])) {
        result.jobs[at].status = UniqueKeyBusy();
      } else {
        part.push_back(at);
      }
    }
    if (part.empty()) return absl::OkStatus();
    std::vector<NamedItem> items;
    for (size_t at : part) {
      const NewJob& job = jobs[at];
      items.push_back({&job, job.idempotency_key, job.idempotency_key.empty() ? "" : Fingerprint(job), ""});
    }
    auto done = Run<EnqueueResult>("enqueue_unique", Transaction::Limits{options_.statement_timeout, kKeyWait},
                                   [&](Transaction& tx) -> absl::StatusOr<EnqueueResult> {
                                     auto written = NamedEnqueue(tx, queue, 0).Write(items);
                                     if (!written.ok()) return written;
                                     TENURE_RETURN_IF_ERROR(tx.Commit());
                                     return written;
                                   });
    if (!done.ok()) return done.status();
    MergePart(part, part.size() == jobs.size(), *std::move(done), result);
    return absl::OkStatus();
  };
  TENURE_RETURN_IF_ERROR(SplitOnLockTimeout(all, write, [&](size_t at) {
    result.jobs[at].status = UniqueKeyBusy();
    if (jobs[at].unique) held.insert("u" + UniqueName(jobs[at]));
    if (!jobs[at].idempotency_key.empty()) held.insert("i" + jobs[at].idempotency_key);
  }));
  return result;
}

absl::StatusOr<int> PostgresStore::PruneUnique(const ShardFence& fence, std::optional<UniqueCursor>* cursor,
                                               int limit) {
  const UniqueCursor after = cursor->value_or(UniqueCursor());
  Params params;
  params.Add(fence.worker)
      .Add(fence.first)
      .Add(fence.term)
      .Add(after.queue)
      .Add(after.name)
      .Add(static_cast<int64_t>(limit));
  TENURE_ASSIGN_OR_RETURN(const Result rows, RunOne("prune_unique", sql::kPruneUnique, params));
  cursor->reset();
  if (rows.rows() == 0) return 0;
  if (rows.Int(0, 2) >= limit) *cursor = UniqueCursor{rows.Int32(0, 0), rows.Text(0, 1)};
  return rows.Int32(0, 3);
}

}  // namespace tenure::store::postgres
