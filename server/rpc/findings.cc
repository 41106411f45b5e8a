#include "server/rpc/findings.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/rpc/text.h"

namespace tenure::rpc {
namespace {

constexpr int kOldestPostgres = 140000;
constexpr absl::Duration kLongTransaction = absl::Minutes(5);
constexpr absl::Duration kClockTolerance = absl::Seconds(1);
// Autovacuum lets a fifth of a table go dead by default; far beyond that, and in numbers that cost something, it is
// held back.
constexpr int64_t kManyDeadTuples = 100'000;
constexpr int64_t kManyTransactions = 1'000'000;  // That a replication slot keeps alive.
// As the vacuum guard's defaults.
constexpr int64_t kLargeIndex = int64_t{64} << 20;
constexpr double kBloated = 0.7;

void Add(Findings* out, std::string check, v1::Finding::Severity severity, std::string message,
         std::string advice = "") {
  v1::Finding* finding = out->Add();
  finding->set_check(std::move(check));
  finding->set_severity(severity);
  finding->set_message(SanitizeText(std::move(message), 4096));
  finding->set_advice(std::move(advice));
}

constexpr auto kOk = v1::Finding::SEVERITY_OK;
constexpr auto kWarning = v1::Finding::SEVERITY_WARNING;
constexpr auto kError = v1::Finding::SEVERITY_ERROR;

std::string Describe(const store::VacuumHolder& holder) {
  std::string text = holder.kind;
  if (holder.pid != 0) absl::StrAppend(&text, ", pid ", holder.pid);
  absl::StrAppend(&text, ", ", holder.kind == "transaction" ? "application" : "name", " \"", holder.name, "\"");
  if (!holder.owner.empty()) absl::StrAppend(&text, ", user \"", holder.owner, "\"");
  if (!holder.state.empty()) absl::StrAppend(&text, ", ", holder.state);
  if (holder.query_start) {
    absl::StrAppend(&text, ", last query begun at ",
                    absl::FormatTime(absl::RFC3339_sec, *holder.query_start, absl::UTCTimeZone()));
  }
  return text;
}

std::string Mebibytes(int64_t bytes) { return absl::StrCat(bytes >> 20, " MiB"); }

void DiagnoseIndexes(const store::DatabaseInfo& info, Findings* out) {
  if (!info.leftover_indexes.empty()) {
    Add(out, "index bloat", kWarning,
        absl::StrCat("left over from a rebuild that was cut short: ", absl::StrJoin(info.leftover_indexes, ", ")),
        "The background worker vacuum-guard drops them; by hand: drop index concurrently tenure.NAME.");
    return;
  }
  const store::IndexSize* worst = nullptr;
  for (const store::IndexSize& index : info.indexes) {
    if (worst == nullptr || index.bytes - index.needed > worst->bytes - worst->needed) worst = &index;
  }
  if (worst == nullptr) return;
  const std::string found =
      absl::StrCat(worst->name, " takes ", Mebibytes(worst->bytes), ", and would need ", Mebibytes(worst->needed));
  if (worst->bytes >= kLargeIndex && worst->surplus() >= kBloated) {
    Add(out, "index bloat", kWarning, found,
        "The background worker vacuum-guard rebuilds it once no transaction has been open for long; by hand, on a "
        "direct "
        "connection: reindex index concurrently tenure.NAME.");
  } else {
    Add(out, "index bloat", kOk, found);
  }
}

}  // namespace

void Diagnose(const store::DatabaseInfo& info, Findings* out) {
  if (info.version_number >= kOldestPostgres) {
    Add(out, "PostgreSQL version", kOk, absl::StrCat("PostgreSQL ", info.version));
  } else {
    Add(out, "PostgreSQL version", kError, absl::StrCat("PostgreSQL ", info.version, " is older than 14"),
        "Upgrade to PostgreSQL 14 or newer.");
  }
  Add(out, "role", kOk, absl::StrCat("connected as ", info.role));
  Add(out, "pooling mode", kOk,
      info.pooled ? "through a transaction pooler; nothing is kept in sessions"
                  : "connected directly, without a pooler");
  if (info.schema_version > 0 && info.schema_version < info.required_schema) {
    Add(out, "schema version", kError,
        absl::StrCat("version ", info.schema_version, ", and this daemon needs ", info.required_schema),
        "Run: tenured migrate up");
  } else if (info.schema_version > 0) {
    Add(out, "schema version", kOk, absl::StrCat("version ", info.schema_version));
  } else {
    Add(out, "schema version", kError, "the schema tenure is not there", "Run: tenured migrate up");
  }
  const std::optional<absl::Duration> oldest = info.oldest_transaction();
  if (oldest && *oldest > kLongTransaction) {
    Add(out, "oldest transaction", kWarning,
        absl::StrCat("a transaction has been open for ", absl::FormatDuration(absl::Trunc(*oldest, absl::Seconds(1))),
                     ", held by ", Describe(info.holders[0])),
        "Vacuum cannot remove what died since it began. End it in its application, or with pg_terminate_backend(pid); "
        "guard against "
        "the next with idle_in_transaction_session_timeout, and look for forgotten prepared transactions and "
        "replication slots.");
  } else {
    Add(out, "oldest transaction", kOk,
        oldest ? absl::StrCat("open for ", absl::FormatDuration(absl::Trunc(*oldest, absl::Seconds(1))))
               : "none is open");
  }
  for (const store::VacuumHolder& holder : info.holders) {
    if (holder.age || holder.transactions < kManyTransactions) continue;
    Add(out, "replication slot", kWarning,
        absl::StrCat(Describe(holder), " keeps what ", holder.transactions, " transactions have left behind"),
        "Vacuum cannot remove what died since. If nobody reads from it any more: select "
        "pg_drop_replication_slot(name).");
  }
  const absl::Duration off = absl::Trunc(info.clock_difference, absl::Milliseconds(1));
  if (absl::AbsDuration(info.clock_difference) > kClockTolerance) {
    Add(out, "clock difference", kWarning,
        absl::StrCat("the database's clock is ", absl::FormatDuration(absl::AbsDuration(off)),
                     off > absl::ZeroDuration() ? " ahead of" : " behind", " this machine's"),
        "Leases and due times follow the database's clock, so nothing breaks; but times that people compare will "
        "differ. Check NTP on "
        "both machines.");
  } else {
    Add(out, "clock difference", kOk, absl::FormatDuration(off));
  }
  const auto behind = std::find_if(info.tables.begin(), info.tables.end(), [](const store::TableRows& table) {
    return table.dead > kManyDeadTuples && table.dead > table.live;
  });
  if (behind != info.tables.end()) {
    Add(out, "dead tuples", kWarning,
        absl::StrCat(behind->dead, " dead and ", behind->live, " live rows in tenure.", behind->name),
        "Autovacuum is behind or held back: look at the oldest transaction, prepared transactions and replication "
        "slots.");
  } else {
    Add(out, "dead tuples", kOk,
        absl::StrCat(info.jobs().dead, " dead and ", info.jobs().live, " live rows in tenure.job"));
  }
  DiagnoseIndexes(info, out);
  if (info.synchronous_commit) {
    Add(out, "synchronous commit", kOk, "on: what was acknowledged survives a crash");
  } else {
    Add(out, "synchronous commit", kError, "off: a crash of PostgreSQL can lose acknowledged jobs and outcomes",
        "Set synchronous_commit = on for this role: ALTER ROLE <role> SET synchronous_commit = on;");
  }
}

void DiagnoseUnreachable(const absl::Status& status, Findings* out) {
  Add(out, "database", kError, std::string(status.message()),
      "The daemon tries again by itself. Check that PostgreSQL runs, that --database-url points to it, and its log.");
}

}  // namespace tenure::rpc
