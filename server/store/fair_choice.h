// Whose turn it is among the tenants of a queue: start-time fair queueing, on what was read under the queue's turn.
// Layer: store. Not thread-safe; one per transaction.
//
// Every job gets a virtual start: where its tenant's last one left off, but not before the queue's virtual time, so
// that who was away cannot save up turns. The least start goes first, and moves its tenant on by one turn divided by
// its weight. So tenants that always have jobs waiting start them in the proportion of their weights, whatever their
// backlogs, and the first job of a tenant that comes along starts at the virtual time: before all but one turn of each
// of the others. Higher priorities go before all that.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

namespace tenure::store {

// Virtual time of one turn at weight 1; a multiple of no weight, so shares are exact to a millionth of a turn.
inline constexpr int64_t kFairTurn = 1'000'000;

struct FairJob {
  int64_t id = 0;
  int16_t priority = 0;
};

struct FairTenant {
  int64_t next_start = 0;
  int32_t weight = 1;
  std::deque<FairJob> line;  // In the order in which they pass.
  bool more = false;         // More may wait than `line` has.
};

struct FairPick {
  int64_t id = 0;
  int64_t rank = 0;  // Its virtual start.
};

// How a queue stands before a look.
struct FairQueue {
  int64_t virtual_time = 0;          // The start of the first ready job.
  int64_t last_start = 0;            // The greatest start that was given out.
  std::map<int16_t, int64_t> ready;  // Jobs that are ready and not claimed, by priority.
  int64_t window = 0;                // So many of a priority and above it are to be ready.
};

class FairChoice {
 public:
  explicit FairChoice(FairQueue queue) : queue_(std::move(queue)) {}

  // Once per tenant.
  void Add(const std::string& name, FairTenant tenant) { tenants_.emplace(name, std::move(tenant)); }
  // Lets at most `allowance` pass, up to the window; beyond it those whose start lies before the last one given out, so
  // that who comes along need not wait until what is ready has been claimed. Ends before that where a tenant's line was
  // not read far enough to know who is next: cut() is true then, and at least one has passed.
  std::vector<FairPick> Run(int64_t allowance);
  bool cut() const { return cut_; }
  // True if somebody who was read still waits.
  bool AnyoneLeft() const;
  // The next starts of those who passed any, by name.
  const std::map<std::string, int64_t>& next_starts() const { return next_starts_; }

 private:
  const FairQueue queue_;
  std::map<std::string, FairTenant> tenants_;
  std::map<std::string, int64_t> next_starts_;
  bool cut_ = false;
};

// How many of each tenant's line to read so that `allowance` can be shared out by weight without a second look in most
// cases: its part, rounded up, and one more.
int64_t FairPart(int64_t allowance, int32_t weight, int64_t all_weights);

// How many jobs a queue keeps ready: enough for what its claims took lately, a few at the least. The fewer, the sooner
// new weights count; the more, the less often claims find nothing.
class FairWindow {
 public:
  static constexpr int64_t kLeast = 64;
  static constexpr int64_t kMost = 4096;
  // So many have been claimed since the last look.
  void Took(int64_t jobs) { took_ += jobs; }
  // The size for the look that begins.
  int64_t Next();

 private:
  int64_t took_ = 0;
  int64_t size_ = kLeast;
};

}  // namespace tenure::store
