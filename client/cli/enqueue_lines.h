// JSON lines as jobs, and batches that fit the daemon's limits. Layer: client/cli. Not thread-safe.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tenure/v1/job_service.pb.h"

namespace tenure::cli {

// A JobSpec from one line in the proto's JSON mapping; what it leaves out comes from `defaults`. A default idempotency
// key gets the line number, so that each line has its own. INVALID_ARGUMENT says what is wrong with the line.
absl::StatusOr<v1::JobSpec> ParseLine(const std::string& text, int64_t line, const v1::JobSpec& defaults);

// Reads lines from a stream; blank ones are skipped but counted.
class LineReader {
 public:
  LineReader(std::istream& in, const v1::JobSpec& defaults) : in_(in), defaults_(defaults) {}

  // Moves to the next line that is not blank; false at the end.
  bool Next();
  // Of the current line, from 1.
  int64_t line() const { return line_; }
  const absl::StatusOr<v1::JobSpec>& spec() const { return spec_; }

 private:
  std::istream& in_;
  const v1::JobSpec& defaults_;
  int64_t line_ = 0;
  absl::StatusOr<v1::JobSpec> spec_;
};

struct EnqueueBatch {
  v1::EnqueueRequest request;
  std::vector<int64_t> lines;  // Where each job came from.
  size_t bytes = 0;

  // False once there are 1,000 jobs or 3 MiB of them; the daemon takes messages of 4 MiB. An empty batch takes any job.
  bool HasRoomFor(const v1::JobSpec& spec) const;
  void Add(const v1::JobSpec& spec, int64_t line);
};

}  // namespace tenure::cli
