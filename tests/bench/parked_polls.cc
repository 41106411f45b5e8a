// ParkedPolls: see the header; the benchmark's only file with gRPC. Layer: tests (benchmark).
#include "parked_polls.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tenure/v1/worker_service.grpc.pb.h"

namespace tenure::bench {
namespace {

constexpr int64_t kPollsPerWorker = 50, kPollsPerConnection = 100, kWaitSeconds = 50;

struct Poll {
  v1::WorkerService::Stub* stub = nullptr;
  v1::ClaimRequest request;
  v1::ClaimResponse response;
  std::unique_ptr<grpc::ClientContext> context;
};

}  // namespace

struct ParkedPolls::State {
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::unique_ptr<v1::WorkerService::Stub>> stubs;
  std::vector<std::unique_ptr<Poll>> polls;
  // Guarded by mutex.
  bool stopping = false;
  int64_t under_way = 0;
  absl::Status refused;

  // Requires mutex.
  void Send(Poll& poll) {
    poll.context = std::make_unique<grpc::ClientContext>();
    poll.context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(kWaitSeconds + 10));
    ++under_way;
    poll.stub->async()->Claim(poll.context.get(), &poll.request, &poll.response,
                              [this, &poll](const grpc::Status& status) { Ended(poll, status); });
  }

  void Ended(Poll& poll, const grpc::Status& status) {
    std::lock_guard lock(mutex);
    --under_way;
    changed.notify_all();
    if (stopping) return;
    if (!status.ok() || poll.response.jobs_size() > 0) {
      refused.Update(absl::InternalError(status.ok() ? "a job came" : "a poll was refused: " + status.error_message()));
      return;
    }
    Send(poll);
  }
};

ParkedPolls::ParkedPolls(std::shared_ptr<State> state) : state_(std::move(state)) {}

std::unique_ptr<ParkedPolls> ParkedPolls::Park(const std::string& address, const std::string& queue, int64_t polls) {
  auto state = std::make_shared<State>();
  std::unique_ptr<ParkedPolls> parked(new ParkedPolls(state));
  std::lock_guard lock(state->mutex);
  for (int64_t i = 0; i < polls; ++i) {
    if (i % kPollsPerConnection == 0) {
      grpc::ChannelArguments arguments;
      arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // A connection of its own.
      state->stubs.push_back(v1::WorkerService::NewStub(
          grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments)));
    }
    auto poll = std::make_unique<Poll>();
    poll->stub = state->stubs.back().get();
    poll->request.set_worker_id(absl::StrCat("parked-", i / kPollsPerWorker));
    poll->request.add_queues()->set_queue(queue);
    poll->request.mutable_wait()->set_seconds(kWaitSeconds);
    state->polls.push_back(std::move(poll));
    state->Send(*state->polls.back());
  }
  return parked;
}

ParkedPolls::~ParkedPolls() {
  std::unique_lock lock(state_->mutex);
  state_->stopping = true;
  for (const auto& poll : state_->polls) poll->context->TryCancel();
  state_->changed.wait(lock, [this] { return state_->under_way == 0; });
}

absl::Status ParkedPolls::Check() const {
  std::lock_guard lock(state_->mutex);
  if (!state_->refused.ok()) return state_->refused;
  const auto wanted = static_cast<int64_t>(state_->polls.size());
  if (state_->under_way != wanted) return absl::InternalError(absl::StrCat(state_->under_way, " polls are under way"));
  return absl::OkStatus();
}

}  // namespace tenure::bench
