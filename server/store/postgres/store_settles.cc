// PostgresStore: what ends a lease: Complete, Fail, Release, Snooze, and leases that run out.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/store/postgres/errors.h"
#include "server/store/postgres/job_params.h"
#include "server/store/postgres/named_enqueue.h"
#include "server/store/postgres/postgres_store.h"
#include "statements.sql.h"

namespace tenure::store::postgres {
namespace {

constexpr int32_t kDaysTo2000 = 10957;
// Of vanished replicas, looked at in one statement: some 1,000 leases each at most.
constexpr size_t kGrantsPerPage = 64;

// Items sorted by job, one a job: rows are locked in one order by everybody, and a row's place in the arrays is found
// by binary search. A second item for a job stays kUnresolved, and is then looked up like any other.
template <typename Item>
class Sorted {
 public:
  explicit Sorted(std::span<const Item> items) {
    for (size_t i = 0; i < items.size(); ++i) by_id_.try_emplace(items[i].token.job.seq, i);
    for (const auto& [unused, at] : by_id_) items_.push_back(&items[at]);
  }
  const std::vector<const Item*>& items() const { return items_; }
  size_t IndexOf(int64_t id) const { return by_id_.at(id); }
  // Where it stands in items().
  size_t PlaceOf(int64_t id) const { return static_cast<size_t>(std::distance(by_id_.begin(), by_id_.find(id))); }

  void AddTokens(Params& params) const {
    params.AddArray(items_, [](const Item* i) { return i->token.job.seq; })
        .AddArray(items_, [](const Item* i) { return i->token.number; })
        .AddArray(items_, [](const Item* i) { return i->token.secret; });
  }

 private:
  std::map<int64_t, size_t> by_id_;
  std::vector<const Item*> items_;
};

// Rows of fail.sql and give_back.sql.
template <typename Item>
void ReadSettled(const Result& rows, int32_t queue, const Sorted<Item>& sorted, SettleResult& result) {
  const int id = rows.Column("id"), state = rows.Column("state"), priority = rows.Column("priority"),
            rank = rows.Column("rank"), due = rows.Column("due_at"), due_in = rows.Column("due_in"),
            xid = rows.Column("xid");
  std::map<int16_t, ReadyRange> ready;
  const GateReader gates(rows);
  for (int row = 0; row < rows.rows(); ++row) {
    SettleOutcome& outcome = result.items[sorted.IndexOf(rows.Int(row, id))];
    outcome.state = TokenState::kWon;
    outcome.job_state = static_cast<JobState>(rows.Int(row, state));
    outcome.due = rows.OptionalTime(row, due);
    result.xid = static_cast<uint64_t>(rows.Int(row, xid));
    // What goes back to ready keeps its slots.
    if (outcome.job_state != JobState::kReady) gates.Add(row, result.freed);
    if (outcome.job_state == JobState::kReady) {
      AddToRange(ready, queue, static_cast<int16_t>(rows.Int(row, priority)), {rows.Int(row, rank), rows.Int(row, id)});
    } else if (outcome.job_state == JobState::kScheduled) {
      const absl::Duration from_now = absl::Seconds(rows.Double(row, due_in));
      if (!result.earliest_due || from_now < *result.earliest_due) result.earliest_due = from_now;
    }
  }
  for (const auto& [unused, range] : ready) result.ready.push_back(range);
}

// Keys that the failures that won pause, with the longest of their pauses in microseconds.
std::map<std::string, int64_t> PausedKeys(const Result& rows, const Sorted<FailItem>& sorted) {
  const int id = rows.Column("id"), keys = rows.Column("concurrency_keys");
  std::map<std::string, int64_t> paused;
  for (int row = 0; row < rows.rows(); ++row) {
    const FailItem& item = *sorted.items()[sorted.PlaceOf(rows.Int(row, id))];
    if (!item.pause_for || rows.IsNull(row, keys)) continue;
    for (const std::string& key : rows.TextArray(row, keys)) {
      if (!item.pause_key.empty() && item.pause_key != key) continue;
      int64_t& us = paused[key];
      us = std::max(us, absl::ToInt64Microseconds(*item.pause_for));
    }
  }
  return paused;
}

}  // namespace

absl::StatusOr<SettleResult> PostgresStore::Complete(int32_t queue, std::span<const CompleteItem> items) {
  const bool unique = std::any_of(items.begin(), items.end(), [](const CompleteItem& item) {
    return std::any_of(item.follow_ups.begin(), item.follow_ups.end(),
                       [](const FollowUp& next) { return next.job.unique.has_value(); });
  });
  if (!unique) return CompletePart(queue, items, Transaction::Limits{options_.statement_timeout});
  // A unique key that somebody holds must not hold up the others; its own item stays unresolved, and is tried again.
  SettleResult result;
  result.items.resize(items.size());
  std::vector<size_t> all(items.size());
  std::iota(all.begin(), all.end(), size_t{0});
  const auto settle = [&](std::span<const size_t> part) -> absl::Status {
    std::vector<CompleteItem> of_part;
    for (size_t at : part) of_part.push_back(items[at]);
    auto done = CompletePart(queue, of_part, Transaction::Limits{options_.statement_timeout, kKeyWait});
    if (!done.ok()) return done.status();
    for (size_t i = 0; i < part.size(); ++i) result.items[part[i]] = std::move(done->items[i]);
    result.ready.insert(result.ready.end(), done->ready.begin(), done->ready.end());
    result.freed.insert(result.freed.end(), done->freed.begin(), done->freed.end());
    for (const auto& [to, names] : done->blocked) {
      result.blocked[to].insert(result.blocked[to].end(), names.begin(), names.end());
    }
    if (done->earliest_due && (!result.earliest_due || *done->earliest_due < *result.earliest_due)) {
      result.earliest_due = done->earliest_due;
    }
    result.xid = part.size() == items.size() ? done->xid : 0;
    return absl::OkStatus();
  };
  TENURE_RETURN_IF_ERROR(SplitOnLockTimeout(all, settle, [](size_t) {}));
  return result;
}

namespace {

// Which follow-up of which item.
struct Next {
  size_t item = 0;
  size_t nth = 0;
};

}  // namespace

absl::StatusOr<SettleResult> PostgresStore::CompletePart(int32_t queue, std::span<const CompleteItem> items,
                                                         Transaction::Limits limits) {
  const Sorted<CompleteItem> sorted(items);
  const bool follow_ups =
      std::any_of(items.begin(), items.end(), [](const CompleteItem& i) { return !i.follow_ups.empty(); });
  Params params;
  params.Add(queue);
  sorted.AddTokens(params);
  params
      .AddByteaArray(sorted.items(),
                     [](const CompleteItem* i) {
                       return i->result ? std::optional(std::string_view(i->result->data)) : std::nullopt;
                     })
      .AddArray(sorted.items(), [](const CompleteItem* i) {
        return i->result && !i->result->content_type.empty() ? std::optional(std::string_view(i->result->content_type))
                                                             : std::nullopt;
      });
  return Run<SettleResult>("complete", limits, [&](Transaction& tx) -> absl::StatusOr<SettleResult> {
    SettleResult result;
    result.items.resize(items.size());
    // Unique keys come before rows of jobs.
    std::map<int32_t, std::vector<const NewJob*>> unique;
    for (const CompleteItem& item : items) {
      for (const FollowUp& next : item.follow_ups) {
        if (next.job.unique) unique[next.queue].push_back(&next.job);
      }
    }
    std::map<int32_t, NamedEnqueue> named;
    for (const auto& [to, jobs] : unique) {
      TENURE_RETURN_IF_ERROR(named.try_emplace(to, tx, to, int16_t{1}).first->second.Lock(jobs));
    }
    auto rows = follow_ups ? tx.Run(sql::kComplete, params) : tx.RunAndCommit(sql::kComplete, params);
    if (!rows.ok()) return rows.status();
    // Follow-ups of the items that won, one statement a queue, in the transaction that completes.
    std::map<int32_t, std::vector<Next>> next;
    const GateReader gates(*rows);
    for (int row = 0; row < rows->rows(); ++row) {
      const size_t at = sorted.IndexOf(rows->Int(row, 0));
      result.xid = static_cast<uint64_t>(rows->Int(row, 1));
      result.items[at].state = TokenState::kWon;
      result.items[at].job_state = JobState::kCompleted;
      gates.Add(row, result.freed);
      result.items[at].follow_ups.resize(items[at].follow_ups.size());
      for (size_t i = 0; i < items[at].follow_ups.size(); ++i) next[items[at].follow_ups[i].queue].push_back({at, i});
    }
    if (!follow_ups) return result;
    for (const auto& [to, all] : next) {
      std::vector<const NewJob*> specs;
      std::vector<std::string> keys, prints, retry_of;
      std::vector<Next> plain, decided;
      std::vector<NamedItem> to_decide;
      // A follow-up is keyed by its position under the token that enqueues it; the token can win only once.
      for (size_t i = 0; i < all.size(); ++i) {
        const CompleteItem& item = items[all[i].item];
        const NewJob& job = item.follow_ups[all[i].nth].job;
        const std::string key = absl::StrCat("next/", item.token.job.ToString(), "/", item.token.number, "/", i);
        if (job.unique) {
          decided.push_back(all[i]);
          to_decide.push_back({&job, key, "-", ""});
        } else {
          plain.push_back(all[i]);
          specs.push_back(&job);
          keys.push_back(key);
          prints.emplace_back("-");
          retry_of.emplace_back();
        }
      }
      auto take = [&](const std::vector<Next>& which, EnqueueResult enqueued) {
        for (size_t i = 0; i < which.size(); ++i) {
          result.items[which[i].item].follow_ups[which[i].nth] = enqueued.jobs[i].id;
        }
        result.ready.insert(result.ready.end(), enqueued.ready.begin(), enqueued.ready.end());
        GateNames& blocked = result.blocked[to];
        blocked.insert(blocked.end(), enqueued.blocked.begin(), enqueued.blocked.end());
        if (enqueued.earliest_due && (!result.earliest_due || *enqueued.earliest_due < *result.earliest_due)) {
          result.earliest_due = enqueued.earliest_due;
        }
      };
      if (!plain.empty()) {
        TENURE_ASSIGN_OR_RETURN(EnqueueResult enqueued,
                                EnqueueKeyedScoped(tx, to, 1, specs, keys, prints, retry_of, false));
        take(plain, std::move(enqueued));
      }
      if (!decided.empty()) {
        TENURE_ASSIGN_OR_RETURN(EnqueueResult enqueued, named.at(to).Write(to_decide));
        take(decided, std::move(enqueued));
      }
    }
    TENURE_RETURN_IF_ERROR(tx.Commit());
    return result;
  });
}

absl::StatusOr<SettleResult> PostgresStore::Fail(int32_t queue, std::span<const FailItem> items) {
  const Sorted<FailItem> sorted(items);
  Params params;
  params.Add(queue);
  sorted.AddTokens(params);
  params.AddArray(sorted.items(), [](const FailItem* i) { return std::string_view(i->error.message); })
      .AddArray(sorted.items(), [](const FailItem* i) { return std::string_view(i->error.type); })
      .AddArray(sorted.items(), [](const FailItem* i) { return std::string_view(i->error.detail); })
      .AddArray(sorted.items(), [](const FailItem* i) { return i->non_retryable; })
      .AddArray(sorted.items(), [](const FailItem* i) {
        return i->retry_after ? std::optional<int64_t>(absl::ToInt64Microseconds(*i->retry_after)) : std::nullopt;
      });
  const bool pauses =
      std::any_of(items.begin(), items.end(), [](const FailItem& item) { return item.pause_for.has_value(); });
  return Run<SettleResult>("fail", [&](Transaction& tx) -> absl::StatusOr<SettleResult> {
    TENURE_ASSIGN_OR_RETURN(const Result rows,
                            pauses ? tx.Run(sql::kFail, params) : tx.RunAndCommit(sql::kFail, params));
    SettleResult result;
    result.items.resize(items.size());
    ReadSettled(rows, queue, sorted, result);
    if (!pauses) return result;
    const std::map<std::string, int64_t> paused = PausedKeys(rows, sorted);
    if (!paused.empty()) {
      tx.Queue(sql::kPauseKeys, Params()
                                    .Add(queue)
                                    .AddArray(paused, [](const auto& p) { return std::string_view(p.first); })
                                    .AddArray(paused, [](const auto& p) { return p.second; }));
    }
    TENURE_RETURN_IF_ERROR(tx.Commit());
    return result;
  });
}

absl::StatusOr<SettleResult> PostgresStore::GiveBack(int32_t queue, Verb verb, std::span<const GiveBackItem> items) {
  const Sorted<GiveBackItem> sorted(items);
  Params params;
  params.Add(queue);
  sorted.AddTokens(params);
  params.Add(static_cast<int32_t>(verb)).AddArray(sorted.items(), [](const GiveBackItem* i) {
    return absl::ToInt64Microseconds(i->delay);
  });
  TENURE_ASSIGN_OR_RETURN(Result rows, RunOne(verb == Verb::kRelease ? "release" : "snooze", sql::kGiveBack, params));
  SettleResult result;
  result.items.resize(items.size());
  ReadSettled(rows, queue, sorted, result);
  return result;
}

absl::StatusOr<std::vector<ResolvedToken>> PostgresStore::ResolveTokens(int32_t queue, Verb verb,
                                                                        std::span<const LeaseToken> tokens) {
  std::vector<int64_t> ids;
  int32_t earliest = std::numeric_limits<int32_t>::max();
  for (const LeaseToken& token : tokens) {
    ids.push_back(token.job.seq);
    earliest = std::min(earliest, token.claim_day);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  TENURE_ASSIGN_OR_RETURN(Result live, RunOne("resolve_live", sql::kResolveLive, Params().Add(queue).AddArray(ids)));
  std::map<int64_t, int> live_rows;
  const int live_day = live.Column("day");
  for (int row = 0; row < live.rows(); ++row) live_rows[live.Int(row, 0)] = row;
  std::vector<int64_t> absent;
  for (int64_t id : ids) {
    if (!live_rows.contains(id)) absent.push_back(id);
  }
  std::map<int64_t, int> ended_rows;
  Result ended;
  if (!absent.empty()) {
    TENURE_ASSIGN_OR_RETURN(
        ended, RunOne("resolve_ended", sql::kResolveEnded, Params().AddArray(absent).Add(earliest - kDaysTo2000)));
    for (int row = 0; row < ended.rows(); ++row) ended_rows[ended.Int(row, 0)] = row;
  }
  std::vector<JobId> cancelled;
  for (const LeaseToken& token : tokens) {
    const auto row = ended_rows.find(token.job.seq);
    if (row != ended_rows.end() && static_cast<JobState>(ended.Int(row->second, 1)) == JobState::kCancelled) {
      cancelled.push_back(token.job);
    }
  }
  std::set<JobId> moved;
  if (!cancelled.empty()) {
    TENURE_ASSIGN_OR_RETURN(const std::vector<JobId> now, WhereNow(cancelled));
    for (size_t i = 0; i < now.size(); ++i) {
      if (now[i] != cancelled[i]) moved.insert(cancelled[i]);
    }
  }

  // What a token that a verb settled answers to another call: the same verb is a replay.
  auto settled_by = [verb](Verb by) {
    if (by == verb) return TokenState::kReplayed;
    if (by == Verb::kCancel) return TokenState::kCancelled;
    if (by == Verb::kReap) return TokenState::kLeaseLost;
    return TokenState::kAlreadySettled;
  };
  std::vector<ResolvedToken> resolved(tokens.size());
  const int state = live.Column("state"), number = live.Column("token"), secret = live.Column("token_secret"),
            settled_number = live.Column("settled_token"), settled_secret = live.Column("settled_secret"),
            settled_verb = live.Column("settled_verb"), due = live.Column("due_at");
  for (size_t i = 0; i < tokens.size(); ++i) {
    const LeaseToken& token = tokens[i];
    ResolvedToken& answer = resolved[i];
    if (auto row = live_rows.find(token.job.seq); row != live_rows.end()) {
      // No job has this id: it must not be spoken of as if one did.
      if (live.Int32(row->second, live_day) != token.job.day) {
        answer.state = TokenState::kJobNotFound;
        continue;
      }
      const JobState job_state = static_cast<JobState>(live.Int(row->second, state));
      if (job_state == JobState::kLeased && live.Int(row->second, number) == token.number &&
          live.Int(row->second, secret) == token.secret) {
        answer.state = TokenState::kCurrent;
      } else if (live.Int(row->second, settled_number) == token.number &&
                 live.Int(row->second, settled_secret) == token.secret) {
        answer.state = settled_by(static_cast<Verb>(live.Int(row->second, settled_verb)));
        answer.job_state = job_state;
        answer.due = live.OptionalTime(row->second, due);
      } else {
        answer.state = TokenState::kLeaseLost;
      }
    } else if (auto gone = ended_rows.find(token.job.seq); gone != ended_rows.end()) {
      const int at = gone->second;
      if (ended.Int32(at, ended.Column("day")) != token.job.day) {
        answer.state = TokenState::kJobNotFound;
        continue;
      }
      answer.job_state = static_cast<JobState>(ended.Int(at, 1));
      if (ended.Int(at, 2) == token.number && ended.Int(at, 3) == token.secret) {
        answer.state = settled_by(static_cast<Verb>(ended.Int(at, 4)));
      } else {
        // Not the lease that ended it, so it was lost before; a cancelled job is told as such all the same, unless it
        // was moved: then it goes on.
        answer.state = answer.job_state == JobState::kCancelled && !moved.contains(token.job) ? TokenState::kCancelled
                                                                                              : TokenState::kLeaseLost;
      }
    } else {
      answer.state = TokenState::kJobNotFound;
    }
  }
  return resolved;
}

namespace {

Params ReapParams(int32_t queue, std::span<const LeaseRef> of, const ShardFence* fence, absl::Time as_of) {
  std::vector<LeaseRef> leases(of.begin(), of.end());
  std::sort(leases.begin(), leases.end(), [](const LeaseRef& a, const LeaseRef& b) { return a.id < b.id; });
  leases.erase(
      std::unique(leases.begin(), leases.end(), [](const LeaseRef& a, const LeaseRef& b) { return a.id == b.id; }),
      leases.end());
  Params params;
  params.Add(queue).AddArray(leases, [](const LeaseRef& l) { return l.id; }).AddArray(leases, [](const LeaseRef& l) {
    return l.number;
  });
  if (fence != nullptr) {
    params.Add(fence->worker).Add(fence->first).Add(fence->term);
  } else {
    params.AddNull().AddNull().AddNull();
  }
  params.Add(as_of);
  return params;
}

void ReadReaped(const Result& rows, int32_t queue, std::map<int64_t, Reaped>& reaped, std::vector<ReadyRange>* ready) {
  const int over = rows.Column("over"), discarded = rows.Column("discarded"), forgiven = rows.Column("forgiven"),
            priority = rows.Column("priority"), rank = rows.Column("rank"), remaining = rows.Column("remaining");
  std::map<int16_t, ReadyRange> ranges;
  const GateReader gates(rows);
  for (int row = 0; row < rows.rows(); ++row) {
    Reaped& one = reaped[rows.Int(row, 0)];
    one.id = rows.Int(row, 0);
    if (!rows.Bool(row, over)) {
      one.remaining = absl::Seconds(rows.Double(row, remaining));
      continue;
    }
    one.discarded = rows.Bool(row, discarded);
    one.forgiven = rows.Bool(row, forgiven);
    if (one.discarded) gates.Add(row, one.freed);
    if (!one.discarded)
      AddToRange(ranges, queue, static_cast<int16_t>(rows.Int(row, priority)), {rows.Int(row, rank), one.id});
  }
  for (const auto& [unused, range] : ranges) ready->push_back(range);
}

}  // namespace

absl::StatusOr<std::vector<Reaped>> PostgresStore::Reap(int32_t queue, std::span<const LeaseRef> leases,
                                                        std::vector<ReadyRange>* ready, absl::Time as_of) {
  std::map<int64_t, Reaped> reaped;
  TENURE_ASSIGN_OR_RETURN(Result rows, RunOne("reap", sql::kReap, ReapParams(queue, leases, nullptr, as_of)));
  ReadReaped(rows, queue, reaped, ready);
  std::vector<int64_t> absent;
  for (const LeaseRef& lease : leases) {
    if (!reaped.contains(lease.id)) absent.push_back(lease.id);
  }
  std::map<int64_t, int32_t> still_leased;
  if (!absent.empty()) {
    TENURE_ASSIGN_OR_RETURN(Result live,
                            RunOne("resolve_live", sql::kResolveLive, Params().Add(queue).AddArray(absent)));
    for (int row = 0; row < live.rows(); ++row) {
      if (static_cast<JobState>(live.Int(row, 1)) == JobState::kLeased)
        still_leased[live.Int(row, 0)] = live.Int32(row, 2);
    }
  }
  std::vector<Reaped> answers;
  for (const LeaseRef& lease : leases) {
    if (auto one = reaped.find(lease.id); one != reaped.end()) {
      answers.push_back(one->second);
      continue;
    }
    Reaped answer;
    answer.id = lease.id;
    auto held = still_leased.find(lease.id);
    answer.locked = held != still_leased.end() && held->second == lease.number;
    answer.gone = !answer.locked;
    answers.push_back(answer);
  }
  return answers;
}

namespace {

// Rows (grant, queue, id, number, remaining), those of a grant one after the other.
std::vector<LeaseGrant> ReadGrants(const Result& rows) {
  std::vector<LeaseGrant> grants;
  for (int row = 0; row < rows.rows(); ++row) {
    const int64_t grant = rows.Int(row, 0);
    if (grants.empty() || grants.back().id != grant) grants.push_back({grant, {}});
    if (rows.IsNull(row, 2)) continue;
    grants.back().leases.push_back(
        {{rows.Int32(row, 1), rows.Int(row, 2), rows.Int32(row, 3), grant}, absl::Seconds(rows.Double(row, 4))});
  }
  return grants;
}

}  // namespace

absl::StatusOr<std::vector<LeaseGrant>> PostgresStore::ListLeases(int32_t replica, std::span<const int64_t> known) {
  TENURE_ASSIGN_OR_RETURN(Result rows, RunOne("list_leases", sql::kListLeases, Params().Add(replica).AddArray(known)));
  return ReadGrants(rows);
}

absl::StatusOr<std::vector<LeaseRef>> PostgresStore::GoneLeases(int32_t queue, std::span<const LeaseRef> leases) {
  TENURE_ASSIGN_OR_RETURN(const Result rows,
                          RunOne("resolve_live", sql::kResolveLive,
                                 Params().Add(queue).AddArray(leases, [](const LeaseRef& lease) { return lease.id; })));
  std::map<int64_t, int32_t> standing;  // Job: token number of its lease.
  for (int row = 0; row < rows.rows(); ++row) {
    if (static_cast<JobState>(rows.Int(row, 1)) == JobState::kLeased) standing[rows.Int(row, 0)] = rows.Int32(row, 2);
  }
  std::vector<LeaseRef> gone;
  std::copy_if(leases.begin(), leases.end(), std::back_inserter(gone), [&](const LeaseRef& lease) {
    const auto found = standing.find(lease.id);
    return found == standing.end() || found->second != lease.number;
  });
  return gone;
}

absl::Status PostgresStore::DropGrants(std::span<const int64_t> grants) {
  return RunOne("drop_grants", sql::kDropGrants, Params().AddArray(grants)).status();
}

absl::StatusOr<Orphans> PostgresStore::ListOrphans(const ShardFence& fence, int64_t after) {
  Params params;
  params.Add(after).Add(static_cast<int64_t>(kGrantsPerPage)).Add(fence.first).Add(fence.last);
  TENURE_ASSIGN_OR_RETURN(const Result rows, RunOne("list_orphans", sql::kListOrphans, params));
  const std::vector<LeaseGrant> grants = ReadGrants(rows);
  Orphans orphans;
  if (grants.empty()) return orphans;
  orphans.as_of = rows.Time(0, 5);
  orphans.last = grants.back().id;
  orphans.more = grants.size() == kGrantsPerPage;
  for (const LeaseGrant& grant : grants) {
    if (grant.leases.empty()) orphans.over.push_back(grant.id);
    for (const LeaseRemaining& lease : grant.leases) {
      if (lease.remaining <= absl::ZeroDuration()) {
        orphans.due[lease.ref.queue].push_back(lease.ref);
      } else if (!orphans.next_expiry || lease.remaining < *orphans.next_expiry) {
        orphans.next_expiry = lease.remaining;
      }
    }
  }
  return orphans;
}

absl::StatusOr<RecoverResult> PostgresStore::Recover(const ShardFence& fence, int32_t queue,
                                                     std::span<const LeaseRef> leases, absl::Time as_of) {
  RecoverResult result;
  std::map<int64_t, Reaped> reaped;
  TENURE_ASSIGN_OR_RETURN(Result rows, RunOne("reap", sql::kReap, ReapParams(queue, leases, &fence, as_of)));
  ReadReaped(rows, queue, reaped, &result.ready);
  for (const auto& [unused, one] : reaped) {
    if (one.remaining) {
      if (!result.next_expiry || *one.remaining < *result.next_expiry) result.next_expiry = *one.remaining;
      continue;
    }
    ++(one.discarded ? result.discarded : result.recovered);
    GateNames& freed = result.freed[queue];
    freed.insert(freed.end(), one.freed.begin(), one.freed.end());
    if (one.discarded) freed.emplace_back("q");
  }
  if (const int ended = result.recovered + result.discarded; ended > 0) {
    const std::string name = rows.Text(0, rows.Column("queue_name"));
    Metrics::Add(metrics_.lease_losses, {{"queue", name}, {"reason", "expired"}}, ended);
    Metrics::Add(metrics_.jobs_settled, {{"queue", name}, {"outcome", "discarded"}}, result.discarded);
  }
  return result;
}

}  // namespace tenure::store::postgres
