// EngineImpl: schedules. Layer: engine. Thread-safe.
#include <utility>

#include "server/base/status.h"
#include "server/engine/engine_impl.h"

namespace tenure::engine {

void EngineImpl::CreateSchedule(std::string name, store::ScheduleSettings settings, bool paused,
                                Callback<store::Schedule> done) {
  executor_.Post(
      [this, name = std::move(name), settings = std::move(settings), paused, done = Tracked(std::move(done))] {
        const absl::StatusOr<store::Queue> queue = store_.EnsureQueue(settings.queue, options_.create_queues);
        if (!queue.ok()) return done(queue.status());
        directory_.LearnIfNew(*queue);
        done(store_.CreateSchedule(name, settings, queue->id, paused));
      });
}

void EngineImpl::UpdateSchedule(std::string name, store::ScheduleSettings settings, std::set<std::string> fields,
                                Callback<store::Schedule> done) {
  executor_.Post([this, name = std::move(name), settings = std::move(settings), fields = std::move(fields),
                  done = Tracked(std::move(done))] {
    int32_t id = 0;
    if (fields.contains("job")) {
      const absl::StatusOr<store::Queue> queue = store_.EnsureQueue(settings.queue, options_.create_queues);
      if (!queue.ok()) return done(queue.status());
      directory_.LearnIfNew(*queue);
      id = queue->id;
    }
    done(store_.UpdateSchedule(name, settings, id, fields));
  });
}

void EngineImpl::GetSchedule(std::string name, Callback<store::Schedule> done) {
  executor_.Post([this, name = std::move(name), done = Tracked(std::move(done))] { done(store_.GetSchedule(name)); });
}

void EngineImpl::ListSchedules(std::string after_name, std::string prefix, int limit,
                               Callback<std::vector<store::Schedule>> done) {
  executor_.Post([this, after_name = std::move(after_name), prefix = std::move(prefix), limit,
                  done = Tracked(std::move(done))] { done(store_.ListSchedules(after_name, prefix, limit)); });
}

void EngineImpl::DeleteSchedule(std::string name, Callback<bool> done) {
  executor_.Post([this, name = std::move(name), done = Tracked(std::move(done))] {
    const absl::Status gone = store_.DeleteSchedule(name);
    if (!gone.ok()) return done(gone);
    done(true);
  });
}

void EngineImpl::SetSchedulePaused(std::string name, bool paused, Callback<store::Schedule> done) {
  executor_.Post([this, name = std::move(name), paused, done = Tracked(std::move(done))] {
    done(store_.SetSchedulePaused(name, paused));
  });
}

void EngineImpl::TriggerSchedule(std::string name, std::string request_id, Callback<store::TriggeredJob> done) {
  executor_.Post([this, name = std::move(name), request_id = std::move(request_id), done = Tracked(std::move(done))] {
    std::vector<store::ReadyRange> ready;
    absl::StatusOr<store::TriggeredJob> job = store_.TriggerSchedule(name, request_id, &ready);
    if (job.ok() && !ready.empty()) desk_.NoteReady(ready);
    done(std::move(job));
  });
}

}  // namespace tenure::engine
