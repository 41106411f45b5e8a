// Faults that job queues are known for, each as a test on a real PostgreSQL: docs/cases.md lists all of them and names
// the tests, of which these are the ones that belong nowhere else.
#include <filesystem>
#include <future>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "server/background/recovery.h"
#include "server/base/status.h"
#include "server/engine/engine.h"
#include "server/rpc/job_service.h"
#include "server/rpc/json_dispatch.h"
#include "server/rpc/method_table.h"
#include "tests/support/store_fixture.h"

namespace tenure {
namespace {

using engine::ClaimAnswer;
using engine::ClaimCall;
using engine::Engine;
using engine::SettleAnswer;

class CasesTest : public testing::StoreTest {
 protected:
  // A replica of the daemon, less its ports.
  struct Replica {
    std::unique_ptr<store::postgres::PostgresStore> store;
    Metrics metrics;
    std::unique_ptr<Engine> engine;
    ~Replica() { engine->Stop(Clock::Real().Now() + std::chrono::seconds(5)); }
  };

  std::unique_ptr<Replica> StartReplica(int batch_items = 1000) {
    auto replica = std::make_unique<Replica>();
    replica->store = OpenStore(6);
    engine::Options options;
    options.replica_name = "r";
    options.version = "test";
    options.max_batch_items = batch_items;
    replica->engine = engine::MakeEngine(*replica->store, Clock::Real(), replica->metrics, options);
    replica->engine->Start();
    const auto deadline = In(10);
    while (!replica->engine->health().database_ok && Clock::Real().Now() < deadline) std::this_thread::yield();
    EXPECT_TRUE(replica->engine->health().database_ok) << replica->engine->health().database_error;
    return replica;
  }

  static engine::Deadline In(int seconds) { return Clock::Real().Now() + std::chrono::seconds(seconds); }

  template <typename T, typename Fn>
  static std::future<absl::StatusOr<T>> Begin(Fn call) {
    auto promise = std::make_shared<std::promise<absl::StatusOr<T>>>();
    call([promise](absl::StatusOr<T> answer) { promise->set_value(std::move(answer)); });
    return promise->get_future();
  }

  static void Enqueue(Engine& engine, int n, std::string payload = "{}") {
    engine::EnqueueItem item{"q", {}};
    item.job.kind = "k";
    item.job.payload = {std::move(payload), "application/json"};
    const std::vector<engine::EnqueueItem> items(static_cast<size_t>(n), item);
    auto outcomes =
        Begin<std::vector<store::EnqueueOutcome>>([&](auto done) { engine.Enqueue(items, In(20), done); }).get();
    ASSERT_TRUE(outcomes.ok()) << outcomes.status();
    for (const store::EnqueueOutcome& outcome : *outcomes) ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  }

  static std::vector<store::ClaimedJob> Claim(Engine& engine, int jobs, absl::Duration lease = absl::Seconds(30),
                                              int64_t max_bytes = 3 << 20) {
    ClaimCall call;
    call.worker = "w";
    call.queues = {{"q", 1}};
    call.max_jobs = jobs;
    call.wait = absl::Seconds(10);
    call.lease = lease;
    call.max_bytes = max_bytes;
    auto answer = Begin<ClaimAnswer>([&](auto done) { engine.Claim(call, In(20), done); }).get();
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.ok() ? std::move(answer->jobs) : std::vector<store::ClaimedJob>();
  }

  // Claims until there are `n` of them.
  static std::vector<store::ClaimedJob> ClaimAll(Engine& engine, size_t n, absl::Duration lease = absl::Seconds(30)) {
    std::vector<store::ClaimedJob> all;
    while (all.size() < n) {
      std::vector<store::ClaimedJob> some = Claim(engine, static_cast<int>(n - all.size()), lease);
      if (some.empty()) break;
      std::move(some.begin(), some.end(), std::back_inserter(all));
    }
    EXPECT_EQ(all.size(), n);
    return all;
  }

  // A transaction of an application; rolled back when it goes.
  struct Application {
    explicit Application(const std::string& url)
        : connection(store::postgres::Connection::Open(url, "application", absl::Seconds(5)).value()),
          tx(*connection, {absl::Seconds(60)}) {}
    void Run(std::string sql) {
      // The connection keeps a statement's text as its key.
      texts.push_back(std::make_unique<std::string>(std::move(sql)));
      auto rows = tx.Run(*texts.back(), store::postgres::Params());
      ASSERT_TRUE(rows.ok()) << rows.status();
    }
    std::vector<std::unique_ptr<std::string>> texts;
    std::unique_ptr<store::postgres::Connection> connection;
    store::postgres::Transaction tx;
  };
};

TEST_F(CasesTest, BackoffIsCappedAndNeverShrinks) {
  for (const char* parameters : {"1000000, 2", "1000, 100", "3600000000, 1", "86400000000, 1.0001"}) {
    EXPECT_EQ(
        Sql(absl::StrCat("select count(*) from (select w, lag(w) over (partition by id order by f) as before from "
                         "(select f, id, tenure.backoff_us(",
                         parameters,
                         ", 86400000000, f, id) as w from generate_series(1, 2000) f, generate_series(1, 30) id) a) b "
                         "where w < 0 or w > 86400000000 or w < before")),
        "0")
        << parameters;
  }
  EXPECT_EQ(
      Sql("select min(tenure.backoff_us(1000000, 2, 3600000000, f, 7)) from unnest(array[64, 1000, 2147483647]) f"),
      "3600000000");
}

TEST_F(CasesTest, ACallWithTooManyItemsWritesNothing) {
  auto replica = StartReplica();
  rpc::MethodTable methods(Clock::Real(), metrics_);
  rpc::JobService jobs(*replica->engine, {1 << 20});
  jobs.Register(methods);
  const rpc::JsonDispatcher json(methods);
  std::string body = R"({"jobs":[{"queue":"q","kind":"k"})";
  for (int i = 1; i < 100'000; ++i) body += R"(,{"queue":"q","kind":"k"})";
  std::promise<rpc::JsonAnswer> promise;
  auto call = json.Call({"/tenure.v1.JobService/Enqueue", body + "]}", std::nullopt, "test"},
                        [&](rpc::JsonAnswer answer) { promise.set_value(std::move(answer)); });
  const rpc::JsonAnswer answer = promise.get_future().get();
  EXPECT_EQ(answer.http_status, 400) << answer.body;
  EXPECT_NE(answer.body.find("jobs: "), std::string::npos) << answer.body;
  EXPECT_NE(answer.body.find("10000"), std::string::npos) << answer.body;
  EXPECT_EQ(Sql("select count(*) from tenure.job"), "0");
  EXPECT_EQ(Sql("select count(*) from tenure.queue"), "0");
}

TEST_F(CasesTest, ALargeJobDoesNotBlockTheOthers) {
  auto replica = StartReplica();
  Enqueue(*replica->engine, 1, "{}");
  Enqueue(*replica->engine, 1, std::string(1 << 20, 'x'));
  Enqueue(*replica->engine, 2, "{}");
  std::multiset<size_t> sizes;
  int claims = 0;
  while (sizes.size() < 4 && claims < 10) {
    for (const store::ClaimedJob& job : Claim(*replica->engine, 4, absl::Seconds(30), 1000))
      sizes.insert(job.job.payload.data.size());
    ++claims;
  }
  EXPECT_EQ(sizes, (std::multiset<size_t>{2, 2, 2, 1 << 20}));
  EXPECT_LE(claims, 4);
}

TEST_F(CasesTest, ThousandsOfParkedPollsCostNoThreadAndDelayNobody) {
  constexpr int kPolls = 5000;
  auto replica = StartReplica();
  Enqueue(*replica->engine, 2);
  const std::vector<store::ClaimedJob> jobs = ClaimAll(*replica->engine, 2);
  const auto threads = [] {
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    return std::distance(begin(tasks), end(tasks));
  };
  const auto complete = [&](size_t at) {
    const auto began = Clock::Real().Now();
    auto answers = Begin<std::vector<SettleAnswer>>([&](auto done) {
                     replica->engine->Complete({{jobs[at].token, std::nullopt, {}}}, In(10), done);
                   }).get();
    EXPECT_TRUE(answers.ok() && (*answers)[0].status.ok());
    return Clock::Real().Now() - began;
  };
  const auto threads_before = threads();
  const Clock::Duration before = complete(0);
  std::vector<std::future<absl::StatusOr<ClaimAnswer>>> polls;
  for (int i = 0; i < kPolls; ++i) {
    ClaimCall call;
    call.worker = absl::StrCat("w", i / 50);
    call.queues = {{absl::StrCat("idle-", i % 10), 1}};
    call.wait = absl::Seconds(60);
    polls.push_back(Begin<ClaimAnswer>([&](auto done) { replica->engine->Claim(call, In(70), done); }));
  }
  EXPECT_EQ(threads(), threads_before);
  EXPECT_LT(complete(1), before + std::chrono::seconds(1));
  replica->engine->Drain();
  for (auto& poll : polls) {
    auto answer = poll.get();
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_TRUE(answer->jobs.empty());
  }
}

TEST_F(CasesTest, AParkedPollOutlivesTheLossOfAllConnections) {
  auto replica = StartReplica();
  Enqueue(*replica->engine, 1);
  ClaimAll(*replica->engine, 1);
  ClaimCall call;
  call.worker = "w";
  call.queues = {{"q", 1}};
  call.wait = absl::Seconds(10);
  auto polled = Begin<ClaimAnswer>([&](auto done) { replica->engine->Claim(call, In(20), done); });
  // It is counted, and a round of the replica's loop later its first claim has found nothing.
  const auto deadline = In(5);
  while (replica->metrics.polls_parked.Add({{"kind", "claim"}}).Value() < 1 && Clock::Real().Now() < deadline) {
    std::this_thread::yield();
  }
  // What a restart of PostgreSQL does to them.
  Sql("select count(pg_terminate_backend(pid)) from pg_stat_activity "
      "where datname = current_database() and pid <> pg_backend_pid()");
  // As an application that reconnects.
  Sql("select tenure.enqueue('q', 'k', '{}')");
  auto answer = polled.get();
  // Unless that claim was under way: then it says so, and the caller polls again.
  if (absl::IsUnavailable(answer.status())) {
    answer = Begin<ClaimAnswer>([&](auto done) { replica->engine->Claim(call, In(20), done); }).get();
  }
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->jobs.size(), 1u);
}

TEST_F(CasesTest, ASettleOfAJobThatIsGoneIsAPermanentAnswer) {
  auto replica = StartReplica();
  Enqueue(*replica->engine, 1);
  store::LeaseToken token = Claim(*replica->engine, 1)[0].token;
  token.job.seq += 1'000'000;
  auto answers = Begin<std::vector<SettleAnswer>>([&](auto done) {
                   replica->engine->Complete({{token, std::nullopt, {}}}, In(10), done);
                 }).get();
  ASSERT_TRUE(answers.ok()) << answers.status();
  EXPECT_TRUE(absl::IsNotFound((*answers)[0].status)) << (*answers)[0].status;
  EXPECT_EQ(DetailsOf((*answers)[0].status).reason, "JOB_NOT_FOUND");
}

TEST_F(CasesTest, ExtendsNeverMakeARightfulSettleFail) {
  constexpr int kJobs = 10'000, kPart = 100;
  auto replica = StartReplica();
  Enqueue(*replica->engine, kJobs);
  const std::vector<store::ClaimedJob> jobs = ClaimAll(*replica->engine, kJobs);
  ASSERT_EQ(jobs.size(), static_cast<size_t>(kJobs));
  std::vector<std::future<absl::StatusOr<std::vector<engine::ExtendAnswer>>>> extends;
  std::vector<std::future<absl::StatusOr<std::vector<SettleAnswer>>>> completes;
  for (size_t at = 0; at < jobs.size(); at += kPart) {
    std::vector<store::ExtendItem> longer;
    std::vector<engine::CompleteItem> items;
    for (size_t i = at; i < at + kPart; ++i) {
      // Longer than what is left, so that each of them writes.
      longer.push_back({jobs[i].token, absl::Minutes(10), store::Progress{0.5, "half"}});
      items.push_back({jobs[i].token, std::nullopt, {}});
    }
    extends.push_back(
        Begin<std::vector<engine::ExtendAnswer>>([&](auto done) { replica->engine->Extend(longer, In(60), done); }));
    completes.push_back(
        Begin<std::vector<SettleAnswer>>([&](auto done) { replica->engine->Complete(items, In(60), done); }));
  }
  for (auto& complete : completes) {
    auto answers = complete.get();
    ASSERT_TRUE(answers.ok()) << answers.status();
    for (const SettleAnswer& answer : *answers) ASSERT_TRUE(answer.status.ok()) << answer.status;
  }
  for (auto& extend : extends) {
    auto answers = extend.get();
    ASSERT_TRUE(answers.ok()) << answers.status();
    for (const engine::ExtendAnswer& answer : *answers) {
      if (!answer.status.ok()) {
        ASSERT_EQ(DetailsOf(answer.status).reason, "ALREADY_SETTLED") << answer.status;
      }
    }
  }
  EXPECT_EQ(Sql("select count(*) from tenure.history"), absl::StrCat(kJobs));
}

TEST_F(CasesTest, MoreExpiredLeasesThanAPageAreAllRecovered) {
  constexpr size_t kJobs = 350, kPage = 100;
  auto replica = StartReplica(kPage);
  Enqueue(*replica->engine, kJobs);
  ClaimAll(*replica->engine, kJobs, absl::Milliseconds(500));
  // The replica's own leases, from its timers.
  const std::vector<store::ClaimedJob> again = ClaimAll(*replica->engine, kJobs);
  for (const store::ClaimedJob& job : again) EXPECT_EQ(job.job.crashes, 1);
  replica.reset();

  // Those of a replica that is gone, page by page.
  Sql("update tenure.replica set lease_until = now() - interval '1 s'");
  Sql("update tenure.job set lease_until = now() - interval '1 s'");
  Sql("delete from tenure.outage");
  auto other = store_->RegisterReplica("other", "test");
  ASSERT_TRUE(other.ok()) << other.status();
  const store::ShardFence fence = testing::HoldShards(*store_, "reaper", *other);
  auto result = background::RecoverVanished(*store_, fence, kPage);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->recovered, static_cast<int>(kJobs));
  EXPECT_EQ(Sql("select count(*) from tenure.job where state = 3 and crashes = 2"), absl::StrCat(kJobs));
}

TEST_F(CasesTest, ARolledBackClaimIsServedAgain) {
  auto replica = StartReplica();
  Enqueue(*replica->engine, 20);
  std::set<int64_t> ids;
  {
    // What another replica does whose claim has not committed.
    Application other(database_.url());
    other.Run("select id from tenure.job order by id limit 10 for update");
    for (const store::ClaimedJob& job : ClaimAll(*replica->engine, 10)) ids.insert(job.job.id.seq);
  }
  const auto began = Clock::Real().Now();
  for (const store::ClaimedJob& job : ClaimAll(*replica->engine, 10)) ids.insert(job.job.id.seq);
  EXPECT_EQ(ids.size(), 20u);
  EXPECT_LT(Clock::Real().Now() - began, std::chrono::seconds(3));
}

TEST_F(CasesTest, RowsOfTransactionsThatCommitLateAreFound) {
  auto replica = StartReplica();
  Enqueue(*replica->engine, 1);
  std::set<int64_t> ids;
  for (const store::ClaimedJob& job : ClaimAll(*replica->engine, 1)) ids.insert(job.job.id.seq);
  Application first(database_.url()), second(database_.url()), third(database_.url());
  first.Run("select tenure.enqueue('q', 'k', '{}')");
  second.Run("select tenure.enqueue('q', 'k', '{}')");
  third.Run("savepoint a");
  third.Run("select tenure.enqueue('q', 'k', '{}')");
  third.Run("rollback to savepoint a");
  third.Run("savepoint b");
  third.Run("select tenure.enqueue('q', 'k', '{}')");
  third.Run("release savepoint b");
  // The cursor goes on, past the ids that the open transactions have drawn.
  for (int i = 0; i < 5; ++i) {
    Enqueue(*replica->engine, 10);
    for (const store::ClaimedJob& job : ClaimAll(*replica->engine, 10)) ids.insert(job.job.id.seq);
  }
  size_t expected = ids.size();
  for (Application* late : {&third, &first, &second}) {
    ASSERT_TRUE(late->tx.Commit().ok());
    for (const store::ClaimedJob& job : ClaimAll(*replica->engine, 1)) ids.insert(job.job.id.seq);
    EXPECT_EQ(ids.size(), ++expected);
  }
  EXPECT_EQ(Sql("select count(*) from tenure.job where state = 3"), "0");
}

TEST_F(CasesTest, AReaderOfHistoryHoldsUpNoSettle) {
  Sql("select tenure.ensure_day(tenure.today() - 40)");
  auto replica = StartReplica();
  Enqueue(*replica->engine, 2);
  const std::vector<store::ClaimedJob> jobs = ClaimAll(*replica->engine, 2);
  const auto complete = [&](size_t at) {
    auto answers = Begin<std::vector<SettleAnswer>>([&](auto done) {
                     replica->engine->Complete({{jobs[at].token, std::nullopt, {}}}, In(5), done);
                   }).get();
    ASSERT_TRUE(answers.ok()) << answers.status();
    EXPECT_TRUE((*answers)[0].status.ok()) << (*answers)[0].status;
  };
  const store::ShardFence fence = testing::HoldShards(*store_, "retention", replica->engine->replica_id());
  std::future<absl::StatusOr<std::vector<std::string>>> dropping;
  {
    Application reader(database_.url());
    reader.Run("select count(*) from tenure.history");
    // Made while it reads ...
    ASSERT_TRUE(store_->EnsurePartitions(9).ok());
    complete(0);
    // ... and dropped, which waits for it, but keeps nobody else.
    dropping = std::async(std::launch::async, [&] { return store_->DropPartitions(fence, 7, 30); });
    const auto deadline = In(5);
    while (
        Sql("select count(*) from pg_stat_activity where query like '%detach partition%' and pid <> pg_backend_pid() "
            "and state = 'active' and wait_event_type = 'Lock'") == "0" &&
        Clock::Real().Now() < deadline) {
      std::this_thread::yield();
    }
    complete(1);
  }
  auto dropped = dropping.get();
  ASSERT_TRUE(dropped.ok()) << dropped.status();
  EXPECT_EQ(dropped->size(), 3u);
  EXPECT_EQ(Sql("select count(*) from tenure.history"), "2");
}

TEST_F(CasesTest, ADeadlockIsRetriedInside) {
  Sql("create sequence public.tries");
  // nextval is not rolled back: the first two tries fail, each in its way.
  Sql("create function tenure.fail_twice() returns trigger language plpgsql as $$ begin "
      "case nextval('public.tries') when 1 then raise exception 'test' using errcode = '40P01'; "
      "when 2 then raise exception 'test' using errcode = '40001'; else return new; end case; end $$");
  Sql("create trigger fail_twice before insert on tenure.job for each row execute function tenure.fail_twice()");
  const int32_t queue = store_->EnsureQueue("q", true).value().id;
  store::NewJob job;
  job.kind = "k";
  auto enqueued = store_->Enqueue(queue, std::vector<store::NewJob>{job});
  ASSERT_TRUE(enqueued.ok()) << enqueued.status();
  EXPECT_EQ(Sql("select count(*) from tenure.job"), "1");
  EXPECT_EQ(metrics_.db_retries.Add({{"reason", "deadlock"}}).Value(), 1);
  EXPECT_EQ(metrics_.db_retries.Add({{"reason", "serialization"}}).Value(), 1);
}

// Behind a pooler a replica does not know its sessions.
TEST_F(CasesTest, DirectOnlyTheSessionsOfAReplicaThatStoppedLivingAreEnded) {
  auto stopped = OpenStore(1);
  auto replica = stopped->RegisterReplica("stopped", "test");
  ASSERT_TRUE(replica.ok()) << replica.status();
  ASSERT_TRUE(stopped->Heartbeat(*replica, false, absl::Seconds(10)).ok());
  const std::string pid = Sql("select backend_pids[1] from tenure.replica where name = 'stopped'");
  ASSERT_EQ(Sql(absl::StrCat("select count(*) from pg_stat_activity where pid = ", pid)), "1");

  auto other = store_->RegisterReplica("other", "test");
  ASSERT_TRUE(other.ok()) << other.status();
  const store::ShardFence fence = testing::HoldShards(*store_, "reaper", *other);
  EXPECT_EQ(store_->EvictReplicas(fence).value_or(-1), 0);
  Sql("update tenure.replica set lease_until = now() - interval '1 s' where name = 'stopped'");
  EXPECT_EQ(store_->EvictReplicas(fence).value_or(-1), 1);
  const auto deadline = In(5);
  while (Sql(absl::StrCat("select count(*) from pg_stat_activity where pid = ", pid)) != "0" &&
         Clock::Real().Now() < deadline) {
    std::this_thread::yield();
  }
  EXPECT_EQ(Sql(absl::StrCat("select count(*) from pg_stat_activity where pid = ", pid)), "0");
  // When it goes on it finds out, on a new session.
  absl::Status alive = stopped->Heartbeat(*replica, false, absl::Seconds(10));
  if (absl::IsUnavailable(alive)) alive = stopped->Heartbeat(*replica, false, absl::Seconds(10));
  EXPECT_EQ(DetailsOf(alive).reason, "REPLICA_LOST") << alive;
}

}  // namespace
}  // namespace tenure
