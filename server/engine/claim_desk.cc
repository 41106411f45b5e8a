#include "server/engine/claim_desk.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "server/base/status.h"
#include "server/engine/claim_desk_state.h"

namespace tenure::engine {
namespace {

// A poll is answered so long before its caller's own deadline, so that the answer and not a time-out arrives.
constexpr auto kAnswerBefore = std::chrono::milliseconds(50);

}  // namespace

class ClaimDesk::Handle : public PollHandle {
 public:
  Handle(ClaimDesk* desk, PollPtr poll) : desk_(desk), poll_(std::move(poll)) {}
  void Cancel() override { desk_->CancelPoll(poll_); }

 private:
  ClaimDesk* desk_;
  PollPtr poll_;
};

ClaimDesk::ClaimDesk(store::Store& store, Executor& executor, Timers& timers, QueueDirectory& directory,
                     Metrics& metrics, const Options& options, Hooks hooks)
    : store_(store),
      executor_(executor),
      timers_(timers),
      directory_(directory),
      metrics_(metrics),
      options_(options),
      hooks_(std::move(hooks)) {}

ClaimDesk::~ClaimDesk() = default;

void ClaimDesk::Run(Actions& actions) {
  for (auto& action : actions) action();
}

std::shared_ptr<PollHandle> ClaimDesk::Claim(ClaimCall call, Deadline deadline, Callback<ClaimAnswer> done) {
  auto poll = std::make_shared<Poll>();
  const Clock::TimePoint now = timers_.clock().Now();
  poll->ends = now + absl::ToChronoMicroseconds(call.wait);
  if (deadline != Deadline::max()) poll->ends = std::min(poll->ends, deadline - kAnswerBefore);
  poll->call = std::move(call);
  poll->done = std::move(done);
  auto handle = std::make_shared<Handle>(this, poll);
  absl::Status refused;
  Actions actions;
  {
    std::lock_guard<std::mutex> lock(mu_);
    int& mine = polls_by_worker_[poll->call.worker];
    if (draining_) {
      refused = MakeError(absl::StatusCode::kUnavailable, "DRAINING",
                          "this replica is shutting down; claim from another one", {}, absl::ZeroDuration());
    } else if (polls_.size() >= static_cast<size_t>(options_.max_polls) || mine >= options_.max_polls_per_worker) {
      refused = MakeError(absl::StatusCode::kResourceExhausted, "TOO_MANY_POLLS",
                          mine >= options_.max_polls_per_worker
                              ? "this worker has too many claims waiting; claim more jobs in one call instead"
                              : "the daemon has as many long polls as it takes; try another replica",
                          {}, absl::Seconds(1));
      Metrics::Add(metrics_.shed, {{"what", "polls"}});
    } else {
      ++mine;
      polls_.insert(poll);
      NoteRequest(poll, actions);
    }
    if (!refused.ok() && mine == 0) polls_by_worker_.erase(poll->call.worker);
  }
  Run(actions);
  if (!refused.ok()) {
    poll->done(refused);
    return handle;
  }
  hooks_.seen(poll->call.worker, poll->call.queues);
  std::vector<int32_t> ids = directory_.IdsOf(poll->call.queues);
  if (std::find(ids.begin(), ids.end(), 0) == ids.end()) {
    Begin(poll, ids, absl::OkStatus());
    return handle;
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] == 0) names.push_back(poll->call.queues[i].queue);
  }
  directory_.Resolve(std::move(names), /*create=*/false,
                     [this, poll, ids = std::move(ids)](const QueueDirectory::Resolved& resolved) mutable {
                       absl::Status failed;
                       for (size_t i = 0; i < ids.size(); ++i) {
                         if (ids[i] != 0) continue;
                         const auto& queue = resolved.at(poll->call.queues[i].queue);
                         if (queue.ok()) {
                           ids[i] = queue->id;
                         } else if (!absl::IsNotFound(queue.status())) {
                           failed = queue.status();
                         }
                       }
                       Begin(poll, ids, failed);
                     });
  return handle;
}

// One poll of a request id is at work at a time. A caller that repeats its claim no longer waits for the first answer:
// the first poll ends, unless its claim is in flight; then the repeat waits for that and gets what it brought. So once
// the repeat is answered, nothing more is leased under its id here.
void ClaimDesk::NoteRequest(const PollPtr& poll, Actions& actions) {
  if (poll->call.request_id.empty()) return;
  if (auto found = requests_.find(poll->call.request_id); found != requests_.end()) {
    const PollPtr ended = found->second.active->in_flight ? found->second.repeat : found->second.active;
    if (ended) Answer(ended, ClaimAnswer{}, actions);
  }
  Request& request = requests_[poll->call.request_id];
  if (request.active) {
    request.active->awaited = true;
    request.repeat = poll;
    poll->awaits_original = true;
  } else {
    request.active = poll;
  }
}

// The poll has been answered: its repeat goes on.
void ClaimDesk::ForgetRequest(const PollPtr& poll, Actions& actions) {
  auto found = requests_.find(poll->call.request_id);
  if (found == requests_.end()) return;
  Request& request = found->second;
  if (request.repeat == poll) request.repeat.reset();
  if (request.active != poll) return;
  if (!request.repeat) {
    requests_.erase(found);
    return;
  }
  request.active = std::exchange(request.repeat, nullptr);
  request.active->awaits_original = false;
  const PollPtr next = request.active;
  if (next->begun) Place(next, actions);
}

// `ids`: of the call's queues, in its order; 0 for one that does not exist. `failed`: of looking them up.
void ClaimDesk::Begin(const PollPtr& poll, std::span<const int32_t> ids, const absl::Status& failed) {
  Actions actions;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (poll->answered) return;
    if (failed.ok()) {
      SetQueues(poll, ids);
      poll->begun = true;
      Place(poll, actions);
    } else {
      Answer(poll, failed, actions);
    }
  }
  Run(actions);
}

// WEIGHTED: a random order in which heavier queues tend to come first (exponential keys), drawn anew for each poll, so
// that over many polls the queues share by weight.
void ClaimDesk::SetQueues(const PollPtr& poll, std::span<const int32_t> ids) {
  std::vector<std::pair<double, size_t>> order;
  order.reserve(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    const double key = poll->call.weighted ? -std::log(absl::Uniform<double>(absl::IntervalOpenOpen, random_, 0, 1)) /
                                                 poll->call.queues[i].weight
                                           : 0;
    order.emplace_back(key, i);
  }
  if (poll->call.weighted) std::sort(order.begin(), order.end());
  poll->queues.reserve(ids.size());
  for (const auto& [unused, i] : order) {
    const std::string& name = poll->call.queues[i].queue;
    if (ids[i] != 0) {
      poll->queues.push_back(ids[i]);
    } else if (auto known = directory_.Find(name)) {
      // It was made while its name was looked up; then its event has come already.
      poll->queues.push_back(known->id);
    } else {
      poll->unknown.insert(name);
      unknown_[name].push_back(poll);
    }
  }
}

// Slots that only high priorities may take.
int32_t ClaimDesk::Kept(const Poll& poll, int16_t* least) {
  int32_t kept = 0;
  *least = kAnyPriority;
  for (const SlotReservation& reservation : poll.call.reservations) {
    kept += reservation.slots;
    *least = std::max(*least, reservation.min_priority);
  }
  return std::min(kept, poll.call.max_jobs);
}

bool ClaimDesk::HasReadyFrom(const Queue& queue, int16_t least) const {
  if (queue.revisit_at <= timers_.clock().Now() &&
      std::any_of(queue.revisit.begin(), queue.revisit.end(),
                  [&](const auto& missed) { return missed.priority >= least; })) {
    return true;
  }
  for (const auto& [priority, cursor] : queue.cursors) {
    if (priority < least) return false;
    if (cursor.MaybeReady()) return true;
  }
  return false;
}

// True if the queue may have something that this poll's slots can take.
bool ClaimDesk::Eligible(const Poll& poll, const Queue& queue) const {
  if (!MaybeReady(queue) || poll.not_before > timers_.clock().Now()) return false;
  int16_t least;
  return Kept(poll, &least) < poll.call.max_jobs || HasReadyFrom(queue, least);
}

bool ClaimDesk::MaybeReady(const Queue& queue) const {
  if (queue.paused) return false;
  const Clock::TimePoint now = timers_.clock().Now();
  if (queue.rest_until > now) return false;
  if (!queue.revisit.empty() && queue.revisit_at <= now) return true;
  for (const auto& [unused, cursor] : queue.cursors) {
    if (cursor.MaybeReady()) return true;
  }
  return false;
}

// Puts a poll into the line of its next queue that may have something; parks it if none has. The queues before the next
// one are looked at once more: they may have become ready while it stood in another's line.
void ClaimDesk::Place(const PollPtr& poll, Actions& actions) {
  if (poll->answered || poll->in_line != 0 || poll->looking_up || poll->awaits_original) return;
  const size_t count = poll->queues.size();
  for (size_t tried = 0; tried < count; ++tried) {
    if (poll->next >= count) poll->next = 0;
    Queue& queue = QueueOf(poll->queues[poll->next]);
    ++poll->next;
    if (!Eligible(*poll, queue)) continue;
    poll->in_line = queue.id;
    queue.line.push_back(poll);
    Pump(queue, actions);
    return;
  }
  poll->next = 0;
  if (!poll->call.request_id.empty() && !poll->checked_replay) return LookUp(poll);
  Park(poll, actions);
}

// The original of a repeated claim may have taken jobs whose answer was lost. Looked up only when there is nothing else
// to answer: where there is, the claim itself finds the request id taken. Until the look-up is done the poll stands
// nowhere, so that nothing is claimed for it meanwhile.
void ClaimDesk::LookUp(const PollPtr& poll) {
  Leave(poll);
  poll->checked_replay = true;
  poll->looking_up = true;
  executor_.Post([this, poll] { Replay(poll); });
}

void ClaimDesk::Park(const PollPtr& poll, Actions& actions) {
  if (poll->ends <= timers_.clock().Now()) return Answer(poll, ClaimAnswer{}, actions);
  poll->is_parked = true;
  for (int32_t id : poll->queues) {
    Queue& queue = QueueOf(id);
    poll->parked.emplace_back(&queue, queue.parked.insert(queue.parked.end(), poll));
  }
  if (poll->timer == 0) poll->timer = timers_.At(poll->ends, [this, poll] { ExpirePoll(poll); });
}

// Takes a poll out of every list that it stands in.
void ClaimDesk::Leave(const PollPtr& poll) {
  for (auto& [queue, spot] : poll->parked) queue->parked.erase(spot);
  poll->parked.clear();
  poll->is_parked = false;
  if (poll->in_line != 0 && !poll->in_flight) {
    std::deque<PollPtr>& line = QueueOf(poll->in_line).line;
    line.erase(std::remove(line.begin(), line.end(), poll), line.end());
    poll->in_line = 0;
  }
}

void ClaimDesk::Answer(const PollPtr& poll, absl::StatusOr<ClaimAnswer> answer, Actions& actions) {
  if (poll->answered) return;
  poll->answered = true;
  const int32_t stood = poll->in_flight ? 0 : poll->in_line;
  Leave(poll);
  for (const std::string& name : poll->unknown) {
    auto waiting = unknown_.find(name);
    if (waiting == unknown_.end()) continue;
    waiting->second.remove(poll);
    if (waiting->second.empty()) unknown_.erase(waiting);
  }
  polls_.erase(poll);
  if (auto mine = polls_by_worker_.find(poll->call.worker); mine != polls_by_worker_.end() && --mine->second <= 0) {
    polls_by_worker_.erase(mine);
  }
  ForgetRequest(poll, actions);
  // What it would have taken wakes another.
  if (stood != 0 && !draining_) WakeParked(QueueOf(stood), 1, actions);
  const char* outcome = poll->cancelled        ? "cancelled"
                        : !answer.ok()         ? "error"
                        : answer->replayed     ? "replayed"
                        : answer->jobs.empty() ? "empty"
                                               : "jobs";
  actions.push_back([this, poll, outcome, answer = std::move(answer)]() mutable {
    if (poll->timer != 0) timers_.Cancel(poll->timer);
    Metrics::Add(metrics_.claims, {{"outcome", outcome}});
    poll->done(std::move(answer));
    poll->done = nullptr;
  });
}

void ClaimDesk::ExpirePoll(const PollPtr& poll) {
  Actions actions;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (poll->answered) return;
    // What is in flight for it, or for its original, will answer, with or without a job.
    if (poll->in_flight || poll->looking_up || poll->awaits_original) {
      poll->ends = timers_.clock().Now();
    } else if (!poll->call.request_id.empty()) {
      // Its original may have got jobs since the first look, and the answer been lost.
      LookUp(poll);
    } else {
      Answer(poll, ClaimAnswer{}, actions);
    }
  }
  Run(actions);
}

void ClaimDesk::CancelPoll(const PollPtr& poll) {
  Actions actions;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (poll->answered) return;
    poll->cancelled = true;
    if (poll->in_flight) return;
    Answer(poll, absl::CancelledError("the caller has gone"), actions);
  }
  Run(actions);
}

void ClaimDesk::Replay(const PollPtr& poll) {
  auto found = store_.FindClaim(poll->call.request_id);
  Actions actions;
  {
    std::lock_guard<std::mutex> lock(mu_);
    poll->looking_up = false;
    if (poll->answered) return;
    if (!found.ok()) {
      Answer(poll, found.status(), actions);
    } else if (found->has_value()) {
      Answer(poll, ClaimAnswer{std::move(**found), true}, actions);
    } else {
      Place(poll, actions);
    }
  }
  Run(actions);
}

// Lets parked polls of the queue try again, as many as `jobs` can serve. One that finds something in another queue of
// its own does not count.
void ClaimDesk::WakeParked(Queue& queue, int64_t jobs, Actions& actions) {
  for (size_t left = queue.parked.size(); left > 0 && jobs > 0 && !queue.parked.empty() && MaybeReady(queue); --left) {
    PollPtr poll = queue.parked.front();
    Leave(poll);
    Place(poll, actions);
    if (poll->in_line == queue.id) jobs -= poll->call.max_jobs;
  }
}

ClaimDesk::Queue& ClaimDesk::QueueOf(int32_t id) {
  std::unique_ptr<Queue>& queue = queues_[id];
  if (!queue) {
    queue = std::make_unique<Queue>();
    queue->id = id;
  }
  return *queue;
}

}  // namespace tenure::engine
