// Callers that go away, over a real gRPC connection: the poll leaves, and leases that nobody received are given back,
// however the answer and the cancellation meet. The engine is a fake that answers when the test says so.
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "server/rpc/job_service.h"
#include "server/rpc/method_table.h"
#include "server/rpc/server.h"
#include "server/rpc/worker_service.h"
#include "tenure/v1/job_service.grpc.pb.h"
#include "tenure/v1/worker_service.grpc.pb.h"
#include "tests/support/fake_engine.h"

namespace tenure::rpc {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(30);

// Things that other threads put in and the test waits for.
template <typename T>
class Inbox {
 public:
  void Put(T value) {
    std::lock_guard lock(mutex_);
    values_.push_back(std::move(value));
    changed_.notify_all();
  }
  std::optional<T> Take() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, absl::ToChronoSeconds(kPatience), [&] { return !values_.empty(); }))
      return std::nullopt;
    T value = std::move(values_.front());
    values_.pop_front();
    return value;
  }
  size_t size() const {
    std::lock_guard lock(mutex_);
    return values_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<T> values_;
};

// The engine's half of a long poll.
template <typename Answer>
struct Poll : engine::PollHandle {
  std::string worker;
  absl::Duration wait;
  int64_t seq = 0;
  engine::Callback<Answer> done;
  std::atomic<int> cancels = 0;
  absl::Notification cancelled;
  void Cancel() override {
    if (cancels++ == 0) cancelled.Notify();
  }
};
using ClaimPoll = Poll<engine::ClaimAnswer>;

engine::ClaimAnswer OneJob(int64_t seq) {
  engine::ClaimAnswer answer;
  store::ClaimedJob& job = answer.jobs.emplace_back();
  job.job.id = job.token.job = {7, 20786, seq};
  job.token.number = 1;
  job.job.payload = {"payload", "text/plain"};
  job.lease = job.remaining = absl::Seconds(30);
  return answer;
}

// A call of the client's.
template <typename Response>
struct Outgoing {
  grpc::ClientContext context;
  Response response;
  std::promise<grpc::Status> promise;
  std::future<grpc::Status> status = promise.get_future();
};

class RpcCancellation : public ::testing::Test {
 protected:
  void SetUp() override {
    engine_.claim = [this](engine::ClaimCall call, auto, engine::Callback<engine::ClaimAnswer> done) {
      auto poll = std::make_shared<ClaimPoll>();
      poll->worker = call.worker;
      poll->wait = call.wait;
      poll->done = std::move(done);
      polls_.Put(poll);
      return poll;
    };
    engine_.undeliverable = [this](engine::ClaimAnswer answer) { returned_.Put(std::move(answer)); };
    jobs_.Register(methods_);
    workers_.Register(methods_);
    ServerOptions options;
    options.listen = "127.0.0.1:0";
    auto server = Server::Start(options, methods_, engine_, Clock::Real());
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    channel_ = grpc::CreateChannel(absl::StrCat("127.0.0.1:", server_->port()), grpc::InsecureChannelCredentials());
    stub_ = v1::WorkerService::NewStub(channel_);
  }

  std::shared_ptr<Outgoing<v1::ClaimResponse>> Claim(v1::ClaimRequest request,
                                                     absl::Duration timeout = absl::InfiniteDuration()) {
    auto call = std::make_shared<Outgoing<v1::ClaimResponse>>();
    if (timeout != absl::InfiniteDuration()) {
      call->context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoNanoseconds(timeout));
    }
    auto kept = std::make_shared<v1::ClaimRequest>(std::move(request));
    stub_->async()->Claim(&call->context, kept.get(), &call->response,
                          [call, kept](grpc::Status status) { call->promise.set_value(std::move(status)); });
    return call;
  }

  static v1::ClaimRequest Request(std::string worker = "w") {
    v1::ClaimRequest request;
    request.set_worker_id(std::move(worker));
    request.add_queues()->set_queue("q");
    request.mutable_wait()->set_seconds(20);
    return request;
  }

  testing::FakeEngine engine_;
  Metrics metrics_;
  MethodTable methods_{Clock::Real(), metrics_};
  JobService jobs_{engine_, Limits()};
  WorkerService workers_{engine_, Limits()};
  Inbox<std::shared_ptr<ClaimPoll>> polls_;
  Inbox<engine::ClaimAnswer> returned_;
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::WorkerService::Stub> stub_;
};

TEST_F(RpcCancellation, ADeliveredClaimKeepsItsLease) {
  auto call = Claim(Request());
  auto poll = polls_.Take();
  ASSERT_TRUE(poll);
  EXPECT_EQ((*poll)->wait, absl::Seconds(20)) << "without a deadline the wait is what was asked for";
  (*poll)->done(OneJob(1));
  const grpc::Status status = call->status.get();
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(call->response.jobs_size(), 1);
  EXPECT_EQ(call->response.jobs(0).job().payload().text(), "payload");
  server_->Shutdown(kPatience);
  EXPECT_EQ(returned_.size(), 0u);
  EXPECT_EQ((*poll)->cancels, 0);
}

TEST_F(RpcCancellation, ALongPollEndsALittleBeforeTheCallersDeadline) {
  auto call = Claim(Request(), absl::Seconds(5));
  auto poll = polls_.Take();
  ASSERT_TRUE(poll);
  EXPECT_LE((*poll)->wait, absl::Milliseconds(4950));
  EXPECT_GT((*poll)->wait, absl::Seconds(2));
  (*poll)->done(engine::ClaimAnswer());
  EXPECT_TRUE(call->status.get().ok());
  EXPECT_EQ(call->response.jobs_size(), 0);
}

TEST_F(RpcCancellation, Case10_ACallerThatLeavesWhileParkedGetsNothingLeased) {
  auto call = Claim(Request());
  auto poll = polls_.Take();
  ASSERT_TRUE(poll);
  call->context.TryCancel();
  EXPECT_EQ(call->status.get().error_code(), grpc::StatusCode::CANCELLED);
  ASSERT_TRUE((*poll)->cancelled.WaitForNotificationWithTimeout(kPatience));
  (*poll)->done(absl::CancelledError("left"));
  server_->Shutdown(kPatience);
  EXPECT_EQ((*poll)->cancels, 1);
  EXPECT_EQ(returned_.size(), 0u);
}

TEST_F(RpcCancellation, ADeadlineThatPassesIsACallerThatLeft) {
  auto call = Claim(Request(), absl::Milliseconds(300));
  auto poll = polls_.Take();
  ASSERT_TRUE(poll);
  EXPECT_EQ(call->status.get().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  ASSERT_TRUE((*poll)->cancelled.WaitForNotificationWithTimeout(kPatience));
  (*poll)->done(OneJob(2));
  auto back = returned_.Take();
  ASSERT_TRUE(back);
  EXPECT_EQ(back->jobs.at(0).token.job.seq, 2);
}

TEST_F(RpcCancellation, LeasesForACallerThatHasGoneAreGivenBack) {
  auto call = Claim(Request());
  auto poll = polls_.Take();
  ASSERT_TRUE(poll);
  call->context.TryCancel();
  call->status.get();
  ASSERT_TRUE((*poll)->cancelled.WaitForNotificationWithTimeout(kPatience));
  (*poll)->done(OneJob(3));  // The claim was in flight and committed.
  auto back = returned_.Take();
  ASSERT_TRUE(back);
  ASSERT_EQ(back->jobs.size(), 1u);
  EXPECT_EQ(back->jobs[0].token.job.seq, 3);
  EXPECT_EQ(back->jobs[0].token.number, 1);
  EXPECT_EQ(back->jobs[0].lease, absl::Seconds(30));
  server_->Shutdown(kPatience);
  EXPECT_EQ(returned_.size(), 0u) << "only once";
}

TEST_F(RpcCancellation, Case11_WithARequestIdTheLeasesWaitForTheRetry) {
  v1::ClaimRequest request = Request();
  request.set_request_id("r1");
  auto call = Claim(request);
  auto poll = polls_.Take();
  ASSERT_TRUE(poll);
  call->context.TryCancel();
  ASSERT_TRUE((*poll)->cancelled.WaitForNotificationWithTimeout(kPatience));
  (*poll)->done(OneJob(4));
  server_->Shutdown(kPatience);
  EXPECT_EQ(returned_.size(), 0u);
}

TEST_F(RpcCancellation, NamedClaimsAreGivenBackToo) {
  std::promise<engine::Callback<std::vector<store::NamedClaimOutcome>>> asked;
  engine_.claim_named = [&](engine::NamedClaimCall, auto, auto done) { asked.set_value(std::move(done)); };
  v1::ClaimRequest request;
  request.set_worker_id("w");
  request.add_job_ids("7-20786-9");
  auto call = Claim(request);
  auto done = asked.get_future().get();
  call->context.TryCancel();
  call->status.get();
  // The server may hear of the cancellation only after the answer; either way the answer cannot be delivered, unless it
  // was written before. So wait until it has heard.
  std::vector<store::NamedClaimOutcome> outcomes(1);
  outcomes[0].job = OneJob(9).jobs[0];
  // A second call on the same connection comes after the first one's reset.
  v1::ListWorkersResponse ignored;
  grpc::ClientContext context;
  EXPECT_EQ(stub_->ListWorkers(&context, v1::ListWorkersRequest(), &ignored).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  done(std::move(outcomes));
  auto back = returned_.Take();
  ASSERT_TRUE(back);
  EXPECT_EQ(back->jobs.at(0).token.job.seq, 9);
}

TEST_F(RpcCancellation, OtherPollsLeaveWithTheirCallers) {
  auto get_poll = std::make_shared<Poll<store::Job>>();
  auto notice_poll = std::make_shared<Poll<engine::NoticesAnswer>>();
  absl::Notification get_parked, notice_parked;
  engine_.get = [&](const store::JobId&, auto, auto, auto done) {
    get_poll->done = std::move(done);
    get_parked.Notify();
    return get_poll;
  };
  engine_.await_notices = [&](std::string, auto, auto, auto, auto done) {
    notice_poll->done = std::move(done);
    notice_parked.Notify();
    return notice_poll;
  };
  auto jobs = v1::JobService::NewStub(channel_);
  v1::GetRequest get;
  get.set_id("7-20786-1");
  get.mutable_wait()->set_seconds(10);
  Outgoing<v1::GetResponse> getting;
  jobs->async()->Get(&getting.context, &get, &getting.response,
                     [&](grpc::Status s) { getting.promise.set_value(std::move(s)); });
  v1::AwaitNoticesRequest await;
  await.set_worker_id("w");
  await.mutable_wait()->set_seconds(10);
  Outgoing<v1::AwaitNoticesResponse> awaiting;
  stub_->async()->AwaitNotices(&awaiting.context, &await, &awaiting.response,
                               [&](grpc::Status s) { awaiting.promise.set_value(std::move(s)); });
  ASSERT_TRUE(get_parked.WaitForNotificationWithTimeout(kPatience));
  ASSERT_TRUE(notice_parked.WaitForNotificationWithTimeout(kPatience));
  getting.context.TryCancel();
  awaiting.context.TryCancel();
  EXPECT_EQ(getting.status.get().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(awaiting.status.get().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(get_poll->cancelled.WaitForNotificationWithTimeout(kPatience));
  EXPECT_TRUE(notice_poll->cancelled.WaitForNotificationWithTimeout(kPatience));
  get_poll->done(absl::CancelledError("left"));
  notice_poll->done(absl::CancelledError("left"));
}

TEST_F(RpcCancellation, ShutdownEndsParkedPolls) {
  std::vector<std::shared_ptr<Outgoing<v1::ClaimResponse>>> calls;
  std::vector<std::shared_ptr<ClaimPoll>> polls;
  for (int i = 0; i < 100; ++i) calls.push_back(Claim(Request(absl::StrCat(i))));
  for (int i = 0; i < 100; ++i) {
    auto poll = polls_.Take();
    ASSERT_TRUE(poll);
    polls.push_back(*poll);
  }
  std::thread answering([&] {
    for (auto& poll : polls) {
      EXPECT_TRUE(poll->cancelled.WaitForNotificationWithTimeout(kPatience));
      poll->done(absl::CancelledError("left"));
    }
  });
  server_->Shutdown(absl::ZeroDuration());
  answering.join();
  for (auto& call : calls) EXPECT_FALSE(call->status.get().ok());
}

// The answer and the cancellation start at the same instant, over and over. Whatever a caller received is not given
// back, whatever is given back was not received, nothing is given back twice, and every call ends.
TEST_F(RpcCancellation, AnswersAndCancellationsRace) {
  constexpr int kCalls = 600;
  std::mt19937 random(7);
  std::vector<std::shared_ptr<Outgoing<v1::ClaimResponse>>> calls;
  std::vector<std::shared_ptr<ClaimPoll>> polls(kCalls);
  for (int i = 0; i < kCalls; ++i) calls.push_back(Claim(Request(absl::StrCat(i))));
  for (int i = 0; i < kCalls; ++i) {
    auto poll = polls_.Take();
    ASSERT_TRUE(poll);
    (*poll)->seq = std::stoll((*poll)->worker);
    polls[static_cast<size_t>((*poll)->seq)] = *poll;
  }
  std::atomic<int> round = -1;
  std::thread answering([&] {
    for (int i = 0; i < kCalls; ++i) {
      while (round.load() < i) std::this_thread::yield();
      polls[static_cast<size_t>(i)]->done(OneJob(i));
    }
  });
  for (int i = 0; i < kCalls; ++i) {
    round = i;
    // From "before the answer" to "after it has arrived".
    for (uint32_t spin = random() % 40; spin > 0; --spin) std::this_thread::yield();
    calls[static_cast<size_t>(i)]->context.TryCancel();
  }
  answering.join();
  std::map<int64_t, bool> received;
  for (int i = 0; i < kCalls; ++i) received[i] = calls[static_cast<size_t>(i)]->status.get().ok();
  server_->Shutdown(kPatience);
  std::map<int64_t, int> returned;
  while (returned_.size() > 0) ++returned[returned_.Take()->jobs.at(0).token.job.seq];
  for (const auto& [seq, times] : returned) {
    EXPECT_EQ(times, 1) << seq;
    EXPECT_FALSE(received[seq]) << seq << " was received and given back";
  }
  RecordProperty("given_back", static_cast<int>(returned.size()));
}

}  // namespace
}  // namespace tenure::rpc
