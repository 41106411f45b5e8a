// Admission of jobs whose rows somebody else is at: they are changed, or held, while they are admitted.
#include <future>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "server/store/admission_choice.h"
#include "server/store/fair_choice.h"
#include "server/store/postgres/connection.h"
#include "statements.sql.h"
#include "tests/support/store_fixture.h"

namespace tenure::store::postgres {
namespace {

class AdmissionLocksTest : public tenure::testing::StoreTest {
 protected:
  AdmissionLocksTest() {
    queue_ = store_->EnsureQueue("q", true)->id;
    EXPECT_TRUE(store_->SetLimit(queue_, LimitScope::kKey, "a", {2, std::nullopt}).ok());
  }
  std::vector<JobId> Enqueue(const std::string& key, const std::string& group, int count) {
    NewJob job;
    job.kind = "k";
    if (!key.empty()) job.concurrency_keys = {key};
    job.group = group;
    auto result = store_->Enqueue(queue_, std::vector<NewJob>(static_cast<size_t>(count), job));
    EXPECT_TRUE(result.ok()) << result.status();
    std::vector<JobId> ids;
    for (const EnqueueOutcome& outcome : result->jobs) ids.push_back(outcome.id);
    return ids;
  }
  AdmitResult Admit(const std::vector<std::string>& names) {
    auto result = store_->Admit(queue_, names, 1000, FairWindow::kLeast);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : AdmitResult();
  }
  int32_t queue_ = 0;
};

// A change that commits after the statement's snapshot and before it locks the row leaves the row where it is; it must
// be told, so that the job is looked at again. Waiting for the lock, where the statement passes over, makes that
// moment.
TEST_F(AdmissionLocksTest, WhatIsChangedMeanwhileIsToldNotLost) {
  const std::vector<JobId> ids = Enqueue("a", "", 2);
  std::string waiting;
  for (const sql::NamedSql& statement : sql::kAll) {
    if (statement.file == "admit.sql") waiting = std::string(statement.text);
  }
  const size_t skip = waiting.find("for update skip locked");
  ASSERT_NE(skip, std::string::npos);
  waiting.replace(skip, std::string("for update skip locked").size(), "for update");
  auto other = Connection::Open(database_.url(), "other", absl::Seconds(5));
  auto admitting = Connection::Open(database_.url(), "admitting", absl::Seconds(5));
  ASSERT_TRUE(other.ok() && admitting.ok());
  Transaction change(**other, {absl::Seconds(60)});
  ASSERT_TRUE(change.Run("update tenure.job set kind = 'changed'", Params()).ok());
  auto held_up = std::async(std::launch::async, [&] {
    Transaction admit(**admitting, Transaction::Limits{absl::Seconds(60), absl::Seconds(60)});
    Params params;
    params.Add(queue_)
        .AddArray(ids, [](const JobId& id) { return id.seq; })
        .AddArray(ids, [](const JobId&) { return kGateFirstKey; })
        .AddArray(ids, [](const JobId&) { return kGateAdmitted; })
        .AddArray(ids, [](const JobId&) { return int64_t{0}; });
    auto rows = admit.RunAndCommit(waiting, params);
    EXPECT_TRUE(rows.ok()) << rows.status();
    return rows.ok() && rows->rows() == 1 ? rows->IntArray(0, rows->Column("held_up")) : std::vector<int64_t>();
  });
  while (Sql("select count(*) from pg_locks where not granted") != "1") std::this_thread::yield();
  ASSERT_TRUE(change.Commit().ok());
  EXPECT_EQ(held_up.get(), (std::vector<int64_t>{ids[0].seq, ids[1].seq}));
  EXPECT_EQ(Admit({"ka"}).admitted, 2);
  EXPECT_EQ(Sql("select string_agg(kind || state, ' ') from tenure.job"), "changed3 changed3");
}

// Who holds the row of a waiting job may let it go without a word: it is looked at again soon, whatever it waits for.
TEST_F(AdmissionLocksTest, WhatSomebodyHasLockedIsLookedAtAgain) {
  Enqueue("a", "", 1);
  Enqueue("", "g", 1);
  auto other = Connection::Open(database_.url(), "other", absl::Seconds(5));
  ASSERT_TRUE(other.ok()) << other.status();
  std::set<std::string> later;
  {
    Transaction holds(**other, {absl::Seconds(60)});
    ASSERT_TRUE(holds.Run("select 1 from tenure.job for update", Params()).ok());
    const AdmitResult result = Admit({"ka", "gg"});
    EXPECT_EQ(result.admitted, 0);
    for (const AdmitResult::Later& one : result.later) {
      EXPECT_LE(one.after, absl::Milliseconds(100)) << one.name;
      later.insert(one.name);
    }
  }
  EXPECT_TRUE(later.contains("ka"));
  EXPECT_TRUE(later.contains("gg"));
  EXPECT_EQ(Admit({"ka", "gg"}).admitted, 2);
}

}  // namespace
}  // namespace tenure::store::postgres
