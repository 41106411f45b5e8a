// What is behind HttpServer: the listening socket, the threads and the set of connections. Layer: http, private to
// server.cc and connection.cc. Thread-safe.
#pragma once

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/strand.hpp>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "server/http/address.h"
#include "server/http/server.h"

namespace tenure::http {

namespace asio = boost::asio;
using boost::system::error_code;
using tcp = asio::ip::tcp;

class Connection;

class ServerCore : public std::enable_shared_from_this<ServerCore> {
 public:
  ServerCore(ServerOptions options, Metrics& metrics, RequestHandler handler);

  absl::Status Start();
  void Stop(Clock::TimePoint deadline);
  const tcp::endpoint& bound() const { return bound_; }

  // For connections.
  const ServerOptions& options() const { return options_; }
  Metrics& metrics() { return metrics_; }
  const RequestHandler& handler() const { return handler_; }
  // Runs `work` on the connection's strand, unless the threads have stopped.
  void Post(const std::shared_ptr<Connection>& connection, std::function<void(Connection&)> work);
  void Remove(Connection* connection);
  // Takes `bytes` of the budget for bodies; false if it is used up. Release gives them back.
  bool Reserve(size_t bytes);
  void Release(size_t bytes) { buffered_.fetch_sub(bytes); }

 private:
  absl::StatusOr<tcp::endpoint> Resolve(const Address& address);
  absl::Status Listen(const tcp::endpoint& endpoint);
  void Accept();
  void OnAccept(error_code error, tcp::socket socket);
  std::vector<std::shared_ptr<Connection>> Connections();

  const ServerOptions options_;
  Metrics& metrics_;
  const RequestHandler handler_;
  asio::io_context io_;
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work_;
  tcp::acceptor acceptor_;
  tcp::endpoint bound_;
  std::vector<std::thread> threads_;
  std::atomic<size_t> buffered_{0};

  std::mutex mutex_;
  std::condition_variable none_left_;
  std::unordered_map<Connection*, std::weak_ptr<Connection>> connections_;  // Guarded by mutex_.
  bool stopping_ = false;  // Guarded by mutex_. No new connections, no new requests.
  bool running_ = false;   // Guarded by mutex_. The threads serve what is posted.
};

// "127.0.0.1:8471", "[::1]:8471".
std::string AddressText(const tcp::endpoint& endpoint);

}  // namespace tenure::http
