#include "server/rpc/worker_service.h"

#include <charconv>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/rpc/batch.h"
#include "server/rpc/conversion.h"
#include "server/rpc/page_token.h"

namespace tenure::rpc {
namespace {

constexpr int kMaxBatch = 10'000;
constexpr int kMaxSeenNotices = 1000;

absl::Status CallerGone() {
  return MakeError(absl::StatusCode::kCancelled, "CANCELLED", "the caller has gone; nothing was claimed for it");
}

// The four settles and Extend differ in their item alone: validate and convert each, ask the engine, put the answers in
// place.
template <typename Item, typename Answer, typename Call, typename Convert, typename Ask>
void RunBatch(std::shared_ptr<Call> call, Convert convert, Ask ask) {
  auto* items = call->request().mutable_items();
  absl::Status valid = CheckCount(Field("items"), items->size(), 1, kMaxBatch, "items");
  if (!valid.ok()) return call->Finish(valid);
  Batch<Item> batch = ConvertBatch<Item>(items, call->response().mutable_results(),
                                         [&](auto& item, int i) { return convert(Field("items", i), item); });
  if (batch.items.empty()) return call->Finish();
  ask(std::move(batch.items), call->deadline(),
      [call, places = std::move(batch.places)](absl::StatusOr<std::vector<Answer>> answers) {
        absl::Status answered = CheckAnswered(answers, places);
        if (!answered.ok()) return call->Finish(answered);
        for (size_t i = 0; i < places.size(); ++i) {
          ToProto((*answers)[i], call->response().mutable_results(places[i]));
        }
        call->Finish();
      });
}

}  // namespace

void WorkerService::Register(MethodTable& table) {
  constexpr char kService[] = "tenure.v1.WorkerService";
  table.Add<v1::ClaimRequest, v1::ClaimResponse>(kService, "Claim", [this](auto call) { Claim(std::move(call)); });
  table.Add<v1::ExtendRequest, v1::ExtendResponse>(kService, "Extend", [this](auto call) { Extend(std::move(call)); });
  table.Add<v1::CompleteRequest, v1::CompleteResponse>(kService, "Complete",
                                                       [this](auto call) { Complete(std::move(call)); });
  table.Add<v1::FailRequest, v1::FailResponse>(kService, "Fail", [this](auto call) { Fail(std::move(call)); });
  table.Add<v1::ReleaseRequest, v1::ReleaseResponse>(kService, "Release",
                                                     [this](auto call) { Release(std::move(call)); });
  table.Add<v1::SnoozeRequest, v1::SnoozeResponse>(kService, "Snooze", [this](auto call) { Snooze(std::move(call)); });
  table.Add<v1::AwaitNoticesRequest, v1::AwaitNoticesResponse>(kService, "AwaitNotices",
                                                               [this](auto call) { AwaitNotices(std::move(call)); });
  table.Add<v1::ListWorkersRequest, v1::ListWorkersResponse>(kService, "ListWorkers",
                                                             [this](auto call) { ListWorkers(std::move(call)); });
}

void WorkerService::GuardDelivery(CallBase& call, engine::ClaimAnswer leases) {
  if (leases.jobs.empty()) return;
  call.OnUndelivered([this, leases = std::move(leases)]() mutable { engine_.Undeliverable(std::move(leases)); });
}

void WorkerService::Claim(CallPtr<v1::ClaimRequest, v1::ClaimResponse> call) {
  v1::ClaimRequest& request = call->request();
  if (request.job_ids_size() > 0) return ClaimNamed(std::move(call));
  absl::StatusOr<engine::ClaimCall> claim = ClaimFrom(request);
  if (!claim.ok()) return call->Finish(claim.status());
  if (call->cancelled()) return call->Finish(CallerGone());
  claim->wait = call->PollWait(claim->wait);
  // With a request id nothing is given back: the caller's retry fetches the same leases.
  const bool replayable = !claim->request_id.empty();
  auto handle = engine_.Claim(*std::move(claim), call->deadline(),
                              [this, call, replayable](absl::StatusOr<engine::ClaimAnswer> answer) {
                                if (!answer.ok()) return call->Finish(answer.status());
                                if (!replayable) GuardDelivery(*call, LeasesOf(answer->jobs));
                                v1::ClaimResponse& response = call->response();
                                for (store::ClaimedJob& job : answer->jobs) {
                                  std::string queue = engine_.QueueName(job.job.id.queue);
                                  ToProto(std::move(job), std::move(queue), response.add_jobs());
                                }
                                response.set_replayed(answer->replayed);
                                call->Finish();
                              });
  if (handle) call->OnCancel([handle] { handle->Cancel(); });
}

void WorkerService::ClaimNamed(CallPtr<v1::ClaimRequest, v1::ClaimResponse> call) {
  v1::ClaimRequest& request = call->request();
  absl::StatusOr<engine::NamedClaimCall> claim = NamedClaimFrom(request);
  if (!claim.ok()) return call->Finish(claim.status());
  v1::ClaimResponse& response = call->response();
  std::vector<int> places;
  const auto refuse = [&response, call](int place, const absl::Status& status) {
    v1::ClaimRefusal* refusal = response.add_refusals();
    refusal->set_job_id(call->request().job_ids(place));
    ToItemError(status, refusal->mutable_error());
  };
  for (int i = 0; i < request.job_ids_size(); ++i) {
    absl::StatusOr<store::JobId> id = store::JobId::Parse(request.job_ids(i), "");
    if (!id.ok()) {
      refuse(i, store::JobId::Parse(request.job_ids(i), Field("job_ids", i).ToString()).status());
      continue;
    }
    claim->ids.push_back(*id);
    places.push_back(i);
  }
  if (places.empty()) return call->Finish();
  if (call->cancelled()) return call->Finish(CallerGone());
  const bool replayable = !claim->request_id.empty();
  engine_.ClaimNamed(*std::move(claim), call->deadline(),
                     [this, call, refuse, places = std::move(places),
                      replayable](absl::StatusOr<std::vector<store::NamedClaimOutcome>> outcomes) {
                       absl::Status answered = CheckAnswered(outcomes, places);
                       if (!answered.ok()) return call->Finish(answered);
                       std::vector<store::ClaimedJob> jobs;
                       for (size_t i = 0; i < places.size(); ++i) {
                         store::NamedClaimOutcome& outcome = (*outcomes)[i];
                         if (outcome.job) {
                           jobs.push_back(*std::move(outcome.job));
                         } else {
                           refuse(places[i], outcome.refusal);
                         }
                       }
                       if (!replayable) GuardDelivery(*call, LeasesOf(jobs));
                       for (store::ClaimedJob& job : jobs) {
                         std::string queue = engine_.QueueName(job.job.id.queue);
                         ToProto(std::move(job), std::move(queue), call->response().add_jobs());
                       }
                       call->Finish();
                     });
}

void WorkerService::Extend(CallPtr<v1::ExtendRequest, v1::ExtendResponse> call) {
  RunBatch<store::ExtendItem, engine::ExtendAnswer>(
      std::move(call), ExtendFrom,
      [this](auto items, auto deadline, auto done) { engine_.Extend(std::move(items), deadline, std::move(done)); });
}

void WorkerService::Complete(CallPtr<v1::CompleteRequest, v1::CompleteResponse> call) {
  RunBatch<engine::CompleteItem, engine::SettleAnswer>(
      std::move(call),
      [this](const Field& field, v1::CompleteItem& item) { return CompleteFrom(field, item, limits_); },
      [this](auto items, auto deadline, auto done) { engine_.Complete(std::move(items), deadline, std::move(done)); });
}

void WorkerService::Fail(CallPtr<v1::FailRequest, v1::FailResponse> call) {
  RunBatch<store::FailItem, engine::SettleAnswer>(
      std::move(call), FailFrom,
      [this](auto items, auto deadline, auto done) { engine_.Fail(std::move(items), deadline, std::move(done)); });
}

void WorkerService::Release(CallPtr<v1::ReleaseRequest, v1::ReleaseResponse> call) {
  RunBatch<store::GiveBackItem, engine::SettleAnswer>(
      std::move(call), ReleaseFrom,
      [this](auto items, auto deadline, auto done) { engine_.Release(std::move(items), deadline, std::move(done)); });
}

void WorkerService::Snooze(CallPtr<v1::SnoozeRequest, v1::SnoozeResponse> call) {
  RunBatch<store::GiveBackItem, engine::SettleAnswer>(
      std::move(call), SnoozeFrom,
      [this](auto items, auto deadline, auto done) { engine_.Snooze(std::move(items), deadline, std::move(done)); });
}

void WorkerService::AwaitNotices(CallPtr<v1::AwaitNoticesRequest, v1::AwaitNoticesResponse> call) {
  v1::AwaitNoticesRequest& request = call->request();
  absl::Status valid = CheckText(Field("worker_id"), request.worker_id(), 1, 255);
  if (valid.ok()) valid = CheckCount(Field("seen_ids"), request.seen_ids_size(), 0, kMaxSeenNotices, "ids");
  if (!valid.ok()) return call->Finish(valid);
  absl::StatusOr<absl::Duration> wait = WaitFrom(request.has_wait(), request.wait());
  if (!wait.ok()) return call->Finish(wait.status());
  std::vector<int64_t> seen;
  const std::string drain_id = absl::StrCat("drain-", engine_.replica_id());
  bool drain_seen = false;
  for (int i = 0; i < request.seen_ids_size(); ++i) {
    const std::string& text = request.seen_ids(i);
    drain_seen |= text == drain_id;
    if (text.starts_with("drain-")) continue;  // Perhaps another replica's.
    int64_t id = 0;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
    if (error != std::errc() || end != text.data() + text.size()) {
      return call->Finish(Invalid(Field("seen_ids", i), "is not the id of a notice"));
    }
    seen.push_back(id);
  }
  const absl::Duration poll = call->PollWait(*wait);
  auto handle = engine_.AwaitNotices(std::move(*request.mutable_worker_id()), std::move(seen), poll, call->deadline(),
                                     [call, drain_id, drain_seen](absl::StatusOr<engine::NoticesAnswer> answer) {
                                       if (!answer.ok()) return call->Finish(answer.status());
                                       for (const store::Notice& notice : answer->notices) {
                                         ToProto(notice, call->response().add_notices());
                                       }
                                       if (answer->draining && !drain_seen) {
                                         v1::Notice* drain = call->response().add_notices();
                                         drain->set_id(drain_id);
                                         drain->set_type(v1::NOTICE_TYPE_DRAIN);
                                       }
                                       call->Finish();
                                     });
  if (handle) call->OnCancel([handle] { handle->Cancel(); });
}

void WorkerService::ListWorkers(CallPtr<v1::ListWorkersRequest, v1::ListWorkersResponse> call) {
  const v1::ListWorkersRequest& request = call->request();
  absl::StatusOr<int32_t> page_size = PageSizeFrom(request.page_size(), 100);
  if (!page_size.ok()) return call->Finish(page_size.status());
  absl::StatusOr<std::string> after = DecodePageToken(request.page_token(), request);
  if (!after.ok()) return call->Finish(after.status());
  // One more than the page tells whether there is a next one.
  engine_.ListWorkers(
      *std::move(after), *page_size + 1,
      [call, limit = static_cast<size_t>(*page_size)](absl::StatusOr<std::vector<store::WorkerRow>> rows) {
        if (!rows.ok()) return call->Finish(rows.status());
        v1::ListWorkersResponse& response = call->response();
        if (rows->size() > limit) {
          rows->resize(limit);
          response.set_next_page_token(EncodePageToken(rows->back().worker, call->request()));
        }
        for (const store::WorkerRow& row : *rows) ToProto(row, response.add_workers());
        call->Finish();
      });
}

}  // namespace tenure::rpc
