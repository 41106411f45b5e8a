// A store on a fresh, migrated database for each test. Layer: tests. The schema is migrated once into a template, which
// each database copies.
#pragma once

#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "server/base/metrics.h"
#include "server/store/postgres/postgres_store.h"
#include "tests/support/postgres_env.h"

namespace tenure::testing {

// URL of a database with the current schema; copy it, do not use it.
const std::string& MigratedTemplate();

// All shards of a worker, held by `replica`, which must be registered and the only one that takes part. The test is
// aborted if it cannot have them.
store::ShardFence HoldShards(store::Store& store, const std::string& worker, int32_t replica,
                             absl::Duration lease = absl::Minutes(1));

class StoreTest : public ::testing::Test {
 protected:
  StoreTest();

  std::unique_ptr<store::postgres::PostgresStore> OpenStore(int connections = 4);
  // Runs SQL on a connection of its own; the test fails if it does. Answers the first column of the first row as text.
  std::string Sql(const std::string& sql);
  // The same for what is to be refused: why it was; empty, and the test fails, if it was not.
  std::string SqlError(const std::string& sql);

  ScopedDatabase database_;
  Metrics metrics_;
  std::unique_ptr<store::postgres::PostgresStore> store_;
};

}  // namespace tenure::testing
