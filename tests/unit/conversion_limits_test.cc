// Every limit of the proto's comments, just inside and just outside, and the field that the error names. What passes is
// looked at in conversion_test.cc.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/rpc/conversion.h"

namespace tenure::rpc {
namespace {

using std::string;

constexpr char kToken[] = "7-20786-123456.3.20786.9f86d081884c7d65";

google::protobuf::Duration D(absl::Duration d) {
  google::protobuf::Duration out;
  ToProto(d, &out);
  return out;
}

google::protobuf::Timestamp At(absl::Time t) {
  google::protobuf::Timestamp out;
  ToProto(t, &out);
  return out;
}

string FieldOf(const absl::Status& status) {
  if (status.ok()) return "";
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  const ErrorDetails details = DetailsOf(status);
  auto field = details.metadata.find("field");
  EXPECT_NE(field, details.metadata.end()) << status;
  EXPECT_TRUE(status.message().find(field->second + ": ") == 0) << status << " does not begin with the field";
  EXPECT_EQ(status.message().find(field->second + ": ", 1), absl::string_view::npos) << status << " says it twice";
  return field == details.metadata.end() ? "?" : field->second;
}

// A change to a good request, and the field that the error then names; "" if it stays good.
template <typename Message>
struct Row {
  string what;
  std::function<void(Message&)> change;
  string field;
};

template <typename Message, typename Convert>
void Check(const std::vector<Row<Message>>& rows, const Message& good, Convert convert) {
  for (const auto& row : rows) {
    SCOPED_TRACE(row.what);
    Message message = good;
    row.change(message);
    EXPECT_EQ(FieldOf(convert(message)), row.field);
  }
}

const string kNul("a\0b", 3);

void AddHeaders(v1::JobSpec& spec, int n) {
  for (int i = 0; i < n; ++i) (*spec.mutable_headers())["k" + std::to_string(i)] = "v";
}

v1::Unique& U(v1::JobSpec& spec) {
  spec.mutable_unique()->set_key("u");
  return *spec.mutable_unique();
}

TEST(Conversion, JobSpecLimits) {
  v1::JobSpec good;
  good.set_queue("q");
  good.set_kind("k");
  using S = v1::JobSpec;
  const Limits limits{.max_payload_bytes = 1000};
  const std::vector<Row<S>> rows = {
      {"as it is", [](S&) {}, ""},
      {"no queue", [](S& s) { s.clear_queue(); }, "jobs[3].queue"},
      {"queue 128", [](S& s) { s.set_queue(string(128, 'q')); }, ""},
      {"queue 129", [](S& s) { s.set_queue(string(129, 'q')); }, "jobs[3].queue"},
      {"queue all bytes", [](S& s) { s.set_queue("aZ09._:/-"); }, ""},
      {"queue blank", [](S& s) { s.set_queue("a b"); }, "jobs[3].queue"},
      {"queue NUL", [](S& s) { s.set_queue(kNul); }, "jobs[3].queue"},
      {"queue umlaut", [](S& s) { s.set_queue("\xC3\xA4"); }, "jobs[3].queue"},
      {"no kind", [](S& s) { s.clear_kind(); }, "jobs[3].kind"},
      {"kind 128", [](S& s) { s.set_kind(string(128, '~')); }, ""},
      {"kind 129", [](S& s) { s.set_kind(string(129, 'k')); }, "jobs[3].kind"},
      {"kind first printable", [](S& s) { s.set_kind("!"); }, ""},
      {"kind blank", [](S& s) { s.set_kind("a b"); }, "jobs[3].kind"},
      {"kind DEL", [](S& s) { s.set_kind("a\x7F"); }, "jobs[3].kind"},
      {"kind NUL", [](S& s) { s.set_kind(kNul); }, "jobs[3].kind"},
      {"payload empty", [](S& s) { s.mutable_payload()->set_data(""); }, ""},
      {"payload null", [](S& s) { s.mutable_payload()->set_text("null"); }, ""},
      {"payload at the limit", [](S& s) { s.mutable_payload()->set_data(string(1000, '\xFF')); }, ""},
      {"payload over it", [](S& s) { s.mutable_payload()->set_data(string(1001, 'x')); }, "jobs[3].payload"},
      {"text at the limit", [](S& s) { s.mutable_payload()->set_text(string(1000, 'x')); }, ""},
      {"text over it", [](S& s) { s.mutable_payload()->set_text(string(1001, 'x')); }, "jobs[3].payload"},
      {"content type 255", [](S& s) { s.mutable_payload()->set_content_type(string(255, 'x')); }, ""},
      {"content type 256", [](S& s) { s.mutable_payload()->set_content_type(string(256, 'x')); },
       "jobs[3].payload.content_type"},
      {"content type NUL", [](S& s) { s.mutable_payload()->set_content_type(kNul); }, "jobs[3].payload.content_type"},
      {"headers 64", [](S& s) { AddHeaders(s, 64); }, ""},
      {"headers 65", [](S& s) { AddHeaders(s, 65); }, "jobs[3].headers"},
      {"header key empty", [](S& s) { (*s.mutable_headers())[""] = "v"; }, "jobs[3].headers"},
      {"header key 255", [](S& s) { (*s.mutable_headers())[string(255, 'k')] = "v"; }, ""},
      {"header key 256", [](S& s) { (*s.mutable_headers())[string(256, 'k')] = "v"; }, "jobs[3].headers"},
      {"header key NUL", [](S& s) { (*s.mutable_headers())[kNul] = "v"; }, "jobs[3].headers"},
      {"header value NUL", [](S& s) { (*s.mutable_headers())["k"] = kNul; }, "jobs[3].headers"},
      {"headers 16 KiB", [](S& s) { (*s.mutable_headers())["k"] = string(16383, 'v'); }, ""},
      {"headers 16 KiB + 1", [](S& s) { (*s.mutable_headers())["k"] = string(16384, 'v'); }, "jobs[3].headers"},
      {"priority 100", [](S& s) { s.set_priority(100); }, ""},
      {"priority 101", [](S& s) { s.set_priority(101); }, "jobs[3].priority"},
      {"priority -100", [](S& s) { s.set_priority(-100); }, ""},
      {"priority -101", [](S& s) { s.set_priority(-101); }, "jobs[3].priority"},
      {"priority least int", [](S& s) { s.set_priority(std::numeric_limits<int32_t>::min()); }, "jobs[3].priority"},
      {"tenant 255", [](S& s) { s.set_tenant(string(255, 't')); }, ""},
      {"tenant 256", [](S& s) { s.set_tenant(string(256, 't')); }, "jobs[3].tenant"},
      {"tenant NUL", [](S& s) { s.set_tenant(kNul); }, "jobs[3].tenant"},
      {"delay 0", [](S& s) { *s.mutable_delay() = D(absl::ZeroDuration()); }, ""},
      {"delay negative", [](S& s) { *s.mutable_delay() = D(-absl::Nanoseconds(1)); }, "jobs[3].delay"},
      {"delay 10 years", [](S& s) { *s.mutable_delay() = D(kTenYears); }, ""},
      {"delay over 10 years", [](S& s) { *s.mutable_delay() = D(kTenYears + absl::Nanoseconds(1)); }, "jobs[3].delay"},
      {"delay nanos too many", [](S& s) { s.mutable_delay()->set_nanos(1'000'000'000); }, "jobs[3].delay"},
      {"delay nanos least int", [](S& s) { s.mutable_delay()->set_nanos(std::numeric_limits<int32_t>::min()); },
       "jobs[3].delay"},
      {"delay mixed signs",
       [](S& s) {
         s.mutable_delay()->set_seconds(1);
         s.mutable_delay()->set_nanos(-1);
       },
       "jobs[3].delay"},
      {"delay greatest int", [](S& s) { s.mutable_delay()->set_seconds(std::numeric_limits<int64_t>::max()); },
       "jobs[3].delay"},
      {"due and delay", [](S& s) { s.mutable_due_time(), s.mutable_delay(); }, "jobs[3].delay"},
      {"due in 3649 days",
       [](S& s) { s.mutable_due_time()->set_seconds(absl::ToUnixSeconds(absl::Now()) + 3649 * 86400LL); }, ""},
      {"due in 3651 days",
       [](S& s) { s.mutable_due_time()->set_seconds(absl::ToUnixSeconds(absl::Now()) + 3651 * 86400LL); },
       "jobs[3].due_time"},
      {"due year 10000", [](S& s) { s.mutable_due_time()->set_seconds(253402300800); }, "jobs[3].due_time"},
      {"due nanos negative", [](S& s) { s.mutable_due_time()->set_nanos(-1); }, "jobs[3].due_time"},
      {"expire and ttl", [](S& s) { s.mutable_expire_time(), *s.mutable_ttl() = D(absl::Seconds(1)); }, "jobs[3].ttl"},
      {"expire before year 1", [](S& s) { s.mutable_expire_time()->set_seconds(-62135596801); }, "jobs[3].expire_time"},
      {"ttl shorter than delay",
       [](S& s) { *s.mutable_delay() = D(absl::Hours(1)), *s.mutable_ttl() = D(absl::Hours(1)); }, "jobs[3].ttl"},
      {"ttl longer than delay",
       [](S& s) { *s.mutable_delay() = D(absl::Hours(1)), *s.mutable_ttl() = D(absl::Minutes(61)); }, ""},
      {"ttl shorter than due_time",
       [](S& s) { *s.mutable_due_time() = At(absl::Now() + absl::Hours(2)), *s.mutable_ttl() = D(absl::Hours(1)); },
       "jobs[3].ttl"},
      {"expire_time before due_time",
       [](S& s) {
         *s.mutable_due_time() = At(absl::Now() + absl::Hours(2));
         *s.mutable_expire_time() = At(absl::Now() + absl::Hours(1));
       },
       "jobs[3].expire_time"},
      {"due in the past, with a ttl",
       [](S& s) { *s.mutable_due_time() = At(absl::Now() - absl::Hours(2)), *s.mutable_ttl() = D(absl::Hours(1)); },
       ""},
      {"ttl 1 ms", [](S& s) { *s.mutable_ttl() = D(absl::Milliseconds(1)); }, ""},
      {"ttl under 1 ms", [](S& s) { *s.mutable_ttl() = D(absl::Microseconds(999)); }, "jobs[3].ttl"},
      {"ttl 10 years", [](S& s) { *s.mutable_ttl() = D(kTenYears); }, ""},
      {"ttl over 10 years", [](S& s) { *s.mutable_ttl() = D(kTenYears + absl::Seconds(1)); }, "jobs[3].ttl"},
      {"max_attempts 10000", [](S& s) { s.set_max_attempts(10'000); }, ""},
      {"max_attempts 10001", [](S& s) { s.set_max_attempts(10'001); }, "jobs[3].max_attempts"},
      {"max_attempts -1", [](S& s) { s.set_max_attempts(-1); }, "jobs[3].max_attempts"},
      {"crash_budget 1000", [](S& s) { s.set_crash_budget(1'000); }, ""},
      {"crash_budget 1001", [](S& s) { s.set_crash_budget(1'001); }, "jobs[3].crash_budget"},
      {"backoff empty", [](S& s) { s.mutable_backoff(); }, ""},
      {"backoff initial 1 ms", [](S& s) { *s.mutable_backoff()->mutable_initial() = D(absl::Milliseconds(1)); }, ""},
      {"backoff initial 0", [](S& s) { s.mutable_backoff()->mutable_initial(); }, "jobs[3].backoff.initial"},
      {"backoff initial 24 h", [](S& s) { *s.mutable_backoff()->mutable_initial() = D(absl::Hours(24)); }, ""},
      {"backoff initial over",
       [](S& s) { *s.mutable_backoff()->mutable_initial() = D(absl::Hours(24) + absl::Nanoseconds(1)); },
       "jobs[3].backoff.initial"},
      {"backoff multiplier 1", [](S& s) { s.mutable_backoff()->set_multiplier(1); }, ""},
      {"backoff multiplier 0.99", [](S& s) { s.mutable_backoff()->set_multiplier(0.99); },
       "jobs[3].backoff.multiplier"},
      {"backoff multiplier 100", [](S& s) { s.mutable_backoff()->set_multiplier(100); }, ""},
      {"backoff multiplier 100.1", [](S& s) { s.mutable_backoff()->set_multiplier(100.1); },
       "jobs[3].backoff.multiplier"},
      {"backoff multiplier NaN", [](S& s) { s.mutable_backoff()->set_multiplier(std::nan("")); },
       "jobs[3].backoff.multiplier"},
      {"backoff max = initial", [](S& s) { *s.mutable_backoff()->mutable_max() = D(absl::Seconds(1)); }, ""},
      {"backoff max < initial", [](S& s) { *s.mutable_backoff()->mutable_max() = D(absl::Milliseconds(999)); },
       "jobs[3].backoff.max"},
      {"backoff max 30 days", [](S& s) { *s.mutable_backoff()->mutable_max() = D(absl::Hours(720)); }, ""},
      {"backoff max over", [](S& s) { *s.mutable_backoff()->mutable_max() = D(absl::Hours(720) + absl::Seconds(1)); },
       "jobs[3].backoff.max"},
      {"idempotency_key 255", [](S& s) { s.set_idempotency_key(string(255, 'i')); }, ""},
      {"idempotency_key 256", [](S& s) { s.set_idempotency_key(string(256, 'i')); }, "jobs[3].idempotency_key"},
      {"idempotency_key NUL", [](S& s) { s.set_idempotency_key(kNul); }, "jobs[3].idempotency_key"},
      {"retention 1 s", [](S& s) { *s.mutable_idempotency_retention() = D(absl::Seconds(1)); }, ""},
      {"retention under", [](S& s) { *s.mutable_idempotency_retention() = D(absl::Milliseconds(999)); },
       "jobs[3].idempotency_retention"},
      {"retention 30 days", [](S& s) { *s.mutable_idempotency_retention() = D(absl::Hours(720)); }, ""},
      {"retention over", [](S& s) { *s.mutable_idempotency_retention() = D(absl::Hours(721)); },
       "jobs[3].idempotency_retention"},
      {"effect_key 255", [](S& s) { s.set_effect_key(string(255, 'e')); }, ""},
      {"effect_key 256", [](S& s) { s.set_effect_key(string(256, 'e')); }, "jobs[3].effect_key"},
      {"effect_key NUL", [](S& s) { s.set_effect_key(kNul); }, "jobs[3].effect_key"},
      {"group_key 255", [](S& s) { s.set_group_key(string(255, 'g')); }, ""},
      {"group_key 256", [](S& s) { s.set_group_key(string(256, 'g')); }, "jobs[3].group_key"},
      {"4 keys",
       [](S& s) {
         for (const char* key : {"a", "b", "c", "d"}) s.add_concurrency_keys(key);
       },
       ""},
      {"5 keys",
       [](S& s) {
         for (const char* key : {"a", "b", "c", "d", "e"}) s.add_concurrency_keys(key);
       },
       "jobs[3].concurrency_keys"},
      {"an empty key", [](S& s) { s.add_concurrency_keys("a"), s.add_concurrency_keys(""); },
       "jobs[3].concurrency_keys[1]"},
      {"key 256", [](S& s) { s.add_concurrency_keys(string(256, 'k')); }, "jobs[3].concurrency_keys[0]"},
      {"key NUL", [](S& s) { s.add_concurrency_keys(kNul); }, "jobs[3].concurrency_keys[0]"},
      {"unique key 255", [](S& s) { s.mutable_unique()->set_key(string(255, 'u')); }, ""},
      {"unique without a key", [](S& s) { s.mutable_unique(); }, "jobs[3].unique.key"},
      {"unique key 256", [](S& s) { s.mutable_unique()->set_key(string(256, 'u')); }, "jobs[3].unique.key"},
      {"unique key NUL", [](S& s) { s.mutable_unique()->set_key(kNul); }, "jobs[3].unique.key"},
      {"unique scope", [](S& s) { U(s).set_scope(static_cast<v1::UniqueScope>(9)); }, "jobs[3].unique.scope"},
      {"unique policy", [](S& s) { U(s).set_on_conflict(static_cast<v1::UniqueConflict>(9)); },
       "jobs[3].unique.on_conflict"},
      {"unique states live", [](S& s) { U(s).add_states(v1::JOB_STATE_SUSPENDED); }, ""},
      {"unique states ended", [](S& s) { U(s).add_states(v1::JOB_STATE_COMPLETED); }, "jobs[3].unique.states[0]"},
      {"unique states none", [](S& s) { U(s).add_states(v1::JOB_STATE_UNSPECIFIED); }, "jobs[3].unique.states[0]"},
      {"unique replace of ready",
       [](S& s) {
         U(s).set_on_conflict(v1::UNIQUE_CONFLICT_REPLACE);
         U(s).add_states(v1::JOB_STATE_READY);
       },
       ""},
      {"unique replace of leased",
       [](S& s) {
         U(s).set_on_conflict(v1::UNIQUE_CONFLICT_REPLACE);
         U(s).add_states(v1::JOB_STATE_LEASED);
       },
       "jobs[3].unique.states[0]"},
      {"unique period 1 ms", [](S& s) { *U(s).mutable_period() = D(absl::Milliseconds(1)); }, ""},
      {"unique period 0", [](S& s) { U(s).mutable_period(); }, "jobs[3].unique.period"},
      {"unique period 365 days", [](S& s) { *U(s).mutable_period() = D(absl::Hours(8760)); }, ""},
      {"unique period over", [](S& s) { *U(s).mutable_period() = D(absl::Hours(8761)); }, "jobs[3].unique.period"},
      {"unique period and reschedule",
       [](S& s) {
         U(s).set_on_conflict(v1::UNIQUE_CONFLICT_RESCHEDULE);
         *U(s).mutable_period() = D(absl::Hours(1));
       },
       "jobs[3].unique.period"},
      {"depends on nothing", [](S& s) { s.mutable_depends_on(); }, "jobs[3].depends_on"},
      {"depends on 100",
       [](S& s) {
         for (int i = 0; i < 98; ++i) s.mutable_depends_on()->add_job_ids(absl::StrCat("1-20000-", i + 1));
         s.mutable_depends_on()->add_items(0);
         s.mutable_depends_on()->add_items(2);
       },
       ""},
      {"depends on 101",
       [](S& s) {
         for (int i = 0; i < 101; ++i) s.mutable_depends_on()->add_job_ids(absl::StrCat("1-20000-", i + 1));
       },
       "jobs[3].depends_on"},
      {"depends on no id", [](S& s) { s.mutable_depends_on()->add_job_ids("x"); }, "jobs[3].depends_on.job_ids[0]"},
      {"depends on itself", [](S& s) { s.mutable_depends_on()->add_items(3); }, "jobs[3].depends_on.items[0]"},
      {"depends on a later one", [](S& s) { s.mutable_depends_on()->add_items(4); }, "jobs[3].depends_on.items[0]"},
      {"depends on item -1", [](S& s) { s.mutable_depends_on()->add_items(-1); }, "jobs[3].depends_on.items[0]"},
      {"dependency condition",
       [](S& s) {
         s.mutable_depends_on()->add_items(0);
         s.mutable_depends_on()->set_condition(static_cast<v1::DependencyCondition>(9));
       },
       "jobs[3].depends_on.condition"},
      {"dependency policy",
       [](S& s) {
         s.mutable_depends_on()->add_items(0);
         s.mutable_depends_on()->set_on_failure(static_cast<v1::DependencyFailure>(9));
       },
       "jobs[3].depends_on.on_failure"},
  };
  Check<S>(rows, good, [&](S& spec) { return JobFrom(Field("jobs", 3), spec, limits).status(); });
}

TEST(Conversion, APayloadOverTheLimitSaysTheLimit) {
  v1::JobSpec spec;
  spec.set_queue("q");
  spec.set_kind("k");
  spec.mutable_payload()->set_data(string((1 << 20) + 1, 'x'));
  const absl::Status status = JobFrom(Field("jobs", 0), spec, Limits()).status();
  EXPECT_EQ(DetailsOf(status).reason, "PAYLOAD_TOO_LARGE");
  EXPECT_NE(status.message().find("1048576"), string::npos) << status;
}

TEST(Conversion, ClaimLimits) {
  v1::ClaimRequest good;
  good.set_worker_id("w");
  good.add_queues()->set_queue("q");
  using C = v1::ClaimRequest;
  const auto reserve = [](C& c, int n, int priority, int slots) {
    for (int i = 0; i < n; ++i) {
      auto* reservation = c.add_reservations();
      reservation->set_min_priority(priority);
      reservation->set_slots(slots);
    }
  };
  const std::vector<Row<C>> rows = {
      {"as it is", [](C&) {}, ""},
      {"no worker", [](C& c) { c.clear_worker_id(); }, "worker_id"},
      {"worker 255", [](C& c) { c.set_worker_id(string(255, 'w')); }, ""},
      {"worker 256", [](C& c) { c.set_worker_id(string(256, 'w')); }, "worker_id"},
      {"worker NUL", [](C& c) { c.set_worker_id(kNul); }, "worker_id"},
      {"no queues", [](C& c) { c.clear_queues(); }, "queues"},
      {"1000 queues",
       [](C& c) {
         for (int i = 1; i < 1000; ++i) c.add_queues()->set_queue("q" + std::to_string(i));
       },
       ""},
      {"1001 queues",
       [](C& c) {
         for (int i = 0; i < 1000; ++i) c.add_queues()->set_queue("q" + std::to_string(i));
       },
       "queues"},
      {"queue without a name", [](C& c) { c.add_queues(); }, "queues[1].queue"},
      {"queue twice", [](C& c) { c.add_queues()->set_queue("q"); }, "queues[1].queue"},
      {"weight 1000", [](C& c) { c.mutable_queues(0)->set_weight(1000); }, ""},
      {"weight 1001", [](C& c) { c.mutable_queues(0)->set_weight(1001); }, "queues[0].weight"},
      {"weight -1", [](C& c) { c.mutable_queues(0)->set_weight(-1); }, "queues[0].weight"},
      {"order unknown", [](C& c) { c.set_order(static_cast<v1::QueueOrder>(9)); }, "order"},
      {"max_jobs 1000", [](C& c) { c.set_max_jobs(1000); }, ""},
      {"max_jobs 1001", [](C& c) { c.set_max_jobs(1001); }, "max_jobs"},
      {"max_jobs -1", [](C& c) { c.set_max_jobs(-1); }, "max_jobs"},
      {"lease 1 s", [](C& c) { *c.mutable_lease_duration() = D(absl::Seconds(1)); }, ""},
      {"lease under", [](C& c) { *c.mutable_lease_duration() = D(absl::Milliseconds(999)); }, "lease_duration"},
      {"lease 12 h", [](C& c) { *c.mutable_lease_duration() = D(absl::Hours(12)); }, ""},
      {"lease over", [](C& c) { *c.mutable_lease_duration() = D(absl::Hours(12) + absl::Nanoseconds(1)); },
       "lease_duration"},
      {"wait 60 s", [](C& c) { *c.mutable_wait() = D(absl::Seconds(60)); }, ""},
      {"wait over", [](C& c) { *c.mutable_wait() = D(absl::Seconds(60) + absl::Nanoseconds(1)); }, "wait"},
      {"wait negative", [](C& c) { *c.mutable_wait() = D(-absl::Seconds(1)); }, "wait"},
      {"request_id 128", [](C& c) { c.set_request_id(string(128, 'r')); }, ""},
      {"request_id 129", [](C& c) { c.set_request_id(string(129, 'r')); }, "request_id"},
      {"request_id NUL", [](C& c) { c.set_request_id(kNul); }, "request_id"},
      {"10 reservations", [&](C& c) { c.set_max_jobs(10), reserve(c, 10, 100, 1); }, ""},
      {"11 reservations", [&](C& c) { c.set_max_jobs(11), reserve(c, 11, 0, 1); }, "reservations"},
      {"reserved more than asked", [&](C& c) { c.set_max_jobs(3), reserve(c, 2, 0, 2); }, "reservations"},
      {"reserved beyond int", [&](C& c) { reserve(c, 2, 0, std::numeric_limits<int32_t>::max()); }, "reservations"},
      {"reserved none", [&](C& c) { reserve(c, 1, 0, 0); }, "reservations[0].slots"},
      {"reserved priority 101", [&](C& c) { reserve(c, 1, 101, 1); }, "reservations[0].min_priority"},
      {"max_bytes 64 MiB", [](C& c) { c.set_max_bytes(64 << 20); }, ""},
      {"max_bytes over", [](C& c) { c.set_max_bytes((64 << 20) + 1); }, "max_bytes"},
      {"max_bytes -1", [](C& c) { c.set_max_bytes(-1); }, "max_bytes"},
  };
  Check<C>(rows, good, [](C& c) { return ClaimFrom(c).status(); });

  const auto call = ClaimFrom(good);
  ASSERT_TRUE(call.ok());
  EXPECT_EQ(call->max_jobs, 1);
  EXPECT_EQ(call->lease, absl::Seconds(30));
  EXPECT_EQ(call->wait, absl::ZeroDuration());
  EXPECT_EQ(call->max_bytes, 3 << 20);
  EXPECT_FALSE(call->weighted);
  EXPECT_EQ(call->queues[0].weight, 1);
}

TEST(Conversion, NamedClaimLimits) {
  v1::ClaimRequest request;
  request.set_worker_id("w");
  for (int i = 0; i < 1000; ++i) request.add_job_ids("7-20786-1");
  v1::ClaimRequest over = request;
  over.add_job_ids("7-20786-1");
  EXPECT_EQ(FieldOf(NamedClaimFrom(over).status()), "job_ids");
  v1::ClaimRequest nobody = request;
  nobody.clear_worker_id();
  EXPECT_EQ(FieldOf(NamedClaimFrom(nobody).status()), "worker_id");
  EXPECT_TRUE(NamedClaimFrom(request).ok());
}

TEST(Conversion, SettleAndExtendLimits) {
  const auto with_token = [](auto item) {
    item.set_lease_token(kToken);
    return item;
  };
  using E = v1::ExtendItem;
  Check<E>(
      {
          {"as it is", [](E&) {}, ""},
          {"no token", [](E& e) { e.clear_lease_token(); }, "items[7].lease_token"},
          {"not a token", [](E& e) { e.set_lease_token("7-20786-1"); }, "items[7].lease_token"},
          {"1 s", [](E& e) { *e.mutable_duration() = D(absl::Seconds(1)); }, ""},
          {"under", [](E& e) { *e.mutable_duration() = D(absl::Milliseconds(999)); }, "items[7].duration"},
          {"12 h", [](E& e) { *e.mutable_duration() = D(absl::Hours(12)); }, ""},
          {"over", [](E& e) { *e.mutable_duration() = D(absl::Hours(13)); }, "items[7].duration"},
          {"fraction 1", [](E& e) { e.mutable_progress()->set_fraction(1); }, ""},
          {"fraction 1.01", [](E& e) { e.mutable_progress()->set_fraction(1.01); }, "items[7].progress.fraction"},
          {"fraction -0.01", [](E& e) { e.mutable_progress()->set_fraction(-0.01); }, "items[7].progress.fraction"},
          {"fraction NaN", [](E& e) { e.mutable_progress()->set_fraction(std::nan("")); },
           "items[7].progress.fraction"},
      },
      with_token(E()), [](E& e) { return ExtendFrom(Field("items", 7), e).status(); });

  using C = v1::CompleteItem;
  const auto follow = [](C& c, int n) {
    for (int i = 0; i < n; ++i) {
      auto* spec = c.add_follow_ups();
      spec->set_queue("q");
      spec->set_kind("k");
    }
  };
  Check<C>(
      {
          {"as it is", [](C&) {}, ""},
          {"not a token", [](C& c) { c.set_lease_token("x"); }, "items[7].lease_token"},
          {"result at the limit", [](C& c) { c.mutable_result()->set_data(string(1 << 20, 'x')); }, ""},
          {"result over", [](C& c) { c.mutable_result()->set_data(string((1 << 20) + 1, 'x')); }, "items[7].result"},
          {"100 follow-ups", [&](C& c) { follow(c, 100); }, ""},
          {"101 follow-ups", [&](C& c) { follow(c, 101); }, "items[7].follow_ups"},
          {"a bad one", [&](C& c) { follow(c, 2), c.mutable_follow_ups(1)->clear_kind(); },
           "items[7].follow_ups[1].kind"},
      },
      with_token(C()), [](C& c) { return CompleteFrom(Field("items", 7), c, Limits()).status(); });

  using F = v1::FailItem;
  Check<F>(
      {
          {"as it is", [](F&) {}, ""},
          {"not a token", [](F& f) { f.set_lease_token("x"); }, "items[7].lease_token"},
          {"retry_after 0", [](F& f) { f.mutable_retry_after(); }, ""},
          {"retry_after negative", [](F& f) { *f.mutable_retry_after() = D(-absl::Seconds(1)); },
           "items[7].retry_after"},
          {"retry_after 30 days", [](F& f) { *f.mutable_retry_after() = D(absl::Hours(720)); }, ""},
          {"retry_after over", [](F& f) { *f.mutable_retry_after() = D(absl::Hours(721)); }, "items[7].retry_after"},
          {"pause_key_for 24 h", [](F& f) { *f.mutable_pause_key_for() = D(absl::Hours(24)); }, ""},
          {"pause_key_for over", [](F& f) { *f.mutable_pause_key_for() = D(absl::Hours(25)); },
           "items[7].pause_key_for"},
          {"pause_key alone", [](F& f) { f.set_pause_key("a"); }, "items[7].pause_key"},
      },
      with_token(F()), [](F& f) { return FailFrom(Field("items", 7), f).status(); });

  using R = v1::ReleaseItem;
  Check<R>(
      {
          {"as it is", [](R&) {}, ""},
          {"not a token", [](R& r) { r.set_lease_token("x"); }, "items[7].lease_token"},
          {"12 h", [](R& r) { *r.mutable_delay() = D(absl::Hours(12)); }, ""},
          {"over", [](R& r) { *r.mutable_delay() = D(absl::Hours(12) + absl::Nanoseconds(1)); }, "items[7].delay"},
          {"negative", [](R& r) { *r.mutable_delay() = D(-absl::Nanoseconds(1)); }, "items[7].delay"},
      },
      with_token(R()), [](R& r) { return ReleaseFrom(Field("items", 7), r).status(); });

  using S = v1::SnoozeItem;
  Check<S>(
      {
          {"no delay", [](S&) {}, "items[7].delay"},
          {"0", [](S& s) { s.mutable_delay(); }, "items[7].delay"},
          {"1 ms", [](S& s) { *s.mutable_delay() = D(absl::Milliseconds(1)); }, ""},
          {"10 years", [](S& s) { *s.mutable_delay() = D(kTenYears); }, ""},
          {"over", [](S& s) { *s.mutable_delay() = D(kTenYears + absl::Seconds(1)); }, "items[7].delay"},
          {"not a token", [](S& s) { s.set_lease_token("x"); }, "items[7].lease_token"},
      },
      with_token(S()), [](S& s) { return SnoozeFrom(Field("items", 7), s).status(); });
}

TEST(Conversion, SettingsAndMask) {
  using U = v1::UpdateQueueRequest;
  const auto update = [](const U& request, std::set<string>* out) {
    std::set<string> set;
    const auto settings = SettingsFrom(request.settings(), &set);
    if (!settings.ok()) return settings.status();
    const auto fields = UpdatedFields(request, set);
    if (fields.ok()) *out = *fields;
    return fields.status();
  };
  std::set<string> fields;
  U request;
  EXPECT_EQ(FieldOf(update(request, &fields)), "settings");
  request.mutable_settings()->set_max_attempts(10'001);
  EXPECT_EQ(FieldOf(update(request, &fields)), "settings.max_attempts");
  request.mutable_settings()->set_max_attempts(10'000);
  EXPECT_EQ(FieldOf(update(request, &fields)), "");
  EXPECT_EQ(fields, (std::set<string>{"max_attempts"}));
  request.mutable_settings()->set_crash_budget(1001);
  EXPECT_EQ(FieldOf(update(request, &fields)), "settings.crash_budget");
  request.mutable_settings()->set_crash_budget(1000);
  request.mutable_settings()->set_description(string(1025, 'd'));
  EXPECT_EQ(FieldOf(update(request, &fields)), "settings.description");
  request.mutable_settings()->set_description(string(1024, 'd'));
  request.mutable_settings()->mutable_backoff()->set_multiplier(101);
  EXPECT_EQ(FieldOf(update(request, &fields)), "settings.backoff.multiplier");
  request.mutable_settings()->mutable_backoff()->set_multiplier(3);
  EXPECT_EQ(FieldOf(update(request, &fields)), "");
  EXPECT_EQ(fields, (std::set<string>{"backoff", "crash_budget", "description", "max_attempts"}));
  U rules;
  rules.mutable_settings()->mutable_start_within();
  EXPECT_EQ(FieldOf(update(rules, &fields)), "settings.start_within") << "0 is no time to start in";
  rules.mutable_settings()->mutable_start_within()->set_seconds(3650LL * 86400 + 1);
  EXPECT_EQ(FieldOf(update(rules, &fields)), "settings.start_within");
  rules.mutable_settings()->mutable_start_within()->set_seconds(3650LL * 86400);
  rules.mutable_settings()->set_dead_letter_queue("no good");
  EXPECT_EQ(FieldOf(update(rules, &fields)), "settings.dead_letter_queue");
  rules.mutable_settings()->set_dead_letter_queue("parked");
  for (const int rate : {-1, 100'001}) {
    rules.mutable_settings()->set_dead_letter_jobs_per_second(rate);
    EXPECT_EQ(FieldOf(update(rules, &fields)), "settings.dead_letter_jobs_per_second");
  }
  rules.mutable_settings()->set_dead_letter_jobs_per_second(100'000);
  EXPECT_EQ(FieldOf(update(rules, &fields)), "");
  EXPECT_EQ(fields, (std::set<string>{"dead_letter_jobs_per_second", "dead_letter_queue", "start_within"}));
  request.mutable_update_mask()->add_paths("backoff");
  EXPECT_EQ(FieldOf(update(request, &fields)), "");
  EXPECT_EQ(fields, (std::set<string>{"backoff"}));
  request.mutable_update_mask()->add_paths("paused");
  EXPECT_EQ(FieldOf(update(request, &fields)), "update_mask");
  // Named but not set: back to the default.
  U reset;
  reset.mutable_update_mask()->add_paths("max_attempts");
  EXPECT_EQ(FieldOf(update(reset, &fields)), "");
  EXPECT_EQ(fields, (std::set<string>{"max_attempts"}));
}

TEST(Conversion, ListLimits) {
  using L = v1::ListRequest;
  Check<L>(
      {
          {"as it is", [](L&) {}, ""},
          {"queue", [](L& l) { l.set_queue("a b"); }, "queue"},
          {"100 kinds",
           [](L& l) {
             for (int i = 0; i < 100; ++i) l.add_kinds("k");
           },
           ""},
          {"101 kinds",
           [](L& l) {
             for (int i = 0; i < 101; ++i) l.add_kinds("k");
           },
           "kinds"},
          {"bad kind", [](L& l) { l.add_kinds("k"), l.add_kinds(""); }, "kinds[1]"},
          {"no state", [](L& l) { l.add_states(v1::JOB_STATE_UNSPECIFIED); }, "states[0]"},
          {"unknown state", [](L& l) { l.add_states(static_cast<v1::JobState>(10)); }, "states[0]"},
          {"header", [](L& l) { (*l.mutable_headers())["k"] = kNul; }, "headers"},
          {"holder 256", [](L& l) { l.set_holder(string(256, 'h')); }, "holder"},
          {"holder and other states", [](L& l) { l.set_holder("w"), l.add_states(v1::JOB_STATE_READY); }, "states"},
          {"page_size 1000", [](L& l) { l.set_page_size(1000); }, ""},
          {"page_size 1001", [](L& l) { l.set_page_size(1001); }, "page_size"},
          {"page_size -1", [](L& l) { l.set_page_size(-1); }, "page_size"},
          {"created_after", [](L& l) { l.mutable_created_after()->set_nanos(-1); }, "created_after"},
          {"due_before", [](L& l) { l.mutable_due_before()->set_nanos(-1); }, "due_before"},
          {"an empty range",
           [](L& l) { l.mutable_updated_after()->set_seconds(5), l.mutable_updated_before()->set_seconds(5); },
           "updated_before"},
      },
      L(), [](L& l) { return ListFilterFrom(l).status(); });
  const auto live = ListFilterFrom(L());
  ASSERT_TRUE(live.ok());
  EXPECT_EQ(live->states.size(), 5u);
  EXPECT_EQ(live->page_size, 50);
  L held;
  held.set_holder("w");
  const auto leased = ListFilterFrom(held);
  ASSERT_TRUE(leased.ok());
  EXPECT_EQ(leased->states, (std::vector<store::JobState>{store::JobState::kLeased}));
}

}  // namespace
}  // namespace tenure::rpc
