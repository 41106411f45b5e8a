// Job ids and lease tokens as callers see them. Layer: store. Values only.
//
//   job id       <queue number>-<day>-<sequence>                       7-20786-123456
//   lease token  <job id>.<token number>.<day claimed>.<secret>        7-20786-123456.3.20786.9f86d081884c7d65
//
// The queue number lets every statement name its queue; the days (days since 1970-01-01 UTC, by PostgreSQL's clock) let
// a look-up in history skip the partitions from before. The number orders a job's leases, the secret cannot be guessed;
// a settle compares both. migrations/ holds the same two formats in SQL for tenure.enqueue and tenure.complete.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tenure::store {

struct JobId {
  int32_t queue = 0;
  int32_t day = 0;  // Created on.
  int64_t seq = 0;

  std::string ToString() const;
  // INVALID_ARGUMENT naming `field` if `text` is not an id.
  static absl::StatusOr<JobId> Parse(std::string_view text, std::string_view field);

  friend bool operator==(const JobId& a, const JobId& b) = default;
  friend auto operator<=>(const JobId& a, const JobId& b) = default;
  template <typename H>
  friend H AbslHashValue(H h, const JobId& id) {
    return H::combine(std::move(h), id.queue, id.day, id.seq);
  }
};

struct LeaseToken {
  JobId job;
  int32_t number = 0;
  int32_t claim_day = 0;
  int64_t secret = 0;

  std::string ToString() const;
  static absl::StatusOr<LeaseToken> Parse(std::string_view text, std::string_view field);

  friend bool operator==(const LeaseToken& a, const LeaseToken& b) = default;
};

}  // namespace tenure::store
