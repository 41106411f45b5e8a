// That the demo's counting notices what it is there to notice: lost, uncompleted, unrecovered and foreign jobs.
#include "summary.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "nlohmann/json.hpp"
#include "records.h"

namespace tenure::demo {
namespace {

constexpr int64_t kMilli = 1'000'000;

// Four jobs. a: by the survivor. b: by the worker that is killed later. c: held by that one when it was killed at 100
// ms, then run by the survivor. d: claimed, but not started, by the killed one.
Observed GoodRun() {
  Observed observed;
  observed.accepted = {"a", "b", "c", "d"};
  observed.completed = {"d", "c", "b", "a"};
  observed.first_sent = 1 * kMilli;
  observed.killed_at = 100 * kMilli;
  observed.last_outcome_at = 2001 * kMilli;
  observed.killed_worker = {{Step::kStarted, "b", 1, 3 * kMilli, 1 * kMilli},
                            {Step::kEnded, "b", 1, 4 * kMilli, 1 * kMilli},
                            {Step::kSettled, "b", 1, 5 * kMilli, 0},
                            {Step::kStarted, "c", 1, 11 * kMilli, 1 * kMilli}};
  observed.surviving_worker = {{Step::kStarted, "a", 1, 2 * kMilli, 1 * kMilli},
                               {Step::kEnded, "a", 1, 3 * kMilli, 1 * kMilli},
                               {Step::kSettled, "a", 1, 6 * kMilli, 0},
                               {Step::kStarted, "c", 2, 1100 * kMilli, 1 * kMilli},
                               {Step::kEnded, "c", 2, 1101 * kMilli, 1 * kMilli},
                               {Step::kSettled, "c", 2, 1102 * kMilli, 0},
                               {Step::kStarted, "d", 2, 1600 * kMilli, 1 * kMilli},
                               {Step::kEnded, "d", 2, 1601 * kMilli, 1 * kMilli},
                               {Step::kSettled, "d", 2, 1602 * kMilli, 0}};
  return observed;
}

TEST(DemoSummary, CountsAGoodRun) {
  const Summary summary = Summarize(GoodRun());
  EXPECT_EQ(summary.enqueued, 4);
  EXPECT_EQ(summary.completed, 4);
  EXPECT_EQ(summary.recovered, 2);
  EXPECT_EQ(summary.lost, 0);
  EXPECT_EQ(summary.started_twice, 1);
  EXPECT_EQ(summary.never_accepted, 0);
  EXPECT_DOUBLE_EQ(summary.jobs_per_second, 2);           // 4 in 2 s.
  EXPECT_DOUBLE_EQ(summary.undisturbed_per_second, 400);  // a and b in 5 ms.
  EXPECT_DOUBLE_EQ(summary.recovery_seconds, 1.5);
  EXPECT_DOUBLE_EQ(summary.start_latency_ms_p50, 2);  // 1, 2, 10 and 1,599 ms.
  EXPECT_DOUBLE_EQ(summary.start_latency_ms_p99, 1599);
  EXPECT_TRUE(summary.Failures(4).empty());
  EXPECT_EQ(summary.Failures(5).size(), 1u);  // One was not accepted.
}

TEST(DemoSummary, AJobThatNoHandlerFinishedIsLostWhateverTheDaemonSays) {
  Observed observed = GoodRun();
  std::erase_if(observed.surviving_worker,
                [](const Record& record) { return record.job_id == "c" && record.step != Step::kStarted; });
  const Summary summary = Summarize(observed);
  EXPECT_EQ(summary.lost, 1);
  EXPECT_EQ(summary.completed, 4);
  ASSERT_EQ(summary.Failures(4).size(), 1u);
  EXPECT_EQ(summary.Failures(4)[0], "1 accepted jobs were run to the end by no handler");
}

TEST(DemoSummary, AJobThatTheDaemonDoesNotListAsCompletedIsAFailure) {
  Observed observed = GoodRun();
  observed.completed = {"a", "b", "c", "c", "z"};  // Neither a second line nor somebody else's job makes up for d.
  const Summary summary = Summarize(observed);
  EXPECT_EQ(summary.completed, 3);
  EXPECT_EQ(summary.lost, 0);
  EXPECT_EQ(summary.Failures(4).size(), 1u);
}

TEST(DemoSummary, AJobThatOnlyTheSurvivorHeldIsNotRecovered) {
  Observed observed = GoodRun();
  observed.killed_worker.resize(3);
  observed.surviving_worker = {
      {Step::kStarted, "c", 1, 50 * kMilli, 1 * kMilli}, {Step::kStarted, "c", 2, 150 * kMilli, 1 * kMilli},
      {Step::kEnded, "c", 2, 151 * kMilli, 1 * kMilli},  {Step::kSettled, "c", 2, 152 * kMilli, 0},
      {Step::kStarted, "d", 2, 90 * kMilli, 1 * kMilli}, {Step::kEnded, "d", 2, 91 * kMilli, 1 * kMilli},
      {Step::kSettled, "d", 2, 150 * kMilli, 0},         {Step::kStarted, "a", 1, 2 * kMilli, 1 * kMilli},
      {Step::kEnded, "a", 1, 3 * kMilli, 1 * kMilli},    {Step::kSettled, "a", 1, 4 * kMilli, 0}};
  const Summary summary = Summarize(observed);
  EXPECT_EQ(summary.recovered, 0);  // c lost the survivor's own lease; d came back before the kill.
  EXPECT_EQ(summary.lost, 0);
  EXPECT_EQ(summary.Failures(4).size(), 1u);
}

TEST(DemoSummary, AJobThatNobodyEnqueuedIsAFailure) {
  Observed observed = GoodRun();
  observed.accepted.pop_back();
  const Summary summary = Summarize(observed);
  EXPECT_EQ(summary.never_accepted, 1);
  EXPECT_EQ(summary.completed, 3);
  EXPECT_EQ(summary.Failures(3).size(), 1u);
}

TEST(DemoSummary, TheJsonHasExactlyTheSevenFigures) {
  const auto json = nlohmann::ordered_json::parse(ToJson(Summarize(GoodRun())));
  EXPECT_EQ(json.dump(), R"({"enqueued":4,"completed":4,"recovered":2,"lost":0,"jobs_per_second":2.0,)"
                         R"("start_latency_ms_p50":2.0,"start_latency_ms_p99":1599.0})");
  EXPECT_EQ(ToJson(Summarize(GoodRun())).find('\n'), std::string::npos);
}

TEST(DemoRecords, AreReadAsTheyAreWritten) {
  const std::string path = testing::TempDir() + "/demo_records_test." + std::to_string(getpid());
  RecordReader reader(path);
  ASSERT_TRUE(reader.ReadNew().ok());
  EXPECT_TRUE(reader.ReadNew()->empty());  // No file yet.
  const int64_t before = NowNanos();
  auto writer = RecordWriter::Open(path);
  ASSERT_TRUE(writer.ok()) << writer.status();
  writer->Write(Step::kStarted, "job-1", 2, 77);
  auto records = reader.ReadNew();
  ASSERT_TRUE(records.ok()) << records.status();
  ASSERT_EQ(records->size(), 1u);
  EXPECT_EQ((*records)[0].step, Step::kStarted);
  EXPECT_EQ((*records)[0].job_id, "job-1");
  EXPECT_EQ((*records)[0].attempt, 2);
  EXPECT_EQ((*records)[0].sent, 77);
  EXPECT_GE((*records)[0].now, before);

  // A line is read when it is complete, and only once.
  std::ofstream out(path, std::ios::app);
  out << "E job-1 2 10" << std::flush;
  EXPECT_TRUE(reader.ReadNew()->empty());
  out << "0 77\nnonsense\n" << std::flush;
  EXPECT_EQ(reader.ReadNew().status().code(), absl::StatusCode::kDataLoss);
  unlink(path.c_str());
}

}  // namespace
}  // namespace tenure::demo
