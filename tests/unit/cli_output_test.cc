// Tables, JSON, error texts, JSON lines, batches and rates of the command line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/cli/enqueue_lines.h"
#include "client/cli/errors.h"
#include "client/cli/job_output.h"
#include "client/cli/output.h"
#include "client/cli/top_rates.h"
#include "client/cli/values.h"
#include "google/rpc/error_details.pb.h"
#include "tenure/v1/worker_service.pb.h"

namespace tenure::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(CliTable, AlignsColumnsAndKeepsThemAligned) {
  Table table({{"NAME"}, {"COUNT", true}, {"NOTE"}});
  table.AddRow({"a", "1", "x"});
  table.AddRow({"longer-name", "1000000", ""});
  std::ostringstream out;
  table.Print(out);
  table.AddRow({"b", "22", "y"});
  table.Print(out);
  EXPECT_EQ(out.str(),
            "NAME           COUNT  NOTE\n"
            "a                  1  x\n"
            "longer-name  1000000  -\n"
            "b                 22  y\n");
}

TEST(CliTable, PrintsNothingWithoutRows) {
  Table table({{"NAME"}});
  std::ostringstream out;
  table.Print(out);
  EXPECT_EQ(out.str(), "");
}

TEST(CliTable, CountsCharactersRatherThanBytes) { EXPECT_EQ(DisplayWidth("caf\xc3\xa9"), 4u); }

TEST(CliFields, LeaveOutWhatIsEmpty) {
  std::ostringstream out;
  PrintFields(out, {{"queue", "mail"}, {"tenant", ""}, {"effect key", "x"}});
  EXPECT_EQ(out.str(), "  queue       mail\n  effect key  x\n");
}

TEST(CliJson, IsTheProtosMappingOnOneLineWithEveryKey) {
  v1::ClaimedJob claimed;
  claimed.set_lease_token("t");
  claimed.mutable_job()->set_id("7-1-1");
  claimed.mutable_job()->set_state(v1::JOB_STATE_LEASED);
  claimed.mutable_job()->mutable_payload()->set_text("a\nb");
  *claimed.mutable_lease_duration() = ToProto(absl::Seconds(2));
  const std::string json = ToJson(claimed);
  EXPECT_THAT(json, HasSubstr("\"leaseToken\":\"t\""));
  EXPECT_THAT(json, HasSubstr("\"leaseDuration\":\"2s\""));
  EXPECT_THAT(json, HasSubstr("\"state\":\"JOB_STATE_LEASED\""));
  EXPECT_THAT(json, HasSubstr("\"text\":\"a\\nb\""));
  EXPECT_THAT(json, HasSubstr("\"failures\":0"));
  EXPECT_THAT(json, Not(HasSubstr("\n")));
}

absl::Status StatusWithDetails(absl::StatusCode code, const std::string& reason, absl::Duration retry_after) {
  google::rpc::ErrorInfo info;
  info.set_reason(reason);
  info.set_domain("tenure");
  (*info.mutable_metadata())["field"] = "jobs[0].kind";
  google::rpc::RetryInfo retry;
  *retry.mutable_retry_delay() = ToProto(retry_after);
  google::rpc::Status details;
  details.add_details()->PackFrom(info);
  details.add_details()->PackFrom(retry);
  absl::Status status(code, "something is wrong");
  AttachDetails(status, details.SerializeAsString());
  return status;
}

TEST(CliErrors, ReadsGoogleRpcDetails) {
  const ErrorFacts facts =
      FactsOf(StatusWithDetails(absl::StatusCode::kResourceExhausted, "OVERLOADED", absl::Milliseconds(250)));
  EXPECT_EQ(facts.code, absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(facts.reason, "OVERLOADED");
  EXPECT_EQ(facts.metadata.at("field"), "jobs[0].kind");
  EXPECT_EQ(facts.retry_after, absl::Milliseconds(250));
  EXPECT_EQ(NextStep(facts, ""), "try again in 250ms");
}

TEST(CliErrors, NamesTheCodeWhereThereIsNoReason) {
  EXPECT_EQ(FactsOf(absl::InternalError("x")).reason, "INTERNAL");
  absl::Status garbage = absl::InternalError("x");
  AttachDetails(garbage, "not a message");
  EXPECT_EQ(FactsOf(garbage).reason, "INTERNAL");
  v1::ItemError item;
  item.set_code(5);
  EXPECT_EQ(FactsOf(item).reason, "NOT_FOUND");
}

v1::ItemError LeaseHeld() {
  v1::ItemError error;
  error.set_code(9);
  error.set_reason("LEASE_HELD");
  error.set_message("another worker holds the job");
  (*error.mutable_metadata())["holder"] = "w1";
  (*error.mutable_metadata())["until"] = ShowTime(absl::Now() + absl::Seconds(90));
  return error;
}

TEST(CliErrors, SayReasonMessageFactsAndNextStep) {
  std::ostringstream err;
  ErrorPrinter printer(err);
  printer.Print(FactsOf(LeaseHeld()), "job: 7-1-1", "7-1-1");
  EXPECT_THAT(err.str(),
              testing::StartsWith("error: LEASE_HELD: another worker holds the job\n  job: 7-1-1\n  holder: w1\n"));
  EXPECT_THAT(err.str(), testing::ContainsRegex("until: [-0-9T:.]+Z \\(in 1m2[89]s\\)"));
  EXPECT_THAT(err.str(), HasSubstr("tenurectl job cancel 7-1-1"));
}

TEST(CliErrors, SayNothingTwice) {
  v1::ItemError error;
  error.set_code(5);
  error.set_reason("QUEUE_NOT_FOUND");
  error.set_message("there is no queue \"mail\"");
  (*error.mutable_metadata())["queue"] = "mail";
  std::ostringstream queue;
  ErrorPrinter(queue).Print(FactsOf(error), "queue: mail");
  EXPECT_THAT(queue.str(),
              testing::StartsWith("error: QUEUE_NOT_FOUND: there is no queue \"mail\"\n  queue: mail\n  next: "));

  error.set_reason("INVALID_FIELD");
  error.set_message("queue: is required");
  error.mutable_metadata()->clear();
  (*error.mutable_metadata())["field"] = "queue";
  (*error.mutable_metadata())["rule"] = "is required";
  std::ostringstream field;
  ErrorPrinter(field).Print(FactsOf(error));
  EXPECT_EQ(field.str(), "error: INVALID_FIELD: queue: is required\n");

  // What the message leaves out is still said.
  error.set_message("something is wrong");
  std::ostringstream elsewhere;
  ErrorPrinter(elsewhere).Print(FactsOf(error));
  EXPECT_THAT(elsewhere.str(), HasSubstr("  field: queue\n  rule: is required\n"));
}

TEST(CliErrors, SayTheNextStepOnceForABatch) {
  std::ostringstream err;
  ErrorPrinter printer(err);
  for (const char* id : {"7-1-1", "7-1-2"}) printer.Print(FactsOf(LeaseHeld()), absl::StrCat("job: ", id), id);
  EXPECT_THAT(err.str(), HasSubstr("job: 7-1-2"));
  const size_t first = err.str().find("next:");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(err.str().find("next:", first + 1), std::string::npos);
}

TEST(CliErrors, TextFromOutsideCannotSteerTheTerminal) {
  v1::ItemError error = LeaseHeld();
  error.set_message("a\x1b[2Jb");
  (*error.mutable_metadata())["holder"] = "w\x1b[1m";
  std::ostringstream err;
  ErrorPrinter(err).Print(FactsOf(error));
  EXPECT_THAT(err.str(), Not(HasSubstr("\x1b")));
}

TEST(CliJobRow, SaysWhoHoldsItUntilWhenUnderWhichTokenNumber) {
  const absl::Time now = absl::FromUnixSeconds(1'800'000'000);
  v1::Job job;
  job.set_id("7-1-1");
  job.set_queue("mail");
  job.set_kind("send");
  job.set_state(v1::JOB_STATE_LEASED);
  job.mutable_lease()->set_worker_id("worker-a");
  job.mutable_lease()->set_token_number(42);
  *job.mutable_lease()->mutable_expire_time() = ToProto(now + absl::Seconds(12));
  *job.mutable_lease()->mutable_grant_time() = ToProto(now - absl::Seconds(18));
  Table table = MakeJobTable();
  AddJobRow(table, job, now);
  std::ostringstream out;
  table.Print(out);
  EXPECT_THAT(out.str(), testing::ContainsRegex("leased.*claimed 18s ago +worker-a +in 12s +42"));
  std::ostringstream fields;
  PrintJob(fields, job, now);
  EXPECT_THAT(fields.str(), HasSubstr("held by       worker-a"));
  EXPECT_THAT(fields.str(), HasSubstr("(in 12s)"));
  EXPECT_THAT(fields.str(), HasSubstr("token number  42"));
}

TEST(CliLines, TakeWhatTheyLeaveOutFromTheDefaults) {
  v1::JobSpec defaults;
  defaults.set_queue("mail");
  defaults.set_kind("send");
  defaults.set_priority(5);
  defaults.mutable_payload()->set_text("default");
  defaults.mutable_payload()->set_content_type("text/plain");
  *defaults.mutable_delay() = ToProto(absl::Seconds(5));
  defaults.set_idempotency_key("import");

  const auto plain = ParseLine("{}", 3, defaults);
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->queue(), "mail");
  EXPECT_EQ(plain->priority(), 5);
  EXPECT_EQ(plain->payload().text(), "default");
  EXPECT_EQ(plain->delay().seconds(), 5);
  EXPECT_EQ(plain->idempotency_key(), "import-3");

  const auto own = ParseLine(
      R"({"queue":"other","payload":{"data":"AAE="},"dueTime":"2030-01-01T00:00:00Z","idempotencyKey":"own"})", 4,
      defaults);
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ(own->queue(), "other");
  EXPECT_EQ(own->kind(), "send");
  EXPECT_EQ(own->payload().data(), std::string("\0\1", 2));
  EXPECT_EQ(own->payload().content_type(), "");
  EXPECT_FALSE(own->has_delay());
  EXPECT_TRUE(own->has_due_time());
  EXPECT_EQ(own->idempotency_key(), "own");
}

TEST(CliLines, SayWhatIsWrong) {
  const v1::JobSpec none;
  EXPECT_FALSE(ParseLine("{", 1, none).ok());
  EXPECT_FALSE(ParseLine("[1]", 1, none).ok());
  EXPECT_THAT(std::string(ParseLine(R"({"queue":"q","kind":"k","kin":1})", 1, none).status().message()),
              HasSubstr("kin"));
  EXPECT_THAT(std::string(ParseLine(R"({"kind":"k"})", 1, none).status().message()), HasSubstr("--queue"));
  EXPECT_THAT(std::string(ParseLine(R"({"queue":"q"})", 1, none).status().message()), HasSubstr("--kind"));
  EXPECT_THAT(std::string(ParseLine(R"({"queue":"q","kind":"k","payload":{"to":1}})", 1, none).status().message()),
              HasSubstr("a payload is written"));
  const auto message = [&](const char* line) { return std::string(ParseLine(line, 1, none).status().message()); };
  EXPECT_EQ(message(R"({"kind":3})"), "kind: invalid value 3; expected a string");
  EXPECT_EQ(message(R"({"priority":"high"})"), "priority: invalid value \"high\"; expected a whole number");
  EXPECT_EQ(message(R"({"delay":"5x"})"), "delay: Illegal duration format; duration must end with 's'");
  EXPECT_THAT(message(R"({"payload":{"text":5}})"),
              testing::StartsWith("payload.text: invalid value 5; expected a string; a payload is written"));
}

TEST(CliLines, AreReadWithTheirNumbersAndBlankOnesSkipped) {
  std::istringstream in("\n{\"kind\":\"a\"}\n  \nbad\n{\"kind\":\"b\"}");
  v1::JobSpec defaults;
  defaults.set_queue("q");
  LineReader reader(in, defaults);
  ASSERT_TRUE(reader.Next());
  EXPECT_EQ(reader.line(), 2);
  EXPECT_EQ(reader.spec()->kind(), "a");
  ASSERT_TRUE(reader.Next());
  EXPECT_EQ(reader.line(), 4);
  EXPECT_FALSE(reader.spec().ok());
  ASSERT_TRUE(reader.Next());
  EXPECT_EQ(reader.line(), 5);
  EXPECT_FALSE(reader.Next());
}

TEST(CliBatch, EndsAtAThousandJobsOrThreeMebibytes) {
  v1::JobSpec small;
  small.set_kind("k");
  EnqueueBatch many;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(many.HasRoomFor(small)) << i;
    many.Add(small, i + 1);
  }
  EXPECT_FALSE(many.HasRoomFor(small));

  v1::JobSpec big;
  big.mutable_payload()->set_data(std::string(1 << 20, 'x'));
  EnqueueBatch large;
  while (large.HasRoomFor(big)) large.Add(big, 1);
  EXPECT_EQ(large.request.jobs_size(), 2);
  EXPECT_LT(large.request.ByteSizeLong(), 4u << 20);

  v1::JobSpec huge;
  huge.mutable_payload()->set_data(std::string(5 << 20, 'x'));
  EXPECT_TRUE(EnqueueBatch().HasRoomFor(huge)) << "the daemon refuses it by name; the client must not loop";
}

v1::Queue QueueWith(const std::string& name, int64_t enqueued, int64_t completed, int64_t ready) {
  v1::Queue queue;
  queue.set_name(name);
  queue.mutable_stats()->set_enqueued_total(enqueued);
  queue.mutable_stats()->set_completed_total(completed);
  queue.mutable_stats()->set_ready(ready);
  return queue;
}

TEST(CliTop, RatesAreDifferencesOfTotals) {
  const absl::Time start = absl::FromUnixSeconds(1'800'000'000);
  QueueRates rates;
  rates.Update({QueueWith("a", 100, 50, 1)}, start);
  EXPECT_FALSE(rates.Of("a").has_value());
  rates.Update({QueueWith("a", 300, 40, 1), QueueWith("b", 9, 9, 5)}, start + absl::Seconds(2));
  ASSERT_TRUE(rates.Of("a").has_value());
  EXPECT_DOUBLE_EQ(rates.Of("a")->enqueued, 100);
  EXPECT_DOUBLE_EQ(rates.Of("a")->ended, 0) << "a total that went back is no negative rate";
  EXPECT_FALSE(rates.Of("b").has_value());
  EXPECT_FALSE(rates.Of("c").has_value());
}

TEST(CliTop, ShowsBusyQueuesFirst) {
  QueueRates rates;
  const std::vector<v1::Queue> queues = {QueueWith("idle", 1, 1, 0), QueueWith("busy", 10, 0, 10)};
  rates.Update(queues, absl::FromUnixSeconds(1));
  std::ostringstream out;
  PrintTop(out, queues, rates);
  EXPECT_LT(out.str().find("busy"), out.str().find("idle"));
  EXPECT_THAT(out.str(), HasSubstr("2 queues, 10 ready, 0 leased"));
}

}  // namespace
}  // namespace tenure::cli
