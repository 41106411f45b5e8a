// Rows of targets, deliveries and the outbox as structs. Layer: store/postgres. Thread-safe: functions of values.
#pragma once

#include <vector>

#include "server/store/postgres/result.h"
#include "server/store/targets.h"

namespace tenure::store::postgres {

// Of find_target.sql, list_targets.sql, lock_target.sql and load_targets.sql: what a statement does not select is left
// at its default.
Target ReadTarget(const Result& result, int row);
std::vector<int32_t> ReadQueueIds(const Result& result, int row);

// Rows of tenure.delivery; those without an id are left out.
std::vector<Delivery> ReadDeliveries(const Result& result);

// A row of read_outbox.sql.
JobEvent ReadEvent(const Result& result, int row);

}  // namespace tenure::store::postgres
