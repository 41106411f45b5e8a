// One libpq connection, as raw SQL and the benchmark's own bookkeeping use it. Layer: tests (benchmark). Not
// thread-safe: one thread at a time.
#pragma once

#include <libpq-fe.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tenure::bench {

// A parameter in PostgreSQL's binary form.
struct Parameter {
  std::string bytes;
};
Parameter Int8(int64_t value);
Parameter Int8Array(const std::vector<int64_t>& values);
Parameter Text(std::string_view value);
Parameter ByteaArray(const std::vector<std::string>& values);

// Rows in binary form.
class Rows {
 public:
  explicit Rows(PGresult* result) : result_(result, PQclear) {}
  ExecStatusType status() const { return PQresultStatus(result_.get()); }
  int size() const { return PQntuples(result_.get()); }
  // Requires a column of type bigint.
  int64_t Int8At(int row, int column) const;
  std::string_view BytesAt(int row, int column) const;

 private:
  std::unique_ptr<PGresult, decltype(&PQclear)> result_;
};

class Database {
 public:
  static absl::StatusOr<Database> Open(const std::string& url);

  // Any number of statements, without parameters; what they answer is dropped.
  absl::Status Execute(const std::string& sql);
  // One number: the first value of the first row. NULL is 0.
  absl::StatusOr<double> Number(const std::string& sql);
  // The first value as text; empty if NULL.
  absl::StatusOr<std::string> Value(const std::string& sql);

  // Prepares a statement once, to be run by its name.
  // The types of its parameters follow from the casts in it.
  absl::Status Prepare(const std::string& name, const std::string& sql);
  absl::StatusOr<Rows> Run(const std::string& name, const std::vector<Parameter>& parameters);

 private:
  explicit Database(PGconn* connection) : connection_(connection, PQfinish) {}
  absl::Status Error(const std::string& sql) const;

  std::unique_ptr<PGconn, decltype(&PQfinish)> connection_;
};

}  // namespace tenure::bench
