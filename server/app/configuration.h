// The daemon's settings: one table with name, unit, default and help, from which flags, TENURE_* variables, the
// configuration file, `tenured config` and the check of docs/configuration.md are made. A flag wins over the
// environment, that over the file, and that over the default. Layer: app. Values only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/background/registry.h"
#include "server/background/targets/access.h"
#include "server/background/tunables.h"
#include "server/base/logging.h"

namespace tenure::app {

struct Configuration {
  std::string grpc_listen;
  std::string http_listen;
  std::string database_url;  // Empty: the embedded PostgreSQL.
  std::string data_dir;      // Of the embedded PostgreSQL.
  std::string postgres_bin_dir;
  int database_connections = 0;
  bool migrate = false;
  bool create_queues = true;
  bool notify = false;
  int64_t max_payload_bytes = 0;
  std::vector<background::WorkerEntry> background;
  bool allow_unauthenticated = false;
  background::targets::Access targets;  // The AWS credentials are from the environment alone.
  absl::Duration shutdown_grace;
  std::string replica_name;
  LogFormat log_format = LogFormat::kText;
  std::string log_level;
  background::Tunables tunables = background::DefaultTunables();

  bool embedded() const { return database_url.empty(); }
};

enum class Source { kDefault, kFile, kEnvironment, kFlag };
std::string_view ToString(Source source);

// A setting as a person sees it.
struct Setting {
  std::string name;  // The flag without its dashes; for a tunable of a background worker, what --set takes.
  std::string unit;  // What kind of value.
  std::string help;
  std::string default_text;  // May be a rule in words.
  std::string environment;   // TENURE_...
  bool tunable = false;
  bool on_off = false;  // As a flag it needs no value.
  std::string range;    // Of a tunable.
};

// All settings, the table's order; the tunables of background workers last.
const std::vector<Setting>& AllSettings();

// What was given, before it is put together.
struct Given {
  std::map<std::string, std::string> flags;                  // By setting name.
  std::vector<std::string> set;                              // --set: NAME=VALUE, of tunables.
  std::string file;                                          // --config; empty: TENURE_CONFIG, else none.
  std::function<const char*(const char* name)> environment;  // getenv.
};

struct ResolvedSetting {
  const Setting* setting = nullptr;
  std::string value;  // As given; passwords in URLs are blanked.
  Source source = Source::kDefault;
};

struct Resolved {
  Configuration configuration;
  std::vector<ResolvedSetting> settings;  // As AllSettings().
};

// Puts the settings together and checks each. INVALID_ARGUMENT that names the setting, where it was given, and the
// rule.
absl::StatusOr<Resolved> Resolve(const Given& given);

// INVALID_ARGUMENT, saying what to do, if the daemon would listen beyond this machine without authentication and nobody
// said that this is meant.
absl::Status CheckExposure(const Configuration& configuration);

// host-pid-random: unique per process.
std::string MakeReplicaName();

// A database URL without its password, for messages.
std::string RedactUrl(std::string_view url);

}  // namespace tenure::app
