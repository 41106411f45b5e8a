#include "server/store/postgres/migrator.h"

#include <charconv>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "migrations.sql.h"
#include "server/base/logging.h"
#include "server/base/status.h"
#include "server/store/postgres/connection.h"
#include "server/store/postgres/errors.h"

namespace tenure::store::postgres {
namespace {

constexpr absl::Duration kTimeout = absl::Minutes(10);

// "create schema if not exists" wants the right to create schemas in the database even where the schema is there;
// asking first, an administrator can make it beforehand, and the role needs no such right.
constexpr std::string_view kMakeTable =
    "do $$ begin if to_regnamespace('tenure') is null then create schema tenure; end if; end $$; "
    "create table if not exists tenure.schema_migration "
    "(version int primary key, name text not null, applied_at timestamptz not null default now())";
constexpr std::string_view kHasTable = "select to_regclass('tenure.schema_migration') is not null";
constexpr std::string_view kLock = "select pg_advisory_xact_lock(2122)";
constexpr std::string_view kApplied = "select version, name, applied_at from tenure.schema_migration order by version";
constexpr std::string_view kRecord = "insert into tenure.schema_migration (version, name) values ($1, $2)";
constexpr std::string_view kForget = "delete from tenure.schema_migration where version = $1";

struct Migration {
  std::string name;
  std::string_view up;
  std::string_view down;
};

// "0001_initial.up.sql"
std::map<int, Migration> Known() {
  std::map<int, Migration> known;
  for (const migrations::NamedSql& file : migrations::kAll) {
    int version = 0;
    std::from_chars(file.file.data(), file.file.data() + 4, version);
    Migration& migration = known[version];
    const size_t end = file.file.find(file.file.ends_with(".up.sql") ? ".up.sql" : ".down.sql");
    migration.name = std::string(file.file.substr(5, end - 5));
    (file.file.ends_with(".up.sql") ? migration.up : migration.down) = file.text;
  }
  return known;
}

absl::StatusOr<std::map<int, Migrator::Entry>> ReadApplied(Transaction& tx) {
  TENURE_ASSIGN_OR_RETURN(Result rows, tx.Run(kApplied, Params()));
  std::map<int, Migrator::Entry> applied;
  for (int row = 0; row < rows.rows(); ++row) {
    applied[rows.Int32(row, 0)] = {rows.Int32(row, 0), rows.Text(row, 1), rows.Time(row, 2), true};
  }
  return applied;
}

absl::Status Explain(const absl::Status& status, std::string_view file) {
  if (IsConnectionFailure(status)) return status;
  return MakeError(
      absl::StatusCode::kFailedPrecondition, "MIGRATION_FAILED",
      absl::StrCat("migration ", std::string(file), " failed and was rolled back: ", std::string(status.message())));
}

}  // namespace

int Migrator::NewestVersion() { return Known().rbegin()->first; }

absl::StatusOr<std::vector<int>> Migrator::Up(std::optional<int> target) {
  TENURE_ASSIGN_OR_RETURN(auto connection, Connection::Open(url_, "tenured migrate", absl::Seconds(10)));
  {
    // Under the lock as well: "if not exists" alone does not keep two sessions from both making it.
    Transaction tx(*connection, {kTimeout});
    TENURE_RETURN_IF_ERROR(tx.Run(kLock, Params()).status());
    if (absl::Status made = connection->Script(kMakeTable, kTimeout); !made.ok()) {
      return Explain(made, "of schema tenure");
    }
    TENURE_RETURN_IF_ERROR(tx.Commit());
  }
  std::vector<int> done;
  for (const auto& [version, migration] : Known()) {
    if (target && version > *target) break;
    Transaction tx(*connection, {kTimeout});
    TENURE_RETURN_IF_ERROR(tx.Run(kLock, Params()).status());
    TENURE_ASSIGN_OR_RETURN(auto applied, ReadApplied(tx));
    if (applied.contains(version)) continue;
    if (absl::Status ran = connection->Script(migration.up, kTimeout); !ran.ok()) return Explain(ran, migration.name);
    TENURE_RETURN_IF_ERROR(tx.Run(kRecord, Params().Add(version).Add(migration.name)).status());
    TENURE_RETURN_IF_ERROR(tx.Commit());
    LogInfo("migration applied", {{"version", std::to_string(version)}, {"name", migration.name}});
    done.push_back(version);
  }
  return done;
}

absl::StatusOr<std::vector<int>> Migrator::Down(int target) {
  TENURE_ASSIGN_OR_RETURN(auto connection, Connection::Open(url_, "tenured migrate", absl::Seconds(10)));
  const auto known = Known();
  std::vector<int> done;
  for (;;) {
    Transaction tx(*connection, {kTimeout});
    TENURE_RETURN_IF_ERROR(tx.Run(kLock, Params()).status());
    TENURE_ASSIGN_OR_RETURN(auto applied, ReadApplied(tx));
    if (applied.empty() || applied.rbegin()->first <= target) return done;
    const int version = applied.rbegin()->first;
    auto migration = known.find(version);
    if (migration == known.end()) {
      return MakeError(absl::StatusCode::kInvalidArgument, "UNKNOWN_MIGRATION",
                       absl::StrCat("the database has migration ", version,
                                    ", which this binary does not know; use the newer `tenured` to go down"));
    }
    if (absl::Status ran = connection->Script(migration->second.down, kTimeout); !ran.ok())
      return Explain(ran, migration->second.name);
    TENURE_RETURN_IF_ERROR(tx.Run(kForget, Params().Add(version)).status());
    TENURE_RETURN_IF_ERROR(tx.Commit());
    LogInfo("migration reverted", {{"version", std::to_string(version)}, {"name", migration->second.name}});
    done.push_back(version);
  }
}

absl::StatusOr<std::vector<Migrator::Entry>> Migrator::Status() {
  TENURE_ASSIGN_OR_RETURN(auto connection, Connection::Open(url_, "tenured migrate", absl::Seconds(10)));
  Transaction tx(*connection, {kTimeout});
  std::map<int, Entry> entries;
  TENURE_ASSIGN_OR_RETURN(Result has, tx.Run(kHasTable, Params()));
  if (has.Bool(0, 0)) {
    TENURE_ASSIGN_OR_RETURN(entries, ReadApplied(tx));
  }
  const auto known = Known();
  for (auto& [version, entry] : entries) entry.known = known.contains(version);
  for (const auto& [version, migration] : known) {
    entries.try_emplace(version, Entry{version, migration.name, std::nullopt, true});
  }
  std::vector<Entry> list;
  for (auto& [version, entry] : entries) list.push_back(std::move(entry));
  return list;
}

}  // namespace tenure::store::postgres
