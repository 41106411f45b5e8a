// See server.h and server_core.h. Layer: http.
#include "server/http/server.h"

#include <pthread.h>

#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/logging.h"
#include "server/http/connection.h"
#include "server/http/server_core.h"

namespace tenure::http {
namespace {

constexpr int kExtraConnections = 64;  // That get a 503 rather than nothing when too many are open.
constexpr absl::Duration kAcceptPause = absl::Milliseconds(100);

}  // namespace

std::string AddressText(const tcp::endpoint& endpoint) {
  return FormatAddress({endpoint.address().to_string(), endpoint.port()});
}

ServerCore::ServerCore(ServerOptions options, Metrics& metrics, RequestHandler handler)
    : options_(std::move(options)),
      metrics_(metrics),
      handler_(std::move(handler)),
      acceptor_(asio::make_strand(io_)) {}

absl::StatusOr<tcp::endpoint> ServerCore::Resolve(const Address& address) {
  error_code error;
  if (address.host.empty()) return tcp::endpoint(tcp::v6(), address.port);
  const auto ip = asio::ip::make_address(address.host, error);
  if (!error) return tcp::endpoint(ip, address.port);
  tcp::resolver resolver(io_);
  const auto results = resolver.resolve(address.host, std::to_string(address.port), error);
  if (error || results.empty()) {
    return absl::UnavailableError(absl::StrCat("cannot resolve ", address.host, ": ", error.message()));
  }
  // A name with both kinds of addresses (localhost): the one that every client tries.
  for (const auto& entry : results) {
    if (entry.endpoint().address().is_v4()) return entry.endpoint();
  }
  return results.begin()->endpoint();
}

absl::Status ServerCore::Listen(const tcp::endpoint& endpoint) {
  error_code error;
  acceptor_.open(endpoint.protocol(), error);
  if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error && endpoint.protocol() == tcp::v6() && endpoint.address().is_unspecified()) {
    acceptor_.set_option(asio::ip::v6_only(false), error);
  }
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(1024, error);
  if (!error) bound_ = acceptor_.local_endpoint(error);
  if (!error) return absl::OkStatus();
  error_code ignored;
  acceptor_.close(ignored);
  return absl::UnavailableError(absl::StrCat("cannot listen on ", AddressText(endpoint), ": ", error.message()));
}

absl::Status ServerCore::Start() {
  auto address = ParseListenAddress(options_.listen, "http_listen");
  if (!address.ok()) return address.status();
  auto endpoint = Resolve(*address);
  if (!endpoint.ok()) return endpoint.status();
  absl::Status status = Listen(*endpoint);
  if (!status.ok() && address->host.empty()) status = Listen(tcp::endpoint(tcp::v4(), address->port));  // No IPv6 here.
  if (!status.ok()) return status;
  {
    std::lock_guard lock(mutex_);
    running_ = true;
  }
  work_.emplace(asio::make_work_guard(io_));
  Accept();
  for (int i = 0; i < options_.threads; ++i) {
    threads_.emplace_back([this] { io_.run(); });
    pthread_setname_np(threads_.back().native_handle(), "tenure-http");
  }
  return absl::OkStatus();
}

void ServerCore::Accept() {
  acceptor_.async_accept(asio::make_strand(io_), [self = shared_from_this()](error_code error, tcp::socket socket) {
    self->OnAccept(error, std::move(socket));
  });
}

void ServerCore::OnAccept(error_code error, tcp::socket socket) {
  if (!acceptor_.is_open()) return;
  if (error == asio::error::operation_aborted) return;
  if (error) {
    // Most likely out of file descriptors: what has to be accepted stays, so trying again at once would only burn a
    // core.
    LogWarn("cannot accept an HTTP connection", {{"error", error.message()}});
    auto pause = std::make_shared<asio::steady_timer>(acceptor_.get_executor());
    pause->expires_after(absl::ToChronoNanoseconds(kAcceptPause));
    pause->async_wait([self = shared_from_this(), pause](error_code) {
      if (self->acceptor_.is_open()) self->Accept();
    });
    return;
  }
  error_code gone;
  const tcp::endpoint peer = socket.remote_endpoint(gone);
  if (!gone) {
    std::shared_ptr<Connection> connection;
    {
      std::lock_guard lock(mutex_);
      const int open = static_cast<int>(connections_.size());
      const bool refuse = open >= options_.max_connections;
      if (refuse) metrics_.http_refused_connections.Add({}).Increment();
      if (!stopping_ && open < options_.max_connections + kExtraConnections) {
        connection = std::make_shared<Connection>(shared_from_this(), std::move(socket), AddressText(peer), refuse);
        connections_.emplace(connection.get(), connection);
        metrics_.http_connections.Add({}).Set(static_cast<double>(connections_.size()));
      }
    }
    if (connection) Post(connection, [](Connection& started) { started.Begin(); });
  }
  Accept();
}

void ServerCore::Remove(Connection* connection) {
  std::lock_guard lock(mutex_);
  connections_.erase(connection);
  metrics_.http_connections.Add({}).Set(static_cast<double>(connections_.size()));
  if (connections_.empty()) none_left_.notify_all();
}

void ServerCore::Post(const std::shared_ptr<Connection>& connection, std::function<void(Connection&)> work) {
  std::lock_guard lock(mutex_);
  if (!running_) return;
  asio::post(connection->executor(), [connection, work = std::move(work)] { work(*connection); });
}

std::vector<std::shared_ptr<Connection>> ServerCore::Connections() {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Connection>> connections;
  for (const auto& [key, weak] : connections_) {
    if (auto connection = weak.lock()) connections.push_back(std::move(connection));
  }
  return connections;
}

bool ServerCore::Reserve(size_t bytes) {
  size_t used = buffered_.load();
  do {
    if (used + bytes > options_.max_buffered_bytes) return false;
  } while (!buffered_.compare_exchange_weak(used, used + bytes));
  return true;
}

void ServerCore::Stop(Clock::TimePoint deadline) {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    if (!running_) return;
  }
  asio::post(acceptor_.get_executor(), [self = shared_from_this()] {
    error_code ignored;  // The descriptor is given up either way.
    self->acceptor_.close(ignored);
  });
  for (const auto& connection : Connections()) Post(connection, [](Connection& open) { open.Drain(); });
  {
    std::unique_lock lock(mutex_);
    none_left_.wait_until(lock, deadline, [this] { return connections_.empty(); });
  }
  for (const auto& connection : Connections()) Post(connection, [](Connection& open) { open.Close(); });
  {
    std::lock_guard lock(mutex_);
    running_ = false;
  }
  // What was posted before is still served: run() returns when nothing is left to do.
  work_.reset();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

HttpServer::HttpServer(ServerOptions options, Metrics& metrics, RequestHandler handler)
    : core_(std::make_shared<ServerCore>(std::move(options), metrics, std::move(handler))) {}

HttpServer::~HttpServer() { core_->Stop(Clock::TimePoint::min()); }

absl::Status HttpServer::Start() { return core_->Start(); }

std::string HttpServer::address() const { return AddressText(core_->bound()); }

uint16_t HttpServer::port() const { return core_->bound().port(); }

void HttpServer::Stop(Clock::TimePoint deadline) { core_->Stop(deadline); }

}  // namespace tenure::http
