// EngineImpl: jobs that wait for others, on their way in and when they are let go.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/engine/engine_impl.h"

namespace tenure::engine {
namespace {

bool IsNew(const store::EnqueueOutcome& outcome) {
  return outcome.status.ok() && !outcome.duplicate && !outcome.existing;
}

}  // namespace

void EngineImpl::NoteResolved(const store::ResolveResult& result) {
  if (result.xid != 0) own_.Note(result.xid);
  desk_.NoteReady(result.ready);
  TellOthers(result.ready);
  NoteScheduled(result.earliest_due);
  NoteGates(result.look);
  std::map<int32_t, int> cancelled;
  for (const store::JobId& id : result.ended) ++cancelled[id.queue];
  for (const auto& [queue, jobs] : cancelled) {
    Metrics::Add(metrics_.jobs_settled, {{"queue", directory_.Name(queue)}, {"outcome", "cancelled"}}, jobs);
  }
  waiters_.Ended(result.ended);
}

void EngineImpl::EnqueueGraph(std::vector<EnqueueItem> items, const QueueDirectory::Resolved& queues,
                              Callback<std::vector<store::EnqueueOutcome>> done) {
  std::vector<store::GraphJob> graph;
  for (EnqueueItem& item : items) {
    const auto& queue = queues.at(item.queue);
    store::GraphJob& job = graph.emplace_back();
    job.job = std::move(item.job);
    job.refused = queue.status();
    if (queue.ok()) job.queue = queue->id;
  }
  executor_.Post([this, graph = std::move(graph), done = std::move(done)]() mutable {
    std::vector<size_t> counted;
    const absl::Status shed = ShedFromGraph(graph, counted);
    auto result = shed.ok() ? store_.EnqueueGraph(graph) : absl::StatusOr<store::GraphResult>(shed);
    for (const size_t i : counted) {
      depth_.Answered(graph[i].queue, 1, result.ok() && IsNew(result->jobs[i]) ? 1 : 0);
    }
    if (!result.ok()) return done(result.status());
    if (result->xid != 0) own_.Note(result->xid);
    desk_.NoteReady(result->ready);
    TellOthers(result->ready);
    NoteScheduled(result->earliest_due);
    NoteGates(result->blocked);
    for (size_t i = 0; i < graph.size(); ++i) {
      if (graph[i].queue == 0 || !graph[i].refused.ok()) continue;  // Without a queue, or counted when it was shed.
      const store::EnqueueOutcome& outcome = result->jobs[i];
      Metrics::Add(metrics_.jobs_enqueued, {{"queue", directory_.Name(graph[i].queue)},
                                            {"outcome", !outcome.status.ok() ? "refused"
                                                        : outcome.duplicate  ? "duplicate"
                                                        : outcome.existing   ? "existing"
                                                                             : "accepted"}});
    }
    done(std::move(result->jobs));
  });
}

absl::Status EngineImpl::ShedFromGraph(std::vector<store::GraphJob>& graph, std::vector<size_t>& counted) {
  std::map<int32_t, std::vector<size_t>> by_queue;
  for (size_t i = 0; i < graph.size(); ++i) {
    if (graph[i].refused.ok()) by_queue[graph[i].queue].push_back(i);
  }
  for (const auto& [id, indexes] : by_queue) {
    const std::optional<store::Queue> queue = directory_.Find(id);
    if (!queue) continue;
    if (!queue->settings.max_depth && !queue->settings.max_tenant_depth) continue;
    std::vector<const store::NewJob*> jobs;
    for (const size_t at : indexes) jobs.push_back(&graph[at].job);
    TENURE_ASSIGN_OR_RETURN(Bounded bounded, WithinBounds(*queue, jobs));
    for (size_t i = 0; i < indexes.size(); ++i) graph[indexes[i]].refused = std::move(bounded.statuses[i]);
    for (const size_t i : bounded.counted) counted.push_back(indexes[i]);
  }
  return absl::OkStatus();
}

}  // namespace tenure::engine
