#include "tests/support/store_fixture.h"

#include <libpq-fe.h>

#include "server/store/postgres/migrator.h"

namespace tenure::testing {

const std::string& MigratedTemplate() {
  static const std::string* url = [] {
    auto* made = new std::string(PostgresEnv::Get().CreateDatabase());
    auto migrated = store::postgres::Migrator(*made).Up();
    if (!migrated.ok()) {
      ADD_FAILURE() << migrated.status();
      std::abort();
    }
    return made;
  }();
  return *url;
}

store::ShardFence HoldShards(store::Store& store, const std::string& worker, int32_t replica, absl::Duration lease) {
  const auto held = store.LeaseShards(worker, replica, lease);
  if (!held.ok() || held->size() != 1 || (*held)[0].fence.first != 0 || (*held)[0].fence.last != store::kShards - 1) {
    ADD_FAILURE() << "shards of " << worker << " are not to be had: " << held.status();
    std::abort();
  }
  return (*held)[0].fence;
}

StoreTest::StoreTest() : database_(MigratedTemplate()), store_(OpenStore()) {}

std::unique_ptr<store::postgres::PostgresStore> StoreTest::OpenStore(int connections) {
  store::postgres::PostgresOptions options;
  options.url = database_.url();
  options.connections = connections;
  return store::postgres::PostgresStore::Open(options, metrics_);
}

std::string StoreTest::Sql(const std::string& sql) {
  // Not through a pooler: it looks on, and may end connections that the pooler would hand out next.
  PGconn* pg = PQconnectdb(database_.direct_url().c_str());
  PGresult* result = PQexec(pg, sql.c_str());
  std::string answer;
  const ExecStatusType status = PQresultStatus(result);
  if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
    ADD_FAILURE() << sql << ": " << PQerrorMessage(pg);
  } else if (PQntuples(result) > 0 && !PQgetisnull(result, 0, 0)) {
    answer = PQgetvalue(result, 0, 0);
  }
  PQclear(result);
  PQfinish(pg);
  return answer;
}

std::string StoreTest::SqlError(const std::string& sql) {
  PGconn* pg = PQconnectdb(database_.direct_url().c_str());
  PGresult* result = PQexec(pg, sql.c_str());
  std::string why;
  if (PQresultStatus(result) == PGRES_FATAL_ERROR) {
    why = PQerrorMessage(pg);
  } else {
    ADD_FAILURE() << sql << ": was not refused";
  }
  PQclear(result);
  PQfinish(pg);
  return why;
}

}  // namespace tenure::testing
