// Schedules' messages to the store's structs, with all validation, and back. As conversion.h, of which it is the part
// for ScheduleService. Layer: rpc. Thread-safe: values only.
#pragma once

#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "server/rpc/field_rules.h"
#include "server/store/schedules.h"
#include "tenure/v1/schedule_service.pb.h"

namespace tenure::rpc {

inline constexpr int32_t kMaxCatchUp = 100;

// For CreateSchedule: what is required must be there. Moves strings out of `spec`.
absl::StatusOr<store::ScheduleSettings> ScheduleFrom(v1::ScheduleSpec& spec, const Limits& limits);

// For UpdateSchedule: `fields` is set to the names of the fields that change.
absl::StatusOr<store::ScheduleSettings> ScheduleUpdateFrom(v1::UpdateScheduleRequest& request, const Limits& limits,
                                                           std::set<std::string>& fields);

// `upcoming`: how many of the next slots to name. Moves.
void ToProto(store::Schedule&& schedule, int upcoming, v1::Schedule* out);

}  // namespace tenure::rpc
