// Retention: makes the partitions of the days to come, drops those past their age, and removes idempotency and unique
// keys, claim requests and worker rows past their time in small batches. A missing partition is also made on demand by
// whoever needs it; here it is only made ahead of the hurry of midnight. Each part goes on when another one fails. Keys
// are removed by the replica that holds their queue's shard; what belongs to no queue is shard 0's. Layer: background.
#include <algorithm>
#include <map>
#include <optional>

#include "absl/strings/str_join.h"
#include "server/background/workers.h"
#include "server/base/logging.h"
#include "server/base/status.h"

namespace tenure::background {
namespace {

constexpr Tunable kTunables[] = {
    {"retention.history_days", "How long ended jobs are kept; whole days (UTC) are dropped at once", TunableUnit::kDays,
     7, 1, 3650},
    {"retention.dead_letter_days", "How long dead letters are kept", TunableUnit::kDays, 30, 1, 3650},
    {"retention.partition_interval", "How often partitions are made ahead and dropped", TunableUnit::kDuration,
     10 * kMinute, kSecond, 6 * kHour},
    {"retention.partition_days_ahead", "For how many days to come partitions are made", TunableUnit::kDays, 3, 1, 30},
    {"retention.prune_interval", "How often keys, claim requests and worker rows past their time are removed",
     TunableUnit::kDuration, 5 * kSecond, 100 * kMillisecond, kHour},
    {"retention.prune_batch", "Rows of each kind removed per transaction", TunableUnit::kRows, 1000, 1, 10'000},
};

class Retention : public Worker {
 public:
  explicit Retention(const Dependencies& dependencies)
      : store_(*dependencies.store),
        history_days_(Int(dependencies, "retention.history_days")),
        dead_letter_days_(Int(dependencies, "retention.dead_letter_days")),
        days_ahead_(Int(dependencies, "retention.partition_days_ahead")),
        prune_batch_(Int(dependencies, "retention.prune_batch")),
        partition_interval_(dependencies.tunables->Duration("retention.partition_interval")),
        prune_interval_(dependencies.tunables->Duration("retention.prune_interval")) {}

  absl::Status Run(RunContext& context) override {
    next_partitions_ = context.clock().Now();
    return RunShardRounds(context, [&](const store::ShardFence& held) { return Round(context, held); });
  }

 private:
  static int Int(const Dependencies& dependencies, std::string_view name) {
    return static_cast<int>(dependencies.tunables->Count(name));
  }

  absl::StatusOr<absl::Duration> Round(RunContext& context, const store::ShardFence& held) {
    absl::Status partitions;
    if (held.Covers(0) && context.clock().Now() >= next_partitions_) {
      partitions = store_.EnsurePartitions(days_ahead_);
      const auto dropped = store_.DropPartitions(held, history_days_, dead_letter_days_);
      if (dropped.ok() && !dropped->empty())
        LogInfo("partitions dropped", {{"partitions", absl::StrJoin(*dropped, " ")}});
      if (IsTermOver(dropped.status())) return dropped.status();
      partitions.Update(dropped.status());
      // Not put off by ten minutes if it failed: the round repeats soon.
      if (partitions.ok()) next_partitions_ = context.clock().Now() + absl::ToChronoNanoseconds(partition_interval_);
    }
    int links = 0;
    if (held.Covers(0)) {
      // A link is of use as long as the job that it leads away from can be looked at.
      const absl::Duration age = absl::Hours(24) * (std::max(history_days_, dead_letter_days_) + 1);
      TENURE_ASSIGN_OR_RETURN(links, store_.PruneMoves(held, age, prune_batch_));
    }
    TENURE_ASSIGN_OR_RETURN(const int pruned, store_.Prune(held, prune_batch_));
    // A page of unique keys; the next at once as long as there is something to forget.
    std::optional<store::Store::UniqueCursor>& at = unique_[held.first];
    TENURE_ASSIGN_OR_RETURN(const int forgotten, store_.PruneUnique(held, &at, prune_batch_));
    TENURE_RETURN_IF_ERROR(partitions);
    if (at && forgotten > 0) return absl::ZeroDuration();
    return pruned >= prune_batch_ || links >= prune_batch_ ? absl::ZeroDuration() : prune_interval_;
  }

  store::Store& store_;
  const int history_days_;
  const int dead_letter_days_;
  const int days_ahead_;
  const int prune_batch_;
  const absl::Duration partition_interval_;
  const absl::Duration prune_interval_;
  Clock::TimePoint next_partitions_;
  std::map<int, std::optional<store::Store::UniqueCursor>> unique_;  // By first shard: where the next page begins.
};

}  // namespace

WorkerEntry RetentionWorker() {
  return {.name = "retention",
          .help = "makes partitions ahead, drops old ones, removes keys past their time",
          .leadership = Leadership::kOwnLeases,
          .tunables = kTunables,
          .make = [](const Dependencies& dependencies) -> std::unique_ptr<Worker> {
            return std::make_unique<Retention>(dependencies);
          }};
}

}  // namespace tenure::background
