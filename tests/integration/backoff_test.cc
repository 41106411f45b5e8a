// CASES 3: the wait after a failure is capped, never negative and never shorter than the one before, at any number of
// failures.
#include <cstdint>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/support/store_fixture.h"

namespace tenure::store {
namespace {

class BackoffTest : public tenure::testing::StoreTest {
 protected:
  int64_t Backoff(int64_t initial, const std::string& multiplier, int64_t max, int64_t failures, int64_t id = 7) {
    int64_t micros = -1;
    EXPECT_TRUE(absl::SimpleAtoi(Sql(absl::StrCat("select tenure.backoff_us(", initial, ", ", multiplier, ", ", max,
                                                  ", ", failures, ", ", id, ")")),
                                 &micros));
    return micros;
  }
};

constexpr int64_t kSecond = 1'000'000;
constexpr int64_t kHour = 3600 * kSecond;

TEST_F(BackoffTest, DoublesFromOneSecondWithUpToTenPercentMore) {
  for (int failures = 1; failures <= 11; ++failures) {
    const int64_t plain = kSecond << (failures - 1);
    const int64_t wait = Backoff(kSecond, "2", kHour, failures);
    EXPECT_GE(wait, plain) << failures;
    EXPECT_LE(wait, plain + plain / 10) << failures;
  }
}

TEST_F(BackoffTest, IsCappedAtAnyNumberOfFailures) {
  for (int64_t failures : {int64_t{13}, int64_t{64}, int64_t{1000}, int64_t{2147483647}}) {
    EXPECT_EQ(Backoff(kSecond, "2", kHour, failures), kHour) << failures;
    EXPECT_EQ(Backoff(1, "1000", kHour, failures), kHour) << failures;
    EXPECT_EQ(Backoff(kSecond, "1e300", kHour, failures), kHour) << failures;
  }
}

TEST_F(BackoffTest, OddSettingsGiveAWaitAllTheSame) {
  const std::string largest = "9223372036854775807";
  for (int64_t failures : {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{64}, int64_t{1000}, int64_t{2147483647}}) {
    // A multiplier of one or less waits as long each time.
    for (const char* multiplier : {"1", "0.5", "0"}) {
      const int64_t wait = Backoff(kSecond, multiplier, kHour, failures);
      EXPECT_GE(wait, kSecond) << multiplier << " " << failures;
      EXPECT_LE(wait, kSecond + kSecond / 10) << multiplier << " " << failures;
    }
    // No wait, and one that starts above its cap.
    EXPECT_EQ(Backoff(0, "2", 0, failures), 0) << failures;
    EXPECT_EQ(Backoff(2 * kHour, "2", kHour, failures), kHour) << failures;
    // As large as numbers get.
    EXPECT_GE(
        Sql(absl::StrCat("select (tenure.backoff_us(", largest, ", 2, ", largest, ", ", failures, ", 7) > 0)::text")),
        "true");
  }
}

// For many jobs at once, failure by failure, under several settings: each wait at least as long as the one before,
// within the cap.
TEST_F(BackoffTest, NeverShrinksForAnyJob) {
  EXPECT_EQ(
      Sql("select count(*) from ("
          "  select w.us, w.max, lag(w.us, 1, 0::bigint) over (partition by w.id, w.initial, w.multiplier, w.max order "
          "by w.failures) as before"
          "  from (select i.id, s.initial, s.multiplier, s.max, f.failures, "
          "               tenure.backoff_us(s.initial, s.multiplier, s.max, f.failures, i.id) as us"
          "        from generate_series(1, 300) as i (id)"
          "        cross join (values (1000000::bigint, 2::float8, 3600000000::bigint), (1000, 1.01, 60000000), "
          "(250000, 10, 7000000),"
          "                           (1, 2, 9000000000000), (500000, 1, 3600000000)) as s (initial, multiplier, max)"
          "        cross join (select generate_series(1, 80) union all select unnest(array[1000, 100000, 2147483646, "
          "2147483647])) as f (failures)"
          "       ) w) x where x.us < x.before or x.us < 0 or x.us > x.max"),
      "0");
}

// What Fail writes, with the budget spent far beyond what one expects.
TEST_F(BackoffTest, AJobThatHasFailedTwoBillionTimesIsStillDueWithinTheHour) {
  const int32_t queue = store_->EnsureQueue("q", true)->id;
  const int32_t replica = *store_->RegisterReplica("r", "test");
  std::vector<NewJob> specs(1, NewJob{.kind = "k"});
  ASSERT_TRUE(store_->Enqueue(queue, specs).ok());
  Sql("update tenure.job set failures = 2147483640, max_attempts = null");
  Sql("update tenure.queue set max_attempts = 2147483647");
  ClaimBatch batch;
  batch.queue = queue;
  batch.replica = replica;
  batch.ranges = {{0, kLowestKey, kHighestKey}};
  batch.workers = {"w"};
  batch.slots = {ClaimSlot{0, -1, absl::Seconds(30)}};
  auto claimed = store_->Claim(batch);
  ASSERT_TRUE(claimed.ok()) << claimed.status();
  ASSERT_EQ(claimed->jobs.size(), 1u);
  const std::vector<FailItem> fails{{claimed->jobs[0].token, {"boom"}, false, std::nullopt}};
  auto failed = store_->Fail(queue, fails);
  ASSERT_TRUE(failed.ok()) << failed.status();
  EXPECT_EQ(failed->items[0].job_state, JobState::kScheduled);
  EXPECT_EQ(Sql("select due_at = updated_at + interval '1 hour' from tenure.job"), "t");
}

}  // namespace
}  // namespace tenure::store
