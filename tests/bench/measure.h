// What a run costs: time, CPU of each party, WAL, write transactions, memory. Layer: tests (benchmark). One thread.
//
// CPU comes from /proc in ticks of 10 ms: short runs show it coarsely. PostgreSQL's is that of the whole tree below the
// postmaster, children that have ended included. Write transactions are counted by the transaction ids taken (exact and
// at once, where pg_stat_database lags by up to ten seconds; transactions that only read do not wait for the disk).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "figures.h"
#include "postgres_server.h"

namespace tenure::bench {

// Of one process, its children not included; 0 if there is none such.
double CpuSecondsOf(pid_t pid);
double CpuSecondsOfTree(pid_t postmaster);
// Of a process group, children that have ended included.
double CpuSecondsOfGroup(pid_t group);
// This process with its threads.
double OwnCpuSeconds();
// Resident memory in MiB, now or the most it ever was; 0 if there is no such process.
double ResidentMiB(pid_t pid);
double PeakResidentMiB(pid_t pid);

class Meter {
 public:
  // `daemon` 0: there is none. `client_group` 0: the client is this process.
  Meter(PostgresServer& server, pid_t daemon, pid_t client_group = 0)
      : server_(server), daemon_(daemon), client_group_(client_group) {}

  absl::Status Begin();
  // Call it while the daemon still runs.
  absl::Status End();

  double seconds() const { return end_.seconds - begin_.seconds; }
  // Sets jobs, seconds, jobs_per_second and the costs per job.
  void Report(int64_t jobs, Figures& figures) const;
  // Sets the costs by the second: daemon_core_percent, postgres_core_percent, client_core_percent,
  // wal_bytes_per_second.
  void ReportLoad(Figures& figures) const;

 private:
  struct Reading {
    double seconds = 0, daemon_cpu = 0, postgres_cpu = 0, client_cpu = 0, wal_bytes = 0, transactions = 0;
    double resident_mib = 0;
  };
  absl::StatusOr<Reading> Read() const;

  PostgresServer& server_;
  const pid_t daemon_;
  const pid_t client_group_;
  Reading begin_, end_;
};

}  // namespace tenure::bench
