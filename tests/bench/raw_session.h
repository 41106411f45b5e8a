// Raw SQL's table, statements and sessions, as a careful person would write them by hand: see raw_sql.h for what that
// is compared with. The statements stand at the head of raw_session.cc. Layer: tests (benchmark). A session is used by
// one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "database.h"
#include "scenario.h"

namespace tenure::bench {

// The rows of a statement.
inline constexpr int64_t kRawBatch = 1000;

class RawSession {
 public:
  static absl::StatusOr<std::unique_ptr<RawSession>> Open(const std::string& url, const std::string& worker);

  absl::Status Enqueue(const std::vector<std::string>& payloads);
  // Claims at most so many; the ids that it got, sorted.
  absl::StatusOr<std::vector<int64_t>> Claim(int64_t jobs);
  absl::Status Extend(const std::vector<int64_t>& ids);
  absl::Status Complete(const std::vector<int64_t>& ids);

 private:
  RawSession(Database database, std::string worker) : database_(std::move(database)), worker_(std::move(worker)) {}

  Database database_;
  const std::string worker_;
  int64_t cursor_ = 0;
};

// A fresh database with the tables, and sessions on it.
class RawSite {
 public:
  static absl::StatusOr<std::unique_ptr<RawSite>> Make(RunContext& run, int sessions);

  // Enqueues so many jobs, untimed.
  absl::Status Fill(int64_t jobs);
  // Ends the sessions, checks the counts and drops the database.
  absl::Status Finish(int64_t live, int64_t ended);

  const std::string& url() const { return url_; }

  std::vector<std::unique_ptr<RawSession>> sessions;

 private:
  RawSite(RunContext& run, std::string url, Database database)
      : run_(run), url_(std::move(url)), database_(std::move(database)) {}

  RunContext& run_;
  const std::string url_;
  Database database_;
};

}  // namespace tenure::bench
