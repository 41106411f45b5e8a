// New jobs as parameters of the enqueue statements, and the rows that these answer. Layer: store/postgres. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "server/store/postgres/params.h"
#include "server/store/postgres/result.h"
#include "server/store/postgres/rows.h"
#include "server/store/store.h"

namespace tenure::store::postgres {

inline std::optional<int64_t> Micros(const std::optional<absl::Duration>& duration) {
  if (!duration) return std::nullopt;
  return absl::ToInt64Microseconds(*duration);
}

inline std::optional<std::string_view> NonEmpty(const std::string& text) {
  if (text.empty()) return std::nullopt;
  return text;
}

// A job that enqueue_plain.sql can write: it says nothing but what AddPlain adds.
inline bool IsPlain(const NewJob& job) {
  return !job.due && !job.delay && !job.expires && !job.ttl && !job.max_attempts && !job.crash_budget && !job.backoff &&
         job.effect_key.empty() && job.concurrency_keys.empty() && job.group.empty();
}

// $2..$7 of the enqueue statements. `Jobs`: a range of NewJob or const NewJob*.
template <typename Jobs, typename Deref>
void AddPlain(Params& params, const Jobs& jobs, Deref at) {
  using Item = std::decay_t<decltype(*std::begin(jobs))>;
  std::vector<std::string> headers;
  headers.reserve(std::size(jobs));
  for (const Item& item : jobs) headers.push_back(at(item).headers.empty() ? std::string() : ToJson(at(item).headers));
  params.AddArray(jobs, [&](const Item& i) { return std::string_view(at(i).kind); })
      .AddByteaArray(jobs, [&](const Item& i) { return std::string_view(at(i).payload.data); })
      .AddArray(jobs, [&](const Item& i) { return NonEmpty(at(i).payload.content_type); })
      .AddArray(headers, [](const std::string& h) { return NonEmpty(h); })
      .AddArray(jobs, [&](const Item& i) { return at(i).priority; })
      .AddArray(jobs, [&](const Item& i) { return NonEmpty(at(i).tenant); });
}

// $2..$17 of enqueue.sql, enqueue_keyed.sql and enqueue_named.sql.
template <typename Jobs, typename Deref>
void AddJobs(Params& params, const Jobs& jobs, Deref at) {
  using Item = std::decay_t<decltype(*std::begin(jobs))>;
  AddPlain(params, jobs, at);
  params.AddArray(jobs, [&](const Item& i) { return at(i).due; })
      .AddArray(jobs, [&](const Item& i) { return Micros(at(i).delay); })
      .AddArray(jobs, [&](const Item& i) { return at(i).expires; })
      .AddArray(jobs, [&](const Item& i) { return Micros(at(i).ttl); })
      .AddArray(jobs, [&](const Item& i) { return at(i).max_attempts; })
      .AddArray(jobs, [&](const Item& i) { return at(i).crash_budget; })
      .AddArray(jobs,
                [&](const Item& i) { return at(i).backoff ? std::optional(at(i).backoff->initial_us) : std::nullopt; })
      .AddArray(jobs,
                [&](const Item& i) { return at(i).backoff ? std::optional(at(i).backoff->multiplier) : std::nullopt; })
      .AddArray(jobs,
                [&](const Item& i) { return at(i).backoff ? std::optional(at(i).backoff->max_us) : std::nullopt; })
      .AddArray(jobs, [&](const Item& i) { return NonEmpty(at(i).effect_key); });
}

// The concurrency keys of each job as the text of an array (arrays of arrays are all of one length), and the groups.
template <typename Jobs, typename Deref>
void AddGates(Params& params, const Jobs& jobs, Deref at) {
  using Item = std::decay_t<decltype(*std::begin(jobs))>;
  std::vector<std::string> keys;
  keys.reserve(std::size(jobs));
  for (const Item& item : jobs) {
    std::string& text = keys.emplace_back();
    for (const std::string& key : at(item).concurrency_keys) {
      absl::StrAppend(&text, text.empty() ? "{" : ",", "\"", absl::StrReplaceAll(key, {{"\\", "\\\\"}, {"\"", "\\\""}}),
                      "\"");
    }
    if (!text.empty()) text.push_back('}');
  }
  params.AddArray(keys, [](const std::string& k) { return NonEmpty(k); }).AddArray(jobs, [&](const Item& i) {
    return NonEmpty(at(i).group);
  });
}

// Adds what a job that was accepted as blocked waits for to `names`.
void NoteBlocked(const NewJob& job, GateNames& names);

// The rows of the enqueue statements. Keeps a reference to `rows`.
class AcceptedReader {
 public:
  explicit AcceptedReader(const Result& rows);
  // The state in which a job was accepted.
  JobState StateOf(int row) const;
  JobId IdOf(int row, int32_t queue) const { return {queue, rows_.Int32(row, day_), rows_.Int(row, id_)}; }
  // What became ready, per priority, and what is due later.
  void Note(int32_t queue, EnqueueResult& result) const;

 private:
  const Result& rows_;
  const int id_, day_, priority_, due_in_, xid_, gate_, waits_;
};

// Adds a job to the stretch of its priority.
void AddToRange(std::map<int16_t, ReadyRange>& ranges, int32_t queue, int16_t priority, Key key);

}  // namespace tenure::store::postgres
