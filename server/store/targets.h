// Targets: where the events of jobs, and copies of jobs, go. The plain structs and the part of the store that keeps
// targets, the outbox, and how far each target has been served. Layer: store. Thread-safe as Store, whose errors these
// methods share.
//
// A job that ends leaves an event in the outbox, in the transaction that ends it, if a target listens to its queue. A
// target is served page by page in a fixed order; its place is moved in the leader's term, by the statement that also
// writes down what was not accepted. Whoever goes on after a crash sees the same pages, so an event is sent again
// rather than lost, and its id tells.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/store/schedules.h"
#include "server/store/target_url.h"
#include "server/store/types.h"

namespace tenure::store {

// How an ended job counts in TargetSettings::events.
constexpr int16_t EventBit(JobState state) {
  return static_cast<int16_t>(1 << (static_cast<int16_t>(state) - static_cast<int16_t>(JobState::kCompleted)));
}
inline constexpr int16_t kAllEvents = 15;

inline constexpr int kMaxTargets = 200;

// What the owner did not decide.
inline constexpr absl::Duration kEventLogInterval = absl::Seconds(10);
inline constexpr absl::Duration kInventoryInterval = absl::Hours(24);
inline constexpr int32_t kExportMinAgeDays = 30;

// What a target's owner decides. Which fields a purpose uses: rpc/target_conversion.cc.
struct TargetSettings {
  TargetPurpose purpose = TargetPurpose::kNotify;
  std::string url;
  std::string region, endpoint;
  std::vector<std::string> queues;  // Empty: all.
  int16_t events = 0;               // EventBit added up.
  std::optional<absl::Duration> interval;
  std::string cron, time_zone;  // Of inventory, instead of an interval. Empty: none, and UTC.
  std::optional<int32_t> min_age_days;
  std::string secret;
  std::string description;
};

// The instants of a target with a cron expression.
inline ScheduleTiming TimingOf(const TargetSettings& settings) {
  ScheduleTiming timing;
  timing.cron = settings.cron;
  if (!settings.time_zone.empty()) timing.time_zone = settings.time_zone;
  return timing;
}

struct Target {
  int64_t id = 0;
  std::string name;
  int64_t version = 0;
  // With the secret only from LoadTargets; has_secret tells in any case.
  TargetSettings settings;
  bool has_secret = false;
  bool paused = false;
  absl::Time created, updated;
  // How it fares.
  int64_t taken = 0;  // Events.
  int64_t waiting = 0, dead = 0;
  std::optional<absl::Time> last_success, last_error_at;
  std::string last_error;
};

// The fields that UpdateTarget may change.
// A new cron ends an interval, and the other way round.
inline constexpr std::string_view kTargetFields[] = {"url",          "region",   "endpoint",   "queues",
                                                     "events",       "interval", "cron",       "time_zone",
                                                     "min_age_days", "secret",   "description"};

// The end of a job.
struct JobEvent {
  JobId job;
  JobState state = JobState::kCompleted;
  std::string queue;
  std::string kind;
  std::string tenant;
  int32_t attempt = 0, failures = 0, crashes = 0;
  absl::Time created, ended;
  std::optional<absl::Time> started;
  std::string error_message, error_type;
  std::string effect_key;
  std::string retry_of;
  Headers headers;

  // "<job id>.<outcome>": a job ends once, so no other event has it, ever.
  std::string Id() const;
};
// "completed", "discarded", "cancelled", "expired".
std::string_view OutcomeName(JobState state);

// A target as its worker sees it.
struct TargetWork {
  Target target;
  std::vector<int32_t> queue_ids;
  bool fresh = false;                           // The outbox may have something for it.
  std::optional<absl::Duration> next_delivery;  // From now; of those that are to be sent again.
  absl::Time now;                               // When this was so.
  std::optional<absl::Time> next_run;           // Inventory: the slot of its next listing, which may be past.
};

// For NoteTarget.
struct NextRun {
  absl::Time at;
  int64_t version = 0;  // Of the target, as it was served.
};

// A place in the outbox, within a window of snapshots.
struct OutboxPlace {
  uint64_t xid = 0;
  int64_t id = 0;
};

// Some events of a target, the next in their order.
struct EventPage {
  std::vector<JobEvent> events;
  std::vector<OutboxPlace> places;  // Of each event.
  int64_t first = 0;                // Sequence number of the first event, from 1.
  bool more = false;                // There is more to take right after it.
  absl::Duration lag;               // Age of the first event.
  OutboxPlace from, to;             // How far the target had been served, and how far it has been after the page.
  bool window_ends = false;         // Nothing of the window comes after it.
  bool nothing = true;              // Nothing to take and nothing to finish.
};

// An event that a target did not accept.
struct Delivery {
  int64_t id = 0;
  std::string event_id;
  std::string body;  // What is sent.
  int32_t attempts = 0;
  absl::Time first_failed, last_failed;
  std::string last_error;
};

// For FinishPage: an event of the page that was not accepted.
struct Refused {
  std::string event_id;
  std::string body;
  std::string error;
  absl::Duration retry_in;
  bool dead = false;
};

// For SettleDeliveries: how a further attempt ended.
struct DeliveryOutcome {
  int64_t id = 0;
  bool accepted = false;
  std::string error;
  absl::Duration retry_in;
  bool dead = false;
};

// A day of history or of dead letters.
struct DayPartition {
  std::string table;   // "history_20261129".
  std::string parent;  // "history".
  int32_t day = 0;     // Days since 1970-01-01 UTC.
};

// Live jobs of a queue, by id. Without payloads.
struct LivePage {
  std::vector<Job> jobs;
  std::vector<int64_t> payload_sizes;  // Of each job, in bytes.
  int64_t after = 0;                   // For the next page.
  bool more = false;
};

struct Redriven {
  int32_t count = 0;
  bool more = false;  // Call again.
};

class TargetStore {
 public:
  virtual ~TargetStore() = default;

  // --- Targets ------------------------------------------------------------------------------------------------------

  // `queues`: the ids of settings.queues. Jobs that end from now on are told. ALREADY_EXISTS / TARGET_EXISTS,
  // RESOURCE_EXHAUSTED / TOO_MANY_TARGETS.
  virtual absl::StatusOr<Target> CreateTarget(std::string_view name, const TargetSettings& settings,
                                              std::span<const int32_t> queues, bool paused) = 0;
  // Sets the named fields of kTargetFields. `check` sees what comes out before it is written, and may refuse it.
  // NOT_FOUND / TARGET_NOT_FOUND, here and below.
  virtual absl::StatusOr<Target> UpdateTarget(std::string_view name, const TargetSettings& settings,
                                              std::span<const int32_t> queues, const std::set<std::string>& fields,
                                              const std::function<absl::Status(const TargetSettings&)>& check) = 0;
  virtual absl::StatusOr<Target> GetTarget(std::string_view name) = 0;
  virtual absl::StatusOr<std::vector<Target>> ListTargets(std::string_view after_name, std::string_view prefix,
                                                          int limit) = 0;
  // With its place and its deliveries, sent or not. Cut short, it may be repeated.
  virtual absl::Status DeleteTarget(std::string_view name) = 0;
  // Paused, it is not served; its events wait.
  virtual absl::StatusOr<Target> SetTargetPaused(std::string_view name, bool paused) = 0;
  // Dead deliveries with ids above `after`, the oldest first.
  virtual absl::StatusOr<std::vector<Delivery>> ListDeadDeliveries(std::string_view name, int64_t after, int limit) = 0;
  // Makes dead deliveries (empty: all, some thousands a call) due again, with all their attempts before them.
  virtual absl::StatusOr<Redriven> RedriveDeliveries(std::string_view name, std::span<const int64_t> ids) = 0;

  // --- For the workers (led; writes are fenced: TERM_OVER, and nothing is written, once the term is over) ------------

  // The targets of a purpose that are not paused, with their secrets.
  virtual absl::StatusOr<std::vector<TargetWork>> LoadTargets(TargetPurpose purpose) = 0;
  // The next page of at most `limit` events looked at; it may be empty and still have to be finished (all were other
  // queues'). `planned`: fixes the page before it answers, so that it is the same one, with the same settings, until
  // it is finished.
  virtual absl::StatusOr<EventPage> TakePage(const Fence& fence, int64_t target, int limit, bool planned) = 0;
  // Moves the target's place behind the first `events` of the page (all: past the page), and keeps what was refused
  // of them. ABORTED / PAGE_STALE if the place is not the page's any more. `error` empty: served well.
  virtual absl::Status FinishPage(const Fence& fence, int64_t target, const EventPage& page, size_t events,
                                  std::span<const Refused> refused, std::string_view error) = 0;
  // Those of a target that are due, at most `limit`. Reads only.
  virtual absl::StatusOr<std::vector<Delivery>> DueDeliveries(int64_t target, int limit) = 0;
  virtual absl::Status SettleDeliveries(const Fence& fence, int64_t target,
                                        std::span<const DeliveryOutcome> outcomes) = 0;
  // Writes down how a target fares: an error, or (empty) that all is well; `next_run` if it runs by the clock.
  // That one is written only if the target is still of this version, since a change by its owner sets it, too.
  virtual absl::Status NoteTarget(const Fence& fence, int64_t target, std::string_view error,
                                  std::optional<NextRun> next_run) = 0;
  // Forgets dead deliveries of a target older than `age`, at most `limit`. Returns how many.
  virtual absl::StatusOr<int> PruneDeliveries(const Fence& fence, int64_t target, absl::Duration age, int limit) = 0;
  // Days of history and dead letters that are over for at least `min_age_days` and that the target has not taken yet,
  // the oldest first. Reads only, as the two below.
  virtual absl::StatusOr<std::vector<DayPartition>> ListExports(int64_t target, int32_t min_age_days) = 0;
  // Jobs of a day with ids above `after`, by id, with their payloads.
  virtual absl::StatusOr<std::vector<Job>> ReadDay(const DayPartition& day, int64_t after, int limit) = 0;
  virtual absl::StatusOr<LivePage> ReadLive(int32_t queue, int64_t after, int limit) = 0;
  // The target has taken this day, so many rows.
  virtual absl::Status RecordExport(const Fence& fence, int64_t target, const DayPartition& day, int64_t rows) = 0;
  // Drops a day that every export target has taken, with all its rows: if some came later, it is kept and has to be
  // taken again. True if it is gone; false if it is kept for now.
  virtual absl::StatusOr<bool> DropExported(const Fence& fence, const DayPartition& day) = 0;
  // Empties an outbox slot that all targets have passed, at most every ten minutes; does nothing if somebody holds it.
  virtual absl::Status RotateOutbox(const Fence& fence) = 0;
};

}  // namespace tenure::store
