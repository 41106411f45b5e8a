// Jobs that wait for others, in the store: how they are accepted, who lets them go or cancels them, and who says that
// somebody waits.
#include <libpq-fe.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/store/fair_choice.h"
#include "tests/support/store_fixture.h"

namespace tenure::store {
namespace {

using Ids = std::vector<JobId>;
using Items = std::vector<int32_t>;

class DependencyStoreTest : public tenure::testing::StoreTest {
 protected:
  // Moves the one job of the backlog to the queue "to"; answers where reading events began before that.
  std::string MoveOne(int32_t to) {
    MoveSpec spec;
    spec.from = "q";
    spec.to = "to";
    spec.source = MoveSource::kBacklog;
    const auto move = store_->CreateMove(spec, queue_, to, "");
    EXPECT_TRUE(move.ok()) << move.status();
    const Fence lifecycle = **store_->AcquireLeader("lifecycle", granter_, absl::Hours(1));
    const std::string start = store_->ReadStart()->snapshot;
    EXPECT_EQ(store_->StepMove(lifecycle, move->id, 10)->moved, 1);
    return start;
  }
  DependencyStoreTest() {
    queue_ = store_->EnsureQueue("q", true)->id;
    other_ = store_->EnsureQueue("other", true)->id;
    granter_ = *store_->RegisterReplica("granter", "test");
    fence_ = **store_->AcquireLeader("promoter", granter_, absl::Hours(1));
  }

  GraphJob Job(Ids after = {}, Items items = {}, int32_t queue = 0) {
    GraphJob graph_job;
    graph_job.queue = queue == 0 ? queue_ : queue;
    graph_job.job.kind = "k";
    graph_job.job.payload = {"{}", "application/json"};
    if (!after.empty() || !items.empty()) {
      graph_job.job.depends_on = DependsOn{std::move(after), std::move(items), false, false};
    }
    return graph_job;
  }
  GraphResult Enqueue(const std::vector<GraphJob>& jobs) {
    auto result = store_->EnqueueGraph(jobs);
    EXPECT_TRUE(result.ok()) << result.status();
    if (result.ok()) return *std::move(result);
    GraphResult none;
    none.jobs.resize(jobs.size());
    return none;
  }
  JobId EnqueueOne(const GraphJob& job) {
    const EnqueueOutcome outcome = Enqueue({job}).jobs[0];
    EXPECT_TRUE(outcome.status.ok()) << outcome.status;
    return outcome.id;
  }
  // Looks at what names say, and at what follows from it.
  ResolveResult Look(GatesByQueue names) {
    ResolveResult all;
    for (int rounds = 0; !names.empty() && rounds < 20; ++rounds) {
      GatesByQueue next;
      for (const auto& [queue, of_queue] : names) {
        std::vector<int64_t> ended;
        for (const std::string& name : of_queue) {
          if (name[0] == kAwaitedMark) ended.push_back(std::stoll(name.substr(1)));
        }
        if (ended.empty()) continue;
        auto result = store_->ResolveDependents(queue, ended);
        EXPECT_TRUE(result.ok()) << result.status();
        if (!result.ok()) return all;
        all.released += result->released;
        all.cancelled += result->cancelled;
        all.ended.insert(all.ended.end(), result->ended.begin(), result->ended.end());
        all.ready.insert(all.ready.end(), result->ready.begin(), result->ready.end());
        all.again = result->again;
        if (result->earliest_due) all.earliest_due = result->earliest_due;
        for (const auto& [to, more] : result->look) {
          for (const std::string& name : more) {
            (name[0] == kAwaitedMark ? next : all.look)[to].push_back(name);
          }
        }
      }
      names = std::move(next);
    }
    return all;
  }
  ClaimedJob ClaimOne(const JobId& id) {
    const Ids ids{id};
    auto claimed = store_->ClaimNamed(id.queue, granter_, "w", absl::Seconds(30), "", ids, 1 << 20);
    EXPECT_TRUE(claimed.ok()) << claimed.status();
    if (!claimed.ok() || !(*claimed)[0].job) {
      ADD_FAILURE() << id.ToString() << " is not to be had";
      return {};
    }
    return *(*claimed)[0].job;
  }
  GatesByQueue Complete(const JobId& id) {
    const std::vector<CompleteItem> items{{ClaimOne(id).token, std::nullopt, {}}};
    auto result = store_->Complete(id.queue, items);
    EXPECT_TRUE(result.ok() && result->items[0].state == TokenState::kWon) << result.status();
    return {{id.queue, result->freed}};
  }
  GatesByQueue Discard(const JobId& id) {
    const std::vector<FailItem> items{{ClaimOne(id).token, {"boom"}, true, std::nullopt, std::nullopt, ""}};
    auto result = store_->Fail(id.queue, items);
    EXPECT_TRUE(result.ok() && result->items[0].state == TokenState::kWon) << result.status();
    return {{id.queue, result->freed}};
  }
  GatesByQueue Cancel(const JobId& id) {
    const Ids ids{id};
    auto result = store_->Cancel(id.queue, ids, "");
    EXPECT_TRUE(result.ok()) << result.status();
    return {{id.queue, result->freed}};
  }
  JobState StateOf(const JobId& id) { return store_->Get(id)->state; }
  std::string Rows() { return Sql("select count(*) from tenure.dependency"); }
  std::string Counts() {
    return Sql("select concat_ws(' ', sum(scheduled), sum(blocked), sum(ready)) from tenure.event where queue_id = " +
               std::to_string(queue_));
  }

  int32_t queue_ = 0, other_ = 0, granter_ = 0;
  Fence fence_;
};

TEST_F(DependencyStoreTest, AJobWaitsUntilAllOthersHaveCompleted) {
  const JobId a = EnqueueOne(Job()), b = EnqueueOne(Job({}, {}, other_));
  const GraphResult made = Enqueue({Job({a, b})});
  const JobId c = made.jobs[0].id;
  EXPECT_EQ(made.jobs[0].state, JobState::kBlocked);
  EXPECT_TRUE(made.ready.empty());
  EXPECT_EQ(Counts(), "0 1 1");
  EXPECT_EQ(Rows(), "2");
  auto explained = store_->Explain(c);
  ASSERT_TRUE(explained.ok()) << explained.status();
  EXPECT_EQ(explained->causes[0].reason, WaitReason::kDependency);
  EXPECT_EQ(explained->causes[0].limit, 2);
  EXPECT_EQ(explained->causes[0].holders, (Ids{a, b}));
  EXPECT_EQ(Look(Complete(a)).released, 0);
  EXPECT_EQ(StateOf(c), JobState::kBlocked);
  EXPECT_EQ(store_->Explain(c)->causes[0].holders, (Ids{b}));
  const ResolveResult done = Look(Complete(b));
  EXPECT_EQ(done.released, 1);
  ASSERT_EQ(done.ready.size(), 1u);
  EXPECT_EQ(done.ready[0].queue, queue_);
  EXPECT_EQ(done.ready[0].low.id, c.seq);
  EXPECT_EQ(StateOf(c), JobState::kReady);
  EXPECT_EQ(Rows(), "0");
  EXPECT_EQ(Counts(), "0 0 1");
  ClaimOne(c);
}

TEST_F(DependencyStoreTest, TheTimeToStartBeginsOnceItNeedNotWait) {
  QueueSettings settings;
  settings.start_within = absl::Minutes(10);
  ASSERT_TRUE(store_->UpdateQueue("q", settings, {"start_within"}).ok());
  const JobId first = EnqueueOne(Job());
  const JobId second = EnqueueOne(Job({first}));
  const auto expires_in = [&](const JobId& id) {
    return Sql(
        absl::StrCat("select round(extract(epoch from expires_at - now()) / 60) from tenure.job where id = ", id.seq));
  };
  EXPECT_EQ(expires_in(first), "10");
  EXPECT_EQ(expires_in(second), "") << "however long the first one takes";
  Look(Complete(first));
  EXPECT_EQ(expires_in(second), "10");
}

TEST_F(DependencyStoreTest, AFailureCancelsAndCascadesOrReleases) {
  const JobId a = EnqueueOne(Job()), b = EnqueueOne(Job());
  GraphJob released = Job({a, b});
  released.job.depends_on->release_on_failure = true;
  GraphJob any = Job({a, b});
  any.job.depends_on->all_ended = true;
  const GraphResult made = Enqueue({Job({a, b}), Job({}, {0}, other_), Job({}, {1}), released, any});
  const ResolveResult after = Look(Discard(a));
  EXPECT_EQ(after.cancelled, 3);
  EXPECT_EQ(after.ended.size(), 3u);
  EXPECT_EQ(after.released, 1);
  EXPECT_EQ(StateOf(made.jobs[0].id), JobState::kCancelled);
  EXPECT_EQ(store_->Get(made.jobs[0].id)->error->message,
            absl::StrCat("cancelled: it depends on job ", a.ToString(), ", which was discarded"));
  EXPECT_EQ(store_->Get(made.jobs[2].id)->error->message,
            absl::StrCat("cancelled: it depends on job ", made.jobs[1].id.ToString(), ", which was cancelled"));
  EXPECT_EQ(StateOf(made.jobs[3].id), JobState::kReady) << "at once, without the rest";
  EXPECT_EQ(StateOf(made.jobs[4].id), JobState::kBlocked) << "any end will do, but all of them";
  EXPECT_EQ(Look(Cancel(b)).released, 1);
  EXPECT_EQ(StateOf(made.jobs[4].id), JobState::kReady);
  EXPECT_EQ(Rows(), "0");
}

// Whatever ends a job that somebody waits for says so.
TEST_F(DependencyStoreTest, EveryEndNamesTheJobThatIsAwaited) {
  auto awaited = [&](std::optional<absl::Duration> ttl = std::nullopt) {
    GraphJob job = Job();
    job.job.crash_budget = 1;
    job.job.ttl = ttl;
    const JobId id = EnqueueOne(job);
    EnqueueOne(Job({id}));
    return id;
  };
  auto names = [](const JobId& id) { return GateNames{absl::StrCat("w", id.seq)}; };
  JobId id = awaited();
  EXPECT_EQ(Complete(id)[queue_], names(id));
  id = awaited();
  EXPECT_EQ(Discard(id)[queue_], names(id));
  id = awaited();
  EXPECT_EQ(Cancel(id)[queue_], names(id));
  id = awaited();
  const ClaimedJob crashed = ClaimOne(id);
  Sql("update tenure.job set lease_until = now() - interval '1 s' where state = 4");
  std::vector<ReadyRange> ready;
  const std::vector<LeaseRef> leases{{queue_, id.seq, crashed.token.number, 0}};
  const auto reaped = store_->Reap(queue_, leases, &ready);
  ASSERT_TRUE(reaped.ok()) << reaped.status();
  EXPECT_EQ((*reaped)[0].freed, names(id));
  id = awaited(absl::Milliseconds(1));
  GatesByQueue freed;
  Sql("update tenure.job set expires_at = now() - interval '1 s' where expires_at is not null");
  EXPECT_EQ(*store_->ExpireJobs(fence_, 10, &freed), 1);
  EXPECT_EQ(freed[queue_], (GateNames{"q", names(id)[0]}));
  id = awaited();
  const std::string start = store_->ReadStart()->snapshot;
  Sql(absl::StrCat("select tenure.complete('", ClaimOne(id).token.ToString(), "')"));
  EXPECT_EQ(store_->ReadEvents(start)->admit[queue_], (GateNames{"q", names(id)[0]}));
  // And one that nobody waits for does not.
  EXPECT_EQ(Complete(EnqueueOne(Job()))[queue_], GateNames());
}

TEST_F(DependencyStoreTest, WhatEndedBeforeCountsAtOnce) {
  const JobId completed = EnqueueOne(Job()), cancelled = EnqueueOne(Job()), live = EnqueueOne(Job());
  Complete(completed);
  Cancel(cancelled);
  GraphResult made = Enqueue({Job({completed}), Job({cancelled}), Job({completed, live})});
  ResolveResult after = Look(made.blocked);
  EXPECT_EQ(after.released, 1);
  EXPECT_EQ(after.cancelled, 1);
  EXPECT_EQ(StateOf(made.jobs[0].id), JobState::kReady);
  EXPECT_EQ(StateOf(made.jobs[1].id), JobState::kCancelled);
  EXPECT_EQ(StateOf(made.jobs[2].id), JobState::kBlocked);
  JobId never = completed;
  never.seq += 1'000'000;
  JobId elsewhere = live;
  elsewhere.queue = other_;
  made = Enqueue({Job({live, never}), Job(), Job({elsewhere}), Job({}, {0})});
  EXPECT_EQ(made.jobs[0].status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(DetailsOf(made.jobs[0].status).reason, "JOB_NOT_FOUND");
  EXPECT_EQ(DetailsOf(made.jobs[0].status).metadata.at("job_id"), never.ToString());
  EXPECT_TRUE(made.jobs[1].status.ok()) << made.jobs[1].status;
  EXPECT_EQ(DetailsOf(made.jobs[2].status).reason, "JOB_NOT_FOUND");
  EXPECT_EQ(DetailsOf(made.jobs[3].status).reason, "DEPENDENCY_REFUSED");
  EXPECT_EQ(Sql("select count(*) from tenure.job"), "4") << "nothing of what was refused is left";
}

TEST_F(DependencyStoreTest, AGraphIsAcceptedAsOne) {
  // 0 ─▶ 1 ─▶ 3, 0 ─▶ 2 ─▶ 3, over two queues.
  GraphResult made = Enqueue({Job(), Job({}, {0}, other_), Job({}, {0}), Job({}, {1, 2})});
  for (const EnqueueOutcome& outcome : made.jobs) ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(made.jobs[0].state, JobState::kReady);
  EXPECT_EQ(made.jobs[3].state, JobState::kBlocked);
  EXPECT_EQ(Look(Complete(made.jobs[0].id)).released, 2);
  EXPECT_EQ(Look(Complete(made.jobs[1].id)).released, 0);
  EXPECT_EQ(Look(Complete(made.jobs[2].id)).released, 1);
  EXPECT_EQ(StateOf(made.jobs[3].id), JobState::kReady);
  // With keys: a repeat answers with the same jobs; a refusal takes those with it that wait for it.
  std::vector<GraphJob> keyed{Job(), Job({}, {0}), Job({}, {1})};
  for (size_t i = 0; i < keyed.size(); ++i) keyed[i].job.idempotency_key = absl::StrCat("i", i);
  made = Enqueue(keyed);
  const GraphResult again = Enqueue(keyed);
  for (size_t i = 0; i < keyed.size(); ++i) {
    EXPECT_EQ(again.jobs[i].id, made.jobs[i].id);
    EXPECT_TRUE(again.jobs[i].duplicate);
  }
  EXPECT_EQ(Rows(), "2");
  std::vector<GraphJob> conflicting{Job(), Job({}, {0}), Job({}, {1}), Job({}, {-1})};
  conflicting[0].job.unique = Unique{"u", false, {JobState::kReady}, {}, OnConflict::kReject};
  EXPECT_TRUE(Enqueue(std::vector<GraphJob>{conflicting[0]}).jobs[0].status.ok());
  const std::string before = Sql("select count(*) from tenure.job");
  made = Enqueue(conflicting);
  EXPECT_EQ(DetailsOf(made.jobs[0].status).reason, "UNIQUE_CONFLICT");
  for (size_t i = 1; i < 4; ++i) EXPECT_EQ(DetailsOf(made.jobs[i].status).reason, "DEPENDENCY_REFUSED") << i;
  EXPECT_EQ(Sql("select count(*) from tenure.job"), before);
  // To wait for the one that is there already is fine.
  conflicting[0].job.unique->on_conflict = OnConflict::kReturn;
  conflicting.pop_back();
  made = Enqueue(conflicting);
  EXPECT_TRUE(made.jobs[0].existing);
  EXPECT_EQ(Look(Complete(made.jobs[0].id)).released, 1);
}

TEST_F(DependencyStoreTest, AWaitingJobHoldsItsPlaceInItsGroupAndNoKey) {
  ASSERT_TRUE(store_->SetLimit(queue_, LimitScope::kKey, "key", {1, std::nullopt}).ok());
  auto keyed = [&](Ids after) {
    GraphJob job = Job(std::move(after));
    job.job.concurrency_keys = {"key"};
    return job;
  };
  auto grouped = [&](Ids after) {
    GraphJob job = Job(std::move(after));
    job.job.group = "g";
    return job;
  };
  const JobId first = EnqueueOne(Job());
  const JobId waits = EnqueueOne(keyed({first})), free = EnqueueOne(keyed({}));
  const JobId head = EnqueueOne(grouped({})), second = EnqueueOne(grouped({first})), third = EnqueueOne(grouped({}));
  const GateNames names{"kkey", "gg"};
  EXPECT_EQ(store_->Admit(queue_, names, 10, FairWindow::kLeast)->admitted, 2);
  EXPECT_EQ(StateOf(free), JobState::kReady) << "the key is not held by who waits";
  EXPECT_EQ(StateOf(head), JobState::kReady) << "one that waits behind it does not stand in its way";
  Complete(head);
  EXPECT_EQ(store_->Admit(queue_, names, 10, FairWindow::kLeast)->admitted, 0);
  EXPECT_EQ(StateOf(third), JobState::kBlocked) << "the second comes before it";
  ResolveResult after = Look(Complete(first));
  EXPECT_EQ(after.released, 2);
  EXPECT_TRUE(after.ready.empty()) << "gates come next";
  EXPECT_EQ(after.look[queue_], (GateNames{"kkey", "q", "gg", "q"}));
  EXPECT_EQ(store_->Admit(queue_, names, 10, FairWindow::kLeast)->admitted, 1);
  EXPECT_EQ(StateOf(second), JobState::kReady);
  EXPECT_EQ(StateOf(waits), JobState::kBlocked);
  EXPECT_EQ(store_->Explain(waits)->causes[0].reason, WaitReason::kKeyFull);
}

TEST_F(DependencyStoreTest, WhatIsNotDueYetIsScheduledThen) {
  const JobId first = EnqueueOne(Job());
  GraphJob later = Job({first});
  later.job.delay = absl::Hours(1);
  const GraphResult made = Enqueue({later});
  EXPECT_EQ(made.jobs[0].state, JobState::kBlocked);
  EXPECT_FALSE(made.earliest_due);
  const ResolveResult after = Look(Complete(first));
  EXPECT_EQ(StateOf(made.jobs[0].id), JobState::kScheduled);
  ASSERT_TRUE(after.earliest_due);
  EXPECT_GT(*after.earliest_due, absl::Minutes(59));
  EXPECT_EQ(Sql("select due_at > now() from tenure.event where due_at is not null"), "t") << "the promoter is told";
}

TEST_F(DependencyStoreTest, AWaitingJobThatIsRescheduledGoesOnWaiting) {
  const JobId first = EnqueueOne(Job());
  GraphJob unique = Job({first});
  unique.job.unique =
      Unique{"u", false, {JobState::kScheduled, JobState::kBlocked, JobState::kReady}, {}, OnConflict::kReschedule};
  const JobId waits = EnqueueOne(unique);
  NewJob later = unique.job;
  later.depends_on.reset();
  later.delay = absl::Hours(1);
  auto again = store_->EnqueueUnique(queue_, std::vector<NewJob>{later});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->jobs[0].id, waits);
  EXPECT_EQ(StateOf(waits), JobState::kBlocked);
  Look(Complete(first));
  EXPECT_EQ(StateOf(waits), JobState::kScheduled);
}

TEST_F(DependencyStoreTest, WhoWaitsForAMovedJobFollowsIt) {
  const JobId first = EnqueueOne(Job());
  const JobId waits = EnqueueOne(Job({first}, {}, other_));
  const auto to = store_->EnsureQueue("to", true);
  const std::string start = MoveOne(to->id);
  const auto events = store_->ReadEvents(start);
  ASSERT_TRUE(events.ok()) << events.status();
  EXPECT_EQ(events->admit.at(queue_), (GateNames{absl::StrCat("w", first.seq)}));
  const ResolveResult looked = Look(events->admit);
  EXPECT_EQ(looked.released + looked.cancelled, 0);
  EXPECT_EQ(StateOf(waits), JobState::kBlocked);
  const JobId moved = *JobId::Parse(store_->Get(first)->forwarded_to, "id");
  EXPECT_EQ(store_->Explain(waits)->causes[0].holders, (Ids{moved}));
  EXPECT_EQ(Look(Complete(moved)).released, 1);
  EXPECT_EQ(StateOf(waits), JobState::kReady);
}

// Moved behind a job of its group that waits for it, it goes first: else both would wait for ever.
TEST_F(DependencyStoreTest, AMovedJobIsNotHeldUpByOneOfItsGroupThatWaitsForIt) {
  const auto in_group = [](GraphJob job) {
    job.job.group = "g";
    return job;
  };
  const auto to = store_->EnsureQueue("to", true);
  const JobId first = EnqueueOne(in_group(Job()));
  const JobId waits = EnqueueOne(in_group(Job({first}, {}, to->id)));
  const JobId last = EnqueueOne(in_group(Job({}, {}, to->id)));
  const std::vector<std::string> group{"gg"};
  ASSERT_EQ(store_->Admit(queue_, group, 10, FairWindow::kLeast)->admitted, 1);
  const std::string start = MoveOne(to->id);
  Look(store_->ReadEvents(start)->admit);
  const JobId moved = *JobId::Parse(store_->Get(first)->forwarded_to, "id");
  // One after the other: who comes before the moved job, it, and who waits for it.
  std::vector<JobId> order;
  for (int turn = 0; turn < 3; ++turn) {
    ASSERT_TRUE(store_->Admit(to->id, group, 10, FairWindow::kLeast).ok());
    const std::string ready = Sql("select id from tenure.job where state = 3");
    ASSERT_FALSE(ready.empty()) << "turn " << turn;
    for (const JobId& id : {waits, last, moved}) {
      if (absl::StrCat(id.seq) != ready) continue;
      order.push_back(id);
      Look(Complete(id));
    }
  }
  EXPECT_EQ(order, (std::vector<JobId>{last, moved, waits}));
}

TEST_F(DependencyStoreTest, TheSweepFindsWhatEndedUnnoticed) {
  const JobId first = EnqueueOne(Job()), second = EnqueueOne(Job());
  const GraphResult made = Enqueue({Job({first}), Job({first, second}), Job({second}), Job({second})});
  Complete(first);          // And nobody looked.
  Cancel(made.jobs[3].id);  // It waits no more.
  GatesByQueue ended;
  DependencyPage::Cursor at;
  int dropped = 0;
  for (int pages = 0; pages < 10; ++pages) {
    auto page = store_->SweepDependencies(at, 2);
    ASSERT_TRUE(page.ok()) << page.status();
    for (auto& [queue, names] : page->ended) ended[queue].insert(ended[queue].end(), names.begin(), names.end());
    dropped += page->dropped;
    if (!page->next) break;
    at = *page->next;
  }
  EXPECT_EQ(dropped, 1);
  EXPECT_EQ(ended, (GatesByQueue{{queue_, {absl::StrCat("w", first.seq)}}}));
  EXPECT_EQ(Look(ended).released, 1);
  EXPECT_EQ(StateOf(made.jobs[0].id), JobState::kReady);
  EXPECT_EQ(Rows(), "3");
  EXPECT_TRUE(store_->SweepDependencies({}, 10)->ended.empty()) << "it has been counted";
}

// A record that is gone says nothing: the job is not taken for completed.
TEST_F(DependencyStoreTest, AnEndThatIsNotOnRecordAnyMoreIsNoCompletion) {
  const JobId first = EnqueueOne(Job());
  const JobId waits = EnqueueOne(Job({first}));
  const GatesByQueue names = Complete(first);
  Sql("delete from tenure.history");
  EXPECT_EQ(Look(names).cancelled, 1);
  EXPECT_EQ(StateOf(waits), JobState::kCancelled);
}

TEST_F(DependencyStoreTest, AJobThatSomebodyHoldsStallsNobodyElse) {
  const JobId held = EnqueueOne(Job()), free = EnqueueOne(Job());
  PGconn* pg = PQconnectdb(database_.url().c_str());
  PQclear(PQexec(pg, "begin"));
  PQclear(PQexec(pg, absl::StrCat("select 1 from tenure.job where id = ", held.seq, " for update").c_str()));
  // Of a call only those are refused that wait for it, in turn.
  const GraphResult made = Enqueue({Job({held}), Job({free}), Job({}, {0}), Job({}, {1}), Job({held, free}), Job()});
  EXPECT_EQ(DetailsOf(made.jobs[0].status).reason, "JOB_LOCKED");
  EXPECT_EQ(DetailsOf(made.jobs[0].status).metadata["job_id"], held.ToString());
  EXPECT_EQ(DetailsOf(made.jobs[4].status).reason, "JOB_LOCKED");
  EXPECT_EQ(DetailsOf(made.jobs[2].status).reason, "DEPENDENCY_REFUSED");
  for (const size_t accepted : {1u, 3u, 5u}) EXPECT_EQ(made.jobs[accepted].status, absl::OkStatus());
  EXPECT_EQ(Sql("select count(*) from tenure.job"), "5") << "and what was refused has left nothing";
  const JobId waits = made.jobs[1].id;
  PQclear(PQexec(pg, "rollback"));
  // Who waits is held: it is looked at again.
  PQclear(PQexec(pg, "begin"));
  PQclear(PQexec(pg, absl::StrCat("select 1 from tenure.job where id = ", waits.seq, " for update").c_str()));
  const GatesByQueue names = Complete(free);
  const ResolveResult looked = Look(names);
  EXPECT_EQ(looked.released, 0);
  EXPECT_EQ(looked.again, (std::vector<int64_t>{free.seq}));
  PQclear(PQexec(pg, "rollback"));
  PQfinish(pg);
  EXPECT_EQ(Look(names).released, 1);
}

TEST_F(DependencyStoreTest, AKeyThatSomebodyHoldsRefusesOnlyTheJobsThatHaveIt) {
  const JobId first = EnqueueOne(Job());
  PGconn* pg = PQconnectdb(database_.url().c_str());
  PQclear(PQexec(pg, "begin"));
  PQclear(PQexec(pg,
                 "select tenure.enqueue('q', 'k', unique_key => 'u'), tenure.enqueue('q', 'k', idempotency_key => "
                 "'i')"));
  std::vector<GraphJob> graph{Job({first}), Job({first}), Job({first}), Job({}, {1}), Job({}, {2})};
  graph[0].job.unique =
      Unique{"u", false, {JobState::kReady, JobState::kBlocked}, absl::ZeroDuration(), OnConflict::kReturn};
  graph[1].job.idempotency_key = "i";
  const GraphResult made = Enqueue(graph);
  EXPECT_EQ(DetailsOf(made.jobs[0].status).reason, "KEY_BUSY");
  EXPECT_EQ(DetailsOf(made.jobs[0].status).metadata["field"], "unique.key");
  EXPECT_EQ(DetailsOf(made.jobs[1].status).reason, "KEY_BUSY");
  EXPECT_EQ(DetailsOf(made.jobs[1].status).metadata["field"], "idempotency_key");
  EXPECT_EQ(DetailsOf(made.jobs[3].status).reason, "DEPENDENCY_REFUSED");
  EXPECT_EQ(made.jobs[2].status, absl::OkStatus());
  EXPECT_EQ(made.jobs[4].status, absl::OkStatus());
  PQclear(PQexec(pg, "rollback"));
  PQfinish(pg);
  for (const EnqueueOutcome& outcome : Enqueue(graph).jobs) EXPECT_EQ(outcome.status, absl::OkStatus());
}

// More wait than one look reads.
TEST_F(DependencyStoreTest, ThousandsMayWaitForOne) {
  const JobId first = EnqueueOne(Job());
  for (int call = 0; call < 3; ++call) {
    const GraphResult made = Enqueue(std::vector<GraphJob>(800, Job({first})));
    ASSERT_TRUE(made.jobs[799].status.ok()) << made.jobs[799].status;
  }
  GatesByQueue names = Complete(first);
  int released = 0, looks = 0;
  for (bool more = true; more && looks < 10; ++looks) {
    const ResolveResult result = Look(names);
    released += result.released;
    more = !result.again.empty();
  }
  EXPECT_EQ(released, 2400);
  EXPECT_EQ(looks, 3);
  EXPECT_EQ(Rows(), "0");
}

}  // namespace
}  // namespace tenure::store
