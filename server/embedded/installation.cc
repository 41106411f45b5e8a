#include "server/embedded/installation.h"

#include <glob.h>
#include <unistd.h>

#include <cstdlib>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "server/embedded/process.h"

namespace tenure::embedded {
namespace {

// "postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)" → 15; 0 if it is not of that form.
int ParseMajor(const std::string& version) {
  const std::string marker = "(PostgreSQL) ";
  const size_t at = version.find(marker);
  if (at == std::string::npos) return 0;
  int major = 0;
  for (size_t i = at + marker.size(); i < version.size() && absl::ascii_isdigit(static_cast<unsigned char>(version[i]));
       ++i) {
    major = major * 10 + (version[i] - '0');
  }
  return major;
}

std::vector<std::string> CandidateDirs(const std::string& bin_dir) {
  if (!bin_dir.empty()) return {bin_dir};
  std::vector<std::string> dirs;
  for (const char* pattern : {"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin"}) {
    glob_t found = {};
    if (glob(pattern, GLOB_NOSORT, nullptr, &found) == 0)
      dirs.insert(dirs.end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
    globfree(&found);
  }
  if (const char* path = std::getenv("PATH")) {
    // A relative entry would pick a program by where the daemon happens to have been started.
    for (const auto& dir : absl::StrSplit(path, ':')) {
      if (!dir.empty() && dir[0] == '/') dirs.emplace_back(dir);
    }
  }
  return dirs;
}

}  // namespace

absl::StatusOr<Installation> FindInstallation(const std::string& bin_dir, std::optional<int> needed_major) {
  std::optional<Installation> best;
  std::vector<std::string> seen;
  std::set<std::string> tried;
  for (const std::string& dir : CandidateDirs(bin_dir)) {
    if (!tried.insert(dir).second) continue;
    const std::string postgres = absl::StrCat(dir, "/postgres");
    if (access(postgres.c_str(), X_OK) != 0 || access(absl::StrCat(dir, "/initdb").c_str(), X_OK) != 0) continue;
    Command command;
    command.argv = {postgres, "--version"};
    const absl::StatusOr<std::string> version = RunForOutput(std::move(command), absl::Seconds(10));
    const int major = version.ok() ? ParseMajor(*version) : 0;
    if (major == 0) {
      seen.push_back(
          absl::StrCat(dir, " (unusable: ", version.ok() ? *version : std::string(version.status().message()), ")"));
      continue;
    }
    seen.push_back(absl::StrCat(major, " (", dir, ")"));
    const bool suits = needed_major ? major == *needed_major : major >= kOldestMajor;
    if (suits && (!best || major > best->major)) best = Installation{major, dir};
  }
  if (best) return *best;
  const std::string needed = needed_major ? absl::StrCat("PostgreSQL ", *needed_major)
                                          : absl::StrCat("PostgreSQL ", kOldestMajor, " or later");
  const std::string where = bin_dir.empty() ? "" : absl::StrCat(" in ", bin_dir);
  return absl::FailedPreconditionError(
      absl::StrCat(needed, " is needed", where, "; installed: ", seen.empty() ? "none" : absl::StrJoin(seen, ", ")));
}

}  // namespace tenure::embedded
