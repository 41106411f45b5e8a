// The real tenurectl against a fake daemon: exit statuses, what goes to which stream, what is asked of the daemon and
// how often.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/cli/values.h"
#include "tests/support/tenurectl.h"
#include "tests/unit/cli_fake_daemon.h"

namespace tenure::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

class CliBinary : public ::testing::Test {
 protected:
  CliRun Run(const std::string& arguments, const std::string& input = "") {
    return RunTenurectl(daemon_.address(), arguments, input);
  }

  // Accepts all jobs and numbers them.
  void AcceptJobs() {
    daemon_.enqueue.handler = [this](const v1::EnqueueRequest& request, v1::EnqueueResponse& response) {
      for (const v1::JobSpec& job : request.jobs()) {
        v1::EnqueueResult* result = response.add_results();
        if (job.kind() == "refuse-me") {
          result->mutable_error()->set_code(3);
          result->mutable_error()->set_reason("INVALID_FIELD");
          result->mutable_error()->set_message("kind is not liked");
        } else {
          result->set_job_id(absl::StrCat("7-1-", ++accepted_));
        }
      }
      return grpc::Status::OK;
    };
  }

  FakeDaemon daemon_;
  int accepted_ = 0;
};

TEST_F(CliBinary, NobodyThereIsStatus3WithAHintHowToStartADaemon) {
  for (const char* command : {"queue list", "claim -q q", "job get 7-1-1", "doctor", "top", "work -q q -x true"}) {
    const CliRun run = RunTenurectl("127.0.0.1:1", command);
    EXPECT_EQ(run.status, 3) << command << run.err;
    EXPECT_EQ(run.out, "") << command;
    EXPECT_THAT(run.err,
                AllOf(StartsWith("error: UNREACHABLE: "), HasSubstr("127.0.0.1:1"), HasSubstr("tenured serve")));
  }
}

TEST_F(CliBinary, ADaemonThatDoesNotAnswerInTimeIsOutOfReach) {
  // The kernel accepts the connection; nobody ever speaks.
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(listen(listener, 5), 0);
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length), 0);
  const CliRun run = RunTenurectl(absl::StrCat("127.0.0.1:", ntohs(address.sin_port)), "queue list --timeout 200ms");
  EXPECT_EQ(run.status, 3);
  EXPECT_THAT(run.err, HasSubstr("did not answer within 200ms"));
  close(listener);
}

TEST_F(CliBinary, WrongUsageIsStatus2NamesTheOptionAndAsksNothing) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "subcommand"},
      {"frobnicate", "frobnicate"},
      {"claim -q q --lease 2x", "--lease: \"2x\" is not a duration"},
      {"claim", "needs --queue or --job"},
      {"claim -q q=0", "--queue: \"q=0\" has no weight"},
      {"claim -q q --max 1001", "--max"},
      {"claim -q q --job 7-1-1", "--job"},
      {"fail t --error x", "--error"},
      {"job list --limit 0", "--limit: must be a whole number of at least 1, not 0"},
      {"queue list --limit -1", "--limit: must be a whole number of at least 1, not -1"},
      {"snooze t", "--for"},
      {"job list --state running", "--state: \"running\" is not a state"},
      {"job list --created-after yesterday", "--created-after: \"yesterday\" is not a time"},
      {"job list --state ready --all", "--all"},
      {"job enqueue -q q -k k --header x", "--header: \"x\" is not a pair"},
      {"job enqueue -q q -k k --delay 1s --due now", "--due"},
      {"job enqueue -q q -k k --payload-file /no/such/file", "--payload-file: cannot read /no/such/file: No such file"},
      {"job enqueue -q q --file /no/such/file", "--file: cannot read /no/such/file: No such file"},
      {"job enqueue -q q -k k --unique ''", "--unique: must not be empty"},
      {"job enqueue -q q -k k --idempotency-key ''", "--idempotency-key: must not be empty"},
      {"job enqueue -q q -k k --group ''", "--group: must not be empty"},
      {"limit set q k --rate 0", "--rate: must be a number of starts a second, from 1 a day"},
      {"limit set q k --rate nan", "--rate: must be a number of starts a second, from 1 a day"},
      {"queue update q --fair-tenants maybe", "--fair-tenants: must be true or false, not \"maybe\""},
      {"limit set q k", "needs --max, --rate or --every; to take a limit away: tenurectl limit delete"},
      {"limit set q k --weight 3", "--weight: is for a tenant; add --tenant"},
      {"limit set q t --tenant --max 3", "--tenant: takes --weight alone"},
      {"limit set q k --burst 3", "--burst: needs --rate or --every"},
      {"job get --exact 7-1-1 --wait 1s", "--exact"},
      {"queue create q --dead-letter-rate 5", "--dead-letter-rate: needs --dead-letter-queue"},
      {"job enqueue -q q < /dev/null", "--kind"},
      {"job enqueue -q q -k k --wait-timeout 1s", "--wait"},
      {"complete t --follow-up '{}'", "--follow-up: no \"queue\""},
      {"queue update q", "at least one setting"},
      {"queue update q --reset everything", "--reset"},
      {"work -q q", "--exec"},
      {"top --interval 1ms", "--interval: must be at least 100ms"},
      {"queue list --timeout 0s", "--timeout"},
  };
  for (const auto& [arguments, expected] : cases) {
    const CliRun run = Run(arguments);
    EXPECT_EQ(run.status, 2) << arguments << '\n' << run.err;
    EXPECT_EQ(run.out, "") << arguments;
    EXPECT_THAT(run.err, AllOf(StartsWith("error: USAGE: "), HasSubstr(expected))) << arguments;
  }
  EXPECT_THAT(daemon_.claim.requests(), IsEmpty());
  EXPECT_THAT(daemon_.enqueue.requests(), IsEmpty());
}

TEST_F(CliBinary, HelpAndVersionAreNoErrors) {
  for (const char* command : {"--help", "job --help", "work --help", "--version", "version"}) {
    const CliRun run = Run(command);
    EXPECT_EQ(run.status, 0) << command;
    EXPECT_NE(run.out, "") << command;
    EXPECT_EQ(run.err, "") << command;
  }
}

TEST_F(CliBinary, ARefusedCallIsStatus1WithReasonAndNextStep) {
  daemon_.get.handler = [](const v1::GetRequest&, v1::GetResponse&) {
    return Refusal(grpc::StatusCode::NOT_FOUND, "JOB_NOT_FOUND", "there is no such job");
  };
  const CliRun run = Run("job get 7-1-1 7-1-2");
  EXPECT_EQ(run.status, 1);
  EXPECT_EQ(run.out, "");
  EXPECT_THAT(run.err, AllOf(StartsWith("error: JOB_NOT_FOUND: there is no such job\n  job: 7-1-1\n"),
                             HasSubstr("job: 7-1-2"), HasSubstr("next: ids are listed by: tenurectl job list --all")));
}

TEST_F(CliBinary, ADaemonWithoutItsDatabaseHasAnsweredAndIsNotOutOfReach) {
  daemon_.list_queues.handler = [](const v1::ListQueuesRequest&, v1::ListQueuesResponse&) {
    return Refusal(grpc::StatusCode::UNAVAILABLE, "DATABASE_UNAVAILABLE", "PostgreSQL is away");
  };
  const CliRun run = Run("queue list");
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("error: DATABASE_UNAVAILABLE"));
  EXPECT_THAT(daemon_.list_queues.requests(), SizeIs(3)) << "a read is tried again";
}

TEST_F(CliBinary, EnqueueAsksForWhatTheArgumentsSay) {
  AcceptJobs();
  const CliRun run = Run(
      "job enqueue -q mail -k send --payload '{\"to\":1}' --header a=b --header c=d=e --priority -5 --tenant t --delay "
      "1m30s "
      "--ttl 1h --max-attempts 3 --crash-budget 2 --backoff-initial 500ms --idempotency-key key --effect-key effect");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.out, "7-1-1\n");
  ASSERT_THAT(daemon_.enqueue.requests(), SizeIs(1));
  const v1::JobSpec job = daemon_.enqueue.requests()[0].jobs(0);
  EXPECT_EQ(job.queue(), "mail");
  EXPECT_EQ(job.kind(), "send");
  EXPECT_EQ(job.payload().text(), "{\"to\":1}");
  EXPECT_EQ(job.headers().at("a"), "b");
  EXPECT_EQ(job.headers().at("c"), "d=e");
  EXPECT_EQ(job.priority(), -5);
  EXPECT_EQ(job.tenant(), "t");
  EXPECT_EQ(job.delay().seconds(), 90);
  EXPECT_EQ(job.ttl().seconds(), 3600);
  EXPECT_EQ(job.max_attempts(), 3);
  EXPECT_EQ(job.crash_budget(), 2);
  EXPECT_EQ(job.backoff().initial().nanos(), 500'000'000);
  EXPECT_EQ(job.idempotency_key(), "key");
  EXPECT_EQ(job.effect_key(), "effect");

  // As `tenured serve` prints it: the payload needs no name.
  EXPECT_EQ(Run("job enqueue -q mail -k send '{\"to\":2}'").status, 0);
  EXPECT_EQ(daemon_.enqueue.requests().at(1).jobs(0).payload().text(), "{\"to\":2}");
}

TEST_F(CliBinary, EnqueueTakesPayloadBytesFromStdin) {
  AcceptJobs();
  const std::string bytes("\0\xff\n", 3);
  EXPECT_EQ(Run("job enqueue -q q -k k --payload-file - --content-type image/png", bytes).status, 0);
  const v1::Payload payload = daemon_.enqueue.requests().at(0).jobs(0).payload();
  EXPECT_EQ(payload.data(), bytes);
  EXPECT_EQ(payload.content_type(), "image/png");
}

TEST_F(CliBinary, EnqueueWithoutAKeyIsNeverRepeatedUnlessItWasNotBegun) {
  daemon_.enqueue.handler = [](const v1::EnqueueRequest&, v1::EnqueueResponse&) {
    return Refusal(grpc::StatusCode::UNAVAILABLE, "DATABASE_UNAVAILABLE", "in doubt");
  };
  EXPECT_EQ(Run("job enqueue -q q -k k").status, 1);
  EXPECT_THAT(daemon_.enqueue.requests(), SizeIs(1));
  EXPECT_EQ(Run("job enqueue -q q -k k --idempotency-key x").status, 1);
  EXPECT_THAT(daemon_.enqueue.requests(), SizeIs(1 + 3));
  daemon_.enqueue.handler = [](const v1::EnqueueRequest&, v1::EnqueueResponse&) {
    return Refusal(grpc::StatusCode::RESOURCE_EXHAUSTED, "OVERLOADED", "the line is full");
  };
  EXPECT_EQ(Run("job enqueue -q q -k k").status, 1);
  EXPECT_THAT(daemon_.enqueue.requests(), SizeIs(1 + 3 + 3));
}

TEST_F(CliBinary, EnqueueOfManyLinesGoesOnPastBadOnes) {
  AcceptJobs();
  std::string lines;
  for (int i = 1; i <= 2500; ++i) {
    if (i == 1100) {
      lines += "{not json\n";
    } else if (i == 2200) {
      lines += "{\"kind\":\"refuse-me\"}\n";
    } else {
      absl::StrAppend(&lines, "{\"payload\":{\"text\":\"", i, "\"}}\n");
    }
  }
  const CliRun run = Run("job enqueue -q q -k k --file -", lines);
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.lines(), SizeIs(2498));
  EXPECT_THAT(run.err, AllOf(HasSubstr("error: INVALID_LINE: line 1100: "),
                             HasSubstr("error: INVALID_FIELD: kind is not liked\n"), HasSubstr("line: 2200"),
                             HasSubstr("enqueued 2498 jobs, 0 already there, 2 refused")));
  const auto requests = daemon_.enqueue.requests();
  ASSERT_THAT(requests, SizeIs(3));
  EXPECT_EQ(requests[0].jobs_size(), 1000);
  EXPECT_EQ(requests[1].jobs_size(), 1000);
  EXPECT_EQ(requests[2].jobs_size(), 499);
  EXPECT_EQ(requests[2].jobs(498).payload().text(), "2500");
}

TEST_F(CliBinary, EnqueueReadsLinesFromStdinWhenNoKindIsGiven) {
  AcceptJobs();
  const CliRun run = Run("job enqueue --json", "{\"queue\":\"q\",\"kind\":\"k\"}\n");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.out, "{\"jobId\":\"7-1-1\",\"duplicate\":false,\"existing\":false}\n");
}

TEST_F(CliBinary, EnqueueAndWaitPrintsTheResultAlone) {
  AcceptJobs();
  daemon_.get.handler = [](const v1::GetRequest& request, v1::GetResponse& response) {
    response.mutable_job()->set_id(request.id());
    response.mutable_job()->set_state(v1::JOB_STATE_COMPLETED);
    response.mutable_job()->mutable_result()->set_text("the result");
    return grpc::Status::OK;
  };
  const CliRun run = Run("job enqueue -q q -k k --wait");
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.out, "the result");
  EXPECT_EQ(run.err, "job 7-1-1\n");
  EXPECT_LE(daemon_.get.requests().at(0).wait().seconds(), 2) << "then it looks whether anybody works the queue";
  EXPECT_THAT(daemon_.list_workers.requests(), IsEmpty());
}

// Jobs end once the command has looked for workers, so the tests wait for that alone.
TEST_F(CliBinary, EnqueueAndWaitSaysOnceThatNobodyWorksTheQueue) {
  AcceptJobs();
  const auto looks = std::make_shared<std::atomic<int>>(0);
  daemon_.get.handler = [looks](const v1::GetRequest& request, v1::GetResponse& response) {
    response.mutable_job()->set_id(request.id());
    response.mutable_job()->set_queue("mail");
    response.mutable_job()->set_state(*looks > 0 ? v1::JOB_STATE_COMPLETED : v1::JOB_STATE_READY);
    return grpc::Status::OK;
  };
  const auto live = std::make_shared<std::atomic<bool>>(false);
  daemon_.list_workers.handler = [looks, live](const v1::ListWorkersRequest& request,
                                               v1::ListWorkersResponse& response) {
    if (request.page_token().empty()) {
      v1::Worker* gone = response.add_workers();
      gone->add_queues("mail");
      *gone->mutable_last_claim_time() = cli::ToProto(absl::Now() - absl::Minutes(5));
      response.set_next_page_token("2");
      return grpc::Status::OK;
    }
    v1::Worker* other = response.add_workers();
    other->add_queues(*live ? "mail" : "post");
    *other->mutable_last_claim_time() = cli::ToProto(absl::Now() - absl::Seconds(50));
    ++*looks;
    return grpc::Status::OK;
  };
  const std::string warning = "warning: no worker polls queue mail; start one: tenurectl work -q mail --exec CMD\n";
  const CliRun none = Run("job enqueue -q mail -k k --file - --wait", "{}\n{}\n");
  EXPECT_EQ(none.status, 0) << none.err;
  EXPECT_THAT(none.err, HasSubstr(warning));
  EXPECT_EQ(none.err.find("warning", none.err.find("warning") + 1), std::string::npos) << none.err;
  EXPECT_EQ(*looks, 1);

  *looks = 0;
  *live = true;
  const CliRun worked = Run("job enqueue -q mail -k k --wait");
  EXPECT_EQ(worked.status, 0) << worked.err;
  EXPECT_THAT(worked.err, Not(HasSubstr("warning")));
  EXPECT_EQ(*looks, 1);
  // Enqueueing itself asks no such thing, nor does a wait that is over before.
  EXPECT_EQ(Run("job enqueue -q mail -k k --wait --wait-timeout 1s").status, 0);
  EXPECT_EQ(*looks, 1);
}

TEST_F(CliBinary, EnqueueAndWaitIsStatus1IfTheJobDidNotComplete) {
  AcceptJobs();
  daemon_.get.handler = [](const v1::GetRequest& request, v1::GetResponse& response) {
    response.mutable_job()->set_id(request.id());
    response.mutable_job()->set_state(v1::JOB_STATE_DISCARDED);
    response.mutable_job()->mutable_error()->set_message("no such customer");
    return grpc::Status::OK;
  };
  const CliRun run = Run("job enqueue -q q -k k --wait");
  EXPECT_EQ(run.status, 1);
  EXPECT_EQ(run.out, "");
  EXPECT_THAT(run.err, HasSubstr("error: NOT_COMPLETED: the job ended as discarded: no such customer\n  job: 7-1-1\n"));
  const CliRun several = Run("job enqueue -q q -k k --file - --wait", "{}\n{}\n");
  EXPECT_EQ(several.status, 1);
  EXPECT_THAT(several.out, ::testing::ContainsRegex("7-1-2 +discarded +0 +no such customer"));
}

TEST_F(CliBinary, ClaimPrintsOneObjectALineATokenOrATable) {
  daemon_.claim.handler = [](const v1::ClaimRequest& request, v1::ClaimResponse& response) {
    for (int i = 1; i <= request.max_jobs(); ++i) {
      v1::ClaimedJob* claimed = response.add_jobs();
      claimed->mutable_job()->set_id(absl::StrCat("7-1-", i));
      claimed->mutable_job()->set_kind("k");
      claimed->mutable_job()->mutable_lease()->set_token_number(9);
      claimed->set_lease_token(absl::StrCat("7-1-", i, ".9.1.secret"));
      *claimed->mutable_lease_duration() = request.lease_duration();
    }
    return grpc::Status::OK;
  };
  const CliRun json = Run("claim -q a -q b=2 --order weighted --lease 2s -n 2 --wait 1s --json");
  EXPECT_EQ(json.status, 0);
  ASSERT_THAT(json.lines(), SizeIs(2));
  EXPECT_THAT(json.lines()[0], HasSubstr("\"leaseToken\":\"7-1-1.9.1.secret\""));
  const v1::ClaimRequest request = daemon_.claim.requests().at(0);
  EXPECT_EQ(request.queues(1).queue(), "b");
  EXPECT_EQ(request.queues(1).weight(), 2);
  EXPECT_EQ(request.order(), v1::QUEUE_ORDER_WEIGHTED);
  EXPECT_EQ(request.lease_duration().seconds(), 2);
  EXPECT_GT(request.wait().nanos() + request.wait().seconds(), 0);
  EXPECT_NE(request.worker_id(), "");

  EXPECT_EQ(Run("claim -q a --token-only").out, "7-1-1.9.1.secret\n");
  EXPECT_THAT(Run("claim -q a --lease 2s").out, ::testing::ContainsRegex("7-1-1 .*in 2s +9 +7-1-1.9.1.secret\n"));
}

TEST_F(CliBinary, AnEmptyClaimIsStatus0UnlessAskedOtherwise) {
  daemon_.claim.handler = [](const v1::ClaimRequest&, v1::ClaimResponse&) { return grpc::Status::OK; };
  const CliRun run = Run("claim -q q --json");
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.out, "");
  EXPECT_EQ(run.err, "nothing to claim\n");
  EXPECT_EQ(Run("claim -q q --fail-if-empty").status, 1);
}

TEST_F(CliBinary, AClaimOfAHeldJobSaysHolderAndUntil) {
  daemon_.claim.handler = [](const v1::ClaimRequest& request, v1::ClaimResponse& response) {
    v1::ClaimRefusal* refusal = response.add_refusals();
    refusal->set_job_id(request.job_ids(0));
    v1::ItemError* error = refusal->mutable_error();
    error->set_code(9);
    error->set_reason("LEASE_HELD");
    error->set_message("a worker holds this job");
    (*error->mutable_metadata())["holder"] = "worker-a";
    (*error->mutable_metadata())["until"] = "2030-01-01T00:00:00Z";
    return grpc::Status::OK;
  };
  const CliRun run = Run("claim --job 7-1-1");
  EXPECT_EQ(run.status, 1);
  EXPECT_EQ(run.out, "");
  EXPECT_THAT(run.err, AllOf(StartsWith("error: LEASE_HELD: a worker holds this job\n  job: 7-1-1\n  holder: worker-a\n"
                                        "  until: 2030-01-01T00:00:00Z (in "),
                             HasSubstr("tenurectl job cancel 7-1-1")));
}

TEST_F(CliBinary, EachRefusedItemOfABatchIsPrintedWithItsId) {
  daemon_.complete.handler = [](const v1::CompleteRequest& request, v1::CompleteResponse& response) {
    for (const v1::CompleteItem& item : request.items()) {
      v1::SettleResult* result = response.add_results();
      if (item.lease_token() == "7-1-2.1.1.x") {
        result->mutable_error()->set_code(9);
        result->mutable_error()->set_reason("LEASE_LOST");
        result->mutable_error()->set_message("the token is stale");
      } else {
        result->set_state(v1::JOB_STATE_COMPLETED);
      }
    }
    return grpc::Status::OK;
  };
  const CliRun run = Run("complete 7-1-1.1.1.x 7-1-2.1.1.x 7-1-3.1.1.x --result done");
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.lines(), ElementsAre("7-1-1 completed", "7-1-3 completed"));
  EXPECT_THAT(run.err, StartsWith("error: LEASE_LOST: the token is stale\n  job: 7-1-2\n"));
  EXPECT_EQ(daemon_.complete.requests().at(0).items(2).result().text(), "done");
}

TEST_F(CliBinary, ListFollowsPagesToTheEndAndStopsAtTheLimit) {
  daemon_.list.handler = [](const v1::ListRequest& request, v1::ListResponse& response) {
    // The second page is empty; only an empty token is the end.
    const std::string& token = request.page_token();
    if (token != "2") {
      for (int i = 0; i < 3; ++i) response.add_jobs()->set_id(absl::StrCat("7-1-", token.empty() ? i : 10 + i));
    }
    if (token.empty()) response.set_next_page_token("2");
    if (token == "2") response.set_next_page_token("3");
    return grpc::Status::OK;
  };
  const CliRun all =
      Run("job list -q q -k a -k b --state ready,leased --header x=y --created-after -1h --page-size 3 --json");
  EXPECT_EQ(all.status, 0);
  EXPECT_THAT(all.lines(), SizeIs(6));
  const auto requests = daemon_.list.requests();
  ASSERT_THAT(requests, SizeIs(3));
  EXPECT_EQ(requests[0].queue(), "q");
  EXPECT_THAT(requests[0].kinds(), ElementsAre("a", "b"));
  EXPECT_THAT(requests[0].states(), ElementsAre(v1::JOB_STATE_READY, v1::JOB_STATE_LEASED));
  EXPECT_EQ(requests[0].headers().at("x"), "y");
  EXPECT_TRUE(requests[0].has_created_after());
  EXPECT_EQ(requests[2].page_token(), "3");
  EXPECT_THAT(Run("job list --limit 2 --json").lines(), SizeIs(2));
  EXPECT_THAT(Run("job list").lines(), SizeIs(1 + 6)) << "the header stands once";
  EXPECT_EQ(Run("job list --all").status, 0);
  EXPECT_EQ(daemon_.list.requests().back().states_size(), 9);
}

TEST_F(CliBinary, CancelPrintsWhatItWasBefore) {
  daemon_.cancel.handler = [](const v1::CancelRequest& request, v1::CancelResponse& response) {
    for (const std::string& id : request.ids()) {
      v1::CancelResult* result = response.add_results();
      result->set_id(id);
      result->set_previous_state(v1::JOB_STATE_LEASED);
    }
    return grpc::Status::OK;
  };
  const CliRun run = Run("job cancel 7-1-1 --reason 'not needed'");
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.out, "7-1-1 cancelled (was leased)\n");
  EXPECT_EQ(daemon_.cancel.requests().at(0).reason(), "not needed");
}

TEST_F(CliBinary, QueueUpdateKeepsTheBackoffsOtherParts) {
  daemon_.get_queue.handler = [](const v1::GetQueueRequest&, v1::GetQueueResponse& response) {
    response.mutable_queue()->mutable_settings()->mutable_backoff()->set_multiplier(3);
    return grpc::Status::OK;
  };
  daemon_.update_queue.handler = [](const v1::UpdateQueueRequest& request, v1::UpdateQueueResponse& response) {
    response.mutable_queue()->set_name(request.name());
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run("queue update q --backoff-max 10m --max-attempts 7 --reset description").status, 0);
  const v1::UpdateQueueRequest request = daemon_.update_queue.requests().at(0);
  EXPECT_THAT(request.update_mask().paths(), ElementsAre("max_attempts", "backoff", "description"));
  EXPECT_EQ(request.settings().max_attempts(), 7);
  EXPECT_EQ(request.settings().backoff().multiplier(), 3);
  EXPECT_EQ(request.settings().backoff().max().seconds(), 600);
}

TEST_F(CliBinary, TopIsOneSnapshotWhenNotOnATerminal) {
  daemon_.list_queues.handler = [](const v1::ListQueuesRequest&, v1::ListQueuesResponse& response) {
    v1::Queue* queue = response.add_queues();
    queue->set_name("mail");
    queue->set_paused(true);
    queue->mutable_stats()->set_ready(12);
    *queue->mutable_stats()->mutable_oldest_ready_age() = cli::ToProto(absl::Seconds(90));
    return grpc::Status::OK;
  };
  const CliRun run = Run("top");
  EXPECT_EQ(run.status, 0);
  EXPECT_THAT(run.out, ::testing::ContainsRegex("mail +paused +12 +1m30s"));
  EXPECT_THAT(run.out, Not(HasSubstr("\x1b")));
  EXPECT_THAT(daemon_.list_queues.requests(), SizeIs(1));
}

TEST_F(CliBinary, DoctorIsStatus1OnlyForAnError) {
  auto severity = std::make_shared<std::atomic<int>>(v1::Finding::SEVERITY_WARNING);
  daemon_.server_info.handler = [severity](const v1::GetServerInfoRequest&, v1::GetServerInfoResponse& response) {
    response.set_postgres_version("15.8");
    v1::Finding* finding = response.add_findings();
    finding->set_check("oldest transaction");
    finding->set_severity(static_cast<v1::Finding::Severity>(severity->load()));
    finding->set_message("open for 2 h");
    finding->set_advice("end it");
    return grpc::Status::OK;
  };
  const CliRun warning = Run("doctor");
  EXPECT_EQ(warning.status, 0) << warning.err;
  EXPECT_THAT(warning.out,
              AllOf(::testing::ContainsRegex("oldest transaction +WARNING +open for 2 h"),
                    HasSubstr("what to do: end it"), HasSubstr("15.8"), HasSubstr("0 errors, 1 warnings")));
  *severity = v1::Finding::SEVERITY_ERROR;
  EXPECT_EQ(Run("doctor").status, 1);
  EXPECT_EQ(Run("doctor --json").status, 1);
  EXPECT_THAT(Run("doctor --json").out, HasSubstr("\"postgresVersion\":\"15.8\""));
}

TEST_F(CliBinary, AFullDiskIsNotSilent) {
  daemon_.list_queues.handler = [](const v1::ListQueuesRequest&, v1::ListQueuesResponse& response) {
    response.add_queues()->set_name("mail");
    return grpc::Status::OK;
  };
  const CliRun run = Run("queue list > /dev/full");
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("cannot write to standard output"));
}

}  // namespace
}  // namespace tenure::testing
