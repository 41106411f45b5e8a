// PostgresStore: who is let through to ready, and the limits that decide it. A transaction that admits takes the
// queue's turn, reads in later statements (whose snapshots are newer than the wait for it), chooses
// (admission_choice.h), and writes once.
#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/store/admission_choice.h"
#include "server/store/postgres/fair_turn.h"
#include "server/store/postgres/gate_rows.h"
#include "server/store/postgres/postgres_store.h"
#include "statements.sql.h"

namespace tenure::store::postgres {
namespace {

// Names of the engine carry the sort of gate in front.
constexpr char kKeyMark = 'k', kGroupMark = 'g';
// The gate of a queue is "q" to the engine, which does not ask about queues that have none; unless it has left somebody
// behind, which is this to it.
constexpr char kOpenGate[] = "o";
// A row that a cancel holds is looked at again so much later.
constexpr absl::Duration kLockedAgain = absl::Milliseconds(20);
// The last sort of blocked_names.sql.
constexpr int kLastSort = 6;

Limit ReadLimit(const Result& rows, int row) {
  Limit limit;
  limit.scope = static_cast<LimitScope>(rows.Int(row, rows.Column("scope")));
  limit.key = rows.Text(row, rows.Column("key"));
  const int max = rows.Column("max_leased"), interval = rows.Column("rate_interval_us");
  const int weight = rows.Column("weight");
  if (!rows.IsNull(row, max)) limit.settings.max_leased = rows.Int32(row, max);
  if (!rows.IsNull(row, weight)) limit.settings.weight = rows.Int32(row, weight);
  if (!rows.IsNull(row, interval)) {
    limit.settings.rate = Rate{absl::Microseconds(rows.Int(row, interval)), rows.Int32(row, rows.Column("rate_burst"))};
  }
  limit.created = rows.Time(row, rows.Column("created_at"));
  limit.updated = rows.Time(row, rows.Column("updated_at"));
  return limit;
}

absl::Status LimitNotFound(LimitScope scope, std::string_view key) {
  const std::string name = absl::StrCat("\"", std::string(key), "\"");
  std::string what = "the queue has no limit of its own";
  if (scope == LimitScope::kKey) what = absl::StrCat("the key ", name, " has no limit of its own");
  if (scope == LimitScope::kPrefix) what = absl::StrCat("there is no limit for keys that begin with ", name);
  if (scope == LimitScope::kTenant) what = absl::StrCat("the tenant ", name, " has no weight");
  if (key.empty()) return MakeError(absl::StatusCode::kNotFound, "LIMIT_NOT_FOUND", what);
  return MakeError(absl::StatusCode::kNotFound, "LIMIT_NOT_FOUND", what, {{"key", std::string(key)}});
}

// One transaction that admits.
class Admission {
 public:
  Admission(Transaction& tx, int32_t queue, int limit, int64_t fair_window)
      : tx_(tx), queue_(queue), limit_(limit), fair_window_(fair_window) {}

  absl::StatusOr<AdmitResult> Run(std::span<const std::string> names) {
    TENURE_RETURN_IF_ERROR(Begin());
    std::set<std::string> keys, groups;
    bool whole_queue = false;
    for (const std::string& name : names) {
      if (name.starts_with(kKeyMark)) {
        keys.insert(name.substr(1));
      } else if (name.starts_with(kGroupMark)) {
        groups.insert(name.substr(1));
      } else {
        whole_queue = true;
      }
    }
    // Where tenants take turns, who comes to the queue's gate in this transaction stays there until the next look. It
    // is known before anybody comes: else a group's first would pass without a turn, and beside the queue's limit.
    if (fair_) choice_->Know(std::string(), 0);
    if (!groups.empty()) TENURE_RETURN_IF_ERROR(AddGroups(groups));
    if (whole_queue && !fair_) keys.insert(std::string());
    // Who comes to a gate that is not known yet makes it known.
    keys.insert(choice_->Unknown().begin(), choice_->Unknown().end());
    while (!keys.empty()) {
      TENURE_RETURN_IF_ERROR(Know(keys));
      choice_->Run();
      keys = choice_->Unknown();
    }
    if (whole_queue && fair_) {
      TENURE_ASSIGN_OR_RETURN(turn_, TakeFairTurn(tx_, queue_, queue_gate_.Allowance(limit_), fair_window_));
    }
    return Write();
  }

 private:
  absl::Status Begin() {
    tx_.Queue(sql::kAdmissionBegin, Params().Add(queue_));
    tx_.Queue(sql::kAdmissionTurn, Params().Add(queue_));
    TENURE_ASSIGN_OR_RETURN(const Result rows, tx_.Run(sql::kAdmissionQueue, Params().Add(queue_)));
    choice_.emplace(rows.rows() > 0 && rows.Bool(0, rows.Column("gated")));
    if (rows.rows() == 0) return absl::OkStatus();
    deep_ = rows.Bool(0, rows.Column("deep"));
    fair_ = rows.Bool(0, rows.Column("fair_tenants"));
    skip_retrying_ = rows.Bool(0, rows.Column("skip_retrying"));
    queue_gate_ = ReadGate(rows, 0);
    return absl::OkStatus();
  }

  absl::Status AddGroups(const std::set<std::string>& groups) {
    TENURE_ASSIGN_OR_RETURN(const Result rows,
                            tx_.Run(sql::kAdmissionGroups, Params().Add(queue_).AddArray(groups).Add(skip_retrying_)));
    AddWaiting(rows, /*only=*/std::nullopt, rows.Column("group_key"));
    return absl::OkStatus();
  }

  // Reads how these keys stand, and who waits for those that let anybody pass.
  absl::Status Know(const std::set<std::string>& keys) {
    std::vector<std::string> named;
    for (const std::string& key : keys) {
      if (!key.empty()) named.push_back(key);
    }
    std::map<std::string, GateRow> gates;
    if (!named.empty()) {
      TENURE_ASSIGN_OR_RETURN(gates, ReadKeys(tx_, queue_, named, deep_));
    }
    if (keys.contains(std::string())) gates[std::string()] = queue_gate_;
    const int64_t each = std::max<int64_t>(1, limit_ / static_cast<int64_t>(keys.size()));
    std::vector<std::pair<std::string, int32_t>> ask;
    int64_t ask_queue = 0;
    for (const auto& [key, gate] : gates) {
      const int64_t allowance = gate.Allowance(limit_);
      choice_->Know(key, allowance);
      // One more where time holds somebody up: whether there is anybody.
      const bool timed = gate.paused_us > 0 || gate.rate_interval_us;
      const int64_t most = std::min(allowance, each) + (timed ? 1 : 0);
      asked_[key] = most;
      if (most == 0) continue;
      if (key.empty()) {
        ask_queue = most;
      } else {
        ask.emplace_back(key, static_cast<int32_t>(most));
      }
    }
    gates_.insert(gates.begin(), gates.end());
    if (!ask.empty()) {
      Params params;
      params.Add(queue_)
          .AddArray(ask, [](const auto& a) { return std::string_view(a.first); })
          .AddArray(ask, [](const auto& a) { return a.second; })
          .Add(deep_);
      TENURE_ASSIGN_OR_RETURN(const Result rows, tx_.Run(sql::kAdmissionHeads, params));
      AddWaiting(rows, rows.Column("key"));
    }
    if (ask_queue > 0) {
      TENURE_ASSIGN_OR_RETURN(const Result rows, tx_.Run(sql::kQueueHeads, Params().Add(queue_).Add(ask_queue)));
      AddWaiting(rows);
      found_[std::string()] = rows.rows();
    }
    return absl::OkStatus();
  }

  // `only`: the column with the key of a job that has no other; `group`: that with the group of one whose turn it is.
  void AddWaiting(const Result& rows, std::optional<int> only = std::nullopt, std::optional<int> group = std::nullopt) {
    const int id = rows.Column("id"), priority = rows.Column("priority"), gate = rows.Column("gate"),
              keys = rows.Column("concurrency_keys");
    for (int row = 0; row < rows.rows(); ++row) {
      WaitingJob job;
      job.id = rows.Int(row, id);
      job.priority = static_cast<int16_t>(rows.Int(row, priority));
      job.gate = static_cast<int16_t>(rows.Int(row, gate));
      if (!rows.IsNull(row, keys)) job.keys = rows.TextArray(row, keys);
      if (only) {
        std::string key = rows.Text(row, *only);
        ++found_[key];
        if (job.keys.empty()) job.keys.push_back(std::move(key));
      }
      if (group) job.group = rows.Text(row, *group);
      choice_->Add(std::move(job));
    }
  }

  absl::StatusOr<AdmitResult> Write() {
    AdmitResult result;
    std::vector<GateMove> moves = choice_->Moves();
    for (const FairPick& pick : turn_.picks) moves.push_back({pick.id, kGateQueue, kGateAdmitted, pick.rank});
    std::sort(moves.begin(), moves.end(), [](const GateMove& a, const GateMove& b) { return a.id < b.id; });
    NotePaces(result);
    NoteTurns(result);
    if (moves.empty()) {
      TENURE_RETURN_IF_ERROR(tx_.Commit());
      return result;
    }
    Params params;
    params.Add(queue_)
        .AddArray(moves, [](const GateMove& m) { return m.id; })
        .AddArray(moves, [](const GateMove& m) { return m.from; })
        .AddArray(moves, [](const GateMove& m) { return m.to; })
        .AddArray(moves, [](const GateMove& m) { return m.rank; });
    TENURE_ASSIGN_OR_RETURN(const Result rows, tx_.RunAndCommit(sql::kAdmit, params));
    const int ready = rows.Column("ready"), priority = rows.Column("priority"), low_rank = rows.Column("low_rank"),
              low_id = rows.Column("low_id"), high_rank = rows.Column("high_rank"), high_id = rows.Column("high_id"),
              jobs = rows.Column("jobs"), held_up = rows.Column("held_up"), xid = rows.Column("xid");
    for (int row = 0; row < rows.rows(); ++row) {
      if (!rows.IsNull(row, held_up)) {
        // Whoever holds a row that was chosen may let it go without a word.
        for (const int64_t id : rows.IntArray(row, held_up)) {
          const WaitingJob* job = choice_->Find(id);
          if (job == nullptr) continue;  // A tenant's: the queue's gate it is.
          if (!job->group.empty()) result.later.push_back({kGroupMark + job->group, kLockedAgain});
          for (const std::string& key : job->keys) result.later.push_back({kKeyMark + key, kLockedAgain});
        }
        result.later.push_back({"q", kLockedAgain});
        continue;
      }
      result.xid = static_cast<uint64_t>(rows.Int(row, xid));
      if (!rows.Bool(row, ready)) {
        result.moved += rows.Int32(row, jobs);
        continue;
      }
      result.admitted += rows.Int32(row, jobs);
      result.ready.push_back({queue_,
                              static_cast<int16_t>(rows.Int(row, priority)),
                              {rows.Int(row, low_rank), rows.Int(row, low_id)},
                              {rows.Int(row, high_rank), rows.Int(row, high_id)},
                              rows.Int32(row, jobs)});
    }
    return result;
  }

  // What the rates let pass is written down with it; who is held up by time, or was not reached, is told.
  void NotePaces(AdmitResult& result) {
    std::vector<std::pair<std::string, int64_t>> took;
    for (const auto& [key, gate] : gates_) {
      const int64_t passed = choice_->Passed(key);
      if (gate.rate_interval_us && passed > 0) took.emplace_back(key, passed * *gate.rate_interval_us);
      const std::string name = key.empty() ? "q" : kKeyMark + key;
      const int64_t allowance = gate.Allowance(limit_);
      // Its line was read to the end of what was asked for, and more may pass than did.
      const bool more = passed < allowance || allowance == limit_;
      if (more && found_[key] >= asked_[key] && asked_[key] > 0) {
        result.again.push_back(name);
      } else if (choice_->AnyoneLeft(key)) {
        if (const auto later = gate.Later(passed)) result.later.push_back({name, *later});
      }
    }
    const auto turns = static_cast<int64_t>(turn_.picks.size());
    if (turns > 0 && queue_gate_.rate_interval_us) took.emplace_back("", turns * *queue_gate_.rate_interval_us);
    if (took.empty()) return;
    std::sort(took.begin(), took.end());
    Params params;
    params.Add(queue_)
        .AddArray(took, [](const auto& t) { return std::string_view(t.first); })
        .AddArray(took, [](const auto& t) { return t.second; });
    tx_.Queue(sql::kSetPace, params);
  }

  // Who came to the queue's gate is looked at next; so are turns that were left, unless the queue's own rate, or what
  // is ready already, holds them up: then a time, or a claim, has it looked at.
  void NoteTurns(AdmitResult& result) {
    if (!fair_) return;
    if (choice_->AnyoneLeft(std::string()) || turn_.again) result.again.push_back("q");
    if (!turn_.anyone_left) return;
    if (const auto later = queue_gate_.Later(static_cast<int64_t>(turn_.picks.size()))) {
      result.later.push_back({"q", *later});
    }
  }

  Transaction& tx_;
  const int32_t queue_;
  const int64_t limit_;
  const int64_t fair_window_;
  bool deep_ = true;  // Of admission_held.sql.
  bool fair_ = false;
  FairTurn turn_;
  bool skip_retrying_ = false;
  GateRow queue_gate_;
  std::optional<AdmissionChoice> choice_;
  std::map<std::string, GateRow> gates_;
  std::map<std::string, int64_t> asked_, found_;
};

}  // namespace

absl::StatusOr<AdmitResult> PostgresStore::Admit(int32_t queue, std::span<const std::string> names, int limit,
                                                 int64_t fair_window) {
  return Run<AdmitResult>("admit",
                          [&](Transaction& tx) { return Admission(tx, queue, limit, fair_window).Run(names); });
}

absl::StatusOr<BlockedPage> PostgresStore::BlockedNames(const BlockedPage::Cursor& after, int limit) {
  BlockedPage page;
  BlockedPage::Cursor at = after;
  int left = limit;
  for (; at.sort <= kLastSort; at = {at.sort + 1, 0, std::string()}) {
    TENURE_ASSIGN_OR_RETURN(const Result rows,
                            RunOne("blocked_names", sql::kBlockedNames,
                                   Params().Add(at.queue).Add(at.name).Add(at.sort).Add(static_cast<int64_t>(left))));
    for (int row = 0; row < rows.rows(); ++row) {
      at.queue = rows.Int32(row, 0);
      at.name = rows.Text(row, 1);
      if (!rows.Bool(row, 2)) continue;
      page.names[at.queue].push_back(at.sort == kLastSort       ? std::string(at.name.empty() ? "q" : kOpenGate)
                                     : at.sort == kLastSort - 1 ? kGroupMark + at.name
                                                                : kKeyMark + at.name);
    }
    left -= rows.rows();
    if (left <= 0) {
      page.next = at;
      break;
    }
  }
  return page;
}

absl::StatusOr<Limit> PostgresStore::SetLimit(int32_t queue, LimitScope scope, std::string_view key,
                                              const LimitSettings& settings) {
  return Run<Limit>("set_limit", [&](Transaction& tx) -> absl::StatusOr<Limit> {
    tx.Queue(sql::kAdmissionBegin, Params().Add(queue));
    tx.Queue(sql::kAdmissionTurn, Params().Add(queue));
    TENURE_ASSIGN_OR_RETURN(const Result count,
                            tx.Run(sql::kCountLimits, Params().Add(queue).Add(static_cast<int16_t>(scope)).Add(key)));
    if (scope == LimitScope::kPrefix && count.Int(0, 0) >= kMaxPrefixLimits) {
      return MakeError(absl::StatusCode::kFailedPrecondition, "TOO_MANY_LIMITS",
                       absl::StrCat("the queue has ", kMaxPrefixLimits, " limits by prefix, and may not have more"));
    }
    Params params;
    params.Add(queue).Add(static_cast<int16_t>(scope)).Add(key).Add(settings.max_leased);
    if (settings.rate) {
      params.Add(absl::ToInt64Microseconds(settings.rate->interval)).Add(settings.rate->burst);
    } else {
      params.AddNull().AddNull();
    }
    params.Add(settings.weight);
    TENURE_ASSIGN_OR_RETURN(const Result rows, tx.RunAndCommit(sql::kSetLimit, params));
    return ReadLimit(rows, 0);
  });
}

absl::StatusOr<Limit> PostgresStore::FindLimit(int32_t queue, LimitScope scope, std::string_view key) {
  return Run<Limit>("find_limit", [&](Transaction& tx) -> absl::StatusOr<Limit> {
    TENURE_ASSIGN_OR_RETURN(const Result rows,
                            tx.Run(sql::kFindLimit, Params().Add(queue).Add(static_cast<int16_t>(scope)).Add(key)));
    if (rows.rows() == 0) return LimitNotFound(scope, key);
    Limit limit = ReadLimit(rows, 0);
    if (scope == LimitScope::kPrefix || scope == LimitScope::kTenant) return limit;
    GateRow gate;
    LimitUsage usage;
    if (scope == LimitScope::kQueue) {
      TENURE_ASSIGN_OR_RETURN(const Result of_queue, tx.Run(sql::kAdmissionQueue, Params().Add(queue)));
      if (of_queue.rows() > 0) gate = ReadGate(of_queue, 0);
      TENURE_ASSIGN_OR_RETURN(const Result heads, tx.Run(sql::kQueueHeads, Params().Add(queue).Add(kWaitingCounted)));
      usage.waiting = heads.rows();
    } else {
      TENURE_ASSIGN_OR_RETURN(auto gates, ReadKeys(tx, queue, {std::string(key)}));
      gate = gates[std::string(key)];
      TENURE_ASSIGN_OR_RETURN(const Result waiting,
                              tx.Run(sql::kWaitingFor, Params().Add(queue).Add(key).Add(kWaitingCounted)));
      usage.waiting = waiting.Int(0, 0);
    }
    usage.held = gate.held;
    if (gate.paused_us > 0) usage.paused_for = absl::Microseconds(gate.paused_us);
    if (gate.rate_interval_us && RateWait(*gate.rate_interval_us, gate.rate_burst, gate.next_in_us, 0) > 0) {
      usage.next_start_in = absl::Microseconds(RateWait(*gate.rate_interval_us, gate.rate_burst, gate.next_in_us, 0));
    }
    limit.usage = usage;
    return limit;
  });
}

absl::StatusOr<std::vector<Limit>> PostgresStore::ListLimits(int32_t queue, LimitScope after_scope,
                                                             std::string_view after_key, int limit) {
  TENURE_ASSIGN_OR_RETURN(
      const Result rows,
      RunOne(
          "list_limits", sql::kListLimits,
          Params().Add(queue).Add(static_cast<int16_t>(after_scope)).Add(after_key).Add(static_cast<int64_t>(limit))));
  std::vector<Limit> limits;
  for (int row = 0; row < rows.rows(); ++row) limits.push_back(ReadLimit(rows, row));
  return limits;
}

absl::Status PostgresStore::DeleteLimit(int32_t queue, LimitScope scope, std::string_view key) {
  return Run<bool>(
             "delete_limit",
             [&](Transaction& tx) -> absl::StatusOr<bool> {
               tx.Queue(sql::kAdmissionBegin, Params().Add(queue));
               tx.Queue(sql::kAdmissionTurn, Params().Add(queue));
               TENURE_ASSIGN_OR_RETURN(
                   const Result rows,
                   tx.RunAndCommit(sql::kDeleteLimit, Params().Add(queue).Add(static_cast<int16_t>(scope)).Add(key)));
               if (rows.rows() == 0) return LimitNotFound(scope, key);
               return true;
             })
      .status();
}

}  // namespace tenure::store::postgres
