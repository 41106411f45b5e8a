// Jobs as JSON: see the header. Layer: background/targets.
#include "server/background/targets/job_json.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "server/background/targets/digest.h"
#include "server/background/targets/event_json.h"
#include "server/store/targets.h"

namespace tenure::background::targets {
namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& json) { return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace); }

// Text where it is text, so that it can be read and searched; else base64. What claims to be text and is not UTF-8
// would not come back equal as text.
Json PayloadJson(const store::Payload& payload) {
  const bool textual = absl::StartsWith(payload.content_type, "text/") ||
                       absl::StartsWith(payload.content_type, "application/json") ||
                       absl::EndsWith(payload.content_type, "+json");
  Json out;
  if (textual) {
    const Json text = payload.data;
    try {
      static_cast<void>(text.dump());  // Strict: throws if it is no UTF-8.
      out["text"] = text;
    } catch (const nlohmann::json::exception&) {
      out["data"] = Base64(payload.data);
    }
  } else {
    out["data"] = Base64(payload.data);
  }
  if (!payload.content_type.empty()) out["contentType"] = payload.content_type;
  return out;
}

std::string Micros(int64_t us) { return absl::StrFormat("%d.%06ds", us / 1'000'000, us % 1'000'000); }

Json BackoffJson(const store::Backoff& backoff) {
  return {{"initial", Micros(backoff.initial_us)}, {"multiplier", backoff.multiplier}, {"max", Micros(backoff.max_us)}};
}

}  // namespace

std::string EndedJobJson(const store::Job& job, const std::string& queue) {
  Json out = {{"id", job.id.ToString()},
              {"queue", queue},
              {"kind", job.kind},
              {"state", std::string(store::OutcomeName(job.state))},
              {"priority", job.priority},
              {"attempt", job.attempt},
              {"failures", job.failures},
              {"crashes", job.crashes},
              {"releases", job.releases},
              {"snoozes", job.snoozes},
              {"createTime", TimeText(job.created)},
              {"dueTime", TimeText(job.due)}};
  if (job.started) out["startTime"] = TimeText(*job.started);
  if (job.ended) out["endTime"] = TimeText(*job.ended);
  if (job.expires) out["expireTime"] = TimeText(*job.expires);
  out["effectKey"] = job.effect_key;
  if (!job.tenant.empty()) out["tenant"] = job.tenant;
  if (!job.retry_of.empty()) out["retryOf"] = job.retry_of;
  if (!job.idempotency_key.empty()) out["idempotencyKey"] = job.idempotency_key;
  if (job.max_attempts > 0) out["maxAttempts"] = job.max_attempts;
  if (job.crash_budget > 0) out["crashBudget"] = job.crash_budget;
  if (job.backoff) out["backoff"] = BackoffJson(*job.backoff);
  if (!job.headers.empty()) out["headers"] = job.headers;
  out["payload"] = PayloadJson(job.payload);
  if (job.result) out["result"] = PayloadJson(*job.result);
  if (job.error) {
    out["error"] = {{"message", job.error->message},
                    {"type", job.error->type},
                    {"detail", job.error->detail},
                    {"attempt", job.error->attempt},
                    {"time", TimeText(job.error->at)}};
  }
  return Dump(out);
}

std::string RelayedJobJson(const store::Job& job, const std::string& queue, const std::string& key) {
  Json out = {{"queue", queue},
              {"kind", job.kind},
              {"priority", job.priority},
              {"payload", PayloadJson(job.payload)},
              {"effectKey", job.effect_key},
              {"idempotencyKey", key},
              {"idempotencyRetention", "2592000s"}};  // As long as may be: the peer may be away for long.
  if (!job.headers.empty()) out["headers"] = job.headers;
  if (!job.tenant.empty()) out["tenant"] = job.tenant;
  if (job.max_attempts > 0) out["maxAttempts"] = job.max_attempts;
  if (job.crash_budget > 0) out["crashBudget"] = job.crash_budget;
  if (job.backoff) out["backoff"] = BackoffJson(*job.backoff);
  if (job.expires) out["expireTime"] = TimeText(*job.expires);
  return Dump(out);
}

}  // namespace tenure::background::targets
