// What `tenurectl doctor` shows: the facts about the database, each with a verdict and, where something is wrong, what
// to do. Layer: rpc. Thread-safe: values only.
#pragma once

#include "absl/status/status.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "server/store/types.h"
#include "tenure/v1/admin_service.pb.h"

namespace tenure::rpc {

using Findings = google::protobuf::RepeatedPtrField<v1::Finding>;

// One finding for each check, in a fixed order, the good ones too.
void Diagnose(const store::DatabaseInfo& info, Findings* out);
// When the database could not be asked.
void DiagnoseUnreachable(const absl::Status& status, Findings* out);

}  // namespace tenure::rpc
