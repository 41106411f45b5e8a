// What a JSON request of a wrong shape is told: the whole path of the field, what was expected, what was sent.
#include "server/rpc/json_shape.h"

#include <gtest/gtest.h>

#include <string>

#include "google/protobuf/util/json_util.h"
#include "server/base/status.h"
#include "tenure/v1/job_service.pb.h"
#include "tenure/v1/queue_service.pb.h"
#include "tenure/v1/worker_service.pb.h"

namespace tenure::rpc {
namespace {

using google::protobuf::Descriptor;

// The message of the error; empty if the shape is right.
std::string Told(const std::string& json, const Descriptor* type) {
  const auto wrong = WrongShape(json, *type);
  if (!wrong) return "";
  EXPECT_EQ(DetailsOf(*wrong).reason, "INVALID_FIELD");
  const auto metadata = DetailsOf(*wrong).metadata;
  EXPECT_EQ(wrong->message(), metadata.at("field") + ": " + metadata.at("rule"));
  return std::string(wrong->message());
}

std::string Job(const std::string& fields) {
  return Told("{\"jobs\":[{\"queue\":\"q\",\"kind\":\"k\"},{" + fields + "}]}", v1::EnqueueRequest::descriptor());
}

TEST(JsonShape, NamesTheWholePathOfAScalar) {
  EXPECT_EQ(Job(R"("payload":{"text":5})"), "jobs[1].payload.text: expected a string, not a number");
  EXPECT_EQ(Job(R"("payload":{"text":{}})"), "jobs[1].payload.text: expected a string, not an object");
  EXPECT_EQ(Job(R"("payload":{"text":[1]})"), "jobs[1].payload.text: expected a string, not a list");
  EXPECT_EQ(Job(R"("payload":{"text":true})"), "jobs[1].payload.text: expected a string, not true");
  EXPECT_EQ(Job(R"("payload":{"data":"@@"})"), "jobs[1].payload.data: expected a string of base64, not \"@@\"");
  EXPECT_EQ(Job(R"("kind":[])"), "jobs[1].kind: expected a string, not a list");
  EXPECT_EQ(Job(R"("maxAttempts":true)"),
            "jobs[1].max_attempts: expected a whole number from -2147483648 to 2147483647, not true");
  EXPECT_EQ(Job(R"("priority":1.5)"),
            "jobs[1].priority: expected a whole number from -2147483648 to 2147483647, not a number");
  EXPECT_EQ(Job(R"("priority":99999999999)"),
            "jobs[1].priority: expected a whole number from -2147483648 to 2147483647, not a number");
  EXPECT_EQ(Job(R"("backoff":{"multiplier":"fast"})"), "jobs[1].backoff.multiplier: expected a number, not \"fast\"");
  EXPECT_EQ(Told(R"({"includePayloads":{}})", v1::ListRequest::descriptor()),
            "include_payloads: expected true or false, not an object");
  EXPECT_EQ(Told(R"({"kinds":["a",1]})", v1::ListRequest::descriptor()), "kinds[1]: expected a string, not a number");
}

TEST(JsonShape, NamesTheWholePathOfAMessageAndAList) {
  EXPECT_EQ(Job(R"("payload":"x")"), "jobs[1].payload: expected an object of data, text, contentType, not \"x\"");
  EXPECT_EQ(Job(R"("payload":[])"), "jobs[1].payload: expected an object of data, text, contentType, not a list");
  EXPECT_EQ(Told(R"({"jobs":["a"]})", v1::EnqueueRequest::descriptor()), "jobs[0]: expected an object, not \"a\"");
  EXPECT_EQ(Told(R"({"jobs":3})", v1::EnqueueRequest::descriptor()), "jobs: expected a list, not a number");
  EXPECT_EQ(Told(R"({"jobs":{"kind":3}})", v1::EnqueueRequest::descriptor()),
            "jobs[0].kind: expected a string, not a number");
  EXPECT_EQ(Told(R"({"items":[{"followUps":[{},{"payload":{"text":5}}]}]})", v1::CompleteRequest::descriptor()),
            "items[0].follow_ups[1].payload.text: expected a string, not a number");
  EXPECT_EQ(Told(R"({"items":[{"progress":{"fraction":"half"}}]})", v1::ExtendRequest::descriptor()),
            "items[0].progress.fraction: expected a number, not \"half\"");
  EXPECT_EQ(Told(R"({"queues":["a"]})", v1::ClaimRequest::descriptor()),
            "queues[0]: expected an object of queue, weight, not \"a\"");
}

TEST(JsonShape, RefusesWhatTheParserWouldBend) {
  EXPECT_EQ(Told(R"({"jobs":[null,{"kind":"k"}]})", v1::EnqueueRequest::descriptor()),
            "jobs[0]: expected an object, not null");
  EXPECT_EQ(Job(R"("expireTime":{})"),
            "jobs[1].expire_time: expected a time such as \"2026-11-29T12:00:00Z\", not an object");
  EXPECT_EQ(Job(R"("delay":{"seconds":"3"})"),
            "jobs[1].delay: expected a duration in seconds such as \"90s\" or \"0.5s\", not an object");
  EXPECT_EQ(Told(R"({"kinds":["a",null]})", v1::ListRequest::descriptor()), "kinds[1]: expected a string, not null");
  EXPECT_EQ(Told(R"({"includePayloads":"yes"})", v1::ListRequest::descriptor()),
            "include_payloads: expected true or false, not \"yes\"");
}

TEST(JsonShape, KnowsTheFormsOfDurationsTimesEnumsAndMasks) {
  EXPECT_EQ(Job(R"("delay":"5x")"),
            "jobs[1].delay: expected a duration in seconds such as \"90s\" or \"0.5s\", not \"5x\"");
  EXPECT_EQ(Job(R"("backoff":{"max":5})"),
            "jobs[1].backoff.max: expected a duration in seconds such as \"90s\" or \"0.5s\", not a number");
  EXPECT_EQ(Job(R"("dueTime":"tomorrow")"),
            "jobs[1].due_time: expected a time such as \"2026-11-29T12:00:00Z\", not \"tomorrow\"");
  EXPECT_EQ(Told(R"({"order":"RANDOM"})", v1::ClaimRequest::descriptor()),
            "order: expected one of QUEUE_ORDER_STRICT, QUEUE_ORDER_WEIGHTED, not \"RANDOM\"");
  EXPECT_EQ(
      Told(R"({"states":["LEASD"]})", v1::ListRequest::descriptor()).find("states[0]: expected one of JOB_STATE_"), 0u);
  EXPECT_EQ(Told(R"({"updateMask":["x"]})", v1::UpdateQueueRequest::descriptor()),
            "update_mask: expected a string of field names with commas between them, not a list");
}

TEST(JsonShape, NamesTheEntryOfAMapByItsKey) {
  EXPECT_EQ(Job(R"("headers":{"b":"x","a":1})"), "jobs[1].headers[a]: expected a string, not a number");
  EXPECT_EQ(Job(R"("headers":["a"])"), "jobs[1].headers: expected an object of strings, not a list");
}

TEST(JsonShape, NamesUnknownFieldsAndTwoOfAChoice) {
  EXPECT_EQ(Job(R"("kindd":"k")"), "jobs[1].kindd: is not a field of this request; check its spelling");
  EXPECT_EQ(Job(R"("payload":{"json":{}})"),
            "jobs[1].payload.json: is not a field of this request; check its spelling");
  EXPECT_EQ(Job(R"("payload":{"text":"","data":""})"), "jobs[1].payload: may hold only one of data and text");
  EXPECT_EQ(Job(R"("maxAttempts":1,"max_attempts":null)"),
            "jobs[1].max_attempts: stands twice in its object, also as maxAttempts; give it once");
}

TEST(JsonShape, FindsNothingInWhatTheParserTakes) {
  const std::string bodies[] = {
      R"({"jobs":[{"queue":"q","payload":{"text":"x"},"headers":{"a":"b"},"priority":"5","maxAttempts":3.0,"delay":"0.5s",
          "dueTime":"2030-01-01T00:00:00.5+01:00","backoff":{"initial":"1s","multiplier":2},"effect_key":"e","tenant":null}]})",
      R"({"jobs":{"kind":"k","delay":"3s"}})",
      R"({"jobs":[{"payload":{"data":"AAE_","contentType":"x/y"}}]})",
      R"({})",
  };
  for (const std::string& body : bodies) {
    v1::EnqueueRequest request;
    EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(body, &request).ok()) << body;
    EXPECT_EQ(Told(body, v1::EnqueueRequest::descriptor()), "") << body;
  }
  EXPECT_EQ(Told("[]", v1::EnqueueRequest::descriptor()), "") << "no object: the parser's words stand";
  EXPECT_EQ(Told("{\"jobs\":", v1::EnqueueRequest::descriptor()), "");
}

}  // namespace
}  // namespace tenure::rpc
