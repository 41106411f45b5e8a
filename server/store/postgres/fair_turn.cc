#include "server/store/postgres/fair_turn.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "server/base/status.h"
#include "server/store/postgres/result.h"
#include "statements.sql.h"

namespace tenure::store::postgres {
namespace {

// Tenants of one look: finding one takes some microseconds.
constexpr int64_t kTenants = 1000;

struct Waiting {
  int32_t weight = 1;
  int64_t next_start = 0;
};

}  // namespace

absl::StatusOr<FairTurn> TakeFairTurn(Transaction& tx, int32_t queue, int64_t allowance, int64_t window) {
  FairTurn turn;
  TENURE_ASSIGN_OR_RETURN(const Result clock, tx.Run(sql::kFairClock, Params().Add(queue).Add(FairWindow::kMost)));
  FairQueue state;
  state.window = window;
  state.last_start = clock.Int(0, clock.Column("last_start"));
  state.virtual_time = clock.Int(0, clock.Column("virtual_time"));
  const int priority = clock.Column("priority"), ready = clock.Column("ready"),
            first_start = clock.Column("first_start"), resume = clock.Column("resume_after");
  std::optional<int64_t> first_ready;  // Of the highest priority that has any.
  for (int row = 0; row < clock.rows() && !clock.IsNull(row, priority); ++row) {
    state.ready[static_cast<int16_t>(clock.Int(row, priority))] = clock.Int(row, ready);
    if (!first_ready && !clock.IsNull(row, first_start)) first_ready = clock.Int(row, first_start);
  }
  // With nothing ready all that was given out has started.
  state.virtual_time = std::max(state.virtual_time, first_ready.value_or(state.last_start));
  std::optional<std::string> resume_after;
  if (!clock.IsNull(0, resume)) resume_after = clock.Text(0, resume);

  Params page;
  page.Add(queue);
  if (resume_after) {
    page.Add(*resume_after);
  } else {
    page.AddNull();
  }
  TENURE_ASSIGN_OR_RETURN(const Result rows, tx.Run(sql::kFairTenants, page.Add(kTenants)));
  std::map<std::string, Waiting> tenants;
  int64_t all_weights = 0;
  const int weight = rows.Column("weight"), next_start = rows.Column("next_start");
  for (int row = 0; row < rows.rows(); ++row) {
    Waiting& tenant = tenants[rows.Text(row, 0)];
    if (!rows.IsNull(row, weight)) tenant.weight = rows.Int32(row, weight);
    if (!rows.IsNull(row, next_start)) tenant.next_start = rows.Int(row, next_start);
    all_weights += tenant.weight;
  }
  const bool last_page = rows.rows() < kTenants;
  turn.anyone_left = !tenants.empty();
  if (tenants.empty() ? !resume_after : allowance <= 0) return turn;

  FairChoice choice(state);
  if (!tenants.empty()) {
    // Enough to fill the window; a few where it is full, for newcomers.
    int64_t room = window;
    for (const auto& [unused, jobs] : state.ready) room -= jobs;
    room = std::min(allowance, std::max(room, FairWindow::kLeast));
    std::vector<std::pair<std::string, int32_t>> most;
    for (const auto& [name, tenant] : tenants) {
      most.emplace_back(name, static_cast<int32_t>(FairPart(room, tenant.weight, all_weights)));
    }
    Params params;
    params.Add(queue)
        .AddArray(most, [](const auto& m) { return std::string_view(m.first); })
        .AddArray(most, [](const auto& m) { return m.second; });
    TENURE_ASSIGN_OR_RETURN(const Result heads, tx.Run(sql::kFairHeads, params));
    std::map<std::string, FairTenant> lines;
    for (int row = 0; row < heads.rows(); ++row) {
      lines[heads.Text(row, 0)].line.push_back({heads.Int(row, 1), static_cast<int16_t>(heads.Int(row, 2))});
    }
    for (const auto& [name, count] : most) {
      FairTenant& line = lines[name];
      line.weight = tenants[name].weight;
      line.next_start = tenants[name].next_start;
      line.more = static_cast<int32_t>(line.line.size()) == count;
      choice.Add(name, std::move(line));
    }
  }
  turn.picks = choice.Run(allowance);
  turn.anyone_left = choice.AnyoneLeft() || !last_page || resume_after.has_value();
  // Each page of tenants gets a look of its own, one after the other.
  turn.again = choice.cut() || (tenants.empty() && resume_after);
  if (turn.picks.empty() && !resume_after && last_page) return turn;

  std::vector<std::pair<std::string, int64_t>> starts(choice.next_starts().begin(), choice.next_starts().end());
  int64_t last = state.last_start;
  for (const FairPick& pick : turn.picks) last = std::max(last, pick.rank);
  Params params;
  params.Add(queue)
      .AddArray(starts, [](const auto& s) { return std::string_view(s.first); })
      .AddArray(starts, [](const auto& s) { return s.second; })
      .Add(state.virtual_time)
      .Add(last);
  if (last_page) {
    params.AddNull();
  } else {
    params.Add(std::string_view(tenants.rbegin()->first));
  }
  tx.Queue(sql::kSetFairShares, params);
  return turn;
}

}  // namespace tenure::store::postgres
