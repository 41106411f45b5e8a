#include "server/rpc/explain_conversion.h"

#include "absl/strings/str_cat.h"
#include "server/rpc/conversion.h"

namespace tenure::rpc {
namespace {

std::string At(const std::optional<absl::Time>& time) {
  if (!time) return "a time that is not known";
  return absl::FormatTime("%Y-%m-%d %H:%M:%E3S UTC", *time, absl::UTCTimeZone());
}

std::string InLine(const store::WaitCause& cause) {
  if (cause.position <= 0) return "";
  if (cause.position > store::kWaitingCounted)
    return absl::StrCat("; more than ", store::kWaitingCounted, " wait before it");
  return absl::StrCat("; it is number ", cause.position, " in line");
}

// "more than 1000 jobs", "1 job".
std::string Counted(int64_t count, const char* one, const char* many) {
  if (count > store::kWaitingCounted) return absl::StrCat("more than ", store::kWaitingCounted, " ", many);
  return absl::StrCat(count, " ", count == 1 ? one : many);
}

std::string InWords(const store::WaitCause& cause, const std::string& queue) {
  switch (cause.reason) {
    case store::WaitReason::kEnded:
      return "it has ended";
    case store::WaitReason::kLeased:
      return absl::StrCat("it runs, under a lease to ", At(cause.until));
    case store::WaitReason::kQueuePaused:
      return absl::StrCat("the queue ", queue, " is paused");
    case store::WaitReason::kScheduled:
      return absl::StrCat("it is not due before ", At(cause.until));
    case store::WaitReason::kSuspended:
      return "it waits for a time or an event";
    case store::WaitReason::kGroup:
      return absl::StrCat("job ", cause.ahead ? cause.ahead->ToString() : "", " of its group ", cause.key,
                          " comes first", cause.until ? absl::StrCat(", and waits until ", At(cause.until)) : "");
    case store::WaitReason::kKeyFull:
      return absl::StrCat("its key ", cause.key, " is full: ", cause.limit.value_or(0), " at once", InLine(cause));
    case store::WaitReason::kKeyRate:
      return absl::StrCat("the rate of its key ", cause.key, " lets the next job pass at ", At(cause.until),
                          InLine(cause));
    case store::WaitReason::kKeyPaused:
      return absl::StrCat("its key ", cause.key, " is paused until ", At(cause.until));
    case store::WaitReason::kQueueFull:
      return absl::StrCat("the queue ", queue, " is full: ", cause.limit.value_or(0), " at once", InLine(cause));
    case store::WaitReason::kQueueRate:
      return absl::StrCat("the rate of the queue ", queue, " lets the next job pass at ", At(cause.until),
                          InLine(cause));
    case store::WaitReason::kBeingAdmitted:
      return "nothing holds it up any more; it is being admitted";
    case store::WaitReason::kReady:
      return absl::StrCat("it is ready", InLine(cause));
    case store::WaitReason::kTenantTurn:
      return absl::StrCat("its tenant ", cause.key.empty() ? "(none)" : cause.key, " is not due for a turn yet: ",
                          Counted(cause.tenants, "tenant takes turns", "tenants take turns"), ", and ",
                          Counted(cause.ready_jobs, "job is ready before it", "jobs are ready before it"),
                          InLine(cause), cause.position > 0 ? " of its tenant" : "");
    case store::WaitReason::kNoWorker:
      return absl::StrCat("no worker has asked for jobs of the queue ", queue, " within two minutes");
    case store::WaitReason::kDependency:
      return absl::StrCat("it waits for ", cause.limit.value_or(0), cause.limit.value_or(0) == 1 ? " job" : " jobs",
                          " to end");
  }
  return "";
}

}  // namespace

void ToProto(const store::WaitCause& cause, const std::string& queue, v1::WaitCause* out) {
  out->set_reason(static_cast<v1::WaitReason>(cause.reason));
  out->set_message(InWords(cause, queue));
  out->set_key(cause.key);
  if (cause.until) ToProto(*cause.until, out->mutable_until());
  if (cause.limit) out->set_limit(*cause.limit);
  for (const store::JobId& holder : cause.holders) out->add_holder_job_ids(holder.ToString());
  if (cause.ahead) {
    out->set_ahead_job_id(cause.ahead->ToString());
    out->set_ahead_state(ToProto(cause.ahead_state));
  }
  out->set_position(cause.position);
  out->set_ready_jobs(cause.ready_jobs);
  out->set_tenants(cause.tenants);
}

}  // namespace tenure::rpc
