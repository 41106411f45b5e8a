#include "server/rpc/findings.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "server/rpc/text.h"

namespace tenure::rpc {
namespace {

constexpr int kOldestPostgres = 140000;
constexpr absl::Duration kLongTransaction = absl::Minutes(5);
constexpr absl::Duration kClockTolerance = absl::Seconds(1);
// Autovacuum lets a fifth of a table go dead by default; far beyond that, and in numbers that cost something, it is
// held back.
constexpr int64_t kManyDeadTuples = 100'000;

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
  if (info.oldest_transaction && *info.oldest_transaction > kLongTransaction) {
    Add(out, "oldest transaction", kWarning,
        absl::StrCat(
            "a transaction has been open for ",
            absl::FormatDuration(absl::Trunc(*info.oldest_transaction, absl::Seconds(1))),
            info.oldest_transaction_holder.empty() ? "" : absl::StrCat(", held by ", info.oldest_transaction_holder)),
        "Vacuum cannot remove what died since it began. End it in its application, or with pg_terminate_backend(pid); "
        "guard against "
        "the next with idle_in_transaction_session_timeout, and look for forgotten prepared transactions and "
        "replication slots.");
  } else {
    Add(out, "oldest transaction", kOk,
        info.oldest_transaction
            ? absl::StrCat("open for ", absl::FormatDuration(absl::Trunc(*info.oldest_transaction, absl::Seconds(1))))
            : "none is open");
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
  if (info.dead_tuples > kManyDeadTuples && info.dead_tuples > info.live_tuples) {
    Add(out, "dead tuples", kWarning,
        absl::StrCat(info.dead_tuples, " dead and ", info.live_tuples, " live rows in the queue tables"),
        "Autovacuum is behind or held back: look at the oldest transaction, prepared transactions and replication "
        "slots.");
  } else {
    Add(out, "dead tuples", kOk,
        absl::StrCat(info.dead_tuples, " dead and ", info.live_tuples, " live rows in the queue tables"));
  }
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
