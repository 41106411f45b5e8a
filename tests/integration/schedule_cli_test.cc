// tenurectl schedule, and the C++ client's calls on schedules, against a real daemon on a real PostgreSQL. Layer:
// tests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "tenure/client.h"
#include "tests/support/daemon.h"
#include "tests/support/tenurectl.h"

namespace tenure::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

class ScheduleCli : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { daemon_ = std::make_unique<TestDaemon>(); }
  static void TearDownTestSuite() { daemon_.reset(); }

  ScheduleCli() {
    name_ = absl::StrCat("s", getpid(), "-", next_++);
    queue_ = absl::StrCat("q-", name_);
  }

  static CliRun Run(const std::string& arguments, const std::string& input = "") {
    return RunTenurectl(daemon_->grpc_address(), absl::StrCat("schedule ", arguments), input);
  }
  CliRun Create(const std::string& options) {
    return Run(absl::StrCat("create ", name_, " -q ", queue_, " -k k ", options));
  }
  static client::Client Connect() {
    client::ClientOptions options;
    options.targets = {daemon_->grpc_address()};
    return *client::Client::Connect(options);
  }

  std::string name_, queue_;

 private:
  static inline int next_ = 0;
  static inline std::unique_ptr<TestDaemon> daemon_;
};

TEST_F(ScheduleCli, CreateShowsTheNextSlots) {
  const CliRun made = Create(
      "--cron '30 6 * * MON-FRI' --time-zone Asia/Tokyo '{\"n\": 1}' --header a=b --priority 3 --overlap skip "
      "--catch-up 0 "
      "--ttl 1h --description 'every morning'");
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_THAT(made.out,
              AllOf(StartsWith(absl::StrCat("Schedule ", name_, "\n")), ContainsRegex("when +30 6 "),
                    ContainsRegex("time zone +Asia/Tokyo"), ContainsRegex("next +20..-..-..T21:30:00.000Z, "),
                    ContainsRegex("overlap +skip"), ContainsRegex("catch up +0"), HasSubstr("every morning")));
  EXPECT_THAT(made.out, AllOf(HasSubstr("{\"n\": 1}"), ContainsRegex("ttl +1h"), ContainsRegex("priority +3")));
  const CliRun twice = Create("--every 1h");
  EXPECT_EQ(twice.status, 1);
  EXPECT_THAT(twice.err, StartsWith("error: SCHEDULE_EXISTS: "));
}

TEST_F(ScheduleCli, BadTimingsNameTheFieldAndTheRule) {
  CliRun bad = Create("--cron '61 * * * *'");
  EXPECT_EQ(bad.status, 1);
  EXPECT_THAT(bad.err, HasSubstr("spec.cron: in the minute: 61 is not from 0 to 59"));
  bad = Create("--cron '0 6 * * *' --time-zone Mars/Olympus");
  EXPECT_THAT(bad.err, HasSubstr("spec.time_zone: 'Mars/Olympus' is not in"));
  bad = Create("--every 10ms");
  EXPECT_THAT(bad.err, HasSubstr("spec.interval: is 10ms; it must be from 1s to 366 days"));
  bad = Create("");
  EXPECT_THAT(bad.err, HasSubstr("spec.cron: is required: give cron or interval"));
  EXPECT_EQ(Create("--cron @daily --every 1h").status, 2) << "usage";
  EXPECT_EQ(Create("--cron @daily --overlap maybe").status, 2);
  EXPECT_THAT(Run(absl::StrCat("get ", name_)).err, StartsWith("error: SCHEDULE_NOT_FOUND: "));
}

TEST_F(ScheduleCli, UpdateKeepsWhatItDoesNotName) {
  ASSERT_EQ(Create("--cron @daily --time-zone Europe/Berlin payload --header a=b").status, 0);
  CliRun changed = Run(absl::StrCat("update ", name_, " --priority 9 --catch-up 4"));
  ASSERT_EQ(changed.status, 0) << changed.err;
  EXPECT_THAT(changed.out, AllOf(ContainsRegex("priority +9"), ContainsRegex("catch up +4"), HasSubstr("payload"),
                                 ContainsRegex("time zone +Europe/Berlin"), ContainsRegex("when +@daily")));
  changed = Run(absl::StrCat("update ", name_, " --every 90m --reset catch_up"));
  ASSERT_EQ(changed.status, 0) << changed.err;
  EXPECT_THAT(changed.out, AllOf(ContainsRegex("when +every 1h30m"), ContainsRegex("catch up +1"),
                                 ContainsRegex("priority +9"), Not(HasSubstr("time zone"))));
  EXPECT_EQ(Run(absl::StrCat("update ", name_)).status, 2) << "nothing to change";
}

TEST_F(ScheduleCli, PauseResumeTriggerListAndDelete) {
  ASSERT_EQ(Create("--cron @yearly").status, 0);
  CliRun run = Run(absl::StrCat("pause ", name_));
  EXPECT_THAT(run.out, AllOf(HasSubstr("(paused)"), Not(ContainsRegex("next +2"))));
  EXPECT_THAT(Run(absl::StrCat("list --prefix ", name_)).out,
              AllOf(ContainsRegex("SCHEDULE +STATE +WHEN"), ContainsRegex(absl::StrCat(name_, " +paused +@yearly"))));
  const CliRun triggered = Run(absl::StrCat("trigger ", name_, " --request-id once"));
  ASSERT_EQ(triggered.status, 0) << triggered.err;
  ASSERT_THAT(triggered.lines(), SizeIs(1));
  const CliRun again = Run(absl::StrCat("trigger ", name_, " --request-id once"));
  EXPECT_EQ(again.out, triggered.out);
  EXPECT_THAT(again.err, HasSubstr("an earlier call"));
  EXPECT_THAT(Run(absl::StrCat("trigger ", name_, " --json")).out, HasSubstr("\"jobId\":\""));
  run = Run(absl::StrCat("resume ", name_));
  EXPECT_THAT(run.out, ContainsRegex("next +20..-01-01T00:00:00.000Z"));
  run = Run(absl::StrCat("get ", name_, " --json"));
  EXPECT_THAT(run.lines(), SizeIs(1));
  EXPECT_THAT(run.out, AllOf(HasSubstr("\"cron\":\"@yearly\""), HasSubstr("\"firedTotal\":\"0\"")));
  EXPECT_THAT(Run(absl::StrCat("list --json --prefix ", name_)).lines(), SizeIs(1));
  EXPECT_EQ(Run(absl::StrCat("delete ", name_)).out, absl::StrCat("deleted ", name_, "\n"));
  EXPECT_EQ(Run(absl::StrCat("delete ", name_)).status, 1);
  EXPECT_THAT(Run(absl::StrCat("list --prefix ", name_)).err, HasSubstr("no schedules"));
}

TEST_F(ScheduleCli, TheCppClientDoesTheSame) {
  client::Client client = Connect();
  client::ScheduleSpec spec;
  spec.cron = "0 6 * * *";
  spec.time_zone = "Europe/Berlin";
  spec.job.queue = queue_;
  spec.job.kind = "k";
  spec.job.payload = client::Payload::Json("{}");
  spec.job.headers = {{"a", "b"}};
  spec.job.ttl = 1h;
  spec.overlap_policy = client::OverlapPolicy::kCancelPrevious;
  spec.catch_up = 0;
  auto schedule = client.CreateSchedule(name_, spec);
  ASSERT_EQ(schedule.status(), absl::OkStatus());
  EXPECT_EQ(schedule->spec.cron, "0 6 * * *");
  EXPECT_EQ(schedule->spec.time_zone, "Europe/Berlin");
  EXPECT_EQ(schedule->spec.job.payload, spec.job.payload);
  EXPECT_EQ(schedule->spec.job.headers, spec.job.headers);
  EXPECT_EQ(schedule->spec.job.ttl, spec.job.ttl);
  EXPECT_EQ(schedule->spec.overlap_policy, client::OverlapPolicy::kCancelPrevious);
  EXPECT_EQ(schedule->spec.catch_up, 0);
  EXPECT_THAT(schedule->upcoming_times, SizeIs(5));
  EXPECT_EQ(schedule->next_time, schedule->upcoming_times[0]);
  EXPECT_EQ(client::ErrorReason(client.CreateSchedule(name_, spec).status()), client::reason::kScheduleExists);

  client::ScheduleChange change;
  change.interval = 2h;
  change.description = "note";
  schedule = client.UpdateSchedule(name_, change, {"overlap_policy"});
  ASSERT_EQ(schedule.status(), absl::OkStatus());
  EXPECT_EQ(schedule->spec.interval, std::optional<client::Duration>(2h));
  EXPECT_EQ(schedule->spec.cron, "");
  EXPECT_EQ(schedule->spec.description, "note");
  EXPECT_EQ(schedule->spec.overlap_policy, client::OverlapPolicy::kAllow);
  EXPECT_TRUE(client.PauseSchedule(name_)->paused);
  EXPECT_FALSE(client.GetSchedule(name_)->next_time.has_value());
  EXPECT_FALSE(client.ResumeSchedule(name_)->paused);
  const auto page = client.ListSchedules(name_);
  ASSERT_EQ(page.status(), absl::OkStatus());
  ASSERT_THAT(page->schedules, SizeIs(1));
  EXPECT_THAT(page->schedules[0].upcoming_times, IsEmpty());
  const auto job = client.TriggerSchedule(name_, "r");
  ASSERT_EQ(job.status(), absl::OkStatus());
  EXPECT_EQ(*client.TriggerSchedule(name_, "r"), *job);
  EXPECT_NE(*client.TriggerSchedule(name_), *job) << "each call has its own request id";
  EXPECT_EQ(client.Get(*job)->headers.at("tenure-schedule"), name_);
  EXPECT_EQ(client.DeleteSchedule(name_), absl::OkStatus());
  EXPECT_EQ(client::ErrorReason(client.DeleteSchedule(name_)), client::reason::kScheduleNotFound);
}

}  // namespace
}  // namespace tenure::testing
