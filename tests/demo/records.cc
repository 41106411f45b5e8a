// Records: see the header. Layer: tests.
#include "records.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tenure::demo {

int64_t NowNanos() { return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count(); }

absl::StatusOr<RecordWriter> RecordWriter::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) return absl::InternalError(absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
  return RecordWriter(fd);
}

RecordWriter::RecordWriter(RecordWriter&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

RecordWriter::~RecordWriter() {
  if (fd_ >= 0) close(fd_);
}

void RecordWriter::Write(Step step, std::string_view job_id, int attempt, int64_t sent) const {
  std::string line(1, static_cast<char>(step));
  line.append(" ").append(job_id);
  absl::StrAppend(&line, " ", attempt, " ", NowNanos(), " ", sent, "\n");
  const ssize_t written = write(fd_, line.data(), line.size());
  if (written == static_cast<ssize_t>(line.size())) return;
  std::perror("cannot write the handlers' records");
  _exit(1);
}

absl::StatusOr<std::vector<Record>> RecordReader::ReadNew() {
  std::vector<Record> records;
  std::ifstream in(path_);
  if (!in.is_open()) return records;
  in.seekg(offset_);
  std::string line;
  // A line without its end is still being written.
  while (std::getline(in, line) && !in.eof()) {
    offset_ += static_cast<int64_t>(line.size()) + 1;
    Record record;
    char step = 0;
    std::istringstream fields(line);
    fields >> step >> record.job_id >> record.attempt >> record.now >> record.sent;
    if (!fields || (step != 'S' && step != 'E' && step != 'C')) {
      return absl::DataLossError(absl::StrCat(path_, " has a line that makes no sense: ", line));
    }
    record.step = static_cast<Step>(step);
    records.push_back(std::move(record));
  }
  return records;
}

}  // namespace tenure::demo
