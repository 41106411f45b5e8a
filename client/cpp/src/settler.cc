// See settler.h.
#include "settler.h"

#include <algorithm>
#include <utility>

#include "batch.h"
#include "convert.h"
#include "job_run.h"
#include "retry_policy.h"
#include "status_codec.h"

namespace tenure::client::internal {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxItems = 1'000;
constexpr int kMaxInFlight = 8;
constexpr Duration kPatience = std::chrono::milliseconds(20);
constexpr Duration kCallTimeout = std::chrono::seconds(10);
// An item that fails so often for a reason that should pass does not pass.
constexpr int kMaxItemFailures = 30;
constexpr RetryOptions kPace{
    .initial_backoff = std::chrono::milliseconds(50), .max_backoff = std::chrono::seconds(3), .multiplier = 2};

// A whole call that failed so is sent again as it is. Internal and unknown errors too: the item must not be lost for a
// proxy's whim.
bool CallMayPass(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kNotFound:
      return false;
    case absl::StatusCode::kResourceExhausted:
      return IsTransient(status);
    default:
      return true;
  }
}

bool ItemMayPass(const absl::Status& status, int failures) {
  if (IsFinalAnswer(status) || failures >= kMaxItemFailures) return false;
  return CallMayPass(status);
}

}  // namespace

std::string_view ToString(Verb verb) {
  switch (verb) {
    case Verb::kComplete:
      return "complete";
    case Verb::kFail:
      return "fail";
    case Verb::kRelease:
      return "release";
    case Verb::kSnooze:
      return "snooze";
  }
  return "";
}

Settler::Settler(std::shared_ptr<Connection> connection, SettlerHooks hooks)
    : connection_(std::move(connection)),
      hooks_(std::move(hooks)),
      complete_(Verb::kComplete),
      fail_(Verb::kFail),
      release_(Verb::kRelease),
      snooze_(Verb::kSnooze) {
  complete_.max_items = fail_.max_items = release_.max_items = snooze_.max_items = kMaxItems;
}

void Settler::Complete(std::shared_ptr<JobRun> run, v1::CompleteItem item) {
  std::vector<CompleteLane::Entry> entries;
  entries.push_back({std::move(run), std::move(item)});
  Add(complete_, std::move(entries));
}

void Settler::Fail(std::shared_ptr<JobRun> run, v1::FailItem item) {
  std::vector<FailLane::Entry> entries;
  entries.push_back({std::move(run), std::move(item)});
  Add(fail_, std::move(entries));
}

void Settler::Release(std::vector<std::pair<std::shared_ptr<JobRun>, v1::ReleaseItem>> items) {
  if (items.empty()) return;
  std::vector<ReleaseLane::Entry> entries;
  for (auto& [run, item] : items) entries.push_back({std::move(run), std::move(item)});
  Add(release_, std::move(entries));
}

void Settler::Snooze(std::shared_ptr<JobRun> run, v1::SnoozeItem item) {
  std::vector<SnoozeLane::Entry> entries;
  entries.push_back({std::move(run), std::move(item)});
  Add(snooze_, std::move(entries));
}

void Settler::Stop() {
  timer_.Stop();
  StopLane(complete_);
  StopLane(fail_);
  StopLane(release_);
  StopLane(snooze_);
}

template <typename L>
void Settler::StopLane(L& lane) {
  std::deque<typename L::Entry> dropped;
  std::lock_guard lock(lane.mutex);
  lane.stopped = true;
  dropped.swap(lane.waiting);
}

template <typename L>
void Settler::Add(L& lane, std::vector<typename L::Entry> entries) {
  for (auto& entry : entries) {
    if (entry.bytes == 0) entry.bytes = entry.item.ByteSizeLong() + 8;
  }
  {
    std::lock_guard lock(lane.mutex);
    if (lane.stopped) return;
    for (auto& entry : entries) lane.waiting.push_back(std::move(entry));
  }
  Pump(lane);
}

template <typename L>
void Settler::PlanPoke(L& lane, SteadyTime when) {
  // Requires lane.mutex. One poke at a time: whoever comes next plans anew.
  if (lane.poke_planned) return;
  lane.poke_planned = true;
  timer_.At(when, [weak = weak_from_this(), &lane] {
    const auto self = weak.lock();
    if (!self) return;
    {
      std::lock_guard lock(lane.mutex);
      lane.poke_planned = false;
    }
    self->Pump(lane);
  });
}

template <typename L>
void Settler::Pump(L& lane) {
  std::vector<typename L::Entry> entries;
  typename L::RequestType request;
  {
    std::lock_guard lock(lane.mutex);
    if (lane.waiting.empty() || lane.stopped) return;
    const SteadyTime now = Clock::now();
    if (now < lane.not_before) return PlanPoke(lane, lane.not_before);
    if (lane.in_flight >= kMaxInFlight) return;
    const bool patient = lane.in_flight > 0 && now < lane.last_sent + kPatience;
    // A full batch need not wait for the call before it, if that is the only one.
    const bool full = lane.in_flight == 1 && lane.waiting.size() >= kMaxItems;
    if (patient && !full) return PlanPoke(lane, lane.last_sent + kPatience);
    size_t bytes = 0;
    while (!lane.waiting.empty() && entries.size() < lane.max_items) {
      auto& next = lane.waiting.front();
      if (!entries.empty() && bytes + next.bytes > kMaxBatchBytes) break;
      bytes += next.bytes;
      entries.push_back(std::move(next));
      lane.waiting.pop_front();
    }
    ++lane.in_flight;
    lane.last_sent = now;
  }
  request.mutable_items()->Reserve(static_cast<int>(entries.size()));
  // The items travel with the request and come back with the answer, in case they must be sent again.
  for (auto& entry : entries) *request.add_items() = std::move(entry.item);
  if (hooks_.sent) hooks_.sent();
  Start(*connection_, std::move(request), kCallTimeout,
        [self = shared_from_this(), &lane, entries = std::move(entries)](
            absl::Status status, typename L::RequestType& asked, typename L::ResponseType& response) mutable {
          self->OnAnswer(lane, std::move(entries), std::move(status), asked, response);
        });
}

template <typename L>
void Settler::OnAnswer(L& lane, std::vector<typename L::Entry> entries, absl::Status status,
                       typename L::RequestType& request, typename L::ResponseType& response) {
  const int count = static_cast<int>(entries.size());
  if (status.ok() && response.results_size() != count) status = WrongCount(count, response.results_size());
  std::vector<SettleAnswer> answers;
  std::vector<typename L::Entry> again;  // Single items that are to be sent once more, later.
  absl::Status item_error;
  const bool whole_again = !status.ok() && (CallMayPass(status) || count > 1);
  if (!whole_again) {
    answers.reserve(entries.size());
    for (int i = 0; i < count; ++i) {
      auto& entry = entries[static_cast<size_t>(i)];
      absl::Status answer = status;
      Settled settled;
      if (status.ok()) {
        auto& result = *response.mutable_results(i);
        if (result.has_error()) {
          answer = FromItemError(result.error());
        } else {
          settled = TakeSettled(result);
        }
      }
      if (!answer.ok() && ItemMayPass(answer, entry.failures)) {
        item_error = answer;
        entry.item = std::move(*request.mutable_items(i));
        ++entry.failures;
        again.push_back(std::move(entry));
      } else {
        answers.push_back({std::move(entry.run), lane.verb, std::move(answer), std::move(settled)});
      }
    }
  }
  {
    std::lock_guard lock(lane.mutex);
    --lane.in_flight;
    if (whole_again) {
      const bool spoiled = !CallMayPass(status);
      if (spoiled) {
        lane.max_items = std::max<size_t>(1, entries.size() / 2);
      } else {
        lane.not_before = Clock::now() + BackoffAfter(++lane.failures, status, kPace);
      }
      for (int i = count - 1; i >= 0; --i) {
        auto& entry = entries[static_cast<size_t>(i)];
        entry.item = std::move(*request.mutable_items(i));
        if (!lane.stopped) lane.waiting.push_front(std::move(entry));
      }
    } else {
      lane.failures = 0;
      // Grows back step by step: the spoiling item may not have been met yet.
      lane.max_items = std::min(kMaxItems, lane.max_items * 2);
    }
  }
  if (whole_again && hooks_.retried) hooks_.retried(status);
  if (!again.empty()) {
    if (hooks_.retried) hooks_.retried(item_error);
    const Duration pause = BackoffAfter(again.front().failures, item_error, kPace);
    timer_.After(pause, [weak = weak_from_this(), &lane,
                         later = std::make_shared<std::vector<typename L::Entry>>(std::move(again))] {
      if (const auto self = weak.lock()) self->Add(lane, std::move(*later));
    });
  }
  if (!answers.empty()) hooks_.answered(std::move(answers));
  Pump(lane);
}

}  // namespace tenure::client::internal
