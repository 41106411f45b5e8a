#include "server/store/postgres/rows.h"

#include "nlohmann/json.hpp"
#include "server/store/dependencies.h"

namespace tenure::store::postgres {

JobReader::JobReader(const Result& result, int32_t queue)
    : r_(result),
      queue_(queue),
      id_(r_.Column("id")),
      queue_id_(r_.Column("queue_id")),
      day_(r_.Column("day")),
      state_(r_.Column("state")),
      kind_(r_.Column("kind")),
      priority_(r_.Column("priority")),
      tenant_(r_.Column("tenant")),
      attempt_(r_.Column("attempt")),
      failures_(r_.Column("failures")),
      crashes_(r_.Column("crashes")),
      releases_(r_.Column("releases")),
      snoozes_(r_.Column("snoozes")),
      max_attempts_(r_.Column("max_attempts")),
      crash_budget_(r_.Column("crash_budget")),
      token_(r_.Column("token")),
      token_secret_(r_.Column("token_secret")),
      worker_(r_.Column("worker")),
      lease_us_(r_.Column("lease_us")),
      lease_until_(r_.Column("lease_until")),
      leased_at_(r_.Column("leased_at")),
      progress_(r_.Column("progress")),
      progress_message_(r_.Column("progress_message")),
      due_at_(r_.Column("due_at")),
      expires_at_(r_.Column("expires_at")),
      created_at_(r_.Column("created_at")),
      updated_at_(r_.Column("updated_at")),
      started_at_(r_.Column("started_at")),
      ended_at_(r_.Column("ended_at")),
      payload_(r_.Column("payload")),
      payload_day_(r_.Column("payload_day")),
      content_type_(r_.Column("content_type")),
      headers_(r_.Column("headers")),
      backoff_initial_(r_.Column("backoff_initial_us")),
      backoff_multiplier_(r_.Column("backoff_multiplier")),
      backoff_max_(r_.Column("backoff_max_us")),
      error_message_(r_.Column("error_message")),
      error_type_(r_.Column("error_type")),
      error_detail_(r_.Column("error_detail")),
      error_attempt_(r_.Column("error_attempt")),
      error_at_(r_.Column("error_at")),
      effect_key_(r_.Column("effect_key")),
      retry_of_(r_.Column("retry_of")),
      idempotency_key_(r_.Column("idempotency_key")),
      result_(r_.Column("result")),
      result_type_(r_.Column("result_type")),
      today_(r_.Column("today")),
      remaining_(r_.Column("remaining")),
      concurrency_keys_(r_.Column("concurrency_keys")),
      group_key_(r_.Column("group_key")),
      unique_name_(r_.Column("unique_name")) {}

std::string AwaitedName(int64_t id) { return kAwaitedMark + std::to_string(id); }

void GateReader::Add(int row, GateNames& names) const {
  if (!r_.IsNull(row, keys_)) {
    for (const std::string& key : r_.TextArray(row, keys_)) names.push_back("k" + key);
  }
  if (!r_.IsNull(row, group_)) names.push_back("g" + r_.Text(row, group_));
  if (r_.Bool(row, awaited_)) names.push_back(AwaitedName(r_.Int(row, id_)));
}

Job JobReader::Read(int row) const {
  Job job;
  job.id = {queue_id_ < 0 ? queue_ : r_.Int32(row, queue_id_), r_.Int32(row, day_), r_.Int(row, id_)};
  job.kind = r_.Text(row, kind_);
  job.state = static_cast<JobState>(r_.Int(row, state_));
  job.payload.data = r_.Text(row, payload_);
  job.payload.content_type = r_.Text(row, content_type_);
  if (!r_.IsNull(row, headers_)) job.headers = FromJson(r_.Json(row, headers_));
  job.priority = static_cast<int16_t>(r_.Int(row, priority_));
  job.tenant = r_.Text(row, tenant_);
  job.attempt = r_.Int32(row, attempt_);
  job.failures = r_.Int32(row, failures_);
  job.crashes = r_.Int32(row, crashes_);
  job.releases = r_.Int32(row, releases_);
  job.snoozes = r_.Int32(row, snoozes_);
  job.effect_key = r_.IsNull(row, effect_key_) ? job.id.ToString() : r_.Text(row, effect_key_);
  job.idempotency_key = r_.Text(row, idempotency_key_);
  if (!r_.IsNull(row, concurrency_keys_)) job.concurrency_keys = r_.TextArray(row, concurrency_keys_);
  job.group = r_.Text(row, group_key_);
  // 'q:' and the key, or 'k:', the kind (which has no blanks), a blank and the key.
  if (const std::string name = r_.Text(row, unique_name_); !name.empty()) {
    job.unique_by_kind = name[0] == 'k';
    job.unique_key = name.substr(job.unique_by_kind ? name.find(' ') + 1 : 2);
  }
  job.created = r_.Time(row, created_at_);
  job.due = r_.Time(row, due_at_);
  job.started = r_.OptionalTime(row, started_at_);
  job.ended = r_.OptionalTime(row, ended_at_);
  job.updated = job.ended ? *job.ended : r_.Time(row, updated_at_);
  if (job.state == JobState::kLeased) {
    job.lease =
        Lease{r_.Text(row, worker_), r_.Time(row, lease_until_), r_.Time(row, leased_at_), r_.Int32(row, token_)};
    if (!r_.IsNull(row, progress_) || !r_.IsNull(row, progress_message_)) {
      job.progress = Progress{r_.Double(row, progress_), r_.Text(row, progress_message_)};
    }
  }
  if (!r_.IsNull(row, result_)) job.result = Payload{r_.Text(row, result_), r_.Text(row, result_type_)};
  ReadDetails(row, job);
  return job;
}

void JobReader::ReadDetails(int row, Job& job) const {
  job.max_attempts = r_.Int32(row, max_attempts_);  // 0: the queue's; the engine fills it in.
  job.crash_budget = r_.Int32(row, crash_budget_);
  job.retry_of = r_.Text(row, retry_of_);
  job.expires = r_.OptionalTime(row, expires_at_);
  if (!r_.IsNull(row, error_message_)) {
    job.error = JobError{r_.Text(row, error_message_), r_.Text(row, error_type_), r_.Text(row, error_detail_),
                         r_.Int32(row, error_attempt_), r_.Time(row, error_at_)};
  }
  if (!r_.IsNull(row, backoff_initial_)) {
    job.backoff =
        Backoff{r_.Int(row, backoff_initial_), r_.Double(row, backoff_multiplier_), r_.Int(row, backoff_max_)};
  }
}

ClaimedJob JobReader::ReadClaimed(int row) const {
  ClaimedJob claimed;
  claimed.job = Read(row);
  claimed.token = {claimed.job.id, r_.Int32(row, token_), r_.Int32(row, today_), r_.Int(row, token_secret_)};
  claimed.lease = absl::Microseconds(r_.Int(row, lease_us_));
  claimed.remaining = r_.IsNull(row, remaining_) ? claimed.lease : absl::Seconds(r_.Double(row, remaining_));
  return claimed;
}

int32_t JobReader::PayloadDay(int row) const { return r_.IsNull(row, payload_day_) ? -1 : r_.Int32(row, payload_day_); }

Queue ReadQueue(const Result& r, int row) {
  Queue queue;
  queue.id = r.Int32(row, r.Column("id"));
  queue.name = r.Text(row, r.Column("name"));
  queue.paused = r.Bool(row, r.Column("paused"));
  queue.gated = r.Bool(row, r.Column("gated"));
  queue.settings.fair_tenants = r.Bool(row, r.Column("fair_tenants"));
  const int ageing = r.Column("priority_ageing_us");
  if (!r.IsNull(row, ageing)) queue.settings.priority_ageing = absl::Microseconds(r.Int(row, ageing));
  queue.settings.skip_retrying = r.Bool(row, r.Column("skip_retrying"));
  queue.created = r.Time(row, r.Column("created_at"));
  const int attempts = r.Column("max_attempts"), crashes = r.Column("crash_budget"),
            initial = r.Column("backoff_initial_us");
  if (!r.IsNull(row, attempts)) queue.settings.max_attempts = r.Int32(row, attempts);
  if (!r.IsNull(row, crashes)) queue.settings.crash_budget = r.Int32(row, crashes);
  if (!r.IsNull(row, initial)) {
    queue.settings.backoff = Backoff{r.Int(row, initial), r.Double(row, r.Column("backoff_multiplier")),
                                     r.Int(row, r.Column("backoff_max_us"))};
  }
  const int depth = r.Column("max_depth"), tenant_depth = r.Column("max_tenant_depth");
  if (!r.IsNull(row, depth)) queue.settings.max_depth = r.Int(row, depth);
  if (!r.IsNull(row, tenant_depth)) queue.settings.max_tenant_depth = r.Int(row, tenant_depth);
  queue.settings.description = r.Text(row, r.Column("description"));
  queue.settings.dead_letter_queue = r.Text(row, r.Column("dead_letter_queue"));
  if (const int rate = r.Column("dead_letter_rate"); !r.IsNull(row, rate)) {
    queue.settings.dead_letter_rate = r.Int32(row, rate);
  }
  if (const int within = r.Column("start_within_us"); !r.IsNull(row, within)) {
    queue.settings.start_within = absl::Microseconds(r.Int(row, within));
  }
  return queue;
}

std::string ToJson(const Headers& headers) {
  nlohmann::json object = nlohmann::json::object();
  for (const auto& [key, value] : headers) object[key] = value;
  return object.dump();
}

Headers FromJson(std::string_view json) {
  Headers headers;
  const nlohmann::json object = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return headers;
  for (const auto& [key, value] : object.items()) {
    headers[key] = value.is_string() ? value.get<std::string>() : value.dump();
  }
  return headers;
}

}  // namespace tenure::store::postgres
