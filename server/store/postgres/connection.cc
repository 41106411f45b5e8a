#include "server/store/postgres/connection.h"

#include <poll.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/store/postgres/errors.h"

namespace tenure::store::postgres {
namespace {

using TimePoint = std::chrono::steady_clock::time_point;

// How much longer than the server's own statement_timeout we wait for its word before we give up on the connection.
constexpr auto kGrace = std::chrono::seconds(2);

// Local to the transaction. The third one ends a transaction that a stopped daemon left open, so that its locks go (a
// stopped process cannot send the next statement). The last four keep plans: a statement that is planned while its
// table is empty (a drained queue after a vacuum has no pages, and a scan of nothing costs nothing) would keep that
// scan when the table has a million rows, for as long as the plan is cached; a bitmap of a whole queue, sorted for its
// first thousand, looks cheap beside reading them in the index's order, which stops there; and a plan whose estimate is
// far too high must not be compiled first. And one plan is made for all parameters: the plans are tested to be right
// for all, and making one anew takes a millisecond, longer than the claim of a single job.
constexpr std::string_view kLimits =
    "select set_config('statement_timeout', $1, true), set_config('lock_timeout', $2, true), "
    "set_config('idle_in_transaction_session_timeout', '10s', true), set_config('enable_seqscan', 'off', true), "
    "set_config('enable_bitmapscan', 'off', true), set_config('jit', 'off', true), "
    "set_config('plan_cache_mode', 'force_generic_plan', true)";
// Named, whatever the database's default is: the statements rely on seeing what was committed before each of them
// began.
constexpr std::string_view kBegin = "begin isolation level read committed read write";
constexpr std::string_view kCommit = "commit";
constexpr std::string_view kRollback = "rollback";
constexpr std::string_view kIdentity =
    "select pg_backend_pid(), (select backend_start from pg_stat_activity where pid = pg_backend_pid())";

TimePoint After(absl::Duration duration) {
  return std::chrono::steady_clock::now() + absl::ToChronoMicroseconds(duration);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Connection>> Connection::Open(const std::string& conninfo,
                                                             const std::string& application_name,
                                                             absl::Duration timeout) {
  // Only what the startup packet of every pooler accepts; no `options`.
  const std::string connect_timeout = absl::StrCat(std::max<int64_t>(2, absl::ToInt64Seconds(timeout)));
  const char* keywords[] = {"dbname",           "fallback_application_name", "connect_timeout",
                            "keepalives_idle",  "keepalives_interval",       "keepalives_count",
                            "tcp_user_timeout", "client_encoding",           nullptr};
  const char* values[] = {
      conninfo.c_str(), application_name.c_str(), connect_timeout.c_str(), "15", "5", "3", "15000", "UTF8", nullptr};
  PGconn* pg = PQconnectdbParams(keywords, values, /*expand_dbname=*/1);
  std::unique_ptr<Connection> connection(new Connection(pg));
  if (PQstatus(pg) != CONNECTION_OK) {
    connection->broken_ = true;
    return FromSqlState("", PQerrorMessage(pg));
  }
  // "schema already exists, skipping" and the like: what matters comes as an error.
  PQsetNoticeProcessor(
      pg, [](void*, const char*) {}, nullptr);
  if (PQsetnonblocking(pg, 1) != 0) return connection->Break("cannot be made non-blocking");
  connection->pooled_ = true;  // Until known: a name prepared behind a pooler would clash with another client's.
  Transaction transaction(*connection, {});
  auto identity = transaction.RunAndCommit(kIdentity, Params());
  if (!identity.ok()) return identity.status();
  // A pooler answers the startup packet itself, so the pid that it told libpq is not that of the session behind it.
  connection->pooled_ = identity->Int32(0, 0) != PQbackendPID(pg);
  if (!connection->pooled_) {
    connection->backend_pid_ = identity->Int32(0, 0);
    connection->backend_start_ = identity->Time(0, 1);
  }
  return connection;
}

Connection::~Connection() { PQfinish(pg_); }

bool Connection::Healthy() {
  if (broken_) return false;
  if (PQconsumeInput(pg_) == 0 || PQstatus(pg_) != CONNECTION_OK) broken_ = true;
  return !broken_;
}

absl::Status Connection::Break(std::string_view what) {
  broken_ = true;
  std::string message(what);
  const char* detail = PQerrorMessage(pg_);
  if (detail != nullptr && *detail != '\0') message.append(": ").append(detail);
  return FromSqlState("", message);
}

bool Connection::WaitForSocket(bool write, TimePoint deadline) {
  pollfd fd{PQsocket(pg_), static_cast<short>(POLLIN | (write ? POLLOUT : 0)), 0};
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    if (left <= 0) return false;
    const int ready = poll(&fd, 1, static_cast<int>(std::min<int64_t>(left, 60'000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

absl::Status Connection::Flush(TimePoint deadline) {
  for (;;) {
    const int state = PQflush(pg_);
    if (state == 0) return absl::OkStatus();
    if (state < 0) return Break("could not send");
    if (!WaitForSocket(/*write=*/true, deadline)) return Break("could not send before the deadline");
    // Reading as well, or both sides could stand with full buffers.
    if (PQconsumeInput(pg_) == 0) return Break("broke while sending");
  }
}

absl::StatusOr<PGresult*> Connection::NextResult(TimePoint deadline) {
  while (PQisBusy(pg_)) {
    if (!WaitForSocket(/*write=*/false, deadline)) return Break("no answer before the deadline");
    if (PQconsumeInput(pg_) == 0) return Break("broke while waiting for an answer");
  }
  return PQgetResult(pg_);
}

absl::Status Connection::RunPipeline(const std::vector<Statement>& statements, TimePoint deadline,
                                     std::vector<Result>* results) {
  if (broken_) return Break("is closed");
  if (PQenterPipelineMode(pg_) == 0) return Break("cannot pipeline");
  // What each expected result is: a preparation (text to remember) or a statement.
  struct Expected {
    const char* preparing = nullptr;
    std::string name;
  };
  std::vector<Expected> expected;
  for (const Statement& statement : statements) {
    static const Params kNone;
    const Params& params = statement.params != nullptr ? *statement.params : kNone;
    const std::vector<const char*> values = params.values();
    const std::vector<int> formats(values.size(), 1);
    if (pooled_ || params.count() == 0) {
      const std::string text(statement.text);
      if (PQsendQueryParams(pg_, text.c_str(), params.count(), nullptr, values.data(), params.lengths().data(),
                            formats.data(), 1) == 0) {
        return Break("could not send a statement");
      }
    } else {
      auto known = prepared_.find(statement.text.data());
      std::string name = known != prepared_.end() ? known->second : std::string();
      if (name.empty()) {
        name = absl::StrCat("s", next_name_++);
        const std::string text(statement.text);
        if (PQsendPrepare(pg_, name.c_str(), text.c_str(), 0, nullptr) == 0) return Break("could not send a statement");
        expected.push_back({statement.text.data(), name});
      }
      if (PQsendQueryPrepared(pg_, name.c_str(), params.count(), values.data(), params.lengths().data(), formats.data(),
                              1) == 0) {
        return Break("could not send a statement");
      }
    }
    expected.push_back({});
  }
  if (PQpipelineSync(pg_) == 0) return Break("could not end a pipeline");
  if (absl::Status sent = Flush(deadline); !sent.ok()) return sent;

  absl::Status outcome;
  for (const Expected& expect : expected) {
    auto next = NextResult(deadline);
    if (!next.ok()) return next.status();
    if (*next == nullptr) return Break("answered fewer results than statements");
    Result result(*next);
    switch (PQresultStatus(*next)) {
      case PGRES_TUPLES_OK:
      case PGRES_COMMAND_OK:
        if (expect.preparing != nullptr) {
          prepared_[expect.preparing] = expect.name;
        } else {
          results->push_back(std::move(result));
        }
        break;
      case PGRES_PIPELINE_ABORTED:
        break;  // An earlier one failed; its error is the outcome.
      default: {
        const char* sqlstate = PQresultErrorField(*next, PG_DIAG_SQLSTATE);
        const char* message = PQresultErrorField(*next, PG_DIAG_MESSAGE_PRIMARY);
        if (outcome.ok()) {
          outcome =
              FromSqlState(sqlstate != nullptr ? sqlstate : "", message != nullptr ? message : PQerrorMessage(pg_));
        }
      }
    }
    // The NULL that ends each statement's results.
    auto end = NextResult(deadline);
    if (!end.ok()) return end.status();
    if (*end != nullptr) {
      PQclear(*end);
      return Break("answered more results than expected");
    }
  }
  auto sync = NextResult(deadline);
  if (!sync.ok()) return sync.status();
  Result sync_result(*sync);
  if (*sync == nullptr || PQresultStatus(*sync) != PGRES_PIPELINE_SYNC) {
    // A fatal error (the server went away in the middle) stands where the end of the pipeline should.
    return Break("ended a pipeline early");
  }
  if (PQexitPipelineMode(pg_) == 0) return Break("cannot leave pipeline mode");
  if (!outcome.ok() && IsConnectionFailure(outcome)) broken_ = true;
  return outcome;
}

absl::Status Connection::Script(std::string_view sql, absl::Duration timeout) {
  if (broken_) return Break("is closed");
  const TimePoint deadline = After(timeout);
  const std::string text(sql);
  if (PQsendQuery(pg_, text.c_str()) == 0) return Break("could not send a script");
  if (absl::Status sent = Flush(deadline); !sent.ok()) return sent;
  absl::Status outcome;
  bool cancelled = false;
  for (;;) {
    while (PQisBusy(pg_)) {
      if (!WaitForSocket(/*write=*/false, cancelled ? deadline + kGrace : deadline)) {
        if (cancelled) return Break("no answer after a cancel");
        // The server would go on by itself: a script has no statement_timeout, since that would have to be set on the
        // session.
        std::unique_ptr<PGcancel, decltype(&PQfreeCancel)> cancel(PQgetCancel(pg_), &PQfreeCancel);
        char error[256];
        if (!cancel || PQcancel(cancel.get(), error, sizeof error) == 0) return Break("could not cancel a script");
        cancelled = true;
        continue;
      }
      if (PQconsumeInput(pg_) == 0) return Break("broke while waiting for an answer");
    }
    PGresult* next = PQgetResult(pg_);
    if (next == nullptr) break;
    Result result(next);
    if (PQresultStatus(next) == PGRES_FATAL_ERROR && outcome.ok()) {
      const char* sqlstate = PQresultErrorField(next, PG_DIAG_SQLSTATE);
      const char* message = PQresultErrorField(next, PG_DIAG_MESSAGE_PRIMARY);
      outcome = FromSqlState(sqlstate != nullptr ? sqlstate : "", message != nullptr ? message : PQerrorMessage(pg_));
    }
  }
  if (!outcome.ok() && IsConnectionFailure(outcome)) broken_ = true;
  return outcome;
}

void Connection::Cancel() {
  const std::unique_ptr<PGcancel, decltype(&PQfreeCancel)> cancel(PQgetCancel(pg_), &PQfreeCancel);
  char error[256];
  // If it cannot be delivered the command runs on to its own limit.
  if (cancel) PQcancel(cancel.get(), error, sizeof error);
}

absl::StatusOr<std::optional<std::string>> Connection::AwaitNotification(absl::Duration timeout) {
  const TimePoint deadline = After(timeout);
  for (;;) {
    if (broken_ || PQconsumeInput(pg_) == 0) return Break("broke while waiting for a notification");
    const std::unique_ptr<PGnotify, decltype(&PQfreemem)> notify(PQnotifies(pg_), &PQfreemem);
    if (notify) return std::string(notify->extra);
    if (!WaitForSocket(/*write=*/false, deadline)) return std::nullopt;
  }
}

Transaction::~Transaction() { Rollback(); }

void Transaction::Queue(std::string_view sql, const Params& params) { queued_.emplace_back(sql, params); }

absl::StatusOr<Result> Transaction::Run(std::string_view sql, const Params& params) {
  return Send(sql, &params, false);
}

absl::StatusOr<Result> Transaction::RunAndCommit(std::string_view sql, const Params& params) {
  return Send(sql, &params, true);
}

absl::Status Transaction::Commit() { return Send({}, nullptr, true).status(); }

absl::StatusOr<Result> Transaction::Send(std::string_view sql, const Params* params, bool commit) {
  Params limits;
  std::vector<Statement> statements;
  if (!begun_) {
    // "0" means no limit to PostgreSQL; a rounded-down deadline must not become that.
    limits.Add(absl::StrCat(std::max<int64_t>(1, absl::ToInt64Milliseconds(limits_.statement))));
    limits.Add(absl::StrCat(absl::ToInt64Milliseconds(limits_.lock)));
    statements.push_back({kBegin, nullptr});
    statements.push_back({kLimits, &limits});
    begun_ = true;
  }
  for (const auto& [text, queued_params] : queued_) statements.push_back({text, &queued_params});
  if (params != nullptr) statements.push_back({sql, params});
  const size_t wanted = statements.size();
  if (commit) statements.push_back({kCommit, nullptr});
  std::vector<Result> results;
  absl::Status status = connection_.RunPipeline(statements, After(limits_.statement) + kGrace, &results);
  queued_.clear();
  if (!status.ok()) {
    Rollback();
    return status;
  }
  if (commit) over_ = true;
  // A bare Commit asked nothing: what it gets is COMMIT's own.
  return std::move(wanted > 0 ? results[wanted - 1] : results.back());
}

void Transaction::Rollback() {
  if (!begun_ || over_) return;
  over_ = true;
  if (connection_.broken()) return;
  std::vector<Result> results;
  // If even this fails the connection is broken, and the server rolls back by itself.
  connection_.RunPipeline({{kRollback, nullptr}}, After(absl::Seconds(2)), &results).IgnoreError();
}

}  // namespace tenure::store::postgres
