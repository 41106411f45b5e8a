#include "server/base/time_zone.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tenure {
namespace {

constexpr size_t kMaxName = 64;

// The loader takes paths and keeps every name that it was ever asked for. So it is asked only for the names of files
// below the database's directory.
bool IsName(absl::string_view name) {
  if (name.empty() || name.size() > kMaxName || !absl::ascii_isalpha(static_cast<unsigned char>(name[0]))) return false;
  if (absl::StartsWith(name, "right/") || name == "localtime") return false;  // Leap seconds; this machine's own zone.
  return std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '+' || c == '/';
  });
}

bool IsInDatabase(absl::string_view name) {
  // As the loader finds it.
  const char* directory = std::getenv("TZDIR");
  const std::string path =
      absl::StrCat(directory != nullptr && *directory != '\0' ? directory : "/usr/share/zoneinfo", "/", name);
  struct stat found;
  return stat(path.c_str(), &found) == 0 && S_ISREG(found.st_mode);
}

}  // namespace

absl::StatusOr<absl::TimeZone> LoadZone(std::string_view name) {
  const absl::string_view view(name.data(), name.size());
  if (view == "UTC") return absl::UTCTimeZone();
  if (!IsName(view)) {
    return absl::InvalidArgumentError(
        "must be the name of an IANA time zone, such as Europe/Berlin or UTC, of at most 64 bytes of [A-Za-z0-9_+/-]");
  }
  absl::TimeZone zone;
  if (!IsInDatabase(view) || !absl::LoadTimeZone(view, &zone)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", view,
        "' is not in the daemon's time zone database; names are such as Europe/Berlin or UTC (case counts)"));
  }
  return zone;
}

}  // namespace tenure
