// What the handlers write down about the jobs they ran: one file a worker process, one write() a line, so that what a
// process did is known even if it was killed in the middle. This, not what the daemon says, is what the demo counts
// lost jobs from. Layer: tests. RecordWriter is thread-safe; RecordReader is used from one thread.
//
//   S <job id> <attempt> <now> <sent>   a handler started; <sent> is when the producer's Enqueue call left
//   E <job id> <attempt> <now> <sent>   it returned
//   C <job id> <attempt> <now> <sent>   the daemon acknowledged the job's Complete (<sent> is 0)
//
// Times are nanoseconds of CLOCK_MONOTONIC, which is one clock for all processes of a machine.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tenure::demo {

// CLOCK_MONOTONIC in nanoseconds.
int64_t NowNanos();

enum class Step : char { kStarted = 'S', kEnded = 'E', kSettled = 'C' };

struct Record {
  Step step = Step::kStarted;
  std::string job_id;
  int attempt = 0;
  int64_t now = 0;
  int64_t sent = 0;
};

class RecordWriter {
 public:
  // Appends to `path`, made if missing.
  static absl::StatusOr<RecordWriter> Open(const std::string& path);
  RecordWriter(RecordWriter&& other) noexcept;
  ~RecordWriter();

  // Written when it returns. Ends the process if that fails: its work would go unseen.
  void Write(Step step, std::string_view job_id, int attempt, int64_t sent) const;

 private:
  explicit RecordWriter(int fd) : fd_(fd) {}
  int fd_;
};

class RecordReader {
 public:
  explicit RecordReader(std::string path) : path_(std::move(path)) {}
  // The complete lines that were written since the last call. DATA_LOSS if one makes no sense; no file means no lines.
  absl::StatusOr<std::vector<Record>> ReadNew();

 private:
  std::string path_;
  std::int64_t offset_ = 0;
};

}  // namespace tenure::demo
