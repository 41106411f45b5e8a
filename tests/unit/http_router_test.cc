// What the HTTP port answers: probes, JSON RPCs, refusals of foreign web pages, helpful texts for what is not there.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/http/address.h"
#include "server/http/router.h"
#include "server/http/server.h"
#include "tests/support/raw_http.h"

namespace tenure::http {
namespace {

constexpr char kEnqueue[] = "/tenure.v1.JobService/Enqueue";

class RouterTest : public ::testing::Test {
 protected:
  RouterTest() { health_.database_ok = true; }

  Router& router() {
    if (!router_) {
      Router::Parts parts;
      parts.json = [this](JsonCall call, JsonDone done) -> JsonCancel {
        calls_.push_back(std::move(call));
        done(answer_);
        return [this] { ++cancels_; };
      };
      parts.health = [this] { return health_; };
      parts.checks = checks_;
      parts.refresh_metrics = [this] { ++refreshes_; };
      parts.browsers = browsers_;
      router_ = std::make_unique<Router>(metrics_, std::move(parts));
    }
    return *router_;
  }

  // The handlers of these tests answer before Handle returns.
  Response Ask(std::string method, std::string target, HeaderList headers = {}, std::string body = "",
               bool loopback = true) {
    Request request;
    request.method = std::move(method);
    const size_t question = target.find('?');
    request.path = target.substr(0, question);
    if (question != std::string::npos) request.query = target.substr(question + 1);
    request.headers = std::move(headers);
    if (!request.HasHeader("host")) request.headers.emplace_back("host", "localhost:8471");
    request.body = std::move(body);
    request.peer = "127.0.0.1:5";
    request.loopback_listener = loopback;
    std::optional<Response> response;
    router().Handle(std::move(request), [&](Response given) {
      EXPECT_FALSE(response.has_value());
      response = std::move(given);
    });
    EXPECT_TRUE(response.has_value());
    return response.value_or(Response{.status = 0});
  }
  Response Post(HeaderList headers, std::string body = "{}", bool loopback = true) {
    return Ask("POST", kEnqueue, std::move(headers), std::move(body), loopback);
  }
  static std::string HeaderOf(const Response& response, std::string_view name) {
    for (const auto& [key, value] : response.headers) {
      if (key == name) return value;
    }
    return "";
  }

  Metrics metrics_;
  engine::Health health_;
  std::vector<ReadinessCheck> checks_;
  BrowserGuard::Options browsers_;
  JsonAnswer answer_{200, "{\"ok\":true}", {}};
  std::vector<JsonCall> calls_;
  int cancels_ = 0;
  int refreshes_ = 0;
  std::unique_ptr<Router> router_;
};

const HeaderList kJson = {{"content-type", "application/json"}};

HeaderList With(HeaderList headers, std::string name, std::string value) {
  headers.emplace_back(std::move(name), std::move(value));
  return headers;
}

// --- Probes --------------------------------------------------------------------------------------------------------

TEST_F(RouterTest, LivezIsOkWhateverTheDatabaseDoes) {
  health_.database_ok = false;
  EXPECT_EQ(Ask("GET", "/livez").status, 200);
  EXPECT_EQ(Ask("GET", "/livez").body, "ok\n");
}

TEST_F(RouterTest, ReadyzSaysOk) {
  const Response response = Ask("GET", "/readyz");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body, "ok\n");
}

TEST_F(RouterTest, ReadyzGivesEachReasonALine) {
  health_.database_ok = false;
  health_.database_error = "connection refused\nIs the server running?\n";
  health_.draining = true;
  health_.event_lag = absl::Milliseconds(7250);
  absl::Status schema = absl::FailedPreconditionError("schema is at 3, needed is 5: run tenured migrate up");
  checks_.push_back({"migrations", false, [&] { return schema; }});
  checks_.push_back({"reaper", true, [] { return absl::NotFoundError("nobody leads it"); }});
  Response response = Ask("GET", "/readyz");
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(response.body,
            "database: unreachable: connection refused Is the server running?\n"
            "draining: the daemon is shutting down\n"
            "events: last read 7.2s ago, allowed are 5s\n"
            "migrations: schema is at 3, needed is 5: run tenured migrate up\n");
  health_ = {.database_ok = true};
  schema = absl::OkStatus();
  EXPECT_EQ(Ask("GET", "/readyz").status, 200);  // A warning alone does not make it unready.
}

TEST_F(RouterTest, ReadyzVerboseShowsAllChecks) {
  checks_.push_back({"migrations", false, [] { return absl::OkStatus(); }});
  checks_.push_back({"reaper", true, [] { return absl::NotFoundError("nobody leads it"); }});
  const Response response = Ask("GET", "/readyz?x=1&verbose");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body,
            "ok database\nok schema\nok draining\nok events\nok migrations\nwarning reaper: nobody leads it\n");
  health_.draining = true;
  EXPECT_EQ(Ask("GET", "/readyz?verbose=1").body,
            "ok database\nok schema\nfailed draining: the daemon is shutting down\nok events\nok migrations\n"
            "warning reaper: nobody leads it\n");
}

TEST_F(RouterTest, ASchemaThatDoesNotSuitIsNotADatabaseOutOfReach) {
  health_.database_ok = false;
  health_.database_error = health_.schema_error = "the schema is at version 1, this daemon needs 2";
  EXPECT_EQ(Ask("GET", "/readyz?verbose").body,
            "ok database\nfailed schema: the schema is at version 1, this daemon needs 2\nok draining\nok events\n");
  EXPECT_EQ(Ask("GET", "/readyz").status, 503);
}

TEST_F(RouterTest, EventsThatWereNeverReadAreNotReady) {
  health_.event_lag = absl::InfiniteDuration();
  EXPECT_EQ(Ask("GET", "/readyz").body, "events: not read yet\n");
  health_.event_lag = absl::Seconds(5);
  EXPECT_EQ(Ask("GET", "/readyz").status, 200);
  health_.database_ok = false;
  EXPECT_EQ(Ask("GET", "/readyz").body, "database: not reached yet\n");
}

// --- RPCs ----------------------------------------------------------------------------------------------------------

TEST_F(RouterTest, AJsonPostReachesTheHandlerWhole) {
  answer_ = {201, "{}", {{"X-Thing", "1"}}};
  Response response =
      Ask("POST", "/tenure.v1.JobService/Enqueue?a=b",
          With(With(kJson, "connect-timeout-ms", "1500"), "authorization", "Bearer x"), "{\"jobs\":[]}");
  EXPECT_EQ(response.status, 201);
  EXPECT_EQ(response.content_type, "application/json");
  EXPECT_EQ(HeaderOf(response, "X-Thing"), "1");
  ASSERT_EQ(calls_.size(), 1u);
  EXPECT_EQ(calls_[0].path, kEnqueue);
  EXPECT_EQ(calls_[0].body, "{\"jobs\":[]}");
  EXPECT_EQ(calls_[0].content_type, "application/json");
  EXPECT_EQ(calls_[0].timeout, absl::Milliseconds(1500));
  EXPECT_EQ(calls_[0].peer, "127.0.0.1:5");
  EXPECT_TRUE(std::count(calls_[0].headers.begin(), calls_[0].headers.end(),
                         std::pair<std::string, std::string>("authorization", "Bearer x")));
}

TEST_F(RouterTest, TheAnswersContentTypeMayBeNamed) {
  answer_.headers = {{"content-type", "application/json; charset=utf-8"}};
  const Response response = Post(kJson);
  EXPECT_EQ(response.content_type, "application/json; charset=utf-8");
  EXPECT_TRUE(response.headers.empty());
}

TEST_F(RouterTest, ContentTypes) {
  const struct {
    const char* type;
    const char* body;
    int status;
  } cases[] = {
      {"application/json", "{}", 200},
      {"application/json", "", 200},  // The handler says what an empty message means.
      {"Application/JSON; charset=UTF-8", "{}", 200},
      {"application/json;charset=\"utf-8\"", "{}", 200},
      {"application/json; charset=latin1", "{}", 415},
      {"application/x-www-form-urlencoded", "{\"a\":1}", 200},  // curl -d without -H.
      {"application/x-www-form-urlencoded", " \n{}", 200},
      {"application/x-www-form-urlencoded", "%7B%7D=", 415},  // A form.
      {"application/x-www-form-urlencoded", "", 415},
      {"", "{}", 200},
      {"", "[]", 415},
      {"text/plain", "{}", 415},
      {"application/jsonx", "{}", 415},
      {"application/proto", "\x0a\x01", 415},
      {"multipart/form-data; boundary=x", "{}", 415},
  };
  for (const auto& c : cases) {
    HeaderList headers;
    if (c.type[0] != 0) headers.emplace_back("content-type", c.type);
    const Response response = Post(headers, c.body);
    EXPECT_EQ(response.status, c.status) << c.type << " " << c.body;
    if (response.status == 415) {
      EXPECT_NE(response.body.find("Content-Type: "), std::string::npos);
    }
  }
}

TEST_F(RouterTest, HeadersOfTheProtocolAreChecked) {
  const struct {
    const char* name;
    const char* value;
    int status;
    const char* says;
  } cases[] = {
      {"connect-timeout-ms", "0", 400, "Connect-Timeout-Ms: "},
      {"connect-timeout-ms", "-1", 400, "Connect-Timeout-Ms: "},
      {"connect-timeout-ms", "1.5", 400, "Connect-Timeout-Ms: "},
      {"connect-timeout-ms", "5s", 400, "Connect-Timeout-Ms: "},
      {"connect-timeout-ms", "12345678901", 400, "Connect-Timeout-Ms: "},
      {"connect-timeout-ms", "9999999999", 200, ""},
      {"connect-protocol-version", "1", 200, ""},
      {"connect-protocol-version", "2", 400, "Connect-Protocol-Version: "},
      {"content-encoding", "identity", 200, ""},
      {"content-encoding", "gzip", 501, "Content-Encoding: "},
  };
  for (const auto& c : cases) {
    const Response response = Post(With(kJson, c.name, c.value));
    EXPECT_EQ(response.status, c.status) << c.name << " " << c.value;
    EXPECT_NE(response.body.find(c.says), std::string::npos) << response.body;
  }
  EXPECT_EQ(calls_.size(), 3u);  // What was refused did not reach the handler.
}

TEST_F(RouterTest, TheCancelOfTheHandlerIsHandedOn) {
  Request request;
  request.method = "POST";
  request.path = kEnqueue;
  request.headers = With(kJson, "host", "localhost");
  auto cancel = router().Handle(std::move(request), [](Response) {});
  ASSERT_TRUE(cancel);
  cancel();
  EXPECT_EQ(cancels_, 1);
}

// --- What is not there -----------------------------------------------------------------------------------------------

TEST_F(RouterTest, WrongPathsAndMethodsSayWhatWouldBeRight) {
  const struct {
    const char* method;
    const char* path;
    int status;
    const char* says;
    const char* allow;
  } cases[] = {
      {"GET", "/", 200, "POST /SERVICE/METHOD", ""},
      {"GET", "/metric", 404, "GET / lists", ""},
      {"GET", "/metrics/", 404, "GET / lists", ""},
      {"GET", "/v1/jobs", 404, "GET / lists", ""},
      {"POST", "/v1/jobs", 404, "/tenure.v1.JobService/Enqueue", ""},
      {"POST", "/", 404, "/SERVICE/METHOD", ""},
      {"POST", "/tenure.v1.JobService/", 404, "/SERVICE/METHOD", ""},
      {"POST", "/metrics", 405, "/metrics is read with GET", "GET, HEAD"},
      {"DELETE", "/readyz", 405, "/readyz is read with GET", "GET, HEAD"},
      {"GET", kEnqueue, 405,
       "curl -H 'Content-Type: application/json' -d '{}' http://localhost:8471/tenure.v1.JobService", "POST"},
      {"PUT", kEnqueue, 405, "POST and a JSON message", "POST"},
      {"OPTIONS", kEnqueue, 405, "POST", "POST"},
  };
  for (const auto& c : cases) {
    const Response response = Ask(c.method, c.path);
    EXPECT_EQ(response.status, c.status) << c.method << " " << c.path;
    EXPECT_NE(response.body.find(c.says), std::string::npos) << response.body;
    EXPECT_EQ(HeaderOf(response, "Allow"), c.allow) << c.method << " " << c.path;
  }
  EXPECT_TRUE(calls_.empty());
}

TEST_F(RouterTest, RequestsAreCountedByRouteAndStatus) {
  Ask("GET", "/livez");
  Ask("HEAD", "/metrics");
  Ask("GET", "/nothing");
  Post(kJson);
  health_.draining = true;
  Ask("GET", "/readyz");
  auto count = [&](const char* route, const char* code) {
    return metrics_.http_requests.Add({{"route", route}, {"code", code}}).Value();
  };
  EXPECT_EQ(count("livez", "200"), 1);
  EXPECT_EQ(count("metrics", "200"), 1);
  EXPECT_EQ(count("other", "404"), 1);
  EXPECT_EQ(count("rpc", "200"), 1);
  EXPECT_EQ(count("readyz", "503"), 1);
  EXPECT_EQ(refreshes_, 1);
}

// --- Web pages -------------------------------------------------------------------------------------------------------

TEST_F(RouterTest, ForeignPagesCannotCallRpcs) {
  const HeaderList refused[] = {
      {{"origin", "https://evil.example"}},
      {{"origin", "null"}},
      {{"origin", ""}},
      {{"origin", "http://localhost:3000"}},  // Another port is another origin.
      {{"origin", "https://evil.example"}, {"sec-fetch-site", "same-origin"}},
      {{"sec-fetch-site", "cross-site"}},
      {{"sec-fetch-site", "same-site"}},
  };
  for (const HeaderList& headers : refused) {
    HeaderList all = kJson;
    all.insert(all.end(), headers.begin(), headers.end());
    const Response response = Post(all);
    EXPECT_EQ(response.status, 403) << headers[0].second;
    EXPECT_NE(response.body.find("permission_denied"), std::string::npos);
    EXPECT_EQ(HeaderOf(response, "Access-Control-Allow-Origin"), "");
    // Nor as a form, which browsers send without asking first.
    all[0].second = "application/x-www-form-urlencoded";
    EXPECT_EQ(Post(all).status, 403);
  }
  EXPECT_TRUE(calls_.empty());
}

TEST_F(RouterTest, ProgramsAndThePortsOwnPagesCan) {
  EXPECT_EQ(Post(kJson).status, 200);
  EXPECT_EQ(Post(With(kJson, "sec-fetch-site", "none")).status, 200);
  EXPECT_EQ(Post(With(kJson, "sec-fetch-site", "same-origin")).status, 200);
  EXPECT_EQ(Post(With(With(kJson, "origin", "http://localhost:8471"), "sec-fetch-site", "same-origin")).status, 200);
}

TEST_F(RouterTest, AllowedOriginsCanAndGetTheHeadersThatTheBrowserWants) {
  browsers_.allowed_origins = {"https://Console.example.com"};
  const HeaderList origin = {{"origin", "https://console.example.com"}};
  Response preflight = Ask("OPTIONS", kEnqueue, origin);
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(HeaderOf(preflight, "Access-Control-Allow-Origin"), "https://console.example.com");
  EXPECT_EQ(HeaderOf(preflight, "Access-Control-Allow-Methods"), "POST");
  Response response = Post(With(With(kJson, "origin", "https://console.example.com"), "sec-fetch-site", "cross-site"));
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(HeaderOf(response, "Access-Control-Allow-Origin"), "https://console.example.com");
  EXPECT_EQ(HeaderOf(response, "Vary"), "Origin");
  EXPECT_EQ(Ask("OPTIONS", kEnqueue, {{"origin", "https://other.example.com"}}).status, 403);
}

TEST_F(RouterTest, ALoopbackPortAnswersOnlyToLoopbacksNames) {
  browsers_.allowed_hosts = {"Tenure.internal"};
  const struct {
    const char* host;
    int status;
  } cases[] = {
      {"localhost", 200},
      {"localhost:8471", 200},
      {"LOCALHOST.:8471", 200},
      {"127.0.0.1:8471", 200},
      {"127.8.9.10", 200},
      {"[::1]:8471", 200},
      {"tenure.internal:80", 200},
      {"evil.example", 403},
      {"evil.example:8471", 403},
      {"localhost.evil.example", 403},
      {"127.0.0.1.evil.example", 403},
      {"10.0.0.1:8471", 403},
      {"0.0.0.0:8471", 403},
      {"", 400},
      {"localhost:x", 400},
      {"[::1", 400},
      {"localhost:99999", 400},
  };
  for (const auto& c : cases) {
    for (const char* path : {"/metrics", "/readyz", kEnqueue}) {
      const bool rpc = path == kEnqueue;
      const Response response = Ask(rpc ? "POST" : "GET", path, With(kJson, "host", c.host), "{}");
      EXPECT_EQ(response.status, c.status) << c.host << " " << path;
    }
  }
}

TEST_F(RouterTest, APortOnOtherInterfacesAnswersToAnyNameButPagesNeedAnAddressOrAConfiguredName) {
  browsers_.allowed_hosts = {"tenure.internal"};
  const struct {
    const char* host;
    const char* origin;
    int status;
  } cases[] = {
      {"tenure-0.tenure.svc:8471", "", 200},
      {"evil.example", "", 200},                               // A program; pages cannot leave Origin out of a POST.
      {"evil.example:8471", "http://evil.example:8471", 403},  // Rebound: the page's own name.
      {"10.1.2.3:8471", "http://10.1.2.3:8471", 200},          // An address cannot be rebound.
      {"[fd00::1]:8471", "http://[fd00::1]:8471", 200},
      {"tenure.internal", "https://tenure.internal", 200},
      {"tenure.internal", "https://evil.example", 403},
  };
  for (const auto& c : cases) {
    HeaderList headers = With(kJson, "host", c.host);
    if (c.origin[0] != 0) headers.emplace_back("origin", c.origin);
    EXPECT_EQ(Post(headers, "{}", /*loopback=*/false).status, c.status) << c.host << " " << c.origin;
  }
}

// --- Through the port ------------------------------------------------------------------------------------------------

TEST_F(RouterTest, ServedByTheServer) {
  ServerOptions options;
  options.listen = "127.0.0.1:0";
  HttpServer server(options, metrics_, [this](Request request, Respond respond) {
    return router().Handle(std::move(request), std::move(respond));
  });
  ASSERT_TRUE(server.Start().ok());
  testing::RawHttp client(server.port());
  EXPECT_EQ(client.Get("/livez").body, "ok\n");
  testing::RawReply page = client.Get("/metrics");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_NE(page.body.find("tenure_http_connections 1\n"), std::string::npos);
  EXPECT_EQ(client.Post(kEnqueue, "Content-Type: application/json\r\n", "{}").body, "{\"ok\":true}");
  EXPECT_EQ(client.Post(kEnqueue, "Content-Type: application/json\r\nOrigin: http://evil.example\r\n", "{}").status,
            403);
  EXPECT_EQ(client.Get("/metrics", "Host: evil.example\r\n").status, 403);
  EXPECT_EQ(calls_.size(), 1u);
  server.Stop(Clock::Real().Now());
}

TEST(ErrorBodies, AreJsonWhateverTheMessage) {
  EXPECT_EQ(JsonError(400, "invalid_argument", "a \"b\" \\ \n \xff \x7f").body,
            R"({"code":"invalid_argument","message":"a \"b\" \\ ? ? ?"})");
}

TEST(Addresses, AreReadAndWritten) {
  for (const char* text : {"127.0.0.1:8471", "[::1]:0", "localhost:80", ":8471"}) {
    auto address = ParseListenAddress(text, "http_listen");
    ASSERT_TRUE(address.ok()) << address.status();
    EXPECT_EQ(FormatAddress(*address), text);
  }
  EXPECT_EQ(ParseListenAddress("x", "http_listen").status().message().substr(0, 12), "http_listen:");
}

}  // namespace
}  // namespace tenure::http
