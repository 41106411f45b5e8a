// One connection of the HTTP port. All its work runs on its strand, so its members need no lock. Layer: http, private
// to server.cc and connection.cc.
//
// It always has at most one read outstanding, also while a request is under way: that is how it learns that the caller
// has gone, and the bytes it gets meanwhile (pipelined requests) wait their turn.
//
//   kIdle -> kHeader -> kBody -> kBusy -> kWriting -> kIdle ...    or, at the end:    -> kLinger -> kClosed
//
// kLinger: the last answer is sent and our side shut; what still comes is thrown away for a moment, because closing a
// socket that has unread bytes resets the connection, and the caller may lose the answer that says why (413 in the
// middle of an upload).
#pragma once

#include <array>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "server/http/message.h"
#include "server/http/server_core.h"

namespace tenure::http {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // `refuse`: too many connections are open; probes are answered, everything else gets a 503.
  Connection(std::shared_ptr<ServerCore> core, tcp::socket socket, std::string peer, bool refuse);
  ~Connection();

  tcp::socket::executor_type executor() { return socket_.get_executor(); }

  // All of these on the strand only.
  void Begin();
  // Closes once the request under way is answered; at once if there is none.
  void Drain();
  void Answer(Response response);
  void Close();

 private:
  struct Input;
  enum class Phase { kIdle, kHeader, kBody, kBusy, kWriting, kLinger, kClosed };

  void NextRequest();
  void Parse();
  bool OnHeader();
  void Dispatch();
  void Read();
  void OnRead(error_code error, size_t bytes);
  void OnPeerGone(bool reset);
  void Refuse(int status, std::string_view code, std::string_view message);
  void RefuseMalformed(error_code error);
  void Write(Response response);
  void OnWritten(error_code error);
  // Bytes that were written and that the peer's system has not acknowledged.
  int Unacknowledged();
  void Linger();
  void SetTimer(absl::Duration after);
  void OnTimeout();
  void Unreserve();

  std::shared_ptr<ServerCore> core_;
  tcp::socket socket_;
  asio::steady_timer timer_;
  const std::string peer_;
  const bool refuse_;
  Phase phase_ = Phase::kIdle;
  uint64_t timer_number_ = 0;  // A timer that was set anew may already have its old handler queued.
  bool reading_ = false;
  bool peer_closed_ = false;  // The caller sends no more; it may still read.
  bool header_seen_ = false;
  bool last_request_ = false;
  bool head_only_ = false;
  bool http10_ = false;
  size_t reserved_ = 0;
  size_t lingered_ = 0;
  std::array<char, 8192> chunk_;
  std::unique_ptr<Input> input_;
  std::function<void()> cancel_;
  std::string out_head_;
  std::string out_body_;
};

}  // namespace tenure::http
