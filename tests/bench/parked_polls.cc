// Parked polls: see the header; the benchmark's only file with gRPC. Layer: tests (benchmark).
#include "parked_polls.h"

#include <grpcpp/grpcpp.h>
#include <poll.h>
#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
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

// All polls. Thread-safe.
class Polls {
 public:
  void Send(const std::string& address, const std::string& queue, int64_t polls) {
    std::lock_guard lock(mutex_);
    for (int64_t i = 0; i < polls; ++i) {
      if (i % kPollsPerConnection == 0) {
        grpc::ChannelArguments arguments;
        arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // A connection of its own.
        stubs_.push_back(v1::WorkerService::NewStub(
            grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments)));
      }
      auto poll = std::make_unique<Poll>();
      poll->stub = stubs_.back().get();
      poll->request.set_worker_id(absl::StrCat("parked-", i / kPollsPerWorker));
      poll->request.add_queues()->set_queue(queue);
      poll->request.mutable_wait()->set_seconds(kWaitSeconds);
      polls_.push_back(std::move(poll));
      Send(*polls_.back());
    }
  }

  // Ends them. An error if not all were under way, or one was refused.
  absl::Status Finish() {
    std::unique_lock lock(mutex_);
    const int64_t were = under_way_;
    stopping_ = true;
    for (const auto& poll : polls_) poll->context->TryCancel();
    changed_.wait(lock, [this] { return under_way_ == 0; });
    if (!refused_.ok()) return refused_;
    if (were == static_cast<int64_t>(polls_.size())) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("only ", were, " polls were under way"));
  }

 private:
  // Requires mutex_.
  void Send(Poll& poll) {
    poll.context = std::make_unique<grpc::ClientContext>();
    poll.context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(kWaitSeconds + 10));
    ++under_way_;
    poll.stub->async()->Claim(poll.context.get(), &poll.request, &poll.response,
                              [this, &poll](const grpc::Status& status) { Ended(poll, status); });
  }

  void Ended(Poll& poll, const grpc::Status& status) {
    std::lock_guard lock(mutex_);
    --under_way_;
    changed_.notify_all();
    if (stopping_) return;
    if (!status.ok() || poll.response.jobs_size() > 0) {
      refused_.Update(
          absl::InternalError(status.ok() ? "a job came" : "a poll was refused: " + status.error_message()));
      return;
    }
    Send(poll);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<v1::WorkerService::Stub>> stubs_;  // The rest is guarded by mutex_.
  std::vector<std::unique_ptr<Poll>> polls_;
  bool stopping_ = false;
  int64_t under_way_ = 0;
  absl::Status refused_;
};

}  // namespace

int RunParkedPolls(const std::string& address, const std::string& queue, int64_t polls) {
  sigset_t terminate;
  sigemptyset(&terminate);
  sigaddset(&terminate, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &terminate, nullptr);
  Polls all;
  all.Send(address, queue, polls);
  std::cout << "sent" << std::endl;
  int signal = 0;
  sigwait(&terminate, &signal);
  const absl::Status status = all.Finish();
  if (!status.ok()) std::cerr << status.message() << std::endl;
  return status.ok() ? 0 : 1;
}

absl::StatusOr<std::unique_ptr<ParkedPolls>> ParkedPolls::Park(const std::string& address, const std::string& queue,
                                                               int64_t polls, const std::string& directory) {
  demo::ChildCommand command;
  command.argv = {std::filesystem::read_symlink("/proc/self/exe"),
                  "--park",
                  absl::StrCat(polls),
                  "--park-at",
                  address,
                  "--park-queue",
                  queue};
  command.stderr_path = directory + "/polls.log";
  command.death_signal = SIGKILL;
  auto child = demo::Child::Spawn(command);
  if (!child.ok()) return child.status();
  std::unique_ptr<ParkedPolls> parked(new ParkedPolls(*std::move(child), command.stderr_path));
  std::string output;
  while (output.find("sent") == std::string::npos) {
    pollfd wait{parked->child_->output_fd(), POLLIN, 0};
    if (poll(&wait, 1, 60'000) == 0) return absl::DeadlineExceededError("the polls were not sent in time");
    if (!parked->child_->ReadOutput(output)) return absl::InternalError("the process with the polls ended");
  }
  return parked;
}

absl::Status ParkedPolls::Finish() {
  child_->Signal(SIGTERM);
  if (!child_->WaitForExit(std::chrono::seconds(30))) return absl::DeadlineExceededError("the polls did not end");
  if (child_->Succeeded()) return absl::OkStatus();
  std::ifstream in(log_);
  return absl::InternalError(absl::StrCat("parked polls: ", std::string(std::istreambuf_iterator<char>(in), {})));
}

}  // namespace tenure::bench
