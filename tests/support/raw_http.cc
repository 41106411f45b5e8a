// See raw_http.h.
#include "tests/support/raw_http.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace tenure::testing {

RawHttp::RawHttp(uint16_t port, const std::string& address) {
  sockaddr_storage storage{};
  socklen_t length = 0;
  if (address.find(':') == std::string::npos) {
    auto* v4 = reinterpret_cast<sockaddr_in*>(&storage);
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    inet_pton(AF_INET, address.c_str(), &v4->sin_addr);
    length = sizeof *v4;
  } else {
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    inet_pton(AF_INET6, address.c_str(), &v6->sin6_addr);
    length = sizeof *v6;
  }
  fd_ = socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval limit{20, 0};
  setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  const int on = 1;
  setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (connect(fd_, reinterpret_cast<sockaddr*>(&storage), length) != 0) Close();
}

RawHttp::~RawHttp() { Close(); }

bool RawHttp::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

bool RawHttp::SendRequest(std::string_view method, std::string_view target, std::string_view headers,
                          std::string_view body) {
  std::string request(method);
  request.append(" ").append(target).append(" HTTP/1.1\r\n");
  if (headers.find("Host:") == std::string_view::npos) request.append("Host: localhost\r\n");
  request.append(headers);
  if (!body.empty()) absl::StrAppend(&request, "Content-Length: ", body.size(), "\r\n");
  request.append("\r\n").append(body);
  return Send(request);
}

bool RawHttp::Fill() {
  char chunk[16384];
  const ssize_t got = recv(fd_, chunk, sizeof chunk, 0);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    timed_out_ = true;
    ADD_FAILURE() << "nothing came for 20 s";
  }
  if (got <= 0) return false;
  buffer_.append(chunk, static_cast<size_t>(got));
  return true;
}

RawReply RawHttp::Read(bool without_body) {
  RawReply reply;
  size_t end;
  while ((end = buffer_.find("\r\n\r\n")) == std::string::npos) {
    if (!Fill()) return reply;
  }
  const std::string head = buffer_.substr(0, end + 2);
  buffer_.erase(0, end + 4);
  size_t at = head.find("\r\n") + 2;
  while (at < head.size()) {
    const size_t line_end = head.find("\r\n", at);
    const size_t colon = head.find(':', at);
    std::string name = head.substr(at, colon - at);
    for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    reply.headers[name] = head.substr(colon + 2, line_end - colon - 2);
    at = line_end + 2;
  }
  const auto length = reply.headers.find("content-length");
  if (!without_body && length != reply.headers.end()) {
    const size_t expected = std::strtoull(length->second.c_str(), nullptr, 10);
    while (buffer_.size() < expected) {
      if (!Fill()) return reply;
    }
    reply.body = buffer_.substr(0, expected);
    buffer_.erase(0, expected);
  }
  reply.status = std::atoi(head.c_str() + std::strlen("HTTP/1.1 "));
  return reply;
}

RawReply RawHttp::Get(std::string_view target, std::string_view headers) {
  if (!SendRequest("GET", target, headers)) return {};
  return Read();
}

RawReply RawHttp::Post(std::string_view target, std::string_view headers, std::string_view body) {
  if (!SendRequest("POST", target, headers, body)) return {};
  return Read();
}

bool RawHttp::ClosedByPeer() { return buffer_.empty() && !Fill() && !timed_out_; }

void RawHttp::ShutdownSend() { shutdown(fd_, SHUT_WR); }

void RawHttp::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

void RawHttp::Reset() {
  const linger hard{1, 0};
  setsockopt(fd_, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
  Close();
}

}  // namespace tenure::testing
