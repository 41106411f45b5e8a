// docs/errors.md is the table of all reasons: every reason that the source makes is in it, and what is in it exists.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

#include "server/rpc/status_mapping.h"

namespace tenure {
namespace {

namespace fs = std::filesystem;

std::string Read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<fs::path> Sources() {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(TENURE_SOURCE_DIR) / "server")) {
    if (entry.path().extension() == ".cc" || entry.path().extension() == ".h") paths.push_back(entry.path());
  }
  return paths;
}

std::set<std::string> Documented() {
  std::set<std::string> reasons;
  const std::string text = Read(fs::path(TENURE_SOURCE_DIR) / "docs" / "errors.md");
  const std::regex row("\n\\| `([A-Z][A-Z0-9_]*)` \\|");
  for (std::sregex_iterator it(text.begin(), text.end(), row), end; it != end; ++it) {
    EXPECT_TRUE(reasons.insert((*it)[1]).second) << (*it)[1] << " is listed twice";
  }
  return reasons;
}

// The text of the call that begins at `open` (its parenthesis).
std::string CallText(const std::string& source, size_t open) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = open; i < source.size(); ++i) {
    const char c = source[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '(') {
      ++depth;
    } else if (c == ')' && --depth == 0) {
      return source.substr(open, i - open);
    }
  }
  return "";
}

// The literal reason of each call of MakeError (its second argument) and of InvalidField (its third).
std::set<std::string> Used() {
  std::set<std::string> reasons;
  const std::regex call("\\b(MakeError|InvalidField)\\(");
  const std::regex literal("\"([A-Z][A-Z0-9_]*[A-Z0-9])\"");
  for (const fs::path& path : Sources()) {
    const std::string source = Read(path);
    for (std::sregex_iterator it(source.begin(), source.end(), call), end; it != end; ++it) {
      const std::string text = CallText(source, static_cast<size_t>(it->position() + it->length()) - 1);
      std::smatch found;
      if (std::regex_search(text, found, literal)) reasons.insert(found[1]);
    }
  }
  return reasons;
}

TEST(ErrorsDoc, EveryReasonInTheSourceIsDocumented) {
  const std::set<std::string> documented = Documented();
  const std::set<std::string> used = Used();
  ASSERT_GT(used.size(), 10u) << "the search finds too little to be right";
  for (const std::string& reason : used) {
    EXPECT_TRUE(documented.contains(reason)) << reason << " is made in server/ but missing from docs/errors.md";
  }
}

TEST(ErrorsDoc, EveryDocumentedReasonIsInTheSource) {
  std::string all;
  for (const fs::path& path : Sources()) all += Read(path);
  for (const std::string& reason : Documented()) {
    EXPECT_NE(all.find("\"" + reason + "\""), std::string::npos)
        << reason << " is in docs/errors.md but nowhere in server/";
  }
}

}  // namespace
}  // namespace tenure
