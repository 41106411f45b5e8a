#include "server/engine/ready_cursor.h"

#include <algorithm>

namespace tenure::engine {
namespace {

// Beyond so many side ranges they are made one: reading a few keys too many costs less than a long list.
constexpr size_t kMaxSides = 64;

store::Key Before(store::Key key) {
  // Ids are positive, so the key before (rank, id) in any order that matters is (rank, id - 1).
  return {key.rank, key.id - 1};
}

}  // namespace

void ReadyCursor::Add(store::Key low, store::Key high) {
  if (in_flight_) {
    late_.push_back({low, high});
  } else {
    Apply(low, high);
  }
}

void ReadyCursor::Apply(store::Key low, store::Key high) {
  if (high > main_) open_ = true;
  if (low > main_) return;
  const Range side{low, std::min(high, main_)};
  // Overlapping neighbours are common (a batch released and released again): keep one.
  for (Range& known : sides_) {
    if (side.low <= known.high && known.low <= side.high) {
      known.low = std::min(known.low, side.low);
      known.high = std::max(known.high, side.high);
      return;
    }
  }
  sides_.push_back(side);
  if (sides_.size() > kMaxSides) {
    Range all = sides_.front();
    for (const Range& range : sides_) {
      all.low = std::min(all.low, range.low);
      all.high = std::max(all.high, range.high);
    }
    sides_ = {all};
  }
}

std::vector<store::ClaimRange> ReadyCursor::Plan(int16_t priority, size_t limit) {
  std::vector<store::ClaimRange> ranges;
  main_first_ = main_waits_ && open_ && limit > 0;
  if (main_first_) ranges.push_back({priority, main_, store::kHighestKey});
  planned_sides_ = std::min(sides_.size(), limit - ranges.size());
  for (size_t i = 0; i < planned_sides_; ++i) ranges.push_back({priority, Before(sides_[i].low), sides_[i].high});
  planned_main_ = main_first_ || (open_ && ranges.size() < limit);
  if (planned_main_ && !main_first_) ranges.push_back({priority, main_, store::kHighestKey});
  in_flight_ = true;
  return ranges;
}

void ReadyCursor::Finish(bool ok, const store::ClaimResult::RangeRead* read, size_t count) {
  in_flight_ = false;
  if (ok) {
    std::vector<Range> left;
    const size_t first_side = main_first_ ? 1 : 0;
    for (size_t i = 0; i < planned_sides_ && first_side + i < count; ++i) {
      const auto& one = read[first_side + i];
      if (one.exhausted) continue;
      Range side = sides_[i];
      if (one.last) side.low = {one.last->rank, one.last->id + 1};
      if (side.low <= side.high) left.push_back(side);
    }
    left.insert(left.end(), sides_.begin() + static_cast<std::ptrdiff_t>(planned_sides_), sides_.end());
    sides_ = std::move(left);
    const size_t main_at = main_first_ ? 0 : planned_sides_;
    if (planned_main_ && main_at < count) {
      const auto& main = read[main_at];
      if (main.last) main_ = std::max(main_, *main.last);
      if (main.exhausted) open_ = false;
      main_waits_ = !main.exhausted && !main.last;
    }
  }
  planned_sides_ = 0;
  planned_main_ = false;
  std::vector<Range> late = std::move(late_);
  late_.clear();
  for (const Range& range : late) Apply(range.low, range.high);
}

store::Key ReadyCursor::Lowest() const {
  store::Key lowest = main_;
  for (const Range& side : sides_) lowest = std::min(lowest, Before(side.low));
  return lowest;
}

}  // namespace tenure::engine
