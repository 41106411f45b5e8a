// What a queue whose tenants take turns lets pass: reads clock and tenants, has FairChoice choose, and writes down what
// turns were taken. Layer: store/postgres. Values; the caller holds the queue's turn to admit.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "server/store/fair_choice.h"
#include "server/store/postgres/connection.h"

namespace tenure::store::postgres {

struct FairTurn {
  std::vector<FairPick> picks;  // To become ready, each with its rank. They stand at the queue's gate.
  bool again = false;           // More could pass at once.
  bool anyone_left = false;
};

// At most `allowance` pass, and no more than make `window` ready ones.
absl::StatusOr<FairTurn> TakeFairTurn(Transaction& tx, int32_t queue, int64_t allowance, int64_t window);

}  // namespace tenure::store::postgres
