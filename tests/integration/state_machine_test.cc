// One table over every state and every action: what the action answers, what becomes of the job, and that an action
// that is refused writes nothing. The states are reached as in life (suspended, which nothing makes yet, and blocked
// after having been leased, by SQL), so that each job has had leases: `current` is the token of the last one, `stale`
// that of the one before.
#include <libpq-fe.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/store/fair_choice.h"
#include "tests/support/engine_fixture.h"

namespace tenure::store {
namespace {

using testing::In;
using testing::Replica;

constexpr const char* kStates[] = {"scheduled", "blocked",   "ready",     "leased", "suspended",
                                   "completed", "discarded", "cancelled", "expired"};

struct Subject {
  JobId id;
  LeaseToken current;
  LeaseToken stale;
};

class StateMachineTest : public testing::ReplicaTest {
 protected:
  StateMachineTest() {
    replica_ = StartReplica("r");
    queue_ = store_->EnsureQueue("q", true)->id;
    granter_ = *store_->RegisterReplica("granter", "test");
    promoter_ = **store_->AcquireLeader("promoter", granter_, absl::Hours(1));
    lifecycle_ = **store_->AcquireLeader("lifecycle", granter_, absl::Hours(1));
  }

  ClaimBatch Batch() const {
    ClaimBatch batch;
    batch.queue = queue_;
    batch.replica = granter_;
    batch.ranges = {{0, kLowestKey, kHighestKey}};
    batch.workers = {"w"};
    batch.slots = {ClaimSlot{0, -1, absl::Seconds(30)}};
    return batch;
  }

  LeaseToken Claim() {
    auto claimed = store_->Claim(Batch());
    EXPECT_TRUE(claimed.ok() && claimed->jobs.size() == 1) << claimed.status();
    return claimed.ok() && claimed->jobs.size() == 1 ? claimed->jobs[0].token : LeaseToken();
  }

  void GiveBack(const LeaseToken& token, Verb verb, absl::Duration delay) {
    const std::vector<GiveBackItem> items{{token, delay}};
    EXPECT_EQ((*store_->GiveBack(queue_, verb, items)).items[0].state, TokenState::kWon);
  }
  void Fail(const LeaseToken& token, bool final) {
    const std::vector<FailItem> items{{token, {"boom"}, final, absl::Hours(1)}};
    EXPECT_EQ((*store_->Fail(queue_, items)).items[0].state, TokenState::kWon);
  }

  Subject Make(const std::string& state) {
    Sql("truncate tenure.job, tenure.history, tenure.dead_letter");
    Subject subject;
    const std::vector<NewJob> specs{NewJob{.kind = "k", .payload = {"{}", "application/json"}}};
    subject.id = store_->Enqueue(queue_, specs)->jobs[0].id;
    subject.stale = Claim();
    GiveBack(subject.stale, Verb::kRelease, absl::ZeroDuration());
    subject.current = Claim();
    const std::vector<JobId> ids{subject.id};
    const std::string of_job = absl::StrCat(" where id = ", subject.id.seq);
    if (state == "scheduled") {
      Fail(subject.current, false);
    } else if (state == "discarded") {
      Fail(subject.current, true);
    } else if (state == "completed") {
      const std::vector<CompleteItem> items{{subject.current, Payload{"done", "text/plain"}, {}}};
      EXPECT_EQ((*store_->Complete(queue_, items)).items[0].state, TokenState::kWon);
    } else if (state == "cancelled") {
      EXPECT_TRUE(store_->Cancel(queue_, ids, "stop").ok());
    } else if (state != "leased") {
      GiveBack(subject.current, Verb::kRelease, absl::ZeroDuration());
      if (state == "blocked")
        Sql("update tenure.job set state = 2, place = 2, gate = 2, concurrency_keys = '{key}'" + of_job);
      if (state == "suspended") Sql("update tenure.job set state = 5, place = 5" + of_job);
      if (state == "expired") {
        Sql("update tenure.job set started_at = null, expires_at = now() - interval '1 s'" + of_job);
        EXPECT_EQ(*store_->ExpireJobs(lifecycle_, 10), 1);
      }
    }
    EXPECT_EQ(StateOf(subject.id), state);
    return subject;
  }

  std::string StateOf(const JobId& id) {
    auto job = store_->Get(id);
    return job.ok() ? kStates[static_cast<int>(job->state) - 1] : job.status().ToString();
  }
  // Everything that an action could have written.
  std::string Everything() {
    return Sql(
        "select string_agg(t, E'\\n' order by t) from (select j::text as t from tenure.job j union all select h::text "
        "from tenure.history h "
        "union all select d::text from tenure.dead_letter d union all select e::text from tenure.event e) t");
  }

  // The function's reason, or OK.
  std::string CompleteBySql(const LeaseToken& token) {
    PGconn* pg = PQconnectdb(database_.url().c_str());
    PGresult* result = PQexec(pg, absl::StrCat("select tenure.complete('", token.ToString(), "')").c_str());
    std::string reason = "OK";
    if (PQresultStatus(result) != PGRES_TUPLES_OK) {
      EXPECT_STREQ(PQresultErrorField(result, PG_DIAG_SQLSTATE), "TN001") << PQerrorMessage(pg);
      reason = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
      reason = reason.substr(0, reason.find(':'));
    }
    PQclear(result);
    PQfinish(pg);
    return reason;
  }

  static std::string Reason(const absl::Status& status) {
    if (status.ok()) return "OK";
    const std::string reason = DetailsOf(status).reason;
    return reason.empty() ? status.ToString() : reason;
  }
  template <typename Answers>
  static std::string ReasonOf(const Answers& answers) {
    return answers.ok() ? Reason((*answers)[0].status) : Reason(answers.status());
  }

  std::unique_ptr<Replica> replica_;
  int32_t queue_ = 0;
  int32_t granter_ = 0;
  Fence promoter_, lifecycle_;
};

struct Action {
  std::string name;
  // What holds before it (SQL on the job's live row, if it has one).
  std::string given;
  std::function<std::string(const Subject&)> run;
  // By state, in the order of kStates: a refusal's reason; "OK" or "-" (nothing to do) with nothing written; or "->
  // state".
  std::vector<std::string> expected;
};

TEST_F(StateMachineTest, EveryActionInEveryState) {
  const std::string kSettled = "ALREADY_SETTLED", kLost = "LEASE_LOST", kCancelled = "JOB_CANCELLED";
  // The row remembers the lease that ended last: while the job is leased that is the stale one, which was released.
  auto stale = [&](const std::string& of_leased) {
    return std::vector<std::string>{kLost, kLost, kLost, of_leased, kLost, kLost, kLost, kCancelled, kLost};
  };
  auto complete = [this](const LeaseToken& token) {
    return ReasonOf(replica_->Complete({{token, Payload{"other", "text/plain"}, {}}}));
  };
  auto fail = [this](const LeaseToken& token, bool final) {
    return ReasonOf(replica_->Fail({{token, {"again"}, final, absl::Hours(2)}}));
  };
  auto extend = [this](const LeaseToken& token) {
    return ReasonOf(replica_->Extend({{token, absl::Hours(1), std::nullopt}}));
  };
  auto release = [this](const LeaseToken& token) {
    return ReasonOf(replica_->Release({{token, absl::ZeroDuration()}}));
  };
  auto snooze = [this](const LeaseToken& token) { return ReasonOf(replica_->Snooze({{token, absl::Hours(2)}})); };
  auto reap = [this](const LeaseToken& token) -> std::string {
    const std::vector<LeaseRef> refs{{queue_, token.job.seq, token.number}};
    std::vector<ReadyRange> ready;
    auto reaped = store_->Reap(queue_, refs, &ready);
    if (!reaped.ok()) return reaped.status().ToString();
    return (*reaped)[0].gone || (*reaped)[0].remaining ? "-" : "OK";
  };
  const std::vector<std::string> names{"kkey", "q"};
  // A second job with the unique key that the job holds.
  const std::string holds_key = "unique_name = 'q:u'";
  auto second = [this](const Subject& s, OnConflict policy) -> std::string {
    Sql(absl::StrCat("insert into tenure.unique_key (queue_id, name, job_id, job_day) values (", queue_, ", 'q:u', ",
                     s.id.seq, ", ", s.id.day, ") on conflict (queue_id, name) do update set job_id = ", s.id.seq));
    NewJob job{.kind = "k", .payload = {"second", "text/plain"}, .delay = absl::Hours(1)};
    const bool keeps = policy == OnConflict::kReturn;
    job.unique = Unique{"u", false, {JobState::kScheduled, JobState::kBlocked, JobState::kReady}, {}, policy};
    if (keeps) job.unique->states.insert(job.unique->states.end(), {JobState::kLeased, JobState::kSuspended});
    auto outcomes = replica_->Enqueue("q", {job});
    if (!outcomes.ok() || !(*outcomes)[0].status.ok()) return ReasonOf(outcomes);
    return (*outcomes)[0].existing && (*outcomes)[0].id == s.id ? "OK" : "NEW_JOB";
  };
  // Somebody looks after a job that this one waits for has ended, in a way that is on record no more.
  const std::string waits = "gate = case when state = 2 then null else gate end, concurrency_keys = null";
  auto resolve = [this](const Subject& s, bool any_end) -> std::string {
    Sql("delete from tenure.dependency");
    Sql(absl::StrCat("insert into tenure.dependency values (1000000, ", queue_, ", 1, ", s.id.seq, ", ", queue_, ", ",
                     any_end ? "true" : "false", ", false)"));
    const std::vector<int64_t> ended{1'000'000};
    auto result = store_->ResolveDependents(queue_, ended);
    if (!result.ok()) return result.status().ToString();
    return result->released + result->cancelled > 0 ? "OK" : "-";
  };
  const std::vector<Action> actions{
      {"Claim",
       "",
       [&](const Subject&) -> std::string {
         auto claimed = store_->Claim(Batch());
         if (!claimed.ok()) return claimed.status().ToString();
         return claimed->jobs.empty() ? "-" : "OK";
       },
       {"-", "-", "-> leased", "-", "-", "-", "-", "-", "-"}},
      {"ClaimNamed",
       "",
       [&](const Subject& s) {
         auto outcomes = Replica::Await<std::vector<NamedClaimOutcome>>([&](auto done) {
           replica_->engine->ClaimNamed({"w2", {s.id}, absl::Seconds(30), ""}, In(10), done);
         });
         return outcomes.ok() ? Reason((*outcomes)[0].refusal) : Reason(outcomes.status());
       },
       {"NOT_READY", "NOT_READY", "-> leased", "LEASE_HELD", "NOT_READY", kSettled, kSettled, kSettled, kSettled}},
      {"Extend",
       "",
       [&](const Subject& s) { return extend(s.current); },
       {kSettled, kSettled, kSettled, "-> leased", kSettled, kSettled, kSettled, kCancelled, kLost}},
      {"Extend stale", "", [&](const Subject& s) { return extend(s.stale); }, stale(kSettled)},
      {"Complete",
       "",
       [&](const Subject& s) { return complete(s.current); },
       {kSettled, kSettled, kSettled, "-> completed", kSettled, "OK", kSettled, kCancelled, kLost}},
      {"Complete stale", "", [&](const Subject& s) { return complete(s.stale); }, stale(kSettled)},
      {"Fail",
       "",
       [&](const Subject& s) { return fail(s.current, false); },
       {"OK", kSettled, kSettled, "-> scheduled", kSettled, kSettled, "OK", kCancelled, kLost}},
      {"Fail stale", "", [&](const Subject& s) { return fail(s.stale, false); }, stale(kSettled)},
      {"Fail for good",
       "",
       [&](const Subject& s) { return fail(s.current, true); },
       {"OK", kSettled, kSettled, "-> discarded", kSettled, kSettled, "OK", kCancelled, kLost}},
      {"Fail for good stale", "", [&](const Subject& s) { return fail(s.stale, true); }, stale(kSettled)},
      {"Release",
       "",
       [&](const Subject& s) { return release(s.current); },
       {kSettled, "OK", "OK", "-> ready", "OK", kSettled, kSettled, kCancelled, kLost}},
      {"Release stale", "", [&](const Subject& s) { return release(s.stale); }, stale("OK")},
      {"Snooze",
       "",
       [&](const Subject& s) { return snooze(s.current); },
       {kSettled, kSettled, kSettled, "-> scheduled", kSettled, kSettled, kSettled, kCancelled, kLost}},
      {"Snooze stale", "", [&](const Subject& s) { return snooze(s.stale); }, stale(kSettled)},
      {"Cancel",
       "",
       [&](const Subject& s) { return ReasonOf(replica_->Cancel({s.id})); },
       {"-> cancelled", "-> cancelled", "-> cancelled", "-> cancelled", "-> cancelled", kSettled, kSettled, "OK",
        kSettled}},
      {"Retry",
       "",
       [&](const Subject& s) {
         auto outcomes =
             Replica::Await<std::vector<RetryOutcome>>([&](auto done) { replica_->engine->Retry({s.id}, "", done); });
         if (outcomes.ok() && (*outcomes)[0].status.ok() && (*outcomes)[0].id != s.id) return std::string("NEW_JOB");
         return ReasonOf(outcomes);
       },
       {"-> ready", "NOT_RETRYABLE", "NOT_RETRYABLE", "NOT_RETRYABLE", "NOT_RETRYABLE", "NEW_JOB", "NEW_JOB", "NEW_JOB",
        "NEW_JOB"}},
      {"Reap with time left", "", [&](const Subject& s) { return reap(s.current); }, std::vector<std::string>(9, "-")},
      {"Reap",
       "lease_until = now() - interval '1 ms'",
       [&](const Subject& s) { return reap(s.current); },
       {"-", "-", "-", "-> ready", "-", "-", "-", "-", "-"}},
      {"Reap at the crash budget",
       "lease_until = now() - interval '1 ms', crash_budget = 1",
       [&](const Subject& s) { return reap(s.current); },
       {"-", "-", "-", "-> discarded", "-", "-", "-", "-", "-"}},
      {"Reap stale", "lease_until = now() - interval '1 ms'", [&](const Subject& s) { return reap(s.stale); },
       std::vector<std::string>(9, "-")},
      {"Expire",
       "expires_at = now() - interval '1 ms', started_at = null",
       [&](const Subject&) { return *store_->ExpireJobs(lifecycle_, 10) > 0 ? "OK" : "-"; },
       {"-> expired", "-> expired", "-> expired", "-", "-> expired", "-", "-", "-", "-"}},
      {"Expire what has begun", "expires_at = now() - interval '1 ms', started_at = now()",
       [&](const Subject&) { return *store_->ExpireJobs(lifecycle_, 10) > 0 ? "OK" : "-"; },
       std::vector<std::string>(9, "-")},
      {"Promote",
       "due_at = now() - interval '1 ms'",
       [&](const Subject&) { return store_->Promote(promoter_, absl::InfinitePast(), 10)->promoted > 0 ? "OK" : "-"; },
       {"-> ready", "-", "-", "-", "-", "-", "-", "-", "-"}},
      {"Promote what is not due", "due_at = now() + interval '1 h'",
       [&](const Subject&) { return store_->Promote(promoter_, absl::InfinitePast(), 10)->promoted > 0 ? "OK" : "-"; },
       std::vector<std::string>(9, "-")},
      {"Admit",
       "",
       [&](const Subject&) {
         return store_->Admit(queue_, names, 10, store::FairWindow::kLeast)->admitted > 0 ? "OK" : "-";
       },
       {"-", "-> ready", "-", "-", "-", "-", "-", "-", "-"}},
      {"Admit at a full key", "",
       [&](const Subject&) {
         EXPECT_TRUE(store_->SetLimit(queue_, LimitScope::kKey, "key", {0, std::nullopt}).ok());
         const int admitted = store_->Admit(queue_, names, 10, store::FairWindow::kLeast)->admitted;
         EXPECT_TRUE(store_->DeleteLimit(queue_, LimitScope::kKey, "key").ok());
         return admitted > 0 ? "OK" : "-";
       },
       std::vector<std::string>(9, "-")},
      {"Return by its unique key",
       holds_key,
       [&](const Subject& s) { return second(s, OnConflict::kReturn); },
       {"OK", "OK", "OK", "OK", "OK", "NEW_JOB", "NEW_JOB", "NEW_JOB", "NEW_JOB"}},
      {"Replace by its unique key",
       holds_key,
       [&](const Subject& s) { return second(s, OnConflict::kReplace); },
       {"-> scheduled", "-> blocked", "-> ready", "NEW_JOB", "NEW_JOB", "NEW_JOB", "NEW_JOB", "NEW_JOB", "NEW_JOB"}},
      {"Reschedule by its unique key",
       holds_key,
       [&](const Subject& s) { return second(s, OnConflict::kReschedule); },
       {"-> scheduled", "-> scheduled", "-> scheduled", "NEW_JOB", "NEW_JOB", "NEW_JOB", "NEW_JOB", "NEW_JOB",
        "NEW_JOB"}},
      {"Let go after what it waits for",
       waits,
       [&](const Subject& s) { return resolve(s, true); },
       {"-", "-> ready", "-", "-", "-", "-", "-", "-", "-"}},
      {"Cancel with what it waits for",
       waits,
       [&](const Subject& s) { return resolve(s, false); },
       {"-", "-> cancelled", "-", "-", "-", "-", "-", "-", "-"}},
      {"tenure.complete",
       "",
       [&](const Subject& s) { return CompleteBySql(s.current); },
       {kSettled, kSettled, kSettled, "-> completed", kSettled, kSettled, kSettled, kCancelled, kLost}},
      {"tenure.complete stale", "", [&](const Subject& s) { return CompleteBySql(s.stale); }, stale(kSettled)},
  };
  int cells = 0;
  for (const Action& action : actions) {
    ASSERT_EQ(action.expected.size(), std::size(kStates)) << action.name;
    for (size_t i = 0; i < std::size(kStates); ++i) {
      SCOPED_TRACE(absl::StrCat(action.name, " of a ", kStates[i], " job"));
      const Subject subject = Make(kStates[i]);
      if (!action.given.empty()) {
        Sql(absl::StrCat("update tenure.job set ", action.given, " where id = ", subject.id.seq,
                         absl::StrContains(action.given, "lease_until") ? " and state = 4" : ""));
      }
      const std::string before = Everything();
      const std::string answer = action.run(subject);
      const std::string& expected = action.expected[i];
      if (absl::StartsWith(expected, "-> ")) {
        EXPECT_EQ(answer, "OK");
        EXPECT_EQ(StateOf(subject.id), expected.substr(3));
        EXPECT_NE(Everything(), before);
      } else {
        EXPECT_EQ(answer, expected);
        EXPECT_EQ(StateOf(subject.id), kStates[i]);
        if (expected != "NEW_JOB") {
          EXPECT_EQ(Everything(), before);
        }
      }
      ++cells;
    }
  }
  EXPECT_EQ(cells, static_cast<int>(actions.size() * std::size(kStates)));
}

}  // namespace
}  // namespace tenure::store
