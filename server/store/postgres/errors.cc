#include "server/store/postgres/errors.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "server/base/status.h"

namespace tenure::store::postgres {
namespace {

constexpr char kSqlStateUrl[] = "tenure/sqlstate";

absl::Status Make(std::string_view sqlstate, std::string_view message) {
  const std::string text(message);
  if (sqlstate.empty()) {
    return MakeError(absl::StatusCode::kUnavailable, "DATABASE_UNAVAILABLE",
                     absl::StrCat("the connection to PostgreSQL failed: ", text), {}, absl::Milliseconds(500));
  }
  const std::string_view sqlclass = sqlstate.substr(0, 2);
  // 25006: read-only, a primary that was demoted. 57P0x: shutting down, crashed, starting. 53300: too many clients.
  if (sqlclass == "08" || sqlstate == "25006" || sqlstate == "57P01" || sqlstate == "57P02" || sqlstate == "57P03" ||
      sqlclass == "53") {
    return MakeError(absl::StatusCode::kUnavailable, "DATABASE_UNAVAILABLE", absl::StrCat("PostgreSQL: ", text), {},
                     absl::Milliseconds(500));
  }
  if (sqlstate == "57014" || sqlstate == "55P03" || sqlstate == "25P03") {
    return MakeError(absl::StatusCode::kDeadlineExceeded, "DATABASE_TIMEOUT",
                     absl::StrCat("PostgreSQL gave up at its deadline: ", text), {}, absl::Seconds(1));
  }
  if (sqlstate == "40001" || sqlstate == "40P01") {
    return MakeError(absl::StatusCode::kAborted, "DATABASE_CONFLICT", absl::StrCat("PostgreSQL: ", text));
  }
  if (sqlclass == "3F" || sqlclass == "42") {
    return MakeError(
        absl::StatusCode::kFailedPrecondition, "SCHEMA_MISMATCH",
        absl::StrCat("the database schema does not fit this version (run `tenured migrate up`, or check the role's "
                     "rights): ",
                     text));
  }
  return MakeError(absl::StatusCode::kInternal, "DATABASE_ERROR",
                   absl::StrCat("PostgreSQL ", std::string(sqlstate), ": ", text));
}

}  // namespace

absl::Status FromSqlState(std::string_view sqlstate, std::string_view message) {
  while (!message.empty() && (message.back() == '\n' || message.back() == ' ')) message.remove_suffix(1);
  absl::Status status = Make(sqlstate, message);
  status.SetPayload(kSqlStateUrl, absl::Cord(absl::string_view(sqlstate.data(), sqlstate.size())));
  return status;
}

std::string SqlStateOf(const absl::Status& status) {
  auto payload = status.GetPayload(kSqlStateUrl);
  return payload ? std::string(*payload) : std::string();
}

bool IsRetryable(const absl::Status& status) {
  const std::string state = SqlStateOf(status);
  return state == "40001" || state == "40P01";
}

bool IsConnectionFailure(const absl::Status& status) {
  return absl::IsUnavailable(status) && status.GetPayload(kSqlStateUrl).has_value();
}

absl::Status TermOver(const Fence& fence) {
  return MakeError(absl::StatusCode::kFailedPrecondition, "TERM_OVER",
                   absl::StrCat("term ", fence.term, " of background worker ", fence.worker, " is over"));
}

absl::Status ShardTermOver(const ShardFence& fence) {
  return MakeError(absl::StatusCode::kFailedPrecondition, "TERM_OVER",
                   absl::StrCat("term ", fence.term, " of shards ", fence.first, "-", fence.last,
                                " of background worker ", fence.worker, " is over"));
}

}  // namespace tenure::store::postgres
