// Settler: sends the pool's settles. One lane per verb; while a call is in flight the next batch gathers, so that
// nothing is delayed when idle and calls grow with the load. Layer: client. Thread-safe.
//
// A settle is repeated until the daemon answers it. A call that hangs (the daemon waits for a row that an application's
// transaction holds) does not hold up the lane: after kPatience a further one is sent beside it, up to kMaxInFlight. A
// call that the daemon or the transport refuses as a whole is cut in halves until the item that spoils it stands alone.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "calls.h"
#include "tenure/lease.h"
#include "timer.h"

namespace tenure::client::internal {

class JobRun;

enum class Verb { kComplete, kFail, kRelease, kSnooze };
std::string_view ToString(Verb verb);

// What became of one settle: OK, an answer that no repetition changes, or INVALID_ARGUMENT and the like for an item
// that the daemon will never take.
struct SettleAnswer {
  std::shared_ptr<JobRun> run;
  Verb verb;
  absl::Status status;
  Settled result;
};

struct SettlerHooks {
  std::function<void(std::vector<SettleAnswer> answers)> answered;  // On a gRPC thread; must not block.
  std::function<void(const absl::Status& error)> retried;           // A call failed and is repeated.
  std::function<void()> sent;
};

class Settler : public std::enable_shared_from_this<Settler> {
 public:
  Settler(std::shared_ptr<Connection> connection, SettlerHooks hooks);

  void Complete(std::shared_ptr<JobRun> run, v1::CompleteItem item);
  void Fail(std::shared_ptr<JobRun> run, v1::FailItem item);
  void Release(std::vector<std::pair<std::shared_ptr<JobRun>, v1::ReleaseItem>> items);
  void Snooze(std::shared_ptr<JobRun> run, v1::SnoozeItem item);

  // Sends nothing more; answers that come later are still reported. What waits is dropped.
  void Stop();

 private:
  template <typename Request, typename Response, typename Item>
  struct Lane {
    using RequestType = Request;
    using ResponseType = Response;
    struct Entry {
      std::shared_ptr<JobRun> run;
      Item item;
      size_t bytes = 0;
      int failures = 0;
    };
    explicit Lane(Verb of) : verb(of) {}

    const Verb verb;
    std::mutex mutex;
    // Guarded by mutex.
    std::deque<Entry> waiting;
    int in_flight = 0;
    SteadyTime last_sent;
    SteadyTime not_before;  // A pause after a failed call.
    int failures = 0;       // In a row.
    size_t max_items;       // Halved while calls are refused as a whole.
    bool poke_planned = false;
    bool stopped = false;
  };
  using CompleteLane = Lane<v1::CompleteRequest, v1::CompleteResponse, v1::CompleteItem>;
  using FailLane = Lane<v1::FailRequest, v1::FailResponse, v1::FailItem>;
  using ReleaseLane = Lane<v1::ReleaseRequest, v1::ReleaseResponse, v1::ReleaseItem>;
  using SnoozeLane = Lane<v1::SnoozeRequest, v1::SnoozeResponse, v1::SnoozeItem>;

  template <typename L>
  void Add(L& lane, std::vector<typename L::Entry> entries);
  // Sends the next batch if the lane may.
  template <typename L>
  void Pump(L& lane);
  template <typename L>
  void OnAnswer(L& lane, std::vector<typename L::Entry> entries, absl::Status status, typename L::RequestType& request,
                typename L::ResponseType& response);
  template <typename L>
  void PlanPoke(L& lane, SteadyTime when);
  template <typename L>
  void StopLane(L& lane);

  const std::shared_ptr<Connection> connection_;
  const SettlerHooks hooks_;
  CompleteLane complete_;
  FailLane fail_;
  ReleaseLane release_;
  SnoozeLane snooze_;
  Timer timer_;
};

}  // namespace tenure::client::internal
