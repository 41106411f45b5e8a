#include "server/store/postgres/job_params.h"

#include <algorithm>

namespace tenure::store::postgres {

void NoteBlocked(const NewJob& job, GateNames& names) {
  for (const std::string& key : job.concurrency_keys) names.push_back("k" + key);
  if (!job.group.empty()) names.push_back("g" + job.group);
  names.emplace_back("q");
}

void AddToRange(std::map<int16_t, ReadyRange>& ranges, int32_t queue, int16_t priority, Key key) {
  auto [range, fresh] = ranges.try_emplace(priority);
  if (fresh) range->second = {queue, priority, key, key, 0};
  range->second.low = std::min(range->second.low, key);
  range->second.high = std::max(range->second.high, key);
  ++range->second.count;
}

AcceptedReader::AcceptedReader(const Result& rows)
    : rows_(rows),
      id_(rows.Column("id")),
      day_(rows.Column("day")),
      priority_(rows.Column("priority")),
      due_in_(rows.Column("due_in")),
      xid_(rows.Column("xid")),
      gate_(rows.Column("gate")),
      waits_(rows.Column("waits")) {}

JobState AcceptedReader::StateOf(int row) const {
  if (rows_.Bool(row, waits_)) return JobState::kBlocked;
  if (rows_.Double(row, due_in_) > 0) return JobState::kScheduled;
  return rows_.IsNull(row, gate_) ? JobState::kReady : JobState::kBlocked;
}

void AcceptedReader::Note(int32_t queue, EnqueueResult& result) const {
  std::map<int16_t, ReadyRange> ready;
  for (int row = 0; row < rows_.rows(); ++row) {
    result.xid = static_cast<uint64_t>(rows_.Int(row, xid_));
    const JobState state = StateOf(row);
    if (state == JobState::kScheduled) {
      const absl::Duration from_now = absl::Seconds(rows_.Double(row, due_in_));
      if (!result.earliest_due || from_now < *result.earliest_due) result.earliest_due = from_now;
    } else if (state == JobState::kReady) {
      AddToRange(ready, queue, static_cast<int16_t>(rows_.Int(row, priority_)), {0, rows_.Int(row, id_)});
    }
  }
  for (const auto& [unused, range] : ready) result.ready.push_back(range);
}

}  // namespace tenure::store::postgres
