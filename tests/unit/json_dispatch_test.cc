// RPCs as JSON POSTs in Connect's unary form: the same handlers, the proto's JSON, Connect's error body. The engine is
// a fake: this is about the transport.
#include "server/rpc/json_dispatch.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "google/rpc/error_details.pb.h"
#include "server/base/status.h"
#include "tests/support/json_fixture.h"

namespace tenure::rpc {
namespace {

using google::protobuf::Struct;
using std::string;

constexpr char kToken[] = "7-20786-123456.3.20786.9f86d081884c7d65";

class JsonDispatch : public testing::JsonTest {};

TEST_F(JsonDispatch, EveryUnaryMethodOfEveryServiceIsServed) {
  int methods = 0;
  for (const char* name : {"JobService", "WorkerService", "QueueService", "ScheduleService", "TargetService",
                           "MoveService", "LimitService", "AdminService"}) {
    const auto* service =
        google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(absl::StrCat("tenure.v1.", name));
    ASSERT_NE(service, nullptr) << name;
    for (int i = 0; i < service->method_count(); ++i, ++methods) {
      EXPECT_TRUE(dispatcher_.Serves(absl::StrCat("/", service->full_name(), "/", service->method(i)->name())))
          << service->method(i)->full_name();
    }
  }
  EXPECT_EQ(static_cast<int>(methods_.methods().size()), methods);
  EXPECT_FALSE(dispatcher_.Serves("/tenure.v1.JobService/Nope"));
}

TEST_F(JsonDispatch, Case4_OneBadItemAmongAThousandLeavesTheOthers) {
  size_t enqueued = 0;
  engine_.enqueue = [&](std::vector<engine::EnqueueItem> items, auto, auto done) {
    enqueued = items.size();
    std::vector<store::EnqueueOutcome> outcomes(items.size());
    for (size_t i = 0; i < items.size(); ++i) outcomes[i].id = {7, 20786, std::stoll(items[i].job.kind)};
    done(std::move(outcomes));
  };
  string body = "{\"jobs\":[";
  for (int i = 0; i < 1000; ++i) {
    absl::StrAppend(&body, i ? "," : "", "{\"queue\":\"q\",\"kind\":\"", i == 500 ? "a b" : std::to_string(i), "\"}");
  }
  const JsonAnswer answer = Post("/tenure.v1.JobService/Enqueue", body + "]}");
  ASSERT_EQ(answer.http_status, 200) << answer.body;
  EXPECT_EQ(enqueued, 999u);
  const auto results = Json(answer.body).fields().at("results").list_value();
  ASSERT_EQ(results.values_size(), 1000);
  for (int i = 0; i < 1000; ++i) {
    const auto& result = results.values(i).struct_value().fields();
    if (i != 500) {
      EXPECT_EQ(result.at("jobId").string_value(), absl::StrCat("7-20786-", i));
      continue;
    }
    const auto& error = result.at("error").struct_value().fields();
    EXPECT_EQ(error.at("code").number_value(), 3);
    EXPECT_EQ(error.at("reason").string_value(), "INVALID_FIELD");
    EXPECT_EQ(error.at("metadata").struct_value().fields().at("field").string_value(), "jobs[500].kind");
  }
}

TEST_F(JsonDispatch, AnswersInLowerCamelCaseWithoutDefaults) {
  engine_.get = [](const store::JobId& id, auto, auto, auto done) {
    store::Job job;
    job.id = id;
    job.kind = "send";
    job.max_attempts = 20;
    job.payload = {"{\"to\":\"x\"}", "application/json"};
    job.created = job.due = job.updated = absl::FromUnixMillis(1'500);
    done(std::move(job));
    return nullptr;
  };
  const JsonAnswer answer = Post("/tenure.v1.JobService/Get", R"({"id":"7-20786-5"})");
  EXPECT_EQ(answer.http_status, 200);
  EXPECT_EQ(answer.body, R"({"job":{"id":"7-20786-5","queue":"queue7","kind":"send","state":"JOB_STATE_READY",)"
                         R"("payload":{"text":"{\"to\":\"x\"}","contentType":"application/json"},"maxAttempts":20,)"
                         R"("createTime":"1970-01-01T00:00:01.500Z","dueTime":"1970-01-01T00:00:01.500Z",)"
                         R"("updateTime":"1970-01-01T00:00:01.500Z"}})");
}

TEST_F(JsonDispatch, AnEmptyBodyIsAnEmptyRequest) {
  engine_.list_background = [](auto done) {
    done(std::vector<store::BackgroundRow>{{.name = "promoter", .holder = "a"}});
  };
  const JsonAnswer answer = Post("/tenure.v1.AdminService/ListBackgroundWorkers", "");
  EXPECT_EQ(answer.http_status, 200);
  EXPECT_NE(answer.body.find("\"promoter\""), string::npos) << answer.body;
}

struct Bad {
  const char* path;
  string body;
  const char* field;
};

TEST_F(JsonDispatch, BadJsonNamesTheField) {
  const string deep(5000, '[');
  // Takes a minute if it is parsed.
  const string lists = string(40'000, '[') + string(40'000, ']') + "}";
  const Bad rows[] = {
      {"/tenure.v1.JobService/Enqueue", R"({"jobs":[{"queue":"q","kindd":"k"}]})", "jobs[0].kindd"},
      {"/tenure.v1.JobService/Enqueue", R"({"job":[]})", "job"},
      {"/tenure.v1.JobService/Enqueue", R"({"jobs":[{"queue":"q","priority":"x"}]})", "jobs[0].priority"},
      {"/tenure.v1.JobService/Enqueue", R"({"jobs":[{"queue":"q","delay":"7"}]})", "jobs[0].delay"},
      {"/tenure.v1.JobService/Enqueue", R"({"jobs":[{"payload":{"data":"!!"}}]})", "jobs[0].payload.data"},
      {"/tenure.v1.JobService/Enqueue", R"({"jobs":[{"payload":{"data":"","text":""}}]})", "jobs[0].payload"},
      {"/tenure.v1.JobService/Enqueue", R"({"jobs":[{"payload":{"text":{}}}]})", "jobs[0].payload.text"},
      {"/tenure.v1.JobService/Enqueue", R"({"jobs":[{"headers":{"a":{}}}]})", "jobs[0].headers[a]"},
      {"/tenure.v1.WorkerService/Fail", "{\"items\":[{\"error\":{\"message\":\"\xFF\",\"type\":5}}]}",
       "items[0].error.type"},
      {"/tenure.v1.JobService/Enqueue", "{\"jobs\":", "body"},
      {"/tenure.v1.JobService/Enqueue", R"({"jobs":[null]})", "jobs[0]"},
      {"/tenure.v1.QueueService/CreateQueue", R"({"name":"q","settings":{"maxDepth":1,"max_depth":2}})",
       "settings.max_depth"},
      {"/tenure.v1.JobService/List", R"({"includePayloads":"yes"})", "include_payloads"},
      {"/tenure.v1.JobService/Enqueue", "[]", "body"},
      {"/tenure.v1.JobService/Enqueue", "null", "body"},
      {"/tenure.v1.JobService/Enqueue", "{\"jobs\":" + deep, "body"},
      {"/tenure.v1.JobService/Enqueue", "{\"jobs\":" + lists, "body"},
      {"/tenure.v1.JobService/Enqueue", R"({"jobs":[{"expireTime":{}}]})", "jobs[0].expire_time"},
      {"/tenure.v1.JobService/Enqueue", "{\"jobs\":[{\"kind\":\"\xFF\"}]}", "body"},
      {"/tenure.v1.JobService/Enqueue", "{}", "jobs"},
      {"/tenure.v1.JobService/Get", R"({"id":"7"})", "id"},
      {"/tenure.v1.JobService/Get", R"({"id":"7-1-1","wait":"61s"})", "wait"},
      {"/tenure.v1.JobService/List", R"({"pageToken":"zzz"})", "page_token"},
      {"/tenure.v1.JobService/Cancel", R"({})", "ids"},
      {"/tenure.v1.JobService/Retry", R"({})", "ids"},
      {"/tenure.v1.WorkerService/Claim", R"({"workerId":"w"})", "queues"},
      {"/tenure.v1.WorkerService/AwaitNotices", R"({"workerId":"w","seenIds":["x"]})", "seen_ids[0]"},
      {"/tenure.v1.WorkerService/Complete", R"({})", "items"},
      {"/tenure.v1.QueueService/CreateQueue", R"({"name":""})", "name"},
      {"/tenure.v1.QueueService/UpdateQueue", R"({"name":"q"})", "settings"},
      {"/tenure.v1.QueueService/ListQueues", R"({"pageSize":1001})", "page_size"},
      {"/tenure.v1.WorkerService/ListWorkers", R"({"pageSize":-1})", "page_size"},
  };
  for (const Bad& row : rows) {
    SCOPED_TRACE(row.body.substr(0, 80));
    const JsonAnswer answer = Post(row.path, row.body);
    EXPECT_EQ(answer.http_status, 400);
    EXPECT_EQ(Field(answer, "code"), "invalid_argument");
    EXPECT_EQ(Field(answer, "message").find(absl::StrCat(row.field, ": ")), 0u) << answer.body;
  }
}

// The parser would keep the last one and drop what the caller wrote first.
TEST_F(JsonDispatch, AKeyThatStandsTwiceIsRefusedByItsPath) {
  int asked = 0;
  engine_.enqueue = [&](auto items, auto, auto done) {
    ++asked;
    done(std::vector<store::EnqueueOutcome>(items.size()));
  };
  const std::pair<const char*, const char*> cases[] = {
      {R"({"jobs":[{"queue":"q","kind":"k"},{"queue":"q","kind":"k","queue":"other"}]})",
       "jobs[1].queue: stands twice"},
      {R"({"jobs":[{"queue":"q","kind":"k","headers":{"a":"1","b":"2","a":"3"}}]})", "a"},
      {R"({"jobs":[{"queue":"q","kind":"k"}],"jobs":[]})", "jobs: stands twice"},
      {R"({"jobs":[{"queue":"q","kind":"k","payload":{"text":"{\"a\":1,\"a\":2}"}}]})", ""},
      {R"({"jobs":[{"queue":"q","kind":"k"},{"queue":"q","kind":"k"}]})", ""},
  };
  for (const auto& [body, message] : cases) {
    const JsonAnswer answer = Post("/tenure.v1.JobService/Enqueue", body);
    EXPECT_EQ(answer.http_status, *message == '\0' ? 200 : 400) << body << answer.body;
    EXPECT_NE(answer.body.find(message), string::npos) << body << answer.body;
  }
  EXPECT_EQ(asked, 2);
}

TEST_F(JsonDispatch, ErrorsAreConnectErrors) {
  engine_.get_queue = [](string, auto done) {
    done(MakeError(absl::StatusCode::kFailedPrecondition, "LEASE_HELD", "say \"hi\"\n", {{"holder", "w"}},
                   absl::Milliseconds(1200)));
  };
  const JsonAnswer answer = Post("/tenure.v1.QueueService/GetQueue", R"({"name":"q"})");
  EXPECT_EQ(answer.http_status, 400);
  EXPECT_EQ(Field(answer, "code"), "failed_precondition");
  EXPECT_EQ(Field(answer, "message"), "say \"hi\"\n");
  ASSERT_EQ(answer.headers.size(), 1u);
  EXPECT_EQ(answer.headers[0].first, "Retry-After");
  EXPECT_EQ(answer.headers[0].second, "2");
  const Struct body = Json(answer.body);
  const auto& details = body.fields().at("details").list_value();
  ASSERT_EQ(details.values_size(), 2);
  const auto& info = details.values(0).struct_value().fields();
  EXPECT_EQ(info.at("type").string_value(), "google.rpc.ErrorInfo");
  EXPECT_EQ(info.at("debug").struct_value().fields().at("reason").string_value(), "LEASE_HELD");
  string value = info.at("value").string_value();
  EXPECT_EQ(value.find('='), string::npos);
  while (value.size() % 4 != 0) value.push_back('=');
  string bytes;
  ASSERT_TRUE(absl::Base64Unescape(value, &bytes));
  google::rpc::ErrorInfo decoded;
  ASSERT_TRUE(decoded.ParseFromString(bytes));
  EXPECT_EQ(decoded.reason(), "LEASE_HELD");
  EXPECT_EQ(decoded.domain(), "tenure");
  EXPECT_EQ(decoded.metadata().at("holder"), "w");
  EXPECT_EQ(
      details.values(1).struct_value().fields().at("debug").struct_value().fields().at("retryDelay").string_value(),
      "1.200s");
}

TEST_F(JsonDispatch, CodesAndHttpStatusesAreConnects) {
  const std::vector<std::tuple<absl::StatusCode, string, int>> rows = {
      {absl::StatusCode::kCancelled, "canceled", 499},
      {absl::StatusCode::kUnknown, "unknown", 500},
      {absl::StatusCode::kInvalidArgument, "invalid_argument", 400},
      {absl::StatusCode::kDeadlineExceeded, "deadline_exceeded", 504},
      {absl::StatusCode::kNotFound, "not_found", 404},
      {absl::StatusCode::kAlreadyExists, "already_exists", 409},
      {absl::StatusCode::kPermissionDenied, "permission_denied", 403},
      {absl::StatusCode::kResourceExhausted, "resource_exhausted", 429},
      {absl::StatusCode::kFailedPrecondition, "failed_precondition", 400},
      {absl::StatusCode::kAborted, "aborted", 409},
      {absl::StatusCode::kOutOfRange, "out_of_range", 400},
      {absl::StatusCode::kUnimplemented, "unimplemented", 501},
      {absl::StatusCode::kInternal, "internal", 500},
      {absl::StatusCode::kUnavailable, "unavailable", 503},
      {absl::StatusCode::kDataLoss, "data_loss", 500},
      {absl::StatusCode::kUnauthenticated, "unauthenticated", 401},
  };
  for (const auto& [code, name, http] : rows) {
    engine_.get_queue = [code = code](string, auto done) { done(absl::Status(code, "x")); };
    const JsonAnswer answer = Post("/tenure.v1.QueueService/GetQueue", R"({"name":"q"})");
    EXPECT_EQ(answer.http_status, http) << name;
    EXPECT_EQ(Field(answer, "code"), name);
  }
  const JsonAnswer unknown = Post("/tenure.v1.JobService/Nope\x01\xFF", "{}");
  EXPECT_EQ(unknown.http_status, 404);
  EXPECT_EQ(Field(unknown, "code"), "unimplemented");
}

TEST_F(JsonDispatch, Case1_AFailWithStrayBytesSettles) {
  std::vector<string> messages;
  engine_.fail = [&](std::vector<store::FailItem> items, auto, auto done) {
    for (const auto& item : items) messages.push_back(item.error.message);
    done(std::vector<engine::SettleAnswer>(items.size()));
  };
  for (const string& text : {string("a\\u0000b"),
                             string("a\xFF"
                                    "b"),
                             string("a\\udc80b")}) {
    const JsonAnswer answer =
        Post("/tenure.v1.WorkerService/Fail",
             absl::StrCat(R"({"items":[{"leaseToken":")", kToken, R"(","error":{"message":")", text, R"("}}]})"));
    EXPECT_EQ(answer.http_status, 200) << answer.body;
  }
  EXPECT_EQ(messages, (std::vector<string>(3,
                                           "a\xEF\xBF\xBD"
                                           "b")));
}

TEST_F(JsonDispatch, AMalformedTokenIsItsItemsError) {
  engine_.extend = [](std::vector<store::ExtendItem> items, auto, auto done) {
    std::vector<engine::ExtendAnswer> answers(items.size());
    for (auto& answer : answers) answer.remaining = absl::Seconds(30), answer.expires = absl::FromUnixSeconds(1);
    done(std::move(answers));
  };
  const JsonAnswer answer = Post("/tenure.v1.WorkerService/Extend",
                                 absl::StrCat(R"({"items":[{"leaseToken":"x"},{"leaseToken":")", kToken, R"("}]})"));
  EXPECT_EQ(answer.http_status, 200);
  const Struct body = Json(answer.body);
  const auto& results = body.fields().at("results").list_value();
  EXPECT_EQ(results.values(0).struct_value().fields().at("error").struct_value().fields().at("reason").string_value(),
            "INVALID_FIELD");
  EXPECT_EQ(results.values(1).struct_value().fields().at("leaseDuration").string_value(), "30s");
}

TEST_F(JsonDispatch, NamedClaimsTellPerId) {
  engine_.claim_named = [](engine::NamedClaimCall call, auto, auto done) {
    EXPECT_EQ(call.ids.size(), 2u);
    std::vector<store::NamedClaimOutcome> outcomes(2);
    outcomes[0].refusal = MakeError(absl::StatusCode::kFailedPrecondition, "LEASE_HELD", "held", {{"holder", "other"}});
    outcomes[1].job.emplace();
    outcomes[1].job->job.id = outcomes[1].job->token.job = call.ids[1];
    outcomes[1].job->lease = outcomes[1].job->remaining = call.lease;
    done(std::move(outcomes));
  };
  const JsonAnswer answer = Post("/tenure.v1.WorkerService/Claim",
                                 R"({"workerId":"w","jobIds":["7-1-1","zzz","7-1-3"],"leaseDuration":"5s"})");
  ASSERT_EQ(answer.http_status, 200) << answer.body;
  const Struct body = Json(answer.body);
  const auto& refusals = body.fields().at("refusals").list_value();
  ASSERT_EQ(refusals.values_size(), 2);
  EXPECT_EQ(refusals.values(0).struct_value().fields().at("jobId").string_value(), "zzz");
  EXPECT_EQ(refusals.values(1).struct_value().fields().at("jobId").string_value(), "7-1-1");
  EXPECT_EQ(refusals.values(1).struct_value().fields().at("error").struct_value().fields().at("reason").string_value(),
            "LEASE_HELD");
  const auto& jobs = body.fields().at("jobs").list_value();
  ASSERT_EQ(jobs.values_size(), 1);
  EXPECT_EQ(jobs.values(0).struct_value().fields().at("leaseDuration").string_value(), "5s");
}

TEST_F(JsonDispatch, ADrainNoticeIsGivenOnce) {
  engine_.await_notices = [](string, std::vector<int64_t> seen, auto, auto, auto done) {
    EXPECT_EQ(seen, (std::vector<int64_t>{5}));
    done(engine::NoticesAnswer{.notices = {}, .draining = true});
    return nullptr;
  };
  const JsonAnswer first = Post("/tenure.v1.WorkerService/AwaitNotices", R"({"workerId":"w","seenIds":["5"]})");
  EXPECT_EQ(first.body, R"({"notices":[{"id":"drain-3","type":"NOTICE_TYPE_DRAIN"}]})");
  const JsonAnswer again =
      Post("/tenure.v1.WorkerService/AwaitNotices", R"({"workerId":"w","seenIds":["5","drain-3","drain-9"]})");
  EXPECT_EQ(again.body, "{}");
}

TEST_F(JsonDispatch, APageOfLargePayloadsIsShorter) {
  std::vector<int> sizes;
  engine_.list = [&](string queue, store::ListFilter filter, auto done) {
    EXPECT_EQ(queue, "q");
    sizes.push_back(filter.page_size);
    store::ListPage page;
    for (int i = 0; i < filter.page_size; ++i) {
      store::Job& job = page.jobs.emplace_back();
      job.id = {7, 1, i};
      if (filter.include_payloads) job.payload = {string(400'000, 'x'), "text/plain"};
    }
    page.next_page_token = absl::StrCat("after ", filter.page_size);
    done(std::move(page));
  };
  const JsonAnswer large =
      Post("/tenure.v1.JobService/List", R"({"queue":"q","pageSize":1000,"includePayloads":true})");
  EXPECT_EQ(sizes, (std::vector<int>{50, 25, 12, 6}));
  EXPECT_LT(large.body.size(), 3u << 20);
  EXPECT_EQ(Json(large.body).fields().at("jobs").list_value().values_size(), 6);
  sizes.clear();
  const JsonAnswer small = Post("/tenure.v1.JobService/List", R"({"queue":"q","pageSize":1000})");
  EXPECT_EQ(sizes, (std::vector<int>{1000}));
  // The token continues after the page that was sent.
  sizes.clear();
  engine_.list = [&](string, store::ListFilter filter, auto done) {
    EXPECT_EQ(filter.page_token, "after 6");
    done(store::ListPage());
  };
  const JsonAnswer next =
      Post("/tenure.v1.JobService/List",
           absl::StrCat(R"({"queue":"q","includePayloads":true,"pageToken":")", Field(large, "nextPageToken"), "\"}"));
  EXPECT_EQ(next.body, "{}");
}

TEST_F(JsonDispatch, PagesGoOnWhereTheyEnded) {
  std::vector<string> afters;
  engine_.list_workers = [&](string after, int limit, auto done) {
    afters.push_back(after);
    EXPECT_EQ(limit, 3);
    std::vector<store::WorkerRow> rows;
    for (int i = after.empty() ? 0 : 2; i < 3; ++i) rows.push_back({.worker = absl::StrCat("w", i)});
    done(std::move(rows));
  };
  const JsonAnswer first = Post("/tenure.v1.WorkerService/ListWorkers", R"({"pageSize":2})");
  const string token = Field(first, "nextPageToken");
  EXPECT_EQ(Json(first.body).fields().at("workers").list_value().values_size(), 2);
  const JsonAnswer second =
      Post("/tenure.v1.WorkerService/ListWorkers", absl::StrCat(R"({"pageSize":2,"pageToken":")", token, "\"}"));
  EXPECT_EQ(afters, (std::vector<string>{"", "w1"}));
  EXPECT_EQ(Json(second.body).fields().count("nextPageToken"), 0u);
}

TEST_F(JsonDispatch, CallsAreCounted) {
  engine_.get_queue = [](string, auto done) { done(MakeError(absl::StatusCode::kNotFound, "QUEUE_NOT_FOUND", "x")); };
  Post("/tenure.v1.QueueService/GetQueue", R"({"name":"q"})");
  Post("/tenure.v1.QueueService/GetQueue", R"({"name":)");
  Post("/tenure.v1.QueueService/GetQueue", R"({"name":"q"})");
  const auto count = [&](const char* code) {
    return metrics_.rpcs.Add({{"method", "tenure.v1.QueueService/GetQueue"}, {"code", code}}).Value();
  };
  EXPECT_EQ(count("NOT_FOUND"), 2);
  EXPECT_EQ(count("INVALID_ARGUMENT"), 1);
  EXPECT_EQ(metrics_.rpc_duration.Add({{"method", "tenure.v1.QueueService/GetQueue"}}).Collect().histogram.sample_count,
            3u);
}

TEST_F(JsonDispatch, TheDoctorSpeaksAlsoWithoutADatabase) {
  engine_.inspect = [](auto done) {
    done(MakeError(absl::StatusCode::kUnavailable, "DATABASE_UNAVAILABLE", "connection refused"));
  };
  engine_.engine_options.replica_name = "host-1-abc";
  const JsonAnswer away = Post("/tenure.v1.AdminService/GetServerInfo", "{}");
  EXPECT_EQ(away.http_status, 200);
  EXPECT_NE(away.body.find("connection refused"), string::npos);
  EXPECT_NE(away.body.find("host-1-abc"), string::npos);

  engine_.inspect = [](auto done) {
    store::DatabaseInfo info;
    info.version = "13.9";
    info.version_number = 130009;
    info.role = "app";
    info.schema_version = 1;
    info.holders = {{.kind = "transaction", .age = absl::Minutes(6), .pid = 77, .name = "psql"},
                    {.kind = "replication slot", .transactions = 2'000'000, .name = "forgotten"}};
    info.clock_difference = -absl::Seconds(2);
    info.tables = {{"job", 200'000, 10}};
    info.indexes = {{"job_ready", "job", 200 << 20, 20 << 20}};
    info.synchronous_commit = false;
    done(info);
  };
  engine_.list_replicas = [](auto done) {
    done(std::vector<store::ReplicaRow>{{.id = 2, .name = "other"}, {.id = 3, .name = "me", .leads = {"promoter"}}});
  };
  const Struct body = Json(Post("/tenure.v1.AdminService/GetServerInfo", "").body);
  EXPECT_EQ(body.fields().at("server").struct_value().fields().at("name").string_value(), "me");
  std::map<string, string> severities;
  for (const auto& value : body.fields().at("findings").list_value().values()) {
    const auto& finding = value.struct_value().fields();
    severities[finding.at("check").string_value()] = finding.at("severity").string_value();
    EXPECT_EQ(finding.contains("advice"), finding.at("severity").string_value() != "SEVERITY_OK");
  }
  EXPECT_EQ(severities, (std::map<string, string>{{"PostgreSQL version", "SEVERITY_ERROR"},
                                                  {"role", "SEVERITY_OK"},
                                                  {"pooling mode", "SEVERITY_OK"},
                                                  {"schema version", "SEVERITY_OK"},
                                                  {"oldest transaction", "SEVERITY_WARNING"},
                                                  {"clock difference", "SEVERITY_WARNING"},
                                                  {"replication slot", "SEVERITY_WARNING"},
                                                  {"dead tuples", "SEVERITY_WARNING"},
                                                  {"index bloat", "SEVERITY_WARNING"},
                                                  {"synchronous commit", "SEVERITY_ERROR"}}));
}

}  // namespace
}  // namespace tenure::rpc
