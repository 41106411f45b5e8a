#include "server/embedded/database.h"

#include <libpq-fe.h>

#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace tenure::embedded {
namespace {

struct Closer {
  void operator()(PGconn* connection) const { PQfinish(connection); }
  void operator()(PGresult* result) const { PQclear(result); }
};
using Connection = std::unique_ptr<PGconn, Closer>;
using Result = std::unique_ptr<PGresult, Closer>;

std::string PercentEncode(const std::string& text) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_isalnum(byte) || c == '-' || c == '_' || c == '.' || c == '~') {
      out.push_back(c);
    } else {
      out.push_back('%');
      out.push_back(kHex[byte >> 4]);
      out.push_back(kHex[byte & 15]);
    }
  }
  return out;
}

std::string Trimmed(const char* message) { return std::string(absl::StripAsciiWhitespace(message)); }

}  // namespace

std::string SocketUrl(const std::string& socket_dir, int port, const std::string& database) {
  return absl::StrCat("postgresql://", kUser, "@/", PercentEncode(database), "?host=", PercentEncode(socket_dir),
                      "&port=", port);
}

absl::Status EnsureDatabase(const std::string& socket_dir, int port) {
  // The database "postgres" is there from initdb on.
  const std::string url = SocketUrl(socket_dir, port, "postgres") + "&connect_timeout=10";
  const Connection connection(PQconnectdb(url.c_str()));
  if (PQstatus(connection.get()) != CONNECTION_OK) {
    return absl::UnavailableError(
        absl::StrCat("cannot connect to the embedded PostgreSQL: ", Trimmed(PQerrorMessage(connection.get()))));
  }
  // The only SQL outside a .sql file: it belongs to no schema and runs before there is a database to have one in.
  const Result found(PQexec(connection.get(), "SELECT FROM pg_catalog.pg_database WHERE datname = 'tenure'"));
  if (PQresultStatus(found.get()) == PGRES_TUPLES_OK && PQntuples(found.get()) == 1) return absl::OkStatus();
  const Result created(PQexec(connection.get(), "CREATE DATABASE tenure"));
  if (PQresultStatus(created.get()) == PGRES_COMMAND_OK) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("cannot create the database tenure: ", Trimmed(PQerrorMessage(connection.get()))));
}

}  // namespace tenure::embedded
