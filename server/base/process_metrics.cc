// See process_metrics.h. Layer: base. Thread-safe.
#include "server/base/process_metrics.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace tenure {
namespace {

std::string ReadFile(const char* path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// When the machine started, in Unix time; nullopt if /proc/stat does not say.
std::optional<double> BootTime() {
  std::istringstream lines(ReadFile("/proc/stat"));
  std::string line;
  while (std::getline(lines, line)) {
    double seconds = 0;
    if (line.rfind("btime ", 0) == 0 && std::istringstream(line.substr(6)) >> seconds) return seconds;
  }
  return std::nullopt;
}

std::optional<double> CountOpenFiles() {
  DIR* directory = opendir("/proc/self/fd");
  if (directory == nullptr) return std::nullopt;
  int entries = 0;
  while (const dirent* entry = readdir(directory)) {
    if (entry->d_name[0] != '.') ++entries;
  }
  closedir(directory);
  return entries - 1;  // Without the descriptor that counted.
}

}  // namespace

std::optional<ProcessStat> ParseProcessStat(std::string_view text, double ticks_per_second, double page_size) {
  // The second field is the command in parentheses, which may hold spaces and parentheses itself: go on after the last
  // one.
  size_t end = text.rfind(')');
  if (end == std::string_view::npos) return std::nullopt;
  std::istringstream rest{std::string(text.substr(end + 1))};
  std::string state;
  if (!(rest >> state)) return std::nullopt;
  double fields[21];  // From the fourth field (ppid) on, as proc(5) numbers them.
  for (double& field : fields) {
    if (!(rest >> field)) return std::nullopt;
  }
  auto field = [&](int number) { return fields[number - 4]; };
  ProcessStat stat;
  stat.cpu_seconds = (field(14) + field(15)) / ticks_per_second;
  stat.threads = field(20);
  stat.start_seconds = field(22) / ticks_per_second;
  stat.virtual_bytes = field(23);
  stat.resident_bytes = field(24) * page_size;
  return stat;
}

void ProcessMetrics::Refresh() {
  std::lock_guard lock(mutex_);
  const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  const double page = static_cast<double>(sysconf(_SC_PAGESIZE));
  if (auto stat = ParseProcessStat(ReadFile("/proc/self/stat"), ticks, page)) {
    prometheus::Counter& cpu = metrics_.process_cpu.Add({});
    if (double spent = stat->cpu_seconds - cpu.Value(); spent > 0) cpu.Increment(spent);
    metrics_.process_threads.Add({}).Set(stat->threads);
    metrics_.process_virtual_memory.Add({}).Set(stat->virtual_bytes);
    metrics_.process_resident_memory.Add({}).Set(stat->resident_bytes);
    if (auto boot = BootTime()) metrics_.process_start_time.Add({}).Set(*boot + stat->start_seconds);
  }
  if (auto open = CountOpenFiles()) metrics_.process_open_fds.Add({}).Set(*open);
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    metrics_.process_max_fds.Add({}).Set(static_cast<double>(limit.rlim_cur));
  }
}

}  // namespace tenure
