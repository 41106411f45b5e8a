// What tenured says to a wrong command line: the option, the rule, exit status 2. Layer: tests.
#include "server/app/command_line.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/store/postgres/migrator.h"

namespace tenure::app {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Ran {
  int status;
  std::string err;
};

Ran RunTenured(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "tenured");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  ::testing::internal::CaptureStderr();
  const int status = RunCommandLine(static_cast<int>(argv.size()), argv.data());
  return {status, ::testing::internal::GetCapturedStderr()};
}

TEST(CommandLine, AVersionOutOfRangeIsAUsageErrorThatNamesTheRange) {
  const std::string range = "from 0 to " + std::to_string(store::postgres::Migrator::NewestVersion());
  for (const char* direction : {"up", "down"}) {
    for (const char* version : {"-1", "x", "1.5", "99999999999", "1000"}) {
      const Ran ran = RunTenured({"migrate", direction, "--to", version});
      EXPECT_EQ(ran.status, 2) << direction << ' ' << version;
      EXPECT_THAT(ran.err, StartsWith("--to: must be a version " + range + ", not " + version)) << direction;
    }
  }
  const Ran missing = RunTenured({"migrate", "down"});
  EXPECT_EQ(missing.status, 2);
  EXPECT_THAT(missing.err, HasSubstr("--to is required"));
}

TEST(CommandLine, UnknownWordsAreUsageErrors) {
  EXPECT_EQ(RunTenured({"serve", "--no-such-flag"}).status, 2);
  EXPECT_THAT(RunTenured({"frobnicate"}).err, HasSubstr("frobnicate"));
  EXPECT_EQ(RunTenured({}).status, 2);
}

}  // namespace
}  // namespace tenure::app
