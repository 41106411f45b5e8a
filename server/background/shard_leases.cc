// ShardLeases: see the header. Layer: background.
#include "server/background/shard_leases.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/background/worker.h"
#include "server/base/logging.h"

namespace tenure::background {
namespace {

// What says nothing about the shard itself.
bool IsElsewhere(const absl::Status& status) { return absl::IsUnavailable(status) || IsTermOver(status); }

}  // namespace

ShardLeases::ShardLeases(store::Store& store, Clock& clock, Metrics& metrics, std::function<int32_t()> replica,
                         Options options)
    : store_(store),
      clock_(clock),
      metrics_(metrics),
      shards_gauge_(metrics.background_shards.Add({{"worker", options.worker}})),
      replica_(std::move(replica)),
      options_(std::move(options)),
      wake_(clock),
      changed_(clock),
      thread_([this](const std::stop_token& stop) { Keep(stop); }) {}

ShardLeases::~ShardLeases() = default;

void ShardLeases::RequestLeave() { thread_.request_stop(); }

std::vector<store::ShardFence> ShardLeases::Held() const {
  const Clock::TimePoint now = clock_.Now();
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<store::ShardFence> held;
  for (const Range& one : held_) {
    if (one.until > now) held.push_back(one.fence);
  }
  return held;
}

void ShardLeases::Keep(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    // Nothing that goes wrong here may end the process; the next look may do better.
    try {
      Look(replica_());
    } catch (...) {
      options_.asked(absl::InternalError(DescribeCurrentException()));
    }
    wake_.WaitUntil(clock_.Now() + absl::ToChronoNanoseconds(options_.interval), stop);
  }
  try {
    Leave();
  } catch (...) {
    LogWarn("shards not given up", {{"worker", options_.worker}, {"error", DescribeCurrentException()}});
  }
}

void ShardLeases::Look(int32_t replica) {
  if (replica == 0) return;
  const Clock::TimePoint sent = clock_.Now();
  const auto leases = store_.LeaseShards(options_.worker, replica, options_.lease);
  options_.asked(leases.status());
  // What is held runs out by itself if this goes on.
  if (!leases.ok()) return;
  std::vector<Range> held;
  for (const store::ShardLease& lease : *leases) {
    held.push_back({lease.fence, sent + absl::ToChronoNanoseconds(lease.remaining)});
  }
  Take(std::move(held), replica);
}

void ShardLeases::Take(std::vector<Range> held, int32_t replica) {
  int shards = 0;
  int64_t highest_term = 0;
  std::vector<store::ShardRow> rows;
  for (const Range& one : held) {
    shards += one.fence.last - one.fence.first + 1;
    highest_term = std::max(highest_term, one.fence.term);
    rows.push_back({.first = one.fence.first, .last = one.fence.last});
  }
  const std::string text = store::FormatShards(rows);
  bool changed, tell;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    changed = !std::equal(held.begin(), held.end(), held_.begin(), held_.end(),
                          [](const Range& a, const Range& b) { return a.fence == b.fence; });
    held_ = std::move(held);
    holder_ = replica;
    tell = text != logged_;
    logged_ = text;
  }
  shards_gauge_.Set(shards);
  if (tell) {
    LogInfo(text.empty() ? "shards released" : "shards held",
            {{"worker", options_.worker}, {"shards", text}, {"count", absl::StrCat(shards)}});
  }
  if (!changed) return;
  options_.changed(shards > 0, highest_term);
  changed_.Notify();
}

void ShardLeases::Leave() {
  int32_t holder;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    holder = holder_;
  }
  Take({}, 0);
  if (holder == 0) return;
  const absl::Status status = store_.LeaveShards(options_.worker, holder);
  // Then they run out by themselves, which only takes longer.
  if (!status.ok()) {
    LogWarn("shards not given up", {{"worker", options_.worker}, {"error", std::string(status.message())}});
  }
}

absl::Status ShardLeases::RunShard(const store::ShardFence& fence, int shard,
                                   const std::function<absl::Status()>& work) {
  absl::Status status;
  std::string error;
  bool panic = false;
  try {
    status = work();
    if (status.ok() || IsElsewhere(status)) return status;
    error = status.ToString(absl::StatusToStringMode::kWithNoExtraData);
  } catch (...) {
    const std::string what = DescribeCurrentException();
    Metrics::Add(metrics_.background_panics, {{"worker", options_.worker}, {"shard", absl::StrCat(shard)}});
    LogError("background worker panicked",
             {{"worker", options_.worker}, {"shard", absl::StrCat(shard)}, {"what", what}});
    error = absl::StrCat("panic: ", what);
    status = absl::InternalError(error);
    panic = true;
  }
  GiveUp(fence, shard, error);
  options_.failed(status, panic);
  return status;
}

void ShardLeases::GiveUp(const store::ShardFence& fence, int shard, std::string_view error) {
  int32_t holder;
  {
    // At once, whether or not the database hears of it: what is left of the range comes back with the next look.
    const std::lock_guard<std::mutex> lock(mutex_);
    std::erase_if(held_, [&](const Range& one) { return one.fence == fence; });
    holder = holder_;
  }
  const absl::Status status = store_.GiveUpShard(fence, holder, shard, error);
  if (!status.ok() && !IsTermOver(status)) {
    LogWarn("shard not given up",
            {{"worker", options_.worker}, {"shard", absl::StrCat(shard)}, {"error", std::string(status.message())}});
  }
  Refresh();
}

}  // namespace tenure::background
