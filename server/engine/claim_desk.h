// The claim desk: long polls that want jobs, and the claims that serve them. Layer: engine. Thread-safe.
//
// A poll stands in at most one queue's line (it wants a claim there now), or is parked in all its queues (none had
// anything). Per queue one claim is in flight at a time, for as many polls of its line as fit in a batch; each gets
// what fell into its slots and is answered at once if that is at least one job, else it goes on to its next queue, or
// parks. What becomes ready wakes as many parked polls as there are jobs, no more; a claim that leaves something behind
// wakes the next.
//
// Where claims read is ReadyCursor's business; rows that a claim saw and did not get are looked at again by id until
// they are gone, since their holder may roll back.
#pragma once

#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/random/random.h"
#include "absl/status/statusor.h"
#include "server/base/metrics.h"
#include "server/engine/engine.h"
#include "server/engine/executor.h"
#include "server/engine/queue_directory.h"
#include "server/engine/ready_cursor.h"
#include "server/engine/timers.h"
#include "server/store/store.h"

namespace tenure::engine {

class ClaimDesk {
 public:
  struct Hooks {
    // A claim has granted these leases; `sent` is when it was sent.
    std::function<void(const std::vector<store::ClaimedJob>&, Clock::TimePoint sent)> granted;
    // A claim failed; whether it granted anything is not known.
    std::function<void()> in_doubt;
    // Nobody is there to take these: give them back untouched.
    std::function<void(std::vector<store::ClaimedJob>)> give_back;
    std::function<int32_t()> replica;
    // A worker polls these queues.
    std::function<void(const std::string& worker, const std::vector<QueueShare>&)> seen;
    // A claim took so many jobs of a queue whose tenants take turns.
    std::function<void(int32_t queue, int64_t jobs)> took;
    // A claim of the queue has ended, and knows of more that are ready, or does not.
    std::function<void(int32_t queue, bool more)> claimed;
  };

  ClaimDesk(store::Store& store, Executor& executor, Timers& timers, QueueDirectory& directory, Metrics& metrics,
            const Options& options, Hooks hooks);
  ~ClaimDesk();

  std::shared_ptr<PollHandle> Claim(ClaimCall call, Deadline deadline, Callback<ClaimAnswer> done);

  // Something is ready (and visible to every statement from now on).
  void NoteReady(const std::vector<store::ReadyRange>& ranges);
  // A queue became known or changed.
  void NoteQueue(const store::Queue& queue);
  // How long the first ready job at each of these positions has been due; absent: none is ready there.
  void NoteAges(const std::vector<store::ReadyRange>& positions,
                const std::vector<std::optional<absl::Duration>>& ages);
  // The replica begins, or begins anew: what is ready is found from the beginning.
  void Reset(const std::vector<std::pair<int32_t, int16_t>>& ready);
  // Answers all polls (empty) and refuses new ones.
  void Drain();
  // Where each queue's claims stand, for asking how old the oldest ready job is.
  std::vector<store::ReadyRange> Positions() const;
  size_t parked() const;

 private:
  struct Poll;
  struct Queue;
  class Handle;
  using PollPtr = std::shared_ptr<Poll>;
  using Actions = std::vector<std::function<void()>>;  // Run once the lock is released.

  static constexpr int16_t kAnyPriority = -32768;

  struct Request {   // The polls of one request id.
    PollPtr active;  // At work.
    PollPtr repeat;  // Waits for the claim that is in flight for the other.
  };
  struct Offered {  // One poll's part of a batch.
    PollPtr poll;
    size_t first = 0;
    size_t count = 0;
  };
  struct Batch {
    store::ClaimBatch claim;
    std::vector<Offered> offered;
    struct Slice {
      int16_t priority = 0;
      size_t first = 0;
      size_t count = 0;
    };
    std::vector<Slice> slices;
    int16_t min_priority = kAnyPriority;
    std::vector<int16_t> revisited;  // Priorities of claim.revisit.
  };

  void NoteRequest(const PollPtr& poll, Actions& actions);
  void ForgetRequest(const PollPtr& poll, Actions& actions);
  void Begin(const PollPtr& poll, std::span<const int32_t> ids, const absl::Status& failed);
  void SetQueues(const PollPtr& poll, std::span<const int32_t> ids);
  void Place(const PollPtr& poll, Actions& actions);
  void Park(const PollPtr& poll, Actions& actions);
  void Leave(const PollPtr& poll);
  void LookUp(const PollPtr& poll);
  static int32_t Kept(const Poll& poll, int16_t* least);
  bool HasReadyFrom(const Queue& queue, int16_t least) const;
  bool Eligible(const Poll& poll, const Queue& queue) const;
  void Pump(Queue& queue, Actions& actions);
  std::vector<int16_t> InOrder(const Queue& queue, int16_t least) const;
  void Send(Queue& queue, std::shared_ptr<Batch> batch, Actions& actions);
  void RestLeftOut(const PollPtr& poll);
  void WakeParked(Queue& queue, int64_t jobs, Actions& actions);
  void RunBatch(int32_t queue, std::shared_ptr<Batch> batch);
  void FinishBatch(int32_t queue, Batch& batch, absl::StatusOr<store::ClaimResult> result);
  void Answer(const PollPtr& poll, absl::StatusOr<ClaimAnswer> answer, Actions& actions);
  void Replay(const PollPtr& poll);
  void ExpirePoll(const PollPtr& poll);
  void CancelPoll(const PollPtr& poll);
  bool MaybeReady(const Queue& queue) const;
  void ScheduleRevisit(Queue& queue);
  Queue& QueueOf(int32_t id);
  static void Run(Actions& actions);

  store::Store& store_;
  Executor& executor_;
  Timers& timers_;
  QueueDirectory& directory_;
  Metrics& metrics_;
  const Options options_;
  const Hooks hooks_;

  mutable std::mutex mu_;
  absl::BitGen random_;
  std::unordered_map<int32_t, std::unique_ptr<Queue>> queues_;
  std::unordered_map<std::string, std::list<PollPtr>> unknown_;  // Polls of queues that do not exist yet, by name.
  std::set<PollPtr> polls_;
  std::unordered_map<std::string, int> polls_by_worker_;
  std::unordered_map<std::string, Request> requests_;  // By request id.
  bool draining_ = false;
};

}  // namespace tenure::engine
