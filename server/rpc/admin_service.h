// tenure.v1.AdminService: the daemon itself. Layer: rpc. Thread-safe.
#pragma once

#include "server/engine/engine.h"
#include "server/rpc/method_table.h"
#include "tenure/v1/admin_service.pb.h"

namespace tenure::rpc {

class AdminService {
 public:
  // The engine outlives the service.
  explicit AdminService(engine::Engine& engine) : engine_(engine) {}
  // Adds the methods; the service outlives the table's use.
  void Register(MethodTable& table);

  // Also answers while the database is away: with a finding that says so.
  void GetServerInfo(CallPtr<v1::GetServerInfoRequest, v1::GetServerInfoResponse> call);
  void ListServers(CallPtr<v1::ListServersRequest, v1::ListServersResponse> call);
  void ListBackgroundWorkers(CallPtr<v1::ListBackgroundWorkersRequest, v1::ListBackgroundWorkersResponse> call);

 private:
  engine::Engine& engine_;
};

}  // namespace tenure::rpc
