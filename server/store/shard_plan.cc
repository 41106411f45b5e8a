// PlanShards, FailShard, FormatShards: see the header. Layer: store.
#include <algorithm>
#include <array>
#include <optional>

#include "absl/strings/str_cat.h"
#include "server/store/shards.h"

namespace tenure::store {
namespace {

constexpr absl::Duration kHealthy = absl::Minutes(5);
constexpr std::array<int, 4> kRests = {1, 5, 30, 120};  // Seconds.

struct Part {
  int32_t first = 0;
  int32_t last = -1;  // Empty.
  bool Contains(int32_t from, int32_t to) const { return first <= from && to <= last; }
};

Part PartOf(std::span<const int32_t> members, int32_t self) {
  const auto at = std::find(members.begin(), members.end(), self);
  if (at == members.end()) return {};
  const auto index = static_cast<int32_t>(at - members.begin()), count = static_cast<int32_t>(members.size());
  return {index * kShards / count, (index + 1) * kShards / count - 1};
}

bool IsHeld(const ShardRow& row, absl::Time now) { return row.replica != 0 && row.expires > now; }

// The pieces of `row` that lie within the part, or outside it.
std::vector<ShardRow> Cut(const ShardRow& row, const Part& part) {
  std::vector<ShardRow> pieces;
  int32_t from = row.first;
  const auto cut_before = [&](int32_t at) {
    if (at <= from || at > row.last) return;
    pieces.push_back(row);
    pieces.back().first = from;
    pieces.back().last = at - 1;
    from = at;
  };
  if (part.first <= part.last) {
    cut_before(part.first);
    cut_before(part.last + 1);
  }
  pieces.push_back(row);
  pieces.back().first = from;
  return pieces;
}

// A row that failed stands alone until it has been well for long enough.
bool IsSound(const ShardRow& row, absl::Time now) { return row.failures == 0 || now - row.since >= kHealthy; }

void Free(ShardRow& row) {
  row.replica = 0;
  row.since = row.expires = absl::InfinitePast();
}

// A piece of the new division, and the rows that it was made of.
struct Piece {
  ShardRow row;
  size_t first_source = 0;
  size_t last_source = 0;
  bool changed = false;
};

}  // namespace

ShardChange PlanShards(std::span<const ShardRow> rows, std::span<const int32_t> members, int32_t self, absl::Time now) {
  const Part part = PartOf(members, self);
  std::vector<Piece> pieces;
  for (size_t source = 0; source < rows.size(); ++source) {
    const ShardRow& row = rows[source];
    const bool held = IsHeld(row, now);
    if (held && row.replica != self) {
      pieces.push_back({row, source, source, false});
      continue;
    }
    const std::vector<ShardRow> cuts = Cut(row, part);
    for (ShardRow piece : cuts) {
      const bool mine = part.Contains(piece.first, piece.last);
      bool changed = false;
      if (held && !mine) {
        Free(piece);
        changed = true;
      } else if (!held && mine && piece.retry <= now) {
        piece.replica = self;
        piece.since = now;
        ++piece.term;
        changed = true;
      }
      // A cut that changes nothing is none: what is free outside the part is its owner's to cut.
      const bool was_cut = cuts.size() > 1;
      pieces.push_back({piece, source, source, changed || was_cut});
    }
  }
  // Rows that were cut without need are put together again.
  std::vector<Piece> joined;
  for (Piece& piece : pieces) {
    Piece* before = joined.empty() ? nullptr : &joined.back();
    if (before != nullptr && before->row.replica == self && piece.row.replica == self &&
        part.Contains(before->row.first, piece.row.last) && IsSound(before->row, now) && IsSound(piece.row, now)) {
      before->row.last = piece.row.last;
      // Above both: whoever still writes under one of them is refused.
      before->row.term = std::max(before->row.term, piece.row.term) + 1;
      before->row.since = std::min(before->row.since, piece.row.since);
      before->row.failures = 0;
      before->row.last_error.clear();
      before->row.retry = absl::InfinitePast();
      before->last_source = piece.last_source;
      before->changed = true;
      continue;
    }
    joined.push_back(std::move(piece));
  }
  // A row goes out with all that was made of it, and with whatever else that was made of.
  ShardChange change;
  for (size_t begin = 0; begin < joined.size();) {
    size_t end = begin + 1;
    bool changed = joined[begin].changed;
    while (end < joined.size() && joined[end].first_source <= joined[end - 1].last_source) {
      changed = changed || joined[end].changed;
      ++end;
    }
    if (changed) {
      for (size_t source = joined[begin].first_source; source <= joined[end - 1].last_source; ++source) {
        change.remove.push_back(rows[source]);
      }
      for (size_t at = begin; at < end; ++at) change.add.push_back(joined[at].row);
    }
    begin = end;
  }
  if (change.remove == change.add) return {};
  return change;
}

ShardChange FailShard(const ShardRow& row, int shard, std::string error, absl::Time now) {
  ShardChange change{{row}, {}};
  if (row.first < shard) {
    change.add.push_back(row);
    change.add.back().last = shard - 1;
  }
  ShardRow failed = row;
  failed.first = failed.last = shard;
  const int before = now - row.since >= kHealthy ? 0 : row.failures;
  failed.failures = before + 1;
  failed.retry = now + absl::Seconds(kRests[std::min<size_t>(static_cast<size_t>(before), kRests.size() - 1)]);
  failed.last_error = std::move(error);
  Free(failed);
  change.add.push_back(std::move(failed));
  if (shard < row.last) {
    change.add.push_back(row);
    change.add.back().first = shard + 1;
  }
  return change;
}

std::string FormatShards(std::span<const ShardRow> rows) {
  std::string text;
  for (size_t at = 0; at < rows.size();) {
    const int32_t first = rows[at].first;
    int32_t last = rows[at].last;
    for (++at; at < rows.size() && rows[at].first == last + 1; ++at) last = rows[at].last;
    absl::StrAppend(&text, text.empty() ? "" : ", ", first);
    if (last > first) absl::StrAppend(&text, "-", last);
  }
  return text;
}

}  // namespace tenure::store
