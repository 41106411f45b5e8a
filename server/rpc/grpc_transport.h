// The methods of a MethodTable as gRPC services, on the callback API: a parked poll is an object, not a thread.
//
// The services are registered raw (bytes in, bytes out) and parsed here, for two reasons. A request that does not parse
// is answered with INVALID_ARGUMENT and the field's name, where gRPC's own layer says UNIMPLEMENTED without a word;
// invalid text in a worker's error report is repaired instead of refused (wire_repair.h). And requests and responses
// live on one arena for each call. Layer: rpc. Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/rpc/method_table.h"

namespace grpc {
class Service;
}

namespace tenure::rpc {

struct GrpcService {
  std::string name;  // "tenure.v1.JobService"
  std::shared_ptr<grpc::Service> service;
};

// One gRPC service for each proto service in `methods`, which outlives them.
std::vector<GrpcService> MakeGrpcServices(const MethodTable& methods);

}  // namespace tenure::rpc
