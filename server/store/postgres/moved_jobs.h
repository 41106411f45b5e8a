// Where jobs are that were moved: the one place that reads the links of moves (tenure.forward). Layer: store/postgres.
// Not thread-safe; one transaction.
#pragma once

#include <map>
#include <span>

#include "absl/status/statusor.h"
#include "server/store/postgres/connection.h"
#include "server/store/types.h"

namespace tenure::store::postgres {

// Of `ids` those that were moved, each with the job that it became last, over any number of moves. Look after the live
// rows were read: a move takes a job from these and writes the link at once.
absl::StatusOr<std::map<JobId, JobId>> MovedTo(Transaction& tx, std::span<const JobId> ids);

}  // namespace tenure::store::postgres
