// What the doctor says of each fact about the database.
#include "server/rpc/findings.h"

#include <gtest/gtest.h>

#include <string>

namespace tenure::rpc {
namespace {

store::DatabaseInfo Healthy() {
  store::DatabaseInfo info;
  info.version = "15.8";
  info.version_number = 150008;
  info.role = "tenure";
  info.schema_version = 3;
  info.required_schema = 3;
  info.synchronous_commit = true;
  return info;
}

v1::Finding FindingOf(const store::DatabaseInfo& info, const std::string& check) {
  Findings findings;
  Diagnose(info, &findings);
  for (const v1::Finding& finding : findings) {
    if (finding.check() == check) return finding;
  }
  ADD_FAILURE() << "nothing is said of " << check;
  return {};
}

TEST(Findings, AHealthyDatabaseHasNone) {
  Findings findings;
  Diagnose(Healthy(), &findings);
  EXPECT_EQ(findings.size(), 8);
  for (const v1::Finding& finding : findings) {
    EXPECT_EQ(finding.severity(), v1::Finding::SEVERITY_OK) << finding.ShortDebugString();
    EXPECT_EQ(finding.advice(), "") << finding.check();
  }
}

TEST(Findings, ASchemaThatIsTooOldOrMissingIsAnErrorWithTheCommandThatMendsIt) {
  store::DatabaseInfo info = Healthy();
  info.schema_version = 2;
  v1::Finding finding = FindingOf(info, "schema version");
  EXPECT_EQ(finding.severity(), v1::Finding::SEVERITY_ERROR);
  EXPECT_EQ(finding.message(), "version 2, and this daemon needs 3");
  EXPECT_EQ(finding.advice(), "Run: tenured migrate up");
  info.schema_version = 0;
  finding = FindingOf(info, "schema version");
  EXPECT_EQ(finding.severity(), v1::Finding::SEVERITY_ERROR);
  EXPECT_EQ(finding.advice(), "Run: tenured migrate up");
  info.schema_version = 4;  // Of a newer daemon: it serves this one as well.
  EXPECT_EQ(FindingOf(info, "schema version").severity(), v1::Finding::SEVERITY_OK);
}

TEST(Findings, EachFaultIsToldWithAdvice) {
  store::DatabaseInfo info = Healthy();
  info.version_number = 130010;
  info.holders = {{.kind = "transaction", .age = absl::Hours(2), .pid = 7, .name = "report", .owner = "app"},
                  {.kind = "replication slot", .transactions = 2'000'000, .name = "old", .state = "inactive"}};
  info.clock_difference = -absl::Seconds(30);
  info.tables = {{"job", 5'000'000, 10}};
  info.indexes = {{"job_ready", "job", int64_t{300} << 20, int64_t{30} << 20}};
  info.synchronous_commit = false;
  Findings findings;
  Diagnose(info, &findings);
  int faults = 0;
  for (const v1::Finding& finding : findings) {
    if (finding.severity() == v1::Finding::SEVERITY_OK) continue;
    ++faults;
    EXPECT_NE(finding.advice(), "") << finding.check();
  }
  EXPECT_EQ(faults, 7);
  EXPECT_EQ(FindingOf(info, "oldest transaction").message(),
            "a transaction has been open for 2h, held by transaction, pid 7, application \"report\", user \"app\"");
  EXPECT_EQ(FindingOf(info, "replication slot").message(),
            "replication slot, name \"old\", inactive keeps what 2000000 transactions have left behind");
  EXPECT_EQ(FindingOf(info, "index bloat").message(), "job_ready takes 300 MiB, and would need 30 MiB");
  info.leftover_indexes = {"job_ready_ccnew"};
  EXPECT_EQ(FindingOf(info, "index bloat").message(), "left over from a rebuild that was cut short: job_ready_ccnew");
  EXPECT_EQ(FindingOf(info, "clock difference").message(), "the database's clock is 30s behind this machine's");
}

}  // namespace
}  // namespace tenure::rpc
