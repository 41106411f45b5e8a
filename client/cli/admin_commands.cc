// tenurectl worker|server|background list, and doctor. Layer: client/cli. Not thread-safe.
#include <memory>
#include <ostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/commands.h"
#include "client/cli/output.h"
#include "client/cli/values.h"

namespace tenure::cli {
namespace {

std::string When(bool present, const google::protobuf::Timestamp& timestamp, absl::Time now) {
  return present ? ShowWhen(FromProto(timestamp), now) : "";
}

int ListWorkers(Context& context) {
  Table table({{"WORKER"}, {"LEASES", true}, {"LAST CLAIM"}, {"QUEUES"}});
  v1::ListWorkersRequest request;
  bool any = false;
  do {
    const auto response = context.connection().ListWorkers(request);
    if (!response.ok()) return context.Report(response.status());
    const absl::Time now = absl::Now();
    for (const v1::Worker& worker : response->workers()) {
      any = true;
      if (context.json) {
        PrintJson(context.out(), worker);
        continue;
      }
      table.AddRow({OneLine(worker.worker_id(), 255), absl::StrCat(worker.leased_jobs()),
                    When(worker.has_last_claim_time(), worker.last_claim_time(), now),
                    absl::StrJoin(worker.queues(), ",")});
    }
    table.Print(context.out());
    request.set_page_token(response->next_page_token());
  } while (!request.page_token().empty());
  if (!any) context.err() << "no workers were seen lately; start one with: tenurectl work --queue NAME --exec CMD\n";
  return kExitDone;
}

int ListServers(Context& context) {
  const auto response = context.connection().ListServers(v1::ListServersRequest());
  if (!response.ok()) return context.Report(response.status());
  Table table({{"REPLICA", true}, {"NAME"}, {"VERSION"}, {"STATE"}, {"STARTED"}, {"HEARTBEAT"}, {"LEADS"}});
  const absl::Time now = absl::Now();
  for (const v1::Server& server : response->servers()) {
    if (context.json) {
      PrintJson(context.out(), server);
      continue;
    }
    table.AddRow({absl::StrCat(server.replica_id()), server.name(), server.version(),
                  server.draining() ? "draining" : "serving", When(server.has_start_time(), server.start_time(), now),
                  When(server.has_heartbeat_time(), server.heartbeat_time(), now), absl::StrJoin(server.leads(), ",")});
  }
  table.Print(context.out());
  return kExitDone;
}

int ListBackgroundWorkers(Context& context) {
  const auto response = context.connection().ListBackgroundWorkers(v1::ListBackgroundWorkersRequest());
  if (!response.ok()) return context.Report(response.status());
  Table table({{"BACKGROUND WORKER"},
               {"SHARDS"},
               {"LEADER"},
               {"TERM", true},
               {"SINCE"},
               {"LAST SUCCESS"},
               {"RUNS", true},
               {"RESTARTS", true},
               {"LAST ERROR"}});
  const absl::Time now = absl::Now();
  for (const v1::BackgroundWorker& worker : response->workers()) {
    if (context.json) {
      PrintJson(context.out(), worker);
      continue;
    }
    table.AddRow({worker.name(), OneLine(worker.shards(), 60), worker.leader(), absl::StrCat(worker.term()),
                  When(worker.has_leader_since(), worker.leader_since(), now),
                  When(worker.has_last_success_time(), worker.last_success_time(), now), absl::StrCat(worker.runs()),
                  absl::StrCat(worker.restarts()), OneLine(worker.last_error(), 100)});
  }
  table.Print(context.out());
  return kExitDone;
}

const char* SeverityName(v1::Finding::Severity severity) {
  switch (severity) {
    case v1::Finding::SEVERITY_OK:
      return "ok";
    case v1::Finding::SEVERITY_WARNING:
      return "WARNING";
    case v1::Finding::SEVERITY_ERROR:
      return "ERROR";
    default:
      return "unknown";
  }
}

// Shows what the daemon found about its database; kExitRefused if a finding is an error.
int Doctor(Context& context) {
  const auto response = context.connection().GetServerInfo(v1::GetServerInfoRequest());
  if (!response.ok()) return context.Report(response.status());
  int errors = 0;
  int warnings = 0;
  for (const v1::Finding& finding : response->findings()) {
    errors += finding.severity() == v1::Finding::SEVERITY_ERROR ? 1 : 0;
    warnings += finding.severity() == v1::Finding::SEVERITY_WARNING ? 1 : 0;
  }
  const int exit_status = errors > 0 ? kExitRefused : kExitDone;
  if (context.json) {
    PrintJson(context.out(), *response);
    return exit_status;
  }
  const v1::Server& server = response->server();
  context.out() << "tenured " << server.version() << " at " << context.server << " (" << server.name() << ")\n";
  PrintFields(context.out(), {{"started", When(server.has_start_time(), server.start_time(), absl::Now())},
                              {"PostgreSQL", response->postgres_version()},
                              {"schema", absl::StrCat("version ", response->schema_version())},
                              {"leads", absl::StrJoin(server.leads(), ", ")}});
  context.out() << '\n';
  Table table({{"CHECK"}, {"STATUS"}, {"FOUND"}});
  for (const v1::Finding& finding : response->findings()) {
    table.AddRow({finding.check(), SeverityName(finding.severity()), OneLine(finding.message(), 400)});
    // The advice follows its finding; a table of its own would tear them apart.
    if (!finding.advice().empty())
      table.AddRow({" ", " ", absl::StrCat("what to do: ", OneLine(finding.advice(), 1000))});
  }
  table.Print(context.out());
  context.out() << '\n' << errors << " errors, " << warnings << " warnings\n";
  return exit_status;
}

}  // namespace

void AddAdminCommands(CLI::App& root, Context& context) {
  const auto add_list = [&root, &context](const std::string& noun, const std::string& group_description,
                                          const std::string& description, int (*run)(Context&)) {
    CLI::App* group = root.add_subcommand(noun, group_description);
    group->require_subcommand(1);
    CLI::App* list = group->add_subcommand("list", description);
    OnRun(*list, context, [&context, run] { return run(context); });
  };
  add_list("worker", "Client processes that claim", "List workers seen lately and what they hold", &ListWorkers);
  add_list("server", "Replicas of the daemon", "List the replicas that share the database", &ListServers);
  add_list("background", "Background workers inside the daemon",
           "List background workers, their leaders and how they fare", &ListBackgroundWorkers);
  CLI::App* doctor = root.add_subcommand("doctor", "Check the daemon and its database, and say what to do");
  doctor->footer("Exits 1 if a finding is an error.");
  OnRun(*doctor, context, [&context] { return Doctor(context); });
}

}  // namespace tenure::cli
