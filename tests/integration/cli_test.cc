// tenurectl end to end: the real binary against a real daemon on a real
// PostgreSQL, as scripts and people use it. Order is made by long polls and
// fifos; nothing sleeps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/support/daemon.h"
#include "tests/support/tenurectl.h"

namespace tenure::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

// A named pipe: Read waits for a word, Write for a reader. What a command
// writes orders the test's steps.
class Fifo {
 public:
  Fifo() {
    static std::atomic<int> next{0};
    path_ = absl::StrCat(::testing::TempDir(), "/tenurectl_", getpid(), "_", next++, ".fifo");
    EXPECT_EQ(mkfifo(path_.c_str(), 0600), 0) << path_;
  }
  ~Fifo() { unlink(path_.c_str()); }

  const std::string &path() const { return path_; }
  std::string Read() const {
    std::ifstream in(path_);
    std::string word;
    in >> word;
    return word;
  }
  void Write(const std::string &word) const { std::ofstream(path_) << word << '\n'; }

 private:
  std::string path_;
};

class Cli : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { daemon_ = std::make_unique<TestDaemon>(); }
  static void TearDownTestSuite() { daemon_.reset(); }

  Cli() {
    // Its own even when a test is run again on the same database.
    queue_ = absl::StrCat("cli-", getpid(), "-", next_queue_++, "-",
                          ::testing::UnitTest::GetInstance()->current_test_info()->name());
  }

  static std::string server() { return daemon_->grpc_address(); }
  static CliRun Run(const std::string &arguments, const std::string &input = "") {
    return RunTenurectl(server(), arguments, input);
  }
  // Runs a call that must succeed, and answers its only line.
  static std::string Must(const std::string &arguments) {
    const CliRun run = Run(arguments);
    EXPECT_EQ(run.status, 0) << arguments << '\n' << run.err;
    const std::vector<std::string> lines = run.lines();
    return lines.empty() ? "" : lines[0];
  }
  std::string Enqueue(const std::string &options = "") {
    return Must(absl::StrCat("job enqueue -q ", queue_, " -k k ", options));
  }
  std::string Claim(const std::string &options = "") {
    return Must(absl::StrCat("claim -q ", queue_, " --wait 20s --token-only ", options));
  }

  // `tenurectl work` on this test's queue for as long as it lives.
  class Worker {
   public:
    Worker(const std::string &queue, const std::string &command, const std::string &options = "")
        : thread_([this, queue, command, options] {
            // exec: SIGTERM reaches tenurectl itself, and its exit status is
            // the script's.
            run_ = RunScript(
                server(), absl::StrCat("exec \"$TENURECTL\" work -q ", queue, " ", options, " --exec '", command, "'"),
                "", stop_.get_token());
          }) {}
    ~Worker() {
      if (thread_.joinable()) Stop();
    }

    void RequestStop() { stop_.request_stop(); }
    // SIGTERM, and what the worker did until its end.
    CliRun Stop() {
      stop_.request_stop();
      thread_.join();
      return run_;
    }

   private:
    std::stop_source stop_;
    CliRun run_;
    std::thread thread_;
  };

  std::string queue_;

 private:
  static inline int next_queue_ = 0;
  static inline std::unique_ptr<TestDaemon> daemon_;
};

TEST_F(Cli, AStaleTokenIsRefusedWithLeaseLostOnceAnotherClaimTookTheJob) {
  const std::string id = Enqueue();
  const CliRun run = RunScript(server(), absl::StrCat("Q=", queue_, R"sh(
    T=$(tenurectl claim -q $Q --lease 2s --json | sed -n 's/.*"leaseToken":"\([^"]*\)".*/\1/p')
    [ -n "$T" ] || exit 9
    T2=$(tenurectl claim -q $Q --wait 30s --token-only)
    [ -n "$T2" ] || exit 8
    tenurectl complete "$T"; echo "first $?"
    tenurectl complete "$T2" --result done; echo "second $?"
    tenurectl complete "$T2" --result done; echo "again $?"
  )sh"));
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.out,
            absl::StrCat("first 1\n", id, " completed\nsecond 0\n", id, " completed (settled so before)\nagain 0\n"));
  EXPECT_THAT(run.err, AllOf(StartsWith("error: LEASE_LOST: "), HasSubstr(absl::StrCat("job: ", id))));
  EXPECT_THAT(Run(absl::StrCat("job get ", id)).out,
              AllOf(ContainsRegex("state +completed"), ContainsRegex("result +done")));
}

TEST_F(Cli, AClaimByIdOfAHeldJobSaysHolderAndUntil) {
  const std::string id = Enqueue();
  const std::string token = Claim("--worker-id worker-a --lease 1m");
  const CliRun held = Run(absl::StrCat("claim --job ", id));
  EXPECT_EQ(held.status, 1);
  EXPECT_EQ(held.out, "");
  EXPECT_THAT(held.err, AllOf(StartsWith("error: LEASE_HELD: "), HasSubstr("holder: worker-a"),
                              ContainsRegex("until: [-0-9T:.]+.* \\(in [0-9]+s\\)")));
  EXPECT_THAT(Run(absl::StrCat("job list -q ", queue_)).out, ContainsRegex("leased .*worker-a +in [0-9]+s +[0-9]+"));
  EXPECT_EQ(Run(absl::StrCat("release ", token)).status, 0);
  EXPECT_THAT(Must(absl::StrCat("claim --token-only --job ", id)), StartsWith(id));
}

TEST_F(Cli, TheOtherVerbsSettleAndExtend) {
  const std::string id = Enqueue("--backoff-initial 1h");
  std::string token = Claim();
  EXPECT_EQ(Must(absl::StrCat("extend ", token, " --for 1m --progress 0.5 --message half")), id + " extended for 1m");
  EXPECT_THAT(Run(absl::StrCat("job get ", id)).out, ContainsRegex("progress +50 % half"));
  EXPECT_EQ(Must(absl::StrCat("release ", token)), id + " ready, due now");
  token = Claim();
  EXPECT_THAT(Must(absl::StrCat("snooze ", token, " --for 1h")), ContainsRegex("scheduled, due in (1h|59m)"));
  EXPECT_THAT(Must(absl::StrCat("job retry ", id)), HasSubstr("is due now"));
  token = Claim();
  EXPECT_THAT(Must(absl::StrCat("fail ", token, " --message 'disk full' --type io")),
              ContainsRegex("scheduled, due in (1h|59m)"));
  EXPECT_EQ(Run(absl::StrCat("job retry ", id)).status, 0);
  token = Claim();
  EXPECT_EQ(Must(absl::StrCat("fail ", token, " --message broken --discard")), id + " discarded");
  EXPECT_THAT(Run(absl::StrCat("job get ", id)).out,
              AllOf(ContainsRegex("failures +2 of"), ContainsRegex("releases +1"), ContainsRegex("snoozes +1"),
                    ContainsRegex("error +broken")));
  const std::string retried = Must(absl::StrCat("job retry ", id));
  EXPECT_THAT(retried, HasSubstr("runs again as "));
  EXPECT_THAT(Run(absl::StrCat("complete ", token)).err, HasSubstr("error: ALREADY_SETTLED"));
}

TEST_F(Cli, ACompleteEnqueuesItsFollowUps) {
  Enqueue();
  const std::string line =
      Must(absl::StrCat("complete ", Claim(), " --follow-up '{\"queue\":\"", queue_, "\",\"kind\":\"next\"}'"));
  EXPECT_THAT(line, ContainsRegex("completed, then [0-9-]+"));
  EXPECT_THAT(Run(absl::StrCat("job list -q ", queue_, " -k next --json")).lines(), SizeIs(1));
}

TEST_F(Cli, TwoAndAHalfThousandLinesAreEnqueuedListedAndCancelled) {
  std::vector<std::string> lines;
  for (int i = 1; i <= 2500; ++i) lines.push_back(i == 7 ? "{" : absl::StrCat("{\"payload\":{\"text\":\"", i, "\"}}"));
  const CliRun enqueued =
      Run(absl::StrCat("job enqueue -q ", queue_, " -k k --delay 1h --idempotency-key import --file -"),
          absl::StrJoin(lines, "\n"));
  EXPECT_EQ(enqueued.status, 1);
  EXPECT_THAT(enqueued.err, AllOf(HasSubstr("line 7: "), HasSubstr("enqueued 2499 jobs, 0 already there, 1 refused")));
  EXPECT_THAT(enqueued.lines(), SizeIs(2499));
  lines[6] = "{}";
  const CliRun repeated =
      Run(absl::StrCat("job enqueue -q ", queue_, " -k k --delay 1h --idempotency-key import --file -"),
          absl::StrJoin(lines, "\n"));
  EXPECT_EQ(repeated.status, 0) << repeated.err;
  EXPECT_THAT(repeated.err, HasSubstr("enqueued 1 jobs, 2499 already there, 0 refused"));
  EXPECT_THAT(Run(absl::StrCat("job list -q ", queue_, " --page-size 1000 --json")).lines(), SizeIs(2500));
  EXPECT_THAT(Run(absl::StrCat("job list -q ", queue_, " --limit 3 --json")).lines(), SizeIs(3));
  const CliRun cancelled =
      RunScript(server(), absl::StrCat("tenurectl job list -q ", queue_,
                                       " --page-size 1000 | tail -n +2 | cut -d' ' -f1 | "
                                       "xargs -n 2500 \"$TENURECTL\" job cancel | grep -c 'was scheduled'"));
  EXPECT_EQ(cancelled.out, "2500\n") << cancelled.err;
  EXPECT_EQ(Run(absl::StrCat("job list -q ", queue_)).out, "");
}

TEST_F(Cli, BadFieldsAreNamedAndTheOtherItemsGoOn) {
  const CliRun run = Run(absl::StrCat("job enqueue -q ", queue_, " -k k --file -"), "{\"priority\":1000}\n{}\n");
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.lines(), SizeIs(1));
  EXPECT_THAT(run.err, AllOf(HasSubstr("error: INVALID_FIELD: "), HasSubstr("priority"), HasSubstr("line: 1")));
  EXPECT_EQ(Run("complete nonsense").status, 1);
  EXPECT_EQ(Run("job get nonsense").status, 1);
}

TEST_F(Cli, QueuesAreMadeChangedPausedAndResumed) {
  EXPECT_EQ(Run(absl::StrCat("queue create ", queue_, " --max-attempts 3 --backoff-initial 2s --description 'a note'"))
                .status,
            0);
  const CliRun twice = Run(absl::StrCat("queue create ", queue_));
  EXPECT_EQ(twice.status, 1);
  EXPECT_THAT(twice.err, StartsWith("error: QUEUE_EXISTS: "));
  EXPECT_EQ(Run(absl::StrCat("queue update ", queue_, " --backoff-max 10m --reset max_attempts")).status, 0);
  EXPECT_THAT(
      Run(absl::StrCat("queue get ", queue_)).out,
      AllOf(ContainsRegex("max attempts +20"), ContainsRegex("backoff +2s x 2, at most 10m"), HasSubstr("a note")));
  EXPECT_EQ(Run(absl::StrCat("queue pause ", queue_)).status, 0);
  Enqueue();
  EXPECT_EQ(Run(absl::StrCat("claim -q ", queue_, " --fail-if-empty")).status, 1);
  EXPECT_THAT(Run(absl::StrCat("queue list --prefix ", queue_)).out, ContainsRegex("paused"));
  EXPECT_EQ(Run(absl::StrCat("queue resume ", queue_)).status, 0);
  EXPECT_NE(Claim(), "");
  EXPECT_THAT(Run("queue get cli-no-such-queue").err, StartsWith("error: QUEUE_NOT_FOUND: "));
}

TEST_F(Cli, OperatorsSeeWorkersReplicasBackgroundWorkersAndFindings) {
  Enqueue();
  Claim(absl::StrCat("--worker-id ", queue_));
  EXPECT_THAT(Run("worker list").out, ContainsRegex(absl::StrCat(queue_, " +1 .*", queue_)));
  EXPECT_THAT(Run("server list").out, ContainsRegex("serving"));
  EXPECT_THAT(Run("server list --json").lines(), SizeIs(1));
  // A worker is listed from its first term on, which begins a moment after the daemon does.
  std::string listed;
  for (int looks = 0; looks < 200 && !absl::StrContains(listed, "promoter"); ++looks)
    listed = Run("background list").out;
  EXPECT_THAT(listed, HasSubstr("promoter"));
  const CliRun doctor = Run("doctor");
  EXPECT_EQ(doctor.status, 0) << doctor.out << doctor.err;
  EXPECT_THAT(doctor.out, AllOf(HasSubstr("PostgreSQL"), HasSubstr("0 errors")));
  const CliRun top = Run(absl::StrCat("top --prefix ", queue_));
  EXPECT_EQ(top.status, 0) << top.err;
  EXPECT_THAT(top.out, HasSubstr(queue_));
}

// Nobody can be told of a kill -9; the lease runs out and the job runs again, elsewhere.
TEST_F(Cli, WhatAKilledWorkerHasStartedEndsWithIt) {
  Enqueue();
  const CliRun run = RunScript(server(), absl::StrCat("Q=", queue_, R"sh(
G=$(mktemp)
"$TENURECTL" work -q "$Q" --exec "echo \$\$ > $G; sleep 600; true" & W=$!
until [ -s "$G" ]; do sleep 0.05; done
kill -9 $W
for i in $(seq 200); do
  kill -0 -- "-$(cat "$G")" 2> /dev/null || { rm "$G"; exit 0; }
  sleep 0.05
done
echo "the command goes on" >&2
exit 7
)sh"));
  EXPECT_EQ(run.status, 0) << run.err;
}

TEST_F(Cli, WorkCompletesWithStdinAsPayloadAndStdoutAsResult) {
  const Worker worker(queue_,
                      "printf \"%s|%s|%s|%s|\" \"$TENURE_QUEUE\" "
                      "\"$TENURE_KIND\" \"$TENURE_ATTEMPT\" "
                      "\"$TENURE_EFFECT_KEY\"; cat; [ -n \"$TENURE_JOB_ID\" ]",
                      "--concurrency 2");
  const CliRun run = Run(absl::StrCat("job enqueue -q ", queue_,
                                      " -k greet --payload hello --effect-key "
                                      "effect --wait --wait-timeout 30s"));
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.out, absl::StrCat(queue_, "|greet|1|effect|hello"));
}

TEST_F(Cli, WorkRetriesStatus75WithTheTailOfStderr) {
  const Worker worker(queue_, "[ \"$TENURE_ATTEMPT\" -ge 2 ] && exit 0; echo busy >&2; exit 75");
  const std::string id = Enqueue("--backoff-initial 1ms");
  const CliRun run = Run(absl::StrCat("job get ", id, " --wait 30s"));
  EXPECT_THAT(run.out,
              AllOf(ContainsRegex("state +completed"), ContainsRegex("failures +1 of"), ContainsRegex("attempt +2"),
                    ContainsRegex("error +busy"), ContainsRegex("error type +exit status 75")));
}

TEST_F(Cli, WorkDiscardsStatus65) {
  Worker worker(queue_, "echo no such customer >&2; exit 65");
  const CliRun run = Run(absl::StrCat("job enqueue -q ", queue_, " -k k --wait --wait-timeout 30s"));
  EXPECT_EQ(run.status, 1);
  EXPECT_EQ(run.out, "");
  EXPECT_THAT(run.err, HasSubstr("error: NOT_COMPLETED: the job ended as "
                                 "discarded: no such customer"));
  const CliRun work = worker.Stop();
  EXPECT_EQ(work.status, 0) << work.err;
  EXPECT_THAT(work.out, HasSubstr(" k attempt 1: discarded\n"));
}

TEST_F(Cli, WorkRetriesAnyOtherStatusUntilTheBudgetIsSpent) {
  const Worker worker(queue_, "echo oops >&2; exit 3");
  const std::string id = Enqueue("--max-attempts 2 --backoff-initial 1ms");
  EXPECT_THAT(
      Run(absl::StrCat("job get ", id, " --wait 30s")).out,
      AllOf(ContainsRegex("state +discarded"), ContainsRegex("failures +2 of 2"), ContainsRegex("error +oops")));
}

TEST_F(Cli, WorkTerminatesTheCommandOfACancelledJob) {
  const Fifo started, ended;
  const Worker worker(
      queue_, absl::StrCat("trap \"echo term > ", ended.path(),
                           "; exit 1\" TERM; sleep 1000 > /dev/null 2>&1 & echo started > ", started.path(), "; wait"));
  const std::string id = Enqueue();
  EXPECT_EQ(started.Read(), "started");
  EXPECT_EQ(Must(absl::StrCat("job cancel ", id)), id + " cancelled (was leased)");
  EXPECT_EQ(ended.Read(), "term");
  EXPECT_THAT(Run(absl::StrCat("job get ", id)).out, ContainsRegex("state +cancelled"));
}

TEST_F(Cli, WorkLetsARunningCommandFinishWhenItIsTerminated) {
  const Fifo started, go_on;
  Worker worker(queue_,
                absl::StrCat("echo started > ", started.path(), "; read -r word < ", go_on.path(), "; echo \"$word\""));
  const std::string id = Enqueue();
  EXPECT_EQ(started.Read(), "started");
  worker.RequestStop();
  go_on.Write("finished");
  const CliRun work = worker.Stop();
  EXPECT_EQ(work.status, 0) << work.err;
  EXPECT_THAT(Run(absl::StrCat("job get ", id)).out,
              AllOf(ContainsRegex("state +completed"), ContainsRegex("result +finished")));
}

TEST_F(Cli, WorkPutsOffKindsThatItWasNotAskedFor) {
  const Worker worker(queue_, "true", "--kind mine");
  const std::string other = Must(absl::StrCat("job enqueue -q ", queue_, " -k other"));
  const CliRun run = Run(absl::StrCat("job enqueue -q ", queue_, " -k mine --wait --wait-timeout 30s"));
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(Run(absl::StrCat("job get ", other)).out,
              AllOf(ContainsRegex("state +scheduled"), ContainsRegex("snoozes +1")));
}

}  // namespace
}  // namespace tenure::testing
