// The architecture, read from the files: who may include whom, where protocol buffers, libpq and SQL may be, how files
// begin and are called, and that no test file falls out of the build. The rules are those of docs/architecture.md; each
// is also tried on an example that breaks it, so that a rule which never bites is noticed.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace tenure {
namespace {

namespace fs = std::filesystem;

struct SourceFile {
  std::string path;  // From the root of the sources: "server/base/clock.h".
  std::string text;
};

// Files of `folder` with one of the extensions, without what tools and package managers put there.
std::vector<SourceFile> FilesOf(const std::string& folder, const std::set<std::string>& extensions) {
  const fs::path root = TENURE_SOURCE_DIR;
  std::vector<SourceFile> files;
  if (!fs::exists(root / folder)) return files;
  for (auto it = fs::recursive_directory_iterator(root / folder); it != fs::recursive_directory_iterator(); ++it) {
    const std::string name = it->path().filename().string();
    if (it->is_directory() && (name == "node_modules" || name == "build" || name == "dist" || name[0] == '.')) {
      it.disable_recursion_pending();
      continue;
    }
    if (!it->is_regular_file() || !(extensions.empty() || extensions.contains(it->path().extension().string())))
      continue;
    std::ifstream in(it->path());
    files.push_back({fs::relative(it->path(), root).string(), std::string(std::istreambuf_iterator<char>(in), {})});
  }
  return files;
}

std::vector<SourceFile> CppFiles(const std::vector<std::string>& folders) {
  std::vector<SourceFile> all;
  for (const std::string& folder : folders) {
    for (SourceFile& file : FilesOf(folder, {".h", ".cc"})) all.push_back(std::move(file));
  }
  return all;
}

std::vector<std::string> IncludesOf(const std::string& text) {
  static const std::regex kInclude("^[ \t]*#[ \t]*include[ \t]*[<\"]([^>\"]+)[>\"]");
  std::vector<std::string> includes;
  for (const auto line : absl::StrSplit(text, '\n')) {
    const std::string copy(line);
    std::smatch match;
    if (std::regex_search(copy, match, kInclude)) includes.push_back(match[1]);
  }
  return includes;
}

// --- Includes
// ----------------------------------------------------------------------------------------------------------

// The layer of a path: the longest of these folders that it lies in. Empty if none.
std::string LayerOf(const std::string& path) {
  static const std::vector<std::string> kLayers = {"server/store/postgres", "server/store",      "server/base",
                                                   "server/engine",         "server/background", "server/rpc",
                                                   "server/http",           "server/embedded",   "server/app"};
  for (const std::string& layer : kLayers) {
    if (absl::StartsWith(path, layer + "/")) return layer;
  }
  if (path == "server/main.cc") return "server/app";
  if (absl::StartsWith(path, "server/")) return "server";
  if (absl::StartsWith(path, "client/")) return "client";
  if (absl::StartsWith(path, "tests/")) return "tests";
  return "";
}

const std::map<std::string, std::set<std::string>>& MayInclude() {
  static const auto* const kRules = new std::map<std::string, std::set<std::string>>{
      {"server/base", {}},
      {"server/store", {"server/base"}},
      {"server/store/postgres", {"server/base", "server/store"}},
      {"server/embedded", {"server/base"}},
      {"server/engine", {"server/base", "server/store"}},
      {"server/background", {"server/base", "server/store"}},
      {"server/rpc", {"server/base", "server/store", "server/engine", "server/background"}},
      {"server/http", {"server/base", "server/store", "server/engine", "server/background"}},
      {"server/app",
       {"server/base", "server/store", "server/store/postgres", "server/embedded", "server/engine", "server/background",
        "server/rpc", "server/http"}},
      {"client", {}},
  };
  return *kRules;
}

// Why the file at `path` may not include `include`; nullopt if it may.
std::optional<std::string> WrongInclude(const std::string& path, const std::string& include) {
  const std::string layer = LayerOf(path);
  const auto rule = MayInclude().find(layer);
  if (rule == MayInclude().end()) return layer + " is not a layer";
  const std::string target = LayerOf(include);
  if (!target.empty() && target != layer && !rule->second.contains(target)) {
    return layer + " may not know " + target;
  }
  const bool generated = absl::EndsWith(include, ".pb.h");
  const bool protobuf = generated || absl::StartsWith(include, "google/protobuf/") ||
                        absl::StartsWith(include, "grpc/") || absl::StartsWith(include, "grpcpp/");
  if (protobuf && layer != "server/rpc" && layer != "client") return "protocol buffers and gRPC stay in server/rpc";
  const bool libpq = include == "libpq-fe.h" || absl::StartsWith(include, "postgresql/") ||
                     absl::StartsWith(include, "pqxx/") || absl::StartsWith(include, "libpq/");
  if (libpq && layer != "server/store/postgres" && layer != "server/embedded") {
    return "libpq stays in server/store/postgres and server/embedded";
  }
  if (absl::StartsWith(include, "boost/beast") && path != "server/http/connection.cc") {
    return "Boost.Beast compiles slowly: only server/http/connection.cc may include it";
  }
  if (absl::StartsWith(include, "boost/") && layer != "server/http") return "Boost stays in server/http";
  const bool outbound =
      absl::StartsWith(include, "curl/") || absl::StartsWith(include, "openssl/") || include == "zlib.h";
  if (outbound && !absl::StartsWith(path, "server/background/targets/")) {
    return "libcurl, OpenSSL and zlib stay in server/background/targets";
  }
  return std::nullopt;
}

TEST(Layers, IncludesFollowTheLayers) {
  const std::vector<SourceFile> files = CppFiles({"server", "client"});
  EXPECT_GT(files.size(), 20u);
  for (const SourceFile& file : files) {
    for (const std::string& include : IncludesOf(file.text)) {
      const auto wrong = WrongInclude(file.path, include);
      EXPECT_FALSE(wrong.has_value()) << file.path << " includes " << include << ": " << *wrong;
    }
  }
}

TEST(Layers, TheIncludeRulesBite) {
  const struct {
    const char* path;
    const char* include;
    bool wrong;
  } cases[] = {
      {"server/base/clock.h", "server/store/types.h", true},
      {"server/store/store.h", "server/base/status.h", false},
      {"server/store/store.h", "server/store/postgres/pool.h", true},
      {"server/store/store.h", "server/engine/engine.h", true},
      {"server/store/postgres/pool.h", "server/store/store.h", false},
      {"server/store/postgres/pool.h", "libpq-fe.h", false},
      {"server/engine/claim_desk.cc", "server/store/store.h", false},
      {"server/engine/claim_desk.cc", "server/store/postgres/pool.h", true},
      {"server/engine/claim_desk.cc", "server/background/supervisor.h", true},
      {"server/engine/claim_desk.cc", "server/rpc/server.h", true},
      {"server/engine/claim_desk.cc", "libpq-fe.h", true},
      {"server/engine/claim_desk.cc", "tenure/v1/job.pb.h", true},
      {"server/background/reaper.cc", "server/engine/engine.h", true},
      {"server/rpc/server.cc", "server/engine/engine.h", false},
      {"server/rpc/server.cc", "grpcpp/grpcpp.h", false},
      {"server/rpc/server.cc", "server/http/json_handler.h", true},
      {"server/http/router.cc", "server/rpc/server.h", true},
      {"server/http/router.cc", "google/protobuf/message.h", true},
      {"server/http/router.cc", "boost/asio/post.hpp", false},
      {"server/http/router.cc", "boost/beast/http.hpp", true},
      {"server/app/daemon.cc", "server/store/postgres/postgres_store.h", false},
      {"server/app/daemon.cc", "server/embedded/process.h", false},
      {"server/app/daemon.cc", "tenure/v1/job.grpc.pb.h", true},
      {"server/app/daemon.cc", "client/cpp/client.h", true},
      {"server/app/daemon.cc", "tests/support/manual_clock.h", true},
      {"server/main.cc", "server/app/commands.h", false},
      {"server/embedded/process.cc", "server/store/store.h", true},
      {"client/cpp/src/client.cc", "server/base/status.h", true},
      {"client/cpp/src/client.cc", "tenure/v1/job.pb.h", false},
      {"client/cli/main.cc", "libpq-fe.h", true},
      {"server/newroom/x.cc", "string", true},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(WrongInclude(c.path, c.include).has_value(), c.wrong) << c.path << " includes " << c.include;
  }
  EXPECT_EQ(IncludesOf("#include <a/b.h>\n  # include \"c.h\" // why\n// #include <d.h>\n"),
            (std::vector<std::string>{"a/b.h", "c.h"}));
}

// --- SQL
// ---------------------------------------------------------------------------------------------------------------

// The literal that begins like a statement, or nullopt.
std::optional<std::string> SqlLiteral(const std::string& line) {
  static const std::regex kStatement(
      "\"(?:[a-zA-Z_]*\\()?[ \t]*("
      "select[ \t][^\"]*|insert[ \t]+into[ \t][^\"]*|delete[ \t]+from[ \t][^\"]*|"
      "update[ \t]+[a-z_.]+[ \t]+set[ \t][^\"]*|with[ \t]+[a-z_]+[ \t]*(?:\\([^\"]*|as[ \t(][^\"]*))",
      std::regex::icase);
  std::smatch match;
  if (!std::regex_search(line, match, kStatement)) return std::nullopt;
  return match[1];
}

// What needs no .sql file: in one line, a question to the session or to PostgreSQL's catalog, or the migrator's own
// bookkeeping (one row a migration), which no plan can spoil. Nothing about jobs.
bool IsSessionCommand(const std::string& sql) {
  static const std::regex kSession(
      "select[ \t]+(1|pg_[a-z_]+\\(.*|current_setting\\(.*|set_config\\(.*|from[ \t]+pg_catalog\\..*)|"
      ".*\\btenure\\.schema_migration\\b.*",
      std::regex::icase);
  static const std::regex kTable("\\btenure\\.(?!schema_migration\\b)", std::regex::icase);
  return sql.size() <= 120 && std::regex_match(sql, kSession) && !std::regex_search(sql, kTable);
}

TEST(Layers, SqlLivesInSqlFiles) {
  for (const SourceFile& file : CppFiles({"server", "client"})) {
    const std::string layer = LayerOf(file.path);
    const bool database = layer == "server/store/postgres" || layer == "server/embedded";
    for (const auto line : absl::StrSplit(file.text, '\n')) {
      const auto sql = SqlLiteral(std::string(line));
      if (!sql) continue;
      EXPECT_TRUE(database && IsSessionCommand(*sql)) << file.path << " has SQL: " << *sql;
    }
  }
}

TEST(Layers, TheSqlRuleBites) {
  for (const char* line :
       {"x = \"select id from job\";", "R\"sql(  SELECT 1", "\"insert into tenure.job values\"", "\"Delete From x\"",
        "\"update tenure.job set state = 1\"", "\"with a as (select 1)\"", "\"with recursive_a (x) as\""}) {
    EXPECT_TRUE(SqlLiteral(line).has_value()) << line;
  }
  for (const char* line : {"\"with --database-url\"", "\"update the queue's settings\"", "\"delete a job\"",
                           "// select from", "\"selected\"", "\"insert\""}) {
    EXPECT_FALSE(SqlLiteral(line).has_value()) << line;
  }
  EXPECT_TRUE(IsSessionCommand("select 1"));
  EXPECT_TRUE(IsSessionCommand("select pg_backend_pid()"));
  EXPECT_FALSE(IsSessionCommand("select id from tenure.job"));
  EXPECT_TRUE(IsSessionCommand("insert into tenure.schema_migration (version) values ($1)"));
  EXPECT_FALSE(IsSessionCommand("select pg_sleep(1) from tenure.job"));
  EXPECT_FALSE(IsSessionCommand("delete from tenure.job using tenure.schema_migration"));
}

// --- Files
// ---------------------------------------------------------------------------------------------------------------

// A .cc file that begins with its own header has its comment there.
bool BeginsWithWhatItIs(const SourceFile& file) {
  if (absl::StartsWith(file.text, "// ")) return true;
  const std::string stem = file.path.substr(0, file.path.rfind('.'));
  return absl::EndsWith(file.path, ".cc") && fs::exists(fs::path(TENURE_SOURCE_DIR) / (stem + ".h")) &&
         absl::StartsWith(file.text, absl::StrCat("#include \"", stem, ".h\"\n"));
}

TEST(Layers, EachFileBeginsWithWhatItIs) {
  for (const SourceFile& file : CppFiles({"server", "client", "tests"})) {
    EXPECT_TRUE(BeginsWithWhatItIs(file))
        << file.path << " must begin with a comment: what it is, layer, thread-safety";
  }
  EXPECT_TRUE(BeginsWithWhatItIs({"server/x.h", "// The x.\n"}));
  EXPECT_TRUE(BeginsWithWhatItIs({"server/base/clock.cc", "#include \"server/base/clock.h\"\n"}));
  EXPECT_FALSE(BeginsWithWhatItIs({"server/base/clock.cc", "#include <mutex>\n"}));
  EXPECT_FALSE(BeginsWithWhatItIs({"server/base/clock.h", "#pragma once\n"}));
  for (const std::string folder : {"server", "migrations"}) {
    for (const SourceFile& file : FilesOf(folder, {".sql"})) {
      EXPECT_TRUE(absl::StartsWith(file.text, "-- ")) << file.path << " must begin with a comment: what it is for";
    }
  }
}

bool IsGrabBagName(const std::string& path) {
  static const std::set<std::string> kNames = {"util", "utils", "common", "helper", "helpers", "manager", "misc"};
  const std::string stem = fs::path(path).stem().string();
  for (const auto word : absl::StrSplit(stem, absl::ByAnyChar("_-."))) {
    if (kNames.contains(std::string(word))) return true;
  }
  return false;
}

TEST(Layers, NoFileIsAGrabBag) {
  for (const std::string folder : {"server", "client", "tests"}) {
    for (const SourceFile& file : FilesOf(folder, {})) {
      EXPECT_FALSE(IsGrabBagName(file.path)) << file.path << ": name it after what it does";
    }
  }
  EXPECT_TRUE(IsGrabBagName("server/base/string_utils.h"));
  EXPECT_TRUE(IsGrabBagName("server/base/common.h"));
  EXPECT_TRUE(IsGrabBagName("client/go/lease-manager.go"));
  EXPECT_FALSE(IsGrabBagName("server/base/commonly_used.h"));
}

TEST(Layers, EveryTestFileIsBuilt) {
  std::ifstream in(std::string(TENURE_SOURCE_DIR) + "/tests/CMakeLists.txt");
  const std::string build((std::istreambuf_iterator<char>(in)), {});
  static const std::regex kSuite("(^|\n)[ \t]*tenure_suite\\([ \t]*[a-z_]+[ \t]+([a-z_/]+)");
  std::set<std::string> suites;
  for (auto it = std::sregex_iterator(build.begin(), build.end(), kSuite); it != std::sregex_iterator(); ++it) {
    suites.insert(absl::StrCat("tests/", std::string((*it)[2])));
  }
  EXPECT_TRUE(suites.contains("tests/unit"));
  for (const SourceFile& file : CppFiles({"server", "client", "tests"})) {
    if (!absl::EndsWith(file.path, "_test.cc")) {
      EXPECT_EQ(file.text.find("\nTEST(") != std::string::npos || file.text.find("\nTEST_F(") != std::string::npos,
                false)
          << file.path << " has tests but is not called *_test.cc: no suite builds it";
      continue;
    }
    EXPECT_TRUE(suites.contains(fs::path(file.path).parent_path().string()))
        << file.path << " is in no folder that tests/CMakeLists.txt makes a suite of";
  }
}

}  // namespace
}  // namespace tenure
