// FakeTenured: tenure.v1.WorkerService and JobService in memory, in this process, for tests of the client library. It
// keeps leases as the daemon does (one token, replayed claims and settles) and misbehaves on request. Not a model of
// the daemon's scheduling. Thread-safe. Waiting is done on conditions; Await fails after 20 s.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tenure/v1/worker_service.pb.h"

namespace grpc {
class ChannelInterface;
}  // namespace grpc

namespace tenure::testing {

// How a job fared.
struct FakeJob {
  std::string id;
  bool leased = false;
  bool ended = false;  // Completed, discarded or cancelled.
  bool cancelled = false;
  int claims = 0;
  int extends = 0;                   // Successful ones, over all its leases.
  std::vector<std::string> settles;  // Accepted verbs, in order.
  std::string error;                 // Of the last Fail.
  bool non_retryable = false;
  std::chrono::nanoseconds delay{};  // Of the last Release, Snooze or retry_after.
  std::string result;
  std::vector<std::string> follow_up_kinds;
  std::vector<std::string> progress;  // Messages, in order.
};

class FakeTenured {
 public:
  FakeTenured();
  ~FakeTenured();

  std::shared_ptr<grpc::ChannelInterface> channel();
  // A second replica on the same state.
  std::shared_ptr<grpc::ChannelInterface> second_channel();

  // Makes a ready job; returns its id.
  std::string Add(const std::string& kind, const std::string& payload = {}, int priority = 0,
                  const std::string& tenant = {});
  // Leases last so long, whatever the client asks for.
  void SetLease(std::chrono::nanoseconds lease);
  // The next `times` calls of `method` ("Claim") fail before they do anything.
  void FailNext(const std::string& method, int code, const std::string& reason, int times = 1,
                std::chrono::nanoseconds retry_delay = {});
  // The next `times` calls of `method` take effect, and answer UNAVAILABLE.
  void LoseReplies(const std::string& method, int times = 1);
  // Calls of `method` wait, before they do anything, until they are let go or cancelled.
  void Hold(const std::string& method);
  void LetGo(const std::string& method);
  // The next `times` items of `method` for the job are refused so.
  void RefuseItem(const std::string& method, const std::string& job_id, int code, const std::string& reason,
                  int times = 1);
  // Calls with this many bytes of items or more fail with RESOURCE_EXHAUSTED, as the transport's limit does.
  void SetMaxBytes(size_t bytes);
  // Ends a job; `notify` says whether AwaitNotices tells.
  void Cancel(const std::string& job_id, bool notify = true);
  // Ends its lease as the reaper does: the token is stale. The job is not ready again.
  void LoseLease(const std::string& job_id, bool notify = true);
  // Answers polls DRAIN once.
  void NotifyDrain();

  FakeJob job(const std::string& id) const;
  int calls(const std::string& method) const;
  // Calls of `method` inside the daemon now (held or parked).
  int inside(const std::string& method) const;
  std::vector<v1::ClaimRequest> claims() const;
  std::vector<v1::ExtendRequest> extends() const;
  // Sizes of the batches of a settle's calls.
  std::vector<int> batches(const std::string& method) const;
  int leased() const;

  // Waits until `predicate` holds; it is tried whenever something happened. False after 20 s.
  bool Await(const std::function<bool()>& predicate);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tenure::testing
