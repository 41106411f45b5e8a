// See calls.h.
#include "calls.h"

#include <google/protobuf/arena.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "connection.h"
#include "retry_policy.h"
#include "status_codec.h"

namespace tenure::client::internal {
namespace {

using Clock = std::chrono::steady_clock;

absl::Status Convert(const grpc::Status& status) {
  return FromTrailer(static_cast<int>(status.error_code()), status.error_message(), status.error_details());
}

void Prepare(grpc::ClientContext& context, const ClientOptions& options, Duration timeout) {
  // gRPC takes wall-clock deadlines and turns them into monotonic ones at once.
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  if (!options.bearer_token.empty()) context.AddMetadata("authorization", "Bearer " + options.bearer_token);
}

// Waits until `until` or a stop request; true if stopped.
bool Pause(SteadyTime until, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock(mutex);
  wake.wait_until(lock, stop, until, [] { return false; });
  return stop.stop_requested();
}

template <typename Request, typename Response, typename Send>
absl::Status Repeat(Connection& connection, Verdict verdict, const Request& request, Response* response,
                    const CallBounds& bounds, Send send) {
  const bool repeatable = verdict == Verdict::kIdempotent || (verdict == Verdict::kOnlyWithKey && HasKey(request));
  const SteadyTime begin = Clock::now();
  // "For ever" must not overflow the clock.
  const Duration total = std::min<Duration>(bounds.timeout, std::chrono::hours(24 * 365));
  const SteadyTime deadline = begin + total;
  absl::Status before;  // How the attempt before ended.
  for (int failures = 0;;) {
    if (bounds.stop.stop_requested()) return absl::CancelledError("the caller's stop_token was triggered");
    const SteadyTime now = Clock::now();
    // A replica that hangs must not eat the whole timeout while another could answer: the first two attempts get a
    // third of it.
    const Duration remaining = deadline - now;
    const bool cut = repeatable && !bounds.long_poll && failures < 2;
    Endpoint& endpoint = connection.Pick();
    grpc::Status raw;
    {
      grpc::ClientContext context;
      Prepare(context, connection.options(), cut ? std::min(remaining, total / 3) : remaining);
      std::stop_callback on_stop(bounds.stop, [&context] { context.TryCancel(); });
      if (bounds.sent != nullptr) *bounds.sent = now;
      raw = send(endpoint, context, request, response);
    }
    if (raw.ok()) return absl::OkStatus();
    absl::Status status = Convert(raw);
    connection.Observe(endpoint, status);
    if (bounds.stop.stop_requested()) return absl::CancelledError("the caller's stop_token was triggered");
    const bool worthwhile = (repeatable && IsTransient(status)) || RefusedBeforeEffect(status);
    const Duration pause = BackoffAfter(++failures, status, connection.options().retry);
    if (!worthwhile || Clock::now() + pause >= deadline) {
      // "Time ran out" says less than what made us repeat.
      return status.code() == absl::StatusCode::kDeadlineExceeded && !before.ok() ? before : status;
    }
    before = std::move(status);
    Pause(Clock::now() + pause, bounds.stop);
    response->Clear();
  }
}

template <typename Request, typename Response>
struct AsyncCallState : AsyncCall {
  void Cancel() override { context.TryCancel(); }

  std::shared_ptr<Connection> keep_alive;
  grpc::ClientContext context;
  Request request;
  // A claim's answer has a dozen objects for each job: they come and go at once.
  google::protobuf::Arena arena;
  Response& response = *google::protobuf::Arena::CreateMessage<Response>(&arena);
  Done<Request, Response> done;
};

// gRPC shares its callback threads among all channels and ends them with the last one; 1.51 crashes at times when they
// are then made anew (an assertion on the queue's reference count). One channel that never goes away keeps them: it has
// made a single call, which was cancelled before it was sent, and never connects.
void KeepCallbackThreads() {
  struct Anchor {
    Endpoint endpoint{grpc::CreateChannel("ipv4:127.0.0.1:1", grpc::InsecureChannelCredentials())};
    grpc::ClientContext context;
    v1::ListServersRequest request;
    v1::ListServersResponse response;
  };
  static Anchor* const anchor = [] {
    auto* made = new Anchor;
    made->context.TryCancel();
    made->endpoint.admin.async()->ListServers(&made->context, &made->request, &made->response,
                                              [](const grpc::Status&) {});
    return made;
  }();
  static_cast<void>(anchor);
}

// DRAIN comes as a notice, not as an error: the connection must hear of it, too.
template <typename Response>
void ObserveAnswer(Connection&, Endpoint&, const Response&) {}
void ObserveAnswer(Connection& connection, Endpoint& endpoint, const v1::AwaitNoticesResponse& response) {
  for (const auto& notice : response.notices()) {
    if (notice.type() == v1::NOTICE_TYPE_DRAIN) connection.AvoidDraining(endpoint);
  }
}

template <typename Request, typename Response, typename Send>
std::shared_ptr<AsyncCall> Begin(Connection& connection, Request request, Duration timeout,
                                 Done<Request, Response> done, Send send) {
  KeepCallbackThreads();
  auto call = std::make_shared<AsyncCallState<Request, Response>>();
  call->request = std::move(request);
  call->done = std::move(done);
  call->keep_alive = connection.shared_from_this();
  Endpoint& endpoint = connection.Pick();
  Prepare(call->context, connection.options(), timeout);
  send(endpoint, *call, [call, &endpoint](const grpc::Status& raw) {
    absl::Status status = Convert(raw);
    call->keep_alive->Observe(endpoint, status);
    if (status.ok()) ObserveAnswer(*call->keep_alive, endpoint, call->response);
    call->done(std::move(status), call->request, call->response);
    call->done = nullptr;
  });
  return call;
}

}  // namespace

CallBounds BoundsOf(const Connection& connection, const CallOptions& options, Duration wait) {
  CallBounds bounds;
  bounds.timeout = options.timeout > Duration::zero() ? options.timeout : connection.options().timeout + wait;
  bounds.stop = options.stop;
  bounds.long_poll = wait > Duration::zero();
  return bounds;
}

const ClientOptions& OptionsOf(const Connection& connection) { return connection.options(); }

#define TENURE_DEFINE_CALL(service, stub, method)                                                               \
  absl::Status Call(Connection& connection, const v1::method##Request& request, v1::method##Response* response, \
                    const CallBounds& bounds) {                                                                 \
    static const Verdict verdict = VerdictOf("tenure.v1." #service "." #method);                                \
    return Repeat(connection, verdict, request, response, bounds,                                               \
                  [](Endpoint& endpoint, grpc::ClientContext& context, const v1::method##Request& in,           \
                     v1::method##Response* out) { return endpoint.stub.method(&context, in, out); });           \
  }
TENURE_CLIENT_RPCS(TENURE_DEFINE_CALL)
#undef TENURE_DEFINE_CALL

#define TENURE_DEFINE_START(method)                                                                                   \
  std::shared_ptr<AsyncCall> Start(Connection& connection, v1::method##Request request, Duration timeout,             \
                                   Done<v1::method##Request, v1::method##Response> done) {                            \
    return Begin<v1::method##Request, v1::method##Response>(                                                          \
        connection, std::move(request), timeout, std::move(done), [](Endpoint& endpoint, auto& call, auto finished) { \
          endpoint.workers.async()->method(&call.context, &call.request, &call.response, std::move(finished));        \
        });                                                                                                           \
  }
TENURE_CLIENT_ASYNC_RPCS(TENURE_DEFINE_START)
#undef TENURE_DEFINE_START

}  // namespace tenure::client::internal
