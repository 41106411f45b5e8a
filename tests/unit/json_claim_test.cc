// Claims as JSON POSTs: what becomes of a poll, and of its leases, whose caller has gone. The engine is a fake.
#include <memory>
#include <string>
#include <vector>

#include "tests/support/json_fixture.h"

namespace tenure::rpc {
namespace {

using std::string;

// The engine's half of a parked claim.
struct Parked : engine::PollHandle {
  int cancels = 0;
  engine::ClaimCall call;
  engine::Deadline deadline;
  engine::Callback<engine::ClaimAnswer> done;
  void Cancel() override { ++cancels; }
  static engine::ClaimAnswer OneJob() {
    engine::ClaimAnswer answer;
    store::ClaimedJob& job = answer.jobs.emplace_back();
    job.job.id = job.token.job = {7, 20786, 42};
    job.job.payload = {"p", "text/plain"};
    job.token.secret = 5;
    job.lease = job.remaining = absl::Seconds(30);
    return answer;
  }
};

class JsonClaim : public testing::JsonTest {
 protected:
  JsonClaim() {
    engine_.claim = [this](engine::ClaimCall call, engine::Deadline deadline,
                           engine::Callback<engine::ClaimAnswer> done) {
      parked_->call = std::move(call);
      parked_->deadline = deadline;
      parked_->done = std::move(done);
      return parked_;
    };
    engine_.undeliverable = [this](engine::ClaimAnswer answer) { returned_.push_back(std::move(answer)); };
  }
  std::shared_ptr<JsonCall> Start(const string& body, std::optional<absl::Duration> timeout = std::nullopt) {
    return dispatcher_.Call({.path = "/tenure.v1.WorkerService/Claim", .body = body, .timeout = timeout, .peer = ""},
                            [this](JsonAnswer answer) { answers_.push_back(std::move(answer)); });
  }
  std::shared_ptr<Parked> parked_ = std::make_shared<Parked>();
  std::vector<engine::ClaimAnswer> returned_;
  std::vector<JsonAnswer> answers_;
};

constexpr char kClaim[] = R"({"workerId":"w","queues":[{"queue":"q"}],"wait":"20s"})";

TEST_F(JsonClaim, ADeliveredAnswerKeepsItsLeases) {
  auto call = Start(kClaim);
  EXPECT_TRUE(answers_.empty());
  parked_->done(Parked::OneJob());
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_NE(answers_[0].body.find("7-20786-42.0.0.0000000000000005"), string::npos) << answers_[0].body;
  call.reset();
  EXPECT_TRUE(returned_.empty());
}

TEST_F(JsonClaim, ACallerThatLeavesWhileParkedCancelsThePoll) {
  auto call = Start(kClaim);
  call->Cancel();
  call->Cancel();
  EXPECT_EQ(parked_->cancels, 1);
  parked_->done(MakeError(absl::StatusCode::kCancelled, "CANCELLED", "gone"));
  call.reset();
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_EQ(answers_[0].http_status, 499);
  EXPECT_TRUE(returned_.empty());
}

TEST_F(JsonClaim, LeasesThatWereNotDeliveredAreGivenBack) {
  auto call = Start(kClaim);
  parked_->done(Parked::OneJob());
  call->Cancel();  // The answer could not be written.
  EXPECT_TRUE(returned_.empty());
  call.reset();
  ASSERT_EQ(returned_.size(), 1u);
  ASSERT_EQ(returned_[0].jobs.size(), 1u);
  EXPECT_EQ(returned_[0].jobs[0].token.secret, 5);
  EXPECT_EQ(returned_[0].jobs[0].job.id.seq, 42);
}

TEST_F(JsonClaim, AHandleDroppedEarlyStillGivesLeasesBack) {
  auto call = Start(kClaim);
  call->Cancel();
  call.reset();
  parked_->done(Parked::OneJob());
  EXPECT_EQ(answers_.size(), 1u);
  EXPECT_EQ(returned_.size(), 1u);
}

TEST_F(JsonClaim, WithARequestIdNothingIsGivenBack) {
  auto call = Start(R"({"workerId":"w","queues":[{"queue":"q"}],"requestId":"r"})");
  parked_->done(Parked::OneJob());
  call->Cancel();
  call.reset();
  EXPECT_TRUE(returned_.empty());
}

TEST_F(JsonClaim, ALongPollEndsALittleBeforeTheCallersDeadline) {
  Start(kClaim);
  EXPECT_EQ(parked_->call.wait, absl::Seconds(20));
  EXPECT_EQ(parked_->deadline, clock_.Now() + std::chrono::seconds(50));
  parked_->done(engine::ClaimAnswer());
  Start(kClaim, absl::Seconds(10));
  EXPECT_EQ(parked_->call.wait, absl::Milliseconds(9850));
  EXPECT_EQ(parked_->deadline, clock_.Now() + std::chrono::seconds(10));
  parked_->done(engine::ClaimAnswer());
  Start(kClaim, absl::Milliseconds(100));
  EXPECT_EQ(parked_->call.wait, absl::Milliseconds(90));
  parked_->done(engine::ClaimAnswer());
  Start(kClaim, absl::Seconds(30));
  EXPECT_EQ(parked_->call.wait, absl::Seconds(20));
  parked_->done(engine::ClaimAnswer());
  Start(kClaim, -absl::Seconds(1));
  EXPECT_EQ(parked_->call.wait, absl::ZeroDuration());
  parked_->done(engine::ClaimAnswer());
  EXPECT_EQ(answers_.size(), 5u);
}

}  // namespace
}  // namespace tenure::rpc
