// docs/tenurectl.md names every command and option that tenurectl has, in the section of its command, with an example;
// and no option that it has not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/cli/app.h"
#include "client/cli/context.h"

namespace tenure::cli {
namespace {

using ::testing::HasSubstr;

constexpr char kGlobal[] = "Options of every command";

class CliDoc : public testing::Test {
 protected:
  CliDoc() : context_({in_, out_, err_}), tree_(MakeCommandTree(context_)) {
    std::ifstream page(TENURE_SOURCE_DIR "/docs/tenurectl.md");
    std::string heading;
    for (std::string line; std::getline(page, line);) {
      if (line.rfind("## ", 0) == 0) {
        heading = line.substr(3);
        EXPECT_TRUE(sections_.emplace(heading, "").second) << heading << " is there twice";
      } else {
        absl::StrAppend(&sections_[heading], line, "\n");
      }
    }
    EXPECT_GT(sections_.size(), 10u) << "docs/tenurectl.md is not there or has no sections";
  }

  // Calls `see(path, command)` for each command that does something; path is "job enqueue". Groups are not.
  template <typename See>
  static void EachCommand(const CLI::App& app, const std::string& path, See see) {
    const auto below = app.get_subcommands([](const CLI::App*) { return true; });
    // The shells of `completion` are rather its argument.
    if (below.empty() || path == "completion") return see(path, app);
    for (const CLI::App* command : below) {
      EachCommand(*command, absl::StrCat(path, path.empty() ? "" : " ", command->get_name()), see);
    }
  }

  static std::set<std::string> OptionsOf(const CLI::App& app) {
    std::set<std::string> names;
    for (const CLI::Option* option : app.get_options()) {
      for (const std::string& name : option->get_lnames()) names.insert("--" + name);
      for (const std::string& name : option->get_snames()) names.insert("-" + name);
    }
    return names;
  }

  // The options that the text names in `code`.
  static std::set<std::string> NamedIn(const std::string& text) {
    std::set<std::string> names;
    const std::regex option("`(--?[a-z][a-z-]*)`");
    for (std::sregex_iterator it(text.begin(), text.end(), option), end; it != end; ++it) names.insert((*it)[1]);
    return names;
  }

  std::istringstream in_;
  std::ostringstream out_, err_;
  Context context_;
  std::unique_ptr<CLI::App> tree_;
  std::map<std::string, std::string> sections_;
};

TEST_F(CliDoc, EveryCommandHasASectionWithItsOptionsAndAnExample) {
  int commands = 0;
  const std::set<std::string> everywhere = OptionsOf(*tree_);
  EachCommand(*tree_, "", [&](const std::string& path, const CLI::App& command) {
    ++commands;
    const auto section = sections_.find(path);
    ASSERT_NE(section, sections_.end()) << "docs/tenurectl.md has no section \"## " << path << "\"";
    EXPECT_THAT(section->second, HasSubstr("bin/tenurectl " + path)) << "no example of " << path;
    const std::set<std::string> named = NamedIn(section->second);
    std::set<std::string> options = OptionsOf(command);
    for (const std::string& name : options) {
      EXPECT_EQ(named.count(name), everywhere.count(name) == 0 ? 1u : named.count(name)) << path << " takes " << name;
    }
    options.insert(everywhere.begin(), everywhere.end());
    for (const std::string& name : named) EXPECT_EQ(options.count(name), 1u) << path << " does not take " << name;
    for (const CLI::App* word : command.get_subcommands([](const CLI::App*) { return true; })) {
      EXPECT_THAT(section->second, HasSubstr("`" + word->get_name() + "`")) << path;
    }
  });
  EXPECT_GE(commands, 24) << "the walk through the commands has lost some";
}

TEST_F(CliDoc, TheOptionsOfEveryCommandAreNamed) { EXPECT_EQ(NamedIn(sections_[kGlobal]), OptionsOf(*tree_)); }

TEST_F(CliDoc, EveryVariableIsNamed) {
  std::set<std::string> variables;
  const auto add = [&](const CLI::App& app) {
    for (const CLI::Option* option : app.get_options()) {
      if (!option->get_envname().empty()) variables.insert(option->get_envname());
    }
  };
  add(*tree_);
  EachCommand(*tree_, "", [&](const std::string&, const CLI::App& command) { add(command); });
  EXPECT_GE(variables.size(), 3u);
  for (const std::string& name : variables) {
    EXPECT_THAT(sections_["Environment"], HasSubstr("| `" + name + "` |"));
  }
}

}  // namespace
}  // namespace tenure::cli
