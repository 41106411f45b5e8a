// EngineImpl: Enqueue. Bounds on a queue's depth are kept here, before anything is written: in all by what events have
// told (DepthGate), of a tenant by counting.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/engine/engine_impl.h"

namespace tenure::engine {
namespace {

// What was shed is worth trying again when some jobs have ended.
constexpr absl::Duration kShedFor = absl::Seconds(1);

int64_t BytesOf(const store::NewJob& job) { return static_cast<int64_t>(job.payload.data.size()) + 256; }

absl::Status Shed(std::string_view reason, const std::string& message, std::map<std::string, std::string> metadata) {
  return MakeError(absl::StatusCode::kResourceExhausted, reason, message, std::move(metadata), kShedFor);
}

int64_t AcceptedOf(const absl::StatusOr<std::vector<store::EnqueueOutcome>>& outcomes) {
  if (!outcomes.ok()) return 0;
  return std::count_if(outcomes->begin(), outcomes->end(), [](const store::EnqueueOutcome& outcome) {
    return outcome.status.ok() && !outcome.duplicate && !outcome.existing;
  });
}

}  // namespace

EngineImpl::Way EngineImpl::WayOf(const store::NewJob& job) {
  if (job.unique) return Way::kUnique;
  return job.idempotency_key.empty() ? Way::kPlain : Way::kKeyed;
}

EngineImpl::EnqueueLane& EngineImpl::LaneOf(Way way) {
  return way == Way::kUnique ? unique_lane_ : way == Way::kKeyed ? keyed_lane_ : enqueue_lane_;
}

EngineImpl::EnqueueLane::Outcomes EngineImpl::FlushEnqueue(int32_t queue, std::span<const store::NewJob> items,
                                                           Way way) {
  const std::optional<store::Queue> settings = directory_.Find(queue);
  if (settings && (settings->settings.max_depth || settings->settings.max_tenant_depth)) {
    return FlushWithinBounds(*settings, items, way);
  }
  return WriteJobs(queue, items, way);
}

// What makes no job takes no room, and is let through however full the queue is: a repeat of what has been accepted is
// answered with its job (its producer wants to know no more than that), and so is, or is changed, the holder of a
// unique key. Who makes none is asked only where somebody is shed.
absl::StatusOr<EngineImpl::Bounded> EngineImpl::WithinBounds(const store::Queue& queue,
                                                             std::span<const store::NewJob* const> jobs) {
  TENURE_ASSIGN_OR_RETURN(Bounded bounded, CountIn(queue, jobs, std::vector<bool>(jobs.size())));
  const auto shed = [&] {
    return std::count_if(bounded.statuses.begin(), bounded.statuses.end(),
                         [](const absl::Status& status) { return !status.ok(); });
  };
  if (shed() == 0) return bounded;
  const absl::StatusOr<std::vector<bool>> none = store_.MakeNone(queue.id, jobs);
  if (!none.ok() || std::find(none->begin(), none->end(), true) != none->end()) {
    depth_.Answered(queue.id, static_cast<int64_t>(bounded.counted.size()), 0);
    if (!none.ok()) return none.status();
    TENURE_ASSIGN_OR_RETURN(bounded, CountIn(queue, jobs, *none));
  }
  NoteShed(queue.name, static_cast<size_t>(shed()));
  return bounded;
}

// In the order of the call. Of the tenants' bounds: batches that are under way at the same time, here and on other
// replicas, do not see each other; the bound is exceeded by what these hold at most.
absl::StatusOr<EngineImpl::Bounded> EngineImpl::CountIn(const store::Queue& queue,
                                                        std::span<const store::NewJob* const> jobs,
                                                        const std::vector<bool>& make_none) {
  const std::optional<int64_t> most = queue.settings.max_depth, most_of_tenant = queue.settings.max_tenant_depth;
  std::set<std::string> tenants;
  std::map<std::string, size_t> firsts;  // Of an idempotency key.
  std::vector<size_t> first_of(jobs.size());
  int64_t wanted = 0;
  for (size_t i = 0; i < jobs.size(); ++i) {
    first_of[i] = jobs[i]->idempotency_key.empty() ? i : firsts.emplace(jobs[i]->idempotency_key, i).first->second;
    if (make_none[i] || first_of[i] != i) continue;
    ++wanted;
    if (most_of_tenant && !jobs[i]->tenant.empty()) tenants.insert(jobs[i]->tenant);
  }
  std::map<std::string, int64_t> depths;
  if (!tenants.empty()) {
    TENURE_ASSIGN_OR_RETURN(
        depths,
        store_.TenantDepths(queue.id, std::vector<std::string>(tenants.begin(), tenants.end()), *most_of_tenant));
  }
  const int64_t room = most ? depth_.Admit(queue.id, DepthOf(queue.id), *most, wanted) : 0;
  Bounded bounded;
  bounded.statuses.resize(jobs.size());
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (make_none[i]) continue;
    if (first_of[i] != i) {
      bounded.statuses[i] = bounded.statuses[first_of[i]];
      continue;
    }
    int64_t* of_tenant = tenants.contains(jobs[i]->tenant) ? &depths[jobs[i]->tenant] : nullptr;
    if (of_tenant != nullptr && *of_tenant >= *most_of_tenant) {
      bounded.statuses[i] = Shed("TENANT_FULL",
                                 absl::StrCat("the tenant has ", *most_of_tenant, " jobs in the queue \"", queue.name,
                                              "\", as many as its max_tenant_depth allows; try again later"),
                                 {{"queue", queue.name}, {"max_tenant_depth", absl::StrCat(*most_of_tenant)}});
    } else if (most && static_cast<int64_t>(bounded.counted.size()) == room) {
      bounded.statuses[i] = Shed("QUEUE_FULL",
                                 absl::StrCat("the queue \"", queue.name, "\" holds ", *most,
                                              " jobs, as many as its max_depth allows; try again later"),
                                 {{"queue", queue.name}, {"max_depth", absl::StrCat(*most)}});
    } else {
      if (of_tenant != nullptr) ++*of_tenant;
      if (most) bounded.counted.push_back(i);
    }
  }
  const int64_t left = room - static_cast<int64_t>(bounded.counted.size());
  if (left > 0) depth_.Answered(queue.id, left, 0);
  return bounded;
}

EngineImpl::EnqueueLane::Outcomes EngineImpl::FlushWithinBounds(const store::Queue& queue,
                                                                std::span<const store::NewJob> items, Way way) {
  std::vector<const store::NewJob*> jobs;
  for (const store::NewJob& job : items) jobs.push_back(&job);
  TENURE_ASSIGN_OR_RETURN(Bounded bounded, WithinBounds(queue, jobs));
  std::vector<store::EnqueueOutcome> outcomes(items.size());
  std::vector<size_t> at;
  std::vector<store::NewJob> fitting;
  for (size_t i = 0; i < items.size(); ++i) {
    outcomes[i].status = std::move(bounded.statuses[i]);
    if (outcomes[i].status.ok()) at.push_back(i);
  }
  if (at.empty()) return outcomes;
  if (at.size() < items.size()) {
    for (const size_t i : at) fitting.push_back(items[i]);
  }
  EnqueueLane::Outcomes written = WriteJobs(queue.id, fitting.empty() ? items : std::span(fitting), way);
  if (queue.settings.max_depth) {
    depth_.Answered(queue.id, static_cast<int64_t>(bounded.counted.size()), AcceptedOf(written));
  }
  if (!written.ok()) return written.status();
  for (size_t i = 0; i < at.size(); ++i) outcomes[at[i]] = std::move((*written)[i]);
  return outcomes;
}

void EngineImpl::NoteShed(const std::string& queue, size_t jobs) {
  Metrics::Add(metrics_.shed, {{"what", "queue_full"}}, static_cast<double>(jobs));
  Metrics::Add(metrics_.jobs_enqueued, {{"queue", queue}, {"outcome", "refused"}}, static_cast<double>(jobs));
}

int64_t EngineImpl::DepthOf(int32_t queue) const {
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = counts_.find(queue);
  if (found == counts_.end()) return 0;
  const store::QueueCounts& counts = found->second;
  return counts.scheduled + counts.blocked + counts.ready + counts.leased + counts.suspended;
}

EngineImpl::EnqueueLane::Outcomes EngineImpl::WriteJobs(int32_t queue, std::span<const store::NewJob> items, Way way) {
  auto result = way == Way::kUnique  ? store_.EnqueueUnique(queue, items)
                : way == Way::kKeyed ? store_.EnqueueKeyed(queue, items)
                                     : store_.Enqueue(queue, items);
  if (!result.ok()) return result.status();
  desk_.NoteReady(result->ready);
  TellOthers(result->ready);
  if (!result->ready.empty()) own_.Note(result->xid);
  LookAtGates(queue, std::move(result->blocked));
  NoteScheduled(result->earliest_due);
  NoteBusy(items, result->jobs);
  int accepted = 0, duplicate = 0, existing = 0, refused = 0;
  for (const store::EnqueueOutcome& outcome : result->jobs) {
    if (outcome.busy) continue;  // Counted when it is known how it ends.
    ++(!outcome.status.ok() ? refused : outcome.duplicate ? duplicate : outcome.existing ? existing : accepted);
  }
  const std::string name = directory_.Name(queue);
  Metrics::Add(metrics_.jobs_enqueued, {{"queue", name}, {"outcome", "accepted"}}, accepted);
  Metrics::Add(metrics_.jobs_enqueued, {{"queue", name}, {"outcome", "duplicate"}}, duplicate);
  Metrics::Add(metrics_.jobs_enqueued, {{"queue", name}, {"outcome", "existing"}}, existing);
  Metrics::Add(metrics_.jobs_enqueued, {{"queue", name}, {"outcome", "refused"}}, refused);
  return std::move(result->jobs);
}

void EngineImpl::Enqueue(std::vector<EnqueueItem> items, Deadline deadline,
                         Callback<std::vector<store::EnqueueOutcome>> done) {
  done = Tracked(std::move(done));
  std::vector<std::string> names;
  for (const EnqueueItem& item : items) {
    if (names.empty() || names.back() != item.queue) names.push_back(item.queue);
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  directory_.Resolve(
      std::move(names), options_.create_queues,
      [this, deadline, items = std::move(items), done = std::move(done)](QueueDirectory::Resolved resolved) mutable {
        if (std::any_of(items.begin(), items.end(),
                        [](const EnqueueItem& item) { return item.job.depends_on.has_value(); })) {
          return EnqueueGraph(std::move(items), resolved, std::move(done));
        }
        EnqueueParts(std::move(items), resolved, deadline, std::move(done));
      });
}

// One call on its way: each item is answered once.
struct EngineImpl::EnqueueCall {
  std::vector<EnqueueItem> items;
  Deadline deadline;
  std::vector<store::EnqueueOutcome> outcomes;
  Callback<std::vector<store::EnqueueOutcome>> done;
  std::mutex mu;
  size_t open = 0;

  void Close(size_t n) {
    bool last = false;
    {
      std::lock_guard<std::mutex> lock(mu);
      open -= n;
      last = open == 0;
    }
    if (last) done(std::move(outcomes));
  }
};

void EngineImpl::EnqueueParts(std::vector<EnqueueItem> items, const QueueDirectory::Resolved& resolved,
                              Deadline deadline, Callback<std::vector<store::EnqueueOutcome>> done) {
  auto call = std::make_shared<EnqueueCall>();
  call->outcomes.resize(items.size());
  call->open = items.size() + 1;  // One for this function.
  call->items = std::move(items);
  call->deadline = deadline;
  call->done = std::move(done);
  // Jobs of one queue go one way, in the order of the call, which is the order of their ids and of groups: each way is
  // a lane of its own, and the one for unique keys takes any job.
  struct Part {
    Way way;
    std::vector<size_t> indexes;
  };
  std::map<int32_t, Part> parts;
  size_t refused = 0;
  for (size_t i = 0; i < call->items.size(); ++i) {
    const auto& queue = resolved.at(call->items[i].queue);
    if (queue.ok()) {
      const Way way = WayOf(call->items[i].job);
      Part& part = parts.try_emplace(queue->id, Part{way, {}}).first->second;
      if (part.way != way) part.way = Way::kUnique;
      part.indexes.push_back(i);
    } else {
      call->outcomes[i].status = queue.status();
      ++refused;
    }
  }
  for (const auto& [queue, part] : parts) AddPart(call, queue, LaneOf(part.way), part.indexes);
  call->Close(refused + 1);
}

// What of a call goes to one queue by one lane, in as many batches as it takes.
void EngineImpl::AddPart(const std::shared_ptr<EnqueueCall>& call, int32_t queue, EnqueueLane& lane,
                         const std::vector<size_t>& indexes) {
  for (size_t at = 0; at < indexes.size();) {
    std::vector<store::NewJob> jobs;
    std::vector<size_t> taken;
    int64_t bytes = 0;
    const bool follows = at > 0;
    while (at < indexes.size() && jobs.size() < lane.batch_items() &&
           (jobs.empty() || bytes < options_.max_batch_bytes)) {
      store::NewJob& job = call->items[indexes[at]].job;
      bytes += BytesOf(job);
      jobs.push_back(std::move(job));
      taken.push_back(indexes[at++]);
    }
    lane.Add(
        queue, std::move(jobs), bytes,
        [this, call, queue, taken = std::move(taken)](EnqueueLane::Outcomes outcomes) {
          size_t open = 0;
          for (size_t i = 0; i < taken.size(); ++i) {
            const auto later = [call, at = taken[i]](store::EnqueueOutcome outcome) {
              call->outcomes[at] = std::move(outcome);
              call->Close(1);
            };
            if (outcomes.ok() && TryAgain(queue, (*outcomes)[i], call->deadline, later)) {
              ++open;
            } else if (outcomes.ok()) {
              call->outcomes[taken[i]] = std::move((*outcomes)[i]);
            } else {
              call->outcomes[taken[i]].status = outcomes.status();
            }
          }
          if (open < taken.size()) call->Close(taken.size() - open);
        },
        follows);
  }
}

}  // namespace tenure::engine
