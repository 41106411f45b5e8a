// Client's calls on limits. See tenure/client.h.
#include <utility>

#include "calls.h"
#include "convert.h"
#include "tenure/client.h"

namespace tenure::client {
namespace {

using internal::Call;

Limit TakeLimit(v1::Limit& from) {
  Limit to;
  to.queue = std::move(*from.mutable_queue());
  to.scope = static_cast<LimitScope>(from.scope());
  to.key = std::move(*from.mutable_key());
  if (from.has_max_leased()) to.spec.max_leased = from.max_leased();
  if (from.has_weight()) to.spec.weight = from.weight();
  if (from.has_rate()) to.spec.rate = RateLimit{internal::FromProto(from.rate().interval()), from.rate().burst()};
  if (from.has_create_time()) to.create_time = internal::FromProto(from.create_time());
  if (from.has_update_time()) to.update_time = internal::FromProto(from.update_time());
  if (from.has_usage()) {
    const v1::LimitUsage& usage = from.usage();
    to.usage = LimitUsage{usage.held(), usage.waiting(), std::nullopt, std::nullopt};
    if (usage.has_paused_for()) to.usage->paused_for = internal::FromProto(usage.paused_for());
    if (usage.has_next_start_in()) to.usage->next_start_in = internal::FromProto(usage.next_start_in());
  }
  return to;
}

template <typename Request>
absl::Status NameLimit(std::string_view queue, LimitScope scope, std::string_view key, Request& request) {
  if (absl::Status status = internal::CheckText("queue", queue); !status.ok()) return status;
  if (absl::Status status = internal::CheckText("key", key); !status.ok()) return status;
  request.set_queue(std::string(queue));
  request.set_scope(static_cast<v1::LimitScope>(scope));
  request.set_key(std::string(key));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Limit> Client::SetLimit(std::string_view queue, LimitScope scope, std::string_view key,
                                       const LimitSpec& spec, const CallOptions& options) {
  v1::SetLimitRequest request;
  if (absl::Status status = NameLimit(queue, scope, key, request); !status.ok()) return status;
  if (spec.max_leased) request.set_max_leased(*spec.max_leased);
  if (spec.weight) request.set_weight(*spec.weight);
  if (spec.rate) {
    internal::ToProto(spec.rate->interval, request.mutable_rate()->mutable_interval());
    request.mutable_rate()->set_burst(spec.rate->burst);
  }
  v1::SetLimitResponse response;
  absl::Status status = Call(*connection_, request, &response, internal::BoundsOf(*connection_, options));
  if (!status.ok()) return status;
  return TakeLimit(*response.mutable_limit());
}

absl::StatusOr<Limit> Client::GetLimit(std::string_view queue, LimitScope scope, std::string_view key,
                                       const CallOptions& options) {
  v1::GetLimitRequest request;
  if (absl::Status status = NameLimit(queue, scope, key, request); !status.ok()) return status;
  v1::GetLimitResponse response;
  absl::Status status = Call(*connection_, request, &response, internal::BoundsOf(*connection_, options));
  if (!status.ok()) return status;
  return TakeLimit(*response.mutable_limit());
}

absl::StatusOr<LimitPage> Client::ListLimits(std::string_view queue, int page_size, std::string_view page_token,
                                             const CallOptions& options) {
  if (absl::Status status = internal::CheckText("queue", queue); !status.ok()) return status;
  if (absl::Status status = internal::CheckText("page_token", page_token); !status.ok()) return status;
  v1::ListLimitsRequest request;
  request.set_queue(std::string(queue));
  request.set_page_size(page_size);
  request.set_page_token(std::string(page_token));
  v1::ListLimitsResponse response;
  absl::Status status = Call(*connection_, request, &response, internal::BoundsOf(*connection_, options));
  if (!status.ok()) return status;
  LimitPage page;
  for (auto& limit : *response.mutable_limits()) page.limits.push_back(TakeLimit(limit));
  page.next_page_token = std::move(*response.mutable_next_page_token());
  return page;
}

absl::Status Client::DeleteLimit(std::string_view queue, LimitScope scope, std::string_view key,
                                 const CallOptions& options) {
  v1::DeleteLimitRequest request;
  if (absl::Status status = NameLimit(queue, scope, key, request); !status.ok()) return status;
  v1::DeleteLimitResponse response;
  return Call(*connection_, request, &response, internal::BoundsOf(*connection_, options));
}

}  // namespace tenure::client
