// PgBouncer in transaction mode in front of the test server, for running a suite through a pooler: with
// TENURE_TEST_POOLER=1 in the environment every ScopedDatabase hands out a URL that goes through it. Layer: tests.
// Thread-safe.
#pragma once

#include <string>

namespace tenure::testing {

// True if this run goes through the pooler.
bool ThroughPooler();

// The same database through PgBouncer, which is started on the first call and ends with the process.
std::string PooledUrl(const std::string& direct_url);

}  // namespace tenure::testing
