// Showing jobs and waiting for their end. Layer: client/cli. Not thread-safe.
#include "client/cli/job_output.h"

#include <algorithm>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "client/cli/values.h"

namespace tenure::cli {
namespace {

// The daemon's longest poll.
constexpr absl::Duration kLongestWait = absl::Seconds(60);
constexpr absl::Duration kPauseAfterEarlyAnswer = absl::Milliseconds(200);

std::string TimeField(bool present, const google::protobuf::Timestamp& timestamp, absl::Time now) {
  if (!present) return "";
  const absl::Time time = FromProto(timestamp);
  return absl::StrCat(ShowTime(time), " (", ShowWhen(time, now), ")");
}

std::string PayloadField(const v1::Payload& payload) {
  if (payload.content_case() == v1::Payload::CONTENT_NOT_SET) return "";
  const std::string& bytes = BytesOf(payload);
  const std::string type = payload.content_type().empty() ? "" : absl::StrCat(", ", payload.content_type());
  if (payload.has_text()) return absl::StrCat(OneLine(bytes, 400), "   (", bytes.size(), " bytes", type, ")");
  return absl::StrCat(bytes.size(), " bytes", type);
}

// "a, b".
std::string Keys(const v1::Job& job) {
  std::string keys;
  for (const std::string& key : job.concurrency_keys()) {
    absl::StrAppend(&keys, keys.empty() ? "" : ", ", OneLine(key, 255));
  }
  return keys;
}

}  // namespace

Table MakeJobTable() {
  return Table({{"ID"},
                {"QUEUE"},
                {"KIND"},
                {"STATE"},
                {"PRIORITY", true},
                {"ATTEMPT", true},
                {"CREATED"},
                {"WHEN"},
                {"HELD BY"},
                {"UNTIL"},
                {"TOKEN NO", true},
                {"ERROR"}});
}

void AddJobRow(Table& table, const v1::Job& job, absl::Time now) {
  // What a reader wants to know about the time depends on the state: when it comes, or when it ended.
  std::string when;
  if (job.has_end_time()) {
    when = absl::StrCat("ended ", ShowWhen(FromProto(job.end_time()), now));
  } else if (job.state() == v1::JOB_STATE_LEASED && job.lease().has_grant_time()) {
    when = absl::StrCat("claimed ", ShowWhen(FromProto(job.lease().grant_time()), now));
  } else if (job.has_due_time()) {
    when = absl::StrCat("due ", ShowWhen(FromProto(job.due_time()), now));
  }
  const bool held = job.has_lease();
  table.AddRow({job.id(), job.queue(), job.kind(), StateName(job.state()), absl::StrCat(job.priority()),
                absl::StrCat(job.attempt()), job.has_create_time() ? ShowWhen(FromProto(job.create_time()), now) : "",
                when, held ? OneLine(job.lease().worker_id(), 60) : "",
                held && job.lease().has_expire_time() ? ShowWhen(FromProto(job.lease().expire_time()), now) : "",
                held ? absl::StrCat(job.lease().token_number()) : "", OneLine(job.error().message(), 60)});
}

void PrintJob(std::ostream& out, const v1::Job& job, absl::Time now) {
  std::string backoff;
  if (job.has_backoff()) {
    backoff = absl::StrCat(ShowDuration(FromProto(job.backoff().initial())), " x ", job.backoff().multiplier(),
                           ", at most ", ShowDuration(FromProto(job.backoff().max())));
  }
  std::string progress;
  if (job.has_progress()) {
    progress = absl::StrCat(static_cast<int>(job.progress().fraction() * 100 + 0.5), " % ",
                            OneLine(job.progress().message(), 200));
  }
  const v1::JobError& error = job.error();
  out << "Job " << job.id() << '\n';
  std::vector<std::pair<std::string, std::string>> fields = {
      {"queue", job.queue()},
      {"kind", job.kind()},
      {"state", StateName(job.state())},
      {"held by", job.has_lease() ? OneLine(job.lease().worker_id(), 255) : ""},
      {"until", TimeField(job.lease().has_expire_time(), job.lease().expire_time(), now)},
      {"token number", job.has_lease() ? absl::StrCat(job.lease().token_number()) : ""},
      {"claimed", TimeField(job.lease().has_grant_time(), job.lease().grant_time(), now)},
      {"progress", progress},
      {"attempt", absl::StrCat(job.attempt())},
      {"failures", absl::StrCat(job.failures(), " of ", job.max_attempts())},
      {"crashes", absl::StrCat(job.crashes(), " of ", job.crash_budget())},
      {"releases", job.releases() > 0 ? absl::StrCat(job.releases()) : ""},
      {"snoozes", job.snoozes() > 0 ? absl::StrCat(job.snoozes()) : ""},
      {"priority", absl::StrCat(job.priority())},
      {"tenant", OneLine(job.tenant(), 255)},
      {"created", TimeField(job.has_create_time(), job.create_time(), now)},
      {"due", TimeField(job.has_due_time(), job.due_time(), now)},
      {"started", TimeField(job.has_start_time(), job.start_time(), now)},
      {"ended", TimeField(job.has_end_time(), job.end_time(), now)},
      {"expires", TimeField(job.has_expire_time(), job.expire_time(), now)},
      {"retry of", job.retry_of()},
      {"forwarded to", job.forwarded_to()},
      {"keys", Keys(job)},
      {"group", OneLine(job.group_key(), 255)},
      {"unique key", absl::StrCat(OneLine(job.unique_key(), 255),
                                  job.unique_scope() == v1::UNIQUE_SCOPE_KIND ? ", of its kind" : "")},
      {"effect key", OneLine(job.effect_key(), 255)},
      {"idempotency key", OneLine(job.idempotency_key(), 255)},
      {"backoff", backoff},
      {"payload", PayloadField(job.payload())},
      {"result", PayloadField(job.result())},
      {"error", OneLine(error.message(), 1000)},
      {"error type", OneLine(error.type(), 255)},
      {"error at", job.has_error() && error.has_record_time()
                       ? absl::StrCat("attempt ", error.attempt(), ", ", ShowWhen(FromProto(error.record_time()), now))
                       : ""},
  };
  for (const auto& [key, value] : job.headers()) {
    fields.emplace_back(OneLine(absl::StrCat("header ", key), 100), OneLine(value, 400));
  }
  PrintFields(out, fields);
}

const std::string& BytesOf(const v1::Payload& payload) { return payload.has_text() ? payload.text() : payload.data(); }

absl::StatusOr<v1::Job> WaitForJob(Context& context, const std::string& id, absl::Duration limit) {
  const absl::Time end = limit == absl::InfiniteDuration() ? absl::InfiniteFuture() : absl::Now() + limit;
  absl::Time give_up = absl::InfiniteFuture();
  while (true) {
    v1::GetRequest request;
    request.set_id(id);
    const absl::Duration wait = std::max(absl::ZeroDuration(), std::min(kLongestWait, end - absl::Now()));
    *request.mutable_wait() = ToProto(wait);
    const absl::Time asked = absl::Now();
    const auto response = context.connection().Get(request);
    if (response.ok()) {
      give_up = absl::InfiniteFuture();
      if (IsFinal(response->job().state()) || absl::Now() >= end) return response->job();
      // A replica that shuts down answers at once: do not ask it in a tight loop.
      if (absl::Now() < asked + wait / 2) Pause(kPauseAfterEarlyAnswer);
      continue;
    }
    // A daemon that restarts while we wait is no reason to lose the outcome. Connection spaces the attempts.
    if (response.status().code() != absl::StatusCode::kUnavailable) return response.status();
    give_up = std::min(give_up, absl::Now() + context.timeout);
    if (absl::Now() >= std::min(give_up, end)) return response.status();
  }
}

}  // namespace tenure::cli
