// PoolRun: one run of a WorkerPool, from its first claim to its last settle. Layer: client. Thread-safe.
//
// Who does what. The claim loop (pool_claims.cc) is driven by answers and by slots that become free; the runners
// (pool_handlers.cc) take waiting jobs, call handlers and hand the outcomes to the Settler; the KeeperCore extends
// every lease from claim to the settle's acknowledgement; the thread that called Run (pool_run.cc) only waits, and
// shuts down. Calls come back on gRPC threads, which never block here: mutex_ is held for a few instructions and never
// while user code, a call or another component's lock is entered (the limiter's and the keeper's own short ones
// excepted).
//
// Life of a job: claimed -> waiting_ -> a runner admits it (limiter) -> handler -> settle sent -> acknowledged. It is
// in held_ from the claim to the acknowledgement.
#pragma once

#include <array>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "auto_prefetch.h"
#include "claim_size.h"
#include "job_run.h"
#include "keeper_core.h"
#include "pool_shared.h"
#include "settler.h"
#include "timer.h"

namespace tenure::client::internal {

enum class PoolMode {
  kServe,  // Until it is stopped.
  kDrain,  // Until a claim that was sent with nothing in hand comes back empty.
  kOne,    // One claim of one job.
};

class PoolRun : public std::enable_shared_from_this<PoolRun> {
 public:
  PoolRun(std::shared_ptr<PoolShared> shared, PoolMode mode);

  // Works until `stop`, or until the mode's end. Call it once. Results as WorkerPool::Run.
  absl::Status Run(std::stop_token stop);
  // Jobs that were acquired.
  int64_t acquired() const { return acquired_.load(std::memory_order_relaxed); }

 private:
  using RunPtr = std::shared_ptr<JobRun>;

  // Marks a callback that uses the user's hooks: Run does not return before it has left. False once the run is closed.
  class Visit {
   public:
    explicit Visit(PoolRun& run);
    ~Visit();
    explicit operator bool() const { return entered_; }

   private:
    PoolRun& run_;
    bool entered_;
  };

  // ---- pool_run.cc: beginning and end ----
  void Wire();
  absl::Status Shutdown();
  // Requires `lock`. Gives back what has not started, and makes the claim loop collect what is on its way.
  void StopClaiming(std::unique_lock<std::mutex>& lock);
  // Ends the claim number `number` if it is still under way.
  void EndPoll(uint64_t number);
  // Requires `lock`. Leaves handlers behind that do not stop; their jobs keep their leases' rest as delay.
  void AbandonHandlers(std::unique_lock<std::mutex>& lock);
  void Close();
  void OnLeaseChange(const std::shared_ptr<HeldLease>& lease, const absl::Status& why);
  void AnnounceLoss(const JobRun& run, LeaseState state, const absl::Status& why);
  // Requires mutex_. Wakes Run if there may be something for it to see.
  void NoteProgress();

  // ---- pool_claims.cc: claims and notices ----
  // A claim under way, or one whose answer was lost: its id is kept until it is answered, for a lease at most.
  struct ClaimLine {
    // The main line polls. The other one takes more beside it while jobs come in full answers, and never waits in the
    // daemon: so the daemon has the next claim at hand while an answer travels, and a pool that has little to do holds
    // one poll.
    bool main = false;
    bool in_flight = false;
    bool resize = false;
    uint64_t number = 0;
    std::string id;
    ClaimSize size;
    std::vector<std::string> excludes;  // Tenants that the claim leaves out, sorted.
    std::shared_ptr<AsyncCall> call;
    SteadyTime first_sent;
    uint64_t settles_before = 0;  // settles_ when it was sent.
  };
  // Sends claims if there is room. Cheap; called whenever something may have become free.
  void MaybeClaim();
  void MaybeClaim(ClaimLine& line);
  // Requires mutex_. The request to send now, if any.
  std::optional<v1::ClaimRequest> NextClaim(ClaimLine& line, SteadyTime now);
  // Requires mutex_. Whether the line may ask for jobs now.
  bool MayAsk(const ClaimLine& line) const;
  void OnClaim(ClaimLine& line, absl::Status status, v1::ClaimResponse& response, SteadyTime sent);
  // Requires mutex_. A claim was answered without jobs.
  void NoteEmptyAnswer(const ClaimLine& line, SteadyTime sent);
  // Requires mutex_. Whether a claim is under way, or one that must be collected.
  bool ClaimsUnderWay() const;
  bool ClaimsUncollected() const;
  // Of a claim that has been answered: its jobs become waiting ones.
  void TakeJobs(v1::ClaimResponse& response, SteadyTime sent);
  void OnClaimFailure(ClaimLine& line, const absl::Status& status, SteadyTime sent);
  // Requires mutex_.
  void PauseClaims(SteadyTime until);
  // Of the line's next claim, or of the same sent anew.
  ClaimSize Size(const ClaimLine& of) const;
  std::vector<std::string> FullTenants() const;
  bool TenantOpensUp(const ClaimLine& line) const;
  // Requires mutex_.
  int Prefetch() const;
  void AwaitNotices();
  void OnNotices(const absl::Status& status, v1::AwaitNoticesResponse& response, SteadyTime sent);

  // ---- pool_handlers.cc: running and settling ----
  // Requires mutex_. Starts or wakes one runner if a job waits; each runner that finds one does the same.
  void WakeRunner();
  void RunnerThread();
  void ExecutorTask();
  // Requires mutex_. The next job that is admitted, or null; `unfit` receives what is to be given back.
  RunPtr Pick(std::vector<RunPtr>* unfit);
  // Runs one job if one is admitted. Requires `lock`, held on return; false if it was held all the while since nothing
  // could be done.
  bool RunNext(std::unique_lock<std::mutex>& lock);
  void Work(const RunPtr& run);
  void Finish(const RunPtr& run, Outcome outcome);
  void Settle(const RunPtr& run, Outcome& outcome);
  void SnoozeUnknown(const RunPtr& run);
  void SettleFail(const RunPtr& run, std::string message, std::string type, std::string detail, bool non_retryable,
                  std::optional<Duration> retry_after);
  void SendFail(const RunPtr& run, const FailItem& fail);
  // Gives jobs back: `delay` zero means ready at once.
  void Release(const std::vector<RunPtr>& runs, Duration delay);
  // Its lease ended without us, or the handler settled it: nothing to send.
  void Drop(const RunPtr& run);
  void OnSettled(std::vector<SettleAnswer> answers);

  const std::shared_ptr<PoolShared> shared_;
  const WorkerPoolOptions& options_;
  const PoolMode mode_;
  const std::shared_ptr<Connection> connection_;
  const std::shared_ptr<SlotLimiter> limiter_;
  const int max_unsettled_;
  const SteadyTime started_;
  std::shared_ptr<KeeperCore> keeper_;
  std::shared_ptr<Settler> settler_;
  Timer timer_;
  std::shared_ptr<void> limiter_subscription_;
  std::atomic<int64_t> acquired_{0};

  std::mutex mutex_;
  std::condition_variable state_changed_;  // For Run.
  std::condition_variable work_;           // For idle runners.
  // All that follows is guarded by mutex_.
  std::map<int, std::deque<RunPtr>, std::greater<>> waiting_;  // By priority.
  absl::flat_hash_map<const HeldLease*, RunPtr> held_;
  AutoPrefetch auto_prefetch_;
  int waiting_count_ = 0;
  int arriving_ = 0;  // Jobs of an answered claim that do not wait yet.
  int running_ = 0;
  int unsettled_ = 0;
  // Runners: threads, or tasks of the executor.
  std::list<std::thread> threads_;
  std::vector<std::thread::id> exited_;
  int runners_ = 0;
  int idle_ = 0;
  bool runners_exit_ = false;
  std::array<ClaimLine, 2> claim_lines_;
  uint64_t claim_number_ = 0;
  bool full_answers_ = false;  // The last claim brought all that it asked for.
  SteadyTime claim_not_before_;
  int claim_failures_ = 0;
  int empty_answers_ = 0;  // That came at once, in a row.
  uint64_t settles_ = 0;   // Rounds of settles, to see whether a claim was sent before the last.
  bool dry_ = false;       // The last claim found nothing, and nothing has been settled since it was sent.
  bool claimed_once_ = false;
  // Notices.
  std::shared_ptr<AsyncCall> notices_call_;
  std::deque<std::pair<std::string, SteadyTime>> seen_notices_;
  int notice_failures_ = 0;
  absl::flat_hash_map<std::string, SteadyTime> warned_kinds_;
  // The end.
  bool stop_requested_ = false;
  bool stopping_ = false;  // No claims but to collect.
  bool stopped_handlers_ = false;
  bool closed_ = false;
  int visitors_ = 0;
  int abandoned_ = 0;
  absl::Status fatal_;
};

}  // namespace tenure::client::internal
