#include "tests/support/http_receiver.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

namespace tenure::testing {

HttpReceiver::HttpReceiver(Script script) : script_(std::move(script)) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener_, 128) != 0 ||
      getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    ADD_FAILURE() << "cannot listen";
  }
  port_ = ntohs(address.sin_port);
  accepting_ = std::thread([this] { Accept(); });
}

HttpReceiver::~HttpReceiver() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    shutdown(listener_, SHUT_RDWR);
    for (const int fd : open_) shutdown(fd, SHUT_RDWR);
    changed_.notify_all();
  }
  accepting_.join();
  close(listener_);
  for (std::thread& thread : serving_) thread.join();
}

std::string HttpReceiver::url(const std::string& path) const { return absl::StrCat("http://127.0.0.1:", port_, path); }

std::vector<Received> HttpReceiver::requests() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return requests_;
}

bool HttpReceiver::Await(const std::function<bool(const std::vector<Received>&)>& condition) {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_for(lock, std::chrono::seconds(30), [&] { return condition(requests_); });
}

void HttpReceiver::SetScript(Script script) {
  const std::lock_guard<std::mutex> lock(mutex_);
  script_ = std::move(script);
}

void HttpReceiver::Hold() {
  const std::lock_guard<std::mutex> lock(mutex_);
  held_ = true;
}

void HttpReceiver::Resume() {
  const std::lock_guard<std::mutex> lock(mutex_);
  held_ = false;
  changed_.notify_all();
}

void HttpReceiver::Accept() {
  while (true) {
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stopping_ || fd < 0) {
      if (fd >= 0) close(fd);
      return;
    }
    open_.insert(fd);
    serving_.emplace_back([this, fd] { Serve(fd); });
  }
}

void HttpReceiver::Serve(int fd) {
  std::string buffer;
  char chunk[16384];
  const auto fill = [&] {
    const ssize_t got = recv(fd, chunk, sizeof chunk, 0);
    if (got > 0) buffer.append(chunk, static_cast<size_t>(got));
    return got > 0;
  };
  while (true) {
    size_t end;
    while ((end = buffer.find("\r\n\r\n")) == std::string::npos) {
      if (!fill()) break;
    }
    if (end == std::string::npos) break;
    Received request;
    const std::vector<std::string> lines = absl::StrSplit(buffer.substr(0, end), "\r\n");
    const std::vector<std::string> first = absl::StrSplit(lines[0], ' ');
    if (first.size() == 3) request.method = first[0], request.target = first[1];
    for (size_t i = 1; i < lines.size(); ++i) {
      const std::pair<std::string, std::string> header = absl::StrSplit(lines[i], absl::MaxSplits(':', 1));
      request.headers[absl::AsciiStrToLower(header.first)] = std::string(absl::StripAsciiWhitespace(header.second));
    }
    size_t length = 0;
    if (!absl::SimpleAtoi(request.headers["content-length"], &length)) length = 0;
    while (buffer.size() < end + 4 + length && fill()) {
    }
    if (buffer.size() < end + 4 + length) break;
    request.body = buffer.substr(end + 4, length);
    buffer.erase(0, end + 4 + length);
    Script script;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      requests_.push_back(request);
      changed_.notify_all();
      changed_.wait(lock, [&] { return !held_ || stopping_; });
      if (stopping_) break;
      script = script_;
    }
    const Answer answer = script(request);
    std::string text = absl::StrCat("HTTP/1.1 ", answer.status, " X\r\nContent-Length: ", answer.body.size(), "\r\n");
    for (const std::string& header : answer.headers) absl::StrAppend(&text, header, "\r\n");
    absl::StrAppend(&text, "\r\n");
    if (request.method != "HEAD") text += answer.body;
    if (send(fd, text.data(), text.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(text.size())) break;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  open_.erase(fd);
  close(fd);
}

}  // namespace tenure::testing
