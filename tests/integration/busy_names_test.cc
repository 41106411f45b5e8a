// Names that an application's transaction has taken and not committed: keys and queues. Calls that use them wait for a
// while, each for itself, and hold up nobody else. Layer: tests.
#include <libpq-fe.h>

#include <future>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/base/status.h"
#include "tests/support/engine_fixture.h"

namespace tenure::engine {
namespace {

using testing::In;
using testing::Replica;
using Outcomes = std::vector<store::EnqueueOutcome>;
using Answer = std::future<absl::StatusOr<Outcomes>>;

// An application's session with a transaction that it keeps open.
class OpenTransaction {
 public:
  OpenTransaction(const std::string& url, const std::string& sql) : pg_(PQconnectdb(url.c_str())) {
    Run("begin");
    Run(sql);
  }
  ~OpenTransaction() {
    if (pg_ != nullptr) End("rollback");
  }
  void End(const char* how) {
    Run(how);
    PQfinish(pg_);
    pg_ = nullptr;
  }

 private:
  void Run(const std::string& sql) {
    PGresult* result = PQexec(pg_, sql.c_str());
    EXPECT_NE(PQresultStatus(result), PGRES_FATAL_ERROR) << PQerrorMessage(pg_);
    PQclear(result);
  }

  PGconn* pg_;
};

class BusyNamesTest : public testing::ReplicaTest {
 protected:
  static store::NewJob Job(const std::string& unique = "", const std::string& idempotency = "") {
    store::NewJob job;
    job.kind = "k";
    job.payload = {"{}", "application/json"};
    job.idempotency_key = idempotency;
    if (!unique.empty()) {
      job.unique = store::Unique{unique,
                                 false,
                                 {store::JobState::kScheduled, store::JobState::kBlocked, store::JobState::kReady,
                                  store::JobState::kLeased, store::JobState::kSuspended},
                                 absl::ZeroDuration(),
                                 store::OnConflict::kReturn};
    }
    return job;
  }
  static Answer Begin(Replica& replica, const std::string& queue, std::vector<store::NewJob> jobs, double within = 20) {
    std::vector<EnqueueItem> items;
    for (store::NewJob& job : jobs) items.push_back({queue, std::move(job)});
    auto promise = std::make_shared<std::promise<absl::StatusOr<Outcomes>>>();
    Answer answer = promise->get_future();
    replica.engine->Enqueue(std::move(items), In(within),
                            [promise](absl::StatusOr<Outcomes> outcomes) { promise->set_value(std::move(outcomes)); });
    return answer;
  }
  static bool Within(Answer& answer, int milliseconds) {
    return answer.wait_for(std::chrono::milliseconds(milliseconds)) == std::future_status::ready;
  }
};

TEST_F(BusyNamesTest, AnEnqueueWaitsForAKeyThatSomebodyHoldsForAWhile) {
  auto a = StartReplica("a"), b = StartReplica("b");
  ASSERT_TRUE(a->Enqueue("q", {Job()}).ok());
  OpenTransaction holder(
      database_.direct_url(),
      "select tenure.enqueue('q', 'k', unique_key => 'u'), tenure.enqueue('q', 'k', idempotency_key => 'i')");
  std::vector<Answer> waiting;
  for (int i = 0; i < 20; ++i) {
    for (const auto& replica : {&a, &b}) {
      waiting.push_back(Begin(**replica, "q", {Job("u"), Job("", absl::StrCat("other", i))}));
    }
  }
  waiting.push_back(Begin(*a, "q", {Job("", "i")}));
  EXPECT_FALSE(Within(waiting[0], 400)) << "longer than a batch waits";
  // Others are served meanwhile, also those with keys.
  Answer plain = Begin(*a, "q", {Job()}), unique = Begin(*a, "q", {Job("free")});
  EXPECT_TRUE(Within(plain, 1000));
  EXPECT_TRUE(Within(unique, 1000));
  holder.End("rollback");
  std::set<store::JobId> holders;
  for (Answer& answer : waiting) {
    ASSERT_TRUE(Within(answer, 10'000));
    const auto outcomes = answer.get();
    ASSERT_EQ(outcomes.status(), absl::OkStatus());
    for (const store::EnqueueOutcome& outcome : *outcomes) EXPECT_EQ(outcome.status, absl::OkStatus());
    if (outcomes->size() == 2) holders.insert((*outcomes)[0].id);
  }
  EXPECT_EQ(holders.size(), 1u) << "one job of the key, whoever was first";
}

TEST_F(BusyNamesTest, AKeyThatIsHeldTooLongIsToldToTheCallerInItsTime) {
  auto a = StartReplica("a");
  ASSERT_TRUE(a->Enqueue("q", {Job()}).ok());
  const OpenTransaction holder(database_.direct_url(), "select tenure.enqueue('q', 'k', unique_key => 'u')");
  Answer patient = Begin(*a, "q", {Job("u"), Job("v")});
  Answer hurried = Begin(*a, "q", {Job("u")}, 0.5);
  ASSERT_TRUE(Within(hurried, 2000));
  EXPECT_EQ(DetailsOf((*hurried.get())[0].status).reason, "KEY_BUSY");
  EXPECT_FALSE(Within(patient, 0)) << "its caller waits longer";
  ASSERT_TRUE(Within(patient, 10'000));
  const auto outcomes = patient.get();
  EXPECT_EQ(DetailsOf((*outcomes)[0].status).reason, "KEY_BUSY");
  EXPECT_EQ((*outcomes)[1].status, absl::OkStatus()) << "its neighbour in the call";
}

TEST_F(BusyNamesTest, AFloodOfCallsThatNameAQueueInTheMakingTakesOneSession) {
  auto a = StartReplica("a");
  ASSERT_TRUE(a->Enqueue("known", {Job()}).ok());
  OpenTransaction maker(database_.direct_url(), "select tenure.enqueue('new', 'k')");
  std::vector<Answer> flood;
  for (int i = 0; i < 300; ++i) flood.push_back(Begin(*a, "new", {Job()}));
  // Without sharing, 300 waits of a tenth of a second, on four sessions.
  Answer other = Begin(*a, "known", {Job()}), unknown = Begin(*a, "another", {Job()});
  EXPECT_TRUE(Within(other, 2000));
  EXPECT_TRUE(Within(unknown, 2000));
  for (Answer& answer : flood) {
    ASSERT_TRUE(Within(answer, 2000));
    EXPECT_EQ(DetailsOf((*answer.get())[0].status).reason, "QUEUE_BUSY");
  }
  maker.End("commit");
  EXPECT_EQ((*a->Enqueue("new", {Job()}))[0].status, absl::OkStatus());
}

}  // namespace
}  // namespace tenure::engine
