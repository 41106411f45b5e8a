// ScheduleService over JSON: which fields it refuses and with which words, what reaches the engine, and how its answers
// look. Layer: tests.
#include "server/rpc/schedule_service.h"

#include <memory>
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

class ScheduleServiceTest : public testing::ServiceFixture<ScheduleService> {
 protected:
  ScheduleServiceTest() : ServiceFixture("ScheduleService", Limits{.max_payload_bytes = 1000}) {}
};

constexpr char kJob[] = R"("job":{"queue":"q","kind":"k"})";

TEST_F(ScheduleServiceTest, RefusedFieldsAreNamedWithTheirRule) {
  const auto create = [](const std::string& spec) { return absl::StrCat(R"({"name":"s","spec":{)", spec, "}}"); };
  struct Bad {
    std::string method, body, message;
  };
  const Bad rows[] = {
      {"CreateSchedule", R"({"name":"a b"})", "name: "},
      {"CreateSchedule", R"({"name":"s"})", "spec.cron: is required: give cron or interval"},
      {"CreateSchedule", create(R"("cron":"@daily")"), "spec.job: is required"},
      {"CreateSchedule", create(absl::StrCat(R"("cron":"",)", kJob)), "spec.cron: is empty"},
      {"CreateSchedule", create(absl::StrCat(R"("cron":"* * *",)", kJob)), "spec.cron: has 3 fields; five are needed"},
      {"CreateSchedule", create(absl::StrCat(R"("cron":")", std::string(257, '*'), R"(",)", kJob)),
       "spec.cron: is 257 bytes long; at most 256"},
      {"CreateSchedule", create(absl::StrCat(R"("interval":"0.999s",)", kJob)), "spec.interval: is 999ms"},
      {"CreateSchedule", create(absl::StrCat(R"("interval":"31622401s",)", kJob)), "spec.interval: "},
      {"CreateSchedule", create(absl::StrCat(R"("cron":"@daily","timeZone":"../x",)", kJob)),
       "spec.time_zone: must be"},
      {"CreateSchedule", create(absl::StrCat(R"("interval":"9s","timeZone":"UTC",)", kJob)),
       "spec.time_zone: goes with cron"},
      {"CreateSchedule", create(absl::StrCat(R"("cron":"@daily","catchUp":101,)", kJob)), "spec.catch_up: "},
      {"CreateSchedule", create(absl::StrCat(R"("cron":"@daily","catchUp":-1,)", kJob)), "spec.catch_up: "},
      {"CreateSchedule", create(absl::StrCat(R"("cron":"@daily","overlapPolicy":9,)", kJob)),
       "spec.overlap_policy: is 9; there is no such policy"},
      {"CreateSchedule",
       create(absl::StrCat(R"("cron":"@daily","description":")", std::string(1025, 'x'), R"(",)", kJob)),
       "spec.description: "},
      {"CreateSchedule", create(R"("cron":"@daily","job":{"queue":"q","kind":"a b"})"), "spec.job.kind: "},
      {"CreateSchedule", create(R"("cron":"@daily","job":{"queue":"q","kind":"k","delay":"1s"})"), "spec.job.delay: "},
      {"CreateSchedule", create(R"("cron":"@daily","job":{"queue":"q","kind":"k","dueTime":"2027-01-01T00:00:00Z"})"),
       "spec.job.due_time: "},
      {"CreateSchedule",
       create(R"("cron":"@daily","job":{"queue":"q","kind":"k","expireTime":"2027-01-01T00:00:00Z"})"),
       "spec.job.expire_time: "},
      {"CreateSchedule", create(R"("cron":"@daily","job":{"queue":"q","kind":"k","idempotencyKey":"x"})"),
       "spec.job.idempotency_key: "},
      {"CreateSchedule", create(R"("cron":"@daily","job":{"queue":"q","kind":"k","effectKey":"x"})"),
       "spec.job.effect_key: "},
      {"CreateSchedule",
       create(absl::StrCat(R"("cron":"@daily","job":{"queue":"q","kind":"k","payload":{"text":")",
                           std::string(1001, 'x'), R"("}})")),
       "spec.job.payload: is 1001 bytes long"},
      {"UpdateSchedule", R"({"name":"s"})", "spec: sets nothing"},
      {"UpdateSchedule", R"({"name":"s","updateMask":"nope"})", "update_mask: names 'nope'; the fields are cron, "},
      {"UpdateSchedule", R"({"name":"s","updateMask":"cron,interval"})", "update_mask: names both"},
      {"UpdateSchedule", R"({"name":"s","updateMask":"cron"})", "spec.cron: is required"},
      {"UpdateSchedule", R"({"name":"s","updateMask":"job"})", "spec.job: is required"},
      {"GetSchedule", R"({})", "name: "},
      {"DeleteSchedule", R"({})", "name: "},
      {"PauseSchedule", R"({"name":""})", "name: "},
      {"ResumeSchedule", R"({"name":"ü"})", "name: "},
      {"ListSchedules", R"({"pageSize":1001})", "page_size: "},
      {"ListSchedules", R"({"pageToken":"zzz"})", "page_token: "},
      {"ListSchedules", R"({"namePrefix":"a b"})", "name_prefix: "},
      {"TriggerSchedule", absl::StrCat(R"({"name":"s","requestId":")", std::string(256, 'x'), R"("})"), "request_id: "},
  };
  for (const Bad& row : rows) {
    const JsonAnswer answer = Post(row.method, row.body);
    EXPECT_EQ(answer.http_status, 400) << row.body.substr(0, 200);
    EXPECT_THAT(answer.body, HasSubstr(absl::StrCat("\"message\":\"", row.message))) << row.body.substr(0, 200);
  }
}

TEST_F(ScheduleServiceTest, CreatePassesOnWhatWasGivenAndItsDefaults) {
  store::ScheduleSettings settings;
  bool paused = false;
  engine_.create_schedule = [&](std::string name, store::ScheduleSettings given, bool start_paused, auto done) {
    EXPECT_EQ(name, "s");
    settings = given;
    paused = start_paused;
    store::Schedule schedule;
    schedule.name = name;
    schedule.settings = std::move(given);
    schedule.next = absl::FromUnixSeconds(1'800'000'000);
    done(std::move(schedule));
  };
  JsonAnswer answer = Post("CreateSchedule", absl::StrCat(R"({"name":"s","spec":{"cron":"0 * * * *",)", kJob, "}}"));
  ASSERT_EQ(answer.http_status, 200) << answer.body;
  EXPECT_EQ(settings.timing.cron, "0 * * * *");
  EXPECT_EQ(settings.timing.time_zone, "UTC");
  EXPECT_EQ(settings.overlap, store::Overlap::kAllow);
  EXPECT_EQ(settings.catch_up, 1);
  EXPECT_FALSE(paused);
  EXPECT_THAT(answer.body, HasSubstr(R"("upcomingTimes":["2027-01-15T08:00:00Z","2027-01-15T09:00:00Z")"));
  EXPECT_THAT(answer.body, HasSubstr(R"("overlapPolicy":"OVERLAP_POLICY_ALLOW")"));

  answer = Post("CreateSchedule", absl::StrCat(R"({"name":"s","paused":true,"spec":{"interval":"1.5s","catchUp":0,)",
                                               R"("overlapPolicy":"OVERLAP_POLICY_CANCEL_PREVIOUS",)", kJob, "}}"));
  ASSERT_EQ(answer.http_status, 200) << answer.body;
  EXPECT_EQ(settings.timing.interval, absl::Milliseconds(1500));
  EXPECT_EQ(settings.overlap, store::Overlap::kCancelPrevious);
  EXPECT_EQ(settings.catch_up, 0);
  EXPECT_TRUE(paused);
}

TEST_F(ScheduleServiceTest, UpdateNamesTheFieldsThatChange) {
  std::set<std::string> fields;
  store::ScheduleSettings settings;
  engine_.update_schedule = [&](auto, store::ScheduleSettings given, std::set<std::string> names, auto done) {
    settings = std::move(given);
    fields = std::move(names);
    done(store::Schedule());
  };
  ASSERT_EQ(Post("UpdateSchedule", R"({"name":"s","spec":{"interval":"5s","catchUp":0}})").http_status, 200);
  EXPECT_THAT(fields, ElementsAre("catch_up", "interval"));
  // Named and not set: back to the default.
  ASSERT_EQ(
      Post("UpdateSchedule", R"({"name":"s","updateMask":"overlapPolicy,timeZone,catchUp,description"})").http_status,
      200);
  EXPECT_THAT(fields, ElementsAre("catch_up", "description", "overlap_policy", "time_zone"));
  EXPECT_EQ(settings.timing.time_zone, "UTC");
  EXPECT_EQ(settings.catch_up, 1);
  ASSERT_EQ(Post("UpdateSchedule", absl::StrCat(R"({"name":"s","updateMask":"*","spec":{"cron":"@daily",)", kJob, "}}"))
                .http_status,
            200);
  EXPECT_THAT(fields, ElementsAre("catch_up", "cron", "description", "job", "overlap_policy", "time_zone"));
}

TEST_F(ScheduleServiceTest, ListsInPages) {
  engine_.list_schedules = [](const std::string& after, auto, int limit, auto done) {
    EXPECT_EQ(limit, 3);
    std::vector<store::Schedule> page(after.empty() ? 3 : 1);
    for (size_t i = 0; i < page.size(); ++i) page[i].name = absl::StrCat(after, "n", i);
    done(std::move(page));
  };
  JsonAnswer answer = Post("ListSchedules", R"({"pageSize":2})");
  ASSERT_EQ(answer.http_status, 200) << answer.body;
  EXPECT_THAT(answer.body, HasSubstr("\"n1\""));
  EXPECT_THAT(answer.body, Not(HasSubstr("\"n2\"")));
  const size_t at = answer.body.find("nextPageToken\":\"") + 16;
  const std::string token = answer.body.substr(at, answer.body.find('"', at) - at);
  answer = Post("ListSchedules", absl::StrCat(R"({"pageSize":2,"pageToken":")", token, "\"}"));
  EXPECT_THAT(answer.body, HasSubstr("\"n1n0\""));
  EXPECT_THAT(answer.body, Not(HasSubstr("nextPageToken")));
}

}  // namespace
}  // namespace tenure::rpc
