// The fixture of the HTTP port's tests: a server on a free port whose handler answers at once, or parks the request
// until the test answers or the caller goes. The handler is thread-safe.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/clock.h"
#include "server/base/metrics.h"
#include "server/http/server.h"
#include "tests/support/raw_http.h"

namespace tenure::http {

inline Clock::TimePoint Soon(int seconds = 20) { return Clock::Real().Now() + std::chrono::seconds(seconds); }

// Answers /echo at once with what it got; parks /park until the test answers or the caller goes.
class ParkingHandler {
 public:
  std::function<void()> operator()(Request request, Respond respond) {
    if (request.path == "/drop") return {};  // A fault: the answer is dropped.
    if (request.path == "/late") {
      std::thread([respond = std::move(respond)] { respond(TextResponse(200, "late")); }).detach();
      return {};
    }
    if (request.path != "/park") {
      Response response = TextResponse(200, "");
      response.body = absl::StrCat(request.method, " ", request.path, "?", request.query, " ", request.body.size(), " ",
                                   request.body.substr(0, 20));
      if (request.path == "/split") response.headers.emplace_back("X-Bad", "a\r\nSet-Cookie: b");
      respond(std::move(response));
      return {};
    }
    std::lock_guard lock(mutex_);
    const size_t index = parked_.size();
    parked_.push_back(std::move(respond));
    changed_.notify_all();
    return [this, index] {
      Respond respond_now;
      {
        std::lock_guard own(mutex_);
        ++cancelled_;
        respond_now = std::move(parked_[index]);
        parked_[index] = nullptr;
        changed_.notify_all();
      }
      if (respond_now) respond_now(TextResponse(499, "cancelled"));
    };
  }

  bool AwaitParked(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return parked_.size() == count; });
  }
  bool AwaitCancelled(int count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return cancelled_ == count; });
  }
  int cancelled() {
    std::lock_guard lock(mutex_);
    return cancelled_;
  }
  void Answer(size_t index, const std::string& text) {
    Respond respond;
    {
      std::lock_guard lock(mutex_);
      respond = std::move(parked_[index]);
      parked_[index] = nullptr;
    }
    respond(TextResponse(200, text));
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Respond> parked_;
  int cancelled_ = 0;
};

class HttpServerTest : public ::testing::Test {
 protected:
  void Start(ServerOptions options = {}) {
    if (options.listen == ServerOptions().listen) options.listen = "127.0.0.1:0";
    server_ = std::make_unique<HttpServer>(std::move(options), metrics_, [this](Request request, Respond respond) {
      return handler_(std::move(request), std::move(respond));
    });
    const absl::Status status = server_->Start();
    ASSERT_TRUE(status.ok()) << status;
  }
  std::unique_ptr<testing::RawHttp> Connect() {
    auto client = std::make_unique<testing::RawHttp>(server_->port());
    EXPECT_TRUE(client->connected());
    return client;
  }
  double Connections() { return metrics_.http_connections.Add({}).Value(); }

  Metrics metrics_;
  ParkingHandler handler_;
  std::unique_ptr<HttpServer> server_;  // Last: its end waits for what the handler holds.
};

}  // namespace tenure::http
