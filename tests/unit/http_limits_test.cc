// What the HTTP port refuses: too large, too slow, too many, malformed; and what parked requests cost.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/process_metrics.h"
#include "server/http/server.h"
#include "tests/support/parking_server.h"
#include "tests/support/raw_http.h"

namespace tenure::http {
namespace {

using testing::RawHttp;
using testing::RawReply;

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
  options.idle_timeout = absl::Milliseconds(500);  // Long enough to connect and ask on a busy machine.
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
