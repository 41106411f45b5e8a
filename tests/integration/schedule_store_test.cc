// Schedules on a real PostgreSQL, statement by statement: what fires, what is refused, what is left alone. Layer:
// tests.
#include <libpq-fe.h>

#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/status.h"
#include "server/store/schedule_timing.h"
#include "tests/support/store_fixture.h"

namespace tenure::store {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string ReasonOf(const absl::Status& status) { return DetailsOf(status).reason; }

class ScheduleStoreTest : public testing::StoreTest {
 protected:
  ScheduleStoreTest() : queue_(store_->EnsureQueue("q", true)->id), replica_(*store_->RegisterReplica("r", "test")) {
    fence_ = Lead(absl::Minutes(5));
  }

  Fence Lead(absl::Duration lease) {
    const auto fence = store_->AcquireLeader("scheduler", replica_, lease);
    EXPECT_TRUE(fence.ok() && fence->has_value()) << fence.status();
    return fence.ok() && *fence ? **fence : Fence();
  }

  static ScheduleSettings Hourly(Overlap overlap = Overlap::kAllow) {
    ScheduleSettings settings;
    settings.timing.interval = absl::Hours(1);
    settings.queue = "q";
    settings.job.kind = "k";
    settings.job.payload = {"{}", "application/json"};
    settings.overlap = overlap;
    return settings;
  }
  Schedule Make(const std::string& name, const ScheduleSettings& settings = Hourly()) {
    const auto made = store_->CreateSchedule(name, settings, queue_, false);
    EXPECT_EQ(made.status(), absl::OkStatus());
    return made.value_or(Schedule());
  }
  // As if `ago` had passed since its next slot came.
  void Backdate(const std::string& name, const char* ago) {
    Sql(absl::StrCat("update tenure.schedule set anchor_at = now() - interval '", ago,
                     "', next_at = now() - interval '", ago, "' where name = '", name, "'"));
  }
  // What the scheduler would do now.
  std::vector<Firing> Plan(absl::Duration on_time = absl::Minutes(1)) {
    const auto due = store_->ListDueSchedules(100, {});
    EXPECT_EQ(due.status(), absl::OkStatus());
    std::vector<Firing> firings;
    if (!due.ok()) return firings;
    for (const DueSchedule& schedule : due->schedules) {
      const Timing::Plan plan =
          Timing::Make(schedule.timing)->Due(schedule.next, due->now, on_time, schedule.catch_up, schedule.overlap);
      firings.push_back({schedule.id, schedule.version, schedule.next, plan.run, plan.missed, plan.next,
                         schedule.overlap == Overlap::kCancelPrevious});
    }
    return firings;
  }
  FireResult Fire(const std::vector<Firing>& firings) {
    auto result = store_->FireSchedules(fence_, firings);
    EXPECT_EQ(result.status(), absl::OkStatus());
    return result.value_or(FireResult());
  }
  int Jobs() { return std::stoi(Sql("select count(*) from tenure.job")); }
  int Runs() { return std::stoi(Sql("select count(*) from tenure.schedule_run")); }
  double Count(const char* outcome) { return metrics_.schedule_runs.Add({{"outcome", outcome}}).Value(); }

  const int32_t queue_;
  const int32_t replica_;
  Fence fence_;
};

TEST_F(ScheduleStoreTest, ASlotMakesItsJobItsRunAndTheNextSlotTogether) {
  ScheduleSettings settings = Hourly();
  settings.job.priority = 7;
  settings.job.tenant = "t";
  settings.job.headers = {{"a", "b"}};
  settings.job.payload = {std::string(5000, 'x'), "text/plain"};
  settings.job.max_attempts = 3;
  settings.job.crash_budget = 2;
  settings.job.backoff = Backoff{2'000'000, 3, 60'000'000};
  settings.job.ttl = absl::Hours(2);
  const Schedule made = Make("s", settings);
  ASSERT_TRUE(made.next.has_value());
  EXPECT_GT(*made.next, made.created);
  EXPECT_LE(*made.next, made.created + absl::Hours(1));
  EXPECT_THAT(Plan(), IsEmpty()) << "not due yet";

  Sql("update tenure.schedule set anchor_at = '2026-01-01T00:00:00Z', next_at = date_trunc('hour', now())");
  const std::vector<Firing> plan = Plan(absl::Hours(1));
  ASSERT_THAT(plan, SizeIs(1));
  const FireResult result = Fire(plan);
  EXPECT_EQ(result.jobs, 1);
  EXPECT_THAT(result.busy, IsEmpty());
  ASSERT_THAT(result.ready, SizeIs(1));
  EXPECT_EQ(result.ready[0].priority, 7);
  EXPECT_EQ(Runs(), 1);
  EXPECT_EQ(Sql("select count(*) from tenure.event where type = 1 and ready = 1 and enqueued = 1 and priority = 7"),
            "1");
  const auto schedule = store_->GetSchedule("s");
  ASSERT_EQ(schedule.status(), absl::OkStatus());
  EXPECT_EQ(schedule->fired, 1);
  EXPECT_EQ(schedule->last_slot, plan[0].slots[0]);
  EXPECT_EQ(schedule->next, plan[0].slots[0] + absl::Hours(1));
  ASSERT_TRUE(schedule->last_job.has_value());
  const auto job = store_->Get(*schedule->last_job);
  ASSERT_EQ(job.status(), absl::OkStatus());
  EXPECT_EQ(job->state, JobState::kReady);
  EXPECT_EQ(job->payload.data, settings.job.payload.data) << "kept apart";
  EXPECT_EQ(job->payload.content_type, "text/plain");
  EXPECT_EQ(job->tenant, "t");
  EXPECT_EQ(job->max_attempts, 3);
  EXPECT_EQ(job->crash_budget, 2);
  EXPECT_EQ(job->backoff->initial_us, 2'000'000);
  EXPECT_TRUE(job->expires.has_value());
  EXPECT_EQ(job->headers.at("a"), "b");
  EXPECT_EQ(job->headers.at("tenure-schedule"), "s");
  EXPECT_EQ(job->headers.at("tenure-slot"),
            absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", plan[0].slots[0], absl::UTCTimeZone()));
  EXPECT_EQ(Count("fired"), 1);
}

TEST_F(ScheduleStoreTest, ASlotHasOneJobHoweverOftenItFires) {
  Make("s");
  Backdate("s", "10 s");
  const std::vector<Firing> plan = Plan();
  EXPECT_EQ(Fire(plan).jobs, 1);
  const FireResult again = Fire(plan);
  EXPECT_EQ(again.jobs, 0) << "its next slot is another one";
  EXPECT_THAT(again.busy, ElementsAre(plan[0].id));
  // Even if the schedule stood where it was: the slot has its run.
  Sql("update tenure.schedule set next_at = now() - interval '1 s'");
  std::vector<Firing> reset = Plan();
  reset[0].slots = plan[0].slots;
  EXPECT_EQ(Fire(reset).jobs, 0);
  EXPECT_EQ(Jobs(), 1);
  EXPECT_EQ(Runs(), 1);
}

TEST_F(ScheduleStoreTest, TwoReplicasThatFireAtOnceMakeOneJobASlot) {
  auto other = OpenStore();
  for (int round = 0; round < 20; ++round) {
    const std::string name = absl::StrCat("s", round);
    Make(name);
    Backdate(name, "10 s");
    const std::vector<Firing> plan = Plan();
    auto mine = std::async(std::launch::async, [&] { return store_->FireSchedules(fence_, plan); });
    const auto theirs = other->FireSchedules(fence_, plan);
    const auto first = mine.get();
    ASSERT_TRUE(first.ok() && theirs.ok()) << first.status() << theirs.status();
    EXPECT_EQ(first->jobs + theirs->jobs, 1);
    EXPECT_EQ(Jobs(), round + 1);
  }
}

TEST_F(ScheduleStoreTest, AStaleLeadersWriteIsRefused) {
  Make("s");
  Backdate("s", "10 s");
  // It read, and was stopped before it wrote; meanwhile its lease ran out and another took over.
  const std::vector<Firing> plan = Plan();
  const Fence stale = fence_;
  Sql("update tenure.leader set expires_at = now() - interval '1 s' where worker = 'scheduler'");
  fence_ = Lead(absl::Minutes(5));
  ASSERT_GT(fence_.term, stale.term);
  EXPECT_EQ(ReasonOf(store_->FireSchedules(stale, plan).status()), "TERM_OVER");
  EXPECT_EQ(Jobs(), 0);
  EXPECT_EQ(Runs(), 0);
  EXPECT_EQ(store_->PruneScheduleRuns(stale, absl::ZeroDuration(), 10).value_or(-1), 0);
  EXPECT_EQ(Fire(plan).jobs, 1) << "the new leader's";
  Sql("update tenure.schedule_run set fired_at = now() - interval '1 h'");
  EXPECT_EQ(store_->PruneScheduleRuns(stale, absl::ZeroDuration(), 10).value_or(-1), 0);
  EXPECT_EQ(Runs(), 1);
}

TEST_F(ScheduleStoreTest, WhatWasChangedSinceItWasReadIsLeftAlone) {
  Make("paused");
  Make("changed");
  Make("deleted");
  Make("same");
  for (const char* name : {"paused", "changed", "deleted", "same"}) Backdate(name, "10 s");
  const std::vector<Firing> plan = Plan();
  ASSERT_THAT(plan, SizeIs(4));
  ASSERT_TRUE(store_->SetSchedulePaused("paused", true).ok());
  ScheduleSettings other = Hourly();
  other.job.kind = "other";
  ASSERT_TRUE(store_->UpdateSchedule("changed", other, queue_, {"job"}).ok());
  ASSERT_EQ(store_->DeleteSchedule("deleted"), absl::OkStatus());
  EXPECT_EQ(Fire(plan).jobs, 1);
  EXPECT_EQ(Sql("select headers ->> 'tenure-schedule' from tenure.job"), "same");
  // It is due as it is now.
  EXPECT_EQ(Fire(Plan()).jobs, 1);
  EXPECT_EQ(Sql("select kind from tenure.job where headers ->> 'tenure-schedule' = 'changed'"), "other");
}

TEST_F(ScheduleStoreTest, MissedSlotsAreCaughtUpWithUpToTheCapAndCounted) {
  ScheduleSettings settings = Hourly();
  settings.catch_up = 2;
  Make("s", settings);
  // Slots 3.5, 2.5, 1.5 and 0.5 hours ago.
  Backdate("s", "210 min");
  EXPECT_EQ(Fire(Plan()).jobs, 2);
  const auto schedule = store_->GetSchedule("s");
  EXPECT_EQ(schedule->fired, 2);
  EXPECT_EQ(schedule->skipped_missed, 2);
  EXPECT_EQ(Sql("select count(distinct headers ->> 'tenure-slot') from tenure.job"), "2");
  EXPECT_EQ(Sql("select extract(epoch from max(slot) - min(slot))::int from tenure.schedule_run"), "3600");
  EXPECT_EQ(Sql("select min(slot) > now() - interval '2 h' from tenure.schedule_run"), "t") << "the last ones";
  EXPECT_EQ(Count("missed"), 2);
  EXPECT_EQ(Count("fired"), 2);
}

TEST_F(ScheduleStoreTest, AllowMakesAJobAlthoughTheOneBeforeIsLive) {
  Make("s");
  for (int slot = 1; slot <= 3; ++slot) {
    Backdate("s", "10 s");
    EXPECT_EQ(Fire(Plan()).jobs, 1);
    EXPECT_EQ(Jobs(), slot);
  }
}

TEST_F(ScheduleStoreTest, SkipWaitsForTheEndOfTheJobBefore) {
  Make("s", Hourly(Overlap::kSkip));
  Backdate("s", "10 s");
  EXPECT_EQ(Fire(Plan()).jobs, 1);
  // Live in whatever state: ready, leased, waiting for a retry.
  for (const int state : {3, 4, 1}) {
    Sql(absl::StrCat("update tenure.job set state = ", state, ", place = ", state == 4 ? 3 : state));
    Backdate("s", "10 s");
    const FireResult skipped = Fire(Plan());
    EXPECT_EQ(skipped.jobs, 0);
    EXPECT_THAT(skipped.busy, IsEmpty()) << "it moved on";
    EXPECT_GT(*store_->GetSchedule("s")->next, absl::Now());
  }
  EXPECT_EQ(store_->GetSchedule("s")->skipped_overlap, 3);
  EXPECT_EQ(Count("overlapped"), 3);
  const JobId first = *store_->GetSchedule("s")->last_job;
  const std::vector<JobId> ids{first};
  ASSERT_TRUE(store_->Cancel(queue_, ids, "").ok());
  Backdate("s", "10 s");
  EXPECT_EQ(Fire(Plan()).jobs, 1);
  EXPECT_NE(*store_->GetSchedule("s")->last_job, first);
}

TEST_F(ScheduleStoreTest, CancelPreviousEndsTheJobBefore) {
  Make("s", Hourly(Overlap::kCancelPrevious));
  Backdate("s", "10 s");
  EXPECT_EQ(Fire(Plan()).jobs, 1);
  const JobId first = *store_->GetSchedule("s")->last_job;
  Sql("update tenure.job set state = 4, worker = 'w', token = 1, lease_until = now() + interval '1 h'");
  Backdate("s", "10 s");
  EXPECT_EQ(Fire(Plan()).jobs, 1);
  EXPECT_EQ(Jobs(), 1);
  const auto ended = store_->Get(first);
  ASSERT_EQ(ended.status(), absl::OkStatus());
  EXPECT_EQ(ended->state, JobState::kCancelled);
  EXPECT_THAT(ended->error->message, HasSubstr("the schedule's next slot is due"));
  EXPECT_EQ(Sql("select count(*) from tenure.event where type = 3 and worker = 'w'"), "1") << "its worker is told";
  EXPECT_EQ(Count("cancelled_previous"), 1);
}

TEST_F(ScheduleStoreTest, CancelPreviousWaitsForWhoeverHoldsTheJobBefore) {
  Make("s", Hourly(Overlap::kCancelPrevious));
  Backdate("s", "10 s");
  EXPECT_EQ(Fire(Plan()).jobs, 1);
  Backdate("s", "10 s");
  // An application settles in its own transaction.
  std::unique_ptr<PGconn, decltype(&PQfinish)> application(PQconnectdb(database_.url().c_str()), &PQfinish);
  PQclear(PQexec(application.get(), "begin"));
  PQclear(PQexec(application.get(), "select 1 from tenure.job for update"));
  const std::vector<Firing> plan = Plan();
  const FireResult held = Fire(plan);
  EXPECT_EQ(held.jobs, 0);
  EXPECT_THAT(held.busy, ElementsAre(plan[0].id));
  EXPECT_EQ(Jobs(), 1);
  EXPECT_EQ(Runs(), 1) << "nothing of it is written";
  PQclear(PQexec(application.get(), "commit"));
  EXPECT_EQ(Fire(Plan()).jobs, 1);
  EXPECT_EQ(Jobs(), 1);
  EXPECT_EQ(Runs(), 2);
  EXPECT_EQ(Count("fired"), 2);
}

TEST_F(ScheduleStoreTest, ATriggerMakesAJobApartFromTheSlots) {
  Make("s", Hourly(Overlap::kSkip));
  ASSERT_TRUE(store_->SetSchedulePaused("s", true).ok());
  std::vector<ReadyRange> ready;
  const auto first = store_->TriggerSchedule("s", "", &ready);
  ASSERT_EQ(first.status(), absl::OkStatus());
  EXPECT_THAT(ready, SizeIs(1));
  EXPECT_FALSE(first->repeated);
  const auto second = store_->TriggerSchedule("s", "", &ready);
  ASSERT_EQ(second.status(), absl::OkStatus());
  EXPECT_NE(first->id, second->id);
  EXPECT_EQ(Jobs(), 2);
  const auto schedule = store_->GetSchedule("s");
  EXPECT_EQ(schedule->fired, 0);
  EXPECT_EQ(schedule->last_job, std::nullopt);
  ASSERT_TRUE(store_->SetSchedulePaused("s", false).ok());
  Backdate("s", "10 s");
  EXPECT_EQ(Fire(Plan()).jobs, 1) << "the policy looks at the slots' jobs alone";
  EXPECT_EQ(ReasonOf(store_->TriggerSchedule("none", "", &ready).status()), "SCHEDULE_NOT_FOUND");
}

TEST_F(ScheduleStoreTest, ATriggerWithARequestIdIsMadeOnceHoweverOftenItIsSent) {
  Make("s");
  Make("other");
  std::vector<std::future<absl::StatusOr<TriggeredJob>>> calls;
  auto stores = std::vector<std::unique_ptr<postgres::PostgresStore>>();
  for (int i = 0; i < 4; ++i) stores.push_back(OpenStore());
  for (int i = 0; i < 8; ++i) {
    calls.push_back(std::async(std::launch::async, [&, i] {
      std::vector<ReadyRange> ready;
      return stores[static_cast<size_t>(i) % stores.size()]->TriggerSchedule("s", "r", &ready);
    }));
  }
  int made = 0;
  std::set<std::string> ids;
  for (auto& call : calls) {
    const auto job = call.get();
    ASSERT_EQ(job.status(), absl::OkStatus());
    made += job->repeated ? 0 : 1;
    ids.insert(job->id.ToString());
  }
  EXPECT_EQ(made, 1);
  EXPECT_THAT(ids, SizeIs(1));
  EXPECT_EQ(Jobs(), 1);
  std::vector<ReadyRange> ready;
  EXPECT_FALSE(store_->TriggerSchedule("other", "r", &ready)->repeated) << "the id belongs to the schedule";
}

TEST_F(ScheduleStoreTest, AChangeOfTheTimingBeginsNowAndAnyOtherLeavesTheNextSlot) {
  const Schedule made = Make("s");
  ScheduleSettings change;
  change.description = "note";
  change.catch_up = 5;
  auto changed = store_->UpdateSchedule("s", change, 0, {"description", "catch_up"});
  ASSERT_EQ(changed.status(), absl::OkStatus());
  EXPECT_EQ(changed->next, made.next);
  EXPECT_EQ(changed->settings.description, "note");
  EXPECT_EQ(changed->settings.catch_up, 5);
  EXPECT_EQ(changed->settings.job.kind, "k") << "what is not named stays";

  change.timing.cron = "0 6 * * *";
  change.timing.time_zone = "Asia/Tokyo";
  changed = store_->UpdateSchedule("s", change, 0, {"cron", "time_zone"});
  ASSERT_EQ(changed.status(), absl::OkStatus());
  EXPECT_EQ(changed->settings.timing.interval, absl::ZeroDuration());
  EXPECT_EQ(absl::FormatTime("%H:%M", *changed->next, absl::UTCTimeZone()), "21:00");
  change.timing.time_zone = "UTC";
  changed = store_->UpdateSchedule("s", change, 0, {"time_zone"});
  EXPECT_EQ(absl::FormatTime("%H:%M", *changed->next, absl::UTCTimeZone()), "06:00");
  change.timing = {.interval = absl::Minutes(5)};
  changed = store_->UpdateSchedule("s", change, 0, {"interval"});
  EXPECT_EQ(changed->settings.timing.cron, "");
  EXPECT_EQ(changed->settings.timing.time_zone, "UTC");
  change.timing.time_zone = "Asia/Tokyo";
  const absl::Status zoned = store_->UpdateSchedule("s", change, 0, {"time_zone"}).status();
  EXPECT_THAT(std::string(zoned.message()), HasSubstr("spec.time_zone: goes with cron"));
  EXPECT_LE(*changed->next, changed->updated + absl::Minutes(5));

  change.timing = {};
  EXPECT_EQ(ReasonOf(store_->UpdateSchedule("s", change, 0, {"cron"}).status()), "INVALID_FIELD");
  EXPECT_EQ(ReasonOf(store_->UpdateSchedule("none", change, 0, {"catch_up"}).status()), "SCHEDULE_NOT_FOUND");
}

TEST_F(ScheduleStoreTest, PausedItHasNoSlotsAndResumedItGoesOnFromNow) {
  Make("s");
  Backdate("s", "150 min");
  auto paused = store_->SetSchedulePaused("s", true);
  ASSERT_EQ(paused.status(), absl::OkStatus());
  EXPECT_TRUE(paused->paused);
  EXPECT_EQ(paused->next, std::nullopt);
  EXPECT_THAT(Plan(), IsEmpty());
  auto resumed = store_->SetSchedulePaused("s", false);
  EXPECT_GT(*resumed->next, resumed->updated);
  EXPECT_EQ(resumed->skipped_missed, 0);
  const auto again = store_->SetSchedulePaused("s", false);
  EXPECT_EQ(again->next, resumed->next);
  EXPECT_EQ(again->updated, resumed->updated) << "no change";
  EXPECT_EQ(ReasonOf(store_->SetSchedulePaused("none", true).status()), "SCHEDULE_NOT_FOUND");
}

TEST_F(ScheduleStoreTest, NamesAreUniqueAndListedInOrder) {
  for (const char* name : {"b", "a/2", "a/1", "c"}) Make(name);
  EXPECT_EQ(ReasonOf(store_->CreateSchedule("b", Hourly(), queue_, false).status()), "SCHEDULE_EXISTS");
  const auto names = [&](std::string_view after, std::string_view prefix, int limit) {
    std::vector<std::string> out;
    const auto page = store_->ListSchedules(after, prefix, limit);
    EXPECT_EQ(page.status(), absl::OkStatus());
    for (const Schedule& schedule : page.value_or(std::vector<Schedule>())) out.push_back(schedule.name);
    return out;
  };
  EXPECT_THAT(names("", "", 10), ElementsAre("a/1", "a/2", "b", "c"));
  EXPECT_THAT(names("a/1", "", 2), ElementsAre("a/2", "b"));
  EXPECT_THAT(names("", "a/", 10), ElementsAre("a/1", "a/2"));
  EXPECT_EQ(store_->ListSchedules("", "b", 1)->front().settings.job.payload.data, "") << "payloads are left out";
  EXPECT_EQ(store_->DeleteSchedule("b"), absl::OkStatus());
  EXPECT_EQ(ReasonOf(store_->DeleteSchedule("b")), "SCHEDULE_NOT_FOUND");
  EXPECT_EQ(ReasonOf(store_->GetSchedule("b").status()), "SCHEDULE_NOT_FOUND");
}

TEST_F(ScheduleStoreTest, RunsArePrunedByAgeInBatches) {
  Make("s");
  Sql("insert into tenure.schedule_run select 1, now() - n * interval '1 day', null, 1, 1, n, now() - n * interval '1 "
      "day' "
      "from generate_series(1, 20) n");
  EXPECT_EQ(store_->PruneScheduleRuns(fence_, absl::Hours(24 * 7), 5).value_or(-1), 5);
  EXPECT_EQ(store_->PruneScheduleRuns(fence_, absl::Hours(24 * 7), 100).value_or(-1), 9);
  EXPECT_EQ(Runs(), 6);
}

TEST_F(ScheduleStoreTest, AFiringMakesAPartitionThatIsMissing) {
  ScheduleSettings settings = Hourly();
  settings.job.payload = {std::string(2000, 'x'), "text/plain"};
  Make("s", settings);
  Backdate("s", "10 s");
  Sql("do $$ begin execute format('drop table tenure.payload_%s', to_char(now() at time zone 'utc', 'YYYYMMDD')); end "
      "$$");
  EXPECT_EQ(Fire(Plan()).jobs, 1);
}

TEST_F(ScheduleStoreTest, AThousandSchedulesFireInOneTransaction) {
  Sql(absl::StrCat(
      "insert into tenure.schedule (name, interval_us, anchor_at, next_at, created_at, updated_at, queue_id, "
      "kind, payload) select 's' || n, 3600000000, now() - interval '10 s', now() - interval '10 s', now(), "
      "now(), ",
      queue_, ", 'k', '' from generate_series(1, 1000) n"));
  const auto due = store_->ListDueSchedules(1000, {});
  ASSERT_EQ(due->schedules.size(), 1000u);
  std::vector<Firing> firings;
  for (const DueSchedule& schedule : due->schedules) {
    firings.push_back(
        {schedule.id, schedule.version, schedule.next, {schedule.next}, 0, schedule.next + absl::Hours(1)});
  }
  const absl::Time began = absl::Now();
  EXPECT_EQ(Fire(firings).jobs, 1000);
  RecordProperty("milliseconds", static_cast<int>(absl::ToInt64Milliseconds(absl::Now() - began)));
  EXPECT_LT(absl::Now() - began, absl::Seconds(3));
  EXPECT_EQ(Jobs(), 1000);
}

}  // namespace
}  // namespace tenure::store
