// Jobs that are decided on before they are inserted: those with unique keys, and what shares their way (retries, jobs
// that wait for others), with or without idempotency keys. Layer: store/postgres. Not thread-safe; one transaction, one
// queue.
//
// Everybody locks in one order: idempotency keys, then unique keys (each sorted), then the rows of jobs that hold
// unique keys and may be changed. A row of a job is waited for only by who has locked the key that it holds, so nobody
// waits in a circle. Keys are locked in one statement and looked at in a later one, whose snapshot is newer than the
// wait.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/store/postgres/connection.h"
#include "server/store/postgres/result.h"
#include "server/store/store.h"

namespace tenure::store::postgres {

struct NamedItem {
  const NewJob* job = nullptr;
  std::string key;          // What makes it safe to repeat; empty: nothing.
  std::string fingerprint;  // With a key.
  std::string retry_of;     // Id of the job that it retries; empty: none.
  int64_t retries = 0;      // That job's number: a key that it holds is no conflict.
  bool waits = false;       // For other jobs.
};

// What idempotency keys that are taken stand for.
class KnownKeys {
 public:
  static absl::StatusOr<KnownKeys> Read(Transaction& tx, int32_t queue, int16_t scope,
                                        std::span<const std::string> keys);
  // IDEMPOTENCY_CONFLICT if it stands for another job; KEY_BUSY if it has been pruned since.
  EnqueueOutcome Answer(const std::string& key, const std::string& fingerprint) const;

 private:
  int32_t queue_ = 0;
  Result rows_;
  std::map<std::string, int> by_key_;
};

const std::vector<JobState>& AllLiveStates();
// UNAVAILABLE / KEY_BUSY.
absl::Status UniqueKeyBusy();
absl::Status IdempotencyKeyBusy();
// The row of a unique key.
std::string UniqueName(const NewJob& job);
// One part of a call that was split goes into the whole; `whole`: there was only one.
void MergePart(std::span<const size_t> part, bool whole, EnqueueResult done, EnqueueResult& result);

class NamedEnqueue {
 public:
  // `scope`: of the idempotency keys.
  NamedEnqueue(Transaction& tx, int32_t queue, int16_t scope) : tx_(tx), queue_(queue), scope_(scope) {}

  // Which of `jobs` would make none, as things stand, since somebody holds their unique key. Locks nothing.
  static absl::StatusOr<std::vector<bool>> Held(Transaction& tx, int32_t queue, std::span<const NewJob* const> jobs);

  // Takes the locks of these jobs' unique keys ahead, for a caller that has other rows to lock before it writes. May
  // run into lock_timeout (55P03), as Write does.
  absl::Status Lock(std::span<const NewJob* const> jobs);
  // Decides on `items` in their order, and writes; leaves the commit to the caller. Once.
  absl::StatusOr<EnqueueResult> Write(std::span<const NamedItem> items);

 private:
  // Who holds a key, and what is known of that job.
  struct Holder {
    JobId id;
    std::optional<JobState> state;  // Absent: it has ended, or there is none.
    bool held = false;              // For the rest of its period.
    bool waits = false;             // For other jobs.
    bool gated = false;             // It has a gate to pass when it is due.
    std::optional<size_t> fresh;    // One of fresh_.
  };
  struct Fresh {
    size_t item = 0;
    NewJob job;  // As it is inserted: a later item of the batch may have changed it.
    int64_t id = 0;
  };
  struct Change {
    const NewJob* content = nullptr;  // Whose payload it gets.
    const NewJob* due = nullptr;      // Whose due time.
  };

  using Holders = std::map<std::string, Holder>;
  static void ReadHolder(const Result& rows, int row, int32_t queue, Holders& holders);
  static bool IsInTheWay(const Holder& holder, const Unique& unique, bool changeable, int64_t retries);
  absl::Status TakeKeys();
  absl::Status LockNames();
  absl::Status ReadHolders();
  void Decide(size_t item);
  void Accept(size_t item);
  void ChangeHolder(Holder& holder, const NewJob& with);
  JobState StateAt(const NewJob& due, bool waits, bool gated) const;
  absl::Status WriteKeys();
  absl::Status WriteChanges();
  absl::Status WriteJobs();

  Transaction& tx_;
  const int32_t queue_;
  const int16_t scope_;
  std::span<const NamedItem> items_;
  EnqueueResult result_;
  std::vector<size_t> open_;          // Items to be decided on, in order.
  std::vector<size_t> taken_;         // Items whose idempotency key is new, in the order of the keys.
  std::map<size_t, size_t> repeats_;  // An item with the idempotency key of an earlier one of the batch.
  std::vector<std::string> names_;    // Sorted.
  std::set<std::string> locked_;
  std::set<std::string> changing_;    // Names whose holder may be changed.
  std::set<std::string> changeable_;  // Those whose holder is locked, and has not been claimed.
  bool queue_gated_ = false;
  absl::Time now_;
  int32_t today_ = 0;
  std::vector<int64_t> ids_;  // Drawn, not used yet.
  Holders holders_;
  std::map<std::string, absl::Duration> given_;  // Names that a new job takes, with its period.
  std::vector<Fresh> fresh_;
  std::map<int64_t, Change> changes_;
};

}  // namespace tenure::store::postgres
