// Rows of a statement in PostgreSQL's binary format. Layer: store/postgres. Not thread-safe; a value may be read as
// often as wanted.
#pragma once

#include <libpq-fe.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "server/store/postgres/params.h"

namespace tenure::store::postgres {

class Result {
 public:
  Result() = default;
  explicit Result(PGresult* result) : result_(result) {}

  int rows() const { return result_ ? PQntuples(result_.get()) : 0; }
  int columns() const { return result_ ? PQnfields(result_.get()) : 0; }
  // Rows that an INSERT, UPDATE or DELETE touched.
  int64_t affected() const;
  // -1 if there is no such column: the readers below then answer NULL / the default.
  int Column(const char* name) const { return result_ ? PQfnumber(result_.get(), name) : -1; }

  bool IsNull(int row, int column) const { return column < 0 || PQgetisnull(result_.get(), row, column); }
  std::string_view Bytes(int row, int column) const {
    if (IsNull(row, column)) return {};
    return {PQgetvalue(result_.get(), row, column), static_cast<size_t>(PQgetlength(result_.get(), row, column))};
  }
  std::string Text(int row, int column) const { return std::string(Bytes(row, column)); }
  // Any integer type; NULL is 0.
  int64_t Int(int row, int column) const;
  int32_t Int32(int row, int column) const { return static_cast<int32_t>(Int(row, column)); }
  bool Bool(int row, int column) const { return Int(row, column) != 0; }
  double Double(int row, int column) const;
  absl::Time Time(int row, int column) const { return FromPgTime(Int(row, column)); }
  std::optional<absl::Time> OptionalTime(int row, int column) const {
    if (IsNull(row, column)) return std::nullopt;
    return Time(row, column);
  }
  // jsonb: its text.
  std::string_view Json(int row, int column) const;
  std::vector<std::string> TextArray(int row, int column) const;
  std::vector<int64_t> IntArray(int row, int column) const;

 private:
  struct Clear {
    void operator()(PGresult* result) const { PQclear(result); }
  };
  std::unique_ptr<PGresult, Clear> result_;
};

}  // namespace tenure::store::postgres
