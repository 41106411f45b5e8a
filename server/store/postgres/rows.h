// From rows to structs. Columns are found by name once per result; a column that a statement does not select is left at
// its default. Layer: store/postgres. Thread-safe once made.
#pragma once

#include <string>
#include <string_view>

#include "server/store/postgres/result.h"
#include "server/store/types.h"

namespace tenure::store::postgres {

// Rows of tenure.job, tenure.history and tenure.dead_letter.
class JobReader {
 public:
  // `queue`: where the rows do not say it, because the statement names one queue (claim.sql).
  explicit JobReader(const Result& result, int32_t queue = 0);

  Job Read(int row) const;
  // The part of a job that claim_details.sql has.
  void ReadDetails(int row, Job& job) const;
  // A leased row as what its claimer gets; needs the columns today and remaining where the caller wants them.
  ClaimedJob ReadClaimed(int row) const;
  // The day whose payload partition holds the payload; -1 if it is in the row.
  int32_t PayloadDay(int row) const;

 private:
  const Result& r_;
  const int32_t queue_;
  int id_, queue_id_, day_, state_, kind_, priority_, tenant_, attempt_, failures_, crashes_, releases_, snoozes_,
      max_attempts_, crash_budget_, token_, token_secret_, worker_, lease_us_, lease_until_, leased_at_, progress_,
      progress_message_, due_at_, expires_at_, created_at_, updated_at_, started_at_, ended_at_, payload_, payload_day_,
      content_type_, headers_, backoff_initial_, backoff_multiplier_, backoff_max_, error_message_, error_type_,
      error_detail_, error_attempt_, error_at_, effect_key_, retry_of_, idempotency_key_, result_, result_type_, today_,
      remaining_, concurrency_keys_, group_key_, unique_name_;
};

// How a job that has ended is named to those who look for jobs that wait for it.
std::string AwaitedName(int64_t id);

// Adds the gates of rows with the columns concurrency_keys and group_key to names, and the job itself (id) if others
// wait for it (awaited). Thread-safe once made.
class GateReader {
 public:
  explicit GateReader(const Result& result)
      : r_(result),
        id_(result.Column("id")),
        keys_(result.Column("concurrency_keys")),
        group_(result.Column("group_key")),
        awaited_(result.Column("awaited")) {}
  void Add(int row, GateNames& names) const;

 private:
  const Result& r_;
  const int id_, keys_, group_, awaited_;
};

Queue ReadQueue(const Result& result, int row);

// A flat JSON object of strings, as tenure.job.headers holds it.
std::string ToJson(const Headers& headers);
Headers FromJson(std::string_view json);

}  // namespace tenure::store::postgres
