// PostgresStore: events, counts and the cursors' start.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/base/status.h"
#include "server/store/postgres/postgres_store.h"
#include "server/store/postgres/snapshot.h"
#include "statements.sql.h"

namespace tenure::store::postgres {
namespace {

enum EventType : int64_t { kReady = 1, kCounts = 2, kNotice = 3, kQueueChanged = 4, kAdmit = 5 };

class CountsReader {
 public:
  explicit CountsReader(const Result& r)
      : r_(r),
        scheduled_(r.Column("scheduled")),
        blocked_(r.Column("blocked")),
        ready_(r.Column("ready")),
        leased_(r.Column("leased")),
        suspended_(r.Column("suspended")),
        completed_(r.Column("completed")),
        discarded_(r.Column("discarded")),
        cancelled_(r.Column("cancelled")),
        expired_(r.Column("expired")),
        enqueued_(r.Column("enqueued")) {}
  QueueCounts Read(int row) const {
    return {r_.Int(row, scheduled_), r_.Int(row, blocked_),   r_.Int(row, ready_),     r_.Int(row, leased_),
            r_.Int(row, suspended_), r_.Int(row, completed_), r_.Int(row, discarded_), r_.Int(row, cancelled_),
            r_.Int(row, expired_),   r_.Int(row, enqueued_)};
  }

 private:
  const Result& r_;
  int scheduled_, blocked_, ready_, leased_, suspended_, completed_, discarded_, cancelled_, expired_, enqueued_;
};

}  // namespace

absl::StatusOr<Store::Start> PostgresStore::ReadStart() {
  Start start;
  {
    TENURE_ASSIGN_OR_RETURN(Result rows, RunOne("read_start", sql::kReadStart, Params()));
    const CountsReader counts(rows);
    const int queue = rows.Column("queue_id");
    for (int row = 0; row < rows.rows(); ++row) {
      start.snapshot = rows.Text(row, 0);
      if (!rows.IsNull(row, queue)) start.counts[rows.Int32(row, queue)] = counts.Read(row);
    }
  }
  // Read after the snapshot: what becomes ready between the two comes as an event as well.
  TENURE_ASSIGN_OR_RETURN(Result heads, RunOne("ready_heads", sql::kReadyHeads, Params()));
  for (int row = 0; row < heads.rows(); ++row) {
    start.ready.emplace_back(heads.Int32(row, 0), static_cast<int16_t>(heads.Int(row, 1)));
  }
  return start;
}

absl::StatusOr<EventBatch> PostgresStore::ReadEvents(std::string_view snapshot) {
  TENURE_ASSIGN_OR_RETURN(const Snapshot since, Snapshot::Parse(snapshot));
  TENURE_ASSIGN_OR_RETURN(Result rows,
                          RunOne("read_events", sql::kReadEvents, Params().Add(since.InProgress()).Add(since.Xmax())));
  EventBatch batch;
  const CountsReader counts(rows);
  const int type = rows.Column("type"), queue = rows.Column("queue_id"), priority = rows.Column("priority"),
            low_rank = rows.Column("low_rank"), low_id = rows.Column("low_id"), high_rank = rows.Column("high_rank"),
            high_id = rows.Column("high_id"), ready = rows.Column("ready"), due = rows.Column("due_at"),
            id = rows.Column("id"), notice = rows.Column("notice"), worker = rows.Column("worker"),
            job_id = rows.Column("job_id"), day = rows.Column("job_day"), token = rows.Column("token"),
            reason = rows.Column("reason"), xid = rows.Column("xid"), admit = rows.Column("admit");
  for (int row = 0; row < rows.rows(); ++row) {
    if (row == 0) {
      batch.snapshot = rows.Text(row, 0);
      batch.now = rows.Time(row, 1);
      // A row of the event table that this reader has not seen may have been emptied with its slot.
      if (static_cast<uint64_t>(rows.Int(row, 2)) >= since.xmax()) {
        return MakeError(absl::StatusCode::kOutOfRange, "EVENTS_ROTATED",
                         "events since this snapshot have been rotated away");
      }
    }
    if (rows.IsNull(row, type)) continue;
    const int32_t of = rows.Int32(row, queue);
    switch (rows.Int(row, type)) {
      case kReady:
        batch.ready.push_back({of,
                               static_cast<int16_t>(rows.Int(row, priority)),
                               {rows.Int(row, low_rank), rows.Int(row, low_id)},
                               {rows.Int(row, high_rank), rows.Int(row, high_id)},
                               rows.Int32(row, ready),
                               static_cast<uint64_t>(rows.Int(row, xid))});
        [[fallthrough]];
      case kCounts:
        batch.deltas[of].Add(counts.Read(row));
        if (auto at = rows.OptionalTime(row, due); at && (!batch.earliest_due || *at < *batch.earliest_due))
          batch.earliest_due = at;
        break;
      case kNotice:
        batch.notices.push_back({rows.Int(row, id),
                                 static_cast<NoticeType>(rows.Int(row, notice)),
                                 rows.Text(row, worker),
                                 {of, rows.Int32(row, day), rows.Int(row, job_id)},
                                 rows.Int32(row, token),
                                 rows.Text(row, reason)});
        break;
      case kQueueChanged:
        batch.changed_queues.push_back(of);
        break;
      case kAdmit: {
        GateNames& names = batch.admit[of];
        for (std::string& name : rows.TextArray(row, admit)) names.push_back(std::move(name));
        break;
      }
      default:
        break;  // Of a newer version.
    }
  }
  return batch;
}

absl::StatusOr<std::vector<std::optional<absl::Duration>>> PostgresStore::OldestReady(
    std::span<const ReadyRange> from) {
  Params params;
  params.AddArray(from, [](const ReadyRange& r) { return r.queue; })
      .AddArray(from, [](const ReadyRange& r) { return r.priority; })
      .AddArray(from, [](const ReadyRange& r) { return r.low.rank; })
      .AddArray(from, [](const ReadyRange& r) { return r.low.id; });
  TENURE_ASSIGN_OR_RETURN(Result rows, RunOne("oldest_ready", sql::kOldestReady, params));
  std::vector<std::optional<absl::Duration>> ages(from.size());
  for (int row = 0; row < rows.rows(); ++row) {
    ages[static_cast<size_t>(rows.Int(row, 0) - 1)] =
        std::max(absl::ZeroDuration(), absl::Seconds(rows.Double(row, 1)));
  }
  return ages;
}

absl::Status PostgresStore::FoldStats(const Fence& fence) {
  auto folded = Run<bool>("fold", [&](Transaction& tx) -> absl::StatusOr<bool> {
    TENURE_ASSIGN_OR_RETURN(Result locked, tx.Run(sql::kLockFold, Params().Add(fence.worker).Add(fence.term)));
    if (locked.rows() == 0)
      return MakeError(absl::StatusCode::kFailedPrecondition, "TERM_OVER", "the leader's term is over");
    TENURE_ASSIGN_OR_RETURN(const Snapshot since, Snapshot::Parse(locked.Bytes(0, 0)));
    const bool rotate = locked.Bool(0, 2);
    auto done = tx.RunAndCommit(sql::kFold, Params().Add(since.InProgress()).Add(since.Xmax()).Add(rotate));
    if (!done.ok()) return done.status();
    return rotate;
  });
  if (!folded.ok()) return folded.status();
  if (!*folded) return absl::OkStatus();
  // Emptying a slot waits for whoever still writes to it or reads it, but only for a moment: the next round tries
  // again.
  auto rotated = Run<bool>(
      "rotate", Transaction::Limits{options_.statement_timeout, absl::Milliseconds(100)},
      [&](Transaction& tx) -> absl::StatusOr<bool> {
        TENURE_ASSIGN_OR_RETURN(Result locked, tx.Run(sql::kLockFold, Params().Add(fence.worker).Add(fence.term)));
        if (locked.rows() == 0) return false;
        const std::string checked = locked.Text(0, 1);
        TENURE_ASSIGN_OR_RETURN(Result slot, tx.Run(sql::kRotatable, Params().Add(checked)));
        const std::string table = absl::StrCat("tenure.event_", slot.Int(0, 0));
        static constexpr std::string_view kLock[] = {
            "lock table tenure.event_0 in access exclusive mode", "lock table tenure.event_1 in access exclusive mode",
            "lock table tenure.event_2 in access exclusive mode", "lock table tenure.event_3 in access exclusive mode"};
        static constexpr std::string_view kTruncate[] = {"truncate tenure.event_0", "truncate tenure.event_1",
                                                         "truncate tenure.event_2", "truncate tenure.event_3"};
        const size_t at = static_cast<size_t>(slot.Int(0, 0));
        TENURE_RETURN_IF_ERROR(tx.Run(kLock[at], Params()).status());
        // Again, now that nobody is writing to it.
        TENURE_ASSIGN_OR_RETURN(Result free, tx.Run(sql::kRotatable, Params().Add(checked)));
        if (static_cast<size_t>(free.Int(0, 0)) != at) return false;
        if (free.Bool(0, 1)) TENURE_RETURN_IF_ERROR(tx.Run(kTruncate[at], Params()).status());
        auto done = tx.RunAndCommit(sql::kRotated, Params().Add(checked));
        if (!done.ok()) return done.status();
        return true;
      });
  if (!rotated.ok() && !absl::IsDeadlineExceeded(rotated.status())) return rotated.status();
  return absl::OkStatus();
}

absl::Status PostgresStore::NotifyReady(int32_t replica) {
  return RunOne("notify_ready", sql::kNotifyReady, Params().Add(replica)).status();
}

absl::StatusOr<bool> PostgresStore::AwaitReady(int32_t replica, absl::Duration timeout) {
  if (listener_ == nullptr || listener_->broken()) {
    TENURE_ASSIGN_OR_RETURN(listener_,
                            Connection::Open(options_.url, options_.application_name, options_.statement_timeout));
    if (listener_->pooled()) {
      return MakeError(absl::StatusCode::kFailedPrecondition, "NOTIFY_UNAVAILABLE",
                       "a connection pooler stands before the database, and notifications do not pass it");
    }
    TENURE_RETURN_IF_ERROR(listener_->Script("listen tenure_ready", options_.statement_timeout));
    return true;  // What became ready before counts as told.
  }
  TENURE_ASSIGN_OR_RETURN(const std::optional<std::string> from, listener_->AwaitNotification(timeout));
  return from && *from != absl::StrCat(replica);
}

}  // namespace tenure::store::postgres
