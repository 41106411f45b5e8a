// Events as JSON: see the header. Layer: background/targets.
#include "server/background/targets/event_json.h"

#include "nlohmann/json.hpp"

namespace tenure::background::targets {

std::string TimeText(absl::Time time) { return absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", time, absl::UTCTimeZone()); }

std::string EventJson(const store::JobEvent& event) {
  nlohmann::ordered_json job = {{"id", event.job.ToString()},
                                {"queue", event.queue},
                                {"kind", event.kind},
                                {"attempt", event.attempt},
                                {"failures", event.failures},
                                {"crashes", event.crashes},
                                {"createTime", TimeText(event.created)}};
  if (event.started) job["startTime"] = TimeText(*event.started);
  job["endTime"] = TimeText(event.ended);
  job["effectKey"] = event.effect_key;
  if (!event.tenant.empty()) job["tenant"] = event.tenant;
  if (!event.retry_of.empty()) job["retryOf"] = event.retry_of;
  if (!event.headers.empty()) job["headers"] = event.headers;
  if (!event.error_message.empty() || !event.error_type.empty()) {
    job["error"] = {{"message", event.error_message}, {"type", event.error_type}};
  }
  const nlohmann::ordered_json out = {{"id", event.Id()},
                                      {"type", std::string(store::OutcomeName(event.state))},
                                      {"time", TimeText(event.ended)},
                                      {"job", std::move(job)}};
  // Texts were checked when they came in; what is not UTF-8 all the same must not throw.
  return out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace tenure::background::targets
