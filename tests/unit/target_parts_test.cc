// The parts that serve targets, one by one: URLs, addresses, signatures, the breaker, the HTTP client, what senders say
// and understand. Layer: tests.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "server/background/targets/address_guard.h"
#include "server/background/targets/aws_signer.h"
#include "server/background/targets/breaker.h"
#include "server/background/targets/digest.h"
#include "server/background/targets/event_json.h"
#include "server/background/targets/http_client.h"
#include "server/background/targets/notifier.h"
#include "server/background/targets/sender.h"
#include "server/base/status.h"
#include "tests/support/http_receiver.h"

namespace tenure::background::targets {
namespace {

using store::ParseTargetUrl;
using store::TargetPurpose;
using store::TargetScheme;
using testing::Answer;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::HttpReceiver;
using testing::Received;

// --- URLs ------------------------------------------------------------------------------------------------------------

TEST(TargetUrlTest, FormsOfEachPurpose) {
  const auto hook = ParseTargetUrl(TargetPurpose::kNotify, "https://example.com:8443/a?b=c", "", "");
  ASSERT_EQ(hook.status(), absl::OkStatus());
  EXPECT_EQ(hook->scheme, TargetScheme::kHttp);
  EXPECT_EQ(hook->url, "https://example.com:8443/a?b=c");
  const auto six = ParseTargetUrl(TargetPurpose::kNotify, "http://[2001:db8::1]:80/x", "", "");
  EXPECT_EQ(six.status(), absl::OkStatus());
  const auto sqs =
      ParseTargetUrl(TargetPurpose::kNotify, "sqs+https://sqs.eu-west-1.amazonaws.com/123456789012/jobs.fifo", "", "");
  ASSERT_EQ(sqs.status(), absl::OkStatus());
  EXPECT_EQ(sqs->scheme, TargetScheme::kSqs);
  EXPECT_EQ(sqs->region, "eu-west-1");
  EXPECT_EQ(sqs->url, "https://sqs.eu-west-1.amazonaws.com/123456789012/jobs.fifo");
  EXPECT_EQ(ParseTargetUrl(TargetPurpose::kNotify, "sqs+http://localhost:4566/0/q", "", "", "eu-north-1")->region,
            "eu-north-1");
  EXPECT_EQ(ParseTargetUrl(TargetPurpose::kNotify, "sqs+http://localhost:4566/0/q", "ap-south-1", "")->region,
            "ap-south-1");
  const auto directory = ParseTargetUrl(TargetPurpose::kEventLog, "file:///var/lib/events/", "", "");
  ASSERT_EQ(directory.status(), absl::OkStatus());
  EXPECT_EQ(directory->scheme, TargetScheme::kDirectory);
  EXPECT_EQ(directory->path, "/var/lib/events");
  const auto bucket = ParseTargetUrl(TargetPurpose::kExport, "s3://my-bucket/a/b/", "eu-west-1", "");
  ASSERT_EQ(bucket.status(), absl::OkStatus());
  EXPECT_EQ(bucket->url, "https://my-bucket.s3.eu-west-1.amazonaws.com");
  EXPECT_EQ(bucket->path, "a/b");
  EXPECT_EQ(ParseTargetUrl(TargetPurpose::kExport, "s3://my.bucket", "", "")->url,
            "https://s3.us-east-1.amazonaws.com/my.bucket");
  EXPECT_EQ(ParseTargetUrl(TargetPurpose::kExport, "s3://bucket/x", "", "http://minio:9000")->url,
            "http://minio:9000/bucket");
  EXPECT_EQ(ParseTargetUrl(TargetPurpose::kRelay, "https://peer:8471/", "", "")->url, "https://peer:8471");
}

TEST(TargetUrlTest, WhatIsRefusedNamesItsFieldAndRule) {
  struct Bad {
    TargetPurpose purpose;
    std::string url, region, endpoint, message;
  };
  const Bad rows[] = {
      {TargetPurpose::kNotify, "ftp://example.com", "", "", "url: must be https://host/path"},
      {TargetPurpose::kNotify, "file:///etc", "", "", "url: must be https"},
      {TargetPurpose::kNotify, "https://", "", "", "url: must name a host"},
      {TargetPurpose::kNotify, "https://host:0/", "", "", "port from 1 to 65535"},
      {TargetPurpose::kNotify, "https://host:99999/", "", "", "port from 1 to 65535"},
      {TargetPurpose::kNotify, "https://user:pass@host/", "", "", "must not hold a user name"},
      {TargetPurpose::kNotify, "https://ho st/", "", "", "printable ASCII"},
      {TargetPurpose::kNotify, "https://host/a#b", "", "", "fragment"},
      {TargetPurpose::kNotify, "https://[::1/", "", "", "must name a host"},
      {TargetPurpose::kNotify, absl::StrCat("https://host/", std::string(2048, 'a')), "", "", "at most 2048"},
      {TargetPurpose::kNotify, "https://host/", "eu-west-1", "", "region: goes with SQS and S3 alone"},
      {TargetPurpose::kNotify, "https://host/", "", "https://x", "endpoint: goes with an s3:// URL alone"},
      {TargetPurpose::kNotify, "sqs+https://sqs.eu-west-1.amazonaws.com/only", "", "", "must end in the account"},
      {TargetPurpose::kNotify, "sqs+https://sqs.eu-west-1.amazonaws.com/1/q", "EU", "", "region: may hold only"},
      {TargetPurpose::kRelay, "https://peer:1/path", "", "", "without a path"},
      {TargetPurpose::kRelay, "sqs+https://a/b/c", "", "", "url: must be https://host[:port]"},
      {TargetPurpose::kEventLog, "https://host/", "", "", "url: must be file:///directory or s3://"},
      {TargetPurpose::kEventLog, "file:///", "", "", "must name a directory"},
      {TargetPurpose::kEventLog, "file:///a/../b", "", "", "without . and .. segments"},
      {TargetPurpose::kEventLog, "file:///a", "eu-west-1", "", "region: goes with SQS and S3 alone"},
      {TargetPurpose::kEventLog, "s3://B/x", "", "", "must name a bucket"},
      {TargetPurpose::kEventLog, "s3://bucket/a/../b", "", "", "without . and .."},
      {TargetPurpose::kEventLog, "s3://bucket", "", "minio:9000", "endpoint: must be https://host[:port]"},
      {TargetPurpose::kEventLog, "s3://bucket", "", "https://minio:9000/x",
       "endpoint: must be https://host[:port] without a path"},
  };
  for (const Bad& bad : rows) {
    const auto url = ParseTargetUrl(bad.purpose, bad.url, bad.region, bad.endpoint);
    ASSERT_EQ(url.status().code(), absl::StatusCode::kInvalidArgument) << bad.url;
    EXPECT_THAT(std::string(url.status().message()), HasSubstr(bad.message)) << bad.url;
  }
}

// --- Addresses -------------------------------------------------------------------------------------------------------

bool Public(const std::string& text) {
  sockaddr_storage storage{};
  if (text.find(':') == std::string::npos) {
    auto* in = reinterpret_cast<sockaddr_in*>(&storage);
    in->sin_family = AF_INET;
    EXPECT_EQ(inet_pton(AF_INET, text.c_str(), &in->sin_addr), 1) << text;
  } else {
    auto* in = reinterpret_cast<sockaddr_in6*>(&storage);
    in->sin6_family = AF_INET6;
    EXPECT_EQ(inet_pton(AF_INET6, text.c_str(), &in->sin6_addr), 1) << text;
  }
  const auto* address = reinterpret_cast<const sockaddr*>(&storage);
  EXPECT_EQ(ToText(*address), text);
  return IsPublic(*address);
}

TEST(AddressGuardTest, OnlyPublicAddressesPass) {
  for (const char* text : {"8.8.8.8", "1.1.1.1", "172.15.0.1", "172.32.0.1", "100.63.0.1", "192.169.0.1",
                           "223.255.255.255", "2606:4700::1111", "2a00:1450::1", "64:ff9b::808:808"}) {
    EXPECT_TRUE(Public(text)) << text;
  }
  for (const char* text : {"127.0.0.1",
                           "127.255.0.1",
                           "10.1.2.3",
                           "172.16.0.1",
                           "172.31.255.255",
                           "192.168.1.1",
                           "169.254.169.254",
                           "0.0.0.0",
                           "100.64.0.1",
                           "224.0.0.1",
                           "239.1.1.1",
                           "255.255.255.255",
                           "192.0.2.1",
                           "198.18.0.1",
                           "::1",
                           "::",
                           "fe80::1",
                           "fc00::1",
                           "fd12::1",
                           "ff02::1",
                           "::ffff:127.0.0.1",
                           "::ffff:10.0.0.1",
                           "64:ff9b::a00:1",
                           "2002:a00:1::",
                           "2001::1",
                           "2001:db8::1"}) {
    EXPECT_FALSE(Public(text)) << text;
  }
}

// --- Signatures ------------------------------------------------------------------------------------------------------

TEST(DigestTest, KnownValues) {
  EXPECT_EQ(Hex(Sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  // RFC 4231, case 2.
  EXPECT_EQ(Hex(HmacSha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

TEST(DigestTest, AWebhooksSignatureIsThatOfTheSpecification) {
  // The example of the Standard Webhooks specification and its libraries.
  EXPECT_EQ(WebhookSignature("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330,
                             R"({"test": 2432232314})"),
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
  EXPECT_NE(WebhookSignature("a-plain-secret-of-text", "id", 1, "x"),
            WebhookSignature("another-secret-of-text", "id", 1, "x"));
}

TEST(AwsSignerTest, TheExamplesOfAmazonsDocumentation) {
  const AwsCredentials credentials{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "", ""};
  const absl::Time now = absl::FromCivil(absl::CivilSecond(2013, 5, 24), absl::UTCTimeZone());
  // "PUT Object" of the Signature Version 4 examples for S3, without its Date header.
  HttpRequest get;
  get.method = "GET";
  get.url = "https://examplebucket.s3.amazonaws.com/?max-keys=2&prefix=J";
  SignAws(credentials, "s3", "us-east-1", now, get);
  EXPECT_THAT(get.headers,
              Contains(HasSubstr("SignedHeaders=host;x-amz-content-sha256;x-amz-date, "
                                 "Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7")));
  HttpRequest list;
  list.method = "GET";
  list.url = "https://examplebucket.s3.amazonaws.com/?lifecycle=";
  SignAws(credentials, "s3", "us-east-1", now, list);
  EXPECT_THAT(list.headers,
              Contains(HasSubstr("Signature=fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543")));
}

TEST(AwsSignerTest, ASessionTokenIsSignedToo) {
  HttpRequest request;
  request.url = "https://sqs.eu-west-1.amazonaws.com/";
  SignAws({"id", "key", "token", ""}, "sqs", "eu-west-1", absl::UnixEpoch(), request);
  EXPECT_THAT(request.headers, Contains("x-amz-security-token: token"));
  EXPECT_THAT(request.headers, Contains(HasSubstr("x-amz-date;x-amz-security-token")));
  EXPECT_EQ(EncodePath("/a b/ü+~._-"), "/a%20b/%C3%BC%2B~._-");
}

// --- The breaker, and waits ------------------------------------------------------------------------------------------

TEST(BreakerTest, OpensAfterFailuresInARowAndTriesOneAtATime) {
  Breaker breaker;
  const Clock::TimePoint start = Clock::TimePoint() + std::chrono::hours(1);
  for (int i = 0; i < Breaker::kFailures - 1; ++i) breaker.Failed(start);
  breaker.Succeeded();
  for (int i = 0; i < Breaker::kFailures - 1; ++i) breaker.Failed(start);
  EXPECT_FALSE(breaker.open());
  EXPECT_EQ(breaker.Room(start, 3, 8), 5);
  breaker.Failed(start);
  EXPECT_TRUE(breaker.open());
  EXPECT_EQ(breaker.Room(start, 0, 8), 0);
  // Those that were under way when it opened make nothing longer.
  for (int i = 0; i < 7; ++i) breaker.Failed(start);
  EXPECT_EQ(breaker.retry_at() - start, absl::ToChronoNanoseconds(Breaker::kFirstPause));
  const Clock::TimePoint later = start + absl::ToChronoNanoseconds(Breaker::kFirstPause);
  EXPECT_EQ(breaker.Room(later, 1, 8), 0);
  EXPECT_EQ(breaker.Room(later, 0, 8), 1);
  breaker.Failed(later);
  EXPECT_EQ(breaker.Room(later + absl::ToChronoNanoseconds(Breaker::kFirstPause), 0, 8), 0) << "twice as long";
  for (int i = 0; i < 20; ++i) breaker.Failed(breaker.retry_at());
  const Clock::TimePoint last = breaker.retry_at();
  breaker.Failed(last);
  EXPECT_EQ(breaker.retry_at() - last, absl::ToChronoNanoseconds(Breaker::kLongestPause));
  breaker.Succeeded();
  EXPECT_EQ(breaker.Room(later, 0, 8), 8);
}

TEST(RetryAfterTest, DoublesToTheCapAndNeverShrinks) {
  NotifierOptions options;
  options.first_retry = absl::Seconds(1);
  options.longest_retry = absl::Hours(1);
  absl::Duration last;
  for (const int attempts : {1, 2, 3, 10, 64, 1000, 1 << 30}) {
    const absl::Duration wait = RetryAfter(options, attempts, "1-2-3.completed");
    EXPECT_GE(wait, last) << attempts;
    EXPECT_LE(wait, absl::Hours(1) * 1.1);
    last = wait;
  }
  EXPECT_GE(RetryAfter(options, 2, "x"), absl::Seconds(2));
  EXPECT_LE(RetryAfter(options, 2, "x"), absl::Seconds(2.2));
}

// --- HTTP ------------------------------------------------------------------------------------------------------------

absl::StatusOr<HttpResponse> Fetch(HttpClient& client, HttpRequest request) {
  return client.Fetch(std::move(request), {});
}

TEST(HttpClientTest, SendsWhatItIsTold) {
  HttpReceiver receiver([](const Received&) { return Answer{202, "thanks", {"X-Thing: 1"}}; });
  HttpClient client(/*allow_private=*/true);
  HttpRequest request;
  request.url = receiver.url("/path?x=1");
  request.headers = {"Content-Type: text/plain", "X-A: b"};
  request.body = std::string("bytes\0with", 10);
  const auto response = Fetch(client, request);
  ASSERT_EQ(response.status(), absl::OkStatus());
  EXPECT_EQ(response->status, 202);
  EXPECT_EQ(response->body, "thanks");
  EXPECT_EQ(response->headers.at("x-thing"), "1");
  const auto received = receiver.requests();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].method, "POST");
  EXPECT_EQ(received[0].target, "/path?x=1");
  EXPECT_EQ(received[0].body, request.body);
  EXPECT_EQ(received[0].headers.at("x-a"), "b");
  EXPECT_EQ(received[0].headers.count("expect"), 0u);
  for (const char* method : {"GET", "HEAD", "PUT", "DELETE"}) {
    request.method = method;
    EXPECT_EQ(Fetch(client, request)->status, 202) << method;
    EXPECT_EQ(receiver.requests().back().method, method);
  }
}

TEST(HttpClientTest, AnAddressThatIsNotPublicIsRefusedWhenItIsConnectedTo) {
  HttpReceiver receiver;
  HttpClient client(/*allow_private=*/false);
  // By number, and by a name that resolves to it: what counts is the address of the socket.
  for (const char* host :
       {"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "169.254.169.254", "2130706433"}) {
    HttpRequest request;
    request.url = absl::StrCat("http://", host, ":", receiver.port(), "/");
    const auto response = Fetch(client, request);
    ASSERT_FALSE(response.ok()) << host;
    EXPECT_EQ(DetailsOf(response.status()).reason, "TARGET_ADDRESS_REFUSED") << host << response.status();
  }
  EXPECT_TRUE(receiver.requests().empty());
}

TEST(HttpClientTest, RedirectsAreNotFollowedAndOtherProtocolsNotSpoken) {
  HttpReceiver other;
  HttpReceiver receiver([&](const Received&) { return Answer{302, "", {"Location: " + other.url()}}; });
  HttpClient client(true);
  HttpRequest request;
  request.url = receiver.url();
  EXPECT_EQ(Fetch(client, request)->status, 302);
  EXPECT_TRUE(other.requests().empty());
  for (const char* url : {"file:///etc/passwd", "ftp://127.0.0.1/", "gopher://127.0.0.1/"}) {
    request.url = url;
    EXPECT_EQ(Fetch(client, request).status().code(), absl::StatusCode::kUnavailable) << url;
  }
}

TEST(HttpClientTest, AnAnswerIsBoundedInTimeAndLength) {
  HttpReceiver receiver([](const Received&) { return Answer{200, std::string(1 << 20, 'x'), {}}; });
  HttpClient client(true);
  HttpRequest request;
  request.url = receiver.url();
  request.max_response = 1000;
  EXPECT_EQ(Fetch(client, request).status().code(), absl::StatusCode::kResourceExhausted);
  receiver.Hold();
  request.timeout = absl::Milliseconds(200);
  EXPECT_EQ(Fetch(client, request).status().code(), absl::StatusCode::kUnavailable);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(client.Fetch(request, stop.get_token()).status().code(), absl::StatusCode::kCancelled);
}

// --- Events and senders ----------------------------------------------------------------------------------------------

store::JobEvent Event() {
  store::JobEvent event;
  event.job = {1, 20786, 5};
  event.state = store::JobState::kDiscarded;
  event.queue = "mail";
  event.kind = "send";
  event.attempt = 3;
  event.failures = 2;
  event.created = absl::FromUnixMicros(1'800'000'000'000'001);
  event.ended = absl::FromUnixMicros(1'800'000'001'500'000);
  event.error_message = "boom \xff";
  event.error_type = "T";
  event.effect_key = "k";
  event.headers = {{"a", "b"}};
  return event;
}

TEST(EventJsonTest, IsOneLineOfTheSameBytesAlways) {
  const std::string text = EventJson(Event());
  EXPECT_EQ(text, EventJson(Event()));
  EXPECT_EQ(text.find('\n'), std::string::npos);
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["id"], "1-20786-5.discarded");
  EXPECT_EQ(json["type"], "discarded");
  EXPECT_EQ(json["time"], "2027-01-15T08:00:01.500000Z");
  EXPECT_EQ(json["job"]["id"], "1-20786-5");
  EXPECT_EQ(json["job"]["queue"], "mail");
  EXPECT_EQ(json["job"]["attempt"], 3);
  EXPECT_EQ(json["job"]["createTime"], "2027-01-15T08:00:00.000001Z");
  EXPECT_EQ(json["job"]["error"]["type"], "T");
  EXPECT_EQ(json["job"]["headers"]["a"], "b");
  EXPECT_FALSE(json["job"].contains("startTime"));
}

store::TargetSettings Settings(const std::string& url) {
  store::TargetSettings settings;
  settings.url = url;
  settings.secret = "sixteen-characters";
  return settings;
}

TEST(WebhookSenderTest, WhatIsAcceptedRefusedAndTrouble) {
  const auto sender = MakeSender(Settings("https://example.com/hook"), {});
  ASSERT_EQ(sender.status(), absl::OkStatus());
  const std::vector<Message> messages = {{"e1", "body"}};
  const HttpRequest request = (*sender)->Request(messages, absl::FromUnixSeconds(100));
  EXPECT_EQ(request.body, "body");
  EXPECT_THAT(request.headers,
              ElementsAre("Content-Type: application/json", "webhook-id: e1", "webhook-timestamp: 100",
                          "webhook-signature: " + WebhookSignature("sixteen-characters", "e1", 100, "body")));
  const auto judge = [&](int status, std::map<std::string, std::string> headers = {}) {
    HttpResponse response;
    response.status = status;
    response.headers = std::move(headers);
    return (*sender)->Judge(messages, response)[0];
  };
  for (const int status : {200, 201, 202, 204}) EXPECT_TRUE(judge(status).accepted) << status;
  for (const int status : {301, 302, 307, 400, 401, 404, 410, 422}) {
    EXPECT_FALSE(judge(status).accepted) << status;
    EXPECT_FALSE(judge(status).trouble) << status;
    EXPECT_THAT(judge(status).error, HasSubstr(absl::StrCat(status)));
  }
  for (const int status : {408, 429, 500, 502, 503}) EXPECT_TRUE(judge(status).trouble) << status;
  EXPECT_EQ(judge(503, {{"retry-after", "7"}}).retry_after, absl::Seconds(7));
  EXPECT_EQ(judge(503, {{"retry-after", "999999"}}).retry_after, absl::Hours(1));
  EXPECT_TRUE((*sender)->Judge(messages, absl::UnavailableError("no route"))[0].trouble);
}

TEST(SqsSenderTest, SendsBatchesAndReadsWhatBecameOfEachMessage) {
  Access access;
  EXPECT_EQ(MakeSender(Settings("sqs+https://sqs.eu-west-1.amazonaws.com/1/q"), access).status().code(),
            absl::StatusCode::kFailedPrecondition)
      << "no credentials";
  access.aws = {"id", "key", "", ""};
  const auto sender = MakeSender(Settings("sqs+https://sqs.eu-west-1.amazonaws.com/1/q.fifo"), access);
  ASSERT_EQ(sender.status(), absl::OkStatus());
  EXPECT_EQ((*sender)->batch(), 10u);
  const std::vector<Message> messages = {{"7-1-1.completed", "a"}, {"7-1-2.completed", "b"}, {"7-1-3.completed", "c"}};
  const HttpRequest request = (*sender)->Request(messages, absl::UnixEpoch());
  EXPECT_EQ(request.url, "https://sqs.eu-west-1.amazonaws.com/");
  EXPECT_THAT(request.headers, Contains("x-amz-target: AmazonSQS.SendMessageBatch"));
  EXPECT_THAT(request.headers, Contains(HasSubstr("/eu-west-1/sqs/aws4_request")));
  const auto body = nlohmann::json::parse(request.body);
  EXPECT_EQ(body["QueueUrl"], "https://sqs.eu-west-1.amazonaws.com/1/q.fifo");
  ASSERT_EQ(body["Entries"].size(), 3u);
  EXPECT_EQ(body["Entries"][1]["Id"], "1");
  EXPECT_EQ(body["Entries"][1]["MessageBody"], "b");
  EXPECT_EQ(body["Entries"][1]["MessageDeduplicationId"], "7-1-2.completed");
  EXPECT_EQ(body["Entries"][1]["MessageGroupId"], "queue-7");
  EXPECT_EQ(body["Entries"][1]["MessageAttributes"]["tenure-event-id"]["StringValue"], "7-1-2.completed");

  HttpResponse response;
  response.status = 200;
  response.body =
      R"({"Successful":[{"Id":"0"}],"Failed":[{"Id":"2","Code":"InvalidMessageContents","SenderFault":true}]})";
  auto verdicts = (*sender)->Judge(messages, response);
  EXPECT_TRUE(verdicts[0].accepted);
  EXPECT_TRUE(verdicts[1].trouble) << "not mentioned";
  EXPECT_FALSE(verdicts[2].accepted);
  EXPECT_FALSE(verdicts[2].trouble);
  EXPECT_THAT(verdicts[2].error, HasSubstr("InvalidMessageContents"));
  for (const char* odd :
       {"", "null", "[]", "{", R"({"Successful":{}})", R"({"Successful":[1]})", R"({"Failed":[{"Id":5}]})"}) {
    response.body = odd;
    for (const Verdict& verdict : (*sender)->Judge(messages, response)) EXPECT_FALSE(verdict.accepted) << odd;
  }
  response.status = 400;
  response.body = R"({"__type":"com.amazonaws.sqs#QueueDoesNotExist","message":"no such queue"})";
  verdicts = (*sender)->Judge(messages, response);
  EXPECT_TRUE(verdicts[0].trouble);
  EXPECT_THAT(verdicts[0].error, HasSubstr("QueueDoesNotExist no such queue"));
}

}  // namespace
}  // namespace tenure::background::targets
