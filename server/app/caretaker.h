// What the daemon does on the side, on one thread: migrates the schema when asked to (as soon as the database answers),
// revives the embedded PostgreSQL, tells the log when the daemon becomes ready or stops being so, and keeps what
// /readyz says of migrations and of background workers that nobody leads. Layer: app. Thread-safe.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "server/app/database.h"
#include "server/background/wake_up.h"
#include "server/base/clock.h"
#include "server/engine/engine.h"
#include "server/http/readiness.h"
#include "server/store/store.h"

namespace tenure::app {

class Caretaker {
 public:
  // `migrate`: the schema has still to be brought up to date. All outlive this object.
  Caretaker(Database& database, store::Store& store, engine::Engine& engine, Clock& clock, bool migrate);
  // Stops; waits for what is under way.
  ~Caretaker();

  void Start();
  void RequestStop() { thread_.request_stop(); }

  // Why the daemon cannot serve; OK if it can.
  absl::Status Ready() const;
  // OK unless the daemon cannot go on.
  absl::Status Failure() const;
  // For /readyz: that the schema is migrated, and a warning for each worker that liveness needs and nobody leads.
  std::vector<http::ReadinessCheck> ReadinessChecks() const;

 private:
  void Run(const std::stop_token& stop);
  void Migrate();
  void LookAtLeaders();
  void TellChanges();

  Database& database_;
  store::Store& store_;
  engine::Engine& engine_;
  Clock& clock_;
  background::WakeUp wake_;

  mutable std::mutex mutex_;
  const bool migrates_;     // It is this process that migrates, when it starts.
  bool migrated_;           // From here on guarded by mutex_.
  absl::Status migration_;  // Of the last try.
  absl::Status failure_;
  struct Leader {
    bool needed = false;  // For liveness: a warning if nobody leads it.
    absl::Status status;
    std::string note;
  };
  std::map<std::string, Leader> leaders_;  // By background worker.
  Clock::TimePoint started_;               // Set before the thread.
  bool told_ = false;                      // Used by the thread alone.
  absl::Status told_status_;               // Likewise.
  std::jthread thread_;                    // Last: it uses the rest.
};

}  // namespace tenure::app
