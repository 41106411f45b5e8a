// The background workers, one function a file. Only registry.cc needs it. Layer: background. Thread-safe.
#pragma once

#include "server/background/worker.h"

namespace tenure::background {

WorkerEntry AdmissionWorker();
WorkerEntry ReaperWorker();
WorkerEntry PromoterWorker();
WorkerEntry SchedulerWorker();
WorkerEntry LifecycleWorker();
WorkerEntry RetentionWorker();
WorkerEntry StatsWorker();
WorkerEntry VacuumGuardWorker();
WorkerEntry NotifyWorker();
WorkerEntry EventLogWorker();
WorkerEntry ExportWorker();
WorkerEntry InventoryWorker();
WorkerEntry RelayWorker();
WorkerEntry RewriterWorker();

}  // namespace tenure::background
