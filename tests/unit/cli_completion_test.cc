// Shell completion, generated from the command tree. Bash is there on each machine that builds; zsh and fish are tried
// where they are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cli/app.h"
#include "client/cli/child_process.h"
#include "client/cli/completion.h"

namespace tenure::cli {
namespace {

using ::testing::Contains;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

class CliCompletion : public testing::Test {
 protected:
  CliCompletion() : context_({in_, out_, err_}), tree_(MakeCommandTree(context_)) {}

  static ChildResult Shell(const std::string& command, const std::string& input) {
    ChildSpec spec;
    spec.command = command;
    spec.input = input;
    const absl::StatusOr<ChildResult> result = RunChild(spec, {});
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : ChildResult();
  }

  static bool Has(const std::string& program) { return Shell("command -v " + program, "").exit_status == 0; }

  // What bash offers for a line whose last word is being typed.
  std::vector<std::string> Bash(const std::vector<std::string>& words) {
    std::string script = BashCompletion(*tree_);
    absl::StrAppend(&script, "\nCOMP_WORDS=(");
    for (const std::string& word : words) absl::StrAppend(&script, "'", word, "' ");
    absl::StrAppend(&script, ")\nCOMP_CWORD=", words.size() - 1, "\n_tenurectl\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n");
    const ChildResult result = Shell("bash -eu", script);
    EXPECT_EQ(result.exit_status, 0) << result.error_tail;
    EXPECT_EQ(result.error_tail, "");
    return absl::StrSplit(result.output, '\n', absl::SkipEmpty());
  }

  std::istringstream in_;
  std::ostringstream out_, err_;
  Context context_;
  std::unique_ptr<CLI::App> tree_;
};

TEST_F(CliCompletion, BashOffersCommandsAndOptions) {
  EXPECT_THAT(Bash({"tenurectl", ""}),
              IsSupersetOf({"queue", "job", "claim", "work", "top", "doctor", "--server", "--json"}));
  EXPECT_THAT(Bash({"tenurectl", "qu"}), UnorderedElementsAre("queue"));
  EXPECT_THAT(Bash({"tenurectl", "queue", "p"}), UnorderedElementsAre("pause"));
  EXPECT_THAT(Bash({"tenurectl", "--json", "job", ""}), IsSupersetOf({"enqueue", "get", "list", "cancel", "retry"}));
  EXPECT_THAT(Bash({"tenurectl", "job", "list", "--cr"}), UnorderedElementsAre("--created-after", "--created-before"));
  EXPECT_THAT(Bash({"tenurectl", "claim", "--s"}), UnorderedElementsAre("--server"));
}

TEST_F(CliCompletion, BashOffersNothingWhereAValueIsExpected) {
  EXPECT_THAT(Bash({"tenurectl", "claim", "--lease", ""}), testing::IsEmpty());
  EXPECT_THAT(Bash({"tenurectl", "job", "enqueue", "--file", "/etc/host"}), Contains("/etc/hosts"));
}

TEST_F(CliCompletion, NamesEveryCommandInEachShell) {
  const std::string bash = BashCompletion(*tree_), zsh = ZshCompletion(*tree_), fish = FishCompletion(*tree_);
  for (const CLI::App* command : tree_->get_subcommands([](const CLI::App*) { return true; })) {
    EXPECT_THAT(bash, testing::HasSubstr(command->get_name()));
    EXPECT_THAT(zsh, testing::HasSubstr(command->get_name()));
    EXPECT_THAT(fish, testing::HasSubstr(command->get_name()));
  }
}

TEST_F(CliCompletion, ZshOffersCommandsAndOptions) {
  if (!Has("zsh")) GTEST_SKIP() << "zsh is not installed";
  // The completion system hands over the words and takes the candidates; stand-ins do that here.
  const ChildResult result = Shell(
      "zsh -f /dev/stdin", absl::StrCat("compdef() { }\n_describe() { print -l -- ${(P)2} }\n", ZshCompletion(*tree_),
                                        "words=(tenurectl queue p); CURRENT=3; _tenurectl\n"
                                        "words=(tenurectl job list --c); CURRENT=4; _tenurectl\n"
                                        "words=(tenurectl claim --lease ''); CURRENT=4; _tenurectl\n"));
  EXPECT_EQ(result.exit_status, 0) << result.error_tail;
  EXPECT_EQ(result.error_tail, "");
  EXPECT_THAT(result.output, testing::HasSubstr("pause:Serve no further claims"));
  EXPECT_THAT(result.output, testing::HasSubstr("--created-after:"));
  EXPECT_THAT(result.output, Not(testing::HasSubstr("--token-only")));
}

TEST_F(CliCompletion, FishOffersCommandsAndOptions) {
  if (!Has("fish")) GTEST_SKIP() << "fish is not installed";
  const ChildResult result =
      Shell("fish", FishCompletion(*tree_) +
                        "\ncomplete -C 'tenurectl queue p'\ncomplete -C 'tenurectl job list --created-'\n");
  EXPECT_EQ(result.exit_status, 0) << result.error_tail;
  EXPECT_THAT(result.output, testing::HasSubstr("pause"));
  EXPECT_THAT(result.output, testing::HasSubstr("--created-after"));
  EXPECT_THAT(result.output, Not(testing::HasSubstr("enqueue")));
}

}  // namespace
}  // namespace tenure::cli
