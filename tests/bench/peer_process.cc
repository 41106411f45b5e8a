// Peer: see the header. Layer: tests (benchmark).
#include "peer_process.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "measure.h"
#include "nlohmann/json.hpp"
#include "postgres_server.h"
#include "progress.h"
#include "tests/demo/child.h"

namespace tenure::bench {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr char kDatabase[] = "bench_peer";
constexpr auto kTimeout = minutes(30);
// Modes that go job by job are given the jobs of scenario single: a thousand a second would take all day over the rest.
constexpr const char* kJobByJob[] = {"plain", "deleting"};

std::atomic<pid_t> running_group{0};

std::string LastLine(const std::string& text) {
  const std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipWhitespace());
  return lines.empty() ? "" : std::string(absl::StripAsciiWhitespace(lines.back()));
}

std::string LastLineOf(const std::string& path) {
  std::ifstream in(path);
  return LastLine(std::string(std::istreambuf_iterator<char>(in), {}));
}

// A program of the peer's under way: its stdout comes line by line, its stderr goes to a file.
class Program {
 public:
  static absl::StatusOr<std::unique_ptr<Program>> Start(std::vector<std::string> argv, std::string errors) {
    std::error_code ignored;
    fs::remove(errors, ignored);
    demo::ChildCommand command;
    command.argv = std::move(argv);
    command.stderr_path = errors;
    command.death_signal = SIGTERM;
    auto child = demo::Child::Spawn(command);
    if (!child.ok()) return child.status();
    running_group = (*child)->pid();
    return std::unique_ptr<Program>(new Program(*std::move(child), std::move(errors)));
  }
  // Whatever it started goes with it.
  ~Program() {
    if (!child_->ended()) kill(-child_->pid(), SIGKILL);
    running_group = 0;
  }

  // Calls `line` for each line of its output until it ends, and `tick` now and then. The error has the last line of
  // its stderr.
  absl::Status Run(const std::function<absl::Status(const std::string&)>& line, const std::function<void()>& tick) {
    const auto deadline = std::chrono::steady_clock::now() + kTimeout;
    std::string unread;
    bool open = true;
    while (open) {
      pollfd wait{child_->output_fd(), POLLIN, 0};
      poll(&wait, 1, 500);
      open = child_->ReadOutput(unread);
      for (size_t end; (end = unread.find('\n')) != std::string::npos; unread.erase(0, end + 1)) {
        if (absl::Status status = line(unread.substr(0, end)); !status.ok()) return status;
      }
      tick();
      if (std::chrono::steady_clock::now() > deadline) return absl::DeadlineExceededError("it did not end in time");
    }
    if (!unread.empty()) {
      if (absl::Status status = line(unread); !status.ok()) return status;
    }
    if (!child_->WaitForExit(seconds(10))) return absl::DeadlineExceededError("it closed its output and did not end");
    if (child_->Succeeded()) return absl::OkStatus();
    const std::string why = LastLineOf(errors_);
    return absl::InternalError(why.empty() ? child_->HowItEnded() : why);
  }

  pid_t group() const { return child_->pid(); }
  const std::string& errors() const { return errors_; }

 private:
  Program(std::unique_ptr<demo::Child> child, std::string errors)
      : child_(std::move(child)), errors_(std::move(errors)) {}

  const std::unique_ptr<demo::Child> child_;
  const std::string errors_;
};

// Runs it to its end; its output.
absl::StatusOr<std::string> OutputOf(std::vector<std::string> argv) {
  const std::string errors = absl::StrCat(fs::temp_directory_path().string(), "/tenure-bench-peer-", getpid());
  auto program = Program::Start(std::move(argv), errors);
  if (!program.ok()) return program.status();
  std::string output;
  const absl::Status status = (*program)->Run(
      [&](const std::string& line) {
        absl::StrAppend(&output, line, "\n");
        return absl::OkStatus();
      },
      [] {});
  std::error_code ignored;
  fs::remove(errors, ignored);
  if (!status.ok()) return status;
  return output;
}

// What a run of a peer says of itself: every number of its JSON object, and its settings as the note.
absl::StatusOr<Figures> Parse(const std::string& line) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("jobs_per_second")) {
    return absl::InternalError("its last line is not the JSON object that it should be: " + line.substr(0, 200));
  }
  Figures figures;
  for (const auto& [name, value] : json.items()) {
    if (value.is_number()) figures.Set(name, value.get<double>());
  }
  const auto before = figures.Get("jobs_per_second_before"), during = figures.Get("jobs_per_second_during");
  if (before && during) figures.Set("during_to_before", *during / *before);
  figures.note = absl::StrCat(json.value("version", "?"), ", ", json.value("settings", ""));
  return figures;
}

absl::StatusOr<Figures> RunOnce(RunContext& run, const std::string& program, const std::string& scenario,
                                const std::string& mode, int64_t jobs) {
  auto url = run.server.CreateDatabase(kDatabase);
  if (!url.ok()) return url.status();
  std::vector<std::string> argv = {program,  "--database-url",  *url, "--scenario", scenario, "--mode", mode,
                                   "--jobs", absl::StrCat(jobs)};
  if (scenario == "latency" || scenario == "held") {
    const bool latency = scenario == "latency";
    argv.insert(argv.end(), {"--rate", absl::StrCat(run.sizes().latency_rate), "--seconds",
                             absl::StrCat(latency ? run.sizes().latency_seconds : run.sizes().hold_seconds)});
  }
  auto child = Program::Start(argv, run.server.directory() + "/peer.log");
  if (!child.ok()) return child.status();
  // A peer that says when it begins and ends to measure gets its costs told.
  Meter meter(run.server, 0, (*child)->group());
  bool begun = false, ended = false;
  std::string last;
  const absl::Status status = (*child)->Run(
      [&](const std::string& line) {
        if (line == "measuring") {
          begun = true;
          return meter.Begin();
        }
        if (line == "measured") {
          ended = begun;
          return meter.End();
        }
        if (!line.empty()) last = line;
        return absl::OkStatus();
      },
      [&] { run.progress.Say(LastLineOf((*child)->errors())); });
  if (!status.ok()) return status;
  auto figures = Parse(last);
  if (!figures.ok()) return figures.status();
  if (ended) {
    Figures costs;
    const auto counted = figures->Get("jobs");
    meter.Report(counted ? static_cast<int64_t>(*counted) : jobs, costs);
    meter.ReportLoad(costs);
    for (const auto& [name, value] : costs.all()) {
      if (!figures->Get(name)) figures->Set(name, value);
    }
  }
  child->reset();
  if (absl::Status dropped = run.server.DropDatabase(kDatabase); !dropped.ok()) return dropped;
  return figures;
}

}  // namespace

std::vector<Peer> Peer::In(const std::string& folder) {
  std::vector<Peer> peers;
  std::error_code ignored;  // No such folder: no peers.
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const fs::path program = entry.path() / "run";
    if (access(program.c_str(), X_OK) == 0) peers.push_back(Peer(entry.path().filename(), program));
  }
  std::sort(peers.begin(), peers.end(), [](const Peer& a, const Peer& b) { return a.name() < b.name(); });
  return peers;
}

absl::Status Peer::Check() const { return OutputOf({program_, "--check"}).status(); }

absl::Status Peer::Install() const { return OutputOf({program_, "--install"}).status(); }

absl::StatusOr<std::vector<PeerMode>> Peer::Modes() const {
  const auto output = OutputOf({program_, "--modes"});
  if (!output.ok()) return output.status();
  std::vector<PeerMode> modes;
  for (const auto line : absl::StrSplit(*output, '\n', absl::SkipWhitespace())) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipWhitespace());
    if (words.size() == 2) modes.push_back({words[0], words[1]});
  }
  return modes;
}

Contestant Peer::In(const std::string& scenario, const std::string& mode) const {
  const bool job_by_job =
      std::any_of(std::begin(kJobByJob), std::end(kJobByJob), [&](const char* known) { return mode == known; });
  return {absl::StrCat(name_, " ", mode),
          [=, program = program_](RunContext& run) {
            const Sizes& sizes = run.sizes();
            // A held transaction takes its time to show.
            const int64_t times = scenario == "held" ? 3 : 1;
            return RunOnce(run, program, scenario, mode, times * (job_by_job ? sizes.single_jobs : sizes.jobs));
          },
          /*peer=*/true};
}

void KillRunningPeer() {
  const pid_t group = running_group;
  if (group > 0) kill(-group, SIGKILL);
}

}  // namespace tenure::bench
