// Meter: see the header. Layer: tests (benchmark).
#include "measure.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace tenure::bench {
namespace {

namespace fs = std::filesystem;

struct ProcessTimes {
  pid_t parent = 0, group = 0;
  double own = 0, ended_children = 0;  // Seconds.
};

// proc(5): the second field is the program's name, which may contain anything but ends with the last parenthesis.
std::optional<ProcessTimes> TimesOf(const fs::path& process) {
  std::ifstream in(process / "stat");
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  const std::vector<std::string> fields = absl::StrSplit(text.substr(name_end + 1), ' ', absl::SkipWhitespace());
  // state ppid pgrp ... utime (11) stime (12) cutime (13) cstime (14), counted from the state.
  int64_t ticks[4] = {};
  ProcessTimes times;
  if (fields.size() < 15 || !absl::SimpleAtoi(fields[1], &times.parent) || !absl::SimpleAtoi(fields[2], &times.group)) {
    return std::nullopt;
  }
  for (size_t i = 0; i < 4; ++i) {
    if (!absl::SimpleAtoi(fields[11 + i], &ticks[i])) return std::nullopt;
  }
  const auto per_second = static_cast<double>(sysconf(_SC_CLK_TCK));
  times.own = static_cast<double>(ticks[0] + ticks[1]) / per_second;
  times.ended_children = static_cast<double>(ticks[2] + ticks[3]) / per_second;
  return times;
}

// Calls `with` for every process there is.
template <typename Fn>
void ForEachProcess(Fn with) {
  std::error_code ignored;  // Processes come and go while the directory is read.
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", ignored)) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &pid)) continue;
    if (const auto times = TimesOf(entry.path())) with(pid, *times);
  }
}

// A line of /proc/PID/status that is given in kB.
double StatusMiB(pid_t pid, const std::string& key) {
  std::ifstream in(absl::StrCat("/proc/", pid, "/status"));
  for (std::string line; std::getline(in, line);) {
    int64_t kib = 0;
    if (line.rfind(key + ":", 0) != 0) continue;
    const std::vector<std::string> words = absl::StrSplit(line, absl::ByAnyChar("\t "), absl::SkipWhitespace());
    if (words.size() >= 2 && absl::SimpleAtoi(words[1], &kib)) return static_cast<double>(kib) / 1024;
  }
  return 0;
}

}  // namespace

double CpuSecondsOf(pid_t pid) {
  const auto times = TimesOf(absl::StrCat("/proc/", pid));
  return times ? times->own : 0;
}

double CpuSecondsOfTree(pid_t postmaster) {
  double seconds = 0;
  ForEachProcess([&](pid_t pid, const ProcessTimes& times) {
    if (pid == postmaster) seconds += times.own + times.ended_children;
    if (times.parent == postmaster) seconds += times.own;
  });
  return seconds;
}

double CpuSecondsOfGroup(pid_t group) {
  double seconds = 0;
  ForEachProcess([&](pid_t, const ProcessTimes& times) {
    if (times.group == group) seconds += times.own + times.ended_children;
  });
  return seconds;
}

double OwnCpuSeconds() {
  rusage usage;
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double ResidentMiB(pid_t pid) { return StatusMiB(pid, "VmRSS"); }
double PeakResidentMiB(pid_t pid) { return StatusMiB(pid, "VmHWM"); }

absl::StatusOr<Meter::Reading> Meter::Read() const {
  Reading reading;
  const auto wal = server_.admin().Number("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn");
  if (!wal.ok()) return wal.status();
  const auto transactions = server_.admin().Number("select pg_snapshot_xmax(pg_current_snapshot())::text");
  if (!transactions.ok()) return transactions.status();
  reading.wal_bytes = *wal;
  reading.transactions = *transactions;
  reading.daemon_cpu = daemon_ == 0 ? 0 : CpuSecondsOf(daemon_);
  reading.resident_mib = daemon_ == 0 ? 0 : PeakResidentMiB(daemon_);
  reading.postgres_cpu = CpuSecondsOfTree(server_.postmaster_pid());
  reading.client_cpu = client_group_ == 0 ? OwnCpuSeconds() : CpuSecondsOfGroup(client_group_);
  reading.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  return reading;
}

absl::Status Meter::Begin() {
  auto reading = Read();
  if (reading.ok()) begin_ = *reading;
  return reading.status();
}

absl::Status Meter::End() {
  // The clock first: the rest takes a while.
  const double now = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  auto reading = Read();
  if (!reading.ok()) return reading.status();
  end_ = *reading;
  end_.seconds = now;
  return absl::OkStatus();
}

void Meter::Report(int64_t jobs, Figures& figures) const {
  const auto count = static_cast<double>(jobs);
  figures.Set("jobs", count);
  figures.Set("seconds", seconds());
  figures.Set("jobs_per_second", count / seconds());
  figures.Set("wal_bytes_per_job", (end_.wal_bytes - begin_.wal_bytes) / count);
  figures.Set("commits_per_job", (end_.transactions - begin_.transactions) / count);
  if (daemon_ != 0) {
    figures.Set("daemon_cpu_seconds_per_1000_jobs", (end_.daemon_cpu - begin_.daemon_cpu) / count * 1000);
    figures.Set("daemon_peak_mib", end_.resident_mib);
  }
  figures.Set("postgres_cpu_seconds_per_1000_jobs", (end_.postgres_cpu - begin_.postgres_cpu) / count * 1000);
  figures.Set("client_cpu_seconds_per_1000_jobs", (end_.client_cpu - begin_.client_cpu) / count * 1000);
}

void Meter::ReportLoad(Figures& figures) const {
  if (daemon_ != 0) {
    figures.Set("daemon_core_percent", (end_.daemon_cpu - begin_.daemon_cpu) / seconds() * 100);
    figures.Set("daemon_peak_mib", end_.resident_mib);
  }
  figures.Set("postgres_core_percent", (end_.postgres_cpu - begin_.postgres_cpu) / seconds() * 100);
  figures.Set("client_core_percent", (end_.client_cpu - begin_.client_cpu) / seconds() * 100);
  figures.Set("wal_bytes_per_second", (end_.wal_bytes - begin_.wal_bytes) / seconds());
}

}  // namespace tenure::bench
