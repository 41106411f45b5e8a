// Requests to the engine's structs and answers back to protobuf; text that must always be storable; page tokens; repair
// of what does not parse. The limits are in conversion_limits_test.cc.
#include "server/rpc/conversion.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/base/status.h"
#include "server/rpc/page_token.h"
#include "server/rpc/text.h"
#include "server/rpc/wire_repair.h"

namespace tenure::rpc {
namespace {

using std::string;

constexpr char kToken[] = "7-20786-123456.3.20786.9f86d081884c7d65";

google::protobuf::Duration D(absl::Duration d) {
  google::protobuf::Duration out;
  ToProto(d, &out);
  return out;
}

string FieldOf(const absl::Status& status) { return DetailsOf(status).metadata["field"]; }

TEST(Conversion, AJobArrivesWhole) {
  v1::JobSpec spec;
  spec.set_queue("mail");
  spec.set_kind("send");
  spec.mutable_payload()->set_text("{}");
  (*spec.mutable_headers())["traceparent"] = "00-1";
  spec.set_priority(-7);
  spec.set_tenant("acme");
  *spec.mutable_delay() = D(absl::Milliseconds(1500));
  *spec.mutable_ttl() = D(absl::Hours(1));
  spec.set_max_attempts(3);
  spec.set_crash_budget(2);
  *spec.mutable_backoff()->mutable_initial() = D(absl::Hours(2));
  spec.set_idempotency_key("i");
  *spec.mutable_idempotency_retention() = D(absl::Hours(2));
  spec.set_effect_key("e");
  const auto item = JobFrom(Field("jobs", 0), spec, Limits());
  ASSERT_TRUE(item.ok()) << item.status();
  EXPECT_EQ(item->queue, "mail");
  const store::NewJob& job = item->job;
  EXPECT_EQ(job.kind, "send");
  EXPECT_EQ(job.payload.data, "{}");
  EXPECT_EQ(job.payload.content_type, "application/json");
  EXPECT_EQ(job.headers, (store::Headers{{"traceparent", "00-1"}}));
  EXPECT_EQ(job.priority, -7);
  EXPECT_EQ(job.tenant, "acme");
  EXPECT_FALSE(job.due);
  EXPECT_EQ(job.delay, absl::Milliseconds(1500));
  EXPECT_EQ(job.ttl, absl::Hours(1));
  EXPECT_EQ(job.max_attempts, 3);
  EXPECT_EQ(job.crash_budget, 2);
  EXPECT_EQ(job.backoff->initial_us, 7'200'000'000);
  EXPECT_EQ(job.backoff->max_us, 7'200'000'000) << "the default cap is raised to the initial delay";
  EXPECT_EQ(job.backoff->multiplier, 2);
  EXPECT_EQ(job.idempotency_key, "i");
  EXPECT_EQ(job.idempotency_retention, absl::Hours(2));
  EXPECT_EQ(job.effect_key, "e");

  spec.mutable_unique()->set_key("u");
  spec.mutable_unique()->set_scope(v1::UNIQUE_SCOPE_KIND);
  spec.mutable_unique()->set_on_conflict(v1::UNIQUE_CONFLICT_REPLACE_AND_RESCHEDULE);
  spec.set_queue("mail");
  spec.set_kind("send");
  const auto unique = JobFrom(Field("jobs", 0), spec, Limits());
  ASSERT_TRUE(unique.ok()) << unique.status();
  EXPECT_EQ(unique->job.unique->key, "u");
  EXPECT_TRUE(unique->job.unique->by_kind);
  EXPECT_EQ(unique->job.unique->on_conflict, store::OnConflict::kReplaceAndReschedule);
  EXPECT_EQ(
      unique->job.unique->states,
      (std::vector<store::JobState>{store::JobState::kScheduled, store::JobState::kBlocked, store::JobState::kReady}))
      << "what has been claimed cannot be changed";
  spec.mutable_unique()->set_key("u");
  spec.mutable_unique()->set_on_conflict(v1::UNIQUE_CONFLICT_UNSPECIFIED);
  spec.set_queue("mail");
  spec.set_kind("send");
  const auto kept = JobFrom(Field("jobs", 0), spec, Limits());
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->job.unique->on_conflict, store::OnConflict::kReturn);
  EXPECT_EQ(kept->job.unique->states.size(), 5u);

  v1::JobSpec bare;
  bare.set_queue("q");
  bare.set_kind("k");
  const auto plain = JobFrom(Field("jobs", 0), bare, Limits());
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->job.payload.content_type, "application/octet-stream");
  EXPECT_EQ(plain->job.max_attempts, std::nullopt);
  EXPECT_EQ(plain->job.idempotency_retention, absl::Hours(24));
}

// A worker's failure can always be recorded, whatever its error's text holds.
TEST(Conversion, Case1_ErrorTextsAreSanitisedNeverRefused) {
  v1::FailItem item;
  item.set_lease_token(kToken);
  item.mutable_error()->set_message(string("a\0b\xFFz", 5));
  item.mutable_error()->set_type(string(300, 't'));
  // 65,535 bytes and a character of two: the cut falls before it.
  item.mutable_error()->set_detail(string(65'535, 'd') + "\xC3\xA4");
  const auto fail = FailFrom(Field("items", 0), item);
  ASSERT_TRUE(fail.ok()) << fail.status();
  EXPECT_EQ(fail->error.message,
            "a\xEF\xBF\xBD"
            "b\xEF\xBF\xBDz");
  EXPECT_EQ(fail->error.type, string(255, 't'));
  EXPECT_EQ(fail->error.detail, string(65'535, 'd'));

  v1::ExtendItem extend;
  extend.set_lease_token(kToken);
  extend.mutable_progress()->set_message(string("\0", 1) + string(2000, 'm'));
  const auto extended = ExtendFrom(Field("items", 0), extend);
  ASSERT_TRUE(extended.ok());
  EXPECT_EQ(extended->progress->message.size(), 1024u);
  EXPECT_TRUE(IsStorable(extended->progress->message));
}

TEST(Conversion, PageTokensHoldForTheirFiltersOnly) {
  v1::ListRequest request;
  request.set_queue("q");
  (*request.mutable_headers())["a"] = "1";
  (*request.mutable_headers())["b"] = "2";
  EXPECT_EQ(EncodePageToken("", request), "") << "the end";
  const string token = EncodePageToken(string("position\0\xFF", 10), request);
  request.set_page_size(7);
  request.set_page_token(token);
  request.set_include_payloads(true);
  const auto position = DecodePageToken(token, request);
  ASSERT_TRUE(position.ok()) << position.status();
  EXPECT_EQ(*position, string("position\0\xFF", 10));
  EXPECT_EQ(DecodePageToken("", request).value(), "");
  for (const string& bad :
       {string("x"), string("????"), token.substr(1), token + "AAAA", EncodePageToken("p", v1::ListWorkersRequest())}) {
    EXPECT_EQ(FieldOf(DecodePageToken(bad, request).status()), "page_token") << bad;
  }
  request.set_holder("w");
  EXPECT_EQ(FieldOf(DecodePageToken(token, request).status()), "page_token");
}

TEST(Conversion, PayloadIsTextOnlyIfTextualAndValid) {
  const auto payload = [](string data, string type) {
    v1::Payload out;
    ToProto(store::Payload{std::move(data), std::move(type)}, &out);
    return out;
  };
  for (const char* type :
       {"text/plain", "TEXT/HTML; charset=utf-8", "application/json", "application/ld+json", " application/json ;x"}) {
    const v1::Payload out = payload("\xC3\xA4", type);
    EXPECT_EQ(out.content_case(), v1::Payload::kText) << type;
    EXPECT_EQ(out.text(), "\xC3\xA4");
    EXPECT_EQ(out.content_type(), type);
    EXPECT_EQ(payload("\xFF", type).content_case(), v1::Payload::kData) << type;
    EXPECT_EQ(payload("", type).content_case(), v1::Payload::kText);
  }
  for (const char* type : {"application/octet-stream", "image/png", "application/jsonx", ""}) {
    EXPECT_EQ(payload("abc", type).content_case(), v1::Payload::kData) << type;
  }
}

TEST(Conversion, AJobGoesOutWhole) {
  store::Job job;
  job.id = {7, 20786, 5};
  job.kind = "k";
  job.state = store::JobState::kLeased;
  job.payload = {"{}", "application/json"};
  job.priority = -3;
  job.attempt = 2;
  job.created = absl::FromUnixMillis(-1);  // Before the epoch: nanos stay positive.
  job.expires = absl::InfiniteFuture();
  job.lease = store::Lease{"w", absl::FromUnixSeconds(10), absl::FromUnixSeconds(5), 4};
  job.error = store::JobError{"m", "t", "d", 1, absl::FromUnixSeconds(3)};
  job.backoff = store::Backoff{};
  store::ClaimedJob claimed;
  claimed.job = job;
  claimed.token = {job.id, 4, 20786, 0x1234};
  claimed.lease = absl::Seconds(30);
  claimed.remaining = absl::Seconds(12);
  v1::ClaimedJob out;
  ToProto(std::move(claimed), "q", &out);
  EXPECT_EQ(out.lease_token(), "7-20786-5.4.20786.0000000000001234");
  EXPECT_EQ(out.lease_duration().seconds(), 12) << "a replay promises what remains";
  EXPECT_EQ(out.job().id(), "7-20786-5");
  EXPECT_EQ(out.job().queue(), "q");
  EXPECT_EQ(out.job().state(), v1::JOB_STATE_LEASED);
  EXPECT_EQ(out.job().payload().text(), "{}");
  EXPECT_EQ(out.job().create_time().seconds(), -1);
  EXPECT_EQ(out.job().create_time().nanos(), 999'000'000);
  EXPECT_FALSE(out.job().has_expire_time());
  EXPECT_EQ(out.job().lease().worker_id(), "w");
  EXPECT_EQ(out.job().lease().token_number(), 4);
  EXPECT_EQ(out.job().error().message(), "m");
  EXPECT_EQ(out.job().backoff().max().seconds(), 3600);

  store::Job bare;
  v1::Job listed;
  ToProto(std::move(bare), "q", &listed);
  EXPECT_FALSE(listed.has_payload()) << "it was not read";
}

TEST(Text, SanitiseCutsAtCharacters) {
  EXPECT_EQ(SanitizeText("abc", 3), "abc");
  EXPECT_EQ(SanitizeText("ab\xC3\xA4", 3), "ab");
  EXPECT_EQ(SanitizeText("\xF0\x9F\x98\x80x", 4), "\xF0\x9F\x98\x80");
  EXPECT_EQ(SanitizeText("\xED\xA0\x80", 100), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD") << "a surrogate";
  EXPECT_EQ(SanitizeText("\xC0\xAF", 100), "\xEF\xBF\xBD\xEF\xBF\xBD") << "an overlong form";
  EXPECT_EQ(SanitizeText("\xF4\x90\x80\x80", 3), "\xEF\xBF\xBD") << "above U+10FFFF, and cut";
  EXPECT_EQ(SanitizeText("\xE2\x82", 100), "\xEF\xBF\xBD\xEF\xBF\xBD") << "cut short";
  for (int byte = 0; byte < 256; ++byte) {
    const string text = "12345678" + string(1, static_cast<char>(byte)) + "z";
    const string clean = SanitizeText(text, 100);
    EXPECT_TRUE(IsStorable(clean)) << byte;
    EXPECT_EQ(SanitizeText(clean, 100), clean) << byte;
    EXPECT_EQ(IsUtf8(text), byte < 0x80) << byte;
  }
}

TEST(WireRepair, ABadByteCostsItsOwnFieldAlone) {
  v1::EnqueueRequest request;
  for (int i = 0; i < 3; ++i) {
    auto* spec = request.add_jobs();
    spec->set_queue("q");
    spec->set_kind("k");
    spec->set_priority(-5);
    *spec->mutable_delay() = D(absl::Seconds(3));
    spec->mutable_backoff()->set_multiplier(1.5);
    spec->mutable_payload()->set_data("\xFF\xFE");
  }
  (*request.mutable_jobs(1)->mutable_headers())["h"] = "x_y";
  request.mutable_jobs(2)->mutable_payload()->set_text("t_t");
  string wire = request.SerializeAsString();
  for (const char* mark : {"x_y", "t_t"}) wire[wire.find(mark) + 1] = '\xFF';
  v1::EnqueueRequest refused;
  ASSERT_FALSE(refused.ParseFromString(wire)) << "protobuf refuses the whole message";
  const auto repaired = RepairWire(wire, *v1::EnqueueRequest::descriptor());
  ASSERT_TRUE(repaired);
  v1::EnqueueRequest read;
  ASSERT_TRUE(read.ParseFromString(*repaired));
  EXPECT_EQ(read.jobs(0).SerializeAsString(), request.jobs(0).SerializeAsString());
  EXPECT_EQ(FieldOf(JobFrom(Field("jobs", 0), *read.mutable_jobs(0), Limits()).status()), "");
  EXPECT_EQ(FieldOf(JobFrom(Field("jobs", 1), *read.mutable_jobs(1), Limits()).status()), "jobs[1].headers");
  EXPECT_EQ(FieldOf(JobFrom(Field("jobs", 2), *read.mutable_jobs(2), Limits()).status()), "jobs[2].payload.text");
  EXPECT_FALSE(RepairWire(wire.substr(0, wire.size() - 1), *v1::EnqueueRequest::descriptor())) << "cut short";
  EXPECT_FALSE(RepairWire("\xFF\xFF\xFF", *v1::EnqueueRequest::descriptor()));
}

TEST(WireRepair, JsonKeepsWhatIsValid) {
  EXPECT_EQ(RepairJson(R"({"a":"b\\u\"\u00e4\ud83d\ude00ä"})"), R"({"a":"b\\u\"\u00e4\ud83d\ude00ä"})");
  EXPECT_EQ(RepairJson("\"a\xFF\xC3\""), "\"a\\u0000\\u0000\"");
  EXPECT_EQ(RepairJson(R"("\udc80 \ud83d \ud83dx")"), R"("\u0000 \u0000 \u0000x")");
  EXPECT_EQ(RepairJson("\"\\"), "\"\\");
  EXPECT_EQ(RepairJson("\\u12"), "\\u12");
}

}  // namespace
}  // namespace tenure::rpc
