// PostgresStore: List. Live jobs first, then what has ended, day by day, each newest first. A page scans a bounded
// number of rows, so it may be short; the token says where the next one begins: "l<id>" among the live, "e<day>:<id>"
// among the ended.
#include <algorithm>
#include <charconv>
#include <limits>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/store/postgres/postgres_store.h"
#include "statements.sql.h"

namespace tenure::store::postgres {
namespace {

constexpr int64_t kScan = 5000;
// Stretches of so many rows that one page may read, some hundredths of a second each: where few rows match, a page
// without a job would only be asked for again.
constexpr int kStretches = 20;
constexpr int kEmptyDays = 32;  // Days looked at for one page.
constexpr int32_t kDaysTo2000 = 10957;

struct Position {
  bool ended = false;
  int32_t day = std::numeric_limits<int32_t>::max();
  int64_t below = std::numeric_limits<int64_t>::max();
};

absl::StatusOr<Position> ParseToken(const std::string& token) {
  Position position;
  if (token.empty()) return position;
  const char* at = token.data() + 1;
  const char* end = token.data() + token.size();
  bool good = token[0] == 'l' || token[0] == 'e';
  if (good && token[0] == 'e') {
    position.ended = true;
    auto day = std::from_chars(at, end, position.day);
    good = day.ec == std::errc() && day.ptr != end && *day.ptr == ':';
    at = day.ptr + 1;
  }
  if (good) {
    auto below = std::from_chars(at, end, position.below);
    good = below.ec == std::errc() && below.ptr == end;
  }
  if (!good) return InvalidField("page_token", "is not a token of this list; pass next_page_token unchanged");
  return position;
}

template <typename T>
void AddOrNull(Params& params, const std::vector<T>& values) {
  if (values.empty()) {
    params.AddNull();
  } else {
    params.AddArray(values);
  }
}

// $1..$14 of list_live.sql and list_ended.sql.
Params ListParams(const ListFilter& filter, int64_t below, int wanted) {
  Params params;
  params.Add(below).Add(kScan).Add(filter.queue);
  AddOrNull(params, filter.kinds);
  params.AddArray(filter.states, [](JobState s) { return static_cast<int16_t>(s); });
  const std::string headers = ToJson(filter.headers);
  params.Add(filter.headers.empty() ? std::optional<std::string_view>() : std::optional<std::string_view>(headers));
  return params
      .Add(filter.holder.empty() ? std::optional<std::string_view>() : std::optional<std::string_view>(filter.holder))
      .Add(filter.created_after)
      .Add(filter.created_before)
      .Add(filter.updated_after)
      .Add(filter.updated_before)
      .Add(filter.due_after)
      .Add(filter.due_before)
      .Add(static_cast<int64_t>(wanted));
}

}  // namespace

absl::StatusOr<ListPage> PostgresStore::List(const ListFilter& filter) {
  TENURE_ASSIGN_OR_RETURN(Position position, ParseToken(filter.page_token));
  ListPage page;
  std::vector<int32_t> payload_days;
  const bool any_live = std::any_of(filter.states.begin(), filter.states.end(), [](JobState s) { return !IsFinal(s); });
  const bool any_ended = filter.holder.empty() &&
                         std::any_of(filter.states.begin(), filter.states.end(), [](JobState s) { return IsFinal(s); });
  const auto wanted = [&] { return filter.page_size - static_cast<int>(page.jobs.size()); };

  // Reads one stretch; true if there is more of it.
  auto take = [&](const Result& rows, int64_t* below) {
    const JobReader reader(rows);
    const int sort = rows.Column("row_sort"), scanned = rows.Column("scanned"), lowest = rows.Column("lowest");
    int64_t last = 0, rows_scanned = 0, lowest_scanned = 0;
    int matched = 0;
    for (int row = 0; row < rows.rows(); ++row) {
      if (rows.Int(row, sort) == 1) {
        rows_scanned = rows.Int(row, scanned);
        lowest_scanned = rows.Int(row, lowest);
        continue;
      }
      Job job = reader.Read(row);
      last = job.id.seq;
      payload_days.push_back(reader.PayloadDay(row));
      if (!filter.include_payloads) {
        job.payload.data.clear();
        job.result.reset();
      }
      page.jobs.push_back(std::move(job));
      ++matched;
    }
    if (wanted() == 0 && matched > 0) {
      *below = last;
      return true;
    }
    *below = lowest_scanned;
    return rows_scanned >= kScan;
  };

  int stretches = kStretches;
  // Reads on from `below` until the page is full, nothing is left, or it has read enough; true if there is more.
  const auto read = [&](int64_t& below, const auto& statement) -> absl::StatusOr<bool> {
    for (;;) {
      TENURE_ASSIGN_OR_RETURN(const Result rows, statement(below));
      --stretches;
      if (!take(rows, &below)) return false;
      if (wanted() == 0 || stretches <= 0) return true;
    }
  };

  if (!position.ended) {
    if (any_live) {
      int64_t below = position.below;
      TENURE_ASSIGN_OR_RETURN(const bool more, read(below, [&](int64_t from) {
                                return RunOne("list_live", sql::kListLive, ListParams(filter, from, wanted()));
                              }));
      if (more) page.next_page_token = absl::StrCat("l", below);
    }
    if (page.next_page_token.empty()) position = Position{true};
  }
  if (page.next_page_token.empty() && any_ended) {
    if (wanted() == 0) {
      page.next_page_token = absl::StrCat("e", position.day, ":", position.below);
    } else {
      TENURE_ASSIGN_OR_RETURN(Result days, RunOne("ended_days", sql::kEndedDays, Params().Add(position.day)));
      for (int i = 0; i < days.rows() && page.next_page_token.empty(); ++i) {
        const int32_t day = days.Int32(i, 0);
        int64_t below = day == position.day ? position.below : std::numeric_limits<int64_t>::max();
        if (wanted() == 0 || i >= kEmptyDays || stretches <= 0) {
          page.next_page_token = absl::StrCat("e", day, ":", below);
          break;
        }
        TENURE_ASSIGN_OR_RETURN(const bool more, read(below, [&](int64_t from) {
                                  Params params = ListParams(filter, from, wanted());
                                  params.Add(day - kDaysTo2000);
                                  return RunOne("list_ended", sql::kListEnded, params);
                                }));
        if (more) page.next_page_token = absl::StrCat("e", day, ":", below);
      }
    }
  }
  if (filter.include_payloads) {
    std::vector<Job*> jobs;
    for (Job& job : page.jobs) jobs.push_back(&job);
    TENURE_RETURN_IF_ERROR(FetchPayloads(jobs, payload_days));
  }
  return page;
}

}  // namespace tenure::store::postgres
