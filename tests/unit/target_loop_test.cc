// How the loop serves targets: each apart, so that none waits for another, and all of them over when the run is.
// On a scripted store. Layer: tests.
#include "server/background/targets/target_loop.h"

#include <condition_variable>
#include <set>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/status.h"
#include "tests/support/unimplemented_store.h"

namespace tenure::background::targets {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class ListStore : public testing::UnimplementedStore {
 public:
  explicit ListStore(int64_t targets) : targets_(targets) {}

  absl::StatusOr<std::vector<store::TargetWork>> LoadTargets(store::TargetPurpose) override {
    std::vector<store::TargetWork> works;
    for (int64_t id = 1; id <= targets_; ++id) {
      store::TargetWork& work = works.emplace_back();
      work.target.id = id;
      work.target.version = 1;
    }
    return works;
  }
  absl::Status NoteTarget(const store::Fence& fence, int64_t target, std::string_view error,
                          std::optional<store::NextRun>) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    EXPECT_EQ(fence.term, 7);
    noted_[target] = std::string(error);
    return absl::OkStatus();
  }
  std::string Noted(int64_t target) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return noted_[target];
  }

 private:
  const int64_t targets_;
  std::mutex mutex_;
  std::map<int64_t, std::string> noted_;
};

class TargetLoopTest : public ::testing::Test, public RunContext::Listener {
 protected:
  // Runs the loop on a thread of its own. `serve` is called without locks held.
  void Start(int64_t targets, TargetLoop::Serve serve, absl::Duration poll = absl::Milliseconds(10)) {
    store_ = std::make_unique<ListStore>(targets);
    loop_ = std::make_unique<TargetLoop>(*store_, Clock::Real(), metrics_, Access(), store::TargetPurpose::kEventLog,
                                         poll, [this, serve = std::move(serve)](const Visit& visit) {
                                           Note([&] { ++begun_[visit.work.target.id]; });
                                           auto served = serve(visit);
                                           Note([&] { ++ended_[visit.work.target.id]; });
                                           return served;
                                         });
    runner_ = std::thread([this] {
      RunContext context({"event-log", 7}, stop_.get_token(), Clock::Real(), *this);
      const absl::Status status = loop_->Run(context);
      Note([&] { returned_ = status; });
    });
  }
  ~TargetLoopTest() override {
    stop_.request_stop();
    if (runner_.joinable()) runner_.join();
  }
  // A visit that ends only when it is told to.
  static absl::StatusOr<absl::Duration> Hang(const Visit& visit) {
    std::mutex mutex;
    std::condition_variable_any changed;
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, visit.stop, [] { return false; });
    return absl::CancelledError("stopped");
  }
  void Note(const std::function<void()>& change) {
    const std::lock_guard<std::mutex> lock(mutex_);
    change();
    changed_.notify_all();
  }
  [[nodiscard]] bool Await(const std::function<bool()>& condition) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, 20s, condition);
  }
  void OnRound(const absl::Status& status) override {
    Note([&] {
      ++rounds_;
      if (!status.ok()) failure_ = status;
    });
  }
  void OnPanic(std::string_view what) override {
    Note([&] { panic_ = std::string(what); });
    stop_.request_stop();
  }

  Metrics metrics_;
  std::unique_ptr<ListStore> store_;
  std::unique_ptr<TargetLoop> loop_;
  std::stop_source stop_;
  std::thread runner_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int64_t, int> begun_, ended_;
  int rounds_ = 0;
  absl::Status failure_;
  std::string panic_;
  std::optional<absl::Status> returned_;
};

TEST_F(TargetLoopTest, ATargetThatHangsHoldsUpNoOther) {
  Start(3, [](const Visit& visit) -> absl::StatusOr<absl::Duration> {
    if (visit.work.target.id == 1) return Hang(visit);
    return absl::ZeroDuration();
  });
  EXPECT_TRUE(Await([&] { return ended_[2] >= 5 && ended_[3] >= 5 && rounds_ >= 5; }));
  Note([&] { EXPECT_EQ(begun_[1], 1) << "never twice at once"; });
  EXPECT_EQ(ended_[1], 0);
  EXPECT_TRUE(Await([&] {
    return metrics_.target_lag.Add({{"purpose", "event-log"}}).Value() >= 0.1;
  })) << "and is seen to";
  stop_.request_stop();
  EXPECT_TRUE(Await([&] { return returned_.has_value(); }));
  EXPECT_EQ(*returned_, absl::OkStatus());
  EXPECT_EQ(ended_[1], 1) << "told to stop, and waited for";
  EXPECT_EQ(store_->Noted(1), "") << "cut short is no fault of the target";
}

TEST_F(TargetLoopTest, HoweverManyAreInTroubleThereIsRoomForTheOthers) {
  // Targets beyond the first fail at their first visit, and hang from then on.
  constexpr int64_t kTargets = 3 * TargetLoop::kAtOnce;
  std::set<int64_t> seen;
  Start(kTargets, [&](const Visit& visit) -> absl::StatusOr<absl::Duration> {
    const int64_t id = visit.work.target.id;
    if (id == kTargets) return absl::ZeroDuration();
    bool first = false;
    Note([&] { first = seen.insert(id).second; });
    if (first) return absl::UnavailableError("away");
    return Hang(visit);
  });
  ASSERT_TRUE(Await([&] {
    int hanging = 0;
    for (const auto& [id, begun] : begun_) hanging += begun - ended_[id] > 0 && id != kTargets ? 1 : 0;
    return hanging == TargetLoop::kAtOnce / 2;
  }));
  int before = 0;
  Note([&] { before = ended_[kTargets]; });
  EXPECT_TRUE(Await([&] { return ended_[kTargets] >= before + 5; }));
  EXPECT_EQ(store_->Noted(1), "away");
}

TEST_F(TargetLoopTest, ATermThatIsOverEndsTheRunAndEveryVisit) {
  Start(
      2,
      [this](const Visit& visit) -> absl::StatusOr<absl::Duration> {
        if (visit.work.target.id == 1) return Hang(visit);
        EXPECT_TRUE(Await([&] { return begun_[1] == 1; }));
        return MakeError(absl::StatusCode::kFailedPrecondition, "TERM_OVER", "another one leads");
      },
      absl::Hours(1));
  ASSERT_TRUE(Await([&] { return returned_.has_value(); })) << "though the next look is far away";
  EXPECT_TRUE(IsTermOver(*returned_));
  EXPECT_EQ(ended_[1], 1);
}

TEST_F(TargetLoopTest, APanicInAVisitIsOneOfTheWorker) {
  Start(2, [](const Visit& visit) -> absl::StatusOr<absl::Duration> {
    if (visit.work.target.id == 1) return Hang(visit);
    throw 42;
  });
  ASSERT_TRUE(Await([&] { return returned_.has_value(); }));
  EXPECT_EQ(panic_, "int 42");
  EXPECT_EQ(ended_[1], 1);
}

TEST_F(TargetLoopTest, ADatabaseThatIsAwayIsNoFaultOfTheTarget) {
  Start(1, [](const Visit&) -> absl::StatusOr<absl::Duration> {
    return MakeError(absl::StatusCode::kUnavailable, "DATABASE_UNAVAILABLE", "the database is away");
  });
  EXPECT_TRUE(Await([&] { return rounds_ >= 1 && !failure_.ok(); }));
  EXPECT_THAT(std::string(failure_.message()), HasSubstr("away"));
  EXPECT_EQ(store_->Noted(1), "");
}

}  // namespace
}  // namespace tenure::background::targets
