// What the outbox costs those who do not use it: nothing that can be measured, and what it costs those who do. Layer:
// tests.
#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "statements.sql.h"
#include "tests/support/store_fixture.h"

namespace tenure::store::postgres {
namespace {

constexpr int kBatch = 500;
constexpr int kRounds = 40;

// complete.sql without its part for the outbox.
std::string WithoutOutbox() {
  std::string text(sql::kComplete);
  const size_t from = text.find(",\noutbound as ("), to = text.find("\n)\nselect l.id", from);
  if (from == std::string::npos || to == std::string::npos) return "";
  return text.erase(from, to + 3 - from - 1);
}

class OutboxCostTest : public testing::StoreTest {
 protected:
  void SetUp() override {
    auto opened = Connection::Open(database_.url(), "cost", absl::Seconds(5));
    ASSERT_TRUE(opened.ok()) << opened.status();
    connection_ = *std::move(opened);
    if (connection_->backend_pid() == 0) GTEST_SKIP() << "a pooler hides which process works";
    queue_ = store_->EnsureQueue("q", true)->id;
    replica_ = *store_->RegisterReplica("r", "test");
  }

  // Microseconds of processor time that the session has used so far.
  double SpentMicros() const {
    int64_t nanos = 0;
    std::ifstream(absl::StrCat("/proc/", connection_->backend_pid(), "/schedstat")) >> nanos;
    return static_cast<double>(nanos) / 1e3;
  }

  // Completes a batch by `text`; microseconds of the session's time per job.
  double Round(std::string_view text) {
    const std::vector<NewJob> specs(kBatch, NewJob{.kind = "k", .payload = {"{}", ""}});
    EXPECT_TRUE(store_->Enqueue(queue_, specs).ok());
    ClaimBatch batch;
    batch.queue = queue_;
    batch.replica = replica_;
    batch.ranges = {{0, kLowestKey, kHighestKey}};
    batch.workers = {"w"};
    batch.slots.assign(kBatch, ClaimSlot{0, -1, absl::Minutes(5)});
    const auto claimed = store_->Claim(batch);
    EXPECT_TRUE(claimed.ok()) << claimed.status();
    std::vector<LeaseToken> tokens;
    for (const ClaimedJob& job : claimed->jobs) tokens.push_back(job.token);
    EXPECT_EQ(tokens.size(), static_cast<size_t>(kBatch));
    std::sort(tokens.begin(), tokens.end(),
              [](const LeaseToken& a, const LeaseToken& b) { return a.job.seq < b.job.seq; });
    Params params;
    params.Add(queue_)
        .AddArray(tokens, [](const LeaseToken& t) { return t.job.seq; })
        .AddArray(tokens, [](const LeaseToken& t) { return t.number; })
        .AddArray(tokens, [](const LeaseToken& t) { return t.secret; })
        .AddByteaArray(tokens, [](const LeaseToken&) { return std::string_view("ok"); })
        .AddArray(tokens, [](const LeaseToken&) { return std::string_view("text/plain"); });
    const double began = SpentMicros();
    Transaction tx(*connection_, {absl::Seconds(30)});
    const auto done = tx.RunAndCommit(text, params);
    EXPECT_TRUE(done.ok()) << done.status();
    EXPECT_EQ(done.ok() ? done->rows() : 0, kBatch);
    return (SpentMicros() - began) / kBatch;
  }

  std::unique_ptr<Connection> connection_;
  int32_t queue_ = 0;
  int32_t replica_ = 0;
};

// The two statements in turn, and the lower quarter of each: what else runs on the machine makes rounds dearer, never
// cheaper.
TEST_F(OutboxCostTest, AQueueThatNoTargetListensToPaysNothing) {
  const std::string without = WithoutOutbox();
  ASSERT_NE(without, "");
  std::vector<double> plain, with;
  for (int round = 0; round < kRounds; ++round) {
    plain.push_back(Round(without));
    with.push_back(Round(sql::kComplete));
  }
  EXPECT_EQ(Sql("select count(*) from tenure.outbox"), "0");
  std::sort(plain.begin(), plain.end());
  std::sort(with.begin(), with.end());
  const double before = plain[kRounds / 4], after = with[kRounds / 4];
  // The target: under 0.3 us a job, of some 10.
  EXPECT_LT(after, before * 1.1 + 0.3) << "us of PostgreSQL's time per completed job, against " << before;

  Sql("insert into tenure.outbox_interest values (0, 15)");
  std::vector<double> told;
  for (int round = 0; round < kRounds / 2; ++round) told.push_back(Round(sql::kComplete));
  EXPECT_EQ(Sql("select count(*) from tenure.outbox"), absl::StrCat(kBatch * (kRounds / 2)));
  std::sort(told.begin(), told.end());
  RecordProperty("without_us", absl::StrCat(before));
  RecordProperty("nobody_listens_us", absl::StrCat(after));
  RecordProperty("told_us", absl::StrCat(told[kRounds / 8]));
  std::printf("us per job: without %.2f, nobody listens %.2f, told %.2f\n", before, after, told[kRounds / 8]);
}

}  // namespace
}  // namespace tenure::store::postgres
