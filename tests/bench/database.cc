// Database: see the header. Layer: tests (benchmark).
#include "database.h"

#include <cstddef>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace tenure::bench {
namespace {

// From PostgreSQL's catalog; they never change.
constexpr Oid kInt8 = 20, kBytea = 17;
constexpr int kBinary = 1;

void AppendInt(std::string& out, uint64_t value, int bytes) {
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) out.push_back(static_cast<char>(value >> shift & 0xff));
}

// One dimension, no NULLs; the elements follow, each behind its length.
std::string ArrayHead(Oid element, size_t size) {
  std::string out;
  AppendInt(out, size == 0 ? 0 : 1, 4);
  AppendInt(out, 0, 4);
  AppendInt(out, element, 4);
  if (size > 0) {
    AppendInt(out, size, 4);
    AppendInt(out, 1, 4);
  }
  return out;
}

}  // namespace

Parameter Int8(int64_t value) {
  Parameter parameter;
  AppendInt(parameter.bytes, static_cast<uint64_t>(value), 8);
  return parameter;
}

Parameter Int8Array(const std::vector<int64_t>& values) {
  Parameter parameter{ArrayHead(kInt8, values.size())};
  parameter.bytes.reserve(parameter.bytes.size() + 12 * values.size());
  for (const int64_t value : values) {
    AppendInt(parameter.bytes, 8, 4);
    AppendInt(parameter.bytes, static_cast<uint64_t>(value), 8);
  }
  return parameter;
}

Parameter Text(std::string_view value) { return {std::string(value)}; }

Parameter ByteaArray(const std::vector<std::string>& values) {
  Parameter parameter{ArrayHead(kBytea, values.size())};
  for (const std::string& value : values) {
    AppendInt(parameter.bytes, value.size(), 4);
    parameter.bytes += value;
  }
  return parameter;
}

int64_t Rows::Int8At(int row, int column) const {
  uint64_t value = 0;
  for (const char byte : BytesAt(row, column)) value = value << 8 | static_cast<unsigned char>(byte);
  return static_cast<int64_t>(value);
}

std::string_view Rows::BytesAt(int row, int column) const {
  return {PQgetvalue(result_.get(), row, column), static_cast<size_t>(PQgetlength(result_.get(), row, column))};
}

absl::StatusOr<Database> Database::Open(const std::string& url) {
  Database database(PQconnectdb(url.c_str()));
  PGconn* connection = database.connection_.get();
  if (PQstatus(connection) != CONNECTION_OK) return absl::UnavailableError(PQerrorMessage(connection));
  PQsetNoticeProcessor(
      connection, [](void*, const char*) {}, nullptr);
  return database;
}

absl::Status Database::Error(const std::string& sql) const {
  return absl::InternalError(absl::StrCat(PQerrorMessage(connection_.get()), " in: ", sql.substr(0, 200)));
}

absl::Status Database::Execute(const std::string& sql) {
  const Rows result(PQexec(connection_.get(), sql.c_str()));
  const bool done = result.status() == PGRES_COMMAND_OK || result.status() == PGRES_TUPLES_OK;
  return done ? absl::OkStatus() : Error(sql);
}

absl::StatusOr<std::string> Database::Value(const std::string& sql) {
  const Rows result(PQexec(connection_.get(), sql.c_str()));
  if (result.status() != PGRES_TUPLES_OK) return Error(sql);
  return result.size() == 0 ? std::string() : std::string(result.BytesAt(0, 0));
}

absl::StatusOr<double> Database::Number(const std::string& sql) {
  const auto text = Value(sql);
  if (!text.ok()) return text.status();
  double value = 0;
  if (!text->empty() && !absl::SimpleAtod(*text, &value)) return absl::InternalError(*text + " is no number: " + sql);
  return value;
}

absl::Status Database::Prepare(const std::string& name, const std::string& sql) {
  const Rows result(PQprepare(connection_.get(), name.c_str(), sql.c_str(), 0, nullptr));
  return result.status() == PGRES_COMMAND_OK ? absl::OkStatus() : Error(sql);
}

absl::StatusOr<Rows> Database::Run(const std::string& name, const std::vector<Parameter>& parameters) {
  std::vector<const char*> values;
  std::vector<int> lengths, formats;
  for (const Parameter& parameter : parameters) {
    values.push_back(parameter.bytes.data());
    lengths.push_back(static_cast<int>(parameter.bytes.size()));
    formats.push_back(kBinary);
  }
  Rows result(PQexecPrepared(connection_.get(), name.c_str(), static_cast<int>(parameters.size()), values.data(),
                             lengths.data(), formats.data(), kBinary));
  if (result.status() != PGRES_COMMAND_OK && result.status() != PGRES_TUPLES_OK) return Error(name);
  return result;
}

}  // namespace tenure::bench
