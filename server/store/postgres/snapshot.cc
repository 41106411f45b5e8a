#include "server/store/postgres/snapshot.h"

#include <charconv>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"

namespace tenure::store::postgres {

absl::StatusOr<Snapshot> Snapshot::Parse(std::string_view text) {
  Snapshot snapshot;
  const size_t first = text.find(':');
  const size_t second = first == std::string_view::npos ? first : text.find(':', first + 1);
  if (second != std::string_view::npos) {
    const std::string_view xmax = text.substr(first + 1, second - first - 1);
    auto [end, error] = std::from_chars(xmax.data(), xmax.data() + xmax.size(), snapshot.xmax_);
    if (error == std::errc() && end == xmax.data() + xmax.size()) {
      snapshot.in_progress_ = std::string(text.substr(second + 1));
      return snapshot;
    }
  }
  return MakeError(absl::StatusCode::kInternal, "DATABASE_ERROR", absl::StrCat("not a snapshot: ", std::string(text)));
}

}  // namespace tenure::store::postgres
