// PostgreSQL's pg_snapshot as text ("xmin:xmax:xip,xip"), taken apart for the two index ranges that find what became
// visible since. Layer: store/postgres. Values only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tenure::store::postgres {

class Snapshot {
 public:
  static absl::StatusOr<Snapshot> Parse(std::string_view text);
  uint64_t xmax() const { return xmax_; }
  // As an array literal of xid8.
  std::string InProgress() const { return "{" + in_progress_ + "}"; }
  std::string Xmax() const { return std::to_string(xmax_); }

 private:
  uint64_t xmax_ = 0;
  std::string in_progress_;
};

}  // namespace tenure::store::postgres
