// Targets' messages to the store's structs, with all validation, and back. As conversion.h, of which it is the part for
// TargetService. Layer: rpc. Thread-safe: values only.
#pragma once

#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "server/rpc/field_rules.h"
#include "server/store/targets.h"
#include "tenure/v1/target_service.pb.h"

namespace tenure::rpc {

// For CreateTarget: a whole, sound target. Moves strings out of `spec`.
absl::StatusOr<store::TargetSettings> TargetFrom(v1::TargetSpec& spec);

// For UpdateTarget: `fields` is set to the names of the fields that change. What comes out has to pass CheckTarget.
absl::StatusOr<store::TargetSettings> TargetUpdateFrom(v1::UpdateTargetRequest& request, std::set<std::string>& fields);

// Whether the fields go with the purpose and each other; the error names the field.
absl::Status CheckTarget(const store::TargetSettings& settings);

// Moves. Without the secret.
void ToProto(store::Target&& target, v1::Target* out);
void ToProto(store::Delivery&& delivery, v1::DeadDelivery* out);

}  // namespace tenure::rpc
