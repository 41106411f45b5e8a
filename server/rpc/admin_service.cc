#include "server/rpc/admin_service.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "server/rpc/conversion.h"
#include "server/rpc/findings.h"

namespace tenure::rpc {

void AdminService::Register(MethodTable& table) {
  constexpr char kService[] = "tenure.v1.AdminService";
  table.Add<v1::GetServerInfoRequest, v1::GetServerInfoResponse>(kService, "GetServerInfo",
                                                                 [this](auto call) { GetServerInfo(std::move(call)); });
  table.Add<v1::ListServersRequest, v1::ListServersResponse>(kService, "ListServers",
                                                             [this](auto call) { ListServers(std::move(call)); });
  table.Add<v1::ListBackgroundWorkersRequest, v1::ListBackgroundWorkersResponse>(
      kService, "ListBackgroundWorkers", [this](auto call) { ListBackgroundWorkers(std::move(call)); });
}

void AdminService::GetServerInfo(CallPtr<v1::GetServerInfoRequest, v1::GetServerInfoResponse> call) {
  v1::Server* server = call->response().mutable_server();
  server->set_replica_id(engine_.replica_id());
  server->set_name(engine_.options().replica_name);
  server->set_version(engine_.options().version);
  server->set_draining(engine_.health().draining);
  engine_.Inspect([this, call](absl::StatusOr<store::DatabaseInfo> info) {
    v1::GetServerInfoResponse& response = call->response();
    if (!info.ok()) {
      DiagnoseUnreachable(info.status(), response.mutable_findings());
      return call->Finish();
    }
    response.set_postgres_version(info->version);
    response.set_schema_version(info->schema_version);
    Diagnose(*info, response.mutable_findings());
    // The row of this replica says what it leads and since when.
    engine_.ListReplicas([this, call](absl::StatusOr<std::vector<store::ReplicaRow>> rows) {
      if (!rows.ok()) {
        DiagnoseUnreachable(rows.status(), call->response().mutable_findings());
        return call->Finish();
      }
      for (const store::ReplicaRow& row : *rows) {
        if (row.id == engine_.replica_id()) ToProto(row, call->response().mutable_server());
      }
      call->Finish();
    });
  });
}

void AdminService::ListServers(CallPtr<v1::ListServersRequest, v1::ListServersResponse> call) {
  engine_.ListReplicas([call](absl::StatusOr<std::vector<store::ReplicaRow>> rows) {
    if (!rows.ok()) return call->Finish(rows.status());
    for (const store::ReplicaRow& row : *rows) ToProto(row, call->response().add_servers());
    call->Finish();
  });
}

void AdminService::ListBackgroundWorkers(
    CallPtr<v1::ListBackgroundWorkersRequest, v1::ListBackgroundWorkersResponse> call) {
  engine_.ListBackground([this, call](absl::StatusOr<std::vector<store::BackgroundRow>> rows) {
    if (!rows.ok()) return call->Finish(rows.status());
    // One that nobody ever led has no row yet.
    for (const std::string& name : engine_.options().background_workers) {
      const bool has_row = std::any_of(rows->begin(), rows->end(), [&](const auto& row) { return row.name == name; });
      if (!has_row) rows->push_back({.name = name});
    }
    // By name; those of one worker by shard stay in their order.
    std::stable_sort(rows->begin(), rows->end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    for (const store::BackgroundRow& row : *rows) ToProto(row, call->response().add_workers());
    call->Finish();
  });
}

}  // namespace tenure::rpc
