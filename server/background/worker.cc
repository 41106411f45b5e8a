// The parts of a run that all workers share. Layer: background.
#include "server/background/worker.h"

#include <algorithm>
#include <array>
#include <exception>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"

namespace tenure::background {

bool RunContext::WaitUntil(Clock::TimePoint deadline) {
  return wake_.WaitUntil(deadline, stop_) != WakeUp::Reason::kStopped;
}

bool RunContext::WaitFor(absl::Duration duration) {
  return WaitUntil(clock_.Now() + absl::ToChronoNanoseconds(duration));
}

void RunContext::Guard(const std::function<void()>& body) {
  try {
    body();
  } catch (...) {
    listener_.OnPanic(DescribeCurrentException());
  }
}

bool IsTermOver(const absl::Status& status) { return DetailsOf(status).reason == "TERM_OVER"; }

std::string DescribeCurrentException() {
  try {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  } catch (const std::string& text) {
    return text;
  } catch (const char* text) {
    return text;
  } catch (int number) {
    return absl::StrCat("int ", number);
  } catch (...) {
    return "an exception of unknown type";
  }
}

namespace {

constexpr std::array<int, 3> kPauses = {1, 2, 5};  // Seconds, after an error.
constexpr absl::Duration kRefused = absl::Milliseconds(100);

absl::Duration PauseAfter(size_t failures) { return absl::Seconds(kPauses[std::min(failures, kPauses.size() - 1)]); }

}  // namespace

absl::Status RunRounds(RunContext& context, const std::function<absl::StatusOr<absl::Duration>()>& round) {
  size_t failures = 0;
  while (!context.stopped()) {
    const absl::StatusOr<absl::Duration> pause = round();
    if (IsTermOver(pause.status())) return pause.status();
    if (pause.ok() && context.stopped()) break;  // It may have been cut short.
    context.Report(pause.status());
    if (pause.ok()) {
      failures = 0;
      if (*pause > absl::ZeroDuration()) context.WaitFor(*pause);
    } else {
      context.WaitFor(PauseAfter(failures++));
    }
  }
  return absl::OkStatus();
}

absl::Status RunShardRounds(RunContext& context,
                            const std::function<absl::StatusOr<absl::Duration>(const store::ShardFence&)>& round) {
  size_t failures = 0;
  while (!context.stopped()) {
    absl::Duration pause = absl::InfiniteDuration();
    absl::Status status;
    bool worked = false;
    for (const store::ShardFence& held : context.shards().Held()) {
      if (context.stopped()) return absl::OkStatus();
      const absl::StatusOr<absl::Duration> wait = round(held);
      if (IsTermOver(wait.status())) {
        context.shards().Refresh();
        pause = std::min(pause, kRefused);
        continue;
      }
      worked = true;
      status.Update(wait.status());
      if (wait.ok()) pause = std::min(pause, *wait);
    }
    if (context.stopped()) break;  // It may have been cut short.
    if (worked) context.Report(status);
    if (status.ok()) {
      failures = 0;
    } else {
      pause = PauseAfter(failures++);
    }
    if (pause <= absl::ZeroDuration()) continue;
    context.shards().AwaitChange(pause == absl::InfiniteDuration()
                                     ? Clock::TimePoint::max()
                                     : context.clock().Now() + absl::ToChronoNanoseconds(pause),
                                 context.stop());
  }
  return absl::OkStatus();
}

}  // namespace tenure::background
