// The live line: rewritten in place on a terminal, one line a second otherwise. Layer: tests. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace tenure::demo {

class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Progress(int64_t jobs);

  // Begins to measure. Call it once, before Show.
  void Begin();
  // Until when poll() may wait before Show has something to do.
  Clock::time_point next() const { return next_; }
  // Shows the line if it is time.
  void Show(int64_t enqueued, int64_t completed);
  // Shows it for good.
  void Finish(int64_t enqueued, int64_t completed);
  // Prints a line of its own, above the live one.
  void Say(const std::string& line);

 private:
  void Print(int64_t enqueued, int64_t completed, const char* end);

  const int64_t jobs_;
  const bool terminal_;
  const Clock::duration interval_;
  Clock::time_point next_;
  Clock::time_point shown_at_;
  int64_t shown_completed_ = 0;
};

}  // namespace tenure::demo
