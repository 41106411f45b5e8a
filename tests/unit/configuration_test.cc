// The daemon's settings: precedence, each rule, what is shown. Layer: tests.
#include "server/app/configuration.h"

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/status.h"

namespace tenure::app {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ConfigurationTest : public ::testing::Test {
 protected:
  ConfigurationTest() {
    given_.environment = [this](const char* name) -> const char* {
      const auto found = environment_.find(name);
      return found == environment_.end() ? nullptr : found->second.c_str();
    };
    environment_["HOME"] = "/home/somebody";
  }
  ~ConfigurationTest() override {
    if (!given_.file.empty()) std::filesystem::remove(given_.file);
  }

  void WriteFile(const std::string& text) {
    given_.file =
        ::testing::TempDir() + "/tenure_" + ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".toml";
    std::ofstream(given_.file) << text;
  }
  Resolved Get() {
    auto resolved = Resolve(given_);
    EXPECT_EQ(resolved.status(), absl::OkStatus());
    return resolved.ok() ? *std::move(resolved) : Resolved();
  }
  std::string Error() {
    const auto resolved = Resolve(given_);
    EXPECT_EQ(resolved.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(resolved.status().message());
  }
  static ResolvedSetting Find(const Resolved& resolved, const std::string& name) {
    for (const ResolvedSetting& setting : resolved.settings) {
      if (setting.setting->name == name) return setting;
    }
    ADD_FAILURE() << "no setting " << name;
    return {};
  }

  std::map<std::string, std::string> environment_;
  Given given_;
};

TEST_F(ConfigurationTest, Defaults) {
  const Configuration configuration = Get().configuration;
  EXPECT_EQ(configuration.grpc_listen, "127.0.0.1:8470");
  EXPECT_EQ(configuration.http_listen, "127.0.0.1:8471");
  EXPECT_TRUE(configuration.embedded());
  EXPECT_TRUE(configuration.migrate) << "the embedded database is always migrated";
  EXPECT_EQ(configuration.database_connections, 8);
  EXPECT_EQ(configuration.background.size(), background::AllWorkers().size());
  EXPECT_EQ(configuration.shutdown_grace, absl::Seconds(20));
  EXPECT_EQ(configuration.max_payload_bytes, 1 << 20);
  EXPECT_TRUE(configuration.create_queues);
  EXPECT_FALSE(configuration.allow_unauthenticated);
  EXPECT_NE(configuration.replica_name, MakeReplicaName());
}

TEST_F(ConfigurationTest, AFlagWinsOverTheEnvironmentAndThatOverTheFile) {
  WriteFile("log-level = \"debug\"\ndatabase_connections = 5\nshutdown-grace = \"3s\"\n[promoter]\nbatch = 50\n");
  environment_["TENURE_LOG_LEVEL"] = "warn";
  environment_["TENURE_DATABASE_CONNECTIONS"] = "6";
  environment_["TENURE_PROMOTER_BATCH"] = "60";
  given_.flags["log-level"] = "error";
  given_.set = {"promoter.batch=70"};
  const Resolved resolved = Get();
  EXPECT_EQ(resolved.configuration.log_level, "error");
  EXPECT_EQ(resolved.configuration.database_connections, 6);
  EXPECT_EQ(resolved.configuration.shutdown_grace, absl::Seconds(3));
  EXPECT_EQ(resolved.configuration.tunables.Count("promoter.batch"), 70);
  EXPECT_EQ(Find(resolved, "log-level").source, Source::kFlag);
  EXPECT_EQ(Find(resolved, "database-connections").source, Source::kEnvironment);
  EXPECT_EQ(Find(resolved, "shutdown-grace").source, Source::kFile);
  EXPECT_EQ(Find(resolved, "grpc-listen").source, Source::kDefault);
  EXPECT_EQ(Find(resolved, "promoter.batch").value, "70");
}

TEST_F(ConfigurationTest, ATunableInTheFileIsNamedWholeOrInItsSection) {
  WriteFile("promoter.batch = 50\n[retention]\nhistory_days = 14\n");
  const Configuration configuration = Get().configuration;
  EXPECT_EQ(configuration.tunables.Count("promoter.batch"), 50);
  EXPECT_EQ(configuration.tunables.Count("retention.history_days"), 14);
}

TEST_F(ConfigurationTest, AnEmptyBackgroundMeansNone) {
  environment_["TENURE_BACKGROUND"] = "";
  EXPECT_TRUE(Get().configuration.background.empty());
}

TEST_F(ConfigurationTest, EveryBadValueNamesItsSettingWhereItWasGivenAndTheRule) {
  const std::vector<std::tuple<std::string, std::string, std::string>> bad = {
      {"grpc-listen", "8470", "HOST:PORT"},
      {"http-listen", "localhost:99999", "HOST:PORT"},
      {"database-url", "", "must not be empty"},
      {"database-url", "mysql", "postgres://"},
      {"data-dir", "", "must not be empty"},
      {"database-connections", "2", "from 3 to 200"},
      {"database-connections", "x", "whole number"},
      {"migrate", "maybe", "true or false"},
      {"background", "repaer", "reaper"},
      {"max-payload-bytes", "0", "from 1"},
      {"shutdown-grace", "20", "20s"},
      {"shutdown-grace", "1h", "10m"},
      {"replica-name", "a b", "printable"},
      {"log-format", "xml", "text or json"},
      {"log-level", "loud", "debug, info"},
      {"no-queue-creation", "", "true or false"}};
  for (const auto& [name, value, rule] : bad) {
    given_.flags = {{name, value}};
    EXPECT_THAT(Error(), HasSubstr("--" + name + ": "));
    EXPECT_THAT(Error(), HasSubstr(rule));
    given_.flags.clear();
    environment_[background::EnvironmentName(name)] = value;
    EXPECT_THAT(Error(), HasSubstr(background::EnvironmentName(name) + ": "));
    environment_.erase(background::EnvironmentName(name));
  }
}

TEST_F(ConfigurationTest, BadTunables) {
  given_.set = {"promoter.batch"};
  EXPECT_THAT(Error(), HasSubstr("NAME=VALUE"));
  given_.set = {"promoter.bacth=5"};
  EXPECT_THAT(Error(), HasSubstr("promoter.batch"));
  given_.set = {"promoter.batch=0"};
  EXPECT_THAT(Error(), HasSubstr("--set promoter.batch: must be a whole number from 1 row to 10000 rows"));
  given_.set.clear();
  environment_["TENURE_REAPER_INTERVAL"] = "1";
  EXPECT_THAT(Error(), HasSubstr("TENURE_REAPER_INTERVAL: must be a duration"));
}

TEST_F(ConfigurationTest, BadFiles) {
  WriteFile("log-levle = \"info\"\n");
  EXPECT_THAT(Error(), HasSubstr("log-levle"));
  WriteFile("log-level = \"loud\"\n");
  EXPECT_THAT(Error(), HasSubstr("log-level in "));
  WriteFile("log-level = \"info\"\nlog_level = \"warn\"\n");
  EXPECT_THAT(Error(), HasSubstr("given twice"));
  std::filesystem::remove(given_.file);
  EXPECT_THAT(Error(), HasSubstr("cannot read"));
  given_.file.clear();
  environment_["TENURE_CONFIG"] = "/nonexistent/tenure.toml";
  EXPECT_THAT(Error(), HasSubstr("cannot read /nonexistent/tenure.toml"));
}

TEST_F(ConfigurationTest, ListeningBeyondThisMachineWantsToBeSaid) {
  for (const char* address : {"0.0.0.0:8470", ":8470", "[::]:8470", "10.0.0.1:0", "example.com:8470"}) {
    given_.flags = {{"grpc-listen", address}};
    const absl::Status status = CheckExposure(Get().configuration);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << address;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--allow-unauthenticated"));
    given_.flags = {{"http-listen", address}};
    EXPECT_EQ(CheckExposure(Get().configuration).code(), absl::StatusCode::kInvalidArgument) << address;
    given_.flags["allow-unauthenticated"] = "true";
    EXPECT_EQ(CheckExposure(Get().configuration), absl::OkStatus());
  }
  for (const char* address : {"127.0.0.1:8470", "localhost:8470", "[::1]:0", "127.1.2.3:1"}) {
    given_.flags = {{"grpc-listen", address}};
    EXPECT_EQ(CheckExposure(Get().configuration), absl::OkStatus()) << address;
  }
}

TEST_F(ConfigurationTest, PasswordsAreNeverShown) {
  const std::vector<std::pair<std::string, std::string>> urls = {
      {"postgres://u:secret@h:5432/d", "postgres://u:***@h:5432/d"},
      {"postgres://u:se:cr@et@h/d?x=1", "postgres://u:***@h/d?x=1"},
      {"postgresql://u@h/d?password=secret&x=1", "postgresql://u@h/d?password=***&x=1"},
      {"host=h password=secret user=u", "host=h password=*** user=u"},
      {"host=h password='se cr\\'et' user=u", "host=h password=*** user=u"},
      {"postgres://u@h/d", "postgres://u@h/d"},
      {"postgres://h:5432/d", "postgres://h:5432/d"},
      {"", ""}};
  for (const auto& [url, shown] : urls) EXPECT_EQ(RedactUrl(url), shown);
  environment_["TENURE_DATABASE_URL"] = "postgres://u:secret@h/d";
  const Resolved resolved = Get();
  EXPECT_EQ(resolved.configuration.database_url, "postgres://u:secret@h/d");
  EXPECT_EQ(Find(resolved, "database-url").value, "postgres://u:***@h/d");
  EXPECT_FALSE(resolved.configuration.migrate);
}

TEST_F(ConfigurationTest, EverySettingIsDescribed) {
  for (const Setting& setting : AllSettings()) {
    EXPECT_FALSE(setting.help.empty()) << setting.name;
    EXPECT_FALSE(setting.unit.empty()) << setting.name;
    EXPECT_FALSE(setting.default_text.empty()) << setting.name;
    EXPECT_THAT(setting.environment, ::testing::StartsWith("TENURE_"));
    EXPECT_EQ(setting.range.empty(), !setting.tunable) << setting.name;
  }
}

}  // namespace
}  // namespace tenure::app
