// What happens at once to the same jobs: one settle wins and every other call learns which, whatever replica it asks;
// an expired crowd is recovered to the last; conflicts in the database are cured inside.
#include <algorithm>
#include <atomic>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "server/background/recovery.h"
#include "server/base/status.h"
#include "statements.sql.h"
#include "tests/support/engine_fixture.h"

namespace tenure::store {
namespace {

using testing::Eventually;
using testing::In;
using testing::Replica;

enum class Move { kExtend, kComplete, kFail, kRelease, kSnooze, kCancel, kReap };

const char* NameOf(Move move) {
  static constexpr const char* kNames[] = {"Extend", "Complete", "Fail", "Release", "Snooze", "Cancel", "Reap"};
  return kNames[static_cast<int>(move)];
}

class RaceTest : public testing::ReplicaTest {
 protected:
  RaceTest() {
    queue_ = store_->EnsureQueue("q", true)->id;
    granter_ = *store_->RegisterReplica("granter", "test");
  }

  void Enqueue(int n) {
    const std::vector<NewJob> specs(static_cast<size_t>(n), NewJob{.kind = "k", .payload = {"{}", ""}});
    ASSERT_TRUE(store_->Enqueue(queue_, specs).ok());
  }

  // Not through an engine: nobody's timers watch these leases.
  std::vector<ClaimedJob> Claim(int slots, absl::Duration lease) {
    ClaimBatch batch;
    batch.queue = queue_;
    batch.replica = granter_;
    batch.ranges = {{0, kLowestKey, kHighestKey}};
    batch.workers = {"w"};
    batch.slots.assign(static_cast<size_t>(slots), ClaimSlot{0, -1, lease});
    auto claimed = store_->Claim(batch);
    EXPECT_TRUE(claimed.ok()) << claimed.status();
    return claimed.ok() ? std::move(claimed->jobs) : std::vector<ClaimedJob>();
  }

  // One item's answer to one move.
  struct Answer {
    std::string reason;  // Empty: accepted.
    bool replayed = false;
  };

  template <typename Answers>
  static std::vector<Answer> Read(const Answers& answers, size_t n) {
    std::vector<Answer> read(n);
    for (size_t i = 0; i < n; ++i) {
      const absl::Status& status = answers.ok() ? (*answers)[i].status : answers.status();
      if (!status.ok()) {
        read[i].reason = DetailsOf(status).reason;
        if (read[i].reason.empty()) read[i].reason = status.ToString();
      }
      if constexpr (requires { (*answers)[i].replayed; }) read[i].replayed = answers.ok() && (*answers)[i].replayed;
    }
    return read;
  }

  std::vector<Answer> Make(Move move, Replica& at, const std::vector<LeaseToken>& tokens) {
    std::vector<GiveBackItem> give_backs;
    std::vector<JobId> ids;
    for (const LeaseToken& token : tokens) {
      give_backs.push_back({token, move == Move::kSnooze ? absl::Hours(1) : absl::ZeroDuration()});
      ids.push_back(token.job);
    }
    switch (move) {
      case Move::kExtend: {
        std::vector<ExtendItem> items;
        for (const LeaseToken& token : tokens) items.push_back({token, absl::Minutes(5), Progress{0.1, "on"}});
        return Read(at.Extend(std::move(items)), tokens.size());
      }
      case Move::kComplete: {
        std::vector<engine::CompleteItem> items;
        for (const LeaseToken& token : tokens) items.push_back({token, Payload{"ok", "text/plain"}, {}});
        return Read(at.Complete(std::move(items)), tokens.size());
      }
      case Move::kFail: {
        std::vector<FailItem> items;
        for (const LeaseToken& token : tokens) items.push_back({token, {"boom"}, false, absl::ZeroDuration()});
        return Read(at.Fail(std::move(items)), tokens.size());
      }
      case Move::kRelease:
        return Read(at.Release(std::move(give_backs)), tokens.size());
      case Move::kSnooze:
        return Read(at.Snooze(std::move(give_backs)), tokens.size());
      case Move::kCancel:
        return Read(at.Cancel(std::move(ids)), tokens.size());
      case Move::kReap: {
        std::vector<LeaseRef> refs;
        for (const LeaseToken& token : tokens) refs.push_back({queue_, token.job.seq, token.number});
        std::vector<ReadyRange> ready;
        auto reaped = at.store->Reap(queue_, refs, &ready);
        std::vector<Answer> read(tokens.size());
        for (size_t i = 0; i < tokens.size(); ++i) {
          if (!reaped.ok()) {
            read[i].reason = reaped.status().ToString();
          } else if ((*reaped)[i].gone || (*reaped)[i].locked || (*reaped)[i].remaining) {
            read[i].reason = "NOT_REAPED";
          }
        }
        return read;
      }
    }
    return {};
  }

  // How often the store has run a settle's statement.
  uint64_t Statements(Move move) {
    const std::string name = absl::AsciiStrToLower(NameOf(move));
    return metrics_.db_statement_duration.Add({{"statement", name}}).Collect().histogram.sample_count;
  }

  int32_t queue_ = 0;
  int32_t granter_ = 0;
};

// What the loser of a race is told.
bool MayAnswer(Move loser, Move winner, const std::string& reason) {
  if (loser == Move::kReap) return reason == "NOT_REAPED";
  if (winner == Move::kCancel) return reason == "JOB_CANCELLED";
  if (winner == Move::kReap) return reason == "LEASE_LOST";
  return reason == "ALREADY_SETTLED";
}

// CASES 21a: Extend and Complete of the same jobs race 10,000 times; no rightful settle is refused. The other verbs as
// well.
TEST_F(RaceTest, OneSettleWinsAndEveryOtherLearnsIt) {
  std::vector<std::unique_ptr<Replica>> replicas;
  for (const char* name : {"a", "b", "c"}) replicas.push_back(StartReplica(name));
  // What races in a round, two threads each; the first settle of a list is as likely to win as the last.
  const std::vector<std::vector<Move>> casts{
      {Move::kExtend, Move::kComplete},
      {Move::kExtend, Move::kComplete, Move::kFail},
      {Move::kExtend, Move::kRelease, Move::kComplete},
      {Move::kExtend, Move::kSnooze, Move::kComplete},
      {Move::kComplete, Move::kCancel, Move::kExtend},
      {Move::kExtend, Move::kReap, Move::kComplete},
      {Move::kFail, Move::kRelease, Move::kSnooze, Move::kReap},
      {Move::kExtend, Move::kComplete, Move::kFail, Move::kRelease, Move::kSnooze, Move::kCancel, Move::kReap},
  };
  constexpr int kRounds = 40, kJobs = 250, kChunk = 25;
  std::map<Move, int> wins;
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<Move>& cast = casts[static_cast<size_t>(round) % casts.size()];
    const bool reaping = std::find(cast.begin(), cast.end(), Move::kReap) != cast.end();
    Sql("delete from tenure.job");
    Enqueue(kJobs);
    std::vector<LeaseToken> tokens;
    for (const ClaimedJob& job : Claim(kJobs, reaping ? absl::Microseconds(1) : absl::Minutes(2))) {
      tokens.push_back(job.token);
    }
    ASSERT_EQ(tokens.size(), static_cast<size_t>(kJobs));

    struct Told {
      Move move;
      Answer answer;
    };
    std::mutex mu;
    std::map<int64_t, std::vector<Told>> told;  // By job.
    std::vector<std::thread> threads;
    for (size_t i = 0; i < cast.size() * 2; ++i) {
      threads.emplace_back([&, i] {
        const Move move = cast[i % cast.size()];
        std::mt19937 random(static_cast<uint32_t>(round * 100) + static_cast<uint32_t>(i));
        std::vector<LeaseToken> mine = tokens;
        std::shuffle(mine.begin(), mine.end(), random);
        for (size_t at = 0; at < mine.size(); at += kChunk) {
          const std::vector<LeaseToken> chunk(mine.begin() + static_cast<std::ptrdiff_t>(at),
                                              mine.begin() + static_cast<std::ptrdiff_t>(at + kChunk));
          const std::vector<Answer> answers = Make(move, *replicas[random() % replicas.size()], chunk);
          std::lock_guard<std::mutex> lock(mu);
          for (size_t k = 0; k < chunk.size(); ++k) told[chunk[k].job.seq].push_back({move, answers[k]});
        }
      });
    }
    for (std::thread& thread : threads) thread.join();

    for (const auto& [job, all] : told) {
      std::vector<Move> won;
      for (const Told& one : all) {
        // A repeated cancel is answered like the first one.
        if (one.answer.reason.empty() && !one.answer.replayed && one.move != Move::kExtend &&
            !(one.move == Move::kCancel && std::find(won.begin(), won.end(), Move::kCancel) != won.end())) {
          won.push_back(one.move);
        }
      }
      // Cancel ends also what a Fail, Release, Snooze or Reap has given back: both are accepted then.
      if (won.size() == 2) {
        const auto cancel = std::find(won.begin(), won.end(), Move::kCancel);
        ASSERT_NE(cancel, won.end()) << NameOf(won[0]) << " and " << NameOf(won[1]) << " were both accepted for job "
                                     << job;
        won.erase(cancel);
        ASSERT_NE(won[0], Move::kComplete) << "a cancelled job was completed";
        ++wins[won[0]];
        continue;
      }
      ASSERT_EQ(won.size(), 1u) << "of job " << job << " in round " << round;
      ++wins[won[0]];
      for (const Told& one : all) {
        if (one.answer.reason.empty()) continue;
        EXPECT_TRUE(MayAnswer(one.move, won[0], one.answer.reason) ||
                    // Refused as ended, which a completed job's cancel is.
                    (one.move == Move::kCancel && one.answer.reason == "ALREADY_SETTLED"))
            << NameOf(one.move) << " was answered " << one.answer.reason << " though " << NameOf(won[0]) << " won job "
            << job;
      }
    }
    if (HasFailure()) return;
  }
  int decided = 0;
  for (const auto& [move, n] : wins) {
    decided += n;
    RecordProperty(NameOf(move), n);
  }
  EXPECT_EQ(decided, kRounds * kJobs);
  EXPECT_GT(wins[Move::kComplete], 0);
  EXPECT_EQ(Sql("select count(*) - count(distinct id) from tenure.history"), "0");
}

// CASES 43: a settle's retry that waits for its own original is OK, not LEASE_LOST; if the original never committed, it
// does the work itself.
TEST_F(RaceTest, ARetryThatWaitsForItsOwnOriginalIsOk) {
  auto replica = StartReplica("r");
  using postgres::Params;
  for (const Move move : {Move::kComplete, Move::kFail, Move::kRelease, Move::kSnooze}) {
    for (const bool committed : {true, false}) {
      SCOPED_TRACE(absl::StrCat(NameOf(move), committed ? ", committed" : ", rolled back"));
      Sql("delete from tenure.job");
      Enqueue(1);
      const LeaseToken token = Claim(1, absl::Minutes(1))[0].token;
      const std::vector<int64_t> ids{token.job.seq}, secrets{token.secret};
      const std::vector<int32_t> numbers{token.number};
      Params params;
      params.Add(queue_);
      if (move == Move::kComplete) {
        params.AddArray(ids).AddArray(numbers).AddArray(secrets);
        const std::vector<std::string> result{"ok"}, type{"text/plain"};
        params.AddByteaArray(result, [](const std::string& r) { return std::string_view(r); }).AddArray(type);
      } else if (move == Move::kFail) {
        params.AddArray(ids).AddArray(numbers).AddArray(secrets);
        const std::vector<std::string> texts{"boom"};
        const std::vector<int64_t> after{0};
        params.AddArray(texts)
            .AddArray(texts)
            .AddArray(texts)
            .AddArray(ids, [](int64_t) { return false; })
            .AddArray(after);
      } else {
        params.AddArray(ids).AddArray(numbers).AddArray(secrets);
        const std::vector<int64_t> delays{move == Move::kSnooze ? 3'600'000'000 : 0};
        params.Add(static_cast<int32_t>(move == Move::kSnooze ? Verb::kSnooze : Verb::kRelease)).AddArray(delays);
      }
      auto connection = postgres::Connection::Open(database_.url(), "original", absl::Seconds(5)).value();
      const uint64_t looked = Statements(move);
      std::thread retry;
      std::atomic<bool> answered{false};
      Answer answer;
      {
        postgres::Transaction original(*connection, {absl::Seconds(30)});
        auto rows = original.Run(move == Move::kComplete ? postgres::sql::kComplete
                                 : move == Move::kFail   ? postgres::sql::kFail
                                                         : postgres::sql::kGiveBack,
                                 params);
        ASSERT_TRUE(rows.ok()) << rows.status();
        ASSERT_EQ(rows->rows(), 1);
        retry = std::thread([&] {
          answer = Make(move, *replica, {token})[0];
          answered = true;
        });
        // It has been looked at once, found locked, and is being looked at again.
        EXPECT_TRUE(Eventually(20, [&] { return Statements(move) >= looked + 2 || answered; }));
        EXPECT_FALSE(answered);
        if (committed) {
          EXPECT_TRUE(original.Commit().ok());
        }
      }
      retry.join();
      EXPECT_EQ(answer.reason, "");
      EXPECT_EQ(answer.replayed, committed);
    }
  }
}

// CASES 22: enough expired leases at once to fill several pages; all are recovered.
TEST_F(RaceTest, ThousandsOfLeasesThatEndAtOnceAreAllRecovered) {
  auto replica = StartReplica("r");
  for (int i = 0; i < 4; ++i) Enqueue(875);
  int claimed = 0;
  while (claimed < 3500) {
    auto answer = replica->Claim("q", 1000, absl::Seconds(5), absl::Seconds(3));
    ASSERT_TRUE(answer.ok()) << answer.status();
    ASSERT_FALSE(answer->jobs.empty());
    claimed += static_cast<int>(answer->jobs.size());
  }
  // On a machine that is slow enough the daemon counts as having been away, and they are forgiven.
  EXPECT_TRUE(Eventually(60, [&] {
    return Sql("select count(*) from tenure.job where state = 3 and token = 2 and crashes <= 1 and worker is null") ==
           "3500";
  }));
  EXPECT_EQ(Sql("select sum(leased)::text || ',' || sum(ready)::text from tenure.event"), "0,3500");
  // They are ready for the engine as well.
  int again = 0;
  while (again < 3500) {
    auto answer = replica->Claim("q", 1000, absl::Seconds(5), absl::Minutes(5));
    ASSERT_TRUE(answer.ok()) << answer.status();
    ASSERT_FALSE(answer->jobs.empty()) << again;
    again += static_cast<int>(answer->jobs.size());
  }
}

// CASES 22, the leases of a replica that has vanished.
TEST_F(RaceTest, ThousandsOfLeasesOfAVanishedReplicaAreAllRecovered) {
  for (int i = 0; i < 4; ++i) Enqueue(875);
  for (int claimed = 0; claimed < 3500; claimed += 875) ASSERT_EQ(Claim(875, absl::Microseconds(1)).size(), 875u);
  const int32_t other = *store_->RegisterReplica("other", "test");
  const ShardFence fence = testing::HoldShards(*store_, "reaper", other);
  Sql(absl::StrCat("update tenure.replica set lease_until = now() - interval '1 s' where id = ", granter_));
  auto result = background::RecoverVanished(*store_, fence, 1000);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->recovered, 3500);
  // Their grants are forgotten with the next look, those of the replicas that live are not.
  EXPECT_EQ(Sql("select count(*) from tenure.lease_grant"), "4");
  ASSERT_TRUE(background::RecoverVanished(*store_, fence, 1000).ok());
  EXPECT_EQ(Sql("select count(*) from tenure.lease_grant"), "0");
  EXPECT_EQ(Sql("select count(*) from tenure.job where state = 3 and crashes = 1"), "3500");
}

// CASES 35: a deadlock or a serialization failure in any statement that writes is retried inside, and counted.
TEST_F(RaceTest, ConflictsInTheDatabaseAreCuredInside) {
  auto replica = StartReplica("r");
  // Sequences do not roll back: two of three statements that write an event fail, one of each kind.
  Sql("create sequence tenure.unlucky");
  Sql("create function tenure.be_unlucky() returns trigger language plpgsql as $$ declare n bigint := "
      "nextval('tenure.unlucky') % 3; "
      "begin if n = 0 then raise exception 'no luck' using errcode = '40001'; "
      "elsif n = 1 then raise exception 'no luck' using errcode = '40P01'; end if; return null; end $$");
  Sql("create trigger unlucky after insert on tenure.event for each statement execute function tenure.be_unlucky()");
  for (int round = 0; round < 10; ++round) {
    std::vector<NewJob> specs(5, NewJob{.kind = "k", .payload = {"{}", ""}});
    specs[4].idempotency_key = absl::StrCat("key", round);
    auto enqueued = replica->Enqueue("q", specs);
    ASSERT_TRUE(enqueued.ok()) << enqueued.status();
    for (const EnqueueOutcome& outcome : *enqueued) EXPECT_TRUE(outcome.status.ok()) << outcome.status;
    std::vector<LeaseToken> tokens;
    while (tokens.size() < 5) {
      auto claimed = replica->Claim("q", 5, absl::Seconds(5));
      ASSERT_TRUE(claimed.ok()) << claimed.status();
      for (const ClaimedJob& job : claimed->jobs) tokens.push_back(job.token);
    }
    EXPECT_EQ(Make(Move::kExtend, *replica, {tokens[0]})[0].reason, "");
    EXPECT_EQ(Make(Move::kComplete, *replica, {tokens[0]})[0].reason, "");
    EXPECT_EQ(Make(Move::kFail, *replica, {tokens[1]})[0].reason, "");
    EXPECT_EQ(Make(Move::kSnooze, *replica, {tokens[2]})[0].reason, "");
    EXPECT_EQ(Make(Move::kCancel, *replica, {tokens[3]})[0].reason, "");
    EXPECT_EQ(Make(Move::kComplete, *replica, {tokens[4]})[0].reason, "");
    // The one that failed is ready at once.
    auto again = replica->Claim("q", 1, absl::Seconds(5));
    ASSERT_TRUE(again.ok() && again->jobs.size() == 1) << again.status();
    EXPECT_EQ(Make(Move::kComplete, *replica, {again->jobs[0].token})[0].reason, "");
  }
  EXPECT_EQ(Sql("select count(*) from tenure.history where state = 6"), "30");
  EXPECT_GT(metrics_.db_retries.Add({{"reason", "deadlock"}}).Value(), 0);
  EXPECT_GT(metrics_.db_retries.Add({{"reason", "serialization"}}).Value(), 0);
}

// What the statements rely on does not depend on the database's default. (A pooler's sessions are older than that is.)
TEST_F(RaceTest, DirectOnlyADatabaseThatDefaultsToRepeatableReadMakesNoDifference) {
  Sql("do $$ begin execute format('alter database %I set default_transaction_isolation = ''repeatable read''', "
      "current_database()); "
      "end $$");
  auto replica = StartReplica("r");
  ASSERT_EQ(Sql("show default_transaction_isolation"), "repeatable read");
  Enqueue(200);
  std::vector<LeaseToken> tokens;
  while (tokens.size() < 200) {
    auto claimed = replica->Claim("q", 200, absl::Seconds(5));
    ASSERT_TRUE(claimed.ok() && !claimed->jobs.empty()) << claimed.status();
    for (const ClaimedJob& job : claimed->jobs) tokens.push_back(job.token);
  }
  std::vector<std::thread> threads;
  std::atomic<int> won{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (const Answer& answer : Make(Move::kComplete, *replica, tokens)) {
        EXPECT_EQ(answer.reason, "");
        won += !answer.replayed;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(won, 200);
}

}  // namespace
}  // namespace tenure::store
