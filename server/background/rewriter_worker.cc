// Rewriter: brings rows that an earlier release wrote in an old form into the new one, one rewrite after the other, a
// page a transaction, at a bounded rate. Most releases have none to do. Layer: background.
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/background/workers.h"
#include "server/base/logging.h"
#include "server/base/status.h"

namespace tenure::background {
namespace {

constexpr Tunable kTunables[] = {
    {"rewriter.batch", "Rows read per transaction", TunableUnit::kRows, 500, 1, 10'000},
    {"rewriter.rate", "Rows read per second, at most", TunableUnit::kRows, 2000, 1, 1'000'000},
    {"rewriter.interval", "How often it is looked whether there is something to rewrite", TunableUnit::kDuration,
     kMinute, 100 * kMillisecond, kHour},
};

class Rewriter : public Worker {
 public:
  explicit Rewriter(const Dependencies& dependencies)
      : store_(*dependencies.store),
        batch_(static_cast<int>(dependencies.tunables->Count("rewriter.batch"))),
        rate_(static_cast<double>(dependencies.tunables->Count("rewriter.rate"))),
        interval_(dependencies.tunables->Duration("rewriter.interval")) {}

  absl::Status Run(RunContext& context) override {
    return RunRounds(context, [&] { return Round(context); });
  }

 private:
  absl::StatusOr<absl::Duration> Round(RunContext& context) {
    TENURE_ASSIGN_OR_RETURN(const std::vector<store::RewriteProgress> rewrites, store_.ListRewrites());
    const auto next = std::find_if(rewrites.begin(), rewrites.end(), [](const auto& one) { return !one.done; });
    if (next == rewrites.end()) return interval_;
    const Clock::TimePoint began = context.clock().Now();
    const absl::StatusOr<store::RewriteStep> step = store_.StepRewrite(context.fence(), next->name, batch_);
    if (!step.ok()) {
      if (!IsTermOver(step.status()) && !absl::IsUnavailable(step.status())) {
        TENURE_RETURN_IF_ERROR(
            store_.NoteRewriteError(context.fence(), next->name, std::string(step.status().message())));
      }
      return step.status();
    }
    if (step->done) {
      LogInfo("rewrite done", {{"rewrite", next->name},
                               {"rows_read", absl::StrCat(next->rows_read)},
                               {"rows_rewritten", absl::StrCat(next->rows_rewritten)}});
      return absl::ZeroDuration();
    }
    // The rate counts from when the step began: what it took is part of its time.
    return std::max(absl::ZeroDuration(), absl::Seconds(static_cast<double>(step->rows_read) / rate_) -
                                              absl::FromChrono(context.clock().Now() - began));
  }

  store::Store& store_;
  const int batch_;
  const double rate_;
  const absl::Duration interval_;
};

}  // namespace

WorkerEntry RewriterWorker() {
  return {.name = "rewriter",
          .help = "brings rows of earlier releases into their new form",
          .tunables = kTunables,
          .make = [](const Dependencies& dependencies) -> std::unique_ptr<Worker> {
            return std::make_unique<Rewriter>(dependencies);
          }};
}

}  // namespace tenure::background
