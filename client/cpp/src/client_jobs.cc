// Client's calls for producers: enqueue, look up, list, cancel, retry. See tenure/client.h.
#include <algorithm>
#include <functional>
#include <utility>

#include "batch.h"
#include "calls.h"
#include "convert.h"
#include "status_codec.h"
#include "tenure/client.h"
#include "tenure/errors.h"
#include "utf8.h"

namespace tenure::client {
namespace {

using internal::Call;

// Get may wait at most 60 s at a time.
constexpr Duration kWaitSlice = std::chrono::seconds(50);
constexpr Duration kGeneratedKeyRetention = std::chrono::minutes(10);

}  // namespace

absl::StatusOr<Enqueued> Client::Enqueue(const JobSpec& spec, const CallOptions& options) {
  return internal::Only(EnqueueBatch({spec}, options));
}

namespace {

constexpr size_t kMaxGraph = 1000;

// Jobs that name each other by index go in one message, or none of them does.
std::vector<absl::StatusOr<Enqueued>> EnqueueGraph(
    internal::Connection& connection, const std::vector<JobSpec>& specs,
    const std::function<absl::Status(size_t, v1::EnqueueRequest*)>& convert, const CallOptions& options) {
  const auto none = [&](const absl::Status& why) { return std::vector<absl::StatusOr<Enqueued>>(specs.size(), why); };
  v1::EnqueueRequest request;
  v1::EnqueueResponse response;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (absl::Status status = convert(i, &request); !status.ok()) return none(status);
  }
  if (specs.size() > kMaxGraph || request.ByteSizeLong() > internal::kMaxBatchBytes) {
    return none(MakeStatus(absl::StatusCode::kInvalidArgument, reason::kInvalidField,
                           "depends_on.items: such jobs go in one call: at most 1,000, and 3 MiB"));
  }
  if (absl::Status status = Call(connection, request, &response, internal::BoundsOf(connection, options));
      !status.ok()) {
    return none(status);
  }
  if (response.results_size() != static_cast<int>(specs.size())) {
    return none(internal::WrongCount(static_cast<int>(specs.size()), response.results_size()));
  }
  std::vector<absl::StatusOr<Enqueued>> results;
  for (v1::EnqueueResult& result : *response.mutable_results()) {
    if (result.has_error()) {
      results.emplace_back(internal::FromItemError(result.error()));
    } else {
      results.emplace_back(Enqueued{std::move(*result.mutable_job_id()), result.duplicate(), result.existing()});
    }
  }
  return results;
}

}  // namespace

std::vector<absl::StatusOr<Enqueued>> Client::EnqueueBatch(const std::vector<JobSpec>& specs,
                                                           const CallOptions& options) {
  const bool generate = internal::OptionsOf(*connection_).generate_idempotency_keys;
  const auto convert = [&](size_t i, v1::EnqueueRequest* request) {
    v1::JobSpec* job = request->add_jobs();
    absl::Status status = internal::ToProto(specs[i], job);
    if (status.ok() && generate && job->idempotency_key().empty()) {
      job->set_idempotency_key(NewRequestId());
      internal::ToProto(kGeneratedKeyRetention, job->mutable_idempotency_retention());
    }
    return status;
  };
  if (std::any_of(specs.begin(), specs.end(),
                  [](const JobSpec& spec) { return spec.depends_on && !spec.depends_on->items.empty(); })) {
    return EnqueueGraph(*connection_, specs, convert, options);
  }
  return internal::CallInBatches<Enqueued, v1::EnqueueRequest, v1::EnqueueResponse>(
      *connection_, specs.size(), internal::BoundsOf(*connection_, options), convert,
      [](const v1::EnqueueRequest& request) { return request.jobs_size(); },
      [](v1::EnqueueResult& result, SteadyTime) {
        return Enqueued{std::move(*result.mutable_job_id()), result.duplicate(), result.existing()};
      });
}

absl::StatusOr<Job> Client::Get(std::string_view id, const CallOptions& options) {
  if (absl::Status status = internal::CheckText("id", id); !status.ok()) return status;
  v1::GetRequest request;
  v1::GetResponse response;
  request.set_id(std::string(id));
  absl::Status status = Call(*connection_, request, &response, internal::BoundsOf(*connection_, options));
  if (!status.ok()) return status;
  return internal::TakeJob(*response.mutable_job());
}

absl::StatusOr<Job> Client::GetRecord(std::string_view id, const CallOptions& options) {
  if (absl::Status status = internal::CheckText("id", id); !status.ok()) return status;
  v1::GetRequest request;
  v1::GetResponse response;
  request.set_id(std::string(id));
  request.set_exact(true);
  absl::Status status = Call(*connection_, request, &response, internal::BoundsOf(*connection_, options));
  if (!status.ok()) return status;
  return internal::TakeJob(*response.mutable_job());
}

absl::StatusOr<Job> Client::WaitForOutcome(std::string_view id, const CallOptions& options) {
  if (absl::Status status = internal::CheckText("id", id); !status.ok()) return status;
  using Clock = std::chrono::steady_clock;
  const bool endless = options.timeout <= Duration::zero();
  const SteadyTime deadline = endless ? SteadyTime::max() : Clock::now() + options.timeout;
  JobState last = JobState::kUnknown;
  for (;;) {
    const Duration remaining = endless ? kWaitSlice : deadline - Clock::now();
    if (remaining <= Duration::zero()) break;
    v1::GetRequest request;
    v1::GetResponse response;
    request.set_id(std::string(id));
    internal::ToProto(std::min(remaining, kWaitSlice), request.mutable_wait());
    // The call may last a little longer than the wait, so that it is the daemon that says how the job stands.
    internal::CallBounds bounds = internal::BoundsOf(*connection_, {}, std::min(remaining, kWaitSlice));
    bounds.timeout = endless ? Duration(std::chrono::hours(8760)) : remaining + std::chrono::seconds(2);
    bounds.stop = options.stop;
    absl::Status status = Call(*connection_, request, &response, bounds);
    if (!status.ok()) return status;
    Job job = internal::TakeJob(*response.mutable_job());
    if (IsFinal(job.state)) return job;
    last = job.state;
  }
  return absl::DeadlineExceededError("job " + std::string(id) + " has not ended within the timeout; it is " +
                                     std::string(ToString(last)));
}

absl::StatusOr<JobPage> Client::List(const JobFilter& filter, int page_size, std::string_view page_token,
                                     const CallOptions& options) {
  v1::ListRequest request;
  if (absl::Status status = internal::ToProto(filter, &request); !status.ok()) return status;
  if (absl::Status status = internal::CheckText("page_token", page_token); !status.ok()) return status;
  request.set_page_size(page_size);
  request.set_page_token(std::string(page_token));
  v1::ListResponse response;
  absl::Status status = Call(*connection_, request, &response, internal::BoundsOf(*connection_, options));
  if (!status.ok()) return status;
  JobPage page;
  page.jobs.reserve(static_cast<size_t>(response.jobs_size()));
  for (auto& job : *response.mutable_jobs()) page.jobs.push_back(internal::TakeJob(job));
  page.next_page_token = std::move(*response.mutable_next_page_token());
  return page;
}

JobRange Client::ListAll(JobFilter filter, int page_size, CallOptions options) {
  return JobRange(*this, std::move(filter), page_size, std::move(options));
}

JobRange::Iterator JobRange::begin() {
  Advance();
  return current_ ? Iterator(this) : Iterator(nullptr);
}

void JobRange::Advance() {
  current_.reset();
  // A page may be empty without being the last one.
  while (page_.empty() && !done_) {
    absl::StatusOr<JobPage> page = client_.List(filter_, page_size_, token_, options_);
    if (!page.ok()) {
      done_ = true;
      current_ = page.status();
      return;
    }
    page_.assign(std::make_move_iterator(page->jobs.begin()), std::make_move_iterator(page->jobs.end()));
    token_ = std::move(page->next_page_token);
    done_ = token_.empty();
  }
  if (page_.empty()) return;
  current_ = std::move(page_.front());
  page_.pop_front();
}

absl::StatusOr<CancelledJob> Client::Cancel(std::string_view id, std::string_view why, const CallOptions& options) {
  return internal::Only(CancelBatch({std::string(id)}, why, options));
}

std::vector<absl::StatusOr<CancelledJob>> Client::CancelBatch(const std::vector<std::string>& ids, std::string_view why,
                                                              const CallOptions& options) {
  const std::string clean = internal::CleanUtf8(why, 1024);
  return internal::CallInBatches<CancelledJob, v1::CancelRequest, v1::CancelResponse>(
      *connection_, ids.size(), internal::BoundsOf(*connection_, options),
      [&](size_t i, v1::CancelRequest* request) {
        request->add_ids(ids[i]);
        request->set_reason(clean);
        return internal::CheckText("id", ids[i]);
      },
      [](const v1::CancelRequest& request) { return request.ids_size(); },
      [](v1::CancelResult& result, SteadyTime) {
        return CancelledJob{std::move(*result.mutable_job_id()), static_cast<JobState>(result.previous_state())};
      });
}

absl::StatusOr<std::string> Client::Retry(std::string_view id, const CallOptions& options) {
  return internal::Only(RetryBatch({std::string(id)}, {}, options));
}

std::vector<absl::StatusOr<std::string>> Client::RetryBatch(const std::vector<std::string>& ids,
                                                            std::string_view request_id, const CallOptions& options) {
  // The daemon takes 1,000 ids a call and one request id for each call.
  constexpr size_t kMaxIds = 1000;
  std::vector<absl::StatusOr<std::string>> results;
  results.reserve(ids.size());
  const std::string base = request_id.empty() ? NewRequestId() : std::string(request_id);
  for (size_t begin = 0; begin < ids.size(); begin += kMaxIds) {
    const size_t count = std::min(kMaxIds, ids.size() - begin);
    const std::string key = begin == 0 ? base : base + "-" + std::to_string(begin / kMaxIds);
    auto chunk = internal::CallInBatches<std::string, v1::RetryRequest, v1::RetryResponse>(
        *connection_, count, internal::BoundsOf(*connection_, options),
        [&](size_t i, v1::RetryRequest* request) {
          request->add_ids(ids[begin + i]);
          request->set_request_id(key);
          absl::Status status = internal::CheckText("id", ids[begin + i]);
          return status.ok() ? internal::CheckText("request_id", key) : status;
        },
        [](const v1::RetryRequest& request) { return request.ids_size(); },
        [](v1::RetryResult& result, SteadyTime) { return std::move(*result.mutable_job_id()); });
    for (auto& result : chunk) results.push_back(std::move(result));
  }
  return results;
}

absl::StatusOr<Explanation> Client::Explain(std::string_view id, const CallOptions& options) {
  if (absl::Status status = internal::CheckText("id", id); !status.ok()) return status;
  v1::ExplainRequest request;
  request.set_id(std::string(id));
  v1::ExplainResponse response;
  absl::Status status = internal::Call(*connection_, request, &response, internal::BoundsOf(*connection_, options));
  if (!status.ok()) return status;
  Explanation to;
  to.job_id = std::move(*response.mutable_job_id());
  to.queue = std::move(*response.mutable_queue());
  to.state = v1::JobState_IsValid(response.state()) ? static_cast<JobState>(response.state()) : JobState::kUnknown;
  constexpr std::string_view kPrefix = "WAIT_REASON_";
  for (v1::WaitCause& from : *response.mutable_causes()) {
    WaitCause& cause = to.causes.emplace_back();
    cause.reason = v1::WaitReason_Name(from.reason());
    if (cause.reason.starts_with(kPrefix)) cause.reason.erase(0, kPrefix.size());
    cause.message = std::move(*from.mutable_message());
    cause.key = std::move(*from.mutable_key());
    if (from.has_until()) cause.until = internal::FromProto(from.until());
    if (from.has_limit()) cause.limit = from.limit();
    cause.holder_job_ids.assign(from.holder_job_ids().begin(), from.holder_job_ids().end());
    cause.ahead_job_id = std::move(*from.mutable_ahead_job_id());
    cause.position = from.position();
    cause.ready_jobs = from.ready_jobs();
    cause.tenants = from.tenants();
  }
  return to;
}

}  // namespace tenure::client
