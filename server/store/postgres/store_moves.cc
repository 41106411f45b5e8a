// PostgresStore: moves of jobs from one queue to another.
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/store/postgres/errors.h"
#include "server/store/postgres/postgres_store.h"
#include "statements.sql.h"

namespace tenure::store::postgres {
namespace {

// Rows that a step reads, those of other queues among them: a few milliseconds.
constexpr int64_t kRowsPerStep = 5000;

absl::Status MoveNotFound(int64_t id) {
  return MakeError(absl::StatusCode::kNotFound, "MOVE_NOT_FOUND",
                   absl::StrCat("there is no move ", id, ": it never existed, or ended too long ago"),
                   {{"move_id", absl::StrCat(id)}});
}

Move ReadMove(const Result& r, int row) {
  Move move;
  move.id = r.Int(row, 0);
  move.spec.from = r.Text(row, 1);
  move.spec.to = r.Text(row, 2);
  move.spec.source = static_cast<MoveSource>(r.Int(row, 3));
  move.spec.kinds = r.TextArray(row, 4);
  if (!r.IsNull(row, 5)) move.spec.rate = r.Int32(row, 5);
  if (!r.IsNull(row, 6)) move.spec.max_in_flight = r.Int32(row, 6);
  move.state = static_cast<MoveState>(r.Int(row, 7));
  move.moved = r.Int(row, 8);
  move.failed = r.Int(row, 9);
  move.last_error = r.Text(row, 10);
  move.created = r.Time(row, 11);
  move.updated = r.Time(row, 12);
  move.ended = r.OptionalTime(row, 13);
  move.standing = r.Bool(row, 14);
  return move;
}

// One step of a move: what it may move is locked and counted in the same transaction in which jobs are moved.
absl::StatusOr<MoveStep> MoveOnce(Transaction& tx, const Fence& fence, int64_t id, int limit, bool with_unique) {
  MoveStep step;
  TENURE_ASSIGN_OR_RETURN(
      const Result move,
      tx.Run(sql::kMoveBegin, Params().Add(fence.worker).Add(fence.term).Add(id).Add(static_cast<int64_t>(limit))));
  if (move.rows() == 0) {  // It does not run any more, or the term is over.
    step.ended = true;
    step.wait = absl::Seconds(1);
    TENURE_RETURN_IF_ERROR(tx.Commit());
    return step;
  }
  const auto source = static_cast<MoveSource>(move.Int(0, 0));
  const bool standing = move.Bool(0, 4);
  const int64_t allowed = move.Int(0, 7);
  step.what = standing ? "dead_letter_rule" : source == MoveSource::kBacklog ? "backlog" : "dead_letters";
  int64_t failed = 0, held = 0, cursor = move.Int(0, 5);
  bool at_end = false;
  std::vector<int64_t> in_flight = move.IntArray(0, 8);
  if (allowed > 0) {
    Params params;
    params.Add(move.Int32(0, 1))
        .Add(move.Int32(0, 2))
        .AddArray(move.TextArray(0, 3))
        .Add(cursor)
        .Add(kRowsPerStep)
        .Add(allowed)
        .Add(id);
    if (source == MoveSource::kBacklog) {
      params.Add(with_unique);
    } else {
      params.Add(standing).Add(move.Time(0, 6));
    }
    TENURE_ASSIGN_OR_RETURN(const Result rows,
                            tx.Run(source == MoveSource::kBacklog ? sql::kMoveBacklog : sql::kMoveDeadLetters, params));
    for (int row = 0; row < rows.rows(); ++row) {
      switch (rows.Int(row, 0)) {
        case 0:
          step.ready.push_back({rows.Int32(row, 1),
                                static_cast<int16_t>(rows.Int(row, 2)),
                                {rows.Int(row, 3), rows.Int(row, 4)},
                                {rows.Int(row, 5), rows.Int(row, 6)},
                                rows.Int32(row, 7)});
          break;
        case 1: {
          step.moved = rows.Int(row, 7);
          failed = rows.Int(row, 9);
          held = rows.Int(row, 10);
          at_end = rows.IsNull(row, 11);
          if (!at_end) cursor = rows.Int(row, 11);
          const std::vector<int64_t> made = rows.IntArray(row, 12);
          in_flight.insert(in_flight.end(), made.begin(), made.end());
          break;
        }
        default:
          step.earliest_due = absl::Seconds(rows.Double(row, 8));
      }
    }
    // Nobody has counted those with unique keys that were left out: the next pass looks for them.
    if (!with_unique) ++held;
  }
  TENURE_ASSIGN_OR_RETURN(const Result counted, tx.RunAndCommit(sql::kMoveCount, Params()
                                                                                     .Add(id)
                                                                                     .Add(allowed)
                                                                                     .Add(step.moved)
                                                                                     .Add(failed)
                                                                                     .Add(held)
                                                                                     .Add(cursor)
                                                                                     .Add(at_end)
                                                                                     .AddArray(in_flight)));
  step.wait = absl::Seconds(counted.Double(0, 0));
  step.ended = counted.Bool(0, 1);
  return step;
}

}  // namespace

absl::StatusOr<Move> PostgresStore::CreateMove(const MoveSpec& spec, int32_t from, int32_t to,
                                               std::string_view request_id) {
  Params params;
  params.Add(request_id.empty() ? std::nullopt : std::optional<std::string_view>(request_id))
      .Add(from)
      .Add(to)
      .Add(static_cast<int16_t>(spec.source))
      .AddArray(spec.kinds)
      .Add(spec.rate)
      .Add(spec.max_in_flight);
  const auto create = [&](Transaction& tx) -> absl::StatusOr<Result> {
    if (spec.source == MoveSource::kBacklog) tx.Queue(sql::kLockRules, Params());
    TENURE_ASSIGN_OR_RETURN(Result row, tx.Run(sql::kCreateMove, params));
    if (spec.source == MoveSource::kBacklog && row.rows() > 0) {
      TENURE_ASSIGN_OR_RETURN(const Result loop, tx.Run(sql::kFindMoveLoop, Params().Add(from).Add(to)));
      // They would pass the same jobs to and fro for ever.
      if (loop.rows() > 0) {
        return InvalidField("spec.to_queue",
                            absl::StrCat("must not lead back to the queue that is moved, but with the moves under way "
                                         "jobs would go ",
                                         loop.Text(0, 0)));
      }
    }
    TENURE_RETURN_IF_ERROR(tx.Commit());
    return row;
  };
  TENURE_ASSIGN_OR_RETURN(Result made, Run<Result>("create_move", create));
  if (made.rows() == 0) {
    TENURE_ASSIGN_OR_RETURN(made, RunOne("find_move_request", sql::kFindMoveRequest, Params().Add(request_id)));
    if (made.rows() == 0) {
      return MakeError(absl::StatusCode::kUnavailable, "DATABASE_UNAVAILABLE",
                       "the move of this request id was forgotten just now; try again", {}, absl::Milliseconds(100));
    }
  }
  return GetMove(made.Int(0, 0));
}

absl::StatusOr<Move> PostgresStore::GetMove(int64_t id) {
  TENURE_ASSIGN_OR_RETURN(const Result rows,
                          RunOne("list_moves", sql::kListMoves, Params().Add(id).Add(int64_t{0}).Add(int64_t{1})));
  if (rows.rows() == 0) return MoveNotFound(id);
  return ReadMove(rows, 0);
}

absl::StatusOr<std::vector<Move>> PostgresStore::ListMoves(int64_t before, int limit) {
  TENURE_ASSIGN_OR_RETURN(const Result rows, RunOne("list_moves", sql::kListMoves,
                                                    Params().AddNull().Add(before).Add(static_cast<int64_t>(limit))));
  std::vector<Move> moves;
  for (int row = 0; row < rows.rows(); ++row) moves.push_back(ReadMove(rows, row));
  return moves;
}

absl::StatusOr<Move> PostgresStore::SetMoveState(int64_t id, MoveState state) {
  TENURE_ASSIGN_OR_RETURN(const Result rows, RunOne("set_move_state", sql::kSetMoveState,
                                                    Params().Add(id).Add(static_cast<int16_t>(state))));
  TENURE_ASSIGN_OR_RETURN(Move move, GetMove(id));
  if (move.standing) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "MOVE_STANDING",
                     absl::StrCat("move ", id, " is the rule of the queue \"", move.spec.from,
                                  "\"; its setting dead_letter_queue pauses and resumes it"),
                     {{"move_id", absl::StrCat(id)}, {"queue", move.spec.from}});
  }
  if (rows.rows() == 0) {
    return MakeError(
        absl::StatusCode::kFailedPrecondition, "MOVE_ENDED",
        absl::StrCat("move ", id, " is ", move.state == MoveState::kDone ? "done" : "cancelled", "; make a new one"),
        {{"move_id", absl::StrCat(id)}});
  }
  return move;
}

absl::StatusOr<std::vector<int64_t>> PostgresStore::ListRunningMoves() {
  TENURE_ASSIGN_OR_RETURN(const Result rows, RunOne("list_running_moves", sql::kListRunningMoves, Params()));
  std::vector<int64_t> ids;
  for (int row = 0; row < rows.rows(); ++row) ids.push_back(rows.Int(row, 0));
  return ids;
}

absl::StatusOr<MoveStep> PostgresStore::StepMove(const Fence& fence, int64_t id, int limit) {
  const auto step = [&](bool with_unique) {
    return Run<MoveStep>("move",
                         Transaction::Limits{options_.statement_timeout, with_unique ? kKeyWait : absl::ZeroDuration()},
                         [&](Transaction& tx) { return MoveOnce(tx, fence, id, limit, with_unique); });
  };
  absl::StatusOr<MoveStep> done = step(true);
  if (SqlStateOf(done.status()) == "55P03") {
    // Somebody holds a unique key that one of the jobs would take along: the others need not wait for him.
    Metrics::Add(metrics_.db_retries, {{"reason", "lock_timeout"}});
    done = step(false);
  }
  if (done.ok() && done->moved > 0) {
    Metrics::Add(metrics_.moved_jobs, {{"what", done->what}}, static_cast<double>(done->moved));
  }
  return done;
}

absl::Status PostgresStore::NoteMoveError(const Fence& fence, int64_t id, std::string_view error) {
  return RunOne("note_move_error", sql::kNoteMoveError, Params().Add(fence.worker).Add(fence.term).Add(id).Add(error))
      .status();
}

absl::StatusOr<int> PostgresStore::PruneMoves(const ShardFence& fence, absl::Duration age, int limit) {
  Params params;
  params.Add(fence.worker).Add(fence.first).Add(fence.term).Add(absl::ToInt64Microseconds(age));
  params.Add(static_cast<int64_t>(limit));
  TENURE_ASSIGN_OR_RETURN(const Result rows, RunOne("prune_moves", sql::kPruneMoves, params));
  return rows.Int32(0, 0);
}

}  // namespace tenure::store::postgres
