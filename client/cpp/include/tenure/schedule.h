// Schedules: jobs that the daemon makes again and again, by a cron expression or at a fixed distance. Public header of
// tenure::client; no gRPC or protobuf types. Thread-safety: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tenure/types.h"

namespace tenure::client {

// What happens to a slot while the job of the slot before has not ended.
enum class OverlapPolicy {
  kDefault = 0,         // kAllow.
  kAllow = 1,           // Its job is made all the same.
  kSkip = 2,            // It is skipped, and counted.
  kCancelPrevious = 3,  // The job before is cancelled.
};

// What a schedule's owner decides. One of `cron` and `interval`, and job.queue and job.kind, are required.
struct ScheduleSpec {
  std::string cron;                  // Five fields, or @hourly, @daily, @weekly, @monthly, @yearly. At most 256 bytes.
  std::optional<Duration> interval;  // From 1 s to 366 days.
  std::string time_zone;             // Of `cron`: an IANA name. Default UTC.
  // What each slot makes. Without due_time, delay, expire_time, idempotency key and effect_key.
  JobSpec job;
  OverlapPolicy overlap_policy = OverlapPolicy::kDefault;
  std::optional<int> catch_up;  // How many missed slots run. Default 1; from 0 to 100.
  std::string description;      // At most 1,024 bytes.
};

// What UpdateSchedule changes: the fields that are set.
struct ScheduleChange {
  std::optional<std::string> cron;
  std::optional<Duration> interval;
  std::optional<std::string> time_zone;
  std::optional<JobSpec> job;  // As a whole.
  std::optional<OverlapPolicy> overlap_policy;
  std::optional<int> catch_up;
  std::optional<std::string> description;
};

// A schedule as the daemon knows it.
struct Schedule {
  std::string name;
  ScheduleSpec spec;  // Defaults filled in; ListSchedules leaves the payload out.
  bool paused = false;
  std::optional<Time> next_time;     // The next slot; unset while paused.
  std::vector<Time> upcoming_times;  // The next slots, at most five. Not from ListSchedules.
  std::optional<Time> last_time;     // The last slot that made a job, ...
  std::string last_job_id;           // ... and that job.
  int64_t fired_total = 0;
  int64_t skipped_missed_total = 0;
  int64_t skipped_overlap_total = 0;
  std::optional<Time> create_time;
  std::optional<Time> update_time;
};

struct SchedulePage {
  std::vector<Schedule> schedules;
  std::string next_page_token;
};

}  // namespace tenure::client
