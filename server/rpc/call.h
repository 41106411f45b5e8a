// One unary RPC under way, whichever transport brought it: request and response, the deadline, the caller's
// disappearance, and the one place where it ends. Handlers see Call<Request, Response>; transports (gRPC, JSON) see
// CallBase. Layer: rpc. Thread-safe: Finish, Cancel and Close may race from any threads.
//
// How an answer and a vanishing caller meet:
//   Cancel before Finish   the cancel hook runs (a parked poll leaves); the handler still finishes the call, exactly
//   once. Cancel after Finish    the transport had not written the answer yet: it is undelivered. Close the transport
//   is done with the call. If it was cancelled at any time before, the answer did not arrive,
//                          and the undelivered hook runs (once), so that leases that the answer carried are given back.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "google/protobuf/arena.h"
#include "google/protobuf/message.h"
#include "server/base/clock.h"

namespace tenure::rpc {

class CallBase {
 public:
  using Finished = std::function<void(CallBase&, const absl::Status&)>;

  // A call without a deadline is given this long, so that a settle whose row an application has locked does not try for
  // ever.
  static constexpr absl::Duration kDefaultTimeout = absl::Seconds(30);

  CallBase(Clock& clock, std::optional<absl::Duration> timeout, std::string peer);
  virtual ~CallBase() = default;
  CallBase(const CallBase&) = delete;
  CallBase& operator=(const CallBase&) = delete;

  // --- For handlers -------------------------------------------------------------------------------------------------

  // Until when the caller waits: its own deadline, else kDefaultTimeout from the call's start.
  Clock::TimePoint deadline() const { return deadline_; }
  // How long a long poll may wait: `wait`, but done a little (50 ms and a hundredth, at most a tenth) before the
  // caller's own deadline. Extends the deadline of a caller that named none to cover the wait; call it before
  // deadline().
  absl::Duration PollWait(absl::Duration wait);
  // The caller's address, for logs.
  const std::string& peer() const { return peer_; }
  bool cancelled() const;
  // `hook` runs once if the caller goes away before the answer; at once if it has already gone, never once the call is
  // finished.
  void OnCancel(std::function<void()> hook);
  // `hook` runs once if the answer turns out not to have been delivered. Register it before Finish.
  void OnUndelivered(std::function<void()> hook);
  // Ends the call: with the response as it stands if `status` is OK. Exactly once; a second call is a bug and is only
  // logged. Nothing of the request or the response may be touched afterwards.
  void Finish(absl::Status status = absl::OkStatus());

  // --- For transports -----------------------------------------------------------------------------------------------

  virtual google::protobuf::Message& request_message() = 0;
  virtual google::protobuf::Message& response_message() = 0;
  // Called by Finish, once. Set before the handler runs.
  void set_finished(Finished finished) { finished_ = std::move(finished); }
  void Cancel();
  void Close();
  Clock::TimePoint started() const { return started_; }

 protected:
  google::protobuf::Arena arena_;

 private:
  // The undelivered hook if it is due; call without the lock held and run what it returns.
  std::function<void()> TakeUndelivered();

  Clock& clock_;
  const std::string peer_;
  const Clock::TimePoint started_;
  const bool has_deadline_;
  Clock::TimePoint deadline_;
  Finished finished_;

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  bool cancelled_ = false;
  bool done_ = false;
  bool closed_ = false;
  std::function<void()> on_cancel_;
  std::function<void()> on_undelivered_;
};

// The messages live on an arena that goes with the call: a batch of 1,000 items is a few allocations and no frees.
template <typename Request, typename Response>
class Call final : public CallBase {
 public:
  Call(Clock& clock, std::optional<absl::Duration> timeout, std::string peer)
      : CallBase(clock, timeout, std::move(peer)),
        request_(google::protobuf::Arena::CreateMessage<Request>(&arena_)),
        response_(google::protobuf::Arena::CreateMessage<Response>(&arena_)) {}

  // Handlers may move strings out of the request.
  Request& request() { return *request_; }
  Response& response() { return *response_; }

  google::protobuf::Message& request_message() override { return *request_; }
  google::protobuf::Message& response_message() override { return *response_; }

 private:
  Request* const request_;
  Response* const response_;
};

template <typename Request, typename Response>
using CallPtr = std::shared_ptr<Call<Request, Response>>;

}  // namespace tenure::rpc
