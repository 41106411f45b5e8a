// What targets are sent of an event: one JSON object, the same bytes for the same event always. Layer:
// background/targets. Thread-safe: functions of values.
#pragma once

#include <string>

#include "server/store/targets.h"

namespace tenure::background::targets {

// {"id":"1-20786-1.completed","type":"completed","time":"...","job":{...}}; field names as in the API's JSON. Without a
// newline.
std::string EventJson(const store::JobEvent& event);

// RFC 3339 in UTC with microseconds.
std::string TimeText(absl::Time time);

}  // namespace tenure::background::targets
