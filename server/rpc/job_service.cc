#include "server/rpc/job_service.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/rpc/batch.h"
#include "server/rpc/conversion.h"
#include "server/rpc/explain_conversion.h"
#include "server/rpc/page_token.h"

namespace tenure::rpc {
namespace {

constexpr int kMaxBatch = 10'000;
// Jobs of a call of which some wait for others: they are accepted in one transaction.
constexpr int kMaxGraph = 1'000;
constexpr int32_t kMaxPageWithPayloads =
    50;  // Bounds what the daemon holds at once: 100 MiB with 1 MiB payloads and results.
constexpr size_t kMaxPageBytes = 3 << 20;  // Below the 4 MiB that gRPC clients take unless told otherwise.

bool IsGraph(const v1::EnqueueRequest& request) {
  return std::any_of(request.jobs().begin(), request.jobs().end(),
                     [](const v1::JobSpec& job) { return job.has_depends_on(); });
}

// Indexes of the request become those of the jobs that are passed on; -1: that one was refused.
void Renumber(Batch<engine::EnqueueItem>& batch) {
  std::map<int, int32_t> now;
  for (size_t i = 0; i < batch.places.size(); ++i) now[batch.places[i]] = static_cast<int32_t>(i);
  for (engine::EnqueueItem& item : batch.items) {
    if (!item.job.depends_on) continue;
    for (int32_t& index : item.job.depends_on->items) {
      const auto found = now.find(index);
      index = found == now.end() ? -1 : found->second;
    }
  }
}

}  // namespace

void JobService::Register(MethodTable& table) {
  constexpr char kService[] = "tenure.v1.JobService";
  table.Add<v1::EnqueueRequest, v1::EnqueueResponse>(kService, "Enqueue",
                                                     [this](auto call) { Enqueue(std::move(call)); });
  table.Add<v1::GetRequest, v1::GetResponse>(kService, "Get", [this](auto call) { Get(std::move(call)); });
  table.Add<v1::ListRequest, v1::ListResponse>(kService, "List", [this](auto call) { List(std::move(call)); });
  table.Add<v1::CancelRequest, v1::CancelResponse>(kService, "Cancel", [this](auto call) { Cancel(std::move(call)); });
  table.Add<v1::RetryRequest, v1::RetryResponse>(kService, "Retry", [this](auto call) { Retry(std::move(call)); });
  table.Add<v1::ExplainRequest, v1::ExplainResponse>(kService, "Explain",
                                                     [this](auto call) { Explain(std::move(call)); });
}

void JobService::Enqueue(CallPtr<v1::EnqueueRequest, v1::EnqueueResponse> call) {
  v1::EnqueueRequest& request = call->request();
  absl::Status valid = CheckCount(Field("jobs"), request.jobs_size(), 1, kMaxBatch, "jobs");
  if (valid.ok() && request.jobs_size() > kMaxGraph && IsGraph(request)) {
    valid = Invalid(Field("jobs"), absl::StrCat("has ", request.jobs_size(),
                                                " jobs, some with depends_on; then it may have ", kMaxGraph));
  }
  if (!valid.ok()) return call->Finish(valid);
  auto batch = ConvertBatch<engine::EnqueueItem>(
      request.mutable_jobs(), call->response().mutable_results(),
      [&](v1::JobSpec& spec, int i) { return JobFrom(Field("jobs", i), spec, limits_); });
  if (batch.items.empty()) return call->Finish();
  Renumber(batch);
  engine_.Enqueue(
      std::move(batch.items), call->deadline(),
      [call, places = std::move(batch.places)](absl::StatusOr<std::vector<store::EnqueueOutcome>> outcomes) {
        absl::Status answered = CheckAnswered(outcomes, places);
        if (!answered.ok()) return call->Finish(answered);
        for (size_t i = 0; i < places.size(); ++i) {
          const store::EnqueueOutcome& outcome = (*outcomes)[i];
          v1::EnqueueResult* result = call->response().mutable_results(places[i]);
          if (!outcome.status.ok()) {
            ToItemError(outcome.status, result->mutable_error());
            continue;
          }
          result->set_job_id(outcome.id.ToString());
          result->set_duplicate(outcome.duplicate);
          result->set_existing(outcome.existing);
        }
        call->Finish();
      });
}

void JobService::Get(CallPtr<v1::GetRequest, v1::GetResponse> call) {
  const v1::GetRequest& request = call->request();
  absl::StatusOr<store::JobId> id = store::JobId::Parse(request.id(), "id");
  if (!id.ok()) return call->Finish(id.status());
  absl::StatusOr<absl::Duration> wait = WaitFrom(request.has_wait(), request.wait());
  if (!wait.ok()) return call->Finish(wait.status());
  auto answer = [this, call](absl::StatusOr<store::Job> job) {
    if (!job.ok()) return call->Finish(job.status());
    std::string queue = engine_.QueueName(job->id.queue);
    ToProto(*std::move(job), std::move(queue), call->response().mutable_job());
    call->Finish();
  };
  if (request.exact()) {
    if (*wait > absl::ZeroDuration()) return call->Finish(Invalid(Field("exact"), "cannot be combined with wait"));
    return engine_.GetRecord(*id, std::move(answer));
  }
  auto handle = engine_.Get(*id, call->PollWait(*wait), call->deadline(), std::move(answer));
  if (handle) call->OnCancel([handle] { handle->Cancel(); });
}

void JobService::List(CallPtr<v1::ListRequest, v1::ListResponse> call) {
  const v1::ListRequest& request = call->request();
  absl::StatusOr<store::ListFilter> filter = ListFilterFrom(request);
  if (!filter.ok()) return call->Finish(filter.status());
  absl::StatusOr<std::string> position = DecodePageToken(request.page_token(), request);
  if (!position.ok()) return call->Finish(position.status());
  filter->page_token = *std::move(position);
  if (filter->include_payloads) filter->page_size = std::min(filter->page_size, kMaxPageWithPayloads);
  ListPage(std::move(call), *std::move(filter));
}

namespace {

// About what it takes in an answer; the same as tenure.reply_size, and the result.
size_t ReplyBytes(const store::Job& job) {
  size_t bytes = 400 + job.payload.data.size() + job.kind.size() + job.tenant.size() + job.effect_key.size() +
                 job.idempotency_key.size() + (job.result ? job.result->data.size() : 0);
  for (const auto& [name, value] : job.headers) bytes += name.size() + value.size() + 8;
  if (job.error) bytes += job.error->message.size() + job.error->type.size() + job.error->detail.size();
  return bytes;
}

}  // namespace

void JobService::ListPage(CallPtr<v1::ListRequest, v1::ListResponse> call, store::ListFilter filter) {
  std::string queue = call->request().queue();
  store::ListFilter kept = filter;
  engine_.List(std::move(queue), std::move(filter),
               [this, call, kept = std::move(kept)](absl::StatusOr<store::ListPage> page) mutable {
                 if (!page.ok()) return call->Finish(page.status());
                 size_t bytes = 0;
                 for (const store::Job& job : page->jobs) {
                   bytes += ReplyBytes(job);
                 }
                 // A message over the caller's limit is lost as a whole, and its next page with it: read a shorter
                 // page.
                 if (bytes > kMaxPageBytes && page->jobs.size() > 1) {
                   kept.page_size = std::max(1, static_cast<int32_t>(page->jobs.size()) / 2);
                   return ListPage(std::move(call), std::move(kept));
                 }
                 v1::ListResponse& response = call->response();
                 for (store::Job& job : page->jobs) {
                   std::string name = engine_.QueueName(job.id.queue);
                   ToProto(std::move(job), std::move(name), response.add_jobs());
                 }
                 response.set_next_page_token(EncodePageToken(page->next_page_token, call->request()));
                 call->Finish();
               });
}

void JobService::Cancel(CallPtr<v1::CancelRequest, v1::CancelResponse> call) {
  v1::CancelRequest& request = call->request();
  absl::Status valid = CheckCount(Field("ids"), request.ids_size(), 1, kMaxBatch, "ids");
  if (valid.ok()) valid = CheckText(Field("reason"), request.reason(), 0, 1024);
  if (!valid.ok()) return call->Finish(valid);
  v1::CancelResponse& response = call->response();
  auto batch = ConvertBatch<store::JobId>(
      request.mutable_ids(), response.mutable_results(),
      [](const std::string& id, int i) { return store::JobId::Parse(id, Field("ids", i).ToString()); });
  for (int i = 0; i < request.ids_size(); ++i) response.mutable_results(i)->set_id(request.ids(i));
  if (batch.items.empty()) return call->Finish();
  engine_.Cancel(std::move(batch.items), std::move(*request.mutable_reason()), call->deadline(),
                 [call, places = std::move(batch.places)](absl::StatusOr<std::vector<engine::CancelAnswer>> answers) {
                   absl::Status answered = CheckAnswered(answers, places);
                   if (!answered.ok()) return call->Finish(answered);
                   for (size_t i = 0; i < places.size(); ++i) {
                     const engine::CancelAnswer& answer = (*answers)[i];
                     v1::CancelResult* result = call->response().mutable_results(places[i]);
                     if (answer.status.ok()) {
                       result->set_previous_state(ToProto(answer.previous));
                       result->set_job_id(answer.id.ToString());
                     } else {
                       ToItemError(answer.status, result->mutable_error());
                     }
                   }
                   call->Finish();
                 });
}

void JobService::Retry(CallPtr<v1::RetryRequest, v1::RetryResponse> call) {
  v1::RetryRequest& request = call->request();
  absl::Status valid = CheckCount(Field("ids"), request.ids_size(), 1, 1000, "ids");
  if (valid.ok()) valid = CheckText(Field("request_id"), request.request_id(), 0, 128);
  if (!valid.ok()) return call->Finish(valid);
  v1::RetryResponse& response = call->response();
  auto batch = ConvertBatch<store::JobId>(
      request.mutable_ids(), response.mutable_results(),
      [](const std::string& id, int i) { return store::JobId::Parse(id, Field("ids", i).ToString()); });
  for (int i = 0; i < request.ids_size(); ++i) response.mutable_results(i)->set_id(request.ids(i));
  if (batch.items.empty()) return call->Finish();
  engine_.Retry(std::move(batch.items), std::move(*request.mutable_request_id()),
                [call, places = std::move(batch.places)](absl::StatusOr<std::vector<store::RetryOutcome>> outcomes) {
                  absl::Status answered = CheckAnswered(outcomes, places);
                  if (!answered.ok()) return call->Finish(answered);
                  for (size_t i = 0; i < places.size(); ++i) {
                    const store::RetryOutcome& outcome = (*outcomes)[i];
                    v1::RetryResult* result = call->response().mutable_results(places[i]);
                    if (outcome.status.ok()) {
                      result->set_job_id(outcome.id.ToString());
                    } else {
                      ToItemError(outcome.status, result->mutable_error());
                    }
                  }
                  call->Finish();
                });
}

void JobService::Explain(CallPtr<v1::ExplainRequest, v1::ExplainResponse> call) {
  const absl::StatusOr<store::JobId> id = store::JobId::Parse(call->request().id(), "id");
  if (!id.ok()) return call->Finish(id.status());
  engine_.Explain(*id, [this, call](const absl::StatusOr<store::Explanation>& explanation) {
    if (!explanation.ok()) return call->Finish(explanation.status());
    v1::ExplainResponse& response = call->response();
    response.set_job_id(explanation->job.id.ToString());
    response.set_state(ToProto(explanation->job.state));
    response.set_queue(engine_.QueueName(explanation->job.id.queue));
    for (const store::WaitCause& cause : explanation->causes) {
      ToProto(cause, response.queue(), response.add_causes());
    }
    call->Finish();
  });
}

}  // namespace tenure::rpc
