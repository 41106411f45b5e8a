#include "server/engine/admission_desk.h"

#include <algorithm>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace tenure::engine {
namespace {

// Jobs of one transaction: it holds the queue's turn, so it must stay short.
constexpr int kJobs = 2000;
// Its gates: so many that each may let twice as many pass as one did in the look before.
constexpr size_t kFewestNames = 250, kMostNames = 1000;
constexpr auto kAfterFailure = std::chrono::milliseconds(250);
// The row of a waiting job that somebody holds.
constexpr auto kLockedAgain = std::chrono::milliseconds(20);
constexpr Clock::Duration kLongestRest = std::chrono::milliseconds(100);
// What a claim left behind may be gone so long after, taken by other replicas.
constexpr Clock::Duration kStocked = std::chrono::milliseconds(100);

size_t NamesPerLook(size_t names, int jobs) {
  const size_t each = std::max<size_t>(1, (static_cast<size_t>(jobs) + names - 1) / names);
  return std::clamp(kJobs / (2 * each), kFewestNames, kMostNames);
}

}  // namespace

void AdmissionDesk::Add(Line& line, const std::string& name) {
  if (line.in_line.insert(name).second) line.names.push_back(name);
}

void AdmissionDesk::Look(int32_t queue, const store::GateNames& names) {
  if (names.empty()) return;
  std::lock_guard<std::mutex> lock(mu_);
  Line& line = lines_[queue];
  for (const std::string& name : names) Add(line, name);
  Begin(queue, line, /*rests=*/true);
}

void AdmissionDesk::Took(int32_t queue, int64_t jobs) {
  std::lock_guard<std::mutex> lock(mu_);
  Line& line = lines_[queue];
  line.window.Took(jobs);
  Add(line, "q");
  // What may be ready of such a queue is little: its claims live from hand to mouth.
  Begin(queue, line, /*rests=*/false);
}

void AdmissionDesk::Claimed(int32_t queue, bool more) {
  std::lock_guard<std::mutex> lock(mu_);
  const auto known = lines_.find(queue);
  if (known == lines_.end()) return;
  known->second.stocked_until = more ? timers_.clock().Now() + kStocked : Clock::TimePoint();
  if (!more) Begin(queue, known->second, /*rests=*/false);
}

// Begins the next round of looks, unless there is nobody to look at, or one is at work, or the queue rests.
void AdmissionDesk::Begin(int32_t queue, Line& line, bool rests) {
  if (stopped_ || line.running || line.names.empty()) return;
  const Clock::TimePoint now = timers_.clock().Now();
  if (rests && now < line.rest_until && now < line.stocked_until) {
    if (!std::exchange(line.timed, true)) {
      timers_.At(line.rest_until, [this, queue] {
        std::lock_guard<std::mutex> lock(mu_);
        Line& rested = lines_[queue];
        rested.timed = false;
        Begin(queue, rested, /*rests=*/true);
      });
    }
    return;
  }
  line.running = true;
  line.round = line.names.size();
  line.round_began = now;
  executor_.Post([this, queue] { Run(queue); });
}

void AdmissionDesk::LookLater(int32_t queue, std::string name, Clock::Duration after) {
  const Clock::TimePoint when = timers_.clock().Now() + after;
  std::pair<int32_t, std::string> gate(queue, std::move(name));
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (stopped_) return;
    const auto [known, fresh] = timed_.try_emplace(gate, when);
    if (!fresh && known->second <= when) return;
    known->second = when;
  }
  timers_.At(when, [this, gate, when] {
    std::lock_guard<std::mutex> lock(mu_);
    const auto known = timed_.find(gate);
    if (known == timed_.end() || known->second != when) return;  // An earlier one has taken its place.
    timed_.erase(known);
    Line& line = lines_[gate.first];
    Add(line, gate.second);
    // A rate that is looked at late lets fewer pass than it may.
    Begin(gate.first, line, /*rests=*/false);
  });
}

void AdmissionDesk::Run(int32_t queue) {
  std::vector<std::string> names;
  int64_t fair_window = 0;
  {
    std::lock_guard<std::mutex> lock(mu_);
    Line& line = lines_[queue];
    fair_window = line.window.Next();
    while (line.round > 0 && names.size() < line.names_per_look) {
      --line.round;
      line.in_line.erase(line.names.front());
      names.push_back(std::move(line.names.front()));
      line.names.pop_front();
    }
  }
  LookAtEnded(queue, names);
  absl::StatusOr<store::AdmitResult> result = store::AdmitResult();
  if (!names.empty()) {
    metrics_.batch_items.Observe({{"verb", "admit"}}, static_cast<double>(names.size()));
    result = store_.Admit(queue, names, kJobs, fair_window);
  }
  if (result.ok()) {
    // Told before the next look begins, so that polls wake first.
    admitted_(queue, *result);
    for (const auto& later : result->later) LookLater(queue, later.name, absl::ToChronoNanoseconds(later.after));
  } else {
    for (std::string& name : names) LookLater(queue, std::move(name), kAfterFailure);
  }
  std::lock_guard<std::mutex> lock(mu_);
  Line& line = lines_[queue];
  if (stopped_) return;
  if (result.ok()) {
    for (const std::string& name : result->again) Add(line, name);
    if (!names.empty()) line.names_per_look = NamesPerLook(names.size(), result->admitted + result->moved);
  }
  if (line.round > 0) {
    executor_.Post([this, queue] { Run(queue); });
    return;
  }
  line.running = false;
  const Clock::TimePoint now = timers_.clock().Now();
  line.rest_until = now + std::min<Clock::Duration>((now - line.round_began) * 2, kLongestRest);
  Begin(queue, line, /*rests=*/true);
}

void AdmissionDesk::LookAtEnded(int32_t queue, std::vector<std::string>& names) {
  std::vector<int64_t> ended;
  std::erase_if(names, [&](const std::string& name) {
    int64_t id = 0;
    if (name.empty() || name[0] != store::kAwaitedMark || !absl::SimpleAtoi(name.substr(1), &id)) return false;
    ended.push_back(id);
    return true;
  });
  if (ended.empty()) return;
  metrics_.batch_items.Observe({{"verb", "resolve"}}, static_cast<double>(ended.size()));
  const absl::StatusOr<store::ResolveResult> result = store_.ResolveDependents(queue, ended);
  if (result.ok()) {
    resolved_(*result);
    ended = result->again;
  }
  for (int64_t id : ended) {
    LookLater(queue, absl::StrCat(std::string(1, store::kAwaitedMark), id), result.ok() ? kLockedAgain : kAfterFailure);
  }
}

void AdmissionDesk::Stop() {
  std::lock_guard<std::mutex> lock(mu_);
  stopped_ = true;
  timed_.clear();
}

}  // namespace tenure::engine
