// The HTTP port as a client at the socket sees it: connections, limits, timeouts, pipelining, disconnects, shutdown.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/process_metrics.h"
#include "server/http/server.h"
#include "tests/support/raw_http.h"

namespace tenure::http {
namespace {

using testing::RawHttp;
using testing::RawReply;

Clock::TimePoint Soon(int seconds = 20) { return Clock::Real().Now() + std::chrono::seconds(seconds); }

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
  std::unique_ptr<RawHttp> Connect() {
    auto client = std::make_unique<RawHttp>(server_->port());
    EXPECT_TRUE(client->connected());
    return client;
  }
  double Connections() { return metrics_.http_connections.Add({}).Value(); }

  Metrics metrics_;
  ParkingHandler handler_;
  std::unique_ptr<HttpServer> server_;  // Last: its end waits for what the handler holds.
};

TEST_F(HttpServerTest, PortZeroReportsThePortThatItGot) {
  Start();
  EXPECT_NE(server_->port(), 0);
  EXPECT_EQ(server_->address(), absl::StrCat("127.0.0.1:", server_->port()));
  EXPECT_EQ(Connect()->Get("/echo").status, 200);
}

TEST_F(HttpServerTest, ListensOnIpv6) {
  ServerOptions options;
  options.listen = "[::1]:0";
  Start(options);
  EXPECT_EQ(server_->address(), absl::StrCat("[::1]:", server_->port()));
  RawHttp client(server_->port(), "::1");
  ASSERT_TRUE(client.connected());
  EXPECT_EQ(client.Get("/echo").status, 200);
}

TEST_F(HttpServerTest, WithoutAHostItListensOnAllInterfacesOfBothKinds) {
  ServerOptions options;
  options.listen = ":0";
  Start(options);
  EXPECT_EQ(Connect()->Get("/echo").status, 200);
  RawHttp six(server_->port(), "::1");
  ASSERT_TRUE(six.connected());
  EXPECT_EQ(six.Get("/echo").status, 200);
}

TEST_F(HttpServerTest, AnAddressThatCannotBeUsedIsRefusedWithTheReason) {
  Start();
  const struct {
    std::string listen;
    absl::StatusCode code;
  } cases[] = {
      {"127.0.0.1", absl::StatusCode::kInvalidArgument},
      {"127.0.0.1:", absl::StatusCode::kInvalidArgument},
      {"127.0.0.1:65536", absl::StatusCode::kInvalidArgument},
      {"127.0.0.1:http", absl::StatusCode::kInvalidArgument},
      {"::1:8471", absl::StatusCode::kInvalidArgument},
      {"[127.0.0.1]:0", absl::StatusCode::kInvalidArgument},
      {"http://localhost:0", absl::StatusCode::kInvalidArgument},
      {absl::StrCat("127.0.0.1:", server_->port()), absl::StatusCode::kUnavailable},  // Taken.
      {"203.0.113.1:0", absl::StatusCode::kUnavailable},                              // Not of this machine.
  };
  for (const auto& c : cases) {
    ServerOptions options;
    options.listen = c.listen;
    HttpServer other(options, metrics_, [](Request, Respond) { return std::function<void()>(); });
    const absl::Status status = other.Start();
    EXPECT_EQ(status.code(), c.code) << c.listen << ": " << status;
    EXPECT_FALSE(status.message().empty());
  }
}

TEST_F(HttpServerTest, AConnectionServesOneRequestAfterTheOther) {
  Start();
  auto client = Connect();
  for (int i = 0; i < 3; ++i) {
    RawReply reply = client->Get(absl::StrCat("/echo?n=", i));
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.body, absl::StrCat("GET /echo?n=", i, " 0 "));
    EXPECT_EQ(reply.headers.count("connection"), 0u);
    EXPECT_TRUE(reply.headers.count("date"));
  }
  EXPECT_EQ(client->Post("/echo", "", "{\"a\":1}").body, "POST /echo? 7 {\"a\":1}");
  EXPECT_EQ(Connections(), 1);
}

TEST_F(HttpServerTest, ConnectionCloseAndHttp10AreHeeded) {
  Start();
  auto client = Connect();
  RawReply reply = client->Get("/echo", "Connection: close\r\n");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.headers["connection"], "close");
  EXPECT_TRUE(client->ClosedByPeer());

  auto old = Connect();
  ASSERT_TRUE(old->Send("GET /echo HTTP/1.0\r\n\r\n"));
  EXPECT_EQ(old->Read().headers["connection"], "close");
  EXPECT_TRUE(old->ClosedByPeer());

  auto kept = Connect();
  ASSERT_TRUE(kept->Send("GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
  EXPECT_EQ(kept->Read().headers["connection"], "keep-alive");
  EXPECT_EQ(kept->Get("/echo").status, 200);
}

TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInTheirOrder) {
  Start();
  auto client = Connect();
  std::string all;
  for (int i = 0; i < 50; ++i) {
    absl::StrAppend(&all, "POST /echo?n=", i, " HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab\r\n", i % 10);
  }
  ASSERT_TRUE(client->Send(all));
  for (int i = 0; i < 50; ++i) {
    ASSERT_EQ(client->Read().body, absl::StrCat("POST /echo?n=", i, " 5 ab\r\n", i % 10));
  }
}

TEST_F(HttpServerTest, APipelinedRequestWaitsForTheParkedOneBeforeIt) {
  Start();
  auto client = Connect();
  ASSERT_TRUE(client->SendRequest("POST", "/park"));
  ASSERT_TRUE(client->SendRequest("GET", "/echo?second"));
  ASSERT_TRUE(handler_.AwaitParked(1));
  handler_.Answer(0, "first");
  EXPECT_EQ(client->Read().body, "first\n");
  EXPECT_EQ(client->Read().body, "GET /echo?second 0 ");
  EXPECT_EQ(handler_.cancelled(), 0);
}

TEST_F(HttpServerTest, APipelinedRequestMayArriveInPieces) {
  Start();
  auto client = Connect();
  ASSERT_TRUE(client->SendRequest("POST", "/park"));
  ASSERT_TRUE(handler_.AwaitParked(1));
  ASSERT_TRUE(client->Send("GET /echo?sec"));
  handler_.Answer(0, "first");
  EXPECT_EQ(client->Read().body, "first\n");
  ASSERT_TRUE(client->Send("ond HTTP/1.1\r\nHost: a\r\n\r\n"));
  EXPECT_EQ(client->Read().body, "GET /echo?second 0 ");
}

TEST_F(HttpServerTest, HeadHasTheHeaderOfGetAndNoBody) {
  Start();
  auto client = Connect();
  ASSERT_TRUE(client->SendRequest("HEAD", "/echo"));
  RawReply reply = client->Read(/*without_body=*/true);
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.headers["content-length"], absl::StrCat(std::string("HEAD /echo? 0 ").size()));
  EXPECT_EQ(client->Get("/echo").body, "GET /echo? 0 ");  // What follows is in step.
}

TEST_F(HttpServerTest, AChunkedBodyIsPutTogether) {
  Start();
  auto client = Connect();
  ASSERT_TRUE(client->Send(
      "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4;x=y\r\ndefg\r\n"));
  ASSERT_TRUE(client->Send("0\r\nTrailer: z\r\n\r\n"));
  EXPECT_EQ(client->Read().body, "POST /echo? 7 abcdefg");
  EXPECT_EQ(client->Get("/echo").status, 200);
}

TEST_F(HttpServerTest, TheAbsoluteFormOfTheTargetIsUnderstood) {
  Start();
  EXPECT_EQ(Connect()->Get("http://localhost:1/echo?a=http://b/c").body, "GET /echo?a=http://b/c 0 ");
  EXPECT_EQ(Connect()->Get("/echo?a=http://b/c").body, "GET /echo?a=http://b/c 0 ");
  EXPECT_EQ(Connect()->Get("http://localhost").body, "GET /? 0 ");
}

TEST_F(HttpServerTest, ABodyOverTheLimitIsRefusedBeforeItIsSent) {
  ServerOptions options;
  options.max_body_bytes = 1000;
  Start(options);
  auto client = Connect();
  EXPECT_EQ(client->Post("/echo", "", std::string(1000, 'x')).status, 200);
  ASSERT_TRUE(client->Send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n"));
  RawReply reply = client->Read();
  EXPECT_EQ(reply.status, 413);
  EXPECT_EQ(reply.headers["content-type"], "application/json");
  EXPECT_NE(reply.body.find("\"code\":\"resource_exhausted\""), std::string::npos) << reply.body;
  EXPECT_NE(reply.body.find("at most 1000 bytes"), std::string::npos) << reply.body;
  EXPECT_EQ(reply.headers["connection"], "close");
}

TEST_F(HttpServerTest, TheRefusalOfABodyUnderWayReachesACallerThatSendsItAll) {
  Start();
  auto client = Connect();
  // More than any socket buffer holds: without the linger the server's close would reset the connection, and the reply
  // with it.
  std::string body(20 << 20, 'x');
  ASSERT_TRUE(
      client->Send(absl::StrCat("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: ", body.size(), "\r\n\r\n")));
  ASSERT_TRUE(client->Send(body));
  EXPECT_EQ(client->Read().status, 413);
}

TEST_F(HttpServerTest, AChunkedBodyOverTheLimitIsRefused) {
  ServerOptions options;
  options.max_body_bytes = 1000;
  Start(options);
  auto client = Connect();
  ASSERT_TRUE(client->Send("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(client->Send("190\r\n" + std::string(400, 'x') + "\r\n"));
  EXPECT_EQ(client->Read().status, 413);
}

TEST_F(HttpServerTest, ABodyAtTheDefaultLimitPassesAndOneByteMoreDoesNot) {
  Start();
  auto client = Connect();
  EXPECT_EQ(client->Post("/echo", "", std::string(6 << 20, 'x')).body.substr(0, 21), "POST /echo? 6291456 x");
  EXPECT_EQ(client->Post("/echo", "", std::string((6 << 20) + 1, 'x')).status, 413);
}

TEST_F(HttpServerTest, ExpectContinueIsAnsweredBeforeTheBody) {
  Start();
  auto client = Connect();
  ASSERT_TRUE(client->Send("POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"));
  EXPECT_EQ(client->Read().status, 100);
  ASSERT_TRUE(client->Send("abc"));
  EXPECT_EQ(client->Read().body, "POST /echo? 3 abc");
  ASSERT_TRUE(
      client->Send("POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 99999999\r\n\r\n"));
  EXPECT_EQ(client->Read().status, 413);
}

TEST_F(HttpServerTest, LargeBodiesTogetherAreBounded) {
  ServerOptions options;
  options.max_buffered_bytes = 150'000;
  Start(options);
  auto first = Connect();
  auto second = Connect();
  const std::string large(100'000, 'x');
  ASSERT_TRUE(first->SendRequest("POST", "/park", "", large));
  ASSERT_TRUE(handler_.AwaitParked(1));
  RawReply refused = second->Post("/echo", "", large);
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers["retry-after"], "1");
  EXPECT_EQ(Connect()->Post("/echo", "", "small").status, 200);
  EXPECT_EQ(metrics_.shed.Add({{"what", "http_body"}}).Value(), 1);
  handler_.Answer(0, "done");
  EXPECT_EQ(first->Read().status, 200);
  EXPECT_EQ(first->Post("/echo", "", large).status, 200);  // Given back.
}

TEST_F(HttpServerTest, AHeaderOverTheLimitIsRefused) {
  Start();
  auto client = Connect();
  EXPECT_EQ(client->Get("/echo", "X-Large: " + std::string(15'000, 'x') + "\r\n").status, 200);
  ASSERT_TRUE(client->SendRequest("GET", "/echo", "X-Large: " + std::string(17'000, 'x') + "\r\n"));
  RawReply reply = client->Read();
  EXPECT_EQ(reply.status, 431);
  EXPECT_NE(reply.body.find("16384 bytes"), std::string::npos) << reply.body;
  EXPECT_TRUE(client->ClosedByPeer());
}

TEST_F(HttpServerTest, MalformedRequestsAreRefusedAndTheConnectionClosed) {
  Start();
  const struct {
    const char* bytes;
    int status;
  } cases[] = {
      {"hello\r\n\r\n", 400},
      {"\x16\x03\x01\x02\x01\r\n\r\n", 400},  // TLS to the plain port.
      {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400},
      {"GET /echo HTTP/1.1\r\n\r\n", 400},  // No Host.
      {"GET /echo HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
      {"GET /echo HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n", 400},
      {"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400},
      {"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400},
      // Two ends of one body: what a proxy in front reads differently becomes a request of its own.
      {"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501},
      {"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n", 501},
      {"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n", 400},
  };
  for (const auto& c : cases) {
    auto client = Connect();
    ASSERT_TRUE(client->Send(c.bytes));
    RawReply reply = client->Read();
    EXPECT_EQ(reply.status, c.status) << c.bytes << reply.body;
    EXPECT_NE(reply.body.find("\"message\""), std::string::npos) << reply.body;
    EXPECT_TRUE(client->ClosedByPeer()) << c.bytes;
  }
}

TEST_F(HttpServerTest, ASlowHeaderIsCutOff) {
  ServerOptions options;
  options.header_timeout = absl::Milliseconds(50);
  Start(options);
  auto client = Connect();
  ASSERT_TRUE(client->Send("GET /echo HTTP/1.1\r\nHost: a\r\nX-Slow:"));
  RawReply reply = client->Read();
  EXPECT_EQ(reply.status, 408);
  EXPECT_NE(reply.body.find("header"), std::string::npos) << reply.body;
  EXPECT_TRUE(client->ClosedByPeer());
}

TEST_F(HttpServerTest, ASlowBodyIsCutOff) {
  ServerOptions options;
  options.body_timeout = absl::Milliseconds(50);
  Start(options);
  auto client = Connect();
  ASSERT_TRUE(client->Send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc"));
  RawReply reply = client->Read();
  EXPECT_EQ(reply.status, 408);
  EXPECT_NE(reply.body.find("body"), std::string::npos) << reply.body;
}

TEST_F(HttpServerTest, AnIdleConnectionIsClosedAndAParkedOneIsNot) {
  ServerOptions options;
  options.idle_timeout = absl::Milliseconds(50);
  options.header_timeout = absl::Milliseconds(50);
  options.body_timeout = absl::Milliseconds(50);
  options.write_timeout = absl::Milliseconds(50);
  Start(options);
  auto parked = Connect();
  ASSERT_TRUE(parked->SendRequest("POST", "/park"));
  ASSERT_TRUE(handler_.AwaitParked(1));
  auto fresh = Connect();
  auto used = Connect();
  EXPECT_EQ(used->Get("/echo").status, 200);
  EXPECT_TRUE(fresh->ClosedByPeer());
  EXPECT_TRUE(used->ClosedByPeer());  // Both took longer than any timer of the parked one would have.
  handler_.Answer(0, "still there");
  EXPECT_EQ(parked->Read().body, "still there\n");
}

TEST_F(HttpServerTest, ACallerThatDoesNotReadItsAnswerIsCutOff) {
  ServerOptions options;
  options.write_timeout = absl::Milliseconds(50);
  Start(options);
  auto client = Connect();
  ASSERT_TRUE(client->SendRequest("POST", "/park"));
  ASSERT_TRUE(handler_.AwaitParked(1));
  handler_.Answer(0, std::string(64 << 20, 'x'));  // More than the buffers on the way take.
  std::unique_ptr<RawHttp> other;
  for (int i = 0; Connections() != 0; ++i) {  // A round trip each: no busy loop, no sleep.
    ASSERT_LT(i, 100'000);
    other = std::make_unique<RawHttp>(server_->port());
    ASSERT_EQ(other->Get("/echo", "Connection: close\r\n").status, 200);
    ASSERT_TRUE(other->ClosedByPeer());
    other->Close();
  }
  EXPECT_EQ(client->Read().status, 0);  // The reply is incomplete.
  EXPECT_EQ(handler_.cancelled(), 1);   // What it carried can be given back.
}

TEST_F(HttpServerTest, ADisconnectCancelsTheParkedCall) {
  Start();
  for (int i = 0; i < 3; ++i) {
    auto client = Connect();
    ASSERT_TRUE(client->SendRequest("POST", "/park"));
    ASSERT_TRUE(handler_.AwaitParked(static_cast<size_t>(i) + 1));
    if (i == 0) client->Close();
    if (i == 1) client->Reset();
    if (i == 2) {
      ASSERT_TRUE(client->SendRequest("GET", "/echo"));  // Bytes ahead of the end must not hide it.
      client->Close();
    }
    ASSERT_TRUE(handler_.AwaitCancelled(i + 1));
  }
}

TEST_F(HttpServerTest, AHalfClosedCallerIsCancelledAndStillAnswered) {
  Start();
  auto client = Connect();
  ASSERT_TRUE(client->SendRequest("POST", "/park"));
  client->ShutdownSend();
  ASSERT_TRUE(handler_.AwaitCancelled(1));
  EXPECT_EQ(client->Read().status, 499);
  EXPECT_TRUE(client->ClosedByPeer());

  auto brief = Connect();
  ASSERT_TRUE(brief->SendRequest("GET", "/echo?a"));
  ASSERT_TRUE(brief->SendRequest("GET", "/echo?b"));
  brief->ShutdownSend();
  EXPECT_EQ(brief->Read().body, "GET /echo?a 0 ");
  EXPECT_EQ(brief->Read().body, "GET /echo?b 0 ");
  EXPECT_TRUE(brief->ClosedByPeer());
}

TEST_F(HttpServerTest, TheCancelIsDroppedUncalledOnceTheAnswerIsWritten) {
  std::atomic<int> cancels = 0;
  std::atomic<int> alive = 0;
  struct Token {
    explicit Token(std::atomic<int>& count) : alive(count) { ++alive; }
    ~Token() { --alive; }
    std::atomic<int>& alive;
  };
  ServerOptions options;
  options.listen = "127.0.0.1:0";
  HttpServer server(options, metrics_, [&](Request, Respond respond) -> std::function<void()> {
    const int before = alive.load();
    auto token = std::make_shared<Token>(alive);
    respond(TextResponse(200, absl::StrCat(before)));
    return [token, &cancels] { ++cancels; };
  });
  ASSERT_TRUE(server.Start().ok());
  RawHttp client(server.port());
  EXPECT_EQ(client.Get("/").body, "0\n");
  EXPECT_EQ(client.Get("/").body, "0\n");  // The first one's is gone.
  server.Stop(Soon());
  EXPECT_EQ(alive.load(), 0);
  EXPECT_EQ(cancels.load(), 0);
}

TEST_F(HttpServerTest, AnAnswerMayComeOnAnotherThreadAndADroppedOneIsA500) {
  Start();
  auto client = Connect();
  EXPECT_EQ(client->Get("/late").body, "late\n");
  EXPECT_EQ(client->Get("/drop").status, 500);
  EXPECT_EQ(client->Get("/echo").status, 200);
}

TEST_F(HttpServerTest, AHeaderWithALineBreakIsNotSent) {
  Start();
  RawReply reply = Connect()->Get("/split");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.headers.count("x-bad"), 0u);
  EXPECT_EQ(reply.headers.count("set-cookie"), 0u);
}

TEST_F(HttpServerTest, ConnectionsBeyondTheLimitGet503ButProbesAreAnswered) {
  ServerOptions options;
  options.max_connections = 2;
  Start(options);
  auto one = Connect();
  auto two = Connect();
  EXPECT_EQ(one->Get("/echo").status, 200);
  EXPECT_EQ(two->Get("/echo").status, 200);
  auto third = Connect();
  RawReply refused = third->Get("/echo");
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(refused.body.find("too many connections"), std::string::npos);
  EXPECT_TRUE(third->ClosedByPeer());
  auto probe = Connect();
  EXPECT_EQ(probe->Get("/livez").status, 200);
  EXPECT_TRUE(probe->ClosedByPeer());
  EXPECT_EQ(metrics_.http_refused_connections.Add({}).Value(), 2);
  EXPECT_EQ(one->Get("/echo").status, 200);
}

TEST_F(HttpServerTest, StopLetsRequestsUnderWayFinishAndClosesIdleConnections) {
  Start();
  auto idle = Connect();
  EXPECT_EQ(idle->Get("/echo").status, 200);
  auto parked = Connect();
  ASSERT_TRUE(parked->SendRequest("POST", "/park"));
  ASSERT_TRUE(handler_.AwaitParked(1));
  const uint16_t port = server_->port();
  auto stopped = std::async(std::launch::async, [&] { server_->Stop(Soon()); });
  EXPECT_TRUE(idle->ClosedByPeer());
  EXPECT_EQ(stopped.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  handler_.Answer(0, "finished");
  RawReply reply = parked->Read();
  EXPECT_EQ(reply.body, "finished\n");
  EXPECT_EQ(reply.headers["connection"], "close");
  EXPECT_TRUE(parked->ClosedByPeer());
  parked->Close();
  stopped.get();
  EXPECT_FALSE(RawHttp(port).connected());
  EXPECT_EQ(handler_.cancelled(), 0);
  EXPECT_EQ(Connections(), 0);
}

TEST_F(HttpServerTest, StopCancelsWhatIsLeftAtItsDeadline) {
  Start();
  auto parked = Connect();
  ASSERT_TRUE(parked->SendRequest("POST", "/park"));
  ASSERT_TRUE(handler_.AwaitParked(1));
  server_->Stop(Clock::Real().Now());
  EXPECT_EQ(handler_.cancelled(), 1);
  EXPECT_TRUE(parked->ClosedByPeer());
  server_->Stop(Clock::Real().Now());
}

TEST_F(HttpServerTest, AnAnswerAfterTheStopDoesNothing) {
  Respond late;
  std::promise<void> parked;
  {
    ServerOptions options;
    options.listen = "127.0.0.1:0";
    HttpServer server(options, metrics_, [&](Request, Respond respond) {
      late = std::move(respond);
      parked.set_value();
      return std::function<void()>();
    });
    ASSERT_TRUE(server.Start().ok());
    RawHttp client(server.port());
    ASSERT_TRUE(client.SendRequest("GET", "/park"));
    parked.get_future().get();
    server.Stop(Clock::Real().Now());
    EXPECT_TRUE(client.ClosedByPeer());
  }
  late(TextResponse(200, "too late"));
  EXPECT_EQ(Connections(), 0);
}

TEST_F(HttpServerTest, ParkedCallsCostNoThread) {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  const size_t count = files.rlim_cur >= 4000 ? 1500 : 300;
  Start();
  ProcessMetrics process(metrics_);
  auto first = Connect();
  EXPECT_EQ(first->Get("/echo").status, 200);
  process.Refresh();
  const double threads = metrics_.process_threads.Add({}).Value();
  std::vector<std::unique_ptr<RawHttp>> clients;
  for (size_t i = 0; i < count; ++i) {
    clients.push_back(Connect());
    ASSERT_TRUE(clients.back()->SendRequest("POST", "/park"));
  }
  ASSERT_TRUE(handler_.AwaitParked(count));
  process.Refresh();
  EXPECT_EQ(metrics_.process_threads.Add({}).Value(), threads);
  EXPECT_EQ(first->Get("/echo").status, 200);
  for (size_t i = 0; i < count; ++i) handler_.Answer(i, "done");
  for (auto& client : clients) ASSERT_EQ(client->Read().status, 200);
  EXPECT_EQ(handler_.cancelled(), 0);
}

}  // namespace
}  // namespace tenure::http
