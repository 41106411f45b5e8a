// PostgresStore: how targets are served: pages of the outbox, deliveries that were refused, the emptying of slots.
// Every write names the leader's term and is refused once it is over.
#include <algorithm>
#include <charconv>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/store/postgres/postgres_store.h"
#include "server/store/postgres/snapshot.h"
#include "server/store/postgres/target_rows.h"
#include "statements.sql.h"

namespace tenure::store::postgres {
namespace {

absl::Status TermOver() {
  return MakeError(absl::StatusCode::kFailedPrecondition, "TERM_OVER", "the leader's term is over");
}

absl::Status PageStale() {
  return MakeError(absl::StatusCode::kAborted, "PAGE_STALE", "the target was served, changed or deleted meanwhile");
}

uint64_t ReadXid(const Result& r, int row, int column) {
  const std::string_view text = r.Bytes(row, column);
  uint64_t xid = 0;
  std::from_chars(text.data(), text.data() + text.size(), xid);
  return xid;
}

bool Before(const OutboxPlace& a, const OutboxPlace& b) { return std::tie(a.xid, a.id) < std::tie(b.xid, b.id); }

// The first column says whether the term still runs.
absl::Status InTerm(const absl::StatusOr<Result>& rows) {
  if (!rows.ok()) return rows.status();
  return rows->rows() > 0 && rows->Bool(0, 0) ? absl::OkStatus() : TermOver();
}

}  // namespace

absl::StatusOr<std::vector<TargetWork>> PostgresStore::LoadTargets(TargetPurpose purpose) {
  TENURE_ASSIGN_OR_RETURN(Result rows,
                          RunOne("load_targets", sql::kLoadTargets, Params().Add(static_cast<int16_t>(purpose))));
  const int fresh = rows.Column("fresh"), delivery = rows.Column("next_delivery"), run = rows.Column("next_run"),
            now = rows.Column("now");
  std::vector<TargetWork> targets;
  for (int row = 0; row < rows.rows(); ++row) {
    TargetWork work;
    work.target = ReadTarget(rows, row);
    work.queue_ids = ReadQueueIds(rows, row);
    work.fresh = rows.Bool(row, fresh);
    if (!rows.IsNull(row, delivery)) work.next_delivery = absl::Seconds(rows.Double(row, delivery));
    work.now = rows.Time(row, now);
    work.next_run = rows.OptionalTime(row, run);
    targets.push_back(std::move(work));
  }
  return targets;
}

absl::StatusOr<EventPage> PostgresStore::TakePage(const Fence& fence, int64_t target, int limit, bool planned) {
  return Run<EventPage>("take_page", [&](Transaction& tx) -> absl::StatusOr<EventPage> {
    EventPage page;
    TENURE_ASSIGN_OR_RETURN(Result leading, tx.Run(sql::kCheckLeader, Params().Add(fence.worker).Add(fence.term)));
    if (leading.rows() == 0) return TermOver();
    TENURE_ASSIGN_OR_RETURN(Result state, tx.Run(sql::kLockTargetState, Params().Add(target)));
    if (state.rows() == 0) return page;  // Deleted.
    const int at_xid = state.Column("at_xid"), plan = state.Column("plan_xid"), until_column = state.Column("until");
    page.from = page.to = {ReadXid(state, 0, at_xid), state.Int(0, state.Column("at_id"))};
    page.first = state.Int(0, state.Column("taken")) + 1;
    std::string until = state.Text(0, until_column);
    if (until.empty()) {
      TENURE_ASSIGN_OR_RETURN(Result opened, tx.Run(sql::kOpenWindow, Params().Add(target)));
      until = opened.Text(0, 0);
      page.from = page.to = {};
    }
    const bool has_plan = !state.IsNull(0, plan);
    const OutboxPlace plan_end{ReadXid(state, 0, plan), state.Int(0, state.Column("plan_id"))};
    const int64_t scan = has_plan ? state.Int(0, state.Column("plan_count")) : limit;
    TENURE_ASSIGN_OR_RETURN(const Snapshot done, Snapshot::Parse(state.Bytes(0, state.Column("done"))));
    const std::vector<int32_t> queues = ReadQueueIds(state, 0);
    const int16_t events = static_cast<int16_t>(state.Int(0, state.Column("events")));
    Params params;
    params.Add(done.InProgress())
        .Add(done.Xmax())
        .Add(until)
        .Add(absl::StrCat(page.from.xid))
        .Add(page.from.id)
        .Add(scan)
        .AddArray(queues)
        .Add(events);
    if (has_plan) {
      params.Add(absl::StrCat(plan_end.xid)).Add(plan_end.id);
    } else {
      params.AddNull().AddNull();
    }
    TENURE_ASSIGN_OR_RETURN(Result rows, tx.Run(sql::kReadOutbox, params));
    int64_t scanned = 0;
    std::vector<std::pair<OutboxPlace, int>> order;
    const int xid = rows.Column("xid"), id = rows.Column("id");
    for (int row = 0; row < rows.rows(); ++row) {
      const OutboxPlace place{ReadXid(rows, row, xid), rows.Int(row, id)};
      if (rows.Int(row, 0) == 1) {
        scanned = rows.Int(row, rows.Column("scanned"));
        page.to = place;
      } else {
        order.emplace_back(place, row);
      }
    }
    std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return Before(a.first, b.first); });
    for (const auto& [place, row] : order) {
      page.events.push_back(ReadEvent(rows, row));
      page.places.push_back(place);
    }
    if (!order.empty()) page.lag = absl::Seconds(rows.Double(order.front().second, rows.Column("age")));
    page.more = has_plan || scanned >= scan;
    page.window_ends = !page.more;
    page.nothing = false;
    if (planned && !has_plan && !page.events.empty()) {
      Params fixed;
      fixed.Add(target).Add(absl::StrCat(page.to.xid)).Add(page.to.id).Add(static_cast<int32_t>(scanned));
      fixed.AddArray(queues).Add(events);
      TENURE_RETURN_IF_ERROR(tx.Run(sql::kPlanPage, fixed).status());
      // Read again after a crash it would not know that the window ends with it; so it never does.
      page.more = true;
      page.window_ends = false;
    }
    TENURE_RETURN_IF_ERROR(tx.Commit());
    return page;
  });
}

absl::Status PostgresStore::FinishPage(const Fence& fence, int64_t target, const EventPage& page, size_t events,
                                       std::span<const Refused> refused, std::string_view error) {
  const bool whole = events >= page.events.size();
  const OutboxPlace to = whole ? page.to : events == 0 ? page.from : page.places[events - 1];
  Params params;
  params.Add(fence.worker)
      .Add(fence.term)
      .Add(target)
      .Add(absl::StrCat(page.from.xid))
      .Add(page.from.id)
      .Add(absl::StrCat(to.xid))
      .Add(to.id)
      .Add(whole && page.window_ends)
      .Add(static_cast<int64_t>(std::min(events, page.events.size())))
      .Add(error)
      .AddArray(refused, [](const Refused& r) { return std::string_view(r.event_id); })
      .AddArray(refused, [](const Refused& r) { return std::string_view(r.body); })
      .AddArray(refused, [](const Refused& r) { return std::string_view(r.error); })
      .AddArray(refused, [](const Refused& r) { return absl::ToInt64Microseconds(r.retry_in); })
      .AddArray(refused, [](const Refused& r) { return r.dead; });
  const absl::StatusOr<Result> rows = RunOne("finish_page", sql::kFinishPage, params);
  TENURE_RETURN_IF_ERROR(InTerm(rows));
  return rows->Bool(0, 1) ? absl::OkStatus() : PageStale();
}

absl::StatusOr<std::vector<Delivery>> PostgresStore::DueDeliveries(int64_t target, int limit) {
  TENURE_ASSIGN_OR_RETURN(Result rows, RunOne("due_deliveries", sql::kDueDeliveries,
                                              Params().Add(target).Add(static_cast<int64_t>(limit))));
  return ReadDeliveries(rows);
}

absl::Status PostgresStore::SettleDeliveries(const Fence& fence, int64_t target,
                                             std::span<const DeliveryOutcome> outcomes) {
  std::vector<DeliveryOutcome> sorted(outcomes.begin(), outcomes.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  Params params;
  params.Add(fence.worker)
      .Add(fence.term)
      .Add(target)
      .AddArray(sorted, [](const DeliveryOutcome& o) { return o.id; })
      .AddArray(sorted, [](const DeliveryOutcome& o) { return o.accepted; })
      .AddArray(sorted, [](const DeliveryOutcome& o) { return std::string_view(o.error); })
      .AddArray(sorted, [](const DeliveryOutcome& o) { return absl::ToInt64Microseconds(o.retry_in); })
      .AddArray(sorted, [](const DeliveryOutcome& o) { return o.dead; });
  return InTerm(RunOne("settle_deliveries", sql::kSettleDeliveries, params));
}

absl::Status PostgresStore::NoteTarget(const Fence& fence, int64_t target, std::string_view error,
                                       std::optional<NextRun> next_run) {
  Params params;
  params.Add(fence.worker).Add(fence.term).Add(target).Add(error);
  if (next_run) {
    params.Add(next_run->at).Add(next_run->version);
  } else {
    params.AddNull().AddNull();
  }
  return InTerm(RunOne("note_target", sql::kNoteTarget, params));
}

absl::StatusOr<int> PostgresStore::PruneDeliveries(const Fence& fence, int64_t target, absl::Duration age, int limit) {
  Params params;
  params.Add(fence.worker)
      .Add(fence.term)
      .Add(target)
      .Add(absl::ToInt64Microseconds(age))
      .Add(static_cast<int64_t>(limit));
  const absl::StatusOr<Result> rows = RunOne("prune_deliveries", sql::kPruneDeliveries, params);
  TENURE_RETURN_IF_ERROR(InTerm(rows));
  return rows->Int32(0, 1);
}

absl::Status PostgresStore::RotateOutbox(const Fence& fence) {
  // Waits for whoever still writes to the slot, or makes a target, but only for a moment: a later round tries again.
  auto rotated = Run<bool>(
      "rotate_outbox", Transaction::Limits{options_.statement_timeout, absl::Milliseconds(100)},
      [&](Transaction& tx) -> absl::StatusOr<bool> {
        TENURE_ASSIGN_OR_RETURN(Result due,
                                tx.Run(sql::kLockOutboxRotation, Params().Add(fence.worker).Add(fence.term)));
        if (due.rows() == 0) return TermOver();
        if (!due.Bool(0, 0)) return false;
        // Nobody makes a target meanwhile: the place of a new one would not be seen.
        static constexpr std::string_view kLockTargets = "lock table tenure.target in share mode";
        TENURE_RETURN_IF_ERROR(tx.Run(kLockTargets, Params()).status());
        TENURE_ASSIGN_OR_RETURN(Result slot, tx.Run(sql::kOutboxRotatable, Params()));
        static constexpr std::string_view kLock[] = {"lock table tenure.outbox_0 in access exclusive mode",
                                                     "lock table tenure.outbox_1 in access exclusive mode",
                                                     "lock table tenure.outbox_2 in access exclusive mode",
                                                     "lock table tenure.outbox_3 in access exclusive mode"};
        static constexpr std::string_view kTruncate[] = {"truncate tenure.outbox_0", "truncate tenure.outbox_1",
                                                         "truncate tenure.outbox_2", "truncate tenure.outbox_3"};
        const size_t at = static_cast<size_t>(slot.Int(0, 0));
        if (slot.Bool(0, 1) && slot.Bool(0, 2)) {
          TENURE_RETURN_IF_ERROR(tx.Run(kLock[at], Params()).status());
          // Again, now that nobody is writing to it.
          TENURE_ASSIGN_OR_RETURN(Result free, tx.Run(sql::kOutboxRotatable, Params()));
          if (static_cast<size_t>(free.Int(0, 0)) != at || !free.Bool(0, 2)) return false;
          TENURE_RETURN_IF_ERROR(tx.Run(kTruncate[at], Params()).status());
        }
        auto done = tx.RunAndCommit(sql::kOutboxRotated, Params());
        if (!done.ok()) return done.status();
        return true;
      });
  if (!rotated.ok() && !absl::IsDeadlineExceeded(rotated.status())) return rotated.status();
  return absl::OkStatus();
}

}  // namespace tenure::store::postgres
