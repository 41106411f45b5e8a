#include "server/background/targets/access.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/store/target_url.h"

namespace tenure::background::targets {
namespace {

namespace fs = std::filesystem;

bool IsBelow(const fs::path& path, const fs::path& directory) {
  const fs::path relative = path.lexically_normal().lexically_relative(directory.lexically_normal());
  return !relative.empty() && *relative.begin() != "..";
}

}  // namespace

absl::Status CheckAccess(const store::TargetSettings& settings, const Access& access) {
  const auto url = store::ParseTargetUrl(settings.purpose, settings.url, settings.region, settings.endpoint);
  if (!url.ok() || url->scheme != store::TargetScheme::kDirectory) return absl::OkStatus();
  if (access.directory.empty()) {
    return InvalidField("spec.url",
                        "names a directory, and this daemon writes no files: start it with --target-directory");
  }
  std::error_code error;
  const fs::path resolved = fs::canonical(access.directory, error);
  if (IsBelow(url->path, fs::absolute(access.directory)) || (!error && IsBelow(url->path, resolved))) {
    return absl::OkStatus();
  }
  return InvalidField("spec.url",
                      absl::StrCat("must name a directory below ", access.directory, ", as --target-directory says"));
}

}  // namespace tenure::background::targets
