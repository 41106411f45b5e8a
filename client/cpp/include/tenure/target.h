// Targets: where the daemon sends the events of jobs, and copies of jobs. Public header of tenure::client; no gRPC or
// protobuf types. Thread-safety: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tenure/types.h"

namespace tenure::client {

enum class TargetPurpose { kNotify = 1, kEventLog = 2, kExport = 3, kInventory = 4, kRelay = 5 };
enum class JobOutcome { kCompleted = 1, kDiscarded = 2, kCancelled = 3, kExpired = 4 };

// What a target's owner decides; proto/tenure/v1/target_service.proto has each field's rule.
struct TargetSpec {
  TargetPurpose purpose = TargetPurpose::kNotify;
  std::string url;                  // Required.
  std::vector<std::string> queues;  // Default: all.
  std::vector<JobOutcome> events;   // Default: all.
  std::optional<Duration> interval;
  int min_age_days = 0;  // 0: 30.
  std::string secret;    // Never returned.
  std::string region, endpoint;
  std::string description;
  std::string cron;       // Of an inventory, instead of an interval.
  std::string time_zone;  // Of `cron`. Default UTC.
};

// What UpdateTarget changes: the fields that are set.
struct TargetChange {
  std::optional<std::string> url;
  std::optional<std::vector<std::string>> queues;
  std::optional<std::vector<JobOutcome>> events;
  std::optional<Duration> interval;
  std::optional<int> min_age_days;
  std::optional<std::string> secret, region, endpoint, description, cron, time_zone;
};

// A target as the daemon knows it.
struct Target {
  std::string name;
  TargetSpec spec;  // Defaults filled in, without the secret.
  bool has_secret = false;
  bool paused = false;
  int64_t events_total = 0;
  int64_t waiting_deliveries = 0, dead_deliveries = 0;  // Not from ListTargets.
  std::optional<Time> last_success_time;
  std::string last_error;  // Empty: all is well.
  std::optional<Time> last_error_time;
  std::optional<Time> create_time, update_time;
};

struct TargetPage {
  std::vector<Target> targets;
  std::string next_page_token;
};

// An event that was given up.
struct DeadDelivery {
  int64_t id = 0;
  std::string event_id;
  int attempts = 0;
  std::optional<Time> first_failure_time, last_failure_time;
  std::string last_error;
  std::string body;  // What was sent: JSON.
};

struct DeadDeliveryPage {
  std::vector<DeadDelivery> deliveries;
  std::string next_page_token;
};

}  // namespace tenure::client
