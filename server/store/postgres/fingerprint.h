// What makes two enqueues under one idempotency key the same job. Layer: store/postgres. Thread-safe.
#pragma once

#include <string>

#include "server/store/types.h"

namespace tenure::store::postgres {

// 16 bytes over every field of the spec but the key itself and its retention. Stable over releases and machines, since
// it is stored: FNV-1a (128 bits) over a length-prefixed encoding.
std::string Fingerprint(const NewJob& job);

}  // namespace tenure::store::postgres
