// The log lines on stderr, as a person and as a program reads them.
#include "server/base/logging.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "spdlog/spdlog.h"

namespace tenure {
namespace {

class Logging : public ::testing::Test {
 protected:
  void SetUp() override { before_ = spdlog::default_logger(); }
  void TearDown() override { spdlog::set_default_logger(before_); }

  // What `write` puts on stderr.
  template <typename Write>
  static std::string Capture(LogFormat format, std::string_view level, Write write) {
    EXPECT_TRUE(InitLogging(format, level).ok());
    ::testing::internal::CaptureStderr();
    write();
    return ::testing::internal::GetCapturedStderr();
  }

 private:
  std::shared_ptr<spdlog::logger> before_;
};

TEST_F(Logging, AJsonLineIsOneObjectWhateverIsInIt) {
  std::string nasty = "quote \" backslash \\ newline \n return \r tab \t bell \a escape \x1b del \x7f ü {} %s";
  nasty.push_back('\0');
  const std::string out = Capture(LogFormat::kJson, "info", [&] {
    LogWarn("an \"event\"\n", {{"key", nasty}, {"empty", ""}, {"we\"ird", "1"}});
  });
  ASSERT_EQ(std::count(out.begin(), out.end(), '\n'), 1) << out;
  const nlohmann::json line = nlohmann::json::parse(out);
  EXPECT_EQ(line.at("event"), "an \"event\"\n");
  EXPECT_EQ(line.at("key"), nasty);
  EXPECT_EQ(line.at("empty"), "");
  EXPECT_EQ(line.at("we\"ird"), "1");
  EXPECT_EQ(line.at("level"), "warning");
  EXPECT_NE(line.at("time").get<std::string>().find('T'), std::string::npos);
}

TEST_F(Logging, ATextLineQuotesWhatCouldNotBeReadBack) {
  const std::string out = Capture(LogFormat::kText, "info", [] {
    LogInfo("lease reaped",
            {{"queue", "mail"}, {"jobs", "3"}, {"error", "no \"route\"\nto host"}, {"none", ""}, {"e", "a=b"}});
  });
  EXPECT_NE(out.find(R"(lease reaped queue=mail jobs=3 error="no \"route\"\nto host" none="" e="a=b")"),
            std::string::npos)
      << out;
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 1);
}

TEST_F(Logging, LevelsBelowTheLimitAreSilent) {
  const std::string out = Capture(LogFormat::kText, "warn", [] {
    LogDebug("d1");
    LogInfo("i1");
    LogWarn("w1");
    LogError("e1");
  });
  EXPECT_EQ(out.find("d1"), std::string::npos);
  EXPECT_EQ(out.find("i1"), std::string::npos);
  EXPECT_NE(out.find("w1"), std::string::npos);
  EXPECT_NE(out.find("e1"), std::string::npos);
  EXPECT_NE(Capture(LogFormat::kText, "debug", [] { LogDebug("d2"); }).find("d2"), std::string::npos);
  EXPECT_EQ(Capture(LogFormat::kText, "error", [] { LogWarn("w2"); }).find("w2"), std::string::npos);
}

TEST_F(Logging, AnUnknownLevelIsRefused) {
  for (const char* level : {"", "INFO", "trace", "warning"}) {
    const absl::Status status = InitLogging(LogFormat::kText, level);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << level;
    EXPECT_EQ(status.message(), "log level must be debug, info, warn or error");
  }
}

}  // namespace
}  // namespace tenure
