// `make demo`: Tenure at work in a minute. Starts tenured with its embedded PostgreSQL, enqueues 10,000 jobs from two
// producers, works them with two worker processes of which it kills one with SIGKILL half way, and counts what became
// of every job. The last line that it prints is the summary as one JSON object. Layer: tests; a program on the public
// client library.
#include <pthread.h>
#include <sys/signalfd.h>

#include <charconv>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <string>
#include <string_view>

#include "run.h"
#include "worker.h"

namespace tenure::demo {
namespace {

constexpr int kUsageError = 2;
constexpr char kUsage[] =
    "usage: tenure_demo [--tenured PROGRAM] [--jobs NUMBER]\n"
    "  --tenured  the daemon; by default the program tenured beside this one\n"
    "  --jobs     how many, from 1000 to 1000000; 10000 by default\n";

// False if the arguments are wrong.
bool Parse(int argc, char** argv, RunOptions& options) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i], value = argv[i + 1];
    if (name == "--tenured") {
      options.tenured = value;
    } else if (name == "--jobs") {
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), options.jobs);
      if (error != std::errc() || end != value.data() + value.size()) return false;
    } else {
      return false;
    }
  }
  // Fewer would be done before half of them are, as it were: the kill needs a middle.
  return argc % 2 == 1 && options.jobs >= 1'000 && options.jobs <= 1'000'000;
}

int Main(int argc, char** argv) {
  if (argc == 5 && std::string_view(argv[1]) == "worker") return RunWorker({argv[2], argv[3], argv[4]});
  if (argc == 2 && std::string_view(argv[1]) == "--help") {
    std::cout << kUsage;
    return 0;
  }
  RunOptions options;
  options.tenured = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "tenured";
  if (!Parse(argc, argv, options)) {
    std::cerr << kUsage;
    return kUsageError;
  }

  // Before any thread is made: all of them inherit the mask, so that signals come by the descriptor alone.
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);  // Whoever reads the output may go; what was started must be stopped all the same.
  const int signal_fd = signalfd(-1, &signals, SFD_CLOEXEC);
  if (signal_fd < 0) {
    std::perror("tenure_demo: signalfd");
    return 1;
  }
  return Run(std::move(options), signal_fd).Execute();
}

}  // namespace
}  // namespace tenure::demo

int main(int argc, char** argv) { return tenure::demo::Main(argc, argv); }
