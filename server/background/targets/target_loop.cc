// TargetLoop: see the header. Layer: background/targets.
#include "server/background/targets/target_loop.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"

namespace tenure::background::targets {
namespace {

constexpr absl::Duration kFirstPause = absl::Seconds(1), kLongestPause = absl::Minutes(1);

// The database is away, or another replica leads: no fault of the target.
bool IsOurs(const absl::Status& status) {
  const std::string reason = DetailsOf(status).reason;
  return IsTermOver(status) || reason == "DATABASE_UNAVAILABLE" || reason == "DATABASE_TIMEOUT";
}

}  // namespace

TargetLoop::TargetLoop(store::Store& store, Clock& clock, Metrics& metrics, const Access& access,
                       store::TargetPurpose purpose, absl::Duration poll_interval, Serve serve)
    : store_(store),
      clock_(clock),
      metrics_(metrics),
      access_(access),
      purpose_(purpose),
      poll_interval_(poll_interval),
      serve_(std::move(serve)),
      http_(access.allow_private) {}

TargetLoop::~TargetLoop() {
  const std::string purpose(store::PurposeName(purpose_));
  metrics_.target_lag.Add({{"purpose", purpose}}).Set(0);
  metrics_.target_breakers_open.Add({{"purpose", purpose}}).Set(0);
}

absl::StatusOr<absl::Duration> TargetLoop::Round(RunContext& context) {
  TENURE_ASSIGN_OR_RETURN(const std::vector<store::TargetWork> targets, store_.LoadTargets(purpose_));
  std::map<int64_t, Trouble> still;
  absl::Duration lag;
  for (const store::TargetWork& work : targets) {
    if (context.stopped()) break;
    const int64_t id = work.target.id;
    if (const auto had = trouble_.find(id); had != trouble_.end() && had->second.version == work.target.version) {
      lag = std::max(lag, absl::FromChrono(clock_.Now() - had->second.since));
      if (clock_.Now() < had->second.until) {
        still[id] = had->second;
        continue;
      }
    }
    const absl::StatusOr<absl::Duration> served = serve_(work, context);
    if (served.ok()) {
      lag = std::max(lag, *served);
      continue;
    }
    if (context.stopped()) return absl::ZeroDuration();  // Cut short.
    if (IsOurs(served.status())) return served.status();
    Trouble trouble = trouble_[id];
    if (trouble.pause == absl::ZeroDuration()) trouble.since = clock_.Now();
    trouble.version = work.target.version;
    trouble.pause = std::clamp(trouble.pause * 2, kFirstPause, kLongestPause);
    trouble.until = clock_.Now() + absl::ToChronoNanoseconds(trouble.pause);
    const std::string error(served.status().message().substr(0, 500));
    if (error != trouble.noted) TENURE_RETURN_IF_ERROR(store_.NoteTarget(context.fence(), id, error, std::nullopt));
    trouble.noted = error;
    still[id] = trouble;
  }
  trouble_ = std::move(still);
  const std::string purpose(store::PurposeName(purpose_));
  metrics_.target_lag.Add({{"purpose", purpose}}).Set(absl::ToDoubleSeconds(lag));
  metrics_.target_breakers_open.Add({{"purpose", purpose}}).Set(static_cast<double>(trouble_.size()));
  return poll_interval_;
}

}  // namespace tenure::background::targets
