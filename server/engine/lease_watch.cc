#include "server/engine/lease_watch.h"

#include <algorithm>

namespace tenure::engine {
namespace {

constexpr auto kTick = std::chrono::milliseconds(100);
constexpr auto kLongestPutOff = std::chrono::minutes(1);

}  // namespace

LeaseWatch::Tick LeaseWatch::TickOf(Clock::TimePoint time) { return time.time_since_epoch() / kTick; }

LeaseWatch::Tick LeaseWatch::NextLook(Clock::TimePoint now, Clock::TimePoint ends) {
  return TickOf(std::min<Clock::TimePoint>(ends, now + kLongestPutOff));
}

void LeaseWatch::Watch(const store::LeaseRef& lease, Clock::TimePoint ends) {
  auto [watched, fresh] = leases_.try_emplace(lease.id);
  if (!fresh) EndOf(watched->second.lease.grant);  // There is a newer lease, so that one has ended.
  watched->second = {lease, ends};
  wheel_[NextLook(clock_.Now(), ends)].emplace_back(lease.id, lease.number);
}

void LeaseWatch::EndOf(int64_t grant) {
  auto found = grants_.find(grant);
  if (found != grants_.end() && found->second.leases > 0) --found->second.leases;
}

void LeaseWatch::AddGrant(int64_t grant, Clock::TimePoint keep_until,
                          const std::vector<std::pair<store::LeaseRef, Clock::TimePoint>>& leases) {
  std::lock_guard<std::mutex> lock(mu_);
  if (!grants_.try_emplace(grant, Grant{leases.size(), keep_until}).second) return;
  for (const auto& [lease, ends] : leases) WatchUnlessNewer(lease, ends);
}

void LeaseWatch::PutBack(const store::LeaseRef& lease, Clock::TimePoint ends) {
  std::lock_guard<std::mutex> lock(mu_);
  WatchUnlessNewer(lease, ends);
}

void LeaseWatch::WatchUnlessNewer(const store::LeaseRef& lease, Clock::TimePoint ends) {
  // What was read from the database may be older than what has been granted since.
  auto watched = leases_.find(lease.id);
  if (watched != leases_.end() && watched->second.lease.number > lease.number) return EndOf(lease.grant);
  Watch(lease, ends);
}

void LeaseWatch::Drop(const store::LeaseRef& lease) {
  std::lock_guard<std::mutex> lock(mu_);
  EndOf(lease.grant);
}

std::vector<int64_t> LeaseWatch::TakeOver() {
  std::vector<int64_t> over;
  std::lock_guard<std::mutex> lock(mu_);
  const Clock::TimePoint now = clock_.Now();
  for (auto grant = grants_.begin(); grant != grants_.end();) {
    if (grant->second.leases == 0 && grant->second.keep_until <= now) {
      over.push_back(grant->first);
      grant = grants_.erase(grant);
    } else {
      ++grant;
    }
  }
  return over;
}

std::vector<int64_t> LeaseWatch::grants() const {
  std::lock_guard<std::mutex> lock(mu_);
  std::vector<int64_t> ids;
  for (const auto& [id, unused] : grants_) ids.push_back(id);
  return ids;
}

void LeaseWatch::Extend(const store::LeaseRef& lease, Clock::TimePoint ends) {
  std::lock_guard<std::mutex> lock(mu_);
  auto watched = leases_.find(lease.id);
  if (watched == leases_.end() || watched->second.lease.number != lease.number || ends <= watched->second.ends) return;
  watched->second.ends = ends;
}

void LeaseWatch::Forget(int64_t id, int32_t number) {
  std::lock_guard<std::mutex> lock(mu_);
  auto watched = leases_.find(id);
  if (watched != leases_.end() && watched->second.lease.number == number) {
    EndOf(watched->second.lease.grant);
    leases_.erase(watched);
  }
}

std::map<int32_t, std::vector<store::LeaseRef>> LeaseWatch::TakeDue(
    std::map<int32_t, std::vector<store::LeaseRef>>* held) {
  std::map<int32_t, std::vector<store::LeaseRef>> due;
  std::lock_guard<std::mutex> lock(mu_);
  const Clock::TimePoint now = clock_.Now();
  const Tick current = TickOf(now);
  while (!wheel_.empty() && wheel_.begin()->first < current) {
    std::vector<std::pair<int64_t, int32_t>> entries = std::move(wheel_.begin()->second);
    wheel_.erase(wheel_.begin());
    for (const auto& [id, number] : entries) {
      auto watched = leases_.find(id);
      if (watched == leases_.end() || watched->second.lease.number != number) continue;
      if (watched->second.ends > now) {
        wheel_[NextLook(now, watched->second.ends)].emplace_back(id, number);
        (*held)[watched->second.lease.queue].push_back(watched->second.lease);
        continue;
      }
      due[watched->second.lease.queue].push_back(watched->second.lease);
      leases_.erase(watched);
    }
  }
  return due;
}

size_t LeaseWatch::entries() const {
  std::lock_guard<std::mutex> lock(mu_);
  size_t entries = 0;
  for (const auto& [unused, of_tick] : wheel_) entries += of_tick.size();
  return entries;
}

size_t LeaseWatch::size() const {
  std::lock_guard<std::mutex> lock(mu_);
  return leases_.size();
}

}  // namespace tenure::engine
