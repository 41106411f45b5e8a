#include "server/rpc/limit_service.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/rpc/conversion.h"
#include "server/rpc/page_token.h"

namespace tenure::rpc {
namespace {

constexpr size_t kMaxKey = 255;
constexpr int32_t kMaxLeased = 1'000'000;
constexpr int32_t kMaxBurst = 1'000'000;
constexpr int32_t kMaxWeight = 1000;
constexpr absl::Duration kShortestInterval = absl::Microseconds(10);
constexpr absl::Duration kLongestInterval = absl::Hours(24);

// Which limit a request names.
template <typename Request>
absl::StatusOr<store::LimitScope> ScopeFrom(const Request& request) {
  TENURE_RETURN_IF_ERROR(CheckQueueName(Field("queue"), request.queue()));
  if (request.scope() == v1::LIMIT_SCOPE_UNSPECIFIED || !v1::LimitScope_IsValid(request.scope())) {
    return Invalid(Field("scope"),
                   "must be LIMIT_SCOPE_KEY, LIMIT_SCOPE_PREFIX, LIMIT_SCOPE_QUEUE or LIMIT_SCOPE_TENANT");
  }
  const auto scope = static_cast<store::LimitScope>(request.scope());
  if (scope == store::LimitScope::kQueue) {
    if (!request.key().empty()) return Invalid(Field("key"), "must be empty for LIMIT_SCOPE_QUEUE");
    return scope;
  }
  TENURE_RETURN_IF_ERROR(CheckText(Field("key"), request.key(), 1, kMaxKey));
  return scope;
}

absl::StatusOr<store::LimitSettings> SettingsOf(const v1::SetLimitRequest& request) {
  store::LimitSettings settings;
  if (request.scope() == v1::LIMIT_SCOPE_TENANT) {
    if (request.has_max_leased() || request.has_rate()) {
      return Invalid(Field(request.has_rate() ? "rate" : "max_leased"),
                     "is not for a tenant; name the tenant in a concurrency key, and limit that");
    }
    if (!request.has_weight()) return Invalid(Field("weight"), "is required for a tenant");
    TENURE_RETURN_IF_ERROR(CheckRange(Field("weight"), request.weight(), 1, kMaxWeight));
    settings.weight = request.weight();
    return settings;
  }
  if (request.has_weight()) return Invalid(Field("weight"), "is only for LIMIT_SCOPE_TENANT");
  if (!request.has_max_leased() && !request.has_rate()) {
    return Invalid(Field("max_leased"), "or rate is required; DeleteLimit takes a limit away");
  }
  if (request.has_max_leased()) {
    TENURE_RETURN_IF_ERROR(CheckRange(Field("max_leased"), request.max_leased(), 0, kMaxLeased));
    settings.max_leased = request.max_leased();
  }
  if (request.has_rate()) {
    const Field field("rate");
    if (!request.rate().has_interval()) return Invalid(field / "interval", "is required");
    store::Rate rate;
    TENURE_ASSIGN_OR_RETURN(
        rate.interval, DurationIn(field / "interval", request.rate().interval(), kShortestInterval, kLongestInterval));
    TENURE_ASSIGN_OR_RETURN(rate.burst, NumberOr(field / "burst", request.rate().burst(), 1, 1, kMaxBurst));
    settings.rate = rate;
  }
  return settings;
}

void ToProto(const store::Limit& limit, const std::string& queue, v1::Limit* out) {
  out->set_queue(queue);
  out->set_scope(static_cast<v1::LimitScope>(limit.scope));
  out->set_key(limit.key);
  if (limit.settings.max_leased) out->set_max_leased(*limit.settings.max_leased);
  if (limit.settings.weight) out->set_weight(*limit.settings.weight);
  if (limit.settings.rate) {
    rpc::ToProto(limit.settings.rate->interval, out->mutable_rate()->mutable_interval());
    out->mutable_rate()->set_burst(limit.settings.rate->burst);
  }
  rpc::ToProto(limit.created, out->mutable_create_time());
  rpc::ToProto(limit.updated, out->mutable_update_time());
  if (!limit.usage) return;
  v1::LimitUsage& usage = *out->mutable_usage();
  usage.set_held(limit.usage->held);
  usage.set_waiting(limit.usage->waiting);
  if (limit.usage->paused_for) rpc::ToProto(*limit.usage->paused_for, usage.mutable_paused_for());
  if (limit.usage->next_start_in) rpc::ToProto(*limit.usage->next_start_in, usage.mutable_next_start_in());
}

template <typename Call>
std::function<void(absl::StatusOr<store::Limit>)> AnswerLimit(std::shared_ptr<Call> call) {
  return [call = std::move(call)](const absl::StatusOr<store::Limit>& limit) {
    if (!limit.ok()) return call->Finish(limit.status());
    ToProto(*limit, call->request().queue(), call->response().mutable_limit());
    call->Finish();
  };
}

}  // namespace

void LimitService::Register(MethodTable& table) {
  constexpr char kService[] = "tenure.v1.LimitService";
  table.Add<v1::SetLimitRequest, v1::SetLimitResponse>(kService, "SetLimit",
                                                       [this](auto call) { SetLimit(std::move(call)); });
  table.Add<v1::GetLimitRequest, v1::GetLimitResponse>(kService, "GetLimit",
                                                       [this](auto call) { GetLimit(std::move(call)); });
  table.Add<v1::ListLimitsRequest, v1::ListLimitsResponse>(kService, "ListLimits",
                                                           [this](auto call) { ListLimits(std::move(call)); });
  table.Add<v1::DeleteLimitRequest, v1::DeleteLimitResponse>(kService, "DeleteLimit",
                                                             [this](auto call) { DeleteLimit(std::move(call)); });
}

void LimitService::SetLimit(CallPtr<v1::SetLimitRequest, v1::SetLimitResponse> call) {
  const v1::SetLimitRequest& request = call->request();
  const absl::StatusOr<store::LimitScope> scope = ScopeFrom(request);
  if (!scope.ok()) return call->Finish(scope.status());
  absl::StatusOr<store::LimitSettings> settings = SettingsOf(request);
  if (!settings.ok()) return call->Finish(settings.status());
  engine_.SetLimit(request.queue(), *scope, request.key(), *settings, AnswerLimit(call));
}

void LimitService::GetLimit(CallPtr<v1::GetLimitRequest, v1::GetLimitResponse> call) {
  const v1::GetLimitRequest& request = call->request();
  const absl::StatusOr<store::LimitScope> scope = ScopeFrom(request);
  if (!scope.ok()) return call->Finish(scope.status());
  engine_.GetLimit(request.queue(), *scope, request.key(), AnswerLimit(call));
}

void LimitService::ListLimits(CallPtr<v1::ListLimitsRequest, v1::ListLimitsResponse> call) {
  const v1::ListLimitsRequest& request = call->request();
  if (absl::Status valid = CheckQueueName(Field("queue"), request.queue()); !valid.ok()) return call->Finish(valid);
  absl::StatusOr<int32_t> page_size = PageSizeFrom(request.page_size(), 100);
  if (!page_size.ok()) return call->Finish(page_size.status());
  absl::StatusOr<std::string> after = DecodePageToken(request.page_token(), request);
  if (!after.ok()) return call->Finish(after.status());
  // The token is the scope's digit and the key of the page's last limit.
  const int scope = after->empty() ? 0 : (*after)[0] - '0';
  // One more than the page tells whether there is a next one.
  engine_.ListLimits(request.queue(), static_cast<store::LimitScope>(scope),
                     after->empty() ? std::string() : after->substr(1), *page_size + 1,
                     [call, limit = static_cast<size_t>(*page_size)](absl::StatusOr<std::vector<store::Limit>> limits) {
                       if (!limits.ok()) return call->Finish(limits.status());
                       v1::ListLimitsResponse& response = call->response();
                       if (limits->size() > limit) {
                         limits->resize(limit);
                         const store::Limit& last = limits->back();
                         response.set_next_page_token(
                             EncodePageToken(absl::StrCat(static_cast<int>(last.scope), last.key), call->request()));
                       }
                       for (const store::Limit& one : *limits)
                         ToProto(one, call->request().queue(), response.add_limits());
                       call->Finish();
                     });
}

void LimitService::DeleteLimit(CallPtr<v1::DeleteLimitRequest, v1::DeleteLimitResponse> call) {
  const v1::DeleteLimitRequest& request = call->request();
  const absl::StatusOr<store::LimitScope> scope = ScopeFrom(request);
  if (!scope.ok()) return call->Finish(scope.status());
  engine_.DeleteLimit(request.queue(), *scope, request.key(),
                      [call](const absl::StatusOr<bool>& gone) { call->Finish(gone.status()); });
}

}  // namespace tenure::rpc
