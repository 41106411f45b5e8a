// Client's calls for operators: queues, workers, servers, background workers. See tenure/client.h.
#include <utility>

#include "calls.h"
#include "convert.h"
#include "tenure/client.h"

namespace tenure::client {
namespace {

using internal::Call;

// The calls that name a queue and answer with it.
template <typename Request, typename Response>
absl::StatusOr<Queue> NamedQueue(internal::Connection& connection, Request request, std::string_view name,
                                 const CallOptions& options) {
  if (absl::Status status = internal::CheckText("name", name); !status.ok()) return status;
  request.set_name(std::string(name));
  Response response;
  absl::Status status = Call(connection, request, &response, internal::BoundsOf(connection, options));
  if (!status.ok()) return status;
  return internal::TakeQueue(*response.mutable_queue());
}

}  // namespace

absl::StatusOr<Queue> Client::CreateQueue(std::string_view name, const QueueSettings& settings, bool paused,
                                          const CallOptions& options) {
  v1::CreateQueueRequest request;
  internal::ToProto(settings, request.mutable_settings());
  request.set_paused(paused);
  return NamedQueue<v1::CreateQueueRequest, v1::CreateQueueResponse>(*connection_, std::move(request), name, options);
}

absl::StatusOr<Queue> Client::UpdateQueue(std::string_view name, const QueueSettings& settings,
                                          const std::vector<std::string>& reset, const CallOptions& options) {
  v1::UpdateQueueRequest request;
  internal::ToProto(settings, request.mutable_settings());
  auto* mask = request.mutable_update_mask();
  if (settings.max_attempts) mask->add_paths("max_attempts");
  if (settings.crash_budget) mask->add_paths("crash_budget");
  if (settings.backoff) mask->add_paths("backoff");
  if (settings.max_depth) mask->add_paths("max_depth");
  if (settings.max_tenant_depth) mask->add_paths("max_tenant_depth");
  if (settings.description) mask->add_paths("description");
  if (settings.groups_skip_retrying) mask->add_paths("groups_skip_retrying");
  if (settings.fair_tenants) mask->add_paths("fair_tenants");
  if (settings.priority_ageing) mask->add_paths("priority_ageing");
  if (settings.start_within) mask->add_paths("start_within");
  if (settings.dead_letter_queue) mask->add_paths("dead_letter_queue");
  if (settings.dead_letter_jobs_per_second) mask->add_paths("dead_letter_jobs_per_second");
  for (const std::string& field : reset) {
    if (absl::Status status = internal::CheckText("reset", field); !status.ok()) return status;
    mask->add_paths(field);
  }
  return NamedQueue<v1::UpdateQueueRequest, v1::UpdateQueueResponse>(*connection_, std::move(request), name, options);
}

absl::StatusOr<Queue> Client::GetQueue(std::string_view name, const CallOptions& options) {
  return NamedQueue<v1::GetQueueRequest, v1::GetQueueResponse>(*connection_, {}, name, options);
}

absl::StatusOr<Queue> Client::PauseQueue(std::string_view name, const CallOptions& options) {
  return NamedQueue<v1::PauseQueueRequest, v1::PauseQueueResponse>(*connection_, {}, name, options);
}

absl::StatusOr<Queue> Client::ResumeQueue(std::string_view name, const CallOptions& options) {
  return NamedQueue<v1::ResumeQueueRequest, v1::ResumeQueueResponse>(*connection_, {}, name, options);
}

absl::StatusOr<QueuePage> Client::ListQueues(std::string_view name_prefix, int page_size, std::string_view page_token,
                                             const CallOptions& options) {
  if (absl::Status status = internal::CheckText("name_prefix", name_prefix); !status.ok()) return status;
  if (absl::Status status = internal::CheckText("page_token", page_token); !status.ok()) return status;
  v1::ListQueuesRequest request;
  request.set_name_prefix(std::string(name_prefix));
  request.set_page_size(page_size);
  request.set_page_token(std::string(page_token));
  v1::ListQueuesResponse response;
  absl::Status status = Call(*connection_, request, &response, internal::BoundsOf(*connection_, options));
  if (!status.ok()) return status;
  QueuePage page;
  for (auto& queue : *response.mutable_queues()) page.queues.push_back(internal::TakeQueue(queue));
  page.next_page_token = std::move(*response.mutable_next_page_token());
  return page;
}

absl::StatusOr<WorkerPage> Client::ListWorkers(int page_size, std::string_view page_token, const CallOptions& options) {
  if (absl::Status status = internal::CheckText("page_token", page_token); !status.ok()) return status;
  v1::ListWorkersRequest request;
  request.set_page_size(page_size);
  request.set_page_token(std::string(page_token));
  v1::ListWorkersResponse response;
  absl::Status status = Call(*connection_, request, &response, internal::BoundsOf(*connection_, options));
  if (!status.ok()) return status;
  WorkerPage page;
  for (const auto& worker : response.workers()) {
    Worker to{worker.worker_id(), std::nullopt, worker.leased_jobs(), {worker.queues().begin(), worker.queues().end()}};
    if (worker.has_last_claim_time()) to.last_claim_time = internal::FromProto(worker.last_claim_time());
    page.workers.push_back(std::move(to));
  }
  page.next_page_token = response.next_page_token();
  return page;
}

absl::StatusOr<ServerInfo> Client::GetServerInfo(const CallOptions& options) {
  v1::GetServerInfoResponse response;
  absl::Status status =
      Call(*connection_, v1::GetServerInfoRequest(), &response, internal::BoundsOf(*connection_, options));
  if (!status.ok()) return status;
  ServerInfo info{internal::TakeServer(response.server()), response.postgres_version(), response.schema_version(), {}};
  for (const auto& finding : response.findings()) {
    info.findings.push_back(
        {finding.check(), static_cast<Severity>(finding.severity()), finding.message(), finding.advice()});
  }
  return info;
}

absl::StatusOr<std::vector<Server>> Client::ListServers(const CallOptions& options) {
  v1::ListServersResponse response;
  absl::Status status =
      Call(*connection_, v1::ListServersRequest(), &response, internal::BoundsOf(*connection_, options));
  if (!status.ok()) return status;
  std::vector<Server> servers;
  for (const auto& server : response.servers()) servers.push_back(internal::TakeServer(server));
  return servers;
}

absl::StatusOr<std::vector<BackgroundWorker>> Client::ListBackgroundWorkers(const CallOptions& options) {
  v1::ListBackgroundWorkersResponse response;
  absl::Status status =
      Call(*connection_, v1::ListBackgroundWorkersRequest(), &response, internal::BoundsOf(*connection_, options));
  if (!status.ok()) return status;
  std::vector<BackgroundWorker> workers;
  for (const auto& worker : response.workers()) {
    BackgroundWorker to;
    to.name = worker.name();
    to.leader = worker.leader();
    to.term = worker.term();
    if (worker.has_leader_since()) to.leader_since = internal::FromProto(worker.leader_since());
    if (worker.has_last_success_time()) to.last_success_time = internal::FromProto(worker.last_success_time());
    to.last_error = worker.last_error();
    to.runs = worker.runs();
    to.restarts = worker.restarts();
    workers.push_back(std::move(to));
  }
  return workers;
}

}  // namespace tenure::client
