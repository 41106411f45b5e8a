// What workers hear about their jobs, and when. Layer: tests.
#include "server/engine/notice_board.h"

#include <memory>
#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/status.h"
#include "tests/support/manual_clock.h"

namespace tenure::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::ManualClock;

class NoticeBoardTest : public ::testing::Test {
 protected:
  // One poll's answer.
  struct Heard {
    std::mutex mu;
    std::condition_variable cv;
    std::vector<absl::StatusOr<NoticesAnswer>> answers;
    bool answered() {
      std::lock_guard<std::mutex> lock(mu);
      return !answers.empty();
    }
    // Waits for it; it comes once.
    absl::StatusOr<NoticesAnswer> Get() {
      std::unique_lock<std::mutex> lock(mu);
      if (!cv.wait_for(lock, std::chrono::seconds(30), [&] { return !answers.empty(); })) {
        return absl::DeadlineExceededError("no answer");
      }
      EXPECT_EQ(answers.size(), 1u);
      return answers[0];
    }
    std::vector<int64_t> Ids() {
      std::vector<int64_t> ids;
      const auto answer = Get();
      EXPECT_TRUE(answer.ok()) << answer.status();
      if (answer.ok()) {
        for (const store::Notice& notice : answer->notices) ids.push_back(notice.id);
      }
      return ids;
    }
  };

  std::shared_ptr<Heard> Await(const std::string& worker, std::vector<int64_t> seen = {},
                               absl::Duration wait = absl::Seconds(10), Deadline deadline = Deadline::max()) {
    auto heard = std::make_shared<Heard>();
    handle_ = board_.Await(worker, std::move(seen), wait, deadline, [heard](absl::StatusOr<NoticesAnswer> answer) {
      std::lock_guard<std::mutex> lock(heard->mu);
      heard->answers.push_back(std::move(answer));
      heard->cv.notify_all();
    });
    return heard;
  }
  static store::Notice Of(int64_t id, const std::string& worker) {
    store::Notice notice;
    notice.id = id;
    notice.worker = worker;
    return notice;
  }

  ManualClock clock_;
  Timers timers_{clock_};
  Options options_{.max_polls = 3};
  NoticeBoard board_{timers_, options_};
  std::shared_ptr<PollHandle> handle_;
};

TEST_F(NoticeBoardTest, AParkedPollHearsItsWorkersNoticesOnly) {
  auto a = Await("a"), b = Await("b");
  EXPECT_EQ(board_.parked(), 2u);
  board_.Post({Of(1, "a"), Of(2, "a"), Of(3, "c")});
  EXPECT_THAT(a->Ids(), ElementsAre(1, 2));
  EXPECT_FALSE(b->answered());
  EXPECT_EQ(board_.parked(), 1u);
}

TEST_F(NoticeBoardTest, WhatIsThereIsAnsweredAtOnceLessWhatWasSeen) {
  board_.Post({Of(1, "a"), Of(2, "a")});
  board_.Post({Of(3, "a")});
  EXPECT_THAT(Await("a")->Ids(), ElementsAre(1, 2, 3));
  EXPECT_THAT(Await("a", {1, 3})->Ids(), ElementsAre(2));
  auto seen_all = Await("a", {1, 2, 3});
  EXPECT_FALSE(seen_all->answered());
  board_.Post({Of(4, "a")});
  EXPECT_THAT(seen_all->Ids(), ElementsAre(4));
}

TEST_F(NoticeBoardTest, NoWaitIsAnsweredEmptyAtOnce) {
  EXPECT_THAT(Await("a", {}, absl::ZeroDuration())->Ids(), IsEmpty());
}

TEST_F(NoticeBoardTest, APollEndsEmptyAfterItsWaitAndALittleBeforeItsCallersDeadline) {
  auto first = Await("a", {}, absl::Seconds(10));
  auto second = Await("a", {}, absl::Seconds(10), clock_.Now() + std::chrono::seconds(4));
  ASSERT_TRUE(clock_.StepTo(absl::Seconds(4) - absl::Milliseconds(50)));
  EXPECT_THAT(second->Ids(), IsEmpty());
  EXPECT_FALSE(first->answered());
  ASSERT_TRUE(clock_.StepTo(absl::Seconds(6) + absl::Milliseconds(50)));
  EXPECT_THAT(first->Ids(), IsEmpty());
  EXPECT_FALSE(first->Get()->draining);
  EXPECT_EQ(board_.parked(), 0u);
}

TEST_F(NoticeBoardTest, NoticesAreKeptForAMinute) {
  board_.Post({Of(1, "a")});
  clock_.Advance(absl::Seconds(30));
  board_.Post({Of(2, "a")});
  clock_.Advance(absl::Seconds(29));
  EXPECT_THAT(Await("a")->Ids(), ElementsAre(1, 2));
  clock_.Advance(absl::Seconds(2));
  EXPECT_THAT(Await("a")->Ids(), ElementsAre(2));
  clock_.Advance(absl::Seconds(30));
  EXPECT_THAT(Await("a", {}, absl::ZeroDuration())->Ids(), IsEmpty());
}

TEST_F(NoticeBoardTest, AWorkerThatNeverAsksCostsABoundedAmount) {
  for (int i = 0; i < 12; ++i) {
    std::vector<store::Notice> notices;
    for (int k = 0; k < 1000; ++k) notices.push_back(Of(1 + i * 1000 + k, "a"));
    board_.Post(std::move(notices));
  }
  const std::vector<int64_t> ids = Await("a")->Ids();
  ASSERT_EQ(ids.size(), 10'000u);
  EXPECT_EQ(ids.back(), 12'000);
}

TEST_F(NoticeBoardTest, ACancelledPollIsAnsweredOnceAndGone) {
  auto heard = Await("a");
  handle_->Cancel();
  handle_->Cancel();
  EXPECT_TRUE(absl::IsCancelled(heard->Get().status()));
  EXPECT_EQ(board_.parked(), 0u);
  board_.Post({Of(1, "a")});
  clock_.Advance(absl::Minutes(1));
  heard->Get().status().IgnoreError();
}

TEST_F(NoticeBoardTest, MorePollsThanItTakesAreRefused) {
  for (const char* worker : {"a", "b", "c"}) Await(worker);
  EXPECT_EQ(DetailsOf(Await("d")->Get().status()).reason, "TOO_MANY_POLLS");
  // What can be answered at once needs no room.
  board_.Post({Of(1, "e")});
  EXPECT_THAT(Await("e")->Ids(), ElementsAre(1));
}

TEST_F(NoticeBoardTest, DrainingTellsEveryoneNowAndLater) {
  auto parked = Await("a");
  board_.Post({Of(7, "b")});
  board_.Drain();
  EXPECT_TRUE(parked->Get()->draining);
  auto later = Await("b");
  EXPECT_THAT(later->Ids(), ElementsAre(7));
  EXPECT_TRUE(later->Get()->draining);
  EXPECT_EQ(board_.parked(), 0u);
}

}  // namespace
}  // namespace tenure::engine
