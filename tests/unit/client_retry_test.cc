// The C++ client's calls: which are repeated and which never, errors and their facts, batches, lists, waiting. Against
// a fake daemon.
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <set>
#include <string>
#include <thread>

#include "client/cpp/src/retry_policy.h"
#include "client/cpp/src/utf8.h"
#include "tenure/client.h"
#include "tenure/v1/admin_service.pb.h"
#include "tenure/v1/limit_service.pb.h"
#include "tenure/v1/move_service.pb.h"
#include "tenure/v1/queue_service.pb.h"
#include "tenure/v1/schedule_service.pb.h"
#include "tenure/v1/target_service.pb.h"
#include "tests/support/fake_tenured.h"

namespace tenure::client {
namespace {

using internal::AllVerdicts;
using internal::Verdict;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::FakeTenured;

constexpr int kUnavailable = 14;
constexpr int kResourceExhausted = 8;
constexpr int kFailedPrecondition = 9;

ClientOptions Fast() {
  ClientOptions options;
  options.timeout = seconds(5);
  options.retry = {.initial_backoff = milliseconds(1), .max_backoff = milliseconds(5), .multiplier = 2};
  return options;
}

class ClientCalls : public ::testing::Test {
 protected:
  FakeTenured daemon_;
  Client client_ = Client::FromChannels({daemon_.channel()}, Fast());
};

TEST(RetryPolicy, EveryRpcOfTheApiHasAVerdict) {
  std::set<std::string> listed;
  for (const auto& entry : AllVerdicts()) {
    EXPECT_TRUE(listed.insert(std::string(entry.method)).second) << entry.method << " is listed twice";
    EXPECT_FALSE(entry.why.empty()) << entry.method;
  }
  // Named so that the linker keeps the descriptors of each file.
  const google::protobuf::FileDescriptor* files[] = {v1::JobSpec::descriptor()->file(),
                                                     v1::EnqueueRequest::descriptor()->file(),
                                                     v1::ClaimRequest::descriptor()->file(),
                                                     v1::CreateQueueRequest::descriptor()->file(),
                                                     v1::CreateScheduleRequest::descriptor()->file(),
                                                     v1::CreateTargetRequest::descriptor()->file(),
                                                     v1::CreateMoveRequest::descriptor()->file(),
                                                     v1::SetLimitRequest::descriptor()->file(),
                                                     v1::ListServersRequest::descriptor()->file()};
  std::set<std::string> declared;
  for (const auto* file : files) {
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m)
        declared.insert(file->service(s)->method(m)->full_name());
    }
  }
  EXPECT_GE(declared.size(), 30u);
  for (const std::string& method : declared) EXPECT_TRUE(listed.contains(method)) << "no verdict on " << method;
  for (const std::string& method : listed) EXPECT_TRUE(declared.contains(method)) << method << " is no RPC any more";
}

TEST(RetryPolicy, AnUnknownRpcIsNeverRepeated) {
  EXPECT_EQ(internal::VerdictOf("tenure.v1.JobService.New"), Verdict::kNever);
}

TEST(RetryPolicy, OnlyAFullyKeyedRequestHasItsKey) {
  v1::EnqueueRequest enqueue;
  enqueue.add_jobs()->set_idempotency_key("a");
  EXPECT_TRUE(internal::HasKey(enqueue));
  enqueue.add_jobs();
  EXPECT_FALSE(internal::HasKey(enqueue));
  v1::ClaimRequest claim;
  EXPECT_FALSE(internal::HasKey(claim));
  claim.set_request_id("r");
  EXPECT_TRUE(internal::HasKey(claim));
}

TEST(RetryPolicy, BackoffGrowsIsCappedAndObeysTheDaemon) {
  const RetryOptions options{.initial_backoff = milliseconds(100), .max_backoff = seconds(5), .multiplier = 2};
  for (int failures : {1, 2, 3, 6, 64, 1000, 2'000'000'000}) {
    const Duration wait = internal::BackoffAfter(failures, absl::UnavailableError(""), options);
    const Duration full =
        failures > 6 ? Duration(seconds(5)) : std::min<Duration>(milliseconds(100) * (1 << (failures - 1)), seconds(5));
    EXPECT_LE(wait, full) << failures;
    EXPECT_GE(wait, full / 2) << failures;
  }
  const absl::Status asked = MakeStatus(absl::StatusCode::kResourceExhausted, reason::kOverloaded, "", {}, seconds(9));
  EXPECT_GE(internal::BackoffAfter(1, asked, options), seconds(9));
}

TEST(RetryPolicy, FinalAnswersAreNeverTransient) {
  for (const auto found : {reason::kLeaseLost, reason::kJobCancelled, reason::kAlreadySettled, reason::kJobNotFound}) {
    // Whatever the code they come with.
    EXPECT_FALSE(internal::IsTransient(MakeStatus(absl::StatusCode::kUnavailable, found, "")));
    EXPECT_FALSE(internal::RefusedBeforeEffect(MakeStatus(absl::StatusCode::kUnavailable, found, "")));
  }
  // Without the daemon's reason it is the transport's limit: sending it again would not make it smaller.
  EXPECT_FALSE(internal::IsTransient(absl::ResourceExhaustedError("message too large")));
}

TEST_F(ClientCalls, AnIdempotentCallIsRepeatedUntilItIsAnswered) {
  const std::string id = daemon_.Add("k", "hello");
  daemon_.FailNext("Get", kUnavailable, "DATABASE_UNAVAILABLE", 3);
  const auto job = client_.Get(id);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->payload.data, "hello");
  EXPECT_EQ(daemon_.calls("Get"), 4);
}

TEST_F(ClientCalls, RepetitionsEndWithTheTimeout) {
  const std::string id = daemon_.Add("k");
  daemon_.FailNext("Get", kUnavailable, "DATABASE_UNAVAILABLE", 100'000);
  const auto begin = std::chrono::steady_clock::now();
  const auto job = client_.Get(id, {.timeout = milliseconds(200), .stop = {}});
  EXPECT_EQ(job.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ErrorReason(job.status()), "DATABASE_UNAVAILABLE");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(4));
  EXPECT_GT(daemon_.calls("Get"), 3);
}

TEST_F(ClientCalls, TheDaemonsWishToWaitIsHonoured) {
  const std::string id = daemon_.Add("k");
  daemon_.FailNext("Get", kResourceExhausted, "OVERLOADED", 1, milliseconds(150));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(client_.Get(id).ok());
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(150));
}

TEST_F(ClientCalls, AnEnqueueWithoutAKeyIsSentOnce) {
  daemon_.LoseReplies("Enqueue");
  const auto enqueued = client_.Enqueue({.queue = "q", .kind = "k"});
  EXPECT_EQ(enqueued.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(daemon_.calls("Enqueue"), 1);
}

TEST_F(ClientCalls, AnEnqueueWithAKeyIsRepeatedAndMakesOneJob) {
  daemon_.LoseReplies("Enqueue");
  JobSpec spec{.queue = "q", .kind = "k"};
  spec.idempotency_key = "once";
  const auto enqueued = client_.Enqueue(spec);
  ASSERT_TRUE(enqueued.ok()) << enqueued.status();
  EXPECT_TRUE(enqueued->duplicate);
  EXPECT_EQ(daemon_.calls("Enqueue"), 2);
}

TEST_F(ClientCalls, GeneratedKeysMakeEveryEnqueueSafeToRepeat) {
  ClientOptions options = Fast();
  options.generate_idempotency_keys = true;
  Client client = Client::FromChannels({daemon_.channel()}, options);
  daemon_.LoseReplies("Enqueue");
  const auto enqueued = client.Enqueue({.queue = "q", .kind = "k"});
  ASSERT_TRUE(enqueued.ok()) << enqueued.status();
  EXPECT_TRUE(enqueued->duplicate);
}

TEST_F(ClientCalls, WhatWasRefusedBeforeAnyEffectIsRepeatedWithoutAKey) {
  daemon_.FailNext("Enqueue", kResourceExhausted, "OVERLOADED");
  EXPECT_TRUE(client_.Enqueue({.queue = "q", .kind = "k"}).ok());
  EXPECT_EQ(daemon_.calls("Enqueue"), 2);
}

TEST_F(ClientCalls, FinalAnswersOfASettleAreReturnedAtOnce) {
  const std::string id = daemon_.Add("k");
  auto claim = client_.Claim({.worker_id = "w", .queues = {{"q"}}});
  ASSERT_TRUE(claim.ok()) << claim.status();
  ASSERT_EQ(claim->jobs.size(), 1u);
  daemon_.LoseLease(id);
  const auto settled = client_.Complete({.lease_token = claim->jobs[0].lease_token, .result = {}, .follow_ups = {}});
  EXPECT_TRUE(HasReason(settled.status(), reason::kLeaseLost)) << settled.status();
  EXPECT_TRUE(IsFinalAnswer(settled.status()));
  EXPECT_EQ(daemon_.calls("Complete"), 1);
}

TEST_F(ClientCalls, ASettleWhoseReplyWasLostAnswersTheSameOutcome) {
  const std::string id = daemon_.Add("k");
  auto claim = client_.Claim({.worker_id = "w", .queues = {{"q"}}});
  ASSERT_EQ(claim->jobs.size(), 1u);
  daemon_.LoseReplies("Fail");
  const auto settled = client_.Fail({.lease_token = claim->jobs[0].lease_token, .error = {.message = "no"}});
  ASSERT_TRUE(settled.ok()) << settled.status();
  EXPECT_TRUE(settled->replayed);
  EXPECT_EQ(daemon_.job(id).settles.size(), 1u);
}

TEST_F(ClientCalls, AClaimWithARequestIdIsReplayed) {
  daemon_.Add("k");
  daemon_.LoseReplies("Claim");
  ClaimOptions claim{.worker_id = "w", .queues = {{"q"}}};
  claim.request_id = NewRequestId();
  const auto result = client_.Claim(claim);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->replayed);
  EXPECT_EQ(result->jobs.size(), 1u);
  EXPECT_EQ(daemon_.leased(), 1);
}

TEST_F(ClientCalls, AClaimWithoutARequestIdIsSentOnce) {
  daemon_.Add("k");
  daemon_.LoseReplies("Claim");
  EXPECT_EQ(client_.Claim({.worker_id = "w", .queues = {{"q"}}}).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(daemon_.calls("Claim"), 1);
}

TEST_F(ClientCalls, RetryAlwaysCarriesARequestId) {
  daemon_.LoseReplies("Retry");
  const auto retried = client_.Retry("job-1");
  ASSERT_TRUE(retried.ok()) << retried.status();
  EXPECT_EQ(retried->size(), 32u);  // The fake answers with the request id.
  EXPECT_EQ(daemon_.calls("Retry"), 2);
}

TEST_F(ClientCalls, AStopTokenEndsACall) {
  daemon_.Hold("Get");
  std::stop_source stop;
  std::jthread stopper([&] {
    ASSERT_TRUE(daemon_.Await([&] { return daemon_.inside("Get") == 1; }));
    stop.request_stop();
  });
  const auto job = client_.Get("x", {.timeout = seconds(60), .stop = stop.get_token()});
  EXPECT_EQ(job.status().code(), absl::StatusCode::kCancelled) << job.status();
}

TEST_F(ClientCalls, AReplicaThatHangsDoesNotEatTheWholeTimeout) {
  FakeTenured hanging;
  hanging.Hold("Get");
  Client client = Client::FromChannels({hanging.channel(), daemon_.channel()}, Fast());
  const std::string id = daemon_.Add("k");
  for (int i = 0; i < 2; ++i) {
    const auto job = client.Get(id, {.timeout = milliseconds(1500), .stop = {}});
    EXPECT_TRUE(job.ok()) << job.status();
  }
  EXPECT_GE(hanging.calls("Get"), 1);
}

TEST_F(ClientCalls, AReplicaThatIsAwayOrDrainsIsAvoided) {
  FakeTenured draining;
  draining.FailNext("Get", kUnavailable, "DRAINING", 100);
  Client client = Client::FromChannels({draining.channel(), daemon_.channel()}, Fast());
  const std::string id = daemon_.Add("k");
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(client.Get(id).ok());
  EXPECT_EQ(draining.calls("Get"), 1);
}

TEST_F(ClientCalls, OneBadItemDoesNotSpoilTheBatch) {
  std::vector<JobSpec> specs(1000, JobSpec{.queue = "q", .kind = "k"});
  specs[3].queue = "refused";         // By the daemon.
  specs[5].tenant = "\xff not text";  // Here: it would make the daemon refuse the whole message.
  specs[7].headers["a"] = std::string("nul\0byte", 8);
  const auto results = client_.EnqueueBatch(specs);
  ASSERT_EQ(results.size(), 1000u);
  for (size_t i = 0; i < results.size(); ++i) {
    if (i == 3 || i == 5 || i == 7) {
      EXPECT_EQ(results[i].status().code(), absl::StatusCode::kInvalidArgument) << i;
    } else {
      EXPECT_TRUE(results[i].ok()) << i << results[i].status();
    }
  }
  EXPECT_EQ(ErrorMetadata(results[3].status())["field"], "queue");
  EXPECT_EQ(ErrorMetadata(results[5].status())["field"], "tenant");
  EXPECT_EQ(ErrorMetadata(results[7].status())["field"], "headers[a]");
  EXPECT_EQ(daemon_.calls("Enqueue"), 1);
}

TEST_F(ClientCalls, ALargeBatchTravelsInSeveralCalls) {
  const std::vector<JobSpec> many(25'000, JobSpec{.queue = "q", .kind = "k"});
  const CallOptions patient{.timeout = seconds(120), .stop = {}};
  for (const auto& result : client_.EnqueueBatch(many, patient)) ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(daemon_.batches("Enqueue"), (std::vector<int>{10'000, 10'000, 5'000}));

  std::vector<JobSpec> heavy(8, JobSpec{.queue = "q", .kind = "k"});
  for (JobSpec& spec : heavy) spec.payload = Payload::Bytes(std::string(1'000'000, 'x'));
  for (const auto& result : client_.EnqueueBatch(heavy, patient)) ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(daemon_.batches("Enqueue").size(), 3u + 3u);  // 3, 3 and 2.
}

TEST_F(ClientCalls, ListAllGoesOnPastEmptyPages) {
  std::set<std::string> ids;
  for (int i = 0; i < 5; ++i) ids.insert(daemon_.Add("k"));
  std::set<std::string> listed;
  for (const auto& job : client_.ListAll({})) {
    ASSERT_TRUE(job.ok()) << job.status();
    listed.insert(job->id);
  }
  EXPECT_EQ(listed, ids);
}

TEST_F(ClientCalls, ListAllEndsWithTheError) {
  daemon_.Add("k");
  daemon_.FailNext("List", 3, "INVALID_FIELD");
  int errors = 0;
  for (const auto& job : client_.ListAll({})) {
    EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument);
    ++errors;
  }
  EXPECT_EQ(errors, 1);
}

TEST_F(ClientCalls, WaitForOutcomeOutlivesARestart) {
  const std::string id = daemon_.Add("k");
  daemon_.FailNext("Get", kUnavailable, "DRAINING", 2);
  std::jthread worker([&] {
    ASSERT_TRUE(daemon_.Await([&] { return daemon_.inside("Get") == 1 && daemon_.calls("Get") >= 3; }));
    auto claim = client_.Claim({.worker_id = "w", .queues = {{"q"}}});
    ASSERT_TRUE(claim.ok());
    CompleteItem item{.lease_token = claim->jobs.at(0).lease_token, .result = Payload::Text("42"), .follow_ups = {}};
    ASSERT_TRUE(client_.Complete(item).ok());
  });
  const auto job = client_.WaitForOutcome(id);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->state, JobState::kCompleted);
  EXPECT_EQ(job->result->data, "42");
}

TEST_F(ClientCalls, WaitForOutcomeSaysWhatItWaitedFor) {
  const std::string id = daemon_.Add("k");
  const auto job = client_.WaitForOutcome(id, {.timeout = milliseconds(50), .stop = {}});
  EXPECT_EQ(job.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(job.status().message().find(id), absl::string_view::npos);
}

TEST_F(ClientCalls, ErrorsCarryTheDaemonsFacts) {
  daemon_.FailNext("Get", kFailedPrecondition, "LEASE_HELD");
  const auto job = client_.Get("x");
  EXPECT_EQ(job.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ErrorReason(job.status()), reason::kLeaseHeld);
  EXPECT_FALSE(RetryDelay(job.status()).has_value());
}

TEST(ClientConnect, BadOptionsAreNamed) {
  const auto field = [](ClientOptions options) {
    return ErrorMetadata(Client::Connect(std::move(options)).status())["field"];
  };
  ClientOptions options;
  options.targets = {};
  EXPECT_EQ(field(options), "targets");
  options = {};
  options.keepalive_interval = seconds(5);
  EXPECT_EQ(field(options), "keepalive_interval");
  options = {};
  options.tls.client_key_pem = "x";
  EXPECT_EQ(field(options), "tls.client_certificate_pem");
  options = {};
  options.timeout = Duration::zero();
  EXPECT_EQ(field(options), "timeout");
}

TEST(ClientConnect, ConnectTimeoutSaysWhereNobodyAnswered) {
  ClientOptions options;
  options.targets = {"127.0.0.1:1"};
  options.connect_timeout = milliseconds(100);
  const auto client = Client::Connect(options);
  EXPECT_EQ(client.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(client.status().message().find("127.0.0.1:1"), absl::string_view::npos);
}

TEST(Utf8, CleansWhatIsNotTextAndCutsAtACharacter) {
  using internal::CleanUtf8;
  using internal::IsCleanUtf8;
  EXPECT_TRUE(IsCleanUtf8("grüße €"));
  EXPECT_TRUE(IsCleanUtf8("\xF0\x9F\x98\x80"));
  for (const std::string bad : {"\xff", "\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x82", "a\xC3"}) {
    EXPECT_FALSE(IsCleanUtf8(bad));
    EXPECT_TRUE(IsCleanUtf8(CleanUtf8(bad, 100)));
  }
  EXPECT_FALSE(IsCleanUtf8(std::string("\0", 1)));
  EXPECT_EQ(CleanUtf8(std::string("a\0b", 3), 100),
            "a\xEF\xBF\xBD"
            "b");
  EXPECT_EQ(CleanUtf8("aé", 2), "a");
  EXPECT_EQ(CleanUtf8("aé", 3), "aé");
}

TEST(WorkerIds, NameTheProcessAndDiffer) {
  const std::string id = NewWorkerId();
  EXPECT_NE(id.find("-" + std::to_string(getpid()) + "-"), std::string::npos) << id;
  EXPECT_NE(id, NewWorkerId());
  EXPECT_LE(id.size(), 255u);
  EXPECT_EQ(NewRequestId().size(), 32u);
  EXPECT_NE(NewRequestId(), NewRequestId());
}

}  // namespace
}  // namespace tenure::client
