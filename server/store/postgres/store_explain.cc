// PostgresStore: why a job is not running.
#include <algorithm>

#include "server/base/status.h"
#include "server/store/admission_choice.h"
#include "server/store/fair_choice.h"
#include "server/store/postgres/gate_rows.h"
#include "server/store/postgres/postgres_store.h"
#include "statements.sql.h"

namespace tenure::store::postgres {
namespace {

constexpr int64_t kHolders = 10;

// What the live row says beyond the job itself.
struct Place {
  int16_t gate = 0;
  bool waits = false;  // For other jobs.
  int64_t rank = 0;
};

class Explainer {
 public:
  Explainer(Transaction& tx, const Job& job, Place place) : tx_(tx), job_(job), place_(place) {}

  absl::StatusOr<std::vector<WaitCause>> Run() {
    TENURE_ASSIGN_OR_RETURN(const Result now, tx_.Run(sql::kTransactionTime, Params()));
    now_ = now.Time(0, 0);
    if (job_.state == JobState::kLeased) {
      Add(WaitReason::kLeased).until = job_.lease->expires;
      return std::move(causes_);
    }
    TENURE_ASSIGN_OR_RETURN(const Result queues,
                            tx_.Run(sql::kLoadQueues, Params().AddArray(std::vector<int32_t>{job_.id.queue})));
    if (queues.rows() > 0 && ReadQueue(queues, 0).paused) Add(WaitReason::kQueuePaused);
    switch (job_.state) {
      case JobState::kScheduled:
        Add(WaitReason::kScheduled).until = job_.due;
        break;
      case JobState::kSuspended:
        Add(WaitReason::kSuspended);
        break;
      case JobState::kReady:
        TENURE_RETURN_IF_ERROR(Ready());
        break;
      default:
        TENURE_RETURN_IF_ERROR(Blocked());
    }
    return std::move(causes_);
  }

 private:
  WaitCause& Add(WaitReason reason) {
    causes_.emplace_back().reason = reason;
    return causes_.back();
  }

  absl::Status Ready() {
    TENURE_ASSIGN_OR_RETURN(
        const Result rows,
        tx_.Run(sql::kExplainReady,
                Params().Add(job_.id.queue).Add(job_.priority).Add(place_.rank).Add(job_.id.seq).Add(kWaitingCounted)));
    if (!rows.Bool(0, 1)) Add(WaitReason::kNoWorker);
    Add(WaitReason::kReady).position = std::min(rows.Int(0, 0), kWaitingCounted) + 1;
    return absl::OkStatus();
  }

  absl::Status Blocked() {
    if (place_.waits) return Dependencies();
    if (place_.gate == kGateGroup) return Group();
    const size_t nth = static_cast<size_t>(place_.gate - kGateFirstKey);
    if (place_.gate >= kGateFirstKey && nth < job_.concurrency_keys.size()) return Key(job_.concurrency_keys[nth]);
    return Queue();
  }

  absl::Status Dependencies() {
    TENURE_ASSIGN_OR_RETURN(const Result rows,
                            tx_.Run(sql::kExplainDependencies, Params().Add(job_.id.seq).Add(kHolders)));
    if (rows.rows() == 0) {
      Add(WaitReason::kBeingAdmitted);
      return absl::OkStatus();
    }
    WaitCause& cause = Add(WaitReason::kDependency);
    cause.limit = rows.Int(0, 3);
    for (int row = 0; row < rows.rows(); ++row) {
      cause.holders.push_back({rows.Int32(row, 0), rows.Int32(row, 1), rows.Int(row, 2)});
    }
    return absl::OkStatus();
  }

  absl::Status Group() {
    TENURE_ASSIGN_OR_RETURN(const Result rows,
                            tx_.Run(sql::kExplainGroup, Params().Add(job_.id.queue).Add(job_.group).Add(job_.id.seq)));
    if (rows.rows() == 0) {
      Add(WaitReason::kBeingAdmitted);
      return absl::OkStatus();
    }
    WaitCause& cause = Add(WaitReason::kGroup);
    cause.key = job_.group;
    cause.ahead = JobId{job_.id.queue, rows.Int32(0, 1), rows.Int(0, 0)};
    cause.ahead_state = static_cast<JobState>(rows.Int(0, 2));
    if (cause.ahead_state == JobState::kScheduled) cause.until = rows.Time(0, 3);
    return absl::OkStatus();
  }

  absl::Status Key(const std::string& key) {
    TENURE_ASSIGN_OR_RETURN(auto gates, ReadKeys(tx_, job_.id.queue, {key}));
    const GateRow& gate = gates[key];
    TENURE_ASSIGN_OR_RETURN(
        const Result line,
        tx_.Run(sql::kExplainKeyLine,
                Params().Add(job_.id.queue).Add(key).Add(job_.priority).Add(job_.id.seq).Add(kWaitingCounted)));
    const size_t before = causes_.size();
    NoteGate(gate, WaitReason::kKeyFull, WaitReason::kKeyRate, WaitReason::kKeyPaused);
    for (size_t i = before; i < causes_.size(); ++i) {
      causes_[i].key = key;
      causes_[i].position = line.Int(0, 0) + 1;
    }
    if (causes_.size() == before || causes_.back().reason != WaitReason::kKeyFull) return absl::OkStatus();
    TENURE_ASSIGN_OR_RETURN(const Result holders,
                            tx_.Run(sql::kExplainHolders, Params().Add(job_.id.queue).Add(key).Add(kHolders)));
    for (int row = 0; row < holders.rows(); ++row) {
      causes_.back().holders.push_back({job_.id.queue, holders.Int32(row, 1), holders.Int(row, 0)});
    }
    return absl::OkStatus();
  }

  absl::Status Queue() {
    TENURE_ASSIGN_OR_RETURN(const Result rows, tx_.Run(sql::kAdmissionQueue, Params().Add(job_.id.queue)));
    TENURE_ASSIGN_OR_RETURN(
        const Result line,
        tx_.Run(sql::kExplainQueueLine,
                Params().Add(job_.id.queue).Add(job_.priority).Add(job_.id.seq).Add(kWaitingCounted)));
    const bool fair = rows.rows() > 0 && rows.Bool(0, rows.Column("fair_tenants"));
    const size_t before = causes_.size();
    NoteGate(rows.rows() > 0 ? ReadGate(rows, 0) : GateRow(), WaitReason::kQueueFull, WaitReason::kQueueRate,
             WaitReason::kQueueRate);
    if (fair) {
      // Its place in the queue's line depends on the others' turns; in its tenant's it does not.
      TENURE_ASSIGN_OR_RETURN(
          const Result own,
          tx_.Run(
              sql::kExplainTenantLine,
              Params().Add(job_.id.queue).Add(job_.tenant).Add(job_.priority).Add(job_.id.seq).Add(kWaitingCounted)));
      TENURE_ASSIGN_OR_RETURN(
          const Result turn,
          tx_.Run(sql::kExplainTurn, Params().Add(job_.id.queue).Add(job_.priority).Add(kWaitingCounted + 1)));
      const int64_t position = own.Int(0, 0) + 1, ready = turn.Int(0, 0), tenants = turn.Int(0, 1);
      if (causes_.back().reason == WaitReason::kBeingAdmitted) {
        // Alone, and within the smallest window: the next look lets it in.
        if (tenants <= 1 && ready + position <= FairWindow::kLeast) return absl::OkStatus();
        causes_.pop_back();
      }
      WaitCause& cause = Add(WaitReason::kTenantTurn);
      cause.key = job_.tenant;
      cause.position = position;
      cause.ready_jobs = ready;
      cause.tenants = tenants;
      return absl::OkStatus();
    }
    for (size_t i = before; i < causes_.size(); ++i) causes_[i].position = line.Int(0, 0) + 1;
    return absl::OkStatus();
  }

  // Pause, rate and limit of a gate, the limit last.
  void NoteGate(const GateRow& gate, WaitReason full, WaitReason rate, WaitReason paused) {
    const size_t before = causes_.size();
    if (gate.paused_us > 0) Add(paused).until = now_ + absl::Microseconds(gate.paused_us);
    if (gate.rate_interval_us) {
      const int64_t wait = RateWait(*gate.rate_interval_us, gate.rate_burst, gate.next_in_us, 0);
      if (wait > 0) Add(rate).until = now_ + absl::Microseconds(wait);
    }
    if (gate.max && gate.held >= *gate.max) Add(full).limit = *gate.max;
    if (causes_.size() == before) Add(WaitReason::kBeingAdmitted);
  }

  Transaction& tx_;
  const Job& job_;
  const Place place_;
  absl::Time now_;
  std::vector<WaitCause> causes_;
};

}  // namespace

absl::StatusOr<Explanation> PostgresStore::Explain(const JobId& id) {
  auto live = Run<
      std::optional<Explanation>>("explain", [&](Transaction& tx) -> absl::StatusOr<std::optional<Explanation>> {
    const std::vector<int64_t> ids{id.seq};
    TENURE_ASSIGN_OR_RETURN(const Result rows, tx.Run(sql::kFindLive, Params().Add(id.queue).AddArray(ids)));
    if (rows.rows() == 0 || JobReader(rows).Read(0).id != id) {
      TENURE_RETURN_IF_ERROR(tx.Commit());
      return std::nullopt;
    }
    Explanation explanation;
    explanation.job = JobReader(rows).Read(0);
    const int gate = rows.Column("gate");
    const Place place{static_cast<int16_t>(rows.Int(0, gate)), rows.IsNull(0, gate), rows.Int(0, rows.Column("rank"))};
    TENURE_ASSIGN_OR_RETURN(explanation.causes, Explainer(tx, explanation.job, place).Run());
    TENURE_RETURN_IF_ERROR(tx.Commit());
    return explanation;
  });
  if (!live.ok()) return live.status();
  if (*live) return **std::move(live);
  TENURE_ASSIGN_OR_RETURN(const std::vector<JobId> now, WhereNow({&id, 1}));
  if (now[0] != id) return Explain(now[0]);
  Explanation ended;
  TENURE_ASSIGN_OR_RETURN(ended.job, Get(id));
  ended.causes.emplace_back();
  return ended;
}

}  // namespace tenure::store::postgres
