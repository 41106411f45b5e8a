// The table of background workers. Layer: background.
#include "server/background/registry.h"

#include <algorithm>
#include <array>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "server/background/workers.h"
#include "server/base/status.h"

namespace tenure::background {

std::span<const WorkerEntry> AllWorkers() {
  static const std::array<WorkerEntry, 14> table = {
      ReaperWorker(),    PromoterWorker(), AdmissionWorker(),   SchedulerWorker(), LifecycleWorker(),
      RetentionWorker(), StatsWorker(),    VacuumGuardWorker(), RewriterWorker(),  NotifyWorker(),
      EventLogWorker(),  ExportWorker(),   InventoryWorker(),   RelayWorker()};
  return table;
}

absl::StatusOr<std::vector<WorkerEntry>> SelectWorkers(std::string_view selection) {
  const std::span<const WorkerEntry> table = AllWorkers();
  const absl::string_view trimmed = absl::StripAsciiWhitespace(absl::string_view(selection.data(), selection.size()));
  if (trimmed == "all") return std::vector<WorkerEntry>(table.begin(), table.end());
  if (trimmed.empty() || trimmed == "none") return std::vector<WorkerEntry>();

  std::set<std::string, std::less<>> wanted;
  for (const absl::string_view part : absl::StrSplit(trimmed, ',')) {
    const absl::string_view name = absl::StripAsciiWhitespace(part);
    const bool known = std::any_of(table.begin(), table.end(), [&](const WorkerEntry& entry) {
      return absl::string_view(entry.name.data(), entry.name.size()) == name;
    });
    if (!known) {
      const std::string names = absl::StrJoin(table, ", ", [](std::string* out, const WorkerEntry& entry) {
        out->append(entry.name.data(), entry.name.size());
      });
      return InvalidField("background",
                          absl::StrCat("there is no background worker \"", name, "\"; give all, none, or names out of ",
                                       names, ", with commas between them"));
    }
    wanted.emplace(name);
  }
  std::vector<WorkerEntry> selected;
  std::copy_if(table.begin(), table.end(), std::back_inserter(selected),
               [&](const WorkerEntry& entry) { return wanted.count(entry.name) > 0; });
  return selected;
}

Tunables DefaultTunables() {
  std::vector<Tunable> specs;
  for (const WorkerEntry& entry : AllWorkers()) specs.insert(specs.end(), entry.tunables.begin(), entry.tunables.end());
  return Tunables(specs);
}

}  // namespace tenure::background
