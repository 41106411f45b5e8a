// Caretaker: see the header. Layer: app.
#include "server/app/caretaker.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/background/registry.h"
#include "server/base/logging.h"
#include "server/store/postgres/migrator.h"

namespace tenure::app {
namespace {

constexpr Clock::Duration kLook = std::chrono::milliseconds(250);         // At readiness and the embedded PostgreSQL.
constexpr Clock::Duration kMigrateAgain = std::chrono::seconds(2);        // While the database is away.
constexpr Clock::Duration kMigrateAgainLater = std::chrono::seconds(30);  // After a migration that failed.
constexpr Clock::Duration kLookAtLeaders = std::chrono::seconds(5);
constexpr Clock::Duration kReviveAgain = std::chrono::seconds(5);
constexpr Clock::Duration kFirstMoments = std::chrono::seconds(1);  // Of a start, in which not being ready is no news.

}  // namespace

Caretaker::Caretaker(Database& database, store::Store& store, engine::Engine& engine, Clock& clock, bool migrate)
    : database_(database),
      store_(store),
      engine_(engine),
      clock_(clock),
      wake_(clock),
      migrates_(migrate),
      migrated_(!migrate) {
  if (migrate) migration_ = absl::UnavailableError("the schema has not been migrated yet");
  for (const background::WorkerEntry& entry : background::AllWorkers()) {
    leaders_[std::string(entry.name)].needed = entry.needed_for_liveness;
  }
}

Caretaker::~Caretaker() = default;

void Caretaker::Start() {
  started_ = clock_.Now();
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

void Caretaker::Run(const std::stop_token& stop) {
  Clock::TimePoint migrate_at = clock_.Now();
  Clock::TimePoint look_at = clock_.Now() + kLookAtLeaders;  // They need a moment to take their leases.
  Clock::TimePoint revive_at = clock_.Now();
  while (!stop.stop_requested()) {
    const Clock::TimePoint now = clock_.Now();
    bool migrated;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      migrated = migrated_;
    }
    if (!migrated && now >= migrate_at) {
      Migrate();
      const std::lock_guard<std::mutex> lock(mutex_);
      migrate_at = clock_.Now() + (absl::IsFailedPrecondition(migration_) ? kMigrateAgainLater : kMigrateAgain);
    }
    if (now >= revive_at) {
      if (const absl::Status revived = database_.Revive(); absl::IsInternal(revived)) {
        const std::lock_guard<std::mutex> lock(mutex_);
        failure_ = revived;
      } else if (!revived.ok()) {
        LogError("the embedded PostgreSQL does not start", {{"error", std::string(revived.message())}});
        revive_at = clock_.Now() + kReviveAgain;
      }
    }
    TellChanges();
    if (now >= look_at && engine_.health().database_ok) {
      LookAtLeaders();
      look_at = clock_.Now() + kLookAtLeaders;
    }
    wake_.WaitUntil(clock_.Now() + kLook, stop);
  }
}

void Caretaker::Migrate() {
  const auto applied = store::postgres::Migrator(database_.url()).Up();
  if (!applied.ok()) {
    LogError("cannot migrate the schema",
             {{"database", database_.description()}, {"error", std::string(applied.status().message())}});
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  migrated_ = applied.ok();
  migration_ = applied.status();
}

void Caretaker::LookAtLeaders() {
  const auto rows = store_.ListBackground();
  // The database is away, which readiness says already.
  if (!rows.ok()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [name, leader] : leaders_) {
    std::vector<std::string> holders;
    std::string left_out;  // Shards that nobody holds.
    for (const store::BackgroundRow& row : *rows) {
      if (row.name != name) continue;
      if (!row.holder.empty()) {
        holders.push_back(row.shards.empty() ? row.holder : absl::StrCat(row.holder, " (shards ", row.shards, ")"));
      }
      if (row.holder.empty() && !row.shards.empty()) {
        left_out = absl::StrCat("no replica holds shards ", row.shards, " of the background worker ", name,
                                row.last_error.empty() ? "" : absl::StrCat("; last error: ", row.last_error));
      }
    }
    leader.status = absl::OkStatus();
    leader.note = holders.empty() ? "nobody leads it" : absl::StrCat("led by ", absl::StrJoin(holders, ", "));
    if (!leader.needed) continue;
    if (holders.empty()) {
      leader.status = absl::UnavailableError(absl::StrCat("no replica leads the background worker ", name,
                                                          "; start one with --background=all or --background=", name));
    } else if (!left_out.empty()) {
      leader.status = absl::UnavailableError(left_out);
    }
  }
}

absl::Status Caretaker::Ready() const {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!failure_.ok()) return failure_;
    if (!migrated_) return migration_;
  }
  const engine::Health health = engine_.health();
  if (!health.database_ok) {
    return absl::UnavailableError(health.database_error.empty() ? "not connected to the database yet"
                                                                : health.database_error);
  }
  if (health.draining) return absl::UnavailableError("shutting down");
  return absl::OkStatus();
}

absl::Status Caretaker::Failure() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

void Caretaker::TellChanges() {
  const absl::Status ready = Ready();
  if (told_ && ready == told_status_) return;
  if (!told_ && !ready.ok() && clock_.Now() < started_ + kFirstMoments) return;
  if (ready.ok()) {
    LogInfo("ready", {{"database", database_.description()}});
  } else {
    LogWarn("not ready", {{"database", database_.description()}, {"reason", std::string(ready.message())}});
  }
  told_ = true;
  told_status_ = ready;
}

std::vector<http::ReadinessCheck> Caretaker::ReadinessChecks() const {
  std::vector<http::ReadinessCheck> checks;
  if (migrates_) {
    checks.push_back({.name = "migrations", .warning = false, .check = [this] {
                        const std::lock_guard<std::mutex> lock(mutex_);
                        return migrated_ ? absl::OkStatus() : migration_;
                      }});
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [name, unused] : leaders_) {
    checks.push_back({.name = absl::StrCat("background-", name),
                      .warning = true,
                      .check =
                          [this, worker = name] {
                            const std::lock_guard<std::mutex> inner(mutex_);
                            return leaders_.at(worker).status;
                          },
                      .note =
                          [this, worker = name] {
                            const std::lock_guard<std::mutex> inner(mutex_);
                            return leaders_.at(worker).note;
                          }});
  }
  return checks;
}

}  // namespace tenure::app
