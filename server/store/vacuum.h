// What the database says of its own upkeep: who holds vacuum back, what is dead in the hot tables, and which indexes
// have grown beyond what they hold. Layer: store. Plain values, and the part of the store that acts on them.
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/store/types.h"

namespace tenure::store {

class VacuumStore {
 public:
  virtual ~VacuumStore() = default;

  struct IndexWorkLimits {
    absl::Duration lock = absl::Seconds(2);  // Waits for a lock no longer: others queue up behind who waits for one.
    absl::Duration total = absl::Minutes(30);
  };
  // Builds the index of tenure's schema anew beside the old one and puts it in its place; reads and writes go on. It is
  // no one statement that could compare a term: the term is looked at before, and if two replicas should do it at once
  // the second waits for a lock and gives up. Cut short (`stop`, a limit, a crash) it leaves an invalid index behind,
  // which DropLeftoverIndex removes. FAILED_PRECONDITION / TERM_OVER; FAILED_PRECONDITION / NEEDS_DIRECT_CONNECTION
  // behind a transaction pooler; NOT_FOUND if there is no such index.
  virtual absl::Status RebuildIndex(const Fence& fence, std::string_view index, const IndexWorkLimits& limits,
                                    const std::stop_token& stop) = 0;
  // Removes an index that a rebuild left behind, if it is one and nobody builds on its table now; OK if it is gone.
  // Errors as above.
  virtual absl::Status DropLeftoverIndex(const Fence& fence, std::string_view index, const IndexWorkLimits& limits,
                                         const std::stop_token& stop) = 0;
};

}  // namespace tenure::store
