// Child processes of `tenurectl work`, and what their end means for the job. The order of events is fixed by pipes and
// by what the children write, never by waiting.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <stop_token>
#include <string>
#include <thread>
#include <variant>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/cli/child_process.h"
#include "client/cli/work_outcome.h"

namespace tenure::cli {
namespace {

using ::testing::HasSubstr;

class CliChild : public testing::Test {
 protected:
  CliChild() { signal(SIGPIPE, SIG_IGN); }

  static ChildResult Run(const std::string& command, const std::string& input = "", std::stop_token stop = {}) {
    ChildSpec spec;
    spec.command = command;
    spec.input = input;
    return RunSpec(spec, std::move(stop));
  }

  static ChildResult RunSpec(const ChildSpec& spec, std::stop_token stop = {}) {
    absl::StatusOr<ChildResult> result = RunChild(spec, std::move(stop));
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : ChildResult();
  }

  // Runs a command that says through a fifo when it is ready, and stops it then.
  ChildResult RunAndStop(const std::string& command, absl::Duration kill_grace) {
    const std::string fifo = absl::StrCat(testing::TempDir(), "/cli_child_", getpid(), ".fifo");
    EXPECT_EQ(mkfifo(fifo.c_str(), 0600), 0);
    std::stop_source stop;
    std::thread stopper([&stop, &fifo] {
      std::ifstream ready(fifo);
      std::string word;
      ready >> word;
      stop.request_stop();
    });
    ChildSpec spec;
    spec.command = command;
    spec.environment = {{"READY", fifo}};
    spec.kill_grace = kill_grace;
    ChildResult result = RunSpec(spec, stop.get_token());
    stopper.join();
    unlink(fifo.c_str());
    return result;
  }
};

TEST_F(CliChild, GetsInputAndEnvironmentAndGivesOutput) {
  ChildSpec spec;
  spec.command = "printf '%s/%s:' \"$TENURE_JOB_ID\" \"$HOME\"; cat; echo to-stderr >&2; exit 3";
  spec.environment = {{"TENURE_JOB_ID", "7-1-1"}, {"HOME", "replaced"}};
  spec.input = std::string("a\0b", 3);
  const ChildResult result = RunSpec(spec);
  EXPECT_EQ(result.exit_status, 3);
  EXPECT_EQ(result.signal, 0);
  EXPECT_EQ(result.output, std::string("7-1-1/replaced:a\0b", 18));
  EXPECT_EQ(result.error_tail, "to-stderr\n");
  EXPECT_FALSE(result.stopped);
}

TEST_F(CliChild, NeedNotReadItsInput) {
  const ChildResult result = Run("exit 0", std::string(10 << 20, 'x'));
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_EQ(result.output, "");
}

TEST_F(CliChild, MayWriteMoreThanAPipeHoldsWhileItReads) {
  const std::string input(3 << 20, 'y');
  ChildSpec spec;
  spec.command = "cat";
  spec.input = input;
  spec.max_output = input.size();
  const ChildResult result = RunSpec(spec);
  EXPECT_TRUE(result.output == input);
  EXPECT_FALSE(result.output_cut);
}

TEST_F(CliChild, OutputIsCutAndErrorsKeepTheirTail) {
  ChildSpec spec;
  spec.command = "head -c 100000 /dev/zero | tr '\\0' o; head -c 100000 /dev/zero | tr '\\0' e >&2; printf END >&2";
  spec.max_output = 1000;
  spec.error_tail = 10;
  const ChildResult result = RunSpec(spec);
  EXPECT_EQ(result.output.size(), 1000u);
  EXPECT_TRUE(result.output_cut);
  EXPECT_EQ(result.error_tail, "eeeeeeeEND");
}

TEST_F(CliChild, TellsWhatSignalKilledIt) { EXPECT_EQ(Run("kill -9 $$").signal, SIGKILL); }

TEST_F(CliChild, ACommandThatDoesNotExistIsAnExitStatus) {
  const ChildResult result = Run("/no/such/program");
  EXPECT_EQ(result.exit_status, 127);
  EXPECT_THAT(result.error_tail, HasSubstr("not found"));
}

TEST_F(CliChild, DoesNotWaitForWhatItLeavesBehind) {
  // The process left behind holds the pipes until the fifo is read, which happens after RunChild has returned.
  const std::string fifo = absl::StrCat(testing::TempDir(), "/cli_left_", getpid(), ".fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  ChildSpec spec;
  spec.command = "echo before; (echo left > \"$FIFO\") & exit 0";
  spec.environment = {{"FIFO", fifo}};
  const ChildResult result = RunSpec(spec);
  EXPECT_EQ(result.output, "before\n");
  std::ifstream left(fifo);
  std::string word;
  left >> word;
  EXPECT_EQ(word, "left");
  unlink(fifo.c_str());
}

TEST_F(CliChild, IsStoppedBySigtermAndMayFinish) {
  // The sleep holds no pipe: a shell's child that gets the signal before its exec loses it, and would be waited for.
  const ChildResult result =
      RunAndStop("trap 'echo stopping; exit 0' TERM; sleep 1000 > /dev/null 2>&1 & echo ready > \"$READY\"; wait",
                 absl::Seconds(30));
  EXPECT_TRUE(result.stopped);
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_EQ(result.output, "stopping\n");
}

TEST_F(CliChild, IsKilledAfterTheGraceWithAllItStarted) {
  // Both shells ignore SIGTERM; the inner one says who it is and stops itself.
  const ChildResult result = RunAndStop("trap '' TERM; sh -c 'echo $$; echo ready > \"$READY\"; kill -STOP $$'; exit 0",
                                        absl::Milliseconds(50));
  EXPECT_TRUE(result.stopped);
  EXPECT_EQ(result.signal, SIGKILL);
  int inner = 0;
  ASSERT_TRUE(absl::SimpleAtoi(result.output, &inner)) << result.output;
  // Gone already, or about to be: its pidfd tells when.
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, inner, 0));
  if (pidfd < 0) return;
  pollfd ended{pidfd, POLLIN, 0};
  EXPECT_EQ(poll(&ended, 1, 10'000), 1);
  close(pidfd);
}

TEST_F(CliChild, AStopBeforeTheStartStopsAtOnce) {
  std::stop_source stop;
  stop.request_stop();
  const ChildResult result = Run("exec sleep 1000", "", stop.get_token());
  EXPECT_TRUE(result.stopped);
  EXPECT_EQ(result.signal, SIGTERM);
}

ChildResult Ended(int exit_status, const std::string& output = "", const std::string& errors = "") {
  ChildResult result;
  result.exit_status = exit_status;
  result.output = output;
  result.error_tail = errors;
  return result;
}

TEST(CliOutcome, ZeroCompletesWithStdoutAsTheResult) {
  const client::Outcome text = OutcomeOf(Ended(0, "done\n"), "");
  ASSERT_TRUE(std::holds_alternative<client::Complete>(text));
  EXPECT_EQ(std::get<client::Complete>(text).result->data, "done\n");
  EXPECT_EQ(std::get<client::Complete>(text).result->content_type, "text/plain");
  EXPECT_EQ(std::get<client::Complete>(OutcomeOf(Ended(0, "\xff"), "")).result->content_type,
            "application/octet-stream");
  EXPECT_EQ(std::get<client::Complete>(OutcomeOf(Ended(0, "{}"), "application/json")).result->content_type,
            "application/json");
  EXPECT_FALSE(std::get<client::Complete>(OutcomeOf(Ended(0), "")).result.has_value());
}

TEST(CliOutcome, SixtyFiveDiscardsAndTheRestIsRetried) {
  const client::Outcome discarded = OutcomeOf(Ended(65, "ignored", "no such customer\n"), "");
  ASSERT_TRUE(std::holds_alternative<client::Discard>(discarded));
  EXPECT_EQ(std::get<client::Discard>(discarded).reason, "no such customer");
  for (const int status : {75, 1, 255}) {
    const client::Outcome failed = OutcomeOf(Ended(status, "", "busy"), "");
    ASSERT_TRUE(std::holds_alternative<client::Fail>(failed)) << status;
    EXPECT_EQ(std::get<client::Fail>(failed).message, "busy");
    EXPECT_EQ(std::get<client::Fail>(failed).type, absl::StrCat("exit status ", status));
  }
  EXPECT_EQ(std::get<client::Fail>(OutcomeOf(Ended(2), "")).message, "exit status 2, with nothing on stderr");
}

TEST(CliOutcome, ASignalOfItsOwnIsAFailure) {
  ChildResult result;
  result.signal = SIGSEGV;
  EXPECT_THAT(std::get<client::Fail>(OutcomeOf(result, "")).type, HasSubstr("signal 11"));
}

TEST(CliOutcome, TooMuchOutputIsAFailureThatSaysSo) {
  ChildResult result = Ended(0, std::string(1000, 'x'));
  result.output_cut = true;
  EXPECT_THAT(std::get<client::Fail>(OutcomeOf(result, "")).message, HasSubstr("more than 1000 bytes"));
}

TEST(CliOutcome, WhatWasStoppedIsCancelledUnlessItFinished) {
  ChildResult result = Ended(143);
  result.stopped = true;
  EXPECT_TRUE(std::holds_alternative<client::Cancelled>(OutcomeOf(result, "")));
  result.exit_status = 0;
  EXPECT_TRUE(std::holds_alternative<client::Complete>(OutcomeOf(result, "")));
}

}  // namespace
}  // namespace tenure::cli
