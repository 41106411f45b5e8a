// Raw SQL: see the header. Layer: tests (benchmark).
#include "raw_sql.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "held_transaction.h"
#include "measure.h"
#include "progress.h"
#include "raw_session.h"
#include "tenure_site.h"

namespace tenure::bench {
namespace {

constexpr int kSingleSessions = 16;

std::string Sessions(int sessions, int64_t rows) {
  return absl::StrFormat("%d session%s, %d row%s a statement", sessions, sessions == 1 ? "" : "s", rows,
                         rows == 1 ? "" : "s");
}

// One thread each; the first error.
absl::Status InParallel(const std::vector<std::function<absl::Status()>>& parts) {
  std::mutex mutex;
  absl::Status status;
  {
    std::vector<std::jthread> threads;
    for (const auto& part : parts) {
      threads.emplace_back([&] {
        const absl::Status mine = part();
        std::lock_guard lock(mutex);
        status.Update(mine);
      });
    }
  }
  return status;
}

// Claims and completes until `completed` has reached `jobs`, by one session.
absl::Status DrainBy(RawSession& session, int64_t batch, int64_t jobs, std::atomic<int64_t>& completed) {
  while (completed < jobs) {
    auto ids = session.Claim(batch);
    if (!ids.ok()) return ids.status();
    if (ids->empty()) continue;  // The rest is with other sessions, or not enqueued yet.
    if (absl::Status done = session.Complete(*ids); !done.ok()) return done;
    completed += static_cast<int64_t>(ids->size());
  }
  return absl::OkStatus();
}

absl::Status EnqueueBy(RawSession& session, int64_t jobs, std::atomic<int64_t>& enqueued) {
  const std::vector<std::string> payloads(kRawBatch, PayloadOf());
  while (true) {
    const int64_t from = enqueued.fetch_add(kRawBatch);
    if (from >= jobs) return absl::OkStatus();
    const auto count = static_cast<std::ptrdiff_t>(std::min(kRawBatch, jobs - from));
    const absl::Status done =
        count == kRawBatch ? session.Enqueue(payloads) : session.Enqueue({payloads.begin(), payloads.begin() + count});
    if (!done.ok()) return done;
  }
}

// Runs `parts` under a meter.
absl::StatusOr<Figures> Measured(RunContext& run, RawSite& site, int64_t jobs, int64_t live, int64_t ended,
                                 const std::vector<std::function<absl::Status()>>& parts) {
  Figures figures;
  Meter meter(run.server, 0);
  run.progress.Say("running");
  if (absl::Status begun = meter.Begin(); !begun.ok()) return begun;
  if (absl::Status done = InParallel(parts); !done.ok()) return done;
  if (absl::Status over = meter.End(); !over.ok()) return over;
  meter.Report(jobs, figures);
  if (absl::Status finished = site.Finish(live, ended); !finished.ok()) return finished;
  return figures;
}

absl::StatusOr<Figures> DrainWith(RunContext& run, int sessions, int64_t batch, int64_t jobs) {
  auto site = RawSite::Make(run, sessions);
  if (!site.ok()) return site.status();
  if (absl::Status filled = (*site)->Fill(jobs); !filled.ok()) return filled;
  std::atomic<int64_t> completed{0};
  std::vector<std::function<absl::Status()>> parts;
  for (const auto& session : (*site)->sessions) {
    parts.emplace_back([&, batch, jobs] { return DrainBy(*session, batch, jobs, completed); });
  }
  auto figures = Measured(run, **site, jobs, 0, jobs, parts);
  if (figures.ok()) figures->note = Sessions(sessions, batch);
  return figures;
}

}  // namespace

absl::StatusOr<Figures> RawEnqueue(RunContext& run) {
  const int64_t jobs = run.sizes().jobs;
  auto site = RawSite::Make(run, run.options.raw_connections);
  if (!site.ok()) return site.status();
  std::atomic<int64_t> enqueued{0};
  std::vector<std::function<absl::Status()>> parts;
  for (const auto& session : (*site)->sessions) {
    parts.emplace_back([&] { return EnqueueBy(*session, jobs, enqueued); });
  }
  auto figures = Measured(run, **site, jobs, jobs, 0, parts);
  if (figures.ok()) {
    figures->note = Sessions(run.options.raw_connections, kRawBatch);
  }
  return figures;
}

absl::StatusOr<Figures> RawDrain(RunContext& run) {
  return DrainWith(run, run.options.raw_connections, kRawBatch, run.sizes().jobs);
}

absl::StatusOr<Figures> RawSingle(RunContext& run) {
  return DrainWith(run, kSingleSessions, 1, run.sizes().single_jobs);
}

absl::StatusOr<Figures> RawLifecycle(RunContext& run) {
  const int64_t jobs = run.sizes().jobs;
  auto site = RawSite::Make(run, 2);
  if (!site.ok()) return site.status();
  std::atomic<int64_t> enqueued{0}, completed{0};
  auto figures = Measured(run, **site, jobs, 0, jobs,
                          {[&] { return EnqueueBy(*(*site)->sessions[0], jobs, enqueued); },
                           [&] { return DrainBy(*(*site)->sessions[1], kRawBatch, jobs, completed); }});
  if (figures.ok()) figures->note = Sessions(2, kRawBatch);
  return figures;
}

absl::StatusOr<Figures> RawHeartbeat(RunContext& run) {
  const Sizes& sizes = run.sizes();
  auto site = RawSite::Make(run, 1);
  if (!site.ok()) return site.status();
  if (absl::Status filled = (*site)->Fill(sizes.leases); !filled.ok()) return filled;
  RawSession& session = *(*site)->sessions[0];
  std::vector<std::vector<int64_t>> batches;
  for (int64_t claimed = 0; claimed < sizes.leases;) {
    auto ids = session.Claim(kRawBatch);
    if (!ids.ok()) return ids.status();
    claimed += static_cast<int64_t>(ids->size());
    batches.push_back(*std::move(ids));
  }
  Figures figures;
  Meter meter(run.server, 0);
  if (absl::Status begun = meter.Begin(); !begun.ok()) return begun;
  const double third = sizes.lease_seconds / 3;
  for (double left = sizes.heartbeat_seconds; left > 0; left -= third) {
    run.progress.Wait("extending", std::min(third, left));
    for (const std::vector<int64_t>& ids : batches) {
      if (absl::Status extended = session.Extend(ids); !extended.ok()) return extended;
    }
  }
  if (absl::Status over = meter.End(); !over.ok()) return over;
  meter.ReportLoad(figures);
  figures.note = Sessions(1, kRawBatch);
  if (absl::Status finished = (*site)->Finish(sizes.leases, 0); !finished.ok()) return finished;
  return figures;
}

absl::StatusOr<Figures> RawHeld(RunContext& run) {
  auto site = RawSite::Make(run, 2);
  if (!site.ok()) return site.status();
  std::atomic<int64_t> completed{0};
  SteadyLoad load(run.options.steady_rate, [&] { return completed.load(); });
  load.Start(1, kRawBatch, [&](int64_t jobs) {
    return (*site)->sessions[0]->Enqueue(std::vector<std::string>(static_cast<size_t>(jobs), PayloadOf()));
  });
  std::atomic<bool> all_enqueued{false};
  absl::Status drained;
  std::jthread drainer([&] {
    std::mutex mutex;
    std::condition_variable never;
    std::unique_lock lock(mutex);
    while (drained.ok()) {
      const bool last = all_enqueued;
      auto ids = (*site)->sessions[1]->Claim(kRawBatch);
      drained = ids.status();
      if (!ids.ok()) return;
      if (ids->empty()) {
        if (last) return;
        never.wait_for(lock, std::chrono::milliseconds(1), [] { return false; });
        continue;
      }
      drained = (*site)->sessions[1]->Complete(*ids);
      completed += static_cast<int64_t>(ids->size());
    }
  });
  auto figures =
      HoldTransaction(run, (*site)->url(), "public.job", HeldKind::kReading, [&] { return completed.load(); }, {});
  const absl::Status produced = load.Finish();
  all_enqueued = true;
  drainer.join();
  if (!figures.ok()) return figures.status();
  if (!produced.ok()) return produced;
  if (!drained.ok()) return drained;
  figures->note = Sessions(2, kRawBatch);
  if (absl::Status finished = (*site)->Finish(0, load.enqueued()); !finished.ok()) return finished;
  return figures;
}

}  // namespace tenure::bench
