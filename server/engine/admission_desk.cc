#include "server/engine/admission_desk.h"

#include <algorithm>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace tenure::engine {
namespace {

// Gates and jobs of one transaction: it holds the queue's turn, so it must stay short.
constexpr size_t kNames = 1000;
constexpr int kJobs = 2000;
constexpr auto kAfterFailure = std::chrono::milliseconds(250);
// The row of a waiting job that somebody holds.
constexpr auto kLockedAgain = std::chrono::milliseconds(20);

}  // namespace

void AdmissionDesk::Look(int32_t queue, const store::GateNames& names) {
  if (names.empty()) return;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (stopped_) return;
    Line& line = lines_[queue];
    for (const std::string& name : names) {
      if (line.in_line.insert(name).second) line.names.push_back(name);
    }
    if (line.running) return;
    line.running = true;
  }
  executor_.Post([this, queue] { Run(queue); });
}

void AdmissionDesk::Took(int32_t queue, int64_t jobs) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    windows_[queue].Took(jobs);
  }
  Look(queue, {"q"});
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
    {
      std::lock_guard<std::mutex> lock(mu_);
      const auto known = timed_.find(gate);
      if (known == timed_.end() || known->second != when) return;  // An earlier one has taken its place.
      timed_.erase(known);
    }
    Look(gate.first, {gate.second});
  });
}

void AdmissionDesk::Run(int32_t queue) {
  std::vector<std::string> names;
  int64_t fair_window = store::FairWindow::kLeast;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (const auto window = windows_.find(queue); window != windows_.end()) fair_window = window->second.Next();
    Line& line = lines_[queue];
    while (!line.names.empty() && names.size() < kNames) {
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
  bool more = false;
  {
    std::lock_guard<std::mutex> lock(mu_);
    Line& line = lines_[queue];
    if (result.ok() && !stopped_) {
      for (const std::string& name : result->again) {
        if (line.in_line.insert(name).second) line.names.push_back(name);
      }
    }
    more = !line.names.empty() && !stopped_;
    if (!more) lines_.erase(queue);
  }
  if (more) executor_.Post([this, queue] { Run(queue); });
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
