// The gauges that are set at each scrape: queues as the engine knows them, and what the database says of itself.
#include "server/http/engine_metrics.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/http/queue_metrics.h"
#include "tests/support/manual_clock.h"

namespace tenure::http {
namespace {

// --- Queues ----------------------------------------------------------------------------------------------------------

engine::QueueInfo Queue(std::string name, int64_t ready, std::optional<absl::Duration> oldest = {},
                        bool paused = false) {
  engine::QueueInfo info;
  info.queue.name = std::move(name);
  info.queue.paused = paused;
  info.counts.ready = ready;
  info.counts.scheduled = 10 * ready;
  info.counts.leased = 1;
  info.oldest_ready = oldest;
  return info;
}

size_t SeriesOf(Metrics& metrics, const std::string& name) {
  for (const auto& family : metrics.registry().Collect()) {
    if (family.name == name) return family.metric.size();
  }
  return 0;
}

TEST(QueueMetrics, EqualWhatTheEngineKnows) {
  Metrics metrics;
  QueueMetrics queues(metrics);
  queues.Update({Queue("a", 5, absl::Milliseconds(1500)), Queue("b", 0, {}, true)});
  auto jobs = [&](const char* queue, const char* state) {
    return metrics.queue_jobs.Add({{"queue", queue}, {"state", state}}).Value();
  };
  EXPECT_EQ(jobs("a", "ready"), 5);
  EXPECT_EQ(jobs("a", "scheduled"), 50);
  EXPECT_EQ(jobs("a", "leased"), 1);
  EXPECT_EQ(jobs("a", "blocked"), 0);
  EXPECT_EQ(jobs("a", "suspended"), 0);
  EXPECT_EQ(jobs("b", "ready"), 0);
  EXPECT_EQ(metrics.queue_oldest_ready_age.Add({{"queue", "a"}}).Value(), 1.5);
  EXPECT_EQ(metrics.queue_oldest_ready_age.Add({{"queue", "b"}}).Value(), 0);
  EXPECT_EQ(metrics.queue_paused.Add({{"queue", "a"}}).Value(), 0);
  EXPECT_EQ(metrics.queue_paused.Add({{"queue", "b"}}).Value(), 1);
  queues.Update({Queue("a", 2), Queue("b", 1)});
  EXPECT_EQ(jobs("a", "ready"), 2);
  EXPECT_EQ(metrics.queue_oldest_ready_age.Add({{"queue", "a"}}).Value(), 0);
  EXPECT_EQ(metrics.queue_paused.Add({{"queue", "b"}}).Value(), 0);
}

TEST(QueueMetrics, ForgetQueuesThatHaveGone) {
  Metrics metrics;
  QueueMetrics queues(metrics);
  queues.Update({Queue("a", 5), Queue("b", 6)});
  EXPECT_EQ(SeriesOf(metrics, "tenure_queue_jobs"), 10u);
  queues.Update({Queue("b", 6)});
  EXPECT_EQ(SeriesOf(metrics, "tenure_queue_jobs"), 5u);
  EXPECT_EQ(SeriesOf(metrics, "tenure_queue_oldest_ready_age_seconds"), 1u);
  EXPECT_EQ(SeriesOf(metrics, "tenure_queue_paused"), 1u);
  queues.Update({});
  EXPECT_EQ(SeriesOf(metrics, "tenure_queue_jobs"), 0u);
  queues.Update({Queue("a", 7)});
  EXPECT_EQ(metrics.queue_jobs.Add({{"queue", "a"}, {"state", "ready"}}).Value(), 7);
}

TEST(QueueMetrics, CollapseBeyondTheBound) {
  Metrics metrics;  // The bound of the product: 1,000.
  QueueMetrics queues(metrics);
  std::vector<engine::QueueInfo> all;
  for (int i = 0; i < 1010; ++i) all.push_back(Queue(absl::StrCat("q", i), 2, absl::Seconds(i), i == 1009));
  queues.Update(all);
  EXPECT_EQ(SeriesOf(metrics, "tenure_queue_paused"), 1001u);
  EXPECT_EQ(metrics.queue_jobs.Add({{"queue", "_other"}, {"state", "ready"}}).Value(), 20);
  EXPECT_EQ(metrics.queue_oldest_ready_age.Add({{"queue", "_other"}}).Value(), 1009);
  EXPECT_EQ(metrics.queue_paused.Add({{"queue", "_other"}}).Value(), 1);
  EXPECT_EQ(metrics.queue_jobs.Add({{"queue", "q999"}, {"state", "ready"}}).Value(), 2);
}

// --- What is asked of the engine
// -----------------------------------------------------------------------------------------

// Answers the four questions that a scrape asks; no test may ask it anything else.
class ScrapedEngine : public engine::Engine {
 public:
  std::vector<engine::QueueInfo> queues;
  engine::Health state;
  std::vector<engine::Callback<store::DatabaseInfo>> inspections;
  std::vector<engine::Callback<std::vector<store::BackgroundRow>>> listings;

  std::vector<engine::QueueInfo> Snapshot() const override { return queues; }
  engine::Health health() const override { return state; }
  void Inspect(engine::Callback<store::DatabaseInfo> done) override { inspections.push_back(std::move(done)); }
  void ListBackground(engine::Callback<std::vector<store::BackgroundRow>> done) override {
    listings.push_back(std::move(done));
  }

#define TENURE_NOT_ASKED(signature) \
  signature override { std::abort(); }
  TENURE_NOT_ASKED(void Start())
  TENURE_NOT_ASKED(void Drain())
  TENURE_NOT_ASKED(void Stop(engine::Deadline))
  TENURE_NOT_ASKED(void Enqueue(std::vector<engine::EnqueueItem>, engine::Deadline,
                                engine::Callback<std::vector<store::EnqueueOutcome>>))
  TENURE_NOT_ASKED(std::shared_ptr<engine::PollHandle> Get(const store::JobId&, absl::Duration, engine::Deadline,
                                                           engine::Callback<store::Job>))
  TENURE_NOT_ASKED(void GetRecord(const store::JobId&, engine::Callback<store::Job>))
  TENURE_NOT_ASKED(void List(std::string, store::ListFilter, engine::Callback<store::ListPage>))
  TENURE_NOT_ASKED(void Cancel(std::vector<store::JobId>, std::string, engine::Deadline,
                               engine::Callback<std::vector<engine::CancelAnswer>>))
  TENURE_NOT_ASKED(void Retry(std::vector<store::JobId>, std::string,
                              engine::Callback<std::vector<store::RetryOutcome>>))
  TENURE_NOT_ASKED(std::shared_ptr<engine::PollHandle> Claim(engine::ClaimCall, engine::Deadline,
                                                             engine::Callback<engine::ClaimAnswer>))
  TENURE_NOT_ASKED(void ClaimNamed(engine::NamedClaimCall, engine::Deadline,
                                   engine::Callback<std::vector<store::NamedClaimOutcome>>))
  TENURE_NOT_ASKED(void Extend(std::vector<store::ExtendItem>, engine::Deadline,
                               engine::Callback<std::vector<engine::ExtendAnswer>>))
  TENURE_NOT_ASKED(void Complete(std::vector<engine::CompleteItem>, engine::Deadline,
                                 engine::Callback<std::vector<engine::SettleAnswer>>))
  TENURE_NOT_ASKED(void Fail(std::vector<store::FailItem>, engine::Deadline,
                             engine::Callback<std::vector<engine::SettleAnswer>>))
  TENURE_NOT_ASKED(void Release(std::vector<store::GiveBackItem>, engine::Deadline,
                                engine::Callback<std::vector<engine::SettleAnswer>>))
  TENURE_NOT_ASKED(void Snooze(std::vector<store::GiveBackItem>, engine::Deadline,
                               engine::Callback<std::vector<engine::SettleAnswer>>))
  TENURE_NOT_ASKED(std::shared_ptr<engine::PollHandle> AwaitNotices(std::string, std::vector<int64_t>, absl::Duration,
                                                                    engine::Deadline,
                                                                    engine::Callback<engine::NoticesAnswer>))
  TENURE_NOT_ASKED(void Undeliverable(engine::ClaimAnswer))
  TENURE_NOT_ASKED(void CreateMove(store::MoveSpec, std::string, engine::Callback<store::Move>))
  TENURE_NOT_ASKED(void GetMove(int64_t, engine::Callback<store::Move>))
  TENURE_NOT_ASKED(void ListMoves(int64_t, int, engine::Callback<std::vector<store::Move>>))
  TENURE_NOT_ASKED(void SetMoveState(int64_t, store::MoveState, engine::Callback<store::Move>))
  TENURE_NOT_ASKED(void CreateSchedule(std::string, store::ScheduleSettings, bool, engine::Callback<store::Schedule>))
  TENURE_NOT_ASKED(void UpdateSchedule(std::string, store::ScheduleSettings, std::set<std::string>,
                                       engine::Callback<store::Schedule>))
  TENURE_NOT_ASKED(void GetSchedule(std::string, engine::Callback<store::Schedule>))
  TENURE_NOT_ASKED(void ListSchedules(std::string, std::string, int, engine::Callback<std::vector<store::Schedule>>))
  TENURE_NOT_ASKED(void DeleteSchedule(std::string, engine::Callback<bool>))
  TENURE_NOT_ASKED(void SetSchedulePaused(std::string, bool, engine::Callback<store::Schedule>))
  TENURE_NOT_ASKED(void TriggerSchedule(std::string, std::string, engine::Callback<store::TriggeredJob>))
  TENURE_NOT_ASKED(void CreateTarget(std::string, store::TargetSettings, bool, engine::Callback<store::Target>))
  TENURE_NOT_ASKED(void UpdateTarget(std::string, store::TargetSettings, std::set<std::string>, TargetCheck,
                                     engine::Callback<store::Target>))
  TENURE_NOT_ASKED(void GetTarget(std::string, engine::Callback<store::Target>))
  TENURE_NOT_ASKED(void ListTargets(std::string, std::string, int, engine::Callback<std::vector<store::Target>>))
  TENURE_NOT_ASKED(void DeleteTarget(std::string, engine::Callback<bool>))
  TENURE_NOT_ASKED(void SetTargetPaused(std::string, bool, engine::Callback<store::Target>))
  TENURE_NOT_ASKED(void ListDeadDeliveries(std::string, int64_t, int, engine::Callback<std::vector<store::Delivery>>))
  TENURE_NOT_ASKED(void RedriveDeliveries(std::string, std::vector<int64_t>, engine::Callback<store::Redriven>))
  TENURE_NOT_ASKED(void CreateQueue(std::string, store::QueueSettings, bool, engine::Callback<engine::QueueInfo>))
  TENURE_NOT_ASKED(void UpdateQueue(std::string, store::QueueSettings, std::set<std::string>,
                                    engine::Callback<engine::QueueInfo>))
  TENURE_NOT_ASKED(void SetPaused(std::string, bool, engine::Callback<engine::QueueInfo>))
  TENURE_NOT_ASKED(void GetQueue(std::string, engine::Callback<engine::QueueInfo>))
  TENURE_NOT_ASKED(void ListQueues(std::string, std::string, int, engine::Callback<std::vector<engine::QueueInfo>>))
  TENURE_NOT_ASKED(void ListWorkers(std::string, int, engine::Callback<std::vector<store::WorkerRow>>))
  TENURE_NOT_ASKED(void ListReplicas(engine::Callback<std::vector<store::ReplicaRow>>))
  TENURE_NOT_ASKED(std::string QueueName(int32_t) const)
  TENURE_NOT_ASKED(int32_t replica_id() const)
  TENURE_NOT_ASKED(const engine::Options& options() const)
  TENURE_NOT_ASKED(void NoteReady(std::vector<store::ReadyRange>))
  TENURE_NOT_ASKED(void NoteGates(const store::GatesByQueue&))
  TENURE_NOT_ASKED(void Explain(const store::JobId&, engine::Callback<store::Explanation>))
  TENURE_NOT_ASKED(void SetLimit(std::string, store::LimitScope, std::string, store::LimitSettings,
                                 engine::Callback<store::Limit>))
  TENURE_NOT_ASKED(void GetLimit(std::string, store::LimitScope, std::string, engine::Callback<store::Limit>))
  TENURE_NOT_ASKED(void ListLimits(std::string, store::LimitScope, std::string, int,
                                   engine::Callback<std::vector<store::Limit>>))
  TENURE_NOT_ASKED(void DeleteLimit(std::string, store::LimitScope, std::string, engine::Callback<bool>))
  TENURE_NOT_ASKED(void OnScheduled(std::function<void(absl::Duration)>))
#undef TENURE_NOT_ASKED
};

TEST(EngineMetrics, AskTheDatabaseAtMostOncePerInterval) {
  Metrics metrics;
  testing::ManualClock clock;
  ScrapedEngine engine;
  engine.queues = {Queue("a", 4)};
  engine.state.event_lag = absl::Milliseconds(250);
  EngineMetrics scrape(engine, clock, metrics);
  scrape.Refresh();
  scrape.Refresh();
  EXPECT_EQ(metrics.queue_jobs.Add({{"queue", "a"}, {"state", "ready"}}).Value(), 4);
  EXPECT_EQ(metrics.event_lag.Add({}).Value(), 0.25);
  ASSERT_EQ(engine.inspections.size(), 1u);
  ASSERT_EQ(engine.listings.size(), 1u);
  EXPECT_EQ(SeriesOf(metrics, "tenure_db_dead_tuples"), 0u);  // Absent until it is known.

  store::DatabaseInfo info;
  info.holders = {{.kind = "transaction", .age = absl::Seconds(90)}};
  info.tables = {{"job", 12, 34}, {"worker", 5, 6}};
  info.indexes = {{"job_ready", "job", 1000, 250}};
  info.clock_difference = absl::Milliseconds(-500);
  engine.inspections[0](info);
  store::BackgroundRow reaper;
  reaper.name = "reaper";
  reaper.last_success = absl::FromUnixSeconds(1'700'000'000);
  store::BackgroundRow fresh;
  fresh.name = "fresh";  // Has not succeeded yet.
  engine.listings[0](std::vector<store::BackgroundRow>{reaper, fresh});
  EXPECT_EQ(metrics.db_oldest_transaction.Add({}).Value(), 90);
  EXPECT_EQ(metrics.db_dead_tuples.Add({}).Value(), 12);
  EXPECT_EQ(metrics.db_live_tuples.Add({}).Value(), 34);
  EXPECT_EQ(metrics.db_table_dead_tuples.Add({{"table", "worker"}}).Value(), 5);
  EXPECT_EQ(metrics.db_table_live_tuples.Add({{"table", "worker"}}).Value(), 6);
  EXPECT_EQ(metrics.db_index_bytes.Add({{"index", "job_ready"}}).Value(), 1000);
  EXPECT_EQ(metrics.db_index_surplus.Add({{"index", "job_ready"}}).Value(), 0.75);
  EXPECT_EQ(metrics.db_clock_difference.Add({}).Value(), -0.5);
  EXPECT_EQ(metrics.background_last_success.Add({{"worker", "reaper"}}).Value(), 1'700'000'000);
  EXPECT_EQ(SeriesOf(metrics, "tenure_background_last_success_timestamp_seconds"), 1u);

  clock.Advance(absl::Seconds(14));
  scrape.Refresh();
  EXPECT_EQ(engine.inspections.size(), 1u);
  clock.Advance(absl::Seconds(1));
  scrape.Refresh();
  EXPECT_EQ(engine.inspections.size(), 2u);
}

TEST(EngineMetrics, ForgetWhatTheDatabaseSaidWhenItDoesNotAnswer) {
  Metrics metrics;
  testing::ManualClock clock;
  ScrapedEngine engine;
  auto scrape = std::make_unique<EngineMetrics>(engine, clock, metrics);
  scrape->Refresh();
  store::DatabaseInfo known;
  known.indexes = {{"job_ready", "job", 1000, 250}};
  engine.inspections[0](known);
  store::BackgroundRow reaper;
  reaper.name = "reaper";
  reaper.last_success = absl::FromUnixSeconds(1);
  engine.listings[0](std::vector<store::BackgroundRow>{reaper});
  EXPECT_EQ(SeriesOf(metrics, "tenure_db_oldest_transaction_seconds"), 1u);
  clock.Advance(absl::Seconds(15));
  scrape->Refresh();
  scrape.reset();  // Answers may come after its end.
  engine.inspections[1](absl::UnavailableError("away"));
  engine.listings[1](absl::UnavailableError("away"));
  EXPECT_EQ(SeriesOf(metrics, "tenure_db_oldest_transaction_seconds"), 0u);
  EXPECT_EQ(SeriesOf(metrics, "tenure_db_live_tuples"), 0u);
  EXPECT_EQ(SeriesOf(metrics, "tenure_db_index_bytes"), 0u);
  EXPECT_EQ(SeriesOf(metrics, "tenure_background_last_success_timestamp_seconds"), 0u);
}

}  // namespace
}  // namespace tenure::http
