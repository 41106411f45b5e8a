// What the claim desk keeps of a poll and of a queue. Layer: engine, private to claim_desk*.cc. Guarded by
// ClaimDesk::mu_.
#pragma once

#include <deque>
#include <list>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/engine/claim_desk.h"

namespace tenure::engine {

// A row that a claim could not get is looked at again so soon at first.
inline constexpr auto kFirstRevisit = std::chrono::milliseconds(10);

struct ClaimDesk::Poll {
  ClaimCall call;
  Deadline ends{};  // When to answer empty.
  Callback<ClaimAnswer> done;
  std::vector<int32_t> queues;  // Known ones, in the order in which to try them.
  std::set<std::string> unknown;
  size_t next = 0;      // Index into queues: where it tries next.
  int32_t in_line = 0;  // The queue in whose line or batch it is; 0: none.
  bool in_flight = false;
  std::vector<std::pair<Queue*, std::list<PollPtr>::iterator>>
      parked;  // Where it stands in each queue; empty: not parked.
  bool is_parked = false;
  bool begun = false;             // Its queues have been looked up.
  bool awaits_original = false;   // An earlier poll of the same request id has a claim in flight ...
  bool awaited = false;           // ... and this is that one: it does not go on.
  Clock::TimePoint not_before{};  // Found nothing but what it leaves out: it looks again then.
  bool answered = false;
  bool cancelled = false;
  bool checked_replay = false;  // The request id was, or is being, looked up ...
  bool looking_up = false;      // ... and the answer waits for that.
  Timers::Id timer = 0;
};

struct ClaimDesk::Queue {
  int32_t id = 0;
  bool paused = false;
  bool fair = false;          // Its tenants take turns.
  Clock::Duration ageing{0};  // A job gains one priority for each such time; 0: none.
  // Since when the first ready job of a priority has been due, as far as is known; for ageing.
  std::map<int16_t, Clock::TimePoint> waiting_since;
  std::map<int16_t, ReadyCursor, std::greater<>> cursors;
  std::deque<PollPtr> line;
  std::list<PollPtr> parked;
  bool in_flight = false;
  Clock::TimePoint rest_until{};
  Clock::TimePoint contended_until{};  // Somebody else has locked ready rows of it lately.
  struct Missed {
    int64_t id;
    int16_t priority;
  };
  std::vector<Missed> revisit;  // Ready when a claim read them, but locked by somebody.
  Clock::TimePoint revisit_at{};
  Clock::Duration revisit_delay = kFirstRevisit;
  bool revisit_timer = false;
};

}  // namespace tenure::engine
