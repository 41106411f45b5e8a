#include "server/engine/notice_board.h"

#include <algorithm>
#include <utility>

#include "server/base/status.h"

namespace tenure::engine {
namespace {

constexpr auto kKeep = std::chrono::seconds(60);
constexpr auto kAnswerBefore = std::chrono::milliseconds(50);
constexpr size_t kMaxKeptPerWorker = 10'000;

}  // namespace

struct NoticeBoard::Poll {
  std::string worker;
  std::set<int64_t> seen;
  Callback<NoticesAnswer> done;
  Timers::Id timer = 0;
  bool answered = false;
};

class NoticeBoard::Handle : public PollHandle {
 public:
  Handle(NoticeBoard* board, PollPtr poll) : board_(board), poll_(std::move(poll)) {}
  void Cancel() override {
    if (board_->Remove(poll_)) board_->Finish(poll_, absl::CancelledError("the caller has gone"));
  }

 private:
  NoticeBoard* board_;
  PollPtr poll_;
};

std::shared_ptr<PollHandle> NoticeBoard::Await(std::string worker, std::vector<int64_t> seen, absl::Duration wait,
                                               Deadline deadline, Callback<NoticesAnswer> done) {
  auto poll = std::make_shared<Poll>();
  poll->worker = std::move(worker);
  poll->seen.insert(seen.begin(), seen.end());
  poll->done = std::move(done);
  auto handle = std::make_shared<Handle>(this, poll);
  const Clock::TimePoint now = timers_.clock().Now();
  Clock::TimePoint ends = now + absl::ToChronoMicroseconds(wait);
  if (deadline != Deadline::max()) ends = std::min(ends, deadline - kAnswerBefore);
  std::optional<absl::StatusOr<NoticesAnswer>> answer;
  {
    std::lock_guard<std::mutex> lock(mu_);
    Prune();
    NoticesAnswer at_once{Unseen(*poll), draining_};
    if (!at_once.notices.empty() || draining_ || ends <= now) {
      answer = std::move(at_once);
    } else if (parked_ >= static_cast<size_t>(options_.max_polls)) {
      answer = MakeError(absl::StatusCode::kResourceExhausted, "TOO_MANY_POLLS",
                         "the daemon has as many long polls as it takes; try another replica", {}, absl::Seconds(1));
    } else {
      polls_[poll->worker].push_back(poll);
      ++parked_;
      poll->timer = timers_.At(ends, [this, poll] {
        if (Remove(poll)) Finish(poll, NoticesAnswer{});
      });
    }
  }
  if (answer) Finish(poll, std::move(*answer));
  return handle;
}

std::vector<store::Notice> NoticeBoard::Unseen(const Poll& poll) const {
  std::vector<store::Notice> unseen;
  auto kept = kept_.find(poll.worker);
  if (kept == kept_.end()) return unseen;
  for (const Kept& one : kept->second) {
    if (!poll.seen.contains(one.notice.id)) unseen.push_back(one.notice);
  }
  return unseen;
}

void NoticeBoard::Post(std::vector<store::Notice> notices) {
  std::vector<std::pair<PollPtr, NoticesAnswer>> answers;
  {
    std::lock_guard<std::mutex> lock(mu_);
    Prune();
    const Clock::TimePoint until = timers_.clock().Now() + kKeep;
    std::set<std::string> told;
    for (store::Notice& notice : notices) {
      std::deque<Kept>& kept = kept_[notice.worker];
      told.insert(notice.worker);
      expiry_.emplace_back(until, notice.worker);
      kept.push_back({std::move(notice), until});
      if (kept.size() > kMaxKeptPerWorker) kept.pop_front();
    }
    for (const std::string& worker : told) {
      auto waiting = polls_.find(worker);
      if (waiting == polls_.end()) continue;
      for (PollPtr& poll : waiting->second) {
        --parked_;
        poll->answered = true;
        answers.emplace_back(poll, NoticesAnswer{Unseen(*poll), draining_});
      }
      polls_.erase(waiting);
    }
  }
  for (auto& [poll, answer] : answers) Finish(poll, std::move(answer));
}

void NoticeBoard::Prune() {
  const Clock::TimePoint now = timers_.clock().Now();
  while (!expiry_.empty() && expiry_.front().first <= now) {
    auto kept = kept_.find(expiry_.front().second);
    if (kept != kept_.end()) {
      while (!kept->second.empty() && kept->second.front().until <= now) kept->second.pop_front();
      if (kept->second.empty()) kept_.erase(kept);
    }
    expiry_.pop_front();
  }
}

bool NoticeBoard::Remove(const PollPtr& poll) {
  std::lock_guard<std::mutex> lock(mu_);
  if (poll->answered) return false;
  auto waiting = polls_.find(poll->worker);
  if (waiting == polls_.end()) return false;
  auto at = std::find(waiting->second.begin(), waiting->second.end(), poll);
  if (at == waiting->second.end()) return false;
  waiting->second.erase(at);
  if (waiting->second.empty()) polls_.erase(waiting);
  poll->answered = true;
  --parked_;
  return true;
}

void NoticeBoard::Finish(const PollPtr& poll, absl::StatusOr<NoticesAnswer> answer) {
  if (poll->timer != 0) timers_.Cancel(poll->timer);
  poll->done(std::move(answer));
}

void NoticeBoard::Drain() {
  std::vector<PollPtr> all;
  {
    std::lock_guard<std::mutex> lock(mu_);
    draining_ = true;
    for (auto& [unused, waiting] : polls_) {
      for (PollPtr& poll : waiting) {
        poll->answered = true;
        all.push_back(poll);
      }
    }
    polls_.clear();
    parked_ = 0;
  }
  for (PollPtr& poll : all) Finish(poll, NoticesAnswer{{}, true});
}

size_t NoticeBoard::parked() const {
  std::lock_guard<std::mutex> lock(mu_);
  return parked_;
}

}  // namespace tenure::engine
