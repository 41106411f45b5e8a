// The reaper: returns the jobs of daemon replicas that are gone. A live replica watches the leases that it granted by
// timers of its own (engine work, which runs without any background worker); this scan finds what a vanished one left
// behind.
//
// First the sessions of replicas whose own lease ran out are ended: a stopped daemon may hold row locks in a result
// that it no longer reads, and those rows can be recovered by nobody while it does. Then their leases that ran out go
// back to ready, a page a transaction, each replica those of the queues whose shards it holds. The sessions belong to
// no queue, and so to shard 0. Layer: background.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/background/recovery.h"
#include "server/background/workers.h"
#include "server/base/logging.h"
#include "server/base/status.h"

namespace tenure::background {
namespace {

constexpr Tunable kTunables[] = {
    {"reaper.interval", "How often vanished replicas and their leases are looked for", TunableUnit::kDuration, kSecond,
     100 * kMillisecond, kMinute},
    {"reaper.batch", "Leases recovered per transaction", TunableUnit::kRows, 1000, 1, 10'000},
};

// A lease whose row somebody has locked stays due: look again soon, but not in a tight loop.
constexpr absl::Duration kShortestPause = absl::Milliseconds(20);

class Reaper : public Worker {
 public:
  explicit Reaper(const Dependencies& dependencies)
      : store_(*dependencies.store),
        note_ready_(dependencies.note_ready),
        note_gates_(dependencies.note_gates),
        interval_(dependencies.tunables->Duration("reaper.interval")),
        batch_(static_cast<int>(dependencies.tunables->Count("reaper.batch"))) {}

  absl::Status Run(RunContext& context) override {
    return RunShardRounds(context, [&](const store::ShardFence& held) { return Round(context, held); });
  }

 private:
  absl::StatusOr<absl::Duration> Round(RunContext& context, const store::ShardFence& held) {
    absl::StatusOr<int> evicted = 0;
    if (held.Covers(0)) evicted = store_.EvictReplicas(held);
    if (evicted.ok() && *evicted > 0) LogWarn("replicas vanished", {{"sessions_ended", absl::StrCat(*evicted)}});

    // Also if the eviction failed (the role may lack the right to end sessions): most leases can be recovered without
    // it.
    absl::Duration pause = interval_;
    TENURE_ASSIGN_OR_RETURN(store::RecoverResult result,
                            RecoverVanished(store_, held, batch_, [&](int32_t queue, const auto& work) {
                              return context.shards().RunShard(held, store::ShardOf(queue), work);
                            }));
    if (result.recovered + result.discarded > 0) {
      LogInfo("leases of vanished replicas recovered",
              {{"recovered", absl::StrCat(result.recovered)}, {"discarded", absl::StrCat(result.discarded)}});
    }
    if (!result.ready.empty() && note_ready_) note_ready_(std::move(result.ready));
    if (!result.freed.empty() && note_gates_) note_gates_(result.freed);
    if (result.next_expiry) pause = std::min(interval_, std::max(*result.next_expiry, kShortestPause));
    TENURE_RETURN_IF_ERROR(evicted.status());
    return pause;
  }

  store::Store& store_;
  const std::function<void(std::vector<store::ReadyRange>)> note_ready_;
  const std::function<void(const store::GatesByQueue&)> note_gates_;
  const absl::Duration interval_;
  const int batch_;
};

}  // namespace

WorkerEntry ReaperWorker() {
  return {.name = "reaper",
          .help = "recovers the leases that vanished replicas granted",
          .leadership = Leadership::kOwnLeases,
          .needed_for_liveness = true,
          .tunables = kTunables,
          .make = [](const Dependencies& dependencies) -> std::unique_ptr<Worker> {
            return std::make_unique<Reaper>(dependencies);
          }};
}

}  // namespace tenure::background
