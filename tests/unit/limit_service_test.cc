// LimitService over JSON: which fields it refuses and with which words, what reaches the engine, and how its answers
// look. Layer: tests.
#include "server/rpc/limit_service.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/service_fixture.h"

namespace tenure::rpc {
namespace {

using ::testing::HasSubstr;

class LimitServiceTest : public testing::ServiceFixture<LimitService> {
 protected:
  LimitServiceTest() : ServiceFixture("LimitService") {}
};

TEST_F(LimitServiceTest, RefusedFieldsAreNamedWithTheirRule) {
  struct Bad {
    std::string method, body, message;
  };
  const Bad rows[] = {
      {"SetLimit", R"({"queue":"a b","scope":"LIMIT_SCOPE_KEY","key":"k","maxLeased":1})", "queue: "},
      {"SetLimit", R"({"queue":"q","key":"k","maxLeased":1})", "scope: must be"},
      {"SetLimit", R"({"queue":"q","scope":"LIMIT_SCOPE_KEY","maxLeased":1})", "key: "},
      {"SetLimit", R"({"queue":"q","scope":"LIMIT_SCOPE_QUEUE","key":"k","maxLeased":1})", "key: must be empty"},
      {"SetLimit", R"({"queue":"q","scope":"LIMIT_SCOPE_KEY","key":"k"})", "max_leased: or rate is required"},
      {"SetLimit", R"({"queue":"q","scope":"LIMIT_SCOPE_KEY","key":"k","maxLeased":-1})", "max_leased: "},
      {"SetLimit", R"({"queue":"q","scope":"LIMIT_SCOPE_KEY","key":"k","maxLeased":1000001})", "max_leased: "},
      {"SetLimit", R"({"queue":"q","scope":"LIMIT_SCOPE_KEY","key":"k","rate":{}})", "rate.interval: is required"},
      {"SetLimit", R"({"queue":"q","scope":"LIMIT_SCOPE_KEY","key":"k","rate":{"interval":"0.000009s"}})",
       "rate.interval: "},
      {"SetLimit", R"({"queue":"q","scope":"LIMIT_SCOPE_KEY","key":"k","rate":{"interval":"1s","burst":1000001}})",
       "rate.burst: "},
      {"GetLimit", R"({"queue":"q","scope":"LIMIT_SCOPE_KEY"})", "key: "},
      {"ListLimits", R"({"queue":""})", "queue: "},
      {"ListLimits", R"({"queue":"q","pageToken":"x"})", "page_token: "},
      {"DeleteLimit", R"({"queue":"q","key":"k"})", "scope: "},
  };
  for (const Bad& row : rows) {
    const JsonAnswer answer = Post(row.method, row.body);
    EXPECT_EQ(answer.http_status, 400) << row.method << row.body;
    EXPECT_THAT(answer.body, HasSubstr(row.message)) << row.method << row.body;
  }
}

TEST_F(LimitServiceTest, ALimitGoesThroughAndComesBack) {
  engine_.set_limit = [](std::string queue, store::LimitScope scope, std::string key, store::LimitSettings settings,
                         const auto& done) {
    EXPECT_EQ(queue, "q");
    EXPECT_EQ(scope, store::LimitScope::kPrefix);
    store::Limit limit;
    limit.scope = scope;
    limit.key = std::move(key);
    limit.settings = settings;
    done(limit);
  };
  const JsonAnswer answer = Post("SetLimit", R"({"queue":"q","scope":"LIMIT_SCOPE_PREFIX","key":"user:","maxLeased":0,)"
                                             R"("rate":{"interval":"0.1s","burst":5}})");
  EXPECT_EQ(answer.http_status, 200) << answer.body;
  EXPECT_THAT(answer.body, HasSubstr(R"("key":"user:")"));
  EXPECT_THAT(answer.body, HasSubstr(R"("maxLeased":0)"));
  EXPECT_THAT(answer.body, HasSubstr(R"("interval":"0.100s")"));
  EXPECT_THAT(answer.body, HasSubstr(R"("burst":5)"));
}

TEST_F(LimitServiceTest, PagesGoOnAfterTheLastLimitOfTheOneBefore) {
  std::vector<std::string> asked;
  engine_.list_limits = [&](const std::string&, store::LimitScope after, std::string key, int count, const auto& done) {
    asked.push_back(std::to_string(static_cast<int>(after)) + key);
    std::vector<store::Limit> limits(static_cast<size_t>(asked.size() == 1 ? count : 1));
    for (size_t i = 0; i < limits.size(); ++i) {
      limits[i].scope = store::LimitScope::kPrefix;
      limits[i].key = "p" + std::to_string(i);
    }
    done(limits);
  };
  const JsonAnswer first = Post("ListLimits", R"({"queue":"q","pageSize":2})");
  EXPECT_EQ(first.http_status, 200) << first.body;
  const size_t at = first.body.find("\"nextPageToken\":\"");
  ASSERT_NE(at, std::string::npos) << first.body;
  const size_t begin = at + 17;
  const std::string token = first.body.substr(begin, first.body.find('"', begin) - begin);
  ASSERT_FALSE(token.empty());
  Post("ListLimits", R"({"queue":"q","pageSize":2,"pageToken":")" + token + "\"}");
  EXPECT_EQ(asked, (std::vector<std::string>{"0", "2p1"}));
}

}  // namespace
}  // namespace tenure::rpc
