// Who passes which gate: the choice of one admission, on what was read under the queue's turn. Layer: store. Not
// thread-safe; one per transaction.
//
// Each gate has a line (those who wait for it) and an allowance (how many may pass now). As long as a gate with an
// allowance has somebody in its line, the first of the line passes and joins the line of its next gate, or is through.
// A gate that somebody comes to and that has not been read yet is asked for (Unknown), and the choice goes on.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenure::store {

// Numbers of tenure.job.gate.
inline constexpr int16_t kGateAdmitted = 0;
inline constexpr int16_t kGateGroup = 1;
inline constexpr int16_t kGateFirstKey = 2;
inline constexpr int16_t kGateQueue = 6;

struct WaitingJob {
  int64_t id = 0;
  int16_t priority = 0;
  int16_t gate = 0;
  std::vector<std::string> keys;  // Sorted.
  std::string group;              // Of one that waits for its turn in it.
};

struct GateMove {
  int64_t id = 0;
  int16_t from = 0;
  int16_t to = 0;
  int64_t rank = 0;  // Of one that becomes ready; 0: the next in the order of admission.
};

class AdmissionChoice {
 public:
  // `gated`: the queue has a gate of its own, named "" here, after all keys.
  explicit AdmissionChoice(bool gated) : gated_(gated) {}

  // A key (or "") as it stands; `allowance`: how many may pass now. Once per key.
  void Know(const std::string& key, int64_t allowance) { lines_[key].allowance = allowance; }
  bool Knows(const std::string& key) const { return lines_.contains(key); }
  // Somebody who waits. One that is known already is left where it is. A group's head (gate kGateGroup) passes its
  // group.
  void Add(WaitingJob job);
  // Lets pass who may. Afterwards Unknown has the keys that somebody came to and nobody knows: Know them, Add who waits
  // there, and Run again.
  void Run();
  const std::set<std::string>& Unknown() const { return unknown_; }

  // Who has left the gate at which it stood, by id.
  std::vector<GateMove> Moves() const;
  // Somebody who was added; nullptr: nobody was so.
  const WaitingJob* Find(int64_t id) const;
  // How many passed the key.
  int64_t Passed(const std::string& key) const;
  // True if the key's line is not empty: who stands there may not pass now.
  bool AnyoneLeft(const std::string& key) const;

 private:
  struct Standing {
    WaitingJob job;
    int16_t to = 0;
  };
  struct Line {
    int64_t allowance = 0;
    int64_t passed = 0;
    std::set<std::pair<int, int64_t>> waiting;  // (-priority, id).
  };
  // The gate after `gate` for a job with these keys, and the name of its line.
  std::pair<int16_t, std::string> After(const Standing& standing, int16_t gate) const;
  std::string LineOf(const Standing& standing) const;
  // Puts a job before its gate `to`.
  void Enter(Standing& standing, int16_t gate);

  const bool gated_;
  std::map<int64_t, Standing> jobs_;
  std::map<std::string, Line> lines_;
  std::map<std::string, std::vector<int64_t>> arrived_;  // In lines that are not known yet.
  std::set<std::string> unknown_;
};

// What a rate lets pass now: GCRA with `interval` per start and `burst` at once. `next_in_us`: how far its next start
// on time lies ahead (0 or less: it is fresh).
int64_t RateAllowance(int64_t interval_us, int64_t burst, int64_t next_in_us);
// How long until it lets the next one pass, after `used` more starts; 0: at once.
int64_t RateWait(int64_t interval_us, int64_t burst, int64_t next_in_us, int64_t used);

}  // namespace tenure::store
