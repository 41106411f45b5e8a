// Schedules: jobs that are made again and again, by a cron expression or at a fixed distance. The plain structs and the
// part of the store that keeps them. Layer: store. Thread-safe as Store, whose errors these methods share.
//
// A slot is an instant at which a schedule wants a job. Whatever makes a job of a slot writes the pair (schedule,
// slot), which is unique, in the same transaction: a slot never has two.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/store/types.h"

namespace tenure::store {

// What to do when a slot is due and the job of the slot before has not ended. Stored; never renumber.
enum class Overlap : int16_t { kAllow = 1, kSkip = 2, kCancelPrevious = 3 };

// When. Exactly one of `cron` and `interval` is set.
struct ScheduleTiming {
  std::string cron;
  std::string time_zone = "UTC";          // For `cron`.
  absl::Duration interval;                // From `anchor`.
  absl::Time anchor = absl::UnixEpoch();  // Set by the store, when the timing is set.
};

// What a schedule's owner decides.
struct ScheduleSettings {
  ScheduleTiming timing;
  std::string queue;
  NewJob job;  // Without due, delay, expires and idempotency key.
  Overlap overlap = Overlap::kAllow;
  int32_t catch_up = 1;  // How many missed slots run.
  std::string description;
};

struct Schedule {
  int64_t id = 0;
  std::string name;
  ScheduleSettings settings;
  bool paused = false;
  std::optional<absl::Time> next;       // The next slot; absent while paused.
  std::optional<absl::Time> last_slot;  // The last one that made a job, with that job.
  std::optional<JobId> last_job;
  int64_t fired = 0;            // Jobs made for slots.
  int64_t skipped_missed = 0;   // Slots left out by the catch-up rule.
  int64_t skipped_overlap = 0;  // Slots left out by the overlap policy.
  absl::Time created, updated;
};

// The fields that UpdateSchedule may change. A new cron ends an interval, and the other way round.
inline constexpr std::string_view kScheduleFields[] = {"cron",     "interval",       "time_zone",  "job",
                                                       "catch_up", "overlap_policy", "description"};

// What the scheduler has to know of a schedule that is due.
struct DueSchedule {
  int64_t id = 0;
  int64_t version = 0;  // Grows with every change of the schedule: what was planned for another version is not done.
  std::string name;
  ScheduleTiming timing;
  absl::Time next;
  Overlap overlap = Overlap::kAllow;
  int32_t catch_up = 1;
};

struct DueSchedules {
  std::vector<DueSchedule> schedules;  // By their slots, the earliest first.
  absl::Time now;
  std::optional<absl::Duration> next_due;  // From now, of those that are not due.
};

// What to do for one schedule.
struct Firing {
  int64_t id = 0;
  int64_t version = 0;
  absl::Time was;                 // The next slot that the plan was made for.
  std::vector<absl::Time> slots;  // Ascending; each makes a job. Empty: only `next` and `missed` are written.
  int64_t missed = 0;             // Slots left out.
  absl::Time next;
  bool cancels = false;  // Its overlap policy is kCancelPrevious.
};

struct FireResult {
  int32_t jobs = 0;
  std::vector<ReadyRange> ready;
  // Schedules of which nothing was done: somebody holds or has changed their row, or holds the previous job that is to
  // be cancelled.
  std::vector<int64_t> busy;
};

struct TriggeredJob {
  JobId id;
  bool repeated = false;  // An earlier call with the same request id made it.
};

class ScheduleStore {
 public:
  virtual ~ScheduleStore() = default;

  // --- Schedules ----------------------------------------------------------------------------------------------------

  // `queue`: the id of settings.queue. ALREADY_EXISTS / SCHEDULE_EXISTS. INVALID_ARGUMENT if the timing is unsound.
  virtual absl::StatusOr<Schedule> CreateSchedule(std::string_view name, const ScheduleSettings& settings,
                                                  int32_t queue, bool paused) = 0;
  // Sets the named fields of kScheduleFields. A new timing begins now; otherwise the next slot stays. NOT_FOUND /
  // SCHEDULE_NOT_FOUND, here and below.
  virtual absl::StatusOr<Schedule> UpdateSchedule(std::string_view name, const ScheduleSettings& settings,
                                                  int32_t queue, const std::set<std::string>& fields) = 0;
  virtual absl::StatusOr<Schedule> GetSchedule(std::string_view name) = 0;
  virtual absl::StatusOr<std::vector<Schedule>> ListSchedules(std::string_view after_name, std::string_view prefix,
                                                              int limit) = 0;
  virtual absl::Status DeleteSchedule(std::string_view name) = 0;
  // Resumed, it goes on with the first slot after now. Idempotent: no change leaves the next slot alone.
  virtual absl::StatusOr<Schedule> SetSchedulePaused(std::string_view name, bool paused) = 0;
  // Makes a job now, apart from the slots. `request_id` (empty: none): a repeat answers with the job that was made, for
  // as long as runs are kept.
  virtual absl::StatusOr<TriggeredJob> TriggerSchedule(std::string_view name, std::string_view request_id,
                                                       std::vector<ReadyRange>* ready) = 0;

  // --- For the scheduler (a led background worker; writes are fenced) -----------------------------------------------

  // Schedules whose slot has come, at most `limit`, but for those in `except`. Reads only.
  virtual absl::StatusOr<DueSchedules> ListDueSchedules(int limit, std::span<const int64_t> except) = 0;
  // Makes the jobs of all `firings` in one transaction, with their (schedule, slot) pairs and next slots. At most one
  // of them may have `cancels`, and then alone. FAILED_PRECONDITION / TERM_OVER if the term is over: nothing is
  // written.
  virtual absl::StatusOr<FireResult> FireSchedules(const Fence& fence, std::span<const Firing> firings) = 0;
  // Forgets runs older than `age`, at most `limit`. Returns how many.
  virtual absl::StatusOr<int> PruneScheduleRuns(const Fence& fence, absl::Duration age, int limit) = 0;
};

}  // namespace tenure::store
