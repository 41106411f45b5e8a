#include "server/store/admission_choice.h"

#include <algorithm>

namespace tenure::store {

std::pair<int16_t, std::string> AdmissionChoice::After(const Standing& standing, int16_t gate) const {
  const std::vector<std::string>& keys = standing.job.keys;
  const size_t next = gate < kGateFirstKey ? 0 : static_cast<size_t>(gate - kGateFirstKey) + 1;
  if (gate < kGateQueue && next < keys.size()) return {static_cast<int16_t>(kGateFirstKey + next), keys[next]};
  if (gate < kGateQueue && gated_) return {kGateQueue, std::string()};
  return {kGateAdmitted, std::string()};
}

std::string AdmissionChoice::LineOf(const Standing& standing) const {
  if (standing.to == kGateQueue) return std::string();
  return standing.job.keys[static_cast<size_t>(standing.to - kGateFirstKey)];
}

void AdmissionChoice::Enter(Standing& standing, int16_t gate) {
  standing.to = gate;
  if (gate == kGateAdmitted) return;
  const std::string name = LineOf(standing);
  if (const auto line = lines_.find(name); line != lines_.end()) {
    line->second.waiting.emplace(-standing.job.priority, standing.job.id);
  } else {
    arrived_[name].push_back(standing.job.id);
    unknown_.insert(name);
  }
}

void AdmissionChoice::Add(WaitingJob job) {
  const auto [at, fresh] = jobs_.try_emplace(job.id);
  if (!fresh) return;
  Standing& standing = at->second;
  standing.job = std::move(job);
  const int16_t gate = standing.job.gate;
  Enter(standing, gate == kGateGroup ? After(standing, gate).first : gate);
}

void AdmissionChoice::Run() {
  for (auto arrived = arrived_.begin(); arrived != arrived_.end();) {
    const auto line = lines_.find(arrived->first);
    if (line == lines_.end()) {
      ++arrived;
      continue;
    }
    for (int64_t id : arrived->second) line->second.waiting.emplace(-jobs_.at(id).job.priority, id);
    unknown_.erase(arrived->first);
    arrived = arrived_.erase(arrived);
  }
  std::vector<std::string> open;
  for (const auto& [name, line] : lines_) open.push_back(name);
  while (!open.empty()) {
    const std::string name = std::move(open.back());
    open.pop_back();
    Line& line = lines_.at(name);
    while (line.allowance > 0 && !line.waiting.empty()) {
      Standing& standing = jobs_.at(line.waiting.begin()->second);
      line.waiting.erase(line.waiting.begin());
      --line.allowance;
      ++line.passed;
      const auto [gate, next] = After(standing, standing.to);
      Enter(standing, gate);
      if (gate != kGateAdmitted && lines_.contains(next)) open.push_back(next);
    }
  }
}

std::vector<GateMove> AdmissionChoice::Moves() const {
  std::vector<GateMove> moves;
  for (const auto& [id, standing] : jobs_) {
    if (standing.to != standing.job.gate) moves.push_back({id, standing.job.gate, standing.to});
  }
  return moves;
}

const WaitingJob* AdmissionChoice::Find(int64_t id) const {
  const auto job = jobs_.find(id);
  return job == jobs_.end() ? nullptr : &job->second.job;
}

int64_t AdmissionChoice::Passed(const std::string& key) const {
  const auto line = lines_.find(key);
  return line == lines_.end() ? 0 : line->second.passed;
}

bool AdmissionChoice::AnyoneLeft(const std::string& key) const {
  const auto line = lines_.find(key);
  return line != lines_.end() && !line->second.waiting.empty();
}

int64_t RateAllowance(int64_t interval_us, int64_t burst, int64_t next_in_us) {
  const int64_t room = burst * interval_us - std::max<int64_t>(next_in_us, 0);
  return room <= 0 ? 0 : room / interval_us;
}

int64_t RateWait(int64_t interval_us, int64_t burst, int64_t next_in_us, int64_t used) {
  const int64_t next = std::max<int64_t>(next_in_us, 0) + used * interval_us;
  return std::max<int64_t>(0, next + interval_us - burst * interval_us);
}

}  // namespace tenure::store
