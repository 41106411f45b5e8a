// Vacuum guard: names who holds vacuum back, rebuilds an index that has grown far beyond what it holds, and removes
// what a rebuild that was cut short left behind. One index at a time, never while somebody holds a transaction open:
// the rebuild would wait for it, and others behind the rebuild. Layer: background.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/background/workers.h"
#include "server/base/logging.h"
#include "server/base/status.h"

namespace tenure::background {
namespace {

constexpr Tunable kTunables[] = {
    {"vacuum-guard.interval", "How often the database's upkeep is looked at", TunableUnit::kDuration, kMinute,
     100 * kMillisecond, kHour},
    {"vacuum-guard.warn_age", "From when on an open transaction is logged, with its holder", TunableUnit::kDuration,
     5 * kMinute, kSecond, 24 * kHour},
    {"vacuum-guard.bloat", "An index is rebuilt when so much of it is surplus", TunableUnit::kPercent, 70, 10, 95},
    {"vacuum-guard.min_size", "An index smaller than this is left alone", TunableUnit::kMebibytes, 64, 1, 1'000'000},
    {"vacuum-guard.max_transaction_age", "No index is rebuilt while a transaction has been open for longer",
     TunableUnit::kDuration, kMinute, kSecond, kHour},
    {"vacuum-guard.lock_timeout", "How long a rebuild waits for a lock before it gives up", TunableUnit::kDuration,
     2 * kSecond, 10 * kMillisecond, kMinute},
    {"vacuum-guard.rebuild_timeout", "How long a rebuild may take", TunableUnit::kDuration, 30 * kMinute, kMinute,
     24 * kHour},
};

class VacuumGuard : public Worker {
 public:
  explicit VacuumGuard(const Dependencies& dependencies)
      : store_(*dependencies.store),
        interval_(dependencies.tunables->Duration("vacuum-guard.interval")),
        warn_age_(dependencies.tunables->Duration("vacuum-guard.warn_age")),
        bloat_(static_cast<double>(dependencies.tunables->Count("vacuum-guard.bloat")) / 100),
        min_bytes_(dependencies.tunables->Count("vacuum-guard.min_size") << 20),
        max_transaction_age_(dependencies.tunables->Duration("vacuum-guard.max_transaction_age")),
        limits_{.lock = dependencies.tunables->Duration("vacuum-guard.lock_timeout"),
                .total = dependencies.tunables->Duration("vacuum-guard.rebuild_timeout")} {}

  absl::Status Run(RunContext& context) override {
    return RunRounds(context, [&] { return Round(context); });
  }

 private:
  absl::StatusOr<absl::Duration> Round(RunContext& context) {
    TENURE_ASSIGN_OR_RETURN(const store::DatabaseInfo info, store_.Inspect());
    TellHolder(info);
    for (const std::string& index : info.leftover_indexes) {
      TENURE_RETURN_IF_ERROR(store_.DropLeftoverIndex(context.fence(), index, limits_, context.stop()));
      LogInfo("index left over from a rebuild dropped", {{"index", index}});
    }
    const store::IndexSize* worst = nullptr;
    for (const store::IndexSize& index : info.indexes) {
      if (index.bytes < min_bytes_ || index.surplus() < bloat_) continue;
      if (worst == nullptr || index.bytes - index.needed > worst->bytes - worst->needed) worst = &index;
    }
    if (worst == nullptr) return interval_;
    if (info.oldest_transaction().value_or(absl::ZeroDuration()) > max_transaction_age_) {
      LogInfo("index not rebuilt while a transaction is open", {{"index", worst->name}});
      return interval_;
    }
    LogInfo("index is rebuilt",
            {{"index", worst->name}, {"bytes", absl::StrCat(worst->bytes)}, {"needed", absl::StrCat(worst->needed)}});
    TENURE_RETURN_IF_ERROR(store_.RebuildIndex(context.fence(), worst->name, limits_, context.stop()));
    LogInfo("index rebuilt", {{"index", worst->name}});
    return interval_;
  }

  // Once for each holder.
  void TellHolder(const store::DatabaseInfo& info) {
    std::string holder;
    if (!info.holders.empty() && info.holders[0].age.value_or(absl::ZeroDuration()) >= warn_age_) {
      const store::VacuumHolder& oldest = info.holders[0];
      holder = absl::StrCat(oldest.kind, " ", oldest.name, " ", oldest.pid);
      if (holder != told_) {
        LogWarn(
            "vacuum is held back",
            {{"by", oldest.kind},
             {"name", oldest.name},
             {"pid", absl::StrCat(oldest.pid)},
             {"for", absl::FormatDuration(absl::Trunc(*oldest.age, absl::Seconds(1)))},
             {"query_start", oldest.query_start ? absl::FormatTime(*oldest.query_start, absl::UTCTimeZone()) : ""}});
      }
    }
    told_ = std::move(holder);
  }

  store::Store& store_;
  const absl::Duration interval_;
  const absl::Duration warn_age_;
  const double bloat_;
  const int64_t min_bytes_;
  const absl::Duration max_transaction_age_;
  const store::VacuumStore::IndexWorkLimits limits_;
  std::string told_;  // Whom the log has named last.
};

}  // namespace

WorkerEntry VacuumGuardWorker() {
  return {.name = "vacuum-guard",
          .help = "names who holds vacuum back, rebuilds bloated indexes",
          .tunables = kTunables,
          .make = [](const Dependencies& dependencies) -> std::unique_ptr<Worker> {
            return std::make_unique<VacuumGuard>(dependencies);
          }};
}

}  // namespace tenure::background
