// The command line: flags by CLI11, made from the table of settings. Layer: app.
#include "server/app/command_line.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "server/app/configuration.h"
#include "server/app/daemon.h"
#include "server/app/database.h"
#include "server/app/signals.h"
#include "server/app/version.h"
#include "server/background/wake_up.h"
#include "server/base/clock.h"
#include "server/base/logging.h"
#include "server/base/status.h"
#include "server/store/postgres/migrator.h"

namespace tenure::app {
namespace {

using store::postgres::Migrator;

constexpr int kDone = 0;
constexpr int kFailed = 1;
constexpr int kUsage = 2;

int Fail(int code, const absl::Status& status) {
  std::cerr << "tenured: " << std::string_view(status.message().data(), status.message().size()) << std::endl;
  return code;
}

// The flags of a subcommand, filled by CLI11.
struct Flags {
  Given given;
  std::map<std::string, std::unique_ptr<std::string>> values;  // By setting name; CLI11 keeps the addresses.
};

// Adds the settings named, or all of them if `names` is empty.
void AddSettings(CLI::App& command, Flags& flags, const std::set<std::string>& names) {
  flags.given.environment = [](const char* name) -> const char* { return std::getenv(name); };
  command.add_option("--config", flags.given.file, "Read settings from this TOML file (TENURE_CONFIG)")
      ->type_name("FILE");
  for (const Setting& setting : AllSettings()) {
    if (setting.tunable || (!names.empty() && names.count(setting.name) == 0)) continue;
    auto& value = flags.values[setting.name] = std::make_unique<std::string>();
    const std::string flag = "--" + setting.name;
    const std::string help = absl::StrCat(setting.help, " [", setting.default_text, "] (", setting.environment, ")");
    if (setting.on_off) {
      command.add_flag(flag, *value, help);
    } else {
      command.add_option(flag, *value, help)->type_name(setting.unit);
    }
  }
  if (names.empty()) {
    command
        .add_option("--set", flags.given.set,
                    "Tune a background worker, for example promoter.batch=500; `tenured config` lists them")
        ->type_name("NAME=VALUE")
        ->expected(1)
        ->take_all();
  }
}

// CLI11 puts the option's name before what this answers; its own range and number errors are not for people.
CLI::Validator VersionRule() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        int version = -1;
        if (absl::SimpleAtoi(text, &version) && version >= 0 && version <= Migrator::NewestVersion()) return "";
        return absl::StrCat("must be a version from 0 to ", Migrator::NewestVersion(), ", not ", text);
      },
      "");
}

absl::StatusOr<Resolved> ResolveFlags(const CLI::App& command, Flags& flags) {
  for (const auto& [name, value] : flags.values) {
    if (command.count("--" + name) > 0) flags.given.flags[name] = *value;
  }
  return Resolve(flags.given);
}

// How a shell in this directory calls the tenurectl that stands beside this program: by its name alone if that is where
// its name leads.
std::string CommandLineTool() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return "tenurectl";
  const std::filesystem::path beside = self.parent_path() / "tenurectl";
  if (!std::filesystem::exists(beside, error)) return "tenurectl";
  const char* path = std::getenv("PATH");
  for (const absl::string_view directory : absl::StrSplit(path != nullptr ? path : "", ':')) {
    if (std::filesystem::path(std::string(directory)) == self.parent_path()) return "tenurectl";
  }
  const std::filesystem::path relative = std::filesystem::relative(beside, error);
  if (error || relative.empty() || *relative.begin() == "..") return beside.string();
  return relative.string();
}

void PrintReady(const Daemon& daemon) {
  const std::string grpc = daemon.grpc_address();
  const std::string server = grpc == "127.0.0.1:8470" ? "" : absl::StrCat(" --server ", grpc);
  const std::string ctl = CommandLineTool();
  std::cout << "\nTenure " << Version() << " is ready: gRPC on " << grpc << ", HTTP on http://" << daemon.http_address()
            << "\nDatabase: " << daemon.database_description() << "\n\nTry it in another terminal:\n"
            << "  " << ctl << server << " job enqueue -q demo -k hello '{\"name\": \"world\"}'\n"
            << "  " << ctl << server << " work -q demo --exec 'cat'\n"
            << "  " << ctl << server << " top\n\n"
            << std::flush;
}

int Serve(const Configuration& configuration) {
  if (absl::Status status = CheckExposure(configuration); !status.ok()) return Fail(kUsage, status);
  const SignalWatch signals;
  auto started = Daemon::Start(configuration);
  if (!started.ok()) return Fail(kFailed, started.status());
  Daemon& daemon = **started;

  Clock& clock = Clock::Real();
  background::WakeUp wake(clock);
  bool announced = false;
  absl::Status failure;
  while (!signals.stop_token().stop_requested() && (failure = daemon.Failure()).ok()) {
    if (!announced && daemon.Ready().ok()) {
      announced = true;
      // A program that reads JSON lines does not want a text among them.
      if (configuration.log_format == LogFormat::kText) PrintReady(daemon);
    }
    wake.WaitUntil(clock.Now() + (announced ? std::chrono::milliseconds(500) : std::chrono::milliseconds(20)),
                   signals.stop_token());
  }
  const absl::Status stopped = daemon.Stop();
  if (!failure.ok()) return Fail(kFailed, failure);
  if (!stopped.ok()) return Fail(kFailed, stopped);
  return kDone;
}

int Migrated(const absl::StatusOr<std::vector<int>>& versions, const Database& database, const char* verb) {
  if (!versions.ok()) {
    if (absl::IsUnavailable(versions.status())) {
      return Fail(kFailed,
                  absl::UnavailableError(absl::StrCat("cannot reach the database ", database.description(), ": ",
                                                      versions.status().message(), ". Check --database-url")));
    }
    return Fail(kFailed, versions.status());
  }
  if (versions->empty()) {
    std::cout << "nothing to do\n";
  } else {
    std::cout << verb << ' ' << absl::StrJoin(*versions, ", ") << '\n';
  }
  return kDone;
}

int MigrateStatus(Migrator& migrator, const Database& database) {
  const auto entries = migrator.Status();
  if (!entries.ok()) return Migrated(entries.status(), database, "");
  std::cout << absl::StreamFormat("%-8s %-32s %s\n", "VERSION", "NAME", "APPLIED");
  bool missing = false;
  for (const Migrator::Entry& entry : *entries) {
    missing = missing || !entry.applied;
    std::string applied =
        entry.applied ? absl::FormatTime(absl::RFC3339_sec, *entry.applied, absl::UTCTimeZone()) : "no";
    if (!entry.known) applied += " (by a newer tenured)";
    std::cout << absl::StreamFormat("%-8d %-32s %s\n", entry.version, entry.name, applied);
  }
  if (missing) std::cout << "\nRun `tenured migrate up` to bring the schema up to date.\n";
  return kDone;
}

int PrintConfiguration(const Resolved& resolved, bool json) {
  if (json) {
    for (const ResolvedSetting& entry : resolved.settings) {
      const Setting& setting = *entry.setting;
      nlohmann::ordered_json line = {{"name", setting.name},
                                     {"value", entry.value},
                                     {"source", std::string(ToString(entry.source))},
                                     {"default", setting.default_text},
                                     {"unit", setting.unit},
                                     {"environment", setting.environment},
                                     {"help", setting.help}};
      if (setting.tunable) line["range"] = setting.range;
      std::cout << line.dump() << '\n';
    }
    return kDone;
  }
  const auto row = [](std::string_view name, std::string_view value, std::string_view source, std::string_view fallback,
                      std::string_view unit) {
    std::cout << absl::StreamFormat("%-36s %-28s %-12s %-16s %s\n", std::string(name), std::string(value),
                                    std::string(source), std::string(unit), std::string(fallback));
  };
  row("SETTING", "VALUE", "FROM", "DEFAULT", "UNIT");
  for (const ResolvedSetting& entry : resolved.settings) {
    const Setting& setting = *entry.setting;
    row(setting.tunable ? absl::StrCat("--set ", setting.name) : absl::StrCat("--", setting.name),
        entry.value.empty() ? "-" : entry.value, ToString(entry.source), setting.default_text, setting.unit);
  }
  std::cout << "\nA flag wins over the environment (TENURE_ and the name), that over the file of --config, that over "
               "the default.\n";
  return kDone;
}

}  // namespace

int RunCommandLine(int argc, char** argv) {
  CLI::App app("Tenure: a job queue daemon on PostgreSQL");
  app.name("tenured");
  app.require_subcommand(1);
  app.footer("Try `tenured serve`: without --database-url it starts a PostgreSQL of its own.");

  CLI::App* serve = app.add_subcommand("serve", "Run the daemon in the foreground");
  Flags serve_flags;
  AddSettings(*serve, serve_flags, {});

  // Migrating needs the database and nothing else.
  const std::set<std::string> database_settings = {"database-url", "data-dir", "postgres-bin-dir", "log-format",
                                                   "log-level"};
  CLI::App* migrate = app.add_subcommand("migrate", "Bring the database schema up to date, or back");
  migrate->require_subcommand(1);
  Flags up_flags, down_flags, status_flags;
  CLI::App* up = migrate->add_subcommand("up", "Apply what is missing");
  int up_to = 0, down_to = 0;
  CLI::Option* up_to_option =
      up->add_option("--to", up_to, "Stop after this version")->type_name("VERSION")->check(VersionRule());
  AddSettings(*up, up_flags, database_settings);
  CLI::App* down = migrate->add_subcommand("down", "Revert everything after a version; removes what it holds");
  down->add_option("--to", down_to, "The version that stays; 0 reverts everything")
      ->type_name("VERSION")
      ->required()
      ->check(VersionRule());
  AddSettings(*down, down_flags, database_settings);
  CLI::App* status = migrate->add_subcommand("status", "List the migrations");
  AddSettings(*status, status_flags, database_settings);

  CLI::App* config =
      app.add_subcommand("config", "Print every setting with its value, where that comes from, and its default");
  Flags config_flags;
  AddSettings(*config, config_flags, {});
  bool json = false;
  config->add_flag("--json", json, "One JSON object a line");

  CLI::App* version = app.add_subcommand("version", "Print the version");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // CLI11 would say that a command is missing; the reader wrote one, only it is unknown.
    if (const auto unknown = app.remaining(/*recurse=*/true); error.get_name() == "RequiredError" && !unknown.empty()) {
      std::cerr << "unknown command or option: " << unknown.front() << "\nRun with --help for more information.\n";
      return kUsage;
    }
    return app.exit(error, std::cout, std::cerr) == 0 ? kDone : kUsage;
  }
  if (version->parsed()) {
    std::cout << "tenured " << Version() << '\n';
    return kDone;
  }

  const std::pair<CLI::App*, Flags*> commands[] = {
      {serve, &serve_flags}, {up, &up_flags}, {down, &down_flags}, {status, &status_flags}, {config, &config_flags}};
  for (const auto& [command, flags] : commands) {
    if (!command->parsed()) continue;
    const auto resolved = ResolveFlags(*command, *flags);
    if (!resolved.ok()) return Fail(kUsage, resolved.status());
    const Configuration& configuration = resolved->configuration;
    if (command == config) return PrintConfiguration(*resolved, json);
    if (absl::Status logging = InitLogging(configuration.log_format, configuration.log_level); !logging.ok())
      return Fail(kUsage, logging);
    if (command == serve) return Serve(configuration);

    // Looking, or going back, must not make a database where there is none.
    if (command != up && configuration.embedded() && !std::filesystem::exists(configuration.data_dir + "/postgres")) {
      return Fail(kFailed,
                  absl::NotFoundError(absl::StrCat(
                      "there is no database in ", configuration.data_dir,
                      ". Name the directory of the embedded one with --data-dir, or another with --database-url")));
    }
    const SignalWatch signals;
    const auto database = command == status ? Database::OpenToLook(configuration) : Database::Open(configuration);
    if (!database.ok()) return Fail(kFailed, database.status());
    Migrator migrator((*database)->url());
    if (command == up)
      return Migrated(migrator.Up(up_to_option->count() > 0 ? std::optional<int>(up_to) : std::nullopt), **database,
                      "applied");
    if (command == down) return Migrated(migrator.Down(down_to), **database, "reverted");
    return MigrateStatus(migrator, **database);
  }
  return kUsage;
}

}  // namespace tenure::app
