// See gate.h. One thread moves the bytes; the test tells it the state through a pipe and waits for its answer.
#include "tests/support/gate.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <libpq-fe.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>

#include "absl/strings/str_cat.h"

namespace tenure::testing {
namespace {

[[noreturn]] void Die(const char* what) {
  std::fprintf(stderr, "Gate: %s: %s\n", what, std::strerror(errno));
  std::abort();
}

std::string Quoted(const std::string& value) {
  std::string out = "'";
  for (const char c : value) {
    if (c == '\'' || c == '\\') out.push_back('\\');
    out.push_back(c);
  }
  return out + "'";
}

// Bytes on their way in one direction.
struct Flow {
  std::string bytes;
  bool ended = false;

  // False once the sender has nothing more.
  bool Take(int from) {
    char buffer[65536];
    const ssize_t n = recv(from, buffer, sizeof buffer, MSG_DONTWAIT);
    if (n > 0) bytes.append(buffer, static_cast<size_t>(n));
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
  }
  bool Give(int to) {
    const ssize_t n = send(to, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) bytes.erase(0, static_cast<size_t>(n));
    return n >= 0 || errno == EAGAIN || errno == EINTR;
  }
};

constexpr size_t kMostOnItsWay = size_t{1} << 20;

}  // namespace

struct Gate::Pair {
  embedded::UniqueFd client, server;
  Flow up, down;
};

Gate::Gate(const std::string& url) {
  char* error = nullptr;
  PQconninfoOption* options = PQconninfoParse(url.c_str(), &error);
  if (options == nullptr) Die(error);
  for (const PQconninfoOption* option = options; option->keyword != nullptr; ++option) {
    if (option->val == nullptr) continue;
    const std::string keyword = option->keyword;
    if (keyword == "host") {
      host_ = option->val;
    } else if (keyword == "port") {
      port_ = option->val;
    } else {
      absl::StrAppend(&url_, keyword, "=", Quoted(option->val), " ");
    }
  }
  PQconninfoFree(options);
  if (host_.empty()) host_ = "/var/run/postgresql";
  if (port_.empty()) port_ = "5432";

  listener_ = embedded::UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener_.get(), 128) != 0 ||
      getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    Die("cannot listen");
  }
  // sslmode: the gate passes bytes on and has no certificate of its own.
  absl::StrAppend(&url_, "host=127.0.0.1 port=", ntohs(address.sin_port));
  for (auto* ends : {orders_, answers_}) {
    int made[2];
    if (pipe2(made, O_CLOEXEC) != 0) Die("cannot make a pipe");
    ends[0] = embedded::UniqueFd(made[0]);
    ends[1] = embedded::UniqueFd(made[1]);
  }
  thread_ = std::thread([this] { Run(); });
}

Gate::~Gate() {
  Set(State::kGone);
  thread_.join();
}

void Gate::Set(State state) {
  static std::mutex one_at_a_time;
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  const char order = static_cast<char>(state);
  char answer;
  if (write(orders_[1].get(), &order, 1) != 1 || read(answers_[0].get(), &answer, 1) != 1) Die("has lost its thread");
}

int Gate::Connect() const {
  if (host_[0] == '/') {
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::snprintf(address.sun_path, sizeof address.sun_path, "%s", absl::StrCat(host_, "/.s.PGSQL.", port_).c_str());
    if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return fd;
    close(fd);
    return -1;
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host_.c_str(), port_.c_str(), &hints, &found) != 0) return -1;
  int connected = -1;
  for (const addrinfo* one = found; one != nullptr && connected < 0; one = one->ai_next) {
    const int fd = socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, one->ai_protocol);
    if (fd >= 0 && connect(fd, one->ai_addr, one->ai_addrlen) == 0) {
      connected = fd;
    } else if (fd >= 0) {
      close(fd);
    }
  }
  freeaddrinfo(found);
  return connected;
}

void Gate::Run() {
  State state = State::kOpen;
  std::vector<std::unique_ptr<Pair>> pairs;
  for (;;) {
    std::vector<pollfd> fds{{orders_[0].get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    for (const auto& pair : pairs) {
      // What nobody watches while nothing passes waits in the kernel.
      const bool moving = state == State::kOpen;
      auto events = [&](const Flow& in, const Flow& out) {
        return static_cast<short>(
            !moving ? 0 : (in.bytes.size() < kMostOnItsWay ? POLLIN : 0) | (out.bytes.empty() ? 0 : POLLOUT));
      };
      fds.push_back({moving ? pair->client.get() : -1, events(pair->up, pair->down), 0});
      fds.push_back({moving ? pair->server.get() : -1, events(pair->down, pair->up), 0});
    }
    if (poll(fds.data(), fds.size(), -1) < 0 && errno != EINTR) Die("cannot poll");
    for (size_t i = 0; i < pairs.size(); ++i) {
      Pair& pair = *pairs[i];
      const short client = fds[2 + 2 * i].revents, server = fds[3 + 2 * i].revents;
      bool alive = true;
      if ((client & (POLLIN | POLLHUP | POLLERR)) != 0) alive = pair.up.Take(pair.client.get());
      if ((server & (POLLIN | POLLHUP | POLLERR)) != 0) alive = pair.down.Take(pair.server.get()) && alive;
      if (!pair.up.bytes.empty() && state == State::kOpen) alive = pair.up.Give(pair.server.get()) && alive;
      if (!pair.down.bytes.empty() && state == State::kOpen) alive = pair.down.Give(pair.client.get()) && alive;
      if (!alive) pairs[i].reset();
    }
    std::erase(pairs, nullptr);
    if ((fds[1].revents & POLLIN) != 0) {
      embedded::UniqueFd client(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (client.valid() && state != State::kCut) {
        embedded::UniqueFd server(Connect());
        if (server.valid()) {
          const int one = 1;
          setsockopt(client.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
          auto pair = std::make_unique<Pair>();
          pair->client = std::move(client);
          pair->server = std::move(server);
          pairs.push_back(std::move(pair));
        }
      }
    }
    if ((fds[0].revents & POLLIN) != 0) {
      char order;
      if (read(orders_[0].get(), &order, 1) != 1) Die("has lost its test");
      state = static_cast<State>(order);
      if (state == State::kCut || state == State::kGone) pairs.clear();
      if (write(answers_[1].get(), &order, 1) != 1) Die("has lost its test");
      if (state == State::kGone) return;
    }
  }
}

}  // namespace tenure::testing
