// How jobs are shown: a row in a list, all fields of one. Both say who holds a job, until when, under which token
// number. Layer: client/cli. Not thread-safe.
#pragma once

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cli/context.h"
#include "client/cli/output.h"
#include "tenure/v1/job.pb.h"

namespace tenure::cli {

Table MakeJobTable();
void AddJobRow(Table& table, const v1::Job& job, absl::Time now);

// All that is known about a job, as fields.
void PrintJob(std::ostream& out, const v1::Job& job, absl::Time now);

// The bytes of a payload or result, whichever way they travelled.
const std::string& BytesOf(const v1::Payload& payload);

// Waits until the job has ended or `limit` has passed, through lost connections that last no longer than the call
// timeout. Answers the job as it stands then.
absl::StatusOr<v1::Job> WaitForJob(Context& context, const std::string& id, absl::Duration limit);

}  // namespace tenure::cli
