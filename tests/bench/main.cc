// tenure_bench: runs the scenarios on a PostgreSQL and a daemon of its own and prints the tables of
// docs/benchmarks.md; `make bench` and `make bench-quick` call it. Layer: tests (benchmark).
//
// Exit status: 0 all ran, 1 a scenario failed or lost a job, 2 wrong usage. A goal that is missed is said in the report
// and fails nothing: machines differ.
#include <pthread.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "parked_polls.h"
#include "peer_process.h"
#include "postgres_server.h"
#include "progress.h"
#include "report.h"
#include "scenario.h"
#include "server/base/logging.h"

namespace tenure::bench {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  RunOptions run;
  std::vector<std::string> scenarios;
  std::string peers = "installed";
  std::string json;
  std::string parent = "/var/tmp";
  std::vector<std::pair<std::string, std::string>> postgres;
  int runs = 0;  // 0: as the size says.
  bool list = false, quick = false, smoke = false, install_peers = false, tenure_only = false;
};

std::atomic<PostgresServer*> running_server{nullptr};
std::atomic<bool> interrupted{false};

// On SIGINT and SIGTERM: nothing that was started stays behind. The daemon dies with this process.
void StopOnSignal(const sigset_t& signals) {
  int signal = 0;
  if (sigwait(&signals, &signal) != 0) return;
  interrupted = true;
  std::fprintf(stderr, "\ninterrupted: stopping PostgreSQL\n");
  KillRunningPeer();
  if (PostgresServer* server = running_server) server->Stop();
  _exit(128 + signal);
}

std::string FirstLineWith(const std::string& path, const std::string& key) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(':');
    if (absl::StartsWith(line, key) && colon != std::string::npos) {
      return std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)));
    }
  }
  return "unknown";
}

absl::StatusOr<Environment> Describe(const Arguments& arguments, int runs, PostgresServer& server) {
  const auto postgres = server.admin().Value(
      "select format('%s, fsync %s, synchronous_commit %s, shared_buffers %s, max_wal_size %s', "
      "current_setting('server_version'), current_setting('fsync'), current_setting('synchronous_commit'), "
      "current_setting('shared_buffers'), current_setting('max_wal_size'))");
  if (!postgres.ok()) return postgres.status();
  utsname kernel;
  uname(&kernel);
  double load[1] = {};
  getloadavg(load, 1);
  Environment environment = {
      {"Date", absl::FormatTime("%Y-%m-%d %H:%M UTC", absl::Now(), absl::UTCTimeZone())},
      {"Processor", absl::StrFormat("%s, %d cores; everything runs on them",
                                    FirstLineWith("/proc/cpuinfo", "model name"), std::thread::hardware_concurrency())},
      {"Memory", FirstLineWith("/proc/meminfo", "MemTotal")},
      {"Kernel", absl::StrCat(kernel.sysname, " ", kernel.release)},
      {"PostgreSQL", *postgres},
      {"Runs",
       absl::StrFormat("%d of each contestant, in turn; medians, in brackets the least and the greatest", runs)},
      {"Load of the machine before", absl::StrFormat("%.2f", load[0])},
  };
  for (const auto& [name, value] : arguments.postgres) environment.emplace_back("Set in PostgreSQL: " + name, value);
  for (const std::string& argument : arguments.run.tenured_args) environment.emplace_back("Given to tenured", argument);
  return environment;
}

// The peers that take part, with the modes that were asked for.
struct PeerChoice {
  struct Chosen {
    Peer peer;
    std::vector<PeerMode> modes;
  };
  std::vector<Chosen> chosen;
  std::vector<std::pair<std::string, std::string>> skipped;
};

// With `one_mode` each peer takes part in a scenario with the first mode that it lists, which is its best.
absl::StatusOr<PeerChoice> ChoosePeers(const std::string& asked, bool one_mode) {
  PeerChoice choice;
  if (asked == "none") return choice;
  const std::vector<Peer> all = Peer::In(TENURE_SOURCE_DIR "/tests/bench/peers");
  const bool any = asked == "installed";
  std::vector<std::pair<std::string, std::string>> wanted;  // Name, mode or empty.
  for (const std::string& item :
       any ? std::vector<std::string>{} : std::vector<std::string>(absl::StrSplit(asked, ','))) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(item, absl::MaxSplits(':', 1));
    if (std::none_of(all.begin(), all.end(), [&](const Peer& peer) { return peer.name() == parts.first; })) {
      return absl::InvalidArgumentError(absl::StrCat("--peers: there is no peer ", parts.first));
    }
    wanted.push_back(parts);
  }
  for (const Peer& peer : all) {
    const auto wants = [&](const std::string& mode) {
      return any || std::any_of(wanted.begin(), wanted.end(), [&](const auto& want) {
               return want.first == peer.name() && (want.second.empty() || mode.empty() || want.second == mode);
             });
    };
    if (!wants("")) continue;
    if (const absl::Status check = peer.Check(); !check.ok()) {
      choice.skipped.emplace_back(peer.name(), check.message());
      continue;
    }
    auto modes = peer.Modes();
    if (!modes.ok()) return modes.status();
    PeerChoice::Chosen chosen{peer, {}};
    for (const PeerMode& mode : *modes) {
      const bool has_one = std::any_of(chosen.modes.begin(), chosen.modes.end(),
                                       [&](const PeerMode& other) { return other.scenario == mode.scenario; });
      if (wants(mode.mode) && !(one_mode && has_one)) chosen.modes.push_back(mode);
    }
    choice.chosen.push_back(std::move(chosen));
  }
  return choice;
}

std::string Headline(const Scenario& scenario, const Figures& figures) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < std::min<size_t>(scenario.columns.size(), 3); ++i) {
    const Column& column = scenario.columns[i];
    if (const auto value = figures.Get(column.figure)) {
      parts.push_back(absl::StrCat(Thousands(*value, column.decimals), " ", column.title));
    }
  }
  return absl::StrJoin(parts, ", ");
}

// Round by round, each contestant in turn.
absl::StatusOr<ScenarioRuns> RunScenario(const Scenario& scenario, const PeerChoice& peers, int runs,
                                         const Arguments& arguments, PostgresServer& server, Progress& progress) {
  ScenarioRuns result{&scenario, {}, {}};
  std::vector<Contestant> contestants = scenario.contestants;
  if (arguments.tenure_only) contestants.resize(1);
  if (!scenario.peer_scenario.empty()) {
    for (const auto& [peer, modes] : peers.chosen) {
      // Their held transaction takes a minute each.
      if (arguments.quick && scenario.peer_scenario == "held") break;
      for (const PeerMode& mode : modes) {
        if (mode.scenario == scenario.peer_scenario) contestants.push_back(peer.In(mode.scenario, mode.mode));
      }
    }
    result.skipped = peers.skipped;
  }
  std::vector<ContestantRuns> done;
  for (const Contestant& contestant : contestants) done.push_back({contestant.name, {}});
  std::vector<bool> dropped(contestants.size(), false);
  RunContext context{arguments.run, server, progress};
  const int rounds = std::min(runs, scenario.max_runs);
  for (int round = 1; round <= rounds; ++round) {
    for (size_t i = 0; i < contestants.size(); ++i) {
      if (dropped[i]) continue;
      const std::string& name = contestants[i].name;
      progress.Begin(absl::StrFormat("%-16s %d/%d  %s", scenario.name, round, rounds, name));
      auto figures = contestants[i].run(context);
      if (figures.ok()) {
        progress.Finish(Headline(scenario, *figures));
        done[i].runs.push_back(*std::move(figures));
        continue;
      }
      while (interrupted) pause();  // It is no wonder then; StopOnSignal ends the process.
      const std::string why(figures.status().message());
      progress.Finish("failed: " + why);
      if (!contestants[i].peer) {
        return absl::Status(figures.status().code(), absl::StrCat(scenario.name, ", ", name, ": ", why));
      }
      dropped[i] = true;
      result.skipped.emplace_back(name, "it failed: " + why);
    }
  }
  for (size_t i = 0; i < contestants.size(); ++i) {
    if (!dropped[i]) result.contestants.push_back(std::move(done[i]));
  }
  if (scenario.clear_up) {
    if (absl::Status cleared = scenario.clear_up(context); !cleared.ok()) return cleared;
  }
  return result;
}

int Fail(const absl::Status& status) {
  std::cerr << "tenure_bench: " << status.message() << "\n";
  return absl::IsInvalidArgument(status) ? 2 : 1;
}

int InstallPeers() {
  for (const Peer& peer : Peer::In(TENURE_SOURCE_DIR "/tests/bench/peers")) {
    const absl::Status done = peer.Check().ok() ? absl::OkStatus() : peer.Install();
    std::cerr << peer.name() << ": " << (done.ok() ? "installed" : "skipped: " + std::string(done.message())) << "\n";
  }
  return 0;
}

int Execute(const Arguments& arguments) {
  std::vector<Scenario> scenarios = AllScenarios(arguments.run);
  if (arguments.list) {
    for (const Scenario& scenario : scenarios) std::cout << scenario.name << "\t" << scenario.what << "\n";
    return 0;
  }
  if (arguments.install_peers) return InstallPeers();
  for (const std::string& name : arguments.scenarios) {
    if (std::none_of(scenarios.begin(), scenarios.end(), [&](const Scenario& known) { return known.name == name; })) {
      return Fail(absl::InvalidArgumentError(absl::StrCat("--scenario: there is no ", name, "; --list names all")));
    }
  }
  if (!arguments.scenarios.empty()) {
    std::erase_if(scenarios, [&](const Scenario& scenario) {
      return std::find(arguments.scenarios.begin(), arguments.scenarios.end(), scenario.name) ==
             arguments.scenarios.end();
    });
  }
  const auto peers = ChoosePeers(arguments.smoke ? "none" : arguments.peers,
                                 /*one_mode=*/arguments.quick && arguments.peers == "installed");
  if (!peers.ok()) return Fail(peers.status());
  auto server = PostgresServer::Start(arguments.parent, arguments.postgres);
  if (!server.ok()) return Fail(server.status());
  running_server = server->get();
  const int runs = arguments.runs > 0 ? arguments.runs : arguments.quick || arguments.smoke ? 1 : 3;
  const auto environment = Describe(arguments, runs, **server);
  if (!environment.ok()) return Fail(environment.status());
  std::cout << MarkdownHead(*environment) << std::flush;
  Progress progress;
  std::vector<ScenarioRuns> all;
  absl::Status failed;
  for (const Scenario& scenario : scenarios) {
    auto done = RunScenario(scenario, *peers, runs, arguments, **server, progress);
    if (!done.ok()) {
      failed.Update(done.status());
      std::cerr << "tenure_bench: " << done.status().message() << "\n";
      continue;
    }
    std::cout << "\n" << MarkdownSection(*done) << std::flush;
    all.push_back(*std::move(done));
  }
  if (!arguments.json.empty()) {
    std::ofstream out(arguments.json, std::ios::trunc);
    out << Json(*environment, all);
    if (!out.flush()) {
      failed.Update(absl::InternalError("cannot write it"));
      std::cerr << "tenure_bench: cannot write " << arguments.json << "\n";
    }
  }
  running_server = nullptr;
  return failed.ok() ? 0 : 1;
}

int Main(int argc, char** argv) {
  Arguments arguments;
  Sizes& sizes = arguments.run.sizes;
  std::optional<int64_t> jobs;
  std::optional<double> hold, seconds;
  arguments.run.tenured = fs::read_symlink("/proc/self/exe").parent_path() / "tenured";

  CLI::App app("Measures Tenure against raw SQL and other job queues on one PostgreSQL, in turn.", "tenure_bench");
  app.add_option("--scenario", arguments.scenarios, "Only these (repeatable, or with commas); --list names them")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--runs", arguments.runs, "Runs of each contestant (3; with --quick 1)")->check(CLI::Range(1, 1000));
  app.add_option("--jobs", jobs, "Jobs of enqueue, drain, lifecycle and single")->check(CLI::Range(1, 100'000'000));
  app.add_option("--seconds", seconds, "Length of latency, parked, heartbeat and of idling")
      ->check(CLI::Range(0.1, 86'400.0));
  app.add_option("--hold-seconds", hold, "How long held-transaction holds its transaction")
      ->check(CLI::Range(0.1, 86'400.0));
  app.add_option("--rate", arguments.run.steady_rate, "Jobs a second of held-transaction (as many as go through)")
      ->check(CLI::Range(0.0, 1e6));
  app.add_option("--heartbeats", arguments.run.held_leases, "Leases held and extended beside held-transaction (0)")
      ->check(CLI::Range(0, 1'000'000));
  app.add_option("--slots", arguments.run.slots, "Slots of a worker pool")->check(CLI::Range(1, 10'000));
  app.add_option("--prefetch", arguments.run.prefetch, "Prefetch of a worker pool")->check(CLI::Range(0, 100'000));
  app.add_option("--pools", arguments.run.pools, "Worker pools")->check(CLI::Range(1, 100));
  app.add_option("--raw-connections", arguments.run.raw_connections, "Sessions of raw SQL")->check(CLI::Range(1, 50));
  app.add_option("--peers", arguments.peers, "installed, none, or NAME[:MODE] with commas (installed)");
  app.add_option("--json", arguments.json, "Write every run to this file");
  app.add_option("--tenured", arguments.run.tenured, "The daemon's program (the one beside this)");
  app.add_option("--tenured-arg", arguments.run.tenured_args,
                 "An argument for `tenured serve` (repeatable): --tenured-arg=--database-connections=4")
      ->allow_extra_args(false);
  std::vector<std::string> postgres;
  app.add_option("--postgres", postgres, "A setting of PostgreSQL, NAME=VALUE (repeatable); said in the report")
      ->allow_extra_args(false);
  app.add_option("--directory", arguments.parent, "Where PostgreSQL's data go; must be on the disk to be measured");
  app.add_flag("--quick", arguments.quick, "Everything reduced: some minutes");
  app.add_flag("--smoke", arguments.smoke, "Everything tiny, without peers: only whether it works");
  app.add_flag("--tenure-only", arguments.tenure_only, "Without raw SQL and other contestants of ours");
  app.add_flag("--install-peers", arguments.install_peers, "Install what the peers need, where it can be had, and end");
  app.add_flag("--list", arguments.list, "List the scenarios and end");
  int64_t park = -1;
  std::string park_at, park_queue;
  app.add_option("--park", park)->group("");  // What ParkedPolls starts.
  app.add_option("--park-at", park_at)->group("");
  app.add_option("--park-queue", park_queue)->group("");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (park >= 0) return RunParkedPolls(park_at, park_queue, park);
  if (arguments.quick) sizes = QuickSizes();
  if (arguments.smoke) sizes = SmokeSizes();
  // What is not measured needs no disk.
  if (arguments.smoke) arguments.postgres.emplace_back("fsync", "off");
  for (const std::string& setting : postgres) {
    if (!absl::StrContains(setting, '=')) {
      return Fail(absl::InvalidArgumentError(absl::StrCat("--postgres: NAME=VALUE, not ", setting)));
    }
    arguments.postgres.push_back(absl::StrSplit(setting, absl::MaxSplits('=', 1)));
  }
  if (jobs) sizes.jobs = sizes.single_jobs = sizes.many_queues_jobs = *jobs;
  if (hold) sizes.hold_seconds = *hold;
  if (seconds) {
    sizes.latency_seconds = sizes.parked_seconds = sizes.heartbeat_seconds = sizes.idle_seconds = *seconds;
  }

  if (absl::Status logging = InitLogging(LogFormat::kText, "warn"); !logging.ok()) return Fail(logging);
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([signals] { StopOnSignal(signals); }).detach();
  return Execute(arguments);
}

}  // namespace
}  // namespace tenure::bench

int main(int argc, char** argv) { return tenure::bench::Main(argc, argv); }
