// What workers must hear about the jobs they hold: cancellations and lost leases, kept for a minute; and the polls that
// wait for them. Layer: engine. Thread-safe.
//
// Every replica reads every notice (they are events), so a worker may ask any of them; it names what it has seen, and
// no replica needs to remember who was told what.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "server/base/metrics.h"
#include "server/engine/engine.h"
#include "server/engine/timers.h"
#include "server/store/types.h"

namespace tenure::engine {

class NoticeBoard {
 public:
  NoticeBoard(Timers& timers, const Options& options) : timers_(timers), options_(options) {}

  std::shared_ptr<PollHandle> Await(std::string worker, std::vector<int64_t> seen, absl::Duration wait,
                                    Deadline deadline, Callback<NoticesAnswer> done);
  void Post(std::vector<store::Notice> notices);
  // Answers all polls, with draining set, and every later one at once.
  void Drain();
  size_t parked() const;

 private:
  struct Poll;
  class Handle;
  using PollPtr = std::shared_ptr<Poll>;

  void Finish(const PollPtr& poll, absl::StatusOr<NoticesAnswer> answer);
  // Notices for the poll that it has not seen. Holds mu_.
  std::vector<store::Notice> Unseen(const Poll& poll) const;
  bool Remove(const PollPtr& poll);
  void Prune();

  Timers& timers_;
  const Options options_;
  mutable std::mutex mu_;
  struct Kept {
    store::Notice notice;
    Clock::TimePoint until;
  };
  std::unordered_map<std::string, std::deque<Kept>> kept_;
  std::deque<std::pair<Clock::TimePoint, std::string>> expiry_;
  std::unordered_map<std::string, std::vector<PollPtr>> polls_;
  size_t parked_ = 0;
  bool draining_ = false;
};

}  // namespace tenure::engine
