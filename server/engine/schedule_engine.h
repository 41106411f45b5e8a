// The engine's calls on schedules: one store call each, on the engine's threads. Layer: engine. Thread-safe; callbacks
// as for Engine, of which this is a part.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/store/schedules.h"

namespace tenure::engine {

class ScheduleEngine {
 public:
  template <typename T>
  using ScheduleCallback = std::function<void(absl::StatusOr<T>)>;

  virtual ~ScheduleEngine() = default;

  // The schedule's queue is made if it does not exist, unless Options::create_queues is off: QUEUE_NOT_FOUND then. The
  // rest as the store's methods of the same names.
  virtual void CreateSchedule(std::string name, store::ScheduleSettings settings, bool paused,
                              ScheduleCallback<store::Schedule> done) = 0;
  virtual void UpdateSchedule(std::string name, store::ScheduleSettings settings, std::set<std::string> fields,
                              ScheduleCallback<store::Schedule> done) = 0;
  virtual void GetSchedule(std::string name, ScheduleCallback<store::Schedule> done) = 0;
  virtual void ListSchedules(std::string after_name, std::string prefix, int limit,
                             ScheduleCallback<std::vector<store::Schedule>> done) = 0;
  // `true` when it is gone.
  virtual void DeleteSchedule(std::string name, ScheduleCallback<bool> done) = 0;
  virtual void SetSchedulePaused(std::string name, bool paused, ScheduleCallback<store::Schedule> done) = 0;
  virtual void TriggerSchedule(std::string name, std::string request_id,
                               ScheduleCallback<store::TriggeredJob> done) = 0;
};

}  // namespace tenure::engine
