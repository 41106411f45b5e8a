// The HTTP port: connections, requests, limits and timeouts. Asynchronous: a connection whose request is parked costs
// no thread. Layer: http. Start and Stop from one thread, each once; everything else is the server's own. What a
// request means is the RequestHandler's (router.h) to say. The library behind it (Boost.Asio and Beast) compiles slowly
// and is not seen here.
//
// Per connection: keep-alive, and pipelined requests one after the other in their order. Its timers are of real time,
// not of the injected Clock: they watch sockets, which know no other.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/base/metrics.h"
#include "server/http/message.h"

namespace tenure::http {

struct ServerOptions {
  std::string listen = "127.0.0.1:8471";  // HOST:PORT; "[::1]:0"; port 0 takes a free one; no host: all interfaces.
  int threads = 2;
  size_t max_header_bytes = 16 << 10;                 // Beyond it 431.
  size_t max_body_bytes = 6 << 20;                    // Beyond it 413.
  size_t max_buffered_bytes = 256 << 20;              // Of the bodies of all requests under way; beyond it 503.
  int max_connections = 10'000;                       // Beyond it 503, except for /livez and /readyz.
  absl::Duration header_timeout = absl::Seconds(10);  // From a request's first byte to the end of its header; then 408.
  absl::Duration body_timeout = absl::Seconds(60);    // From there to the end of the body; then 408.
  absl::Duration idle_timeout = absl::Seconds(75);    // Between requests; then the connection is closed.
  absl::Duration write_timeout = absl::Seconds(30);   // To take an answer; then the connection is closed.
};

class ServerCore;

class HttpServer {
 public:
  // `metrics` and what `handler` refers to outlive the server and the last call of a Respond that it was given.
  HttpServer(ServerOptions options, Metrics& metrics, RequestHandler handler);
  ~HttpServer();  // Stops at once if Stop was not called.
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Binds, listens and serves. INVALID_ARGUMENT for an address that cannot be read, UNAVAILABLE if it cannot be bound.
  absl::Status Start();
  // Where it listens, with the port that it got; only after Start.
  std::string address() const;
  uint16_t port() const;

  // Takes no new connection or request, lets requests under way finish until `deadline`, then cancels those left and
  // closes their connections. The handler is not called after it returns; a later Respond does nothing. Idempotent.
  void Stop(Clock::TimePoint deadline);

 private:
  std::shared_ptr<ServerCore> core_;
};

}  // namespace tenure::http
