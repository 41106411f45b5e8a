// See fake_tenured.h. A plain synchronous gRPC server: a thread per call is fine for a test.
#include "tests/support/fake_tenured.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "google/rpc/error_details.pb.h"
#include "tenure/v1/job_service.grpc.pb.h"
#include "tenure/v1/worker_service.grpc.pb.h"

namespace tenure::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

nanoseconds FromProto(const google::protobuf::Duration& from) {
  return seconds(from.seconds()) + nanoseconds(from.nanos());
}

void ToProto(nanoseconds from, google::protobuf::Duration* to) {
  to->set_seconds(from / seconds(1));
  to->set_nanos(static_cast<int>((from % seconds(1)).count()));
}

grpc::Status Error(int code, const std::string& reason, nanoseconds retry_delay = {}) {
  google::rpc::Status details;
  details.set_code(code);
  if (!reason.empty()) {
    google::rpc::ErrorInfo info;
    info.set_reason(reason);
    info.set_domain("tenure");
    details.add_details()->PackFrom(info);
  }
  if (retry_delay > nanoseconds::zero()) {
    google::rpc::RetryInfo info;
    ToProto(retry_delay, info.mutable_retry_delay());
    details.add_details()->PackFrom(info);
  }
  return grpc::Status(static_cast<grpc::StatusCode>(code), "fake: " + reason, details.SerializeAsString());
}

struct Entry {
  FakeJob job;
  v1::Job proto;
  std::string token;
  int64_t number = 0;
  bool ready = true;
  std::string settled_token;  // The last token that settled it, and how.
  std::string settled_verb;
};

struct Failure {
  int code = 0;
  std::string reason;
  nanoseconds retry_delay{};
};

struct Refusal {
  int code;
  std::string reason;
  int times;
};

}  // namespace

struct FakeTenured::State {
  mutable std::mutex mutex;
  std::condition_variable changed;
  // All guarded by mutex.
  std::map<std::string, Entry> jobs;
  std::map<std::string, std::string> job_of_token;
  int64_t next_id = 1;
  int64_t next_number = 1;
  nanoseconds lease = seconds(30);
  std::map<std::string, std::deque<Failure>> failures;
  std::map<std::string, int> lost_replies;
  std::set<std::string> held;
  std::map<std::pair<std::string, std::string>, Refusal> refusals;
  size_t max_bytes = 4 << 20;
  std::map<std::string, v1::ClaimResponse> replays;
  std::vector<v1::Notice> notices;
  std::map<std::string, int> calls;
  std::map<std::string, int> inside;
  std::vector<v1::ClaimRequest> claims;
  std::vector<v1::ExtendRequest> extends;
  std::map<std::string, std::vector<int>> batches;
  bool stopping = false;

  class Workers;
  class Jobs;
  std::unique_ptr<Workers> workers;
  std::unique_ptr<Jobs> producers;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<grpc::Server> second;

  // Waits in steps, since a synchronous server learns of a cancellation by asking.
  template <typename Predicate>
  bool WaitUntil(std::unique_lock<std::mutex>& lock, grpc::ServerContext* context,
                 std::chrono::steady_clock::time_point until, Predicate predicate) {
    while (!predicate()) {
      const auto now = std::chrono::steady_clock::now();
      if (stopping || context->IsCancelled() || now >= until) return false;
      changed.wait_until(lock, std::min(until, now + milliseconds(5)));
    }
    return true;
  }

  // What all calls have in common; `work` runs under the lock.
  template <typename Work>
  grpc::Status Serve(const std::string& method, grpc::ServerContext* context, Work work) {
    std::unique_lock lock(mutex);
    ++calls[method];
    ++inside[method];
    changed.notify_all();
    grpc::Status status;
    WaitUntil(lock, context, std::chrono::steady_clock::time_point::max(), [&] { return !held.contains(method); });
    auto& failing = failures[method];
    if (context->IsCancelled() || stopping) {
      status = grpc::Status(grpc::StatusCode::CANCELLED, "gone");
    } else if (!failing.empty()) {
      status = Error(failing.front().code, failing.front().reason, failing.front().retry_delay);
      failing.pop_front();
    } else {
      status = work(lock);
      if (lost_replies[method] > 0) {
        --lost_replies[method];
        status = grpc::Status(grpc::StatusCode::UNAVAILABLE, "fake: the reply was lost");
      }
    }
    --inside[method];
    changed.notify_all();
    return status;
  }

  // The entry that `token` may act on, or the error of the item.
  Entry* Check(const std::string& method, const std::string& token, v1::ItemError* error) {
    const auto known = job_of_token.find(token);
    const auto refuse = [&](int code, const std::string& reason) -> Entry* {
      error->set_code(code);
      error->set_reason(reason);
      error->set_message("fake: " + reason);
      return nullptr;
    };
    if (known == job_of_token.end()) return refuse(grpc::StatusCode::NOT_FOUND, "JOB_NOT_FOUND");
    Entry& entry = jobs.at(known->second);
    const auto refusal = refusals.find({method, known->second});
    if (refusal != refusals.end() && refusal->second.times > 0) {
      --refusal->second.times;
      return refuse(refusal->second.code, refusal->second.reason);
    }
    if (entry.settled_token == token && (entry.settled_verb == method)) return &entry;
    if (entry.job.cancelled) return refuse(grpc::StatusCode::FAILED_PRECONDITION, "JOB_CANCELLED");
    if (entry.settled_token == token) return refuse(grpc::StatusCode::FAILED_PRECONDITION, "ALREADY_SETTLED");
    if (entry.token != token) return refuse(grpc::StatusCode::FAILED_PRECONDITION, "LEASE_LOST");
    return &entry;
  }

  // Applies `apply` to each item of a settle.
  template <typename Request, typename Response, typename Apply>
  grpc::Status Settle(const std::string& method, grpc::ServerContext* context, const Request* request,
                      Response* response, Apply apply) {
    return Serve(method, context, [&](std::unique_lock<std::mutex>&) {
      batches[method].push_back(request->items_size());
      if (request->ByteSizeLong() >= max_bytes)
        return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "message too large");
      for (const auto& item : request->items()) {
        v1::SettleResult* result = response->add_results();
        v1::ItemError error;
        Entry* entry = Check(method, item.lease_token(), &error);
        if (entry == nullptr) {
          *result->mutable_error() = error;
          continue;
        }
        result->set_replayed(entry->settled_token == item.lease_token());
        if (result->replayed()) continue;
        entry->settled_token = item.lease_token();
        entry->settled_verb = method;
        entry->token.clear();
        entry->job.leased = false;
        entry->job.settles.push_back(method);
        apply(*entry, item, result);
      }
      return grpc::Status::OK;
    });
  }
};

class FakeTenured::State::Workers final : public v1::WorkerService::Service {
 public:
  explicit Workers(State& state) : state_(state) {}

  grpc::Status Claim(grpc::ServerContext* context, const v1::ClaimRequest* request,
                     v1::ClaimResponse* response) override {
    return state_.Serve("Claim", context, [&](std::unique_lock<std::mutex>& lock) {
      state_.claims.push_back(*request);
      const auto replay = state_.replays.find(request->request_id());
      if (!request->request_id().empty() && replay != state_.replays.end()) {
        *response = replay->second;
        response->set_replayed(true);
        return grpc::Status::OK;
      }
      const auto until = std::chrono::steady_clock::now() + FromProto(request->wait());
      // A call may get its thread only when its caller has gone.
      state_.WaitUntil(lock, context, until, [&] { return !context->IsCancelled() && Take(*request, response) > 0; });
      if (response->jobs_size() > 0 && !request->request_id().empty())
        state_.replays[request->request_id()] = *response;
      return grpc::Status::OK;
    });
  }

  grpc::Status Extend(grpc::ServerContext* context, const v1::ExtendRequest* request,
                      v1::ExtendResponse* response) override {
    return state_.Serve("Extend", context, [&](std::unique_lock<std::mutex>&) {
      state_.extends.push_back(*request);
      for (const auto& item : request->items()) {
        v1::ExtendResult* result = response->add_results();
        v1::ItemError error;
        Entry* entry = state_.Check("Extend", item.lease_token(), &error);
        if (entry == nullptr) {
          *result->mutable_error() = error;
          continue;
        }
        ++entry->job.extends;
        if (item.has_progress()) entry->job.progress.push_back(item.progress().message());
        ToProto(std::min(state_.lease, FromProto(item.duration())), result->mutable_lease_duration());
      }
      return grpc::Status::OK;
    });
  }

  grpc::Status Complete(grpc::ServerContext* context, const v1::CompleteRequest* request,
                        v1::CompleteResponse* response) override {
    return state_.Settle("Complete", context, request, response,
                         [](Entry& entry, const v1::CompleteItem& item, v1::SettleResult* result) {
                           entry.job.ended = true;
                           entry.job.result = item.result().data();
                           for (const auto& spec : item.follow_ups()) entry.job.follow_up_kinds.push_back(spec.kind());
                           result->set_state(v1::JOB_STATE_COMPLETED);
                         });
  }

  grpc::Status Fail(grpc::ServerContext* context, const v1::FailRequest* request, v1::FailResponse* response) override {
    return state_.Settle("Fail", context, request, response,
                         [](Entry& entry, const v1::FailItem& item, v1::SettleResult* result) {
                           entry.job.error = item.error().message();
                           entry.job.non_retryable = item.non_retryable();
                           entry.job.delay = FromProto(item.retry_after());
                           entry.job.ended = item.non_retryable();
                           result->set_state(item.non_retryable() ? v1::JOB_STATE_DISCARDED : v1::JOB_STATE_SCHEDULED);
                         });
  }

  grpc::Status Release(grpc::ServerContext* context, const v1::ReleaseRequest* request,
                       v1::ReleaseResponse* response) override {
    return state_.Settle("Release", context, request, response,
                         [](Entry& entry, const v1::ReleaseItem& item, v1::SettleResult* result) {
                           entry.job.delay = FromProto(item.delay());
                           result->set_state(v1::JOB_STATE_READY);
                         });
  }

  grpc::Status Snooze(grpc::ServerContext* context, const v1::SnoozeRequest* request,
                      v1::SnoozeResponse* response) override {
    return state_.Settle("Snooze", context, request, response,
                         [](Entry& entry, const v1::SnoozeItem& item, v1::SettleResult* result) {
                           entry.job.delay = FromProto(item.delay());
                           result->set_state(v1::JOB_STATE_SCHEDULED);
                         });
  }

  grpc::Status AwaitNotices(grpc::ServerContext* context, const v1::AwaitNoticesRequest* request,
                            v1::AwaitNoticesResponse* response) override {
    return state_.Serve("AwaitNotices", context, [&](std::unique_lock<std::mutex>& lock) {
      const std::set<std::string> seen(request->seen_ids().begin(), request->seen_ids().end());
      const auto until = std::chrono::steady_clock::now() + FromProto(request->wait());
      state_.WaitUntil(lock, context, until, [&] {
        for (const v1::Notice& notice : state_.notices) {
          if (!seen.contains(notice.id())) *response->add_notices() = notice;
        }
        return response->notices_size() > 0;
      });
      return grpc::Status::OK;
    });
  }

 private:
  int Take(const v1::ClaimRequest& request, v1::ClaimResponse* response) {
    // Low priorities may take what no reservation keeps from them.
    const auto allowed = [&](int priority) {
      int slots = request.max_jobs();
      for (const auto& kept : request.reservations()) {
        if (priority < kept.min_priority()) slots -= kept.slots();
      }
      return slots;
    };
    std::vector<Entry*> ready;
    for (auto& [id, entry] : state_.jobs) {
      const auto& left_out = request.exclude_tenants();
      if (entry.ready && std::find(left_out.begin(), left_out.end(), entry.proto.tenant()) == left_out.end()) {
        ready.push_back(&entry);
      }
    }
    std::stable_sort(ready.begin(), ready.end(),
                     [](const Entry* a, const Entry* b) { return a->proto.priority() > b->proto.priority(); });
    for (Entry* entry : ready) {
      if (response->jobs_size() >= std::min(request.max_jobs(), allowed(entry->proto.priority()))) continue;
      entry->ready = false;
      entry->job.leased = true;
      ++entry->job.claims;
      entry->number = state_.next_number++;
      entry->token = entry->job.id + ".token." + std::to_string(entry->number);
      state_.job_of_token[entry->token] = entry->job.id;
      entry->proto.set_attempt(entry->job.claims);
      entry->proto.mutable_lease()->set_token_number(entry->number);
      v1::ClaimedJob* claimed = response->add_jobs();
      *claimed->mutable_job() = entry->proto;
      claimed->set_lease_token(entry->token);
      ToProto(std::min(state_.lease, FromProto(request.lease_duration())), claimed->mutable_lease_duration());
    }
    return response->jobs_size();
  }

  State& state_;
};

class FakeTenured::State::Jobs final : public v1::JobService::Service {
 public:
  explicit Jobs(State& state) : state_(state) {}

  grpc::Status Enqueue(grpc::ServerContext* context, const v1::EnqueueRequest* request,
                       v1::EnqueueResponse* response) override {
    return state_.Serve("Enqueue", context, [&](std::unique_lock<std::mutex>&) {
      state_.batches["Enqueue"].push_back(request->jobs_size());
      for (const auto& spec : request->jobs()) {
        v1::EnqueueResult* result = response->add_results();
        auto& known = by_key_[spec.idempotency_key()];
        if (!spec.idempotency_key().empty() && !known.empty()) {
          result->set_job_id(known);
          result->set_duplicate(true);
          continue;
        }
        if (spec.queue() == "refused") {
          result->mutable_error()->set_code(grpc::StatusCode::INVALID_ARGUMENT);
          result->mutable_error()->set_reason("INVALID_FIELD");
          result->mutable_error()->set_message("queue: refused");
          (*result->mutable_error()->mutable_metadata())["field"] = "queue";
          continue;
        }
        const std::string id = "job-" + std::to_string(1'000'000 + state_.next_id++);
        Entry& entry = state_.jobs[id];
        entry.job.id = id;
        entry.proto.set_id(id);
        entry.proto.set_queue(spec.queue());
        entry.proto.set_kind(spec.kind());
        *entry.proto.mutable_payload() = spec.payload();
        entry.proto.set_priority(spec.priority());
        entry.proto.set_tenant(spec.tenant());
        entry.proto.set_effect_key(id);
        entry.proto.set_state(v1::JOB_STATE_READY);
        result->set_job_id(id);
        known = id;
      }
      return grpc::Status::OK;
    });
  }

  grpc::Status Get(grpc::ServerContext* context, const v1::GetRequest* request, v1::GetResponse* response) override {
    return state_.Serve("Get", context, [&](std::unique_lock<std::mutex>& lock) {
      const auto found = state_.jobs.find(request->id());
      if (found == state_.jobs.end()) return Error(grpc::StatusCode::NOT_FOUND, "JOB_NOT_FOUND");
      const auto until = std::chrono::steady_clock::now() + FromProto(request->wait());
      state_.WaitUntil(lock, context, until, [&] { return found->second.job.ended; });
      *response->mutable_job() = found->second.proto;
      if (found->second.job.ended) {
        response->mutable_job()->set_state(v1::JOB_STATE_COMPLETED);
        response->mutable_job()->mutable_result()->set_data(found->second.job.result);
      }
      return grpc::Status::OK;
    });
  }

  // Pages of one job with an empty page after each, to try a caller's patience.
  grpc::Status List(grpc::ServerContext* context, const v1::ListRequest* request, v1::ListResponse* response) override {
    return state_.Serve("List", context, [&](std::unique_lock<std::mutex>&) {
      const size_t at = request->page_token().empty() ? 0 : std::stoul(request->page_token());
      if (at % 2 == 0 && at / 2 < state_.jobs.size()) {
        *response->add_jobs() = std::next(state_.jobs.begin(), static_cast<std::ptrdiff_t>(at / 2))->second.proto;
      }
      if (at + 1 < 2 * state_.jobs.size()) response->set_next_page_token(std::to_string(at + 1));
      return grpc::Status::OK;
    });
  }

  grpc::Status Retry(grpc::ServerContext* context, const v1::RetryRequest* request,
                     v1::RetryResponse* response) override {
    return state_.Serve("Retry", context, [&](std::unique_lock<std::mutex>&) {
      for (const auto& id : request->ids()) {
        response->add_results()->set_id(id);
        response->mutable_results(response->results_size() - 1)->set_job_id(request->request_id());
      }
      return grpc::Status::OK;
    });
  }

 private:
  State& state_;
  std::map<std::string, std::string> by_key_;  // Guarded by the state's mutex.
};

FakeTenured::FakeTenured() : state_(std::make_unique<State>()) {
  state_->workers = std::make_unique<State::Workers>(*state_);
  state_->producers = std::make_unique<State::Jobs>(*state_);
  for (auto* server : {&state_->server, &state_->second}) {
    grpc::ServerBuilder builder;
    builder.RegisterService(state_->workers.get());
    builder.RegisterService(state_->producers.get());
    builder.SetMaxReceiveMessageSize(64 << 20);
    *server = builder.BuildAndStart();
  }
}

FakeTenured::~FakeTenured() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    state_->held.clear();
    state_->changed.notify_all();
  }
  state_->server->Shutdown();
  state_->second->Shutdown();
}

std::shared_ptr<grpc::ChannelInterface> FakeTenured::channel() { return state_->server->InProcessChannel({}); }
std::shared_ptr<grpc::ChannelInterface> FakeTenured::second_channel() { return state_->second->InProcessChannel({}); }

std::string FakeTenured::Add(const std::string& kind, const std::string& payload, int priority,
                             const std::string& tenant) {
  std::lock_guard lock(state_->mutex);
  const std::string id = "job-" + std::to_string(1'000'000 + state_->next_id++);
  Entry& entry = state_->jobs[id];
  entry.job.id = id;
  entry.proto.set_id(id);
  entry.proto.set_queue("q");
  entry.proto.set_kind(kind);
  entry.proto.mutable_payload()->set_data(payload);
  entry.proto.set_priority(priority);
  entry.proto.set_tenant(tenant);
  entry.proto.set_effect_key("effect-" + id);
  state_->changed.notify_all();
  return id;
}

void FakeTenured::SetLease(nanoseconds lease) {
  std::lock_guard lock(state_->mutex);
  state_->lease = lease;
}

void FakeTenured::FailNext(const std::string& method, int code, const std::string& reason, int times,
                           nanoseconds retry_delay) {
  std::lock_guard lock(state_->mutex);
  for (int i = 0; i < times; ++i) state_->failures[method].push_back({code, reason, retry_delay});
}

void FakeTenured::LoseReplies(const std::string& method, int times) {
  std::lock_guard lock(state_->mutex);
  state_->lost_replies[method] += times;
}

void FakeTenured::Hold(const std::string& method) {
  std::lock_guard lock(state_->mutex);
  state_->held.insert(method);
}

void FakeTenured::LetGo(const std::string& method) {
  std::lock_guard lock(state_->mutex);
  state_->held.erase(method);
  state_->changed.notify_all();
}

void FakeTenured::RefuseItem(const std::string& method, const std::string& job_id, int code, const std::string& reason,
                             int times) {
  std::lock_guard lock(state_->mutex);
  state_->refusals[{method, job_id}] = {code, reason, times};
}

void FakeTenured::SetMaxBytes(size_t bytes) {
  std::lock_guard lock(state_->mutex);
  state_->max_bytes = bytes;
}

void FakeTenured::Cancel(const std::string& job_id, bool notify) {
  std::lock_guard lock(state_->mutex);
  Entry& entry = state_->jobs.at(job_id);
  entry.job.cancelled = entry.job.ended = true;
  entry.job.leased = entry.ready = false;
  entry.token.clear();
  if (notify) {
    v1::Notice notice;
    notice.set_id("notice-" + job_id);
    notice.set_type(v1::NOTICE_TYPE_CANCELLED);
    notice.set_job_id(job_id);
    notice.set_token_number(entry.number);
    notice.set_reason("asked for");
    state_->notices.push_back(notice);
  }
  state_->changed.notify_all();
}

void FakeTenured::LoseLease(const std::string& job_id, bool notify) {
  std::lock_guard lock(state_->mutex);
  Entry& entry = state_->jobs.at(job_id);
  entry.job.leased = false;
  entry.token.clear();
  if (notify) {
    v1::Notice notice;
    notice.set_id("notice-" + job_id);
    notice.set_type(v1::NOTICE_TYPE_LEASE_LOST);
    notice.set_job_id(job_id);
    notice.set_token_number(entry.number);
    state_->notices.push_back(notice);
  }
  state_->changed.notify_all();
}

void FakeTenured::NotifyDrain() {
  std::lock_guard lock(state_->mutex);
  v1::Notice notice;
  notice.set_id("drain");
  notice.set_type(v1::NOTICE_TYPE_DRAIN);
  state_->notices.push_back(notice);
  state_->changed.notify_all();
}

FakeJob FakeTenured::job(const std::string& id) const {
  std::lock_guard lock(state_->mutex);
  return state_->jobs.at(id).job;
}

int FakeTenured::calls(const std::string& method) const {
  std::lock_guard lock(state_->mutex);
  return state_->calls[method];
}

int FakeTenured::inside(const std::string& method) const {
  std::lock_guard lock(state_->mutex);
  return state_->inside[method];
}

std::vector<v1::ClaimRequest> FakeTenured::claims() const {
  std::lock_guard lock(state_->mutex);
  return state_->claims;
}

std::vector<v1::ExtendRequest> FakeTenured::extends() const {
  std::lock_guard lock(state_->mutex);
  return state_->extends;
}

std::vector<int> FakeTenured::batches(const std::string& method) const {
  std::lock_guard lock(state_->mutex);
  return state_->batches[method];
}

int FakeTenured::leased() const {
  std::lock_guard lock(state_->mutex);
  int leased = 0;
  for (const auto& [id, entry] : state_->jobs) leased += entry.job.leased ? 1 : 0;
  return leased;
}

bool FakeTenured::Await(const std::function<bool()>& predicate) {
  const auto until = std::chrono::steady_clock::now() + seconds(20);
  // The predicate takes the lock itself, through the accessors; what it looks at may also lie outside the fake.
  for (;;) {
    if (predicate()) return true;
    if (std::chrono::steady_clock::now() >= until) return false;
    std::unique_lock lock(state_->mutex);
    state_->changed.wait_for(lock, milliseconds(2));
  }
}

}  // namespace tenure::testing
