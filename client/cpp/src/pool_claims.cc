// PoolRun's claims and notices. See pool_run.h.
//
// A claim whose answer was lost may have leased jobs: it is repeated under the same request id, so that the daemon
// replays its answer, until it is answered or a lease has passed since it was first sent (then whatever it leased has
// run out). The same goes for the poll that is under way at shutdown: it is ended and then collected, and what comes is
// given back. The daemon answers the repeat after the original, so that nothing is leased behind its back.
#include <algorithm>
#include <utility>

#include "convert.h"
#include "pool_run.h"
#include "retry_policy.h"
#include "tenure/errors.h"

namespace tenure::client::internal {
namespace {

using Clock = std::chrono::steady_clock;

// The daemon answers a little before the call's deadline; a call past it is lost.
constexpr Duration kClaimSlack = std::chrono::seconds(10);
constexpr Duration kNoticeWait = std::chrono::seconds(50);
constexpr Duration kNoticeMemory = std::chrono::minutes(2);
constexpr size_t kMaxSeenNotices = 1'000;
constexpr RetryOptions kEmptyPace{
    .initial_backoff = std::chrono::milliseconds(20), .max_backoff = std::chrono::seconds(1), .multiplier = 2};

// A claim that can never succeed, however often it is sent.
bool IsHopeless(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnimplemented:
      return true;
    default:
      return false;
  }
}

// Tenants that one claim may leave out.
constexpr size_t kMaxExcluded = 100;

}  // namespace

int PoolRun::Prefetch() const { return options_.prefetch.value_or(auto_prefetch_.size()); }

ClaimSize PoolRun::Size(const ClaimLine& of) const {
  if (mode_ == PoolMode::kOne)
    return claimed_once_ || !held_.empty() ? ClaimSize{}
                                           : ClaimSize{.max_jobs = 1, .reservations = {}, .open_below = {}};
  PoolLoad load;
  load.running = running_;
  load.waiting = waiting_count_ + arriving_;
  // What the other line's claim may bring, or has brought in an answer that was lost.
  for (const ClaimLine& line : claim_lines_) load.waiting += line.id.empty() || &line == &of ? 0 : line.size.max_jobs;
  load.held_below = [this](int priority) {
    int held = limiter_->InUseBelow(priority) + arriving_;  // Of any priority: they are known in a moment.
    for (const auto& [waiting, runs] : waiting_) held += waiting < priority ? static_cast<int>(runs.size()) : 0;
    return held;
  };
  const int shared_free = options_.limiter ? limiter_->limits().slots - limiter_->in_use() : options_.slots - running_;
  return SizeClaim(limiter_->limits(), options_.slots, Prefetch(), shared_free, load);
}

bool PoolRun::MayAsk(const ClaimLine& line) const {
  if (dry_ || unsettled_ >= max_unsettled_) return false;
  const SlotLimits& limits = limiter_->limits();
  // Whose they are is known in a moment.
  if (arriving_ > 0 && limits.slots_per_tenant > 0) return false;
  if (line.main || !line.id.empty()) return true;
  // What is reserved, and what a tenant may have, is reckoned for one claim at a time.
  return full_answers_ && mode_ != PoolMode::kOne && !options_.limiter && limits.reservations.empty() &&
         limits.slots_per_tenant == 0;
}

std::optional<v1::ClaimRequest> PoolRun::NextClaim(ClaimLine& line, SteadyTime now) {
  if (line.in_flight || !fatal_.ok() || closed_ || now < claim_not_before_) return std::nullopt;
  if (now - line.first_sent > options_.lease) line.id.clear();
  v1::ClaimRequest request;
  line.excludes.clear();
  if (stopping_) {
    if (line.id.empty()) return std::nullopt;
    // Collect what the poll that was ended may have brought. If it brought nothing this is a claim of its own, which
    // should bring nothing either: it asks for one job of the highest priority.
    request.set_max_jobs(1);
    auto* kept = request.add_reservations();
    kept->set_min_priority(100);
    kept->set_slots(1);
  } else {
    if (!MayAsk(line)) return std::nullopt;
    const ClaimSize size = Size(line);
    // A repeat is sent in any case: it may find jobs that are leased to us already.
    if (size.max_jobs > 0 || line.id.empty()) line.size = size;
    if (line.size.max_jobs == 0) return std::nullopt;
    request.set_max_jobs(line.size.max_jobs);
    // What a tenant with all its slots has waiting would only be given back.
    line.excludes = FullTenants();
    for (const std::string& tenant : line.excludes) request.add_exclude_tenants(tenant);
    for (const SlotReservation& reserved : line.size.reservations) {
      auto* kept = request.add_reservations();
      kept->set_min_priority(reserved.min_priority);
      kept->set_slots(reserved.slots);
    }
    if (line.main && mode_ == PoolMode::kServe && options_.poll_wait > Duration::zero())
      ToProto(options_.poll_wait, request.mutable_wait());
  }
  request.set_worker_id(options_.worker_id);
  for (const QueueSelection& selection : options_.queues) {
    auto* queue = request.add_queues();
    queue->set_queue(selection.queue);
    queue->set_weight(selection.weight);
  }
  request.set_order(options_.order == QueueOrder::kWeighted ? v1::QUEUE_ORDER_WEIGHTED : v1::QUEUE_ORDER_STRICT);
  ToProto(options_.lease, request.mutable_lease_duration());
  request.set_max_bytes(options_.max_claim_bytes);
  if (line.id.empty()) {
    line.id = NewRequestId();
    line.first_sent = now;
  }
  request.set_request_id(line.id);
  line.in_flight = true;
  line.resize = false;
  line.settles_before = settles_;
  line.number = ++claim_number_;
  return request;
}

bool PoolRun::ClaimsUnderWay() const {
  return std::any_of(claim_lines_.begin(), claim_lines_.end(), [](const ClaimLine& line) { return line.in_flight; });
}

bool PoolRun::ClaimsUncollected() const {
  return std::any_of(claim_lines_.begin(), claim_lines_.end(),
                     [](const ClaimLine& line) { return line.in_flight || !line.id.empty(); });
}

// Tenants that run or have waiting here as many jobs as they may.
std::vector<std::string> PoolRun::FullTenants() const {
  if (limiter_->limits().slots_per_tenant == 0) return {};
  std::map<std::string, int> waiting;
  for (const auto& [unused, runs] : waiting_) {
    for (const RunPtr& run : runs) ++waiting[run->claimed.job.tenant];
  }
  return limiter_->FullTenants(waiting, kMaxExcluded);
}

// True if a tenant that the claim in flight leaves out has a slot again.
bool PoolRun::TenantOpensUp(const ClaimLine& line) const {
  if (line.excludes.empty()) return false;
  const std::vector<std::string> full = FullTenants();
  return !std::includes(full.begin(), full.end(), line.excludes.begin(), line.excludes.end());
}

void PoolRun::MaybeClaim() {
  for (ClaimLine& line : claim_lines_) MaybeClaim(line);
}

void PoolRun::MaybeClaim(ClaimLine& line) {
  std::optional<v1::ClaimRequest> request;
  std::shared_ptr<AsyncCall> outgrown;
  uint64_t number = 0;
  const SteadyTime now = Clock::now();
  {
    std::lock_guard lock(mutex_);
    request = NextClaim(line, now);
    number = line.number;
    if (!request && line.in_flight && !stopping_ && !line.resize &&
        ((!line.size.reservations.empty() && OpensUp(line.size, Size(line))) || TenantOpensUp(line))) {
      line.resize = true;
      outgrown = line.call;
    }
  }
  if (outgrown) outgrown->Cancel();
  if (!request) return;
  const Duration timeout = (request->has_wait() ? options_.poll_wait : Duration::zero()) + kClaimSlack;
  auto call = Start(
      *connection_, *std::move(request), timeout,
      [self = shared_from_this(), &line, now](absl::Status status, v1::ClaimRequest&, v1::ClaimResponse& response) {
        self->OnClaim(line, std::move(status), response, now);
      });
  bool end = false;
  {
    std::lock_guard lock(mutex_);
    if (line.in_flight && line.number == number) {
      line.call = call;
      // A stop or a resize that came before the handle was known.
      end = closed_ || line.resize;
    }
  }
  if (end) call->Cancel();
}

void PoolRun::OnClaim(ClaimLine& line, absl::Status status, v1::ClaimResponse& response, SteadyTime sent) {
  const Visit visit(*this);
  if (!visit) return;
  if (status.ok()) {
    Count(shared_->counters.claims);
    {
      std::lock_guard lock(mutex_);
      line.in_flight = false;
      line.call.reset();
      claim_failures_ = 0;
      claimed_once_ = true;
      line.id.clear();
      full_answers_ = response.jobs_size() >= line.size.max_jobs;
      arriving_ += response.jobs_size();
      if (response.jobs_size() == 0) {
        NoteEmptyAnswer(line, sent);
      } else {
        empty_answers_ = 0;
      }
    }
    if (response.jobs_size() > 0) {
      MaybeClaim();  // The daemon takes the next jobs while these are taken in.
      TakeJobs(response, sent);
    }
  } else {
    OnClaimFailure(line, status, sent);
  }
  MaybeClaim();
}

void PoolRun::NoteEmptyAnswer(const ClaimLine& line, SteadyTime sent) {
  dry_ = mode_ == PoolMode::kDrain && settles_ == line.settles_before;
  // An empty answer long before its time (a replica that drains, say) must not become a busy loop.
  const bool early =
      line.main && Clock::now() - sent < std::min<Duration>(options_.poll_wait / 2, std::chrono::seconds(1));
  empty_answers_ = early ? empty_answers_ + 1 : 0;
  if (early && mode_ == PoolMode::kServe && !stopping_) {
    PauseClaims(Clock::now() + BackoffAfter(empty_answers_, absl::OkStatus(), kEmptyPace));
  }
  NoteProgress();
}

void PoolRun::TakeJobs(v1::ClaimResponse& response, SteadyTime sent) {
  if (response.replayed()) Count(shared_->counters.replayed);
  std::vector<RunPtr> runs;
  runs.reserve(static_cast<size_t>(response.jobs_size()));
  for (auto& job : *response.mutable_jobs()) {
    ClaimedJob claimed = TakeClaimed(job, sent);
    auto lease = keeper_->Hold(claimed.lease_token, claimed.lease_duration, sent);
    runs.push_back(std::make_shared<JobRun>(std::move(claimed), std::move(lease), shared_, keeper_));
  }
  Count(shared_->counters.acquired, static_cast<int64_t>(runs.size()));
  acquired_.fetch_add(static_cast<int64_t>(runs.size()), std::memory_order_relaxed);
  if (options_.hooks.acquired) {
    for (const RunPtr& run : runs) shared_->Guard([&] { options_.hooks.acquired(run->claimed); });
  }
  std::vector<RunPtr> back;
  {
    std::lock_guard lock(mutex_);
    arriving_ -= static_cast<int>(runs.size());
    for (RunPtr& run : runs) {
      held_.emplace(run->lease.get(), run);
      if (stopping_) {
        run->phase = RunPhase::kSettling;
        ++unsettled_;
        back.push_back(run);
      } else {
        waiting_[run->claimed.job.priority].push_back(run);
        ++waiting_count_;
      }
    }
    shared_->counters.waiting.store(waiting_count_, std::memory_order_relaxed);
    shared_->counters.unsettled.store(unsettled_, std::memory_order_relaxed);
    WakeRunner();
    NoteProgress();
  }
  Release(back, Duration::zero());
}

void PoolRun::OnClaimFailure(ClaimLine& line, const absl::Status& status, SteadyTime sent) {
  bool ended_by_us = false;
  {
    std::lock_guard lock(mutex_);
    line.in_flight = false;
    line.call.reset();
    ended_by_us = status.code() == absl::StatusCode::kCancelled && (line.resize || stopping_);
    if (!ended_by_us) {
      if (IsHopeless(status)) {
        fatal_ = status;
        line.id.clear();
      } else if (mode_ != PoolMode::kServe && sent - started_ > OptionsOf(*connection_).timeout) {
        fatal_ = status;
      } else {
        PauseClaims(Clock::now() + BackoffAfter(++claim_failures_, status, OptionsOf(*connection_).retry));
      }
    }
    NoteProgress();
  }
  if (ended_by_us) return;
  Count(shared_->counters.claim_errors);
  shared_->Report("claim", status);
}

void PoolRun::PauseClaims(SteadyTime until) {
  claim_not_before_ = until;
  timer_.At(until, [this] { MaybeClaim(); });
}

void PoolRun::AwaitNotices() {
  v1::AwaitNoticesRequest request;
  const SteadyTime now = Clock::now();
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    while (!seen_notices_.empty() &&
           (now - seen_notices_.front().second > kNoticeMemory || seen_notices_.size() > kMaxSeenNotices)) {
      seen_notices_.pop_front();
    }
    for (const auto& [id, at] : seen_notices_) request.add_seen_ids(id);
  }
  request.set_worker_id(options_.worker_id);
  ToProto(kNoticeWait, request.mutable_wait());
  auto call = Start(
      *connection_, std::move(request), kNoticeWait + kClaimSlack,
      [self = shared_from_this(), now](absl::Status status, v1::AwaitNoticesRequest&,
                                       v1::AwaitNoticesResponse& response) { self->OnNotices(status, response, now); });
  std::unique_lock lock(mutex_);
  notices_call_ = call;
  const bool end = closed_;
  lock.unlock();
  if (end) call->Cancel();
}

void PoolRun::OnNotices(const absl::Status& status, v1::AwaitNoticesResponse& response, SteadyTime sent) {
  const Visit visit(*this);
  if (!visit) return;
  struct Loss {
    RunPtr run;
    LeaseState state;
    absl::Status why;
  };
  std::vector<Loss> losses;
  Duration pause{};
  {
    std::lock_guard lock(mutex_);
    notice_failures_ = status.ok() ? 0 : notice_failures_ + 1;
    if (!status.ok()) pause = BackoffAfter(notice_failures_, status, OptionsOf(*connection_).retry);
    bool news = false;
    absl::flat_hash_map<std::pair<std::string, int64_t>, RunPtr> by_job;
    for (auto& raw : *response.mutable_notices()) {
      Notice notice = TakeNotice(raw);
      const bool known = std::any_of(seen_notices_.begin(), seen_notices_.end(),
                                     [&](const auto& seen) { return seen.first == notice.id; });
      if (known) continue;
      news = true;
      seen_notices_.emplace_back(notice.id, Clock::now());
      if (notice.type != NoticeType::kCancelled && notice.type != NoticeType::kLeaseLost) continue;
      if (by_job.empty()) {
        for (const auto& [lease, run] : held_) {
          const Job& job = run->claimed.job;
          by_job.emplace(std::make_pair(job.id, job.lease ? job.lease->token_number : 0), run);
        }
      }
      const auto found = by_job.find(std::make_pair(notice.job_id, notice.token_number));
      if (found == by_job.end()) continue;
      const bool cancelled = notice.type == NoticeType::kCancelled;
      losses.push_back(
          {found->second, cancelled ? LeaseState::kCancelled : LeaseState::kLost,
           MakeStatus(absl::StatusCode::kFailedPrecondition, cancelled ? reason::kJobCancelled : reason::kLeaseLost,
                      cancelled ? "the job was cancelled: " + notice.reason : "the lease ended")});
    }
    // Answers without news that come at once must not become a busy loop.
    if (status.ok() && !news && Clock::now() - sent < std::chrono::milliseconds(500)) pause = std::chrono::seconds(1);
  }
  for (const Loss& loss : losses) keeper_->Report(loss.run->lease, loss.state, loss.why);
  if (!status.ok() && status.code() != absl::StatusCode::kDeadlineExceeded) shared_->Report("notices", status);
  if (pause > Duration::zero()) {
    timer_.After(pause, [this] { AwaitNotices(); });
  } else {
    AwaitNotices();
  }
}

}  // namespace tenure::client::internal
