// One session with PostgreSQL, over libpq: binary parameters and results, pipelined transactions, a deadline on every
// call.
//
// Layer: store/postgres. Not thread-safe: one thread uses a connection at a time (ConnectionPool sees to it).
//
// A transaction is sent in as few round trips as it needs: BEGIN, its local settings (statement_timeout and the like:
// nothing is ever set on the session, so a transaction pooler may stand between) and the statements go out in one
// pipeline, COMMIT with the last of them. The acknowledgement of COMMIT is awaited before anything is reported as done.
//
// Failures: whatever breaks the connection, and a call that outlasts its deadline by more than a grace, closes it; the
// pool then throws it away. A commit whose acknowledgement was lost is UNAVAILABLE with reason DATABASE_UNAVAILABLE:
// the caller's retry with the same key or token finds out.
#pragma once

#include <libpq-fe.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/store/postgres/params.h"
#include "server/store/postgres/result.h"

namespace tenure::store::postgres {

// `text` must outlive the connection: it is the key under which the statement is prepared.
struct Statement {
  std::string_view text;
  const Params* params = nullptr;
};

class Connection {
 public:
  // `conninfo`: a libpq URI or keyword string. Blocks up to `timeout`. UNAVAILABLE with libpq's message (without the
  // password) if the server cannot be reached or refuses.
  static absl::StatusOr<std::unique_ptr<Connection>> Open(const std::string& conninfo,
                                                          const std::string& application_name, absl::Duration timeout);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // True if the session can be used. Cheap: looks for a close that the server sent while it was idle.
  bool Healthy();
  bool broken() const { return broken_; }
  // A pooler in transaction mode stands between: statements are then sent unnamed.
  bool pooled() const { return pooled_; }
  int server_version() const { return PQserverVersion(pg_); }
  // The backend's own pid and start, as pg_stat_activity shows them; 0 when pooled.
  int backend_pid() const { return backend_pid_; }
  absl::Time backend_start() const { return backend_start_; }

  // Runs SQL of one or more commands without parameters, outside any transaction of ours (DDL, migrations).
  absl::Status Script(std::string_view sql, absl::Duration timeout);
  // Asks the server to end the command that another thread runs on this connection; that call then fails. May block for
  // a moment. The only method that may be called from another thread.
  void Cancel();
  // Waits for the next notification of a channel that LISTEN was run for; its payload, or nullopt after `timeout`.
  absl::StatusOr<std::optional<std::string>> AwaitNotification(absl::Duration timeout);

 private:
  friend class Transaction;
  explicit Connection(PGconn* pg) : pg_(pg) {}

  using TimePoint = std::chrono::steady_clock::time_point;
  // Sends the statements as one pipeline and waits for all results. On an error the results end there.
  absl::Status RunPipeline(const std::vector<Statement>& statements, TimePoint deadline, std::vector<Result>* results);
  absl::Status Flush(TimePoint deadline);
  absl::StatusOr<PGresult*> NextResult(TimePoint deadline);
  bool WaitForSocket(bool write, TimePoint deadline);
  absl::Status Break(std::string_view what);

  PGconn* pg_;
  bool broken_ = false;
  bool pooled_ = false;
  int backend_pid_ = 0;
  absl::Time backend_start_;
  int next_name_ = 0;
  absl::flat_hash_map<const char*, std::string> prepared_;
};

// One transaction. Destroying it before Commit rolls back.
class Transaction {
 public:
  struct Limits {
    absl::Duration statement = absl::Seconds(5);
    absl::Duration lock = absl::ZeroDuration();  // Zero: as long as the statement may take.
  };
  Transaction(Connection& connection, Limits limits) : connection_(connection), limits_(limits) {}
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;

  // Goes out with the next Run: its rows are not wanted.
  void Queue(std::string_view sql, const Params& params);
  absl::StatusOr<Result> Run(std::string_view sql, const Params& params);
  // The last statement, and COMMIT, in one round trip.
  absl::StatusOr<Result> RunAndCommit(std::string_view sql, const Params& params);
  absl::Status Commit();

 private:
  absl::StatusOr<Result> Send(std::string_view sql, const Params* params, bool commit);
  void Rollback();

  Connection& connection_;
  Limits limits_;
  bool begun_ = false;
  bool over_ = false;
  std::vector<std::pair<std::string_view, Params>> queued_;
};

}  // namespace tenure::store::postgres
