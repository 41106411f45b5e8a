// ClaimDesk: the claims themselves. Whose slots go into the next one, where it reads, and what its answer means for
// polls and cursors.
#include <algorithm>
#include <utility>

#include "server/engine/claim_desk_state.h"

namespace tenure::engine {
namespace {

constexpr auto kLastRevisit = std::chrono::milliseconds(500);
constexpr size_t kMaxRanges = 48;
// After a claim failed (the database is away): its queue rests so long.
constexpr auto kRest = std::chrono::milliseconds(200);
// After a claim found nothing but jobs of tenants that its poll leaves out: the poll rests so long.
constexpr auto kLeftOutRest = std::chrono::milliseconds(100);
// After a claim met rows that somebody else held: so long its queue's claims look for what they pass over.
constexpr auto kContended = std::chrono::seconds(1);

}  // namespace

// Starts the queue's next claim if one is wanted and none is in flight.
void ClaimDesk::Pump(Queue& queue, Actions& actions) {
  if (queue.in_flight || queue.line.empty()) return;
  if (!MaybeReady(queue)) {
    // Nothing left here: everybody in the line goes on.
    std::deque<PollPtr> line = std::move(queue.line);
    queue.line.clear();
    for (const PollPtr& poll : line) poll->in_line = 0;
    for (const PollPtr& poll : line) Place(poll, actions);
    return;
  }
  auto batch = std::make_shared<Batch>();
  batch->claim.queue = queue.id;
  batch->claim.replica = hooks_.replica();
  batch->claim.max_bytes = 64 << 20;
  std::unordered_map<std::string, int32_t> workers;
  // Polls with reservations offer their kept slots to high priorities only: such a poll has a batch of its own, for all
  // its slots while something of high priority is ready, else for those that are free to all.
  std::deque<PollPtr> skipped;
  std::vector<PollPtr> elsewhere;  // Nothing here for these; they go on once this claim is on its way.
  while (!queue.line.empty() && batch->claim.slots.size() < static_cast<size_t>(options_.max_batch_items)) {
    PollPtr poll = queue.line.front();
    queue.line.pop_front();
    // The byte budget is the batch's: who asks for little must not make little of everybody's.
    if (!batch->offered.empty() && poll->call.max_bytes != batch->claim.max_bytes) {
      skipped.push_back(poll);
      continue;
    }
    // What it leaves out the others may take.
    const bool leaves_out = !poll->call.exclude_tenants.empty();
    if (leaves_out && !batch->offered.empty()) {
      skipped.push_back(poll);
      continue;
    }
    int16_t least;
    const int32_t kept = Kept(*poll, &least);
    int32_t wanted = poll->call.max_jobs;
    if (kept > 0) {
      if (!batch->offered.empty()) {
        skipped.push_back(poll);
        continue;
      }
      if (HasReadyFrom(queue, least)) {
        batch->min_priority = least;
      } else if (kept < wanted) {
        wanted -= kept;
      } else {
        poll->in_line = 0;
        elsewhere.push_back(poll);
        continue;
      }
    }
    const size_t room = static_cast<size_t>(options_.max_batch_items) - batch->claim.slots.size();
    const size_t count = std::min(room, static_cast<size_t>(wanted));
    auto [worker, fresh] = workers.try_emplace(poll->call.worker, static_cast<int32_t>(workers.size()));
    if (fresh) batch->claim.workers.push_back(poll->call.worker);
    int32_t request = -1;
    if (!poll->call.request_id.empty()) {
      request = static_cast<int32_t>(batch->claim.requests.size());
      batch->claim.requests.push_back({poll->call.request_id, poll->call.lease});
    }
    batch->offered.push_back({poll, batch->claim.slots.size(), count});
    for (size_t i = 0; i < count; ++i) batch->claim.slots.push_back({worker->second, request, poll->call.lease});
    batch->claim.max_bytes = poll->call.max_bytes;
    batch->claim.exclude_tenants = poll->call.exclude_tenants;
    poll->in_flight = true;
    if (kept > 0 || leaves_out) break;
  }
  for (auto poll = skipped.rbegin(); poll != skipped.rend(); ++poll) queue.line.push_front(*poll);
  if (!batch->offered.empty()) Send(queue, std::move(batch), actions);
  for (const PollPtr& poll : elsewhere) Place(poll, actions);
}

// The priorities that may have something, in the order in which a claim reads them. Jobs of one priority go in the
// order in which they came, so the first of each is the one that has waited longest: with ageing, comparing those is
// comparing all.
std::vector<int16_t> ClaimDesk::InOrder(const Queue& queue, int16_t least) const {
  std::vector<int16_t> order;
  for (const auto& [priority, cursor] : queue.cursors) {
    if (priority < least) break;
    if (cursor.MaybeReady()) order.push_back(priority);
  }
  if (queue.ageing.count() == 0 || queue.waiting_since.empty()) return order;
  const Clock::TimePoint now = timers_.clock().Now();
  std::map<int16_t, double> aged;
  for (const int16_t priority : order) {
    const auto since = queue.waiting_since.find(priority);
    aged[priority] = priority + (since == queue.waiting_since.end() || since->second > now
                                     ? 0
                                     : static_cast<double>((now - since->second) / queue.ageing));
  }
  std::stable_sort(order.begin(), order.end(), [&](int16_t a, int16_t b) { return aged[a] > aged[b]; });
  return order;
}

// Says where the claim reads, and sends it.
void ClaimDesk::Send(Queue& queue, std::shared_ptr<Batch> batch, Actions& actions) {
  for (const int16_t priority : InOrder(queue, batch->min_priority)) {
    if (batch->claim.ranges.size() >= kMaxRanges) break;
    ReadyCursor& cursor = queue.cursors[priority];
    std::vector<store::ClaimRange> ranges = cursor.Plan(priority, kMaxRanges - batch->claim.ranges.size());
    batch->slices.push_back({priority, batch->claim.ranges.size(), ranges.size()});
    batch->claim.ranges.insert(batch->claim.ranges.end(), ranges.begin(), ranges.end());
  }
  if (!batch->claim.exclude_tenants.empty()) {
    for (const Queue::Missed& missed : queue.revisit) {
      if (missed.priority >= batch->min_priority) batch->claim.revisit.push_back(missed.id);
    }
  } else if (!queue.revisit.empty() && queue.revisit_at <= timers_.clock().Now()) {
    // Half the slots at most: rows that stay locked must not keep the others from being served.
    const size_t some = std::max<size_t>(1, batch->claim.slots.size() / 2);
    const bool skip = batch->claim.slots.size() == 1 && !batch->claim.ranges.empty() && absl::Bernoulli(random_, 0.5);
    std::vector<Queue::Missed> left;
    for (const Queue::Missed& missed : queue.revisit) {
      if (!skip && batch->revisited.size() < some && missed.priority >= batch->min_priority) {
        batch->claim.revisit.push_back(missed.id);
        batch->revisited.push_back(missed.priority);
      } else {
        left.push_back(missed);
      }
    }
    queue.revisit = std::move(left);
  }
  batch->claim.alone = batch->claim.revisit.empty() && queue.contended_until <= timers_.clock().Now();
  queue.in_flight = true;
  // First of all, so that it is on its way while those who were served are answered.
  actions.insert(actions.begin(),
                 [this, id = queue.id, batch] { executor_.Post([this, id, batch] { RunBatch(id, batch); }); });
}

void ClaimDesk::RunBatch(int32_t queue, std::shared_ptr<Batch> batch) {
  {
    // Who has gone since must not be given a lease.
    std::lock_guard<std::mutex> lock(mu_);
    size_t gone = 0;
    for (const Offered& offered : batch->offered) gone += offered.poll->cancelled;
    if (gone == batch->offered.size()) batch->claim.slots.clear();
  }
  metrics_.batch_items.Observe({{"verb", "claim"}}, static_cast<double>(batch->claim.slots.size()));
  const Clock::TimePoint sent = timers_.clock().Now();
  absl::StatusOr<store::ClaimResult> result = batch->claim.slots.empty()
                                                  ? absl::StatusOr<store::ClaimResult>(absl::CancelledError())
                                                  : store_.Claim(batch->claim);
  if (result.ok()) {
    hooks_.granted(result->jobs, sent);
  } else if (!absl::IsCancelled(result.status())) {
    hooks_.in_doubt();
  }
  FinishBatch(queue, *batch, std::move(result));
}

void ClaimDesk::FinishBatch(int32_t id, Batch& batch, absl::StatusOr<store::ClaimResult> result) {
  Actions actions;
  {
    std::lock_guard<std::mutex> lock(mu_);
    Queue& queue = QueueOf(id);
    queue.in_flight = false;
    // A claim that found the queue paused has read nothing: its stretches stay as they were, and the queue rests. That
    // it is paused is learned from its event, since this answer may be older than a resume.
    const bool paused = result.ok() && result->paused;
    const bool ok = result.ok() && !paused;
    const bool cancelled = !ok && !paused && absl::IsCancelled(result.status());
    // What it left out is still there to be read: for the others it is as if it had not been.
    const bool left_out = !batch.claim.exclude_tenants.empty() && !(ok && result->none_left_out);
    for (const Batch::Slice& slice : batch.slices) {
      if (left_out) {
        queue.cursors[slice.priority].Finish(false, nullptr, slice.count);
        continue;
      }
      queue.cursors[slice.priority].Finish(ok, ok ? result->ranges.data() + slice.first : nullptr, slice.count);
    }
    if (ok && queue.fair && !result->jobs.empty()) {
      actions.push_back([this, id, jobs = static_cast<int64_t>(result->jobs.size())] { hooks_.took(id, jobs); });
    }
    if (ok && !left_out) actions.push_back([this, id, more = MaybeReady(queue)] { hooks_.claimed(id, more); });
    if (ok && result->contended) queue.contended_until = timers_.clock().Now() + kContended;
    if (ok && left_out) {
      // Nothing was learned of what is left.
    } else if (ok) {
      if (batch.claim.revisit.empty() && queue.revisit.empty()) queue.revisit_delay = kFirstRevisit;
      if (!result->missed.empty()) {
        const bool again = !batch.claim.revisit.empty();
        for (size_t i = 0; i < result->missed.size(); ++i) {
          queue.revisit.push_back({result->missed[i], result->missed_priorities[i]});
        }
        queue.revisit_delay = again ? std::min<Clock::Duration>(queue.revisit_delay * 2, kLastRevisit) : kFirstRevisit;
        queue.revisit_at = timers_.clock().Now() + queue.revisit_delay;
        ScheduleRevisit(queue);
      }
    } else {
      for (size_t i = 0; i < batch.revisited.size(); ++i)
        queue.revisit.push_back({batch.claim.revisit[i], batch.revisited[i]});
      if (!cancelled) {
        queue.rest_until = timers_.clock().Now() + kRest;
        timers_.After(kRest, [this, id] {
          Actions later;
          {
            std::lock_guard<std::mutex> inner(mu_);
            Queue& rested = QueueOf(id);
            WakeParked(rested, 1, later);
            Pump(rested, later);
          }
          Run(later);
        });
      }
    }

    std::vector<std::vector<store::ClaimedJob>> got(batch.offered.size());
    if (ok) {
      for (store::ClaimedJob& job : result->jobs) {
        const size_t slot = static_cast<size_t>(job.slot);
        auto owner = std::upper_bound(batch.offered.begin(), batch.offered.end(), slot,
                                      [](size_t s, const Offered& offered) { return s < offered.first; });
        got[static_cast<size_t>(owner - batch.offered.begin()) - 1].push_back(std::move(job));
      }
    }
    for (size_t i = 0; i < batch.offered.size(); ++i) {
      const PollPtr& poll = batch.offered[i].poll;
      poll->in_flight = false;
      poll->in_line = 0;
      const bool replay =
          result.ok() && !poll->call.request_id.empty() &&
          std::any_of(result->taken_requests.begin(), result->taken_requests.end(), [&](int32_t request) {
            return batch.claim.requests[static_cast<size_t>(request)].request_id == poll->call.request_id;
          });
      if (replay) {
        LookUp(poll);
      } else if (poll->cancelled) {
        // With a request id the caller's repeat may still come for them.
        if (!got[i].empty() && poll->call.request_id.empty()) {
          actions.push_back([this, jobs = std::move(got[i])]() mutable { hooks_.give_back(std::move(jobs)); });
        }
        Answer(poll, absl::CancelledError("the caller has gone"), actions);
      } else if (!ok && !paused) {
        Answer(poll, result.status(), actions);
      } else if (!got[i].empty()) {
        ClaimAnswer answer;
        answer.jobs = std::move(got[i]);
        std::sort(answer.jobs.begin(), answer.jobs.end(), [](const store::ClaimedJob& a, const store::ClaimedJob& b) {
          return a.job.priority != b.job.priority ? a.job.priority > b.job.priority : a.job.id.seq < b.job.id.seq;
        });
        Answer(poll, std::move(answer), actions);
      } else if (poll->awaited) {
        Answer(poll, ClaimAnswer{}, actions);
      } else {
        if (left_out) RestLeftOut(poll);
        Place(poll, actions);
      }
    }
    if (MaybeReady(queue)) WakeParked(queue, 1, actions);
    Pump(queue, actions);
  }
  Run(actions);
}

// So that a poll which finds nothing but what it leaves out does not look again and again.
void ClaimDesk::RestLeftOut(const PollPtr& poll) {
  poll->not_before = timers_.clock().Now() + kLeftOutRest;
  timers_.At(poll->not_before, [this, poll] {
    Actions actions;
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (!poll->answered && poll->is_parked) {
        Leave(poll);
        Place(poll, actions);
      }
    }
    Run(actions);
  });
}

}  // namespace tenure::engine
