// EngineImpl: Extend and the settles, all that names a lease token. A call's items are split by queue, go through that
// verb's lane, and are put together again. Items whose rows somebody has locked (an application that settles in a
// transaction of its own) go to the slow lane: they are tried again apart from the others until the caller's deadline,
// so that nobody else waits for them.
#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/engine/engine_impl.h"

namespace tenure::engine {
namespace {

constexpr auto kFirstRetry = std::chrono::milliseconds(10);
constexpr auto kLastRetry = std::chrono::milliseconds(200);
// Without a deadline of the caller's a locked row is waited for so long.
constexpr auto kLongestWait = std::chrono::seconds(30);
constexpr auto kAnswerBefore = std::chrono::milliseconds(20);

int64_t BytesOf(const store::NewJob& job) { return static_cast<int64_t>(job.payload.data.size()) + 256; }
int64_t BytesOf(const store::ExtendItem&) { return 64; }
int64_t BytesOf(const store::GiveBackItem&) { return 64; }
int64_t BytesOf(const store::FailItem& item) {
  return static_cast<int64_t>(item.error.message.size() + item.error.detail.size()) + 128;
}
int64_t BytesOf(const store::CompleteItem& item) {
  int64_t bytes = 64 + (item.result ? static_cast<int64_t>(item.result->data.size()) : 0);
  for (const store::FollowUp& next : item.follow_ups) bytes += BytesOf(next.job);
  return bytes;
}

absl::Status JobLocked(const store::LeaseToken& token) {
  return MakeError(
      absl::StatusCode::kUnavailable, "JOB_LOCKED",
      absl::StrCat("another transaction holds job ", token.job.ToString(), " and did not end in time; try again"),
      {{"job_id", token.job.ToString()}}, absl::Milliseconds(500));
}

bool IsLocked(const store::ExtendOutcome& outcome) { return outcome.state == store::TokenState::kCurrent; }
bool IsLocked(const store::SettleOutcome& outcome) { return outcome.state == store::TokenState::kCurrent; }

const char* NameOf(store::Verb verb) {
  switch (verb) {
    case store::Verb::kComplete:
      return "complete";
    case store::Verb::kFail:
      return "fail";
    case store::Verb::kRelease:
      return "release";
    case store::Verb::kSnooze:
      return "snooze";
    default:
      return "extend";
  }
}

}  // namespace

std::optional<absl::Status> EngineImpl::TokenStatus(store::TokenState state, const store::LeaseToken& token) {
  const std::string id = token.job.ToString();
  const std::map<std::string, std::string> metadata{{"job_id", id}, {"token_number", std::to_string(token.number)}};
  switch (state) {
    case store::TokenState::kWon:
    case store::TokenState::kReplayed:
      return absl::OkStatus();
    case store::TokenState::kCurrent:
      return std::nullopt;
    case store::TokenState::kCancelled:
      return MakeError(absl::StatusCode::kFailedPrecondition, "JOB_CANCELLED",
                       absl::StrCat("job ", id, " was cancelled; stop its work"), metadata);
    case store::TokenState::kAlreadySettled:
      return MakeError(absl::StatusCode::kFailedPrecondition, "ALREADY_SETTLED",
                       absl::StrCat("this lease of job ", id, " has been settled already, otherwise than by this call"),
                       metadata);
    case store::TokenState::kJobNotFound:
      return MakeError(absl::StatusCode::kNotFound, "JOB_NOT_FOUND",
                       absl::StrCat("there is no job ", id, ": it never existed, or its history has expired"),
                       metadata);
    default:
      return MakeError(absl::StatusCode::kFailedPrecondition, "LEASE_LOST",
                       absl::StrCat("the lease of job ", id, " under token ", token.number,
                                    " has ended; another worker may hold the job now"),
                       metadata);
  }
}

template <typename Item, typename Outcome, typename Answer>
struct EngineImpl::TokenCall {
  std::vector<Item> items;
  std::vector<Answer> answers;
  std::function<Answer(const Item&, Outcome&)> convert;
  Deadline deadline;
  Callback<std::vector<Answer>> done;

  std::mutex mu;
  size_t open = 0;  // Items without an answer.
  Clock::Duration delay = kFirstRetry;

  Clock::Duration NextDelay() {
    std::lock_guard<std::mutex> lock(mu);
    const Clock::Duration now = delay;
    delay = std::min<Clock::Duration>(delay * 2, kLastRetry);
    return now;
  }

  // Answers `n` items; runs `done` with the last.
  void Close(size_t n) {
    bool last = false;
    {
      std::lock_guard<std::mutex> lock(mu);
      open -= n;
      last = open == 0;
    }
    if (last) done(std::move(answers));
  }
};

template <typename Item, typename Outcome, typename Answer>
void EngineImpl::RunTokenCall(BatchLane<Item, Outcome>& lane, std::shared_ptr<TokenCall<Item, Outcome, Answer>> call) {
  call->answers.resize(call->items.size());
  call->open = call->items.size();
  call->deadline = std::min(call->deadline, clock_.Now() + kLongestWait) - kAnswerBefore;
  if (call->items.empty()) return call->done(std::vector<Answer>());
  std::map<int32_t, std::vector<size_t>> by_queue;
  for (size_t i = 0; i < call->items.size(); ++i) by_queue[call->items[i].token.job.queue].push_back(i);
  for (auto& [queue, indexes] : by_queue) {
    for (size_t at = 0; at < indexes.size(); at += lane.batch_items()) {
      const size_t end = std::min(indexes.size(), at + lane.batch_items());
      AddToLane(
          lane, call, queue,
          {indexes.begin() + static_cast<std::ptrdiff_t>(at), indexes.begin() + static_cast<std::ptrdiff_t>(end)});
    }
  }
}

template <typename Item, typename Outcome, typename Answer>
void EngineImpl::AddToLane(BatchLane<Item, Outcome>& lane, std::shared_ptr<TokenCall<Item, Outcome, Answer>> call,
                           int32_t queue, std::vector<size_t> indexes) {
  std::vector<Item> items;
  items.reserve(indexes.size());
  int64_t bytes = 0;
  for (size_t i : indexes) {
    items.push_back(call->items[i]);
    bytes += BytesOf(items.back());
  }
  lane.Add(queue, std::move(items), bytes,
           [this, &lane, call, queue, indexes = std::move(indexes)](absl::StatusOr<std::vector<Outcome>> outcomes) {
             std::vector<size_t> locked;
             size_t answered = 0;
             for (size_t i = 0; i < indexes.size(); ++i) {
               const size_t at = indexes[i];
               if (!outcomes.ok()) {
                 call->answers[at].status = outcomes.status();
               } else if (IsLocked((*outcomes)[i])) {
                 locked.push_back(at);
                 continue;
               } else {
                 call->answers[at] = call->convert(call->items[at], (*outcomes)[i]);
               }
               ++answered;
             }
             if (!locked.empty()) {
               const Clock::TimePoint next = clock_.Now() + call->NextDelay();
               if (next < call->deadline) {
                 // The slow lane.
                 timers_.At(next, [this, &lane, call, queue, locked] { AddToLane(lane, call, queue, locked); });
               } else {
                 for (size_t at : locked) call->answers[at].status = JobLocked(call->items[at].token);
                 answered += locked.size();
               }
             }
             if (answered > 0) call->Close(answered);
           });
}

void EngineImpl::CountStale(int32_t queue, store::Verb verb, int n) {
  if (n > 0) Metrics::Add(metrics_.stale_tokens, {{"queue", directory_.Name(queue)}, {"verb", NameOf(verb)}}, n);
}

EngineImpl::ExtendLane::Outcomes EngineImpl::FlushExtend(int32_t queue, std::span<const store::ExtendItem> items) {
  const Clock::TimePoint sent = clock_.Now();
  auto outcomes = store_.Extend(queue, items);
  if (!outcomes.ok()) return outcomes;
  std::vector<store::LeaseToken> tokens;
  std::vector<size_t> unresolved;
  int extended = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    store::ExtendOutcome& outcome = (*outcomes)[i];
    if (outcome.state == store::TokenState::kWon) {
      ++extended;
      watch_.Extend({queue, items[i].token.job.seq, items[i].token.number},
                    sent + absl::ToChronoNanoseconds(outcome.remaining));
    } else if (outcome.state == store::TokenState::kUnresolved) {
      tokens.push_back(items[i].token);
      unresolved.push_back(i);
    }
  }
  Metrics::Add(metrics_.leases_extended, {{"queue", directory_.Name(queue)}}, extended);
  if (!tokens.empty()) {
    // No verb is Extend's own, so a settled token answers ALREADY_SETTLED.
    auto resolved = store_.ResolveTokens(queue, store::Verb::kExpire, tokens);
    if (!resolved.ok()) return resolved.status();
    int stale = 0;
    for (size_t i = 0; i < unresolved.size(); ++i) {
      (*outcomes)[unresolved[i]].state = (*resolved)[i].state;
      stale += (*resolved)[i].state == store::TokenState::kLeaseLost;
    }
    CountStale(queue, store::Verb::kExpire, stale);
  }
  return outcomes;
}

template <typename Item, typename SettleFn>
absl::StatusOr<std::vector<store::SettleOutcome>> EngineImpl::FlushSettle(int32_t queue, store::Verb verb,
                                                                          std::span<const Item> items,
                                                                          SettleFn settle) {
  absl::StatusOr<store::SettleResult> result = settle();
  if (!result.ok()) return result.status();
  const std::string name = directory_.Name(queue);
  std::vector<store::LeaseToken> tokens;
  std::vector<size_t> unresolved;
  std::vector<store::JobId> ended;
  std::map<store::JobState, int> states;
  for (size_t i = 0; i < items.size(); ++i) {
    const store::SettleOutcome& outcome = result->items[i];
    if (outcome.state == store::TokenState::kWon) {
      ++states[outcome.job_state];
      watch_.Forget(items[i].token.job.seq, items[i].token.number);
      if (store::IsFinal(outcome.job_state)) ended.push_back(items[i].token.job);
    } else if (outcome.state == store::TokenState::kUnresolved) {
      tokens.push_back(items[i].token);
      unresolved.push_back(i);
    }
  }
  for (const auto& [state, n] : states) {
    const char* outcome = state == store::JobState::kCompleted   ? "completed"
                          : state == store::JobState::kDiscarded ? "discarded"
                          : verb == store::Verb::kFail           ? "failed"
                          : verb == store::Verb::kRelease        ? "released"
                                                                 : "snoozed";
    Metrics::Add(metrics_.jobs_settled, {{"queue", name}, {"outcome", outcome}}, n);
  }
  // Slots are filled again before anything else.
  if (!states.empty()) result->freed.emplace_back("q");
  LookAtGates(queue, std::move(result->freed));
  for (auto& [to, names] : result->blocked) LookAtGates(to, std::move(names));
  desk_.NoteReady(result->ready);
  TellOthers(result->ready);
  if (!result->ready.empty()) own_.Note(result->xid);
  NoteScheduled(result->earliest_due);
  waiters_.Ended(ended);
  if (!tokens.empty()) {
    auto resolved = store_.ResolveTokens(queue, verb, tokens);
    if (!resolved.ok()) return resolved.status();
    int stale = 0;
    for (size_t i = 0; i < unresolved.size(); ++i) {
      store::SettleOutcome& outcome = result->items[unresolved[i]];
      outcome.state = (*resolved)[i].state;
      outcome.job_state = (*resolved)[i].job_state;
      outcome.due = (*resolved)[i].due;
      stale += outcome.state == store::TokenState::kLeaseLost;
      if (outcome.state != store::TokenState::kCurrent) watch_.Forget(tokens[i].job.seq, tokens[i].number);
    }
    CountStale(queue, verb, stale);
  }
  return std::move(result->items);
}

EngineImpl::CompleteLane::Outcomes EngineImpl::FlushComplete(int32_t queue,
                                                             std::span<const store::CompleteItem> items) {
  return FlushSettle(queue, store::Verb::kComplete, items, [&] { return store_.Complete(queue, items); });
}

EngineImpl::FailLane::Outcomes EngineImpl::FlushFail(int32_t queue, std::span<const store::FailItem> items) {
  return FlushSettle(queue, store::Verb::kFail, items, [&] { return store_.Fail(queue, items); });
}

EngineImpl::GiveBackLane::Outcomes EngineImpl::FlushGiveBack(int32_t queue, store::Verb verb,
                                                             std::span<const store::GiveBackItem> items) {
  return FlushSettle(queue, verb, items, [&] { return store_.GiveBack(queue, verb, items); });
}

namespace {

SettleAnswer ConvertSettle(store::SettleOutcome& outcome, absl::Status status) {
  SettleAnswer answer;
  answer.status = std::move(status);
  answer.state = outcome.job_state;
  answer.due = outcome.due;
  answer.follow_ups = std::move(outcome.follow_ups);
  answer.replayed = outcome.state == store::TokenState::kReplayed;
  return answer;
}

}  // namespace

void EngineImpl::Extend(std::vector<store::ExtendItem> items, Deadline deadline,
                        Callback<std::vector<ExtendAnswer>> done) {
  auto call = std::make_shared<TokenCall<store::ExtendItem, store::ExtendOutcome, ExtendAnswer>>();
  call->items = std::move(items);
  call->deadline = deadline;
  call->done = Tracked(std::move(done));
  call->convert = [](const store::ExtendItem& item, store::ExtendOutcome& outcome) {
    return ExtendAnswer{*TokenStatus(outcome.state, item.token), outcome.expires, outcome.remaining};
  };
  RunTokenCall(extend_lane_, std::move(call));
}

// Fail, Release and Snooze: the same path through a lane each.
template <typename Item>
void EngineImpl::Settle(BatchLane<Item, store::SettleOutcome>& lane, std::vector<Item> items, Deadline deadline,
                        Callback<std::vector<SettleAnswer>> done) {
  auto call = std::make_shared<TokenCall<Item, store::SettleOutcome, SettleAnswer>>();
  call->items = std::move(items);
  call->deadline = deadline;
  call->done = Tracked(std::move(done));
  call->convert = [](const Item& item, store::SettleOutcome& outcome) {
    return ConvertSettle(outcome, *TokenStatus(outcome.state, item.token));
  };
  RunTokenCall(lane, std::move(call));
}

void EngineImpl::Fail(std::vector<store::FailItem> items, Deadline deadline, Callback<std::vector<SettleAnswer>> done) {
  Settle(fail_lane_, std::move(items), deadline, std::move(done));
}

void EngineImpl::Release(std::vector<store::GiveBackItem> items, Deadline deadline,
                         Callback<std::vector<SettleAnswer>> done) {
  Settle(release_lane_, std::move(items), deadline, std::move(done));
}

void EngineImpl::Snooze(std::vector<store::GiveBackItem> items, Deadline deadline,
                        Callback<std::vector<SettleAnswer>> done) {
  Settle(snooze_lane_, std::move(items), deadline, std::move(done));
}

void EngineImpl::Complete(std::vector<CompleteItem> items, Deadline deadline,
                          Callback<std::vector<SettleAnswer>> done) {
  std::vector<std::string> names;
  for (const CompleteItem& item : items) {
    for (const EnqueueItem& next : item.follow_ups) names.push_back(next.queue);
  }
  directory_.Resolve(
      std::move(names), options_.create_queues,
      [this, items = std::move(items), deadline,
       done = Tracked(std::move(done))](QueueDirectory::Resolved resolved) mutable {
        auto call = std::make_shared<TokenCall<store::CompleteItem, store::SettleOutcome, SettleAnswer>>();
        // An item whose follow-ups cannot be enqueued is refused whole; the others go on.
        auto refused = std::make_shared<std::map<size_t, absl::Status>>();
        for (size_t i = 0; i < items.size(); ++i) {
          store::CompleteItem item{items[i].token, std::move(items[i].result), {}};
          for (EnqueueItem& next : items[i].follow_ups) {
            const auto& queue = resolved.at(next.queue);
            if (queue.ok()) {
              item.follow_ups.push_back({queue->id, std::move(next.job)});
            } else {
              refused->emplace(i, queue.status());
            }
          }
          if (!refused->contains(i)) call->items.push_back(std::move(item));
        }
        const size_t count = items.size();
        call->deadline = deadline;
        call->convert = [](const store::CompleteItem& item, store::SettleOutcome& outcome) {
          return ConvertSettle(outcome, *TokenStatus(outcome.state, item.token));
        };
        if (refused->empty()) {
          call->done = std::move(done);
        } else {
          call->done = [refused, count, done = std::move(done)](absl::StatusOr<std::vector<SettleAnswer>> answers) {
            if (!answers.ok()) return done(answers.status());
            std::vector<SettleAnswer> all(count);
            size_t next = 0;
            for (size_t i = 0; i < count; ++i) {
              auto refusal = refused->find(i);
              if (refusal == refused->end()) {
                all[i] = std::move((*answers)[next++]);
              } else {
                all[i].status = refusal->second;
              }
            }
            done(std::move(all));
          };
        }
        RunTokenCall(complete_lane_, std::move(call));
      });
}

void EngineImpl::Undeliverable(ClaimAnswer answer) {
  std::vector<store::GiveBackItem> items;
  for (const store::ClaimedJob& job : answer.jobs) items.push_back({job.token, absl::ZeroDuration()});
  if (items.empty()) return;
  // What cannot be given back now runs out with its lease.
  Release(std::move(items), clock_.Now() + std::chrono::seconds(10),
          [](const absl::StatusOr<std::vector<SettleAnswer>>&) {});
}

}  // namespace tenure::engine
