// The table of settings, and how they are put together. Layer: app.
#include "server/app/configuration.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <random>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "server/base/status.h"
#include "server/http/address.h"

namespace tenure::app {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

// Each parser takes the value's text and answers the rule that it breaks, or nothing.
using Rule = std::optional<std::string>;

Rule Listen(std::string_view text, std::string& out) {
  const auto address = http::ParseListenAddress(text, "");
  if (!address.ok()) return "must be HOST:PORT, for example 127.0.0.1:8470 or [::]:8470; port 0 takes a free one";
  out = text;
  return std::nullopt;
}

Rule OnOff(std::string_view text, bool& out) {
  const std::string lower = absl::AsciiStrToLower(View(text));
  if (lower == "true" || lower == "on" || lower == "yes" || lower == "1") {
    out = true;
  } else if (lower == "false" || lower == "off" || lower == "no" || lower == "0") {
    out = false;
  } else {
    return "must be true or false";
  }
  return std::nullopt;
}

template <typename Int>
Rule Number(std::string_view text, int64_t min, int64_t max, Int& out) {
  int64_t value = 0;
  if (!absl::SimpleAtoi(View(text), &value) || value < min || value > max) {
    return absl::StrCat("must be a whole number from ", min, " to ", max);
  }
  out = static_cast<Int>(value);
  return std::nullopt;
}

Rule DurationIn(std::string_view text, absl::Duration min, absl::Duration max, absl::Duration& out) {
  absl::Duration value;
  if (!absl::ParseDuration(View(text), &value) || value < min || value > max) {
    return absl::StrCat("must be a duration such as 500ms or 20s, from ", absl::FormatDuration(min), " to ",
                        absl::FormatDuration(max));
  }
  out = value;
  return std::nullopt;
}

Rule DatabaseUrl(std::string_view text, std::string& out) {
  // Given but empty is more likely a Secret gone wrong than the wish for a database of one's own.
  if (text.empty()) return "must not be empty; leave the setting out to use the embedded PostgreSQL";
  if (!absl::StartsWith(View(text), "postgres://") && !absl::StartsWith(View(text), "postgresql://") &&
      !absl::StrContains(View(text), "=")) {
    return "must be a PostgreSQL URL (postgres://user:password@host:5432/database) or a libpq keyword string";
  }
  out = text;
  return std::nullopt;
}

Rule NotEmpty(std::string_view text, std::string& out) {
  if (text.empty()) return "must not be empty";
  out = text;
  return std::nullopt;
}

Rule ReplicaName(std::string_view text, std::string& out) {
  const bool printable = std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f; });
  if (text.empty() || text.size() > 128 || !printable)
    return "must be 1 to 128 printable ASCII characters without blanks";
  out = text;
  return std::nullopt;
}

// Where the embedded database is kept unless told.
std::string DefaultDataDir(const Given& given) {
  if (geteuid() == 0) return "/var/lib/tenure";
  const char* state = given.environment("XDG_STATE_HOME");
  if (state != nullptr && state[0] == '/') return absl::StrCat(state, "/tenure");
  const char* home = given.environment("HOME");
  return absl::StrCat(home != nullptr ? home : ".", "/.local/state/tenure");
}

struct Row {
  const char* name;
  const char* unit;
  const char* default_text;  // What is parsed when nothing is given; in brackets a rule in words: not parsed.
  const char* help;
  Rule (*parse)(std::string_view text, Configuration& configuration);
};

constexpr Row kRows[] = {
    {"grpc-listen", "HOST:PORT", "127.0.0.1:8470", "Where gRPC is served",
     [](std::string_view text, Configuration& c) { return Listen(text, c.grpc_listen); }},
    {"http-listen", "HOST:PORT", "127.0.0.1:8471", "Where metrics, health and the JSON form of the API are served",
     [](std::string_view text, Configuration& c) { return Listen(text, c.http_listen); }},
    {"allow-unauthenticated", "true or false", "false",
     "Serve without authentication on an address that other machines reach",
     [](std::string_view text, Configuration& c) { return OnOff(text, c.allow_unauthenticated); }},
    {"database-url", "URL", "[the embedded PostgreSQL]",
     "The PostgreSQL to use, as postgres://user:password@host:5432/database",
     [](std::string_view text, Configuration& c) { return DatabaseUrl(text, c.database_url); }},
    {"data-dir", "directory", "[/var/lib/tenure as root, else $XDG_STATE_HOME/tenure or ~/.local/state/tenure]",
     "Where the embedded PostgreSQL keeps its data",
     [](std::string_view text, Configuration& c) { return NotEmpty(text, c.data_dir); }},
    {"postgres-bin-dir", "directory", "[the newest PostgreSQL installed]",
     "Programs of the embedded PostgreSQL (initdb, postgres)",
     [](std::string_view text, Configuration& c) { return NotEmpty(text, c.postgres_bin_dir); }},
    {"database-connections", "connections", "8", "Connections that this daemon holds",
     [](std::string_view text, Configuration& c) { return Number(text, 3, 200, c.database_connections); }},
    {"migrate", "true or false", "false",
     "Bring the schema up to date before serving; always so with the embedded PostgreSQL",
     [](std::string_view text, Configuration& c) { return OnOff(text, c.migrate); }},
    {"background", "names", "all", "Background workers to run: all, none, or names with commas between them",
     [](std::string_view text, Configuration& c) -> Rule {
       auto selected = background::SelectWorkers(text);
       if (!selected.ok()) return DetailsOf(selected.status()).metadata["rule"];
       c.background = *std::move(selected);
       return std::nullopt;
     }},
    {"no-queue-creation", "true or false", "false",
     "An Enqueue for a queue that does not exist is refused instead of making it",
     [](std::string_view text, Configuration& c) {
       bool off = false;
       Rule rule = OnOff(text, off);
       c.create_queues = !off;
       return rule;
     }},
    {"notify", "true or false", "false",
     "Wake the polls of other replicas by NOTIFY too, some 30 ms sooner; one connection more, and not through a pooler",
     [](std::string_view text, Configuration& c) { return OnOff(text, c.notify); }},
    {"allow-private-targets", "true or false", "false",
     "Targets may have addresses that are not public: private, loopback, link-local",
     [](std::string_view text, Configuration& c) { return OnOff(text, c.targets.allow_private); }},
    {"target-directory", "directory", "[none]", "Targets may write files below this directory, and nowhere else",
     [](std::string_view text, Configuration& c) -> Rule {
       if (text.empty() || text.front() != '/') return "must be an absolute path";
       c.targets.directory = text;
       return std::nullopt;
     }},
    {"max-payload-bytes", "bytes", "1048576", "Largest payload and largest result",
     [](std::string_view text, Configuration& c) { return Number(text, 1, 3 << 20, c.max_payload_bytes); }},
    {"shutdown-grace", "duration", "20s", "How long a SIGTERM or SIGINT lets calls under way finish",
     [](std::string_view text, Configuration& c) {
       return DurationIn(text, absl::ZeroDuration(), absl::Minutes(10), c.shutdown_grace);
     }},
    {"replica-name", "name", "[host-pid-random]", "Name of this process among the replicas; must be unique",
     [](std::string_view text, Configuration& c) { return ReplicaName(text, c.replica_name); }},
    {"log-format", "text or json", "text", "Form of the log lines on stderr",
     [](std::string_view text, Configuration& c) -> Rule {
       if (text != "text" && text != "json") return "must be text or json";
       c.log_format = text == "json" ? LogFormat::kJson : LogFormat::kText;
       return std::nullopt;
     }},
    {"log-level", "level", "info", "What is logged: debug, info, warn or error",
     [](std::string_view text, Configuration& c) -> Rule {
       if (text != "debug" && text != "info" && text != "warn" && text != "error")
         return "must be debug, info, warn or error";
       c.log_level = text;
       return std::nullopt;
     }},
};

bool InWords(std::string_view default_text) { return default_text.starts_with("["); }

absl::Status Refuse(const std::string& name, Source source, const Setting& setting, const std::string& file,
                    std::string_view rule) {
  std::string where;
  switch (source) {
    case Source::kFlag:
      where = setting.tunable ? absl::StrCat("--set ", name) : absl::StrCat("--", name);
      break;
    case Source::kEnvironment:
      where = setting.environment;
      break;
    case Source::kFile:
      where = absl::StrCat(name, " in ", file);
      break;
    case Source::kDefault:
      where = name;
      break;
  }
  return InvalidField(where, rule);
}

// Keys are setting names (also with _ for -) and names of tunables (also in a section of their worker).
absl::StatusOr<std::map<std::string, std::string>> ReadFile(const std::string& path) {
  std::ifstream in(path);
  if (!in.is_open() || (in.peek(), in.bad())) return InvalidField("config", absl::StrCat("cannot read ", path));
  std::vector<CLI::ConfigItem> items;
  try {
    items = CLI::ConfigTOML().from_config(in);
  } catch (const CLI::Error& error) {
    return InvalidField("config", absl::StrCat(path, " is not TOML: ", error.what()));
  }
  std::map<std::string, std::string> values;
  for (const CLI::ConfigItem& item : items) {
    if (item.name == "++" || item.name == "--") continue;  // Where a section begins and ends.
    std::string name = item.fullname();
    if (name.find('.') == std::string::npos) std::replace(name.begin(), name.end(), '_', '-');
    const auto& all = AllSettings();
    const auto setting = std::find_if(all.begin(), all.end(), [&](const Setting& s) { return s.name == name; });
    if (setting == all.end()) {
      return InvalidField("config",
                          absl::StrCat(path, ": there is no setting \"", name, "\"; `tenured config` lists them"));
    }
    if (!values.emplace(name, absl::StrJoin(item.inputs, ",")).second) {
      return InvalidField("config", absl::StrCat(path, ": ", name, " is given twice"));
    }
  }
  return values;
}

}  // namespace

std::string_view ToString(Source source) {
  switch (source) {
    case Source::kDefault:
      return "default";
    case Source::kFile:
      return "file";
    case Source::kEnvironment:
      return "environment";
    case Source::kFlag:
      return "flag";
  }
  return "";
}

const std::vector<Setting>& AllSettings() {
  static const std::vector<Setting>* settings = [] {
    auto* list = new std::vector<Setting>;
    for (const Row& row : kRows) {
      std::string default_text = row.default_text;
      if (InWords(default_text)) default_text = default_text.substr(1, default_text.size() - 2);
      list->push_back({.name = row.name,
                       .unit = row.unit,
                       .help = row.help,
                       .default_text = default_text,
                       .environment = background::EnvironmentName(row.name),
                       .on_off = std::string_view(row.unit) == "true or false"});
    }
    const background::Tunables tunables = background::DefaultTunables();
    for (const auto& entry : tunables.List()) {
      const auto& spec = entry.spec;
      // As it must be written: a plain number, or a duration with its unit.
      const std::string default_text = spec.unit == background::TunableUnit::kDuration
                                           ? background::FormatTunable(spec.unit, spec.default_value)
                                           : absl::StrCat(spec.default_value);
      list->push_back({.name = std::string(spec.name),
                       .unit = std::string(background::UnitName(spec.unit)),
                       .help = std::string(spec.help),
                       .default_text = default_text,
                       .environment = background::EnvironmentName(spec.name),
                       .tunable = true,
                       .range = absl::StrCat(background::FormatTunable(spec.unit, spec.min), " to ",
                                             background::FormatTunable(spec.unit, spec.max))});
    }
    return list;
  }();
  return *settings;
}

absl::StatusOr<Resolved> Resolve(const Given& given) {
  std::string file = given.file;
  if (const char* named = given.environment("TENURE_CONFIG"); file.empty() && named != nullptr) file = named;
  std::map<std::string, std::string> from_file;
  if (!file.empty()) {
    TENURE_ASSIGN_OR_RETURN(from_file, ReadFile(file));
  }
  std::map<std::string, std::string> flags = given.flags;
  for (const std::string& pair : given.set) {
    const size_t equals = pair.find('=');
    if (equals == std::string::npos)
      return InvalidField("--set", absl::StrCat("must be NAME=VALUE, not \"", pair, "\""));
    const std::string name = pair.substr(0, equals);
    // Says which names there are.
    if (absl::Status known = background::DefaultTunables().Set(name, pair.substr(equals + 1)); !known.ok()) {
      return InvalidField(absl::StrCat("--set ", name), DetailsOf(known).metadata["rule"]);
    }
    flags[name] = pair.substr(equals + 1);
  }

  Resolved resolved;
  Configuration& configuration = resolved.configuration;
  size_t index = 0;
  for (const Setting& setting : AllSettings()) {
    const Row* row = setting.tunable ? nullptr : &kRows[index++];
    std::optional<std::string> text;
    Source source = Source::kDefault;
    if (const auto flag = flags.find(setting.name); flag != flags.end()) {
      text = flag->second, source = Source::kFlag;
    } else if (const char* variable = given.environment(setting.environment.c_str()); variable != nullptr) {
      text = variable, source = Source::kEnvironment;
    } else if (const auto line = from_file.find(setting.name); line != from_file.end()) {
      text = line->second, source = Source::kFile;
    } else if (row != nullptr && !InWords(row->default_text)) {
      text = row->default_text;
    }
    if (text) {
      Rule rule;
      if (row != nullptr) {
        rule = row->parse(*text, configuration);
      } else if (absl::Status set = configuration.tunables.Set(setting.name, *text); !set.ok()) {
        rule = DetailsOf(set).metadata["rule"];
      }
      if (rule) return Refuse(setting.name, source, setting, file, *rule);
    }
    std::string shown = text.value_or(setting.tunable ? setting.default_text : "");
    if (setting.name == "database-url") shown = RedactUrl(shown);
    resolved.settings.push_back({&setting, std::move(shown), source});
  }

  const auto fill = [&](const char* name, std::string& value, const std::string& fallback) {
    if (!value.empty()) return;
    value = fallback;
    for (ResolvedSetting& setting : resolved.settings) {
      if (setting.setting->name == name) setting.value = value;
    }
  };
  fill("data-dir", configuration.data_dir, DefaultDataDir(given));
  if (configuration.replica_name.empty()) configuration.replica_name = MakeReplicaName();
  // The names that Amazon's own tools use. Secrets, so neither flags nor in a file, and never printed.
  const auto variable = [&](const char* name, std::string& value) {
    if (const char* found = given.environment(name); found != nullptr) value = found;
  };
  variable("AWS_ACCESS_KEY_ID", configuration.targets.aws.access_key_id);
  variable("AWS_SECRET_ACCESS_KEY", configuration.targets.aws.secret_access_key);
  variable("AWS_SESSION_TOKEN", configuration.targets.aws.session_token);
  variable("AWS_REGION", configuration.targets.aws.region);
  if (configuration.embedded()) configuration.migrate = true;
  return resolved;
}

absl::Status CheckExposure(const Configuration& configuration) {
  if (configuration.allow_unauthenticated) return absl::OkStatus();
  const std::pair<const char*, const std::string*> listeners[] = {{"grpc-listen", &configuration.grpc_listen},
                                                                  {"http-listen", &configuration.http_listen}};
  for (const auto& [name, text] : listeners) {
    TENURE_ASSIGN_OR_RETURN(const http::Address address, http::ParseListenAddress(*text, name));
    if (http::IsLoopbackHost(address.host)) continue;
    return InvalidField(
        absl::StrCat("--", name),
        absl::StrCat(*text,
                     " can be reached from other machines, and nobody would have to authenticate: anyone there could "
                     "read, add and cancel jobs. Listen on 127.0.0.1, or, if the network keeps strangers out, add "
                     "--allow-unauthenticated (TENURE_ALLOW_UNAUTHENTICATED=true)"));
  }
  return absl::OkStatus();
}

std::string MakeReplicaName() {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0 || host[0] == '\0') host = {'h', 'o', 's', 't'};
  std::string name(host.data());
  for (char& c : name) {
    if (c <= ' ' || c >= 0x7f) c = '-';
  }
  return absl::StrFormat("%s-%d-%08x", name.substr(0, 64), getpid(), std::random_device()());
}

std::string RedactUrl(std::string_view url) {
  std::string text(url);
  // postgres://user:password@host: from the colon after the scheme's to the last @ before the path.
  if (const size_t scheme = text.find("://"); scheme != std::string::npos) {
    const size_t authority = scheme + 3;
    const size_t end = std::min(text.find_first_of("/?", authority), text.size());
    const size_t at = text.rfind('@', end);
    if (at != std::string::npos && at > authority && at < end) {
      const size_t colon = text.find(':', authority);
      if (colon != std::string::npos && colon < at) text.replace(colon + 1, at - colon - 1, "***");
    }
  }
  // ?password=..., and password=... in a keyword string.
  for (size_t at = text.find("password="); at != std::string::npos; at = text.find("password=", at + 12)) {
    const size_t begin = at + 9;
    size_t end = begin;
    if (begin < text.size() && text[begin] == '\'') {
      end = begin + 1;
      while (end < text.size() && text[end] != '\'') end += text[end] == '\\' ? 2 : 1;
      end = std::min(end + 1, text.size());
    } else {
      end = std::min(text.find_first_of("& ", begin), text.size());
    }
    text.replace(begin, end - begin, "***");
  }
  return text;
}

}  // namespace tenure::app
