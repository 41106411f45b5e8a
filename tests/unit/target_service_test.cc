// TargetService over JSON: which fields it refuses and with which words, what reaches the engine, and that a secret
// never comes back. Layer: tests.
#include "server/rpc/target_service.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/service_fixture.h"

namespace tenure::rpc {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

class TargetServiceTest : public testing::ServiceFixture<TargetService> {
 protected:
  TargetServiceTest() : ServiceFixture("TargetService") {}
  static std::string Create(const std::string& spec) { return absl::StrCat(R"({"name":"t","spec":{)", spec, "}}"); }
};

constexpr char kStock[] = R"("purpose":"TARGET_PURPOSE_INVENTORY","url":"file:///x","queues":["q"])";
constexpr char kHook[] =
    R"("purpose":"TARGET_PURPOSE_NOTIFY","url":"https://example.com/","secret":"0123456789abcdef")";

TEST_F(TargetServiceTest, RefusedFieldsAreNamedWithTheirRule) {
  struct Bad {
    std::string method, body, message;
  };
  const Bad rows[] = {
      {"CreateTarget", R"({"name":"a b"})", "name: "},
      {"CreateTarget", R"({"name":"t"})", "spec.purpose: is required"},
      {"CreateTarget", Create(R"("purpose":77)"), "spec.purpose: is 77"},
      {"CreateTarget", Create(R"("purpose":"TARGET_PURPOSE_NOTIFY")"), "spec.url: is required"},
      {"CreateTarget", Create(R"("purpose":"TARGET_PURPOSE_NOTIFY","url":"ftp://x/")"), "spec.url: must be https"},
      {"CreateTarget", Create(R"("purpose":"TARGET_PURPOSE_NOTIFY","url":"https://x/")"),
       "spec.secret: is required for a webhook"},
      {"CreateTarget", Create(R"("purpose":"TARGET_PURPOSE_NOTIFY","url":"https://x/","secret":"short")"),
       "spec.secret: is 5 bytes long"},
      {"CreateTarget", Create(R"("purpose":"TARGET_PURPOSE_NOTIFY","url":"https://x/","secret":"sixteen  blanks.")"),
       "spec.secret: must be printable ASCII"},
      {"CreateTarget", Create(R"("purpose":"TARGET_PURPOSE_NOTIFY","url":"https://x/","secret":"whsec_????????????")"),
       "spec.secret: begins with whsec_"},
      {"CreateTarget",
       Create(R"("purpose":"TARGET_PURPOSE_NOTIFY","url":"sqs+https://h/a/q","secret":"0123456789abcdef")"),
       "spec.secret: goes with webhooks"},
      {"CreateTarget", Create(absl::StrCat(kHook, R"(,"queues":["a b"])")), "spec.queues[0]: may hold only"},
      {"CreateTarget", Create(absl::StrCat(kHook, R"(,"events":["JOB_OUTCOME_UNSPECIFIED"])")), "spec.events[0]: is 0"},
      {"CreateTarget", Create(absl::StrCat(kHook, R"(,"interval":"5s")")),
       "spec.interval: goes with EVENT_LOG and INVENTORY"},
      {"CreateTarget", Create(absl::StrCat(kHook, R"(,"interval":"0.5s")")), "spec.interval: is 500ms"},
      {"CreateTarget", Create(absl::StrCat(kHook, R"(,"cron":"@daily")")), "spec.cron: goes with INVENTORY"},
      {"CreateTarget", Create(absl::StrCat(kStock, R"(,"cron":"0 25 * * *")")), "spec.cron: "},
      {"CreateTarget", Create(absl::StrCat(kStock, R"(,"cron":")", std::string(257, '*'), "\"")), "spec.cron: "},
      {"CreateTarget", Create(absl::StrCat(kStock, R"(,"cron":"@daily","interval":"3600s")")),
       "spec.cron: does not go with interval"},
      {"CreateTarget", Create(absl::StrCat(kStock, R"(,"cron":"@daily","timeZone":"Mars/Olympus")")),
       "spec.time_zone: "},
      {"CreateTarget", Create(absl::StrCat(kStock, R"(,"timeZone":"UTC")")), "spec.time_zone: goes with cron"},
      {"CreateTarget", Create(absl::StrCat(kHook, R"(,"minAgeDays":5)")), "spec.min_age_days: goes with EXPORT"},
      {"CreateTarget", Create(absl::StrCat(kHook, R"(,"minAgeDays":-5)")), "spec.min_age_days: is -5"},
      {"CreateTarget", Create(absl::StrCat(kHook, R"(,"endpoint":"https://x")")), "spec.endpoint: goes with"},
      {"CreateTarget", Create(absl::StrCat(kHook, R"(,"region":"eu-west-1")")), "spec.region: goes with"},
      {"CreateTarget", Create(absl::StrCat(kHook, R"(,"description":")", std::string(1025, 'x'), "\"")),
       "spec.description: "},
      {"UpdateTarget", R"({"name":"t"})", "spec: sets nothing"},
      {"UpdateTarget", R"({"name":"t","spec":{"purpose":"TARGET_PURPOSE_EXPORT"}})", "spec.purpose: cannot be changed"},
      {"UpdateTarget", R"({"name":"t","updateMask":"nothing"})", "update_mask: names 'nothing'; the fields are url"},
      {"GetTarget", "{}", "name: is required"},
      {"DeleteTarget", "{}", "name: is required"},
      {"PauseTarget", "{}", "name: is required"},
      {"ResumeTarget", "{}", "name: is required"},
      {"ListTargets", R"({"pageSize":1001})", "page_size: is 1001"},
      {"ListTargets", R"({"pageToken":"x"})", "page_token"},
      {"ListDeadDeliveries", "{}", "name: is required"},
      {"ListDeadDeliveries", R"({"name":"t","pageSize":-1})", "page_size: is -1"},
      {"RedriveDeliveries", "{}", "name: is required"},
  };
  for (const Bad& bad : rows) {
    const JsonAnswer answer = Post(bad.method, bad.body);
    EXPECT_EQ(answer.http_status, 400) << bad.body;
    EXPECT_THAT(answer.body, HasSubstr(bad.message)) << bad.body;
    EXPECT_THAT(answer.body, Not(HasSubstr("0123456789abcdef")));
  }
}

TEST_F(TargetServiceTest, ATargetReachesTheEngineWithItsDefaults) {
  store::TargetSettings got;
  engine_.create_target = [&](std::string name, store::TargetSettings settings, bool paused, auto done) {
    EXPECT_EQ(name, "t");
    EXPECT_FALSE(paused);
    got = settings;
    store::Target target;
    target.name = name;
    target.settings = std::move(settings);
    target.has_secret = true;
    done(std::move(target));
  };
  const JsonAnswer answer = Post("CreateTarget", Create(absl::StrCat(kHook, R"(,"queues":["b","a","b"])")));
  EXPECT_EQ(answer.http_status, 200) << answer.body;
  EXPECT_EQ(got.purpose, store::TargetPurpose::kNotify);
  EXPECT_EQ(got.events, store::kAllEvents);
  EXPECT_THAT(got.queues, ElementsAre("a", "b"));
  EXPECT_EQ(got.secret, "0123456789abcdef");
  EXPECT_THAT(answer.body, Not(HasSubstr("0123456789abcdef")));
  EXPECT_THAT(answer.body, HasSubstr("\"hasSecret\":true"));
  EXPECT_THAT(answer.body, HasSubstr("JOB_OUTCOME_EXPIRED"));
}

TEST_F(TargetServiceTest, AnUpdateNamesItsFieldsAndIsCheckedAsAWhole) {
  std::set<std::string> got;
  absl::Status checked;
  engine_.update_target = [&](std::string, store::TargetSettings settings, std::set<std::string> fields,
                              engine::TargetEngine::TargetCheck check, auto done) {
    got = std::move(fields);
    settings.url = "https://example.com/";
    checked = check(settings);
    done(store::Target());
  };
  Post("UpdateTarget", R"({"name":"t","spec":{"description":"x","events":["JOB_OUTCOME_DISCARDED"]}})");
  EXPECT_THAT(got, UnorderedElementsAre("description", "events"));
  EXPECT_THAT(std::string(checked.message()), HasSubstr("spec.secret: is required")) << "the whole target";
  Post("UpdateTarget", R"({"name":"t","spec":{"secret":"0123456789abcdef"},"updateMask":"secret,queues"})");
  EXPECT_THAT(got, UnorderedElementsAre("secret", "queues"));
  EXPECT_EQ(checked, absl::OkStatus());
}

TEST_F(TargetServiceTest, PagesOfTargetsAndDeadDeliveries) {
  engine_.list_targets = [](std::string after, std::string, int limit, auto done) {
    std::vector<store::Target> targets(after.empty() ? static_cast<size_t>(limit) : 1);
    for (size_t i = 0; i < targets.size(); ++i) targets[i].name = absl::StrCat("t", i);
    done(std::move(targets));
  };
  const JsonAnswer first = Post("ListTargets", R"({"pageSize":2})");
  EXPECT_THAT(first.body, HasSubstr("nextPageToken"));
  EXPECT_THAT(first.body, Not(HasSubstr("\"t2\"")));
  int64_t asked_after = -1;
  engine_.list_dead_deliveries = [&](std::string, int64_t after, int limit, auto done) {
    asked_after = after;
    std::vector<store::Delivery> dead(static_cast<size_t>(limit));
    for (size_t i = 0; i < dead.size(); ++i) dead[i].id = after + 1 + static_cast<int64_t>(i);
    done(std::move(dead));
  };
  const JsonAnswer dead = Post("ListDeadDeliveries", R"({"name":"t","pageSize":2})");
  const size_t token = dead.body.find("nextPageToken\":\"");
  ASSERT_NE(token, std::string::npos) << dead.body;
  const std::string next = dead.body.substr(token + 16, dead.body.find('"', token + 16) - token - 16);
  Post("ListDeadDeliveries", absl::StrCat(R"({"name":"t","pageSize":2,"pageToken":")", next, "\"}"));
  EXPECT_EQ(asked_after, 2);
}

}  // namespace
}  // namespace tenure::rpc
