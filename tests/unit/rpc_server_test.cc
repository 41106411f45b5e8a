// The gRPC server over a real connection: what callers see of errors, stray bytes, limits, health, reflection and
// shutdown. The engine is a fake: this is about the transport.
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/client_callback.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/rpc/error_details.pb.h"
#include "server/base/status.h"
#include "server/rpc/job_service.h"
#include "server/rpc/method_table.h"
#include "server/rpc/queue_service.h"
#include "server/rpc/server.h"
#include "server/rpc/worker_service.h"
#include "tenure/v1/job_service.pb.h"
#include "tenure/v1/queue_service.pb.h"
#include "tenure/v1/worker_service.pb.h"
#include "tests/support/fake_engine.h"
#include "tests/support/manual_clock.h"

namespace tenure::rpc {
namespace {

using std::string;

constexpr char kToken[] = "7-20786-123456.3.20786.9f86d081884c7d65";

class RpcServer : public ::testing::Test {
 protected:
  void SetUp() override {
    jobs_.Register(methods_);
    workers_.Register(methods_);
    queues_.Register(methods_);
    options_.listen = "127.0.0.1:0";
    Start();
  }

  void Start() {
    auto server = Server::Start(options_, methods_, engine_, clock_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    channel_ = grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", server_->port()),
                                         grpc::InsecureChannelCredentials(), arguments);
  }

  // Bytes in, bytes out: what no generated client would send.
  grpc::Status Raw(const string& path, const string& bytes, string* answer) {
    grpc::GenericStub stub(channel_);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    grpc::Slice slice(bytes);
    grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer response;
    std::promise<grpc::Status> done;
    stub.UnaryCall(&context, path, grpc::StubOptions(), &request, &response,
                   [&](grpc::Status status) { done.set_value(std::move(status)); });
    grpc::Status status = done.get_future().get();
    std::vector<grpc::Slice> slices;
    if (status.ok() && response.Dump(&slices).ok()) {
      answer->clear();
      for (const grpc::Slice& part : slices) answer->append(reinterpret_cast<const char*>(part.begin()), part.size());
    }
    return status;
  }

  template <typename Response>
  grpc::Status Call(const string& path, const google::protobuf::Message& request, Response* response) {
    string answer;
    grpc::Status status = Raw(path, request.SerializeAsString(), &answer);
    EXPECT_TRUE(response->ParseFromString(answer));
    return status;
  }

  static string ReasonOf(const grpc::Status& status) {
    google::rpc::Status details;
    google::rpc::ErrorInfo info;
    if (!details.ParseFromString(status.error_details()) || details.details_size() == 0) return "";
    return details.details(0).UnpackTo(&info) ? info.reason() : "";
  }

  // 1: SERVING, 2: NOT_SERVING.
  int HealthOf(const string& service) {
    string request;
    if (!service.empty()) request = string("\x0A") + static_cast<char>(service.size()) + service;
    string answer;
    const grpc::Status status = Raw("/grpc.health.v1.Health/Check", request, &answer);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return answer.size() == 2 && answer[0] == 8 ? answer[1] : -1;
  }

  testing::FakeEngine engine_;
  testing::ManualClock clock_;
  Metrics metrics_;
  MethodTable methods_{clock_, metrics_};
  JobService jobs_{engine_, Limits()};
  WorkerService workers_{engine_, Limits()};
  QueueService queues_{engine_};
  ServerOptions options_;
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(RpcServer, ErrorsCarryTheirDetails) {
  engine_.get_queue = [](string name, auto done) {
    done(MakeError(absl::StatusCode::kNotFound, "QUEUE_NOT_FOUND", absl::StrCat("there is no queue ", name),
                   {{"queue", name}}));
  };
  v1::GetQueueRequest request;
  request.set_name("mail");
  v1::GetQueueResponse response;
  const grpc::Status status = Call("/tenure.v1.QueueService/GetQueue", request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status.error_message(), "there is no queue mail");
  EXPECT_EQ(ReasonOf(status), "QUEUE_NOT_FOUND");
}

TEST_F(RpcServer, Case1_AFailWithStrayBytesSettles) {
  std::vector<store::FailItem> failed;
  engine_.fail = [&](std::vector<store::FailItem> items, auto, auto done) {
    failed = items;
    done(std::vector<engine::SettleAnswer>(items.size()));
  };
  v1::FailRequest request;
  for (int i = 0; i < 2; ++i) {
    v1::FailItem* item = request.add_items();
    item->set_lease_token(kToken);
    item->mutable_error()->set_message(i == 0 ? "fine" : "a_b");
    item->mutable_retry_after()->set_seconds(5);
  }
  string bytes = request.SerializeAsString();
  bytes[bytes.find("a_b") + 1] = '\xFF';
  string answer;
  const grpc::Status status = Raw("/tenure.v1.WorkerService/Fail", bytes, &answer);
  ASSERT_TRUE(status.ok()) << status.error_message();
  v1::FailResponse response;
  ASSERT_TRUE(response.ParseFromString(answer));
  ASSERT_EQ(response.results_size(), 2);
  EXPECT_FALSE(response.results(1).has_error());
  ASSERT_EQ(failed.size(), 2u);
  EXPECT_EQ(failed[0].error.message, "fine");
  EXPECT_EQ(failed[1].error.message,
            "a\xEF\xBF\xBD"
            "b");
  EXPECT_EQ(failed[1].retry_after, absl::Seconds(5));
}

TEST_F(RpcServer, Case1_AStrayByteInAKeyRefusesItsItemAlone) {
  engine_.enqueue = [](std::vector<engine::EnqueueItem> items, auto, auto done) {
    std::vector<store::EnqueueOutcome> outcomes(items.size());
    for (auto& outcome : outcomes) outcome.id = {7, 20786, 1};
    done(std::move(outcomes));
  };
  v1::EnqueueRequest request;
  for (int i = 0; i < 3; ++i) {
    request.add_jobs()->set_queue("q");
    request.mutable_jobs(i)->set_kind("k");
    request.mutable_jobs(i)->mutable_payload()->set_data("\xFF");
  }
  request.mutable_jobs(1)->set_idempotency_key("a_b");
  string bytes = request.SerializeAsString();
  bytes[bytes.find("a_b") + 1] = '\xFF';
  string answer;
  const grpc::Status status = Raw("/tenure.v1.JobService/Enqueue", bytes, &answer);
  ASSERT_TRUE(status.ok()) << status.error_message();
  v1::EnqueueResponse response;
  ASSERT_TRUE(response.ParseFromString(answer));
  ASSERT_EQ(response.results_size(), 3);
  EXPECT_EQ(response.results(0).job_id(), "7-20786-1");
  EXPECT_EQ(response.results(1).error().metadata().at("field"), "jobs[1].idempotency_key");
  EXPECT_EQ(response.results(2).job_id(), "7-20786-1");
}

TEST_F(RpcServer, WhatIsNoMessageIsSaidToBeNone) {
  string answer;
  const grpc::Status status = Raw("/tenure.v1.JobService/Enqueue", "\xFF\xFF\xFF", &answer);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(ReasonOf(status), "MALFORMED_MESSAGE");
  EXPECT_NE(status.error_message().find("tenure.v1.EnqueueRequest"), string::npos);
  EXPECT_EQ(Raw("/tenure.v1.JobService/Nope", "", &answer).error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(metrics_.rpcs.Add({{"method", "tenure.v1.JobService/Enqueue"}, {"code", "INVALID_ARGUMENT"}}).Value(), 1);
}

TEST_F(RpcServer, FourMebibytesOfPayloadFitAndMuchMoreDoesNot) {
  size_t payload_bytes = 0;
  engine_.enqueue = [&](std::vector<engine::EnqueueItem> items, auto, auto done) {
    for (const auto& item : items) payload_bytes += item.job.payload.data.size();
    done(std::vector<store::EnqueueOutcome>(items.size()));
  };
  v1::EnqueueRequest request;
  const auto add = [&] {
    v1::JobSpec* spec = request.add_jobs();
    spec->set_queue("q");
    spec->set_kind("k");
    spec->mutable_payload()->set_data(string(1 << 20, 'x'));
  };
  for (int i = 0; i < 4; ++i) add();
  v1::EnqueueResponse response;
  const grpc::Status status = Call("/tenure.v1.JobService/Enqueue", request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(payload_bytes, 4u << 20);
  add();
  EXPECT_EQ(Call("/tenure.v1.JobService/Enqueue", request, &response).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
}

// Jobs name each other by their index in the request; those that are refused here do not reach the engine.
TEST_F(RpcServer, JobsOfACallThatWaitForEachOther) {
  std::vector<std::vector<int32_t>> seen;
  engine_.enqueue = [&](std::vector<engine::EnqueueItem> items, auto, auto done) {
    for (const engine::EnqueueItem& item : items) {
      seen.push_back(item.job.depends_on ? item.job.depends_on->items : std::vector<int32_t>());
    }
    std::vector<store::EnqueueOutcome> outcomes(items.size());
    for (store::EnqueueOutcome& outcome : outcomes) outcome.existing = true;
    done(std::move(outcomes));
  };
  v1::EnqueueRequest request;
  for (int i = 0; i < 5; ++i) {
    v1::JobSpec* job = request.add_jobs();
    job->set_queue("q");
    job->set_kind(i == 1 ? "not a kind" : "k");
  }
  request.mutable_jobs(2)->mutable_depends_on()->add_items(0);
  request.mutable_jobs(3)->mutable_depends_on()->add_items(1);
  request.mutable_jobs(4)->mutable_depends_on()->add_items(3);
  request.mutable_jobs(4)->mutable_depends_on()->add_items(2);
  v1::EnqueueResponse response;
  ASSERT_TRUE(Call("/tenure.v1.JobService/Enqueue", request, &response).ok());
  EXPECT_EQ(seen, (std::vector<std::vector<int32_t>>{{}, {0}, {-1}, {2, 1}}));
  EXPECT_TRUE(response.results(1).has_error());
  EXPECT_TRUE(response.results(2).existing());
  while (request.jobs_size() <= 1000) *request.add_jobs() = request.jobs(0);
  EXPECT_EQ(Call("/tenure.v1.JobService/Enqueue", request, &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(RpcServer, HealthFollowsTheEngine) {
  EXPECT_EQ(HealthOf(""), 1);
  EXPECT_EQ(HealthOf("tenure.v1.WorkerService"), 1);
  ASSERT_TRUE(clock_.AwaitWaiters(1));
  engine_.set_health({.database_ok = false, .database_error = "away"});
  clock_.Advance(absl::Milliseconds(500));
  ASSERT_TRUE(clock_.AwaitWaiters(1));
  EXPECT_EQ(HealthOf(""), 2);
  EXPECT_EQ(HealthOf("tenure.v1.JobService"), 2);
  engine_.set_health({.database_ok = true});
  clock_.Advance(absl::Milliseconds(500));
  ASSERT_TRUE(clock_.AwaitWaiters(1));
  EXPECT_EQ(HealthOf(""), 1);
  server_->Drain();
  EXPECT_EQ(HealthOf(""), 2);
  clock_.Advance(absl::Milliseconds(500));
  ASSERT_TRUE(clock_.AwaitWaiters(1));
  EXPECT_EQ(HealthOf(""), 2) << "a drain is not taken back";
}

TEST_F(RpcServer, ADaemonWithoutItsDatabaseStartsNotServing) {
  server_->Shutdown(absl::ZeroDuration());
  engine_.set_health({.database_ok = false});
  Start();
  EXPECT_EQ(HealthOf(""), 2);
  EXPECT_EQ(HealthOf("tenure.v1.QueueService"), 2);
}

TEST_F(RpcServer, ReflectionListsTheServices) {
  string answer;
  const grpc::Status status =
      Raw("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", string("\x3A\x01*", 3), &answer);
  ASSERT_TRUE(status.ok()) << status.error_message();
  for (const char* name :
       {"tenure.v1.JobService", "tenure.v1.WorkerService", "tenure.v1.QueueService", "grpc.health.v1.Health"}) {
    EXPECT_NE(answer.find(name), string::npos) << name;
  }
  // And describes them: file_containing_symbol.
  const string symbol = "tenure.v1.WorkerService";
  ASSERT_TRUE(Raw("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                  string("\x22") + static_cast<char>(symbol.size()) + symbol, &answer)
                  .ok());
  EXPECT_NE(answer.find("AwaitNotices"), string::npos);
}

TEST_F(RpcServer, APortInUseIsSaid) {
  ServerOptions taken;
  taken.listen = absl::StrCat("127.0.0.1:", server_->port());
  const auto second = Server::Start(taken, methods_, engine_, clock_);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(DetailsOf(second.status()).reason, "LISTEN_FAILED");
  EXPECT_NE(second.status().message().find(taken.listen), string::npos);
  ServerOptions nonsense;
  nonsense.listen = "not an address";
  EXPECT_EQ(DetailsOf(Server::Start(nonsense, methods_, engine_, clock_).status()).reason, "LISTEN_FAILED");
}

// A health watch, read as it comes.
class Watch : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit Watch(const std::shared_ptr<grpc::Channel>& channel) : stub_(channel) {
    stub_.PrepareBidiStreamingCall(&context_, "/grpc.health.v1.Health/Watch", grpc::StubOptions(), this);
    grpc::Slice nothing;
    request_ = grpc::ByteBuffer(&nothing, 1);
    StartWriteLast(&request_, grpc::WriteOptions());
    StartRead(&response_);
    StartCall();
  }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    std::vector<grpc::Slice> slices;
    EXPECT_TRUE(response_.Dump(&slices).ok());
    {
      std::lock_guard lock(mutex_);
      seen_.push_back(slices.at(0).begin()[1]);
      changed_.notify_all();
    }
    StartRead(&response_);
  }
  void OnDone(const grpc::Status& status) override { ended_.set_value(status); }
  bool AwaitSeen(const std::vector<int>& expected) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(30), [&] { return seen_ == expected; });
  }
  grpc::Status Ended() { return ended_.get_future().get(); }

 private:
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer response_;
  std::promise<grpc::Status> ended_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int> seen_;
};

TEST_F(RpcServer, HealthWatchesFollowAndDoNotHoldTheShutdown) {
  Watch watch(channel_);
  ASSERT_TRUE(watch.AwaitSeen({1}));
  ASSERT_TRUE(clock_.AwaitWaiters(1));
  engine_.set_health({.database_ok = false, .database_error = "away"});
  clock_.Advance(absl::Milliseconds(500));
  ASSERT_TRUE(watch.AwaitSeen({1, 2}));
  const auto begin = std::chrono::steady_clock::now();
  server_->Shutdown(absl::Seconds(60));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  EXPECT_EQ(watch.Ended().error_code(), grpc::StatusCode::UNAVAILABLE);
  string answer;
  EXPECT_EQ(Raw("/grpc.health.v1.Health/Check", "", &answer).error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(RpcServer, HealthOfAnUnknownServiceIsNotFound) {
  string answer;
  EXPECT_EQ(Raw("/grpc.health.v1.Health/Check", "\x0A\x01x", &answer).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Raw("/grpc.health.v1.Health/Check", "\xFF", &answer).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

}  // namespace
}  // namespace tenure::rpc
