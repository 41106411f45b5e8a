// Where the claims of one (queue, priority) read on. Layer: engine. Not thread-safe: ClaimDesk guards it.
//
// Whatever is consumed from its head leaves dead index entries there, and reading from the head again and again passes
// over all of them whenever vacuum is held back. So a claim reads beyond the last key that was read (the main cursor),
// and what appears behind it is told by events: every transaction that makes rows ready names the lowest and highest
// key it touched, and once it is visible its stretch is read by a side range, while the main cursor stays where it is.
//
// The order of things is what makes it exact. A stretch is added once its transaction is visible to this process (its
// event was read, or its own commit returned), so a claim planned after that sees its rows. A claim in flight may have
// begun before: stretches that come meanwhile are kept apart and applied to the cursor as the claim leaves it. What a
// claim read but did not get (another transaction held the row, and may roll back) is looked at again by id: the caller
// keeps those.
#pragma once

#include <optional>
#include <vector>

#include "server/store/types.h"

namespace tenure::engine {

class ReadyCursor {
 public:
  // A new cursor has nothing open; Reset opens it from the lowest key.
  void Reset() {
    main_ = store::kLowestKey;
    open_ = true;
    sides_.clear();
    late_.clear();
  }

  // The keys in [low, high] may be ready and are visible to every statement from now on.
  void Add(store::Key low, store::Key high);

  // True if a claim may find something.
  bool MaybeReady() const { return open_ || !sides_.empty(); }

  // The stretches to read: side ranges, the oldest first, then what lies beyond the main cursor, which comes
  // first if the claim before did not get to it. (What was admitted has a higher rank than what is enqueued as ready,
  // so of a queue with both one is beyond the cursor and the other beside it, and must not wait for the other's
  // backlog.) A claim is then in flight until Finish; at most one at a time.
  std::vector<store::ClaimRange> Plan(int16_t priority, size_t limit);
  // How far each planned stretch was read. `ok` false: the claim failed, nothing is known to be read.
  void Finish(bool ok, const store::ClaimResult::RangeRead* read, size_t count);

  store::Key main() const { return main_; }
  // The lowest key at which something may be ready; for asking how old it is.
  store::Key Lowest() const;

 private:
  struct Range {
    store::Key low;   // Inclusive.
    store::Key high;  // Inclusive.
  };
  void Apply(store::Key low, store::Key high);

  store::Key main_ = store::kLowestKey;
  bool open_ = false;  // Something may be ready beyond main_.
  std::vector<Range> sides_;
  bool in_flight_ = false;
  size_t planned_sides_ = 0;
  bool planned_main_ = false;
  bool main_first_ = false;  // In the claim that is planned.
  bool main_waits_ = false;  // The last claim was full before it got to the main cursor.
  std::vector<Range> late_;  // Came while a claim was in flight.
};

}  // namespace tenure::engine
