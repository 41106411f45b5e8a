// Each series that the daemon serves is moved by the event that it is about, seen through /metrics of a whole daemon.
#include <cstdlib>
#include <future>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "server/base/status.h"
#include "server/engine/engine.h"
#include "server/store/postgres/connection.h"
#include "tests/support/daemon.h"

namespace tenure::testing {
namespace {

using engine::Deadline;

class MetricsMovedTest : public ::testing::Test {
 protected:
  engine::Engine& engine() { return daemon_->engine(); }
  static Deadline Soon() { return Clock::Real().Now() + std::chrono::seconds(20); }

  template <typename T, typename Fn>
  static T Await(Fn call) {
    auto promise = std::make_shared<std::promise<absl::StatusOr<T>>>();
    auto future = promise->get_future();
    call([promise](absl::StatusOr<T> answer) { promise->set_value(std::move(answer)); });
    absl::StatusOr<T> answer = future.get();
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.ok() ? std::move(*answer) : T();
  }

  std::vector<store::EnqueueOutcome> Enqueue(store::NewJob spec, int n = 1) {
    spec.kind = "k";
    std::vector<engine::EnqueueItem> items(static_cast<size_t>(n), engine::EnqueueItem{"q", spec});
    return Await<std::vector<store::EnqueueOutcome>>([&](auto done) { engine().Enqueue(items, Soon(), done); });
  }

  std::vector<store::ClaimedJob> Claim(int n, absl::Duration lease = absl::Seconds(30), std::string request = "") {
    engine::ClaimCall call;
    call.worker = "w";
    call.queues = {{"q", 1}};
    call.max_jobs = n;
    call.lease = lease;
    call.wait = absl::Seconds(5);
    call.request_id = std::move(request);
    return Await<engine::ClaimAnswer>([&](auto done) { engine().Claim(call, Soon(), done); }).jobs;
  }

  // The value of a series as /metrics shows it; -1 if it is not there.
  double Value(const std::string& series) {
    std::string page;
    EXPECT_EQ(HttpGet(daemon_->http_port(), "/metrics", &page), 200);
    for (absl::string_view line : absl::StrSplit(page, '\n')) {
      if (absl::StartsWith(line, absl::StrCat(series, " ")))
        return std::atof(std::string(line.substr(series.size() + 1)).c_str());
    }
    return -1;
  }

  // Waits until the series is at least `least`: some are written a moment after their event.
  void ExpectAtLeast(const std::string& series, double least) {
    double value = -1;
    for (const Deadline end = Soon(); (value = Value(series)) < least && Clock::Real().Now() < end;) {
    }
    EXPECT_GE(value, least) << series;
  }

  TestDaemon daemon_;
};

TEST_F(MetricsMovedTest, JobsAndLeases) {
  Enqueue({}, 6);
  store::NewJob keyed;
  keyed.idempotency_key = "key";
  Enqueue(keyed);
  Enqueue(keyed);
  keyed.payload.data = "other";
  Enqueue(keyed);
  ExpectAtLeast(R"(tenure_jobs_enqueued_total{outcome="accepted",queue="q"})", 7);
  ExpectAtLeast(R"(tenure_jobs_enqueued_total{outcome="duplicate",queue="q"})", 1);
  ExpectAtLeast(R"(tenure_jobs_enqueued_total{outcome="refused",queue="q"})", 1);
  ExpectAtLeast(R"(tenure_queue_jobs{queue="q",state="ready"})", 7);
  ExpectAtLeast(R"(tenure_queue_oldest_ready_age_seconds{queue="q"})", 0.001);

  std::vector<store::ClaimedJob> jobs;
  while (jobs.size() < 6) {
    for (store::ClaimedJob& job : Claim(6 - static_cast<int>(jobs.size()))) jobs.push_back(std::move(job));
  }
  ExpectAtLeast(R"(tenure_lease_acquisitions_total{outcome="acquired",queue="q"})", 6);
  ExpectAtLeast(R"(tenure_job_start_latency_seconds_count{queue="q"})", 6);
  ExpectAtLeast(R"(tenure_queue_jobs{queue="q",state="leased"})", 6);
  ExpectAtLeast("tenure_leases_tracked", 6);
  ExpectAtLeast(R"(tenure_claims_total{outcome="jobs"})", 1);

  engine::NamedClaimCall named{"other", {jobs[0].job.id}, absl::Seconds(30), ""};
  Await<std::vector<store::NamedClaimOutcome>>([&](auto done) { engine().ClaimNamed(named, Soon(), done); });
  ExpectAtLeast(R"(tenure_lease_acquisitions_total{outcome="held",queue="q"})", 1);

  using Answers = std::vector<engine::SettleAnswer>;
  Await<std::vector<engine::ExtendAnswer>>([&](auto done) {
    engine().Extend({{jobs[0].token, absl::Seconds(60), std::nullopt}}, Soon(), done);
  });
  ExpectAtLeast(R"(tenure_leases_extended_total{queue="q"})", 1);
  Await<Answers>([&](auto done) { engine().Complete({{jobs[0].token, std::nullopt, {}}}, Soon(), done); });
  Await<Answers>([&](auto done) { engine().Fail({{jobs[1].token, {}, false, absl::Hours(1)}}, Soon(), done); });
  Await<Answers>([&](auto done) { engine().Fail({{jobs[2].token, {}, true, std::nullopt}}, Soon(), done); });
  Await<Answers>([&](auto done) { engine().Release({{jobs[3].token, absl::Hours(1)}}, Soon(), done); });
  Await<Answers>([&](auto done) { engine().Snooze({{jobs[4].token, absl::Hours(1)}}, Soon(), done); });
  Await<std::vector<engine::CancelAnswer>>([&](auto done) { engine().Cancel({jobs[5].job.id}, "", Soon(), done); });
  for (const char* outcome : {"completed", "failed", "discarded", "released", "snoozed", "cancelled"}) {
    ExpectAtLeast(absl::StrCat(R"(tenure_jobs_settled_total{outcome=")", outcome, R"(",queue="q"})"), 1);
  }
  ExpectAtLeast(R"(tenure_lease_losses_total{queue="q",reason="cancelled"})", 1);
  ExpectAtLeast(R"(tenure_queue_jobs{queue="q",state="scheduled"})", 3);

  // A token of a lease that is over, by every verb.
  store::LeaseToken stale = jobs[1].token;
  stale.secret ^= 1;
  Await<std::vector<engine::ExtendAnswer>>([&](auto done) {
    engine().Extend({{stale, std::nullopt, std::nullopt}}, Soon(), done);
  });
  Await<Answers>([&](auto done) { engine().Complete({{stale, std::nullopt, {}}}, Soon(), done); });
  Await<Answers>([&](auto done) { engine().Fail({{stale, {}, false, std::nullopt}}, Soon(), done); });
  Await<Answers>([&](auto done) { engine().Release({{stale, absl::ZeroDuration()}}, Soon(), done); });
  Await<Answers>([&](auto done) { engine().Snooze({{stale, absl::Seconds(1)}}, Soon(), done); });
  for (const char* verb : {"extend", "complete", "fail", "release", "snooze"}) {
    ExpectAtLeast(absl::StrCat(R"(tenure_stale_tokens_total{queue="q",verb=")", verb, R"("})"), 1);
  }
}

TEST_F(MetricsMovedTest, LeasesThatRanOutAndJobsThatExpired) {
  Enqueue({});
  ASSERT_EQ(Claim(5, absl::Milliseconds(200)).size(), 1u);
  ExpectAtLeast(R"(tenure_lease_losses_total{queue="q",reason="expired"})", 1);
  store::NewJob brief;
  brief.delay = absl::Hours(1);
  brief.ttl = absl::Milliseconds(5);
  Enqueue(brief);
  ExpectAtLeast(R"(tenure_jobs_settled_total{outcome="expired",queue="q"})", 1);
}

TEST_F(MetricsMovedTest, ClaimsAndLongPolls) {
  Enqueue({});
  const auto first = Claim(1, absl::Seconds(30), "request");
  ASSERT_EQ(Claim(1, absl::Seconds(30), "request").size(), 1u);
  ExpectAtLeast(R"(tenure_claims_total{outcome="replayed"})", 1);
  engine::ClaimCall call;
  call.worker = "w";
  call.queues = {{"q", 1}};
  Await<engine::ClaimAnswer>([&](auto done) { engine().Claim(call, Soon(), done); });
  ExpectAtLeast(R"(tenure_claims_total{outcome="empty"})", 1);

  call.wait = absl::Seconds(60);
  auto claim = engine().Claim(call, Deadline::max(), [](const absl::StatusOr<engine::ClaimAnswer>&) {});
  auto notices = engine().AwaitNotices("w", {}, absl::Seconds(60), Deadline::max(), [](const auto&) {});
  auto get = engine().Get(first[0].job.id, absl::Seconds(60), Deadline::max(), [](const auto&) {});
  for (const char* kind : {"claim", "notices", "get"}) {
    ExpectAtLeast(absl::StrCat(R"(tenure_polls_parked{kind=")", kind, R"("})"), 1);
  }
  claim->Cancel();
  notices->Cancel();
  get->Cancel();
  ExpectAtLeast(R"(tenure_claims_total{outcome="cancelled"})", 1);

  // More polls than one worker may have.
  std::vector<std::shared_ptr<engine::PollHandle>> polls;
  for (int i = 0; i <= engine().options().max_polls_per_worker; ++i) {
    polls.push_back(engine().Claim(call, Deadline::max(), [](const auto&) {}));
  }
  ExpectAtLeast(R"(tenure_shed_total{what="polls"})", 1);
  for (auto& poll : polls) poll->Cancel();
}

TEST_F(MetricsMovedTest, RpcsQueuesAndTheDatabase) {
  ASSERT_TRUE(engine().health().database_ok);
  Enqueue({});
  Await<engine::QueueInfo>([&](auto done) { engine().SetPaused("q", true, done); });
  ExpectAtLeast(R"(tenure_queue_paused{queue="q"})", 1);
  ExpectAtLeast(R"(tenure_http_requests_total{code="200",route="metrics"})", 1);
  ExpectAtLeast("tenure_http_connections", 1);
  ExpectAtLeast(R"(tenure_db_connections{state="idle"})", 1);
  ExpectAtLeast(R"(tenure_db_statement_duration_seconds_count{statement="enqueue"})", 1);
  ExpectAtLeast(R"(tenure_batch_items_count{verb="enqueue"})", 1);
  ExpectAtLeast("tenure_event_lag_seconds", 0);
  ExpectAtLeast(R"(tenure_background_leader{worker="promoter"})", 1);
  ExpectAtLeast(R"(tenure_background_runs_total{outcome="ok",worker="stats"})", 1);
  ExpectAtLeast(R"(tenure_background_last_success_timestamp_seconds{worker="stats"})", 1);
  ExpectAtLeast("tenure_db_oldest_transaction_seconds", 0);

  // A key that another transaction holds makes a keyed enqueue split; a partition that is missing is made.
  auto other = store::postgres::Connection::Open(daemon_.database_url(), "other", absl::Seconds(5)).value();
  {
    store::postgres::Transaction tx(*other, {absl::Seconds(30)});
    ASSERT_TRUE(
        tx.Run("select tenure.enqueue('q', 'k', '{}', idempotency_key => 'held')", store::postgres::Params()).ok());
    store::NewJob keyed;
    keyed.idempotency_key = "held";
    Enqueue(keyed);
    ExpectAtLeast(R"(tenure_db_retries_total{reason="lock_timeout"})", 1);
    ExpectAtLeast(R"(tenure_db_errors_total{class="55"})", 1);
  }
  ASSERT_TRUE(
      other
          ->Script(
              "do $$ declare t text; begin for t in select c.relname from pg_inherits i join pg_class c on c.oid = "
              "i.inhrelid join pg_class p on p.oid = i.inhparent where p.relname = 'payload' loop execute "
              "'drop table tenure.' || t; end loop; end $$",
              absl::Seconds(10))
          .ok());
  store::NewJob large;
  large.payload.data = std::string(5000, 'x');
  Enqueue(large);
  ExpectAtLeast(R"(tenure_db_retries_total{reason="partition"})", 1);
}

TEST_F(MetricsMovedTest, NoSeriesHasUndeclaredLabels) {
  Enqueue({});
  EXPECT_TRUE(daemon_->metrics().WronglyLabelled().empty());
}

}  // namespace
}  // namespace tenure::testing
