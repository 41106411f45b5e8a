// See connection.h. Layer: http. The one file that includes Boost.Beast, which compiles slowly.
#include "server/http/connection.h"

#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>

#include <atomic>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tenure::http {
namespace {

namespace beast = boost::beast;
namespace bhttp = boost::beast::http;

constexpr size_t kReadAhead = 64 << 10;  // Of pipelined requests, while one is under way.
constexpr size_t kSmallBody = 64 << 10;  // Not counted against max_buffered_bytes.
constexpr size_t kMaxLinger = 64 << 20;  // Bytes thrown away before a connection is closed in their midst.
constexpr absl::Duration kLingerTime = absl::Seconds(2);

// A peer that vanished without a word (power, network) is noticed within a minute, also while its request is parked.
void WatchPeer(tcp::socket& socket) {
  error_code ignored;  // Best effort: the connection works without.
  socket.set_option(tcp::no_delay(true), ignored);
  socket.set_option(asio::socket_base::keep_alive(true), ignored);
  socket.set_option(asio::detail::socket_option::integer<IPPROTO_TCP, TCP_KEEPIDLE>(30), ignored);
  socket.set_option(asio::detail::socket_option::integer<IPPROTO_TCP, TCP_KEEPINTVL>(10), ignored);
  socket.set_option(asio::detail::socket_option::integer<IPPROTO_TCP, TCP_KEEPCNT>(3), ignored);
}

}  // namespace

// Hands the answer of one request to its connection. If the handler drops it unanswered (a fault), the caller gets a
// 500.
class Responder {
 public:
  Responder(std::shared_ptr<ServerCore> core, std::shared_ptr<Connection> connection)
      : core_(std::move(core)), connection_(std::move(connection)) {}
  ~Responder() {
    if (!answered_.load()) Answer(JsonError(500, "internal", "the request was dropped inside the daemon"));
  }
  Responder(const Responder&) = delete;
  Responder& operator=(const Responder&) = delete;

  void Answer(Response response);

 private:
  std::shared_ptr<ServerCore> core_;
  std::shared_ptr<Connection> connection_;
  std::atomic<bool> answered_{false};
};

void Responder::Answer(Response response) {
  if (answered_.exchange(true)) return;
  auto shared = std::make_shared<Response>(std::move(response));  // std::function wants what it holds to be copyable.
  core_->Post(connection_, [shared](Connection& connection) { connection.Answer(std::move(*shared)); });
}

// What has been read and not been answered yet.
struct Connection::Input {
  beast::flat_buffer buffer;
  std::optional<bhttp::request_parser<bhttp::string_body>> parser;
};

Connection::Connection(std::shared_ptr<ServerCore> core, tcp::socket socket, std::string peer, bool refuse)
    : core_(std::move(core)),
      socket_(std::move(socket)),
      timer_(socket_.get_executor()),
      peer_(std::move(peer)),
      refuse_(refuse),
      input_(std::make_unique<Input>()) {}

Connection::~Connection() { Unreserve(); }

void Connection::Begin() {
  WatchPeer(socket_);
  error_code error;
  socket_.non_blocking(true, error);
  if (error) return Close();
  NextRequest();
}

void Connection::Drain() {
  last_request_ = true;
  if (phase_ == Phase::kIdle || phase_ == Phase::kHeader || phase_ == Phase::kBody) Close();
}

void Connection::Unreserve() { core_->Release(std::exchange(reserved_, 0)); }

// --- Reading ---

void Connection::NextRequest() {
  Unreserve();
  input_->parser.emplace();
  input_->parser->eager(true);
  input_->parser->header_limit(static_cast<std::uint32_t>(core_->options().max_header_bytes));
  input_->parser->body_limit(core_->options().max_body_bytes);
  header_seen_ = false;
  phase_ = Phase::kIdle;
  if (input_->buffer.size() == 0) {
    input_->buffer.shrink_to_fit();  // A large request must not stay in memory while the connection idles.
    if (peer_closed_) return Close();
    // A connection too many must not sit there.
    SetTimer(refuse_ ? core_->options().header_timeout : core_->options().idle_timeout);
  }
  Parse();
}

void Connection::Parse() {
  while (input_->buffer.size() > 0) {
    if (phase_ == Phase::kIdle) {
      phase_ = Phase::kHeader;
      SetTimer(core_->options().header_timeout);
    }
    error_code error;
    const size_t used = input_->parser->put(input_->buffer.data(), error);
    input_->buffer.consume(used);
    if (error && error != bhttp::error::need_more) return RefuseMalformed(error);
    if (!header_seen_ && input_->parser->is_header_done()) {
      header_seen_ = true;
      if (!OnHeader()) return;
    }
    if (input_->parser->is_done()) return Dispatch();
    if (error || used == 0) break;
  }
  if (peer_closed_) return Close();  // In the middle of a request, which cannot be completed any more.
  Read();
}

// Looks at what the header alone can decide. False if the request was refused.
bool Connection::OnHeader() {
  const auto& message = input_->parser->get();
  http10_ = message.version() == 10;
  head_only_ = message.method() == bhttp::verb::head;
  if (message.version() != 10 && message.version() != 11) {
    Refuse(505, "invalid_argument", "the HTTP version must be 1.0 or 1.1");
    return false;
  }
  if (!http10_ && message.count(bhttp::field::host) != 1) {
    Refuse(400, "invalid_argument", "Host: exactly one such header is required");
    return false;
  }
  // What Beast does not take for chunked (gzip, chunked) has no end that we and a proxy in front would agree on.
  if (message.count(bhttp::field::transfer_encoding) > 0 &&
      !beast::iequals(message[bhttp::field::transfer_encoding], "chunked")) {
    Refuse(501, "unimplemented", "Transfer-Encoding: only chunked is supported");
    return false;
  }
  const auto length = input_->parser->content_length();
  const size_t expected = input_->parser->chunked() ? core_->options().max_body_bytes : length.value_or(0);
  if (expected > kSmallBody) {
    if (!core_->Reserve(expected)) {
      Metrics::Add(core_->metrics().shed, {{"what", "http_body"}});
      Refuse(503, "unavailable", "too many large requests are under way; try again soon");
      return false;
    }
    reserved_ = expected;
  }
  if (input_->parser->is_done()) return true;
  phase_ = Phase::kBody;
  SetTimer(core_->options().body_timeout);
  if (beast::iequals(message[bhttp::field::expect], "100-continue")) {
    // Nothing else is being written now, and 25 bytes fit into a socket's buffer unless the caller does not read at
    // all; then it must do without, as the standard has it do after a while anyway.
    static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    error_code error;
    const size_t sent = socket_.write_some(asio::buffer(kContinue), error);
    if (sent != 0 && sent != kContinue.size()) {
      Close();
      return false;
    }
  }
  return true;
}

void Connection::RefuseMalformed(error_code error) {
  const auto& message = input_->parser->get();
  http10_ = message.version() == 10;
  head_only_ = message.method() == bhttp::verb::head;
  if (error == bhttp::error::header_limit) {
    return Refuse(431, "resource_exhausted",
                  absl::StrCat("the request's header must be at most ", core_->options().max_header_bytes, " bytes"));
  }
  if (error == bhttp::error::body_limit) {
    return Refuse(413, "resource_exhausted",
                  absl::StrCat("the request's body must be at most ", core_->options().max_body_bytes,
                               " bytes; send fewer items a call"));
  }
  Refuse(400, "invalid_argument", absl::StrCat("this is not an HTTP request: ", error.message()));
}

void Connection::Refuse(int status, std::string_view code, std::string_view message) {
  Metrics::Add(core_->metrics().http_requests, {{"route", "other"}, {"code", absl::StrCat(status)}});
  last_request_ = true;
  Response response = JsonError(status, code, message);
  if (status == 503) response.headers.emplace_back("Retry-After", "1");
  Write(std::move(response));
}

void Connection::Dispatch() {
  auto message = input_->parser->release();
  if (!message.keep_alive()) last_request_ = true;
  Request request;
  request.method = std::string(message.method_string());
  std::string_view target(message.target().data(), message.target().size());
  if (size_t scheme = target.find("://"); !target.empty() && target[0] != '/' && scheme != std::string_view::npos) {
    // The absolute form, which servers must take: the authority is said in Host as well.
    size_t path = target.find('/', scheme + 3);
    target = path == std::string_view::npos ? std::string_view("/") : target.substr(path);
  }
  const size_t question = target.find('?');
  request.path = std::string(target.substr(0, question));
  if (question != std::string_view::npos) request.query = std::string(target.substr(question + 1));
  for (const auto& field : message) {
    std::string name(field.name_string());
    for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    request.headers.emplace_back(std::move(name), std::string(field.value()));
  }
  request.body = std::move(message.body());
  request.peer = peer_;
  request.loopback_listener = core_->bound().address().is_loopback();

  if (refuse_) {
    last_request_ = true;
    if (request.path != "/livez" && request.path != "/readyz") {
      return Refuse(503, "unavailable", "too many connections are open; reuse connections, or try again soon");
    }
  }
  phase_ = Phase::kBusy;
  SetTimer(absl::InfiniteDuration());
  auto responder = std::make_shared<Responder>(core_, shared_from_this());
  auto cancel =
      core_->handler()(std::move(request), [responder](Response response) { responder->Answer(std::move(response)); });
  // The answer, even if given already, is posted to this strand: it finds the cancel in place.
  cancel_ = std::move(cancel);
  if (peer_closed_) return OnPeerGone(false);
  Read();
}

void Connection::Read() {
  if (reading_ || peer_closed_ || phase_ == Phase::kClosed) return;
  const bool ahead = phase_ == Phase::kBusy || phase_ == Phase::kWriting;
  if (ahead && input_->buffer.size() >= kReadAhead)
    return;  // A caller that sends so much ahead is not watched until its answer.
  reading_ = true;
  socket_.async_read_some(asio::buffer(chunk_),
                          [self = shared_from_this()](error_code error, size_t bytes) { self->OnRead(error, bytes); });
}

void Connection::OnRead(error_code error, size_t bytes) {
  reading_ = false;
  if (phase_ == Phase::kClosed) return;
  if (error) return OnPeerGone(error != asio::error::eof);
  if (phase_ == Phase::kLinger) {
    lingered_ += bytes;
    return lingered_ > kMaxLinger ? Close() : Read();
  }
  auto space = input_->buffer.prepare(bytes);
  asio::buffer_copy(space, asio::buffer(chunk_, bytes));
  input_->buffer.commit(bytes);
  if (phase_ == Phase::kBusy || phase_ == Phase::kWriting) return Read();
  Parse();
}

// The caller closed its side, or the connection is broken.
void Connection::OnPeerGone(bool reset) {
  peer_closed_ = true;
  if (phase_ == Phase::kWriting && !reset) return;  // OnWritten closes.
  if (phase_ != Phase::kBusy || reset) return Close();
  // Half closed: most likely gone, so a parked poll must not get jobs any more; but should it read on (nc does), it
  // gets its answer.
  if (auto cancel = std::exchange(cancel_, nullptr)) cancel();
}

// --- Writing ---

void Connection::Answer(Response response) {
  if (phase_ != Phase::kBusy) return;  // Closed meanwhile.
  Write(std::move(response));
}

void Connection::Write(Response response) {
  phase_ = Phase::kWriting;
  SetTimer(core_->options().write_timeout);
  out_head_ = SerializeHead(response, last_request_ ? "close" : http10_ ? "keep-alive" : "");
  out_body_ = head_only_ || response.status == 204 ? std::string() : std::move(response.body);
  const std::array<asio::const_buffer, 2> buffers{asio::buffer(out_head_), asio::buffer(out_body_)};
  asio::async_write(socket_, buffers,
                    [self = shared_from_this()](error_code error, size_t) { self->OnWritten(error); });
}

void Connection::OnWritten(error_code error) {
  if (phase_ != Phase::kWriting) return;
  out_body_ = std::string();
  if (error) return Close();
  // A caller that closes its side has got what its system has acknowledged: many close as soon as they have read the
  // answer, before we are told that it was written. Otherwise it counts as delivered.
  if (auto cancel = std::exchange(cancel_, nullptr); cancel && peer_closed_ && Unacknowledged() > 0) cancel();
  if (last_request_) return Linger();
  NextRequest();
}

int Connection::Unacknowledged() {
  int bytes = 0;
  return ioctl(socket_.native_handle(), SIOCOUTQ, &bytes) == 0 ? bytes : 1;
}

void Connection::Linger() {
  error_code ignored;  // Already closed by the other side: the read says so.
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
  if (peer_closed_) return Close();
  Unreserve();
  phase_ = Phase::kLinger;
  input_->parser.reset();
  input_->buffer.clear();
  input_->buffer.shrink_to_fit();
  SetTimer(kLingerTime);
  Read();
}

void Connection::Close() {
  if (phase_ == Phase::kClosed) return;
  phase_ = Phase::kClosed;
  SetTimer(absl::InfiniteDuration());
  error_code ignored;  // Nothing is left to be lost.
  socket_.close(ignored);
  core_->Remove(this);
  if (auto cancel = std::exchange(cancel_, nullptr)) cancel();
}

void Connection::SetTimer(absl::Duration after) {
  const uint64_t number = ++timer_number_;
  if (after == absl::InfiniteDuration()) {
    timer_.cancel();
    return;
  }
  timer_.expires_after(absl::ToChronoNanoseconds(after));
  timer_.async_wait([self = shared_from_this(), number](error_code error) {
    if (!error && number == self->timer_number_) self->OnTimeout();
  });
}

void Connection::OnTimeout() {
  if (phase_ == Phase::kHeader || phase_ == Phase::kBody) {
    if (!header_seen_) http10_ = head_only_ = false;  // Those of the request before.
    return Refuse(408, "deadline_exceeded",
                  phase_ == Phase::kHeader ? "the request's header took too long to arrive"
                                           : "the request's body took too long to arrive");
  }
  Close();
}

}  // namespace tenure::http
