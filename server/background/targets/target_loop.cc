// TargetLoop: see the header. Layer: background/targets.
#include "server/background/targets/target_loop.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

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

struct TargetLoop::Ended {
  int64_t target = 0;
  int64_t version = 0;
  absl::StatusOr<absl::Duration> served;
};

// The threads of a run, made when there is work for one more. Their visits are told to stop, and waited for, when it is
// destroyed. Called by the loop's thread.
class TargetLoop::Crew {
 public:
  Crew(RunContext& context, const TargetLoop& loop)
      : context_(context),
        loop_(loop),
        done_(loop.clock_),
        stop_with_run_(context.stop(), [this] { stop_.request_stop(); }) {}
  ~Crew() {
    stop_.request_stop();
    threads_.clear();  // Joins.
  }

  // False if there is no room for it now.
  bool Start(store::TargetWork work, bool troubled) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const size_t in_trouble = static_cast<size_t>(
        std::count_if(visits_.begin(), visits_.end(), [](const auto& visit) { return visit.second.troubled; }));
    if (troubled && in_trouble >= kAtOnce / 2) return false;
    visits_[work.target.id] = {loop_.clock_.Now(), troubled};
    waiting_.push_back(std::move(work));
    work_.notify_one();
    if (waiting_.size() > idle_ && threads_.size() < kAtOnce) {
      threads_.emplace_back([this] { context_.Guard([this] { Work(); }); });
    }
    return true;
  }
  // It is being served, or waits for that.
  bool Serves(int64_t target) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return visits_.contains(target);
  }
  // Since when the oldest of these has been one; nothing if there is none.
  std::optional<Clock::TimePoint> Oldest() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::optional<Clock::TimePoint> oldest;
    for (const auto& [target, visit] : visits_) oldest = std::min(oldest.value_or(visit.since), visit.since);
    return oldest;
  }
  std::vector<Ended> Take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(ended_, {});
  }
  // Until a visit has ended (true), or the time has come, or the run is to stop.
  bool Await(Clock::TimePoint deadline) {
    return done_.WaitUntil(deadline, stop_.get_token()) == WakeUp::Reason::kNotified;
  }

 private:
  struct UnderWay {
    Clock::TimePoint since;
    bool troubled = false;
  };

  void Work() {
    HttpClient http(loop_.access_.allow_private);
    const std::stop_token stop = stop_.get_token();
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      ++idle_;
      const bool some = work_.wait(lock, stop, [this] { return !waiting_.empty(); });
      --idle_;
      if (!some || stop.stop_requested()) return;
      const store::TargetWork work = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      Ended ended{work.target.id, work.target.version,
                  loop_.serve_({work, loop_.access_, http, context_.fence(), stop})};
      lock.lock();
      visits_.erase(work.target.id);
      ended_.push_back(std::move(ended));
      done_.Notify();
    }
  }

  RunContext& context_;
  const TargetLoop& loop_;
  std::stop_source stop_;
  WakeUp done_;
  mutable std::mutex mutex_;
  std::condition_variable_any work_;
  std::deque<store::TargetWork> waiting_;  // Guarded by mutex_, as all below.
  std::map<int64_t, UnderWay> visits_;     // By target; those that wait as well.
  std::vector<Ended> ended_;
  size_t idle_ = 0;
  std::vector<std::jthread> threads_;  // Only of the loop's thread.
  const std::stop_callback<std::function<void()>> stop_with_run_;
};

TargetLoop::TargetLoop(store::Store& store, Clock& clock, Metrics& metrics, const Access& access,
                       store::TargetPurpose purpose, absl::Duration poll_interval, Serve serve)
    : store_(store),
      clock_(clock),
      metrics_(metrics),
      access_(access),
      purpose_(purpose),
      poll_interval_(poll_interval),
      serve_(std::move(serve)) {}

TargetLoop::~TargetLoop() {
  const std::string purpose(store::PurposeName(purpose_));
  metrics_.target_lag.Add({{"purpose", purpose}}).Set(0);
  metrics_.target_breakers_open.Add({{"purpose", purpose}}).Set(0);
}

absl::Status TargetLoop::Run(RunContext& context, const std::function<absl::Status()>& before) {
  Crew crew(context, *this);
  return RunRounds(context, [&]() -> absl::StatusOr<absl::Duration> {
    if (before) TENURE_RETURN_IF_ERROR(before());
    return Round(context, crew);
  });
}

absl::StatusOr<absl::Duration> TargetLoop::Round(RunContext& context, Crew& crew) {
  const Clock::TimePoint next_look = clock_.Now() + absl::ToChronoNanoseconds(poll_interval_);
  TENURE_RETURN_IF_ERROR(Judge(context, crew));
  TENURE_ASSIGN_OR_RETURN(std::vector<store::TargetWork> targets, store_.LoadTargets(purpose_));
  const auto gone = [&](const auto& entry) {
    return std::none_of(targets.begin(), targets.end(),
                        [&](const store::TargetWork& work) { return work.target.id == entry.first; });
  };
  std::erase_if(trouble_, gone);
  std::erase_if(lag_, gone);
  for (store::TargetWork& work : targets) {
    if (crew.Serves(work.target.id)) continue;
    const auto had = trouble_.find(work.target.id);
    const bool troubled = had != trouble_.end() && had->second.version == work.target.version;
    if (troubled && clock_.Now() < had->second.until) continue;
    crew.Start(std::move(work), troubled);  // Without room it comes with a later look.
  }
  // What is soon done is told with this round; what is not keeps none of the others waiting.
  while (crew.Oldest() && crew.Await(next_look)) TENURE_RETURN_IF_ERROR(Judge(context, crew));
  TENURE_RETURN_IF_ERROR(Judge(context, crew));
  ShowState(crew);
  return std::max(absl::FromChrono(next_look - clock_.Now()), absl::ZeroDuration());
}

absl::Status TargetLoop::Judge(RunContext& context, Crew& crew) {
  absl::Status ours;
  for (const Ended& ended : crew.Take()) {
    if (ended.served.ok()) {
      lag_[ended.target] = *ended.served;
      trouble_.erase(ended.target);
      continue;
    }
    if (context.stopped()) continue;  // Cut short.
    if (IsOurs(ended.served.status())) {
      ours.Update(ended.served.status());
      continue;
    }
    Trouble& trouble = trouble_[ended.target];
    if (trouble.pause == absl::ZeroDuration()) trouble.since = clock_.Now();
    trouble.version = ended.version;
    trouble.pause = std::clamp(trouble.pause * 2, kFirstPause, kLongestPause);
    trouble.until = clock_.Now() + absl::ToChronoNanoseconds(trouble.pause);
    const std::string error(ended.served.status().message().substr(0, 500));
    if (error == trouble.noted) continue;
    const absl::Status noted = store_.NoteTarget(context.fence(), ended.target, error, std::nullopt);
    if (noted.ok()) trouble.noted = error;
    ours.Update(noted);
  }
  return ours;
}

void TargetLoop::ShowState(const Crew& crew) {
  absl::Duration lag;
  for (const auto& [target, told] : lag_) lag = std::max(lag, told);
  if (const auto since = crew.Oldest()) lag = std::max(lag, absl::FromChrono(clock_.Now() - *since));
  for (const auto& [target, trouble] : trouble_) {
    lag = std::max(lag, absl::FromChrono(clock_.Now() - trouble.since));
  }
  const std::string purpose(store::PurposeName(purpose_));
  metrics_.target_lag.Add({{"purpose", purpose}}).Set(absl::ToDoubleSeconds(lag));
  metrics_.target_breakers_open.Add({{"purpose", purpose}}).Set(static_cast<double>(trouble_.size()));
}

}  // namespace tenure::background::targets
