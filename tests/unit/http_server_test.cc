// The HTTP port as a client at the socket sees it: connections, pipelining, disconnects, shutdown.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/http/server.h"
#include "tests/support/parking_server.h"
#include "tests/support/raw_http.h"

namespace tenure::http {
namespace {

using testing::RawHttp;
using testing::RawReply;

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

// curl, and others, close as soon as they have read: what they were told is not taken back.
TEST_F(HttpServerTest, ACallerThatReadsAndClosesHasGotItsAnswer) {
  std::atomic<int> cancels = 0;
  ServerOptions options;
  options.listen = "127.0.0.1:0";
  HttpServer server(options, metrics_, [&](Request, Respond respond) -> std::function<void()> {
    respond(TextResponse(200, "leases"));
    return [&cancels] { ++cancels; };
  });
  ASSERT_TRUE(server.Start().ok());
  for (int i = 0; i < 500; ++i) {
    RawHttp client(server.port());
    ASSERT_EQ(client.Get("/").body, "leases\n");
  }
  server.Stop(Soon());
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

}  // namespace
}  // namespace tenure::http
