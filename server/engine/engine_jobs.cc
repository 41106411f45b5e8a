// EngineImpl: Cancel and Claim.
#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/engine/engine_impl.h"

namespace tenure::engine {
namespace {

// Cancels of rows that somebody has locked are tried again so often, until the caller's deadline, at most so long.
constexpr auto kFirstRetry = std::chrono::milliseconds(10);
constexpr auto kLastRetry = std::chrono::milliseconds(200);
constexpr auto kLongestWait = std::chrono::seconds(30);
constexpr auto kAnswerBefore = std::chrono::milliseconds(20);

}  // namespace

void EngineImpl::Cancel(std::vector<store::JobId> ids, std::string reason, Deadline deadline,
                        Callback<std::vector<CancelAnswer>> done) {
  struct Call {
    std::vector<store::JobId> ids;
    std::string reason;
    Deadline deadline;
    std::vector<CancelAnswer> answers;
    std::vector<size_t> open;
    Clock::Duration delay = kFirstRetry;
    Callback<std::vector<CancelAnswer>> done;
    std::function<void(const std::shared_ptr<Call>&)> round;
  };
  auto call = std::make_shared<Call>();
  call->ids = std::move(ids);
  call->reason = std::move(reason);
  call->deadline = std::min(deadline, clock_.Now() + kLongestWait) - kAnswerBefore;
  call->answers.resize(call->ids.size());
  for (size_t i = 0; i < call->ids.size(); ++i) call->open.push_back(i);
  call->done = Tracked(std::move(done));
  // One round over what is open; what is locked by somebody is tried again later.
  call->round = [this](const std::shared_ptr<Call>& self) {
    std::map<int32_t, std::vector<size_t>> by_queue;
    for (size_t i : self->open) by_queue[self->ids[i].queue].push_back(i);
    std::vector<size_t> locked, moved;
    for (const auto& [queue, all] : by_queue) {
      for (size_t at = 0; at < all.size(); at += static_cast<size_t>(options_.max_batch_items)) {
        const std::vector<size_t> part(
            all.begin() + static_cast<std::ptrdiff_t>(at),
            all.begin() +
                static_cast<std::ptrdiff_t>(std::min(all.size(), at + static_cast<size_t>(options_.max_batch_items))));
        std::vector<store::JobId> of_part;
        for (size_t i : part) of_part.push_back(self->ids[i]);
        auto result = store_.Cancel(queue, of_part, self->reason);
        if (!result.ok()) return self->done(result.status());
        result->freed.emplace_back("q");
        LookAtGates(queue, std::move(result->freed));
        std::vector<store::JobId> ended;
        std::vector<size_t> over;  // They may have been moved.
        int cancelled = 0, leases = 0;
        for (size_t i = 0; i < part.size(); ++i) {
          const store::CancelOutcome& outcome = result->items[i];
          CancelAnswer& answer = self->answers[part[i]];
          const store::JobId& id = self->ids[part[i]];
          answer.id = id;
          answer.previous = outcome.previous;
          if (outcome.state == store::CancelOutcome::State::kNotFound ||
              (outcome.state != store::CancelOutcome::State::kLocked && store::IsFinal(outcome.previous))) {
            over.push_back(part[i]);
          }
          switch (outcome.state) {
            case store::CancelOutcome::State::kCancelled:
              if (outcome.previous != store::JobState::kCancelled) {
                ++cancelled;
                ended.push_back(id);
              }
              if (outcome.previous == store::JobState::kLeased) {
                ++leases;
                watch_.Forget(id.seq, outcome.number);
              }
              break;
            case store::CancelOutcome::State::kAlreadyEnded:
              answer.status =
                  MakeError(absl::StatusCode::kFailedPrecondition, "ALREADY_SETTLED",
                            absl::StrCat("job ", id.ToString(), " has ended already"), {{"job_id", id.ToString()}});
              break;
            case store::CancelOutcome::State::kNotFound:
              answer.status = MakeError(
                  absl::StatusCode::kNotFound, "JOB_NOT_FOUND",
                  absl::StrCat("there is no job ", id.ToString(), ": it never existed, or its history has expired"),
                  {{"job_id", id.ToString()}});
              break;
            case store::CancelOutcome::State::kLocked:
              locked.push_back(part[i]);
          }
        }
        const std::string name = directory_.Name(queue);
        Metrics::Add(metrics_.jobs_settled, {{"queue", name}, {"outcome", "cancelled"}}, cancelled);
        Metrics::Add(metrics_.lease_losses, {{"queue", name}, {"reason", "cancelled"}}, leases);
        waiters_.Ended(ended);
        std::vector<store::JobId> asked;
        for (size_t i : over) asked.push_back(self->ids[i]);
        if (asked.empty()) continue;
        const auto now = store_.WhereNow(asked);
        if (!now.ok()) return self->done(now.status());
        for (size_t i = 0; i < over.size(); ++i) {
          if ((*now)[i] == asked[i]) continue;
          self->ids[over[i]] = (*now)[i];
          self->answers[over[i]] = CancelAnswer();
          moved.push_back(over[i]);
        }
      }
    }
    if (!moved.empty()) {
      // At once, with those that are to be tried again in any case.
      self->open = std::move(moved);
      self->open.insert(self->open.end(), locked.begin(), locked.end());
      executor_.Post([self] { self->round(self); });
      return;
    }
    const Clock::TimePoint next = clock_.Now() + self->delay;
    self->delay = std::min<Clock::Duration>(self->delay * 2, kLastRetry);
    if (!locked.empty() && next < self->deadline) {
      self->open = std::move(locked);
      timers_.At(next, [this, self] { executor_.Post([self] { self->round(self); }); });
      return;
    }
    for (size_t i : locked) {
      self->answers[i].status = MakeError(absl::StatusCode::kUnavailable, "JOB_LOCKED",
                                          "another transaction holds the job and did not end in time; try again",
                                          {{"job_id", self->ids[i].ToString()}}, absl::Milliseconds(500));
    }
    self->done(std::move(self->answers));
  };
  executor_.Post([call] { call->round(call); });
}

std::shared_ptr<PollHandle> EngineImpl::Claim(ClaimCall call, Deadline deadline, Callback<ClaimAnswer> done) {
  return desk_.Claim(std::move(call), deadline,
                     [this, done = Tracked(std::move(done))](absl::StatusOr<ClaimAnswer> answer) {
                       if (answer.ok()) {
                         for (store::ClaimedJob& claimed : answer->jobs) Fill(claimed.job);
                       }
                       done(std::move(answer));
                     });
}

void EngineImpl::ClaimNamed(NamedClaimCall call, Deadline deadline,
                            Callback<std::vector<store::NamedClaimOutcome>> done) {
  (void)deadline;  // One short transaction per queue; its own limit is shorter than any caller's.
  if (draining_) {
    return done(
        MakeError(absl::StatusCode::kUnavailable, "DRAINING", "this replica is shutting down; claim from another one"));
  }
  executor_.Post([this, call = std::move(call), done = Tracked(std::move(done))]() mutable {
    const Clock::TimePoint sent = clock_.Now();
    // One that is moved between this and the claim is refused, as what it is under the old id: ended.
    auto now = store_.WhereNow(call.ids);
    if (!now.ok()) return done(now.status());
    call.ids = *std::move(now);
    std::vector<store::NamedClaimOutcome> answers(call.ids.size());
    std::map<int32_t, std::vector<size_t>> by_queue;
    for (size_t i = 0; i < call.ids.size(); ++i) by_queue[call.ids[i].queue].push_back(i);
    for (const auto& [queue, indexes] : by_queue) {
      std::vector<store::JobId> ids;
      for (size_t i : indexes) ids.push_back(call.ids[i]);
      // Each queue is a transaction, and a claim to repeat, of its own.
      const std::string request = call.request_id.empty() || by_queue.size() == 1
                                      ? call.request_id
                                      : absl::StrCat(call.request_id, "\n", queue);
      const int64_t bytes = std::max<int64_t>(1, call.max_bytes / static_cast<int64_t>(by_queue.size()));
      auto outcomes = ClaimNamedIn(queue, call, request, ids, bytes, sent);
      if (!outcomes.ok()) return done(outcomes.status());
      for (size_t i = 0; i < indexes.size(); ++i) answers[indexes[i]] = std::move((*outcomes)[i]);
    }
    std::vector<store::Job*> jobs;
    for (store::NamedClaimOutcome& answer : answers) {
      if (answer.job) jobs.push_back(&answer.job->job);
    }
    if (absl::Status known = KnowQueues(jobs); !known.ok()) return done(known);
    done(std::move(answers));
  });
}

absl::StatusOr<std::vector<store::NamedClaimOutcome>> EngineImpl::ClaimNamedIn(
    int32_t queue, const NamedClaimCall& call, const std::string& request, const std::vector<store::JobId>& ids,
    int64_t max_bytes, Clock::TimePoint sent) {
  // A repeat gets what the original got; also one that comes while the original is at work, whose claim is then
  // refused.
  for (bool claimed = false;; claimed = true) {
    if (!request.empty()) {
      TENURE_ASSIGN_OR_RETURN(const auto found, store_.FindClaim(request));
      if (found) {
        std::vector<store::NamedClaimOutcome> outcomes(ids.size());
        for (size_t i = 0; i < ids.size(); ++i) {
          for (const store::ClaimedJob& job : *found) {
            if (job.job.id == ids[i]) outcomes[i].job = job;
          }
          if (!outcomes[i].job) {
            outcomes[i].refusal = MakeError(absl::StatusCode::kFailedPrecondition, "LEASE_LOST",
                                            "the claim of this request id does not hold the job (any more)");
          }
        }
        return outcomes;
      }
    }
    auto outcomes = store_.ClaimNamed(queue, replica_, call.worker, call.lease, request, ids, max_bytes);
    if (DetailsOf(outcomes.status()).reason == "REQUEST_REPLAYED" && !claimed) continue;
    if (!outcomes.ok()) {
      reconcile_ = true;
      return outcomes.status();
    }
    std::vector<store::ClaimedJob> granted;
    int held = 0;
    for (const store::NamedClaimOutcome& outcome : *outcomes) {
      if (outcome.job) granted.push_back(*outcome.job);
      held += DetailsOf(outcome.refusal).reason == "LEASE_HELD";
    }
    Granted(granted, sent);
    if (held > 0) {
      Metrics::Add(metrics_.lease_acquisitions, {{"queue", directory_.Name(queue)}, {"outcome", "held"}}, held);
    }
    return outcomes;
  }
}

}  // namespace tenure::engine
