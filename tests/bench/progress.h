// The live line of a run on stderr: rewritten in place on a terminal, else one line every ten seconds. Layer: tests
// (benchmark). One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace tenure::bench {

class Progress {
 public:
  Progress();

  // What the following lines are about: "drain 2/3 Tenure".
  void Begin(std::string label);
  // What goes on, without an end in sight: "filling".
  void Say(const std::string& what);
  // Shows how far a count has come, with its rate since the last line; at most five times a second.
  void Show(const std::string& what, int64_t done, int64_t total);
  // Waits so long, and counts down.
  void Wait(const std::string& what, double seconds);
  // Shows the line for good.
  void Finish(const std::string& what);

 private:
  using Clock = std::chrono::steady_clock;
  void Print(const std::string& text, const char* end);

  const bool terminal_;
  std::string label_;
  Clock::time_point shown_at_;
  int64_t shown_ = 0;
};

}  // namespace tenure::bench
