// What holds a job up, as protobuf and in words. Layer: rpc. Thread-safe: values only.
#pragma once

#include <string>

#include "server/store/admission.h"
#include "tenure/v1/job_service.pb.h"

namespace tenure::rpc {

// `queue`: its name.
void ToProto(const store::WaitCause& cause, const std::string& queue, v1::WaitCause* out);

}  // namespace tenure::rpc
