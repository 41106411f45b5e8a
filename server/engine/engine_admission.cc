// EngineImpl: limits, and what is handed to the admission desk.
#include <utility>

#include "server/engine/engine_impl.h"

namespace tenure::engine {
namespace {

constexpr int kSweepPage = 1000;
constexpr int kGroupSort = 5;  // Of BlockedPage::Cursor.

}  // namespace

void EngineImpl::LookAtGates(int32_t queue, store::GateNames names) {
  if (names.empty()) return;
  // Few queues have a gate of their own; and statements name it without asking.
  const auto known = directory_.Find(queue);
  if (!known || !known->gated) std::erase(names, "q");
  admission_.Look(queue, names);
}

void EngineImpl::NoteGates(const store::GatesByQueue& gates) {
  for (const auto& [queue, names] : gates) LookAtGates(queue, names);
}

void EngineImpl::NoteAdmitted(int32_t queue, const store::AdmitResult& result) {
  if (result.admitted == 0) return;
  Metrics::Add(metrics_.jobs_admitted, {{"queue", directory_.Name(queue)}}, result.admitted);
  own_.Note(result.xid);
  desk_.NoteReady(result.ready);
  TellOthers(result.ready);
}

// After a limit was raised, or taken away: who waits for keys that begin so.
void EngineImpl::LookAtPrefix(int32_t queue, const std::string& prefix) {
  for (int sort = 1; sort <= store::kMaxKeys; ++sort) LookAtNames(queue, sort, prefix);
}

void EngineImpl::LookAtGroups(int32_t queue) { LookAtNames(queue, kGroupSort, ""); }

// At all names of a sort (BlockedPage::Cursor) of a queue that begin so.
void EngineImpl::LookAtNames(int32_t queue, int sort, const std::string& prefix) {
  store::BlockedPage::Cursor at{sort, queue, prefix};
  for (bool more = true; more;) {
    auto page = store_.BlockedNames(at, kSweepPage);
    if (!page.ok()) return;  // The sweep finds them.
    store::GateNames names;
    for (const std::string& name : page->names[queue]) {
      if (name.starts_with((sort == kGroupSort ? "g" : "k") + prefix)) names.push_back(name);
    }
    admission_.Look(queue, names);
    more = page->next && page->next->sort == sort && page->next->queue == queue && page->next->name.starts_with(prefix);
    if (more) at = *page->next;
  }
}

void EngineImpl::LookAfter(int32_t queue, store::LimitScope scope, const std::string& key) {
  if (scope == store::LimitScope::kPrefix) return LookAtPrefix(queue, key);
  if (scope == store::LimitScope::kTenant) return;  // Weights let nobody pass who would not.
  admission_.Look(queue, {scope == store::LimitScope::kQueue ? std::string("q") : "k" + key});
}

void EngineImpl::SetLimit(std::string queue, store::LimitScope scope, std::string key, store::LimitSettings settings,
                          LimitCallback<store::Limit> done) {
  executor_.Post([this, queue = std::move(queue), scope, key = std::move(key), settings,
                  done = Tracked<store::Limit>(std::move(done))] {
    auto row = store_.EnsureQueue(queue, options_.create_queues);
    if (!row.ok()) return done(row.status());
    directory_.LearnIfNew(*row);
    auto limit = store_.SetLimit(row->id, scope, key, settings);
    if (!limit.ok()) return done(limit.status());
    if (scope == store::LimitScope::kQueue) {
      row->gated = true;
      directory_.Learn(*row);
    }
    LookAfter(row->id, scope, key);
    done(std::move(limit));
  });
}

void EngineImpl::GetLimit(std::string queue, store::LimitScope scope, std::string key,
                          LimitCallback<store::Limit> done) {
  executor_.Post(
      [this, queue = std::move(queue), scope, key = std::move(key), done = Tracked<store::Limit>(std::move(done))] {
        auto row = store_.EnsureQueue(queue, /*create=*/false);
        if (!row.ok()) return done(row.status());
        done(store_.FindLimit(row->id, scope, key));
      });
}

void EngineImpl::ListLimits(std::string queue, store::LimitScope after_scope, std::string after_key, int limit,
                            LimitCallback<std::vector<store::Limit>> done) {
  executor_.Post([this, queue = std::move(queue), after_scope, after_key = std::move(after_key), limit,
                  done = Tracked<std::vector<store::Limit>>(std::move(done))] {
    auto row = store_.EnsureQueue(queue, /*create=*/false);
    if (!row.ok()) return done(row.status());
    done(store_.ListLimits(row->id, after_scope, after_key, limit));
  });
}

void EngineImpl::DeleteLimit(std::string queue, store::LimitScope scope, std::string key, LimitCallback<bool> done) {
  executor_.Post([this, queue = std::move(queue), scope, key = std::move(key), done = Tracked<bool>(std::move(done))] {
    auto row = store_.EnsureQueue(queue, /*create=*/false);
    if (!row.ok()) return done(row.status());
    if (absl::Status gone = store_.DeleteLimit(row->id, scope, key); !gone.ok()) return done(gone);
    LookAfter(row->id, scope, key);
    done(true);
  });
}

void EngineImpl::Explain(const store::JobId& id, LimitCallback<store::Explanation> done) {
  executor_.Post([this, id, done = Tracked<store::Explanation>(std::move(done))] {
    auto explanation = store_.Explain(id);
    if (explanation.ok()) {
      store::Job* job = &explanation->job;
      if (absl::Status known = KnowQueues({&job, 1}); !known.ok()) return done(known);
    }
    done(std::move(explanation));
  });
}

}  // namespace tenure::engine
