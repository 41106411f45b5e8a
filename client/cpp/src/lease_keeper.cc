// See tenure/lease_keeper.h and keeper_core.h.
#include "tenure/lease_keeper.h"

#include <algorithm>
#include <utility>

#include "convert.h"
#include "keeper_core.h"
#include "retry_policy.h"
#include "status_codec.h"
#include "tenure/errors.h"

namespace tenure::client {
namespace internal {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMaxItems = 5'000;

// Four attempts fit between the first Extend, at a third of the lease, and its end, even if each runs into its timeout.
Duration CallTimeout(Duration lease) {
  return std::clamp<Duration>(lease / 6, std::chrono::milliseconds(100), std::chrono::seconds(5));
}

}  // namespace

KeeperCore::KeeperCore(std::shared_ptr<Connection> connection, LeaseKeeperOptions options, Counters counters)
    : connection_(std::move(connection)), options_(std::move(options)), counters_(std::move(counters)) {}

void KeeperCore::Start() {
  thread_ = std::thread([this] { Loop(); });
}

void KeeperCore::Stop() {
  std::map<SteadyTime, std::list<Lease>> rest;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    for (auto& [at, leases] : timetable_) {
      for (const Lease& lease : leases) lease->tended_ = false;
    }
    rest.swap(timetable_);
    size_ = 0;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  // What the hooks use may go away after this.
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [this] { return announcing_ == 0; });
}

KeeperCore::Lease KeeperCore::Hold(std::string token, Duration lease_duration, SteadyTime sent) {
  Lease lease(new HeldLease(std::move(token)));
  lease->lease_ = lease_duration;
  lease->sent_ = sent;
  lease->due_ = sent + lease_duration / 3;
  lease->end_.store((sent + lease_duration).time_since_epoch().count(), std::memory_order_relaxed);
  std::lock_guard lock(mutex_);
  if (!stopping_) Place(lease);
  return lease;
}

void KeeperCore::Forget(const Lease& lease) {
  std::lock_guard lock(mutex_);
  Remove(lease);
}

void KeeperCore::Report(const Lease& lease, LeaseState state, const absl::Status& why) {
  {
    std::lock_guard lock(mutex_);
    if (stopping_ || !Enter(lease, state)) return;
    ++announcing_;
  }
  Announce({{lease, why}});
  std::lock_guard lock(mutex_);
  if (--announcing_ == 0) wake_.notify_all();
}

void KeeperCore::SetProgress(const Lease& lease, Progress progress) {
  std::lock_guard lock(mutex_);
  lease->progress_ = std::move(progress);
  if (!lease->tended_) return;
  lease->due_ = std::min(lease->due_, lease->sent_ + options_.progress_interval);
  if (!lease->in_flight_) Place(lease);
}

size_t KeeperCore::size() const {
  std::lock_guard lock(mutex_);
  return size_;
}

void KeeperCore::Place(const Lease& lease) {
  const Lease keep = lease;
  Remove(keep);
  const SteadyTime end = lease->sent_ + lease->lease_;
  const bool watched = lease->state() == LeaseState::kHeld;
  // While an Extend is under way only the end of the lease is of interest, and once that has passed, nothing.
  lease->slot_ =
      !lease->in_flight_ ? (watched ? std::min(lease->due_, end) : lease->due_) : (watched ? end : SteadyTime::max());
  auto& bucket = timetable_[lease->slot_];
  lease->place_ = bucket.insert(bucket.end(), keep);
  lease->tended_ = true;
  ++size_;
  if (lease->slot_ < planned_) {
    planned_ = lease->slot_;
    wake_.notify_one();
  }
}

void KeeperCore::Remove(const Lease& lease) {
  if (!lease->tended_) return;
  lease->tended_ = false;
  --size_;
  const auto bucket = timetable_.find(lease->slot_);
  bucket->second.erase(lease->place_);
  if (bucket->second.empty()) timetable_.erase(bucket);
}

bool KeeperCore::Enter(const Lease& lease, LeaseState state) {
  const LeaseState before = lease->state();
  // Out of kHeld for good, or out of kRunOut when the daemon gives the final word.
  if (before != LeaseState::kHeld && before != LeaseState::kRunOut) return false;
  if (state == before || state == LeaseState::kHeld) return false;
  lease->state_.store(state, std::memory_order_release);
  if (state != LeaseState::kRunOut) Remove(lease);
  return true;
}

void KeeperCore::Announce(const std::vector<Change>& changes) {
  for (const Change& change : changes) {
    if (change.lease->state() != LeaseState::kSettledElsewhere) change.lease->stop_.request_stop();
    if (options_.on_change) options_.on_change(change.lease, change.why);
  }
}

void KeeperCore::Loop() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const SteadyTime now = Clock::now();
    const SteadyTime next = timetable_.empty() ? SteadyTime::max() : timetable_.begin()->first;
    if (next > now) {
      planned_ = next;
      if (next == SteadyTime::max()) {
        wake_.wait(lock);
      } else {
        wake_.wait_until(lock, next);
      }
      continue;
    }
    std::vector<Lease> due;
    std::vector<Change> changes;
    Sweep(now, &due, &changes);
    lock.unlock();
    Announce(changes);
    for (size_t begin = 0; begin < due.size(); begin += kMaxItems) {
      const size_t end = std::min(due.size(), begin + kMaxItems);
      Send({due.begin() + static_cast<std::ptrdiff_t>(begin), due.begin() + static_cast<std::ptrdiff_t>(end)});
    }
    lock.lock();
  }
}

void KeeperCore::Sweep(SteadyTime now, std::vector<Lease>* due, std::vector<Change>* changes) {
  // What is due within a twentieth of a lease goes along: fewer, larger calls.
  const SteadyTime horizon = now + options_.lease / 20;
  std::vector<Lease> looked_at;
  for (auto bucket = timetable_.begin(); bucket != timetable_.end() && bucket->first <= horizon; ++bucket) {
    looked_at.insert(looked_at.end(), bucket->second.begin(), bucket->second.end());
  }
  for (const Lease& lease : looked_at) {
    if (lease->state() == LeaseState::kHeld && now >= lease->sent_ + lease->lease_) {
      Enter(lease, LeaseState::kRunOut);
      changes->push_back({lease, absl::DeadlineExceededError("no Extend succeeded for a whole lease")});
    }
    if (!lease->in_flight_ && lease->due_ <= horizon) {
      lease->in_flight_ = true;
      due->push_back(lease);
    }
    Place(lease);
  }
}

void KeeperCore::Send(std::vector<Lease> leases) {
  v1::ExtendRequest request;
  request.mutable_items()->Reserve(static_cast<int>(leases.size()));
  {
    std::lock_guard lock(mutex_);
    for (const Lease& lease : leases) {
      v1::ExtendItem* item = request.add_items();
      item->set_lease_token(lease->token());
      ToProto(options_.lease, item->mutable_duration());
      if (lease->progress_) {
        ToProto(*lease->progress_, item->mutable_progress());
        lease->progress_.reset();
      }
    }
  }
  if (counters_.extend_sent) counters_.extend_sent();
  const SteadyTime sent = Clock::now();
  internal::Start(*connection_, std::move(request), CallTimeout(options_.lease),
                  [self = shared_from_this(), leases = std::move(leases), sent](
                      absl::Status status, v1::ExtendRequest& asked, v1::ExtendResponse& response) {
                    self->OnAnswer(leases, sent, status, asked, response);
                  });
}

void KeeperCore::OnAnswer(const std::vector<Lease>& leases, SteadyTime sent, const absl::Status& call,
                          v1::ExtendRequest& request, v1::ExtendResponse& response) {
  absl::Status status = call;
  if (status.ok() && response.results_size() != static_cast<int>(leases.size())) {
    status = absl::InternalError("the daemon answered " + std::to_string(response.results_size()) + " results for " +
                                 std::to_string(leases.size()) + " leases");
  }
  std::vector<Change> changes;
  {
    std::lock_guard lock(mutex_);
    const SteadyTime now = Clock::now();
    failures_ = status.ok() ? 0 : failures_ + 1;
    RetryOptions pace{.initial_backoff = std::min<Duration>(options_.lease / 60, std::chrono::milliseconds(100)),
                      .max_backoff = options_.lease / 10,
                      .multiplier = 2};
    const SteadyTime again = now + BackoffAfter(std::max(failures_, 1), absl::OkStatus(), pace);
    for (size_t i = 0; i < leases.size(); ++i) {
      const Lease& lease = leases[i];
      lease->in_flight_ = false;
      if (!lease->tended_) continue;
      if (!status.ok()) {
        auto& item = *request.mutable_items(static_cast<int>(i));
        if (item.has_progress() && !lease->progress_) {
          lease->progress_ =
              Progress{item.progress().fraction(), std::move(*item.mutable_progress()->mutable_message())};
        }
        lease->due_ = again;
        Place(lease);
        continue;
      }
      v1::ExtendResult& result = *response.mutable_results(static_cast<int>(i));
      if (!result.has_error()) {
        lease->sent_ = sent;
        lease->lease_ = result.has_lease_duration() ? FromProto(result.lease_duration()) : options_.lease;
        lease->due_ = sent + (lease->progress_ ? options_.progress_interval : lease->lease_ / 3);
        lease->end_.store((sent + lease->lease_).time_since_epoch().count(), std::memory_order_relaxed);
        Place(lease);
        continue;
      }
      absl::Status refusal = FromItemError(result.error());
      LeaseState state = LeaseState::kHeld;
      if (HasReason(refusal, reason::kLeaseLost) || HasReason(refusal, reason::kJobNotFound)) state = LeaseState::kLost;
      if (HasReason(refusal, reason::kJobCancelled)) state = LeaseState::kCancelled;
      if (HasReason(refusal, reason::kAlreadySettled)) state = LeaseState::kSettledElsewhere;
      if (state == LeaseState::kHeld) {
        // Not an answer about the lease, for example its row is locked by somebody's transaction.
        lease->due_ = again;
        Place(lease);
      } else if (Enter(lease, state)) {
        changes.push_back({lease, std::move(refusal)});
      }
    }
    if (stopping_) return;
    ++announcing_;
  }
  Announce(changes);
  if (!status.ok() && options_.on_error) options_.on_error(status);
  std::lock_guard lock(mutex_);
  if (--announcing_ == 0) wake_.notify_all();
}

}  // namespace internal

LeaseKeeper::LeaseKeeper(Client client, LeaseKeeperOptions options)
    : core_(std::make_shared<internal::KeeperCore>(internal::ClientAccess::ConnectionOf(client), std::move(options))) {
  core_->Start();
}

LeaseKeeper::~LeaseKeeper() { core_->Stop(); }

std::shared_ptr<HeldLease> LeaseKeeper::Hold(const ClaimedJob& job) {
  return core_->Hold(job.lease_token, job.lease_duration, job.sent);
}
std::shared_ptr<HeldLease> LeaseKeeper::Hold(std::string lease_token, Duration lease_duration, SteadyTime sent) {
  return core_->Hold(std::move(lease_token), lease_duration, sent);
}
void LeaseKeeper::Forget(const std::shared_ptr<HeldLease>& lease) { core_->Forget(lease); }
void LeaseKeeper::Report(const std::shared_ptr<HeldLease>& lease, LeaseState state, const absl::Status& why) {
  core_->Report(lease, state, why);
}
void LeaseKeeper::SetProgress(const std::shared_ptr<HeldLease>& lease, Progress progress) {
  core_->SetProgress(lease, std::move(progress));
}
size_t LeaseKeeper::size() const { return core_->size(); }

}  // namespace tenure::client
