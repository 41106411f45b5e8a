// Who is to be admitted, gathered: names of gates at which a slot may have become free, or somebody new waits, looked
// at by one transaction per queue after the other. While one is in flight the next names gather; an idle queue starts
// at once, so that a freed slot is filled again within the time of a transaction. Layer: engine. Thread-safe.
//
// A look at a gate costs the same whether one slot has become free there or five. So while claims find more ready jobs
// than they take, and nobody waits for the ones that a look would bring, looks rest: twice as long as the last round of
// them took, kLongestRest at most. A claim that leaves nothing behind ends the rest.
//
// The numbers of jobs that have ended while others wait for them come the same way (store/dependencies.h), each look a
// transaction of its own.
//
// Any replica may look at any gate at any time: who may pass is decided by the database (Store::Admit). A look that
// failed is repeated; one that is lost with its process is made up for by the admission worker's sweep.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "server/base/metrics.h"
#include "server/engine/executor.h"
#include "server/engine/timers.h"
#include "server/store/fair_choice.h"
#include "server/store/store.h"

namespace tenure::engine {

class AdmissionDesk {
 public:
  // Called with what each transaction did, on an executor thread.
  using Admitted = std::function<void(int32_t queue, const store::AdmitResult& result)>;
  using Resolved = std::function<void(const store::ResolveResult& result)>;
  AdmissionDesk(store::Store& store, Executor& executor, Timers& timers, Metrics& metrics, Admitted admitted,
                Resolved resolved)
      : store_(store),
        executor_(executor),
        timers_(timers),
        metrics_(metrics),
        admitted_(std::move(admitted)),
        resolved_(std::move(resolved)) {}

  // Looks at these gates of a queue as soon as the transaction that is in flight has ended.
  void Look(int32_t queue, const store::GateNames& names);
  // Claims took so many jobs of a queue whose tenants take turns: the next ones become ready.
  void Took(int32_t queue, int64_t jobs);
  // A claim of the queue has ended, and knows of more that are ready, or does not.
  void Claimed(int32_t queue, bool more);
  // No looks begin from now on; for a replica that stops.
  void Stop();

 private:
  struct Line {
    std::deque<std::string> names;  // In the order in which they came, each once.
    std::unordered_set<std::string> in_line;
    bool running = false;
    size_t names_per_look = 250;  // As the look before it found them.
    size_t round = 0;  // So many of the names were there when the round began, and are still to be looked at.
    Clock::TimePoint round_began{};
    Clock::TimePoint rest_until{};
    Clock::TimePoint stocked_until{};  // Claims leave something behind; known for so long.
    bool timed = false;                // A timer ends the rest.
    store::FairWindow window;          // Of a queue that claims took from in turn.
  };
  static void Add(Line& line, const std::string& name);
  void Begin(int32_t queue, Line& line, bool rests);
  void Run(int32_t queue);
  void LookLater(int32_t queue, std::string name, Clock::Duration after);
  // Takes the jobs that have ended out of `names`, and lets go who waited for them.
  void LookAtEnded(int32_t queue, std::vector<std::string>& names);

  store::Store& store_;
  Executor& executor_;
  Timers& timers_;
  Metrics& metrics_;
  const Admitted admitted_;
  const Resolved resolved_;
  std::mutex mu_;
  bool stopped_ = false;
  std::unordered_map<int32_t, Line> lines_;  // Of queues at whose gates this replica has looked.
  // Gates whose next look has a time already.
  std::map<std::pair<int32_t, std::string>, Clock::TimePoint> timed_;
};

}  // namespace tenure::engine
