// Queues by name and by number, as this replica knows them. Layer: engine. Thread-safe.
//
// Names are resolved from memory where possible; a miss asks the store on the executor. A name is asked for once at a
// time, and all who want it meanwhile share the answer; and few names are asked for at once: making a queue may have to
// wait for an application's transaction, and calls that name such queues must not take up every session. Changes made
// anywhere come as events and are reloaded (Reload), and listeners are told.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "server/engine/engine.h"
#include "server/engine/executor.h"
#include "server/store/store.h"

namespace tenure::engine {

class QueueDirectory {
 public:
  // `look_ups`: so many names may be asked for at once.
  QueueDirectory(store::Store& store, Executor& executor, int look_ups)
      : store_(store), executor_(executor), most_look_ups_(look_ups) {}

  // Called, without locks held, with each queue that became known or changed. Set before use.
  void OnChange(std::function<void(const store::Queue&)> listener) { listener_ = std::move(listener); }

  using Resolved = std::map<std::string, absl::StatusOr<store::Queue>>;
  // Runs `done` at once if all names are known, else on the executor. A name that does not exist (and is not to be
  // made) has its own error: QUEUE_NOT_FOUND, or why the database did not answer.
  void Resolve(std::vector<std::string> names, bool create, std::function<void(Resolved)> done);

  // The number of each of `names`, in their order; 0 for one that is not known. For calls that name a thousand queues.
  std::vector<int32_t> IdsOf(std::span<const QueueShare> names) const;
  std::optional<store::Queue> Find(const std::string& name) const;
  std::optional<store::Queue> Find(int32_t id) const;
  // "" if it is not known.
  std::string Name(int32_t id) const;
  std::vector<store::Queue> All() const;

  // Takes in a row that is as it is now: of a change just made, or read after its event.
  void Learn(const store::Queue& queue);
  // Takes in a row that was read in passing, only if the queue is not known: it may be older than what is.
  void LearnIfNew(const store::Queue& queue);
  // Loads the queues again (blocks; on the executor or the event thread only).
  absl::Status Reload(std::span<const int32_t> ids);
  // Loads those that are not known yet (blocks).
  absl::Status EnsureKnown(std::span<const int32_t> ids);

 private:
  // One Resolve on its way.
  struct Call {
    Resolved resolved;
    size_t open = 0;  // Names that are not known yet.
    std::function<void(Resolved)> done;
  };
  using CallPtr = std::shared_ptr<Call>;
  using Wanted = std::pair<std::string, bool>;  // And whether it is to be made.
  struct LookUp {
    bool under_way = false;
    std::vector<CallPtr> calls;  // Who gets the answer.
    std::vector<CallPtr> later;  // Who came when it was under way already.
  };

  void LookUpNext();
  void Answer(const Wanted& name, const absl::StatusOr<store::Queue>& queue, std::vector<CallPtr>& complete);

  store::Store& store_;
  Executor& executor_;
  const int most_look_ups_;
  std::function<void(const store::Queue&)> listener_;
  mutable std::mutex mu_;
  std::unordered_map<std::string, int32_t> ids_;
  std::unordered_map<int32_t, store::Queue> queues_;
  std::map<Wanted, LookUp> look_ups_;
  std::deque<Wanted> line_;  // Those that are not under way.
  int running_ = 0;          // Tasks that take from the line.
};

}  // namespace tenure::engine
