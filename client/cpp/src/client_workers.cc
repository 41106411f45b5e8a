// Client's calls for workers: claim, extend, settle, notices. See tenure/client.h.
#include <utility>

#include "batch.h"
#include "calls.h"
#include "convert.h"
#include "tenure/client.h"

namespace tenure::client {
namespace {

using internal::Call;

template <typename Request, typename Response, typename Item>
std::vector<absl::StatusOr<Settled>> Settle(internal::Connection& connection, const std::vector<Item>& items,
                                            const CallOptions& options) {
  return internal::CallInBatches<Settled, Request, Response>(
      connection, items.size(), internal::BoundsOf(connection, options),
      [&](size_t i, Request* request) { return internal::ToProto(items[i], request->add_items()); },
      [](const Request& request) { return request.items_size(); },
      [](v1::SettleResult& result, SteadyTime) { return internal::TakeSettled(result); });
}

}  // namespace

absl::StatusOr<ClaimResult> Client::Claim(const ClaimOptions& claim, const CallOptions& options) {
  v1::ClaimRequest request;
  if (absl::Status status = internal::ToProto(claim, &request); !status.ok()) return status;
  v1::ClaimResponse response;
  SteadyTime sent;
  internal::CallBounds bounds = internal::BoundsOf(*connection_, options, claim.wait);
  bounds.sent = &sent;
  absl::Status status = Call(*connection_, request, &response, bounds);
  if (!status.ok()) return status;
  ClaimResult result;
  result.replayed = response.replayed();
  result.jobs.reserve(static_cast<size_t>(response.jobs_size()));
  for (auto& job : *response.mutable_jobs()) result.jobs.push_back(internal::TakeClaimed(job, sent));
  return result;
}

std::vector<absl::StatusOr<ClaimedJob>> Client::ClaimNamed(const std::vector<std::string>& job_ids,
                                                           const ClaimOptions& claim, const CallOptions& options) {
  std::vector<absl::StatusOr<ClaimedJob>> results(
      job_ids.size(), absl::StatusOr<ClaimedJob>(absl::UnknownError("the daemon's answer left this job out")));
  const auto all = [&](const absl::Status& status) {
    for (auto& result : results) result = status;
    return results;
  };
  if (job_ids.empty()) return results;
  ClaimOptions named = claim;
  named.queues.clear();
  named.wait = Duration::zero();
  named.reservations.clear();
  named.exclude_tenants.clear();
  v1::ClaimRequest request;
  if (absl::Status status = internal::ToProto(named, &request); !status.ok()) return all(status);
  // The list of ids is the bound.
  request.clear_max_jobs();
  for (const std::string& id : job_ids) {
    if (absl::Status status = internal::CheckText("job_ids", id); !status.ok()) return all(status);
    request.add_job_ids(id);
  }
  v1::ClaimResponse response;
  SteadyTime sent;
  internal::CallBounds bounds = internal::BoundsOf(*connection_, options);
  bounds.sent = &sent;
  if (absl::Status status = Call(*connection_, request, &response, bounds); !status.ok()) return all(status);
  std::map<std::string, absl::StatusOr<ClaimedJob>> by_id;
  for (auto& job : *response.mutable_jobs()) {
    ClaimedJob claimed = internal::TakeClaimed(job, sent);
    std::string id = claimed.job.id;
    by_id.insert_or_assign(std::move(id), std::move(claimed));
  }
  for (const auto& refusal : response.refusals()) {
    by_id.insert_or_assign(refusal.job_id(), internal::FromItemError(refusal.error()));
  }
  for (size_t i = 0; i < job_ids.size(); ++i) {
    const auto found = by_id.find(job_ids[i]);
    if (found != by_id.end()) results[i] = found->second;
  }
  return results;
}

absl::StatusOr<Extended> Client::Extend(const ExtendItem& item, const CallOptions& options) {
  return internal::Only(ExtendBatch({item}, options));
}

std::vector<absl::StatusOr<Extended>> Client::ExtendBatch(const std::vector<ExtendItem>& items,
                                                          const CallOptions& options) {
  return internal::CallInBatches<Extended, v1::ExtendRequest, v1::ExtendResponse>(
      *connection_, items.size(), internal::BoundsOf(*connection_, options),
      [&](size_t i, v1::ExtendRequest* request) { return internal::ToProto(items[i], request->add_items()); },
      [](const v1::ExtendRequest& request) { return request.items_size(); },
      [](v1::ExtendResult& result, SteadyTime sent) {
        Extended extended;
        if (result.has_expire_time()) extended.expire_time = internal::FromProto(result.expire_time());
        extended.lease_duration = internal::FromProto(result.lease_duration());
        extended.sent = sent;
        return extended;
      });
}

absl::StatusOr<Settled> Client::Complete(const CompleteItem& item, const CallOptions& options) {
  return internal::Only(CompleteBatch({item}, options));
}
std::vector<absl::StatusOr<Settled>> Client::CompleteBatch(const std::vector<CompleteItem>& items,
                                                           const CallOptions& options) {
  return Settle<v1::CompleteRequest, v1::CompleteResponse>(*connection_, items, options);
}

absl::StatusOr<Settled> Client::Fail(const FailItem& item, const CallOptions& options) {
  return internal::Only(FailBatch({item}, options));
}
std::vector<absl::StatusOr<Settled>> Client::FailBatch(const std::vector<FailItem>& items, const CallOptions& options) {
  return Settle<v1::FailRequest, v1::FailResponse>(*connection_, items, options);
}

absl::StatusOr<Settled> Client::Release(const ReleaseItem& item, const CallOptions& options) {
  return internal::Only(ReleaseBatch({item}, options));
}
std::vector<absl::StatusOr<Settled>> Client::ReleaseBatch(const std::vector<ReleaseItem>& items,
                                                          const CallOptions& options) {
  return Settle<v1::ReleaseRequest, v1::ReleaseResponse>(*connection_, items, options);
}

absl::StatusOr<Settled> Client::Snooze(const SnoozeItem& item, const CallOptions& options) {
  return internal::Only(SnoozeBatch({item}, options));
}
std::vector<absl::StatusOr<Settled>> Client::SnoozeBatch(const std::vector<SnoozeItem>& items,
                                                         const CallOptions& options) {
  return Settle<v1::SnoozeRequest, v1::SnoozeResponse>(*connection_, items, options);
}

absl::StatusOr<std::vector<Notice>> Client::AwaitNotices(const NoticesOptions& notices, const CallOptions& options) {
  v1::AwaitNoticesRequest request;
  if (absl::Status status = internal::CheckText("worker_id", notices.worker_id); !status.ok()) return status;
  request.set_worker_id(notices.worker_id);
  if (notices.wait > Duration::zero()) internal::ToProto(notices.wait, request.mutable_wait());
  for (const std::string& id : notices.seen_ids) {
    if (absl::Status status = internal::CheckText("seen_ids", id); !status.ok()) return status;
    request.add_seen_ids(id);
  }
  v1::AwaitNoticesResponse response;
  absl::Status status = Call(*connection_, request, &response, internal::BoundsOf(*connection_, options, notices.wait));
  if (!status.ok()) return status;
  std::vector<Notice> result;
  for (auto& notice : *response.mutable_notices()) result.push_back(internal::TakeNotice(notice));
  return result;
}

}  // namespace tenure::client
