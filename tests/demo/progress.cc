// Progress: see the header. Layer: tests.
#include "progress.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>

#include "absl/strings/str_format.h"
#include "summary.h"

namespace tenure::demo {
namespace {

constexpr char kClearLine[] = "\r\033[K";

}  // namespace

Progress::Progress(int64_t jobs)
    : jobs_(jobs),
      terminal_(isatty(STDOUT_FILENO) == 1),
      interval_(std::chrono::milliseconds(terminal_ ? 100 : 1000)),
      next_(Clock::now()),
      shown_at_(next_) {}

void Progress::Begin() {
  shown_at_ = Clock::now();
  next_ = shown_at_ + interval_;
}

void Progress::Show(int64_t enqueued, int64_t completed) {
  if (Clock::now() >= next_) Print(enqueued, completed, terminal_ ? "" : "\n");
}

void Progress::Finish(int64_t enqueued, int64_t completed) { Print(enqueued, completed, "\n"); }

void Progress::Print(int64_t enqueued, int64_t completed, const char* end) {
  const Clock::time_point now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - shown_at_).count();
  const double rate = seconds > 0 ? static_cast<double>(completed - shown_completed_) / seconds : 0;
  const std::string line = absl::StrFormat("  enqueued %s of %s, completed %s (%s jobs/s)", Thousands(enqueued),
                                           Thousands(jobs_), Thousands(completed), Thousands(std::llround(rate)));
  std::printf("%s%s%s", terminal_ ? kClearLine : "", line.c_str(), end);
  std::fflush(stdout);
  shown_at_ = now;
  shown_completed_ = completed;
  next_ = now + interval_;
}

void Progress::Say(const std::string& line) {
  std::printf("%s%s\n", terminal_ ? kClearLine : "", line.c_str());
  std::fflush(stdout);
}

}  // namespace tenure::demo
