// Progress: see the header. Layer: tests (benchmark).
#include "progress.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <mutex>

#include "absl/strings/str_format.h"
#include "report.h"

namespace tenure::bench {

Progress::Progress() : terminal_(isatty(STDERR_FILENO) == 1), shown_at_(Clock::now()) {}

void Progress::Begin(std::string label) {
  label_ = std::move(label);
  shown_at_ = Clock::now();
  shown_ = 0;
  if (terminal_) Print("", "");
}

void Progress::Say(const std::string& what) {
  shown_at_ = Clock::now();
  shown_ = 0;
  if (terminal_) Print(what, "");
}

void Progress::Show(const std::string& what, int64_t done, int64_t total) {
  const Clock::time_point now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - shown_at_).count();
  if (seconds < (terminal_ ? 0.2 : 10)) return;
  const double rate = static_cast<double>(done - shown_) / seconds;
  Print(absl::StrFormat("%s %s of %s (%s/s)", what, Thousands(static_cast<double>(done), 0),
                        Thousands(static_cast<double>(total), 0), Thousands(rate, 0)),
        terminal_ ? "" : "\n");
  shown_at_ = now;
  shown_ = done;
}

void Progress::Wait(const std::string& what, double seconds) {
  std::mutex mutex;
  std::condition_variable never;
  std::unique_lock lock(mutex);
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  Clock::time_point now;
  while ((now = Clock::now()) < end) {
    if (terminal_) Print(absl::StrFormat("%s, %.0f s", what, std::chrono::duration<double>(end - now).count()), "");
    never.wait_until(lock, std::min(end, now + std::chrono::seconds(1)), [] { return false; });
  }
}

void Progress::Finish(const std::string& what) { Print(what, "\n"); }

void Progress::Print(const std::string& text, const char* end) {
  std::fprintf(stderr, "%s%s: %s%s", terminal_ ? "\r\033[K" : "", label_.c_str(), text.c_str(), end);
  std::fflush(stderr);
}

}  // namespace tenure::bench
