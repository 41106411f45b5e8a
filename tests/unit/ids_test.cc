// Job ids and lease tokens: one spelling each, read back exactly, everything else refused with the field's name.
#include "server/store/ids.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <unordered_set>
#include <vector>

#include "absl/hash/hash.h"
#include "server/base/status.h"

namespace tenure::store {
namespace {

TEST(Ids, JobIdsAreReadBackAsWritten) {
  const struct {
    JobId id;
    std::string text;
  } cases[] = {
      {{0, 0, 0}, "0-0-0"},
      {{7, 20786, 123456}, "7-20786-123456"},
      {{std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::max(), std::numeric_limits<int64_t>::max()},
       "2147483647-2147483647-9223372036854775807"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(c.id.ToString(), c.text);
    auto parsed = JobId::Parse(c.text, "id");
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, c.id);
  }
}

TEST(Ids, MalformedJobIdsAreRefused) {
  const std::vector<std::string> cases = {
      "",
      "7",
      "7-20786",
      "7-20786-",
      "-20786-1",
      "7--1",
      "7-20786-1-2",
      "7-20786-1.3.20786.9f86d081884c7d65",  // A token.
      " 7-20786-1",
      "7-20786-1 ",
      "7-20786-1\n",
      std::string("7-20786-1\0", 10),
      "+7-20786-1",
      "7-20786--1",
      "07-20786-1",  // A second spelling of the same id.
      "7-020786-1",
      "7-20786-01",
      "0x7-20786-1",
      "7-20786-1e3",
      "2147483648-20786-1",
      "7-2147483648-1",
      "7-20786-9223372036854775808",
      "seven-20786-1",
      "７-20786-1",
      std::string(100'000, '1'),
  };
  for (const std::string& text : cases) {
    auto parsed = JobId::Parse(text, "ids[2]");
    ASSERT_FALSE(parsed.ok()) << text.substr(0, 60);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
    const ErrorDetails details = DetailsOf(parsed.status());
    EXPECT_EQ(details.reason, "INVALID_FIELD");
    EXPECT_EQ(details.metadata.at("field"), "ids[2]");
  }
  EXPECT_EQ(JobId::Parse("", "id").status().message(), "id: a job id is required");
}

TEST(Ids, LeaseTokensAreReadBackAsWritten) {
  const struct {
    LeaseToken token;
    std::string text;
  } cases[] = {
      {{{7, 20786, 123456}, 3, 20786, static_cast<int64_t>(0x9f86d081884c7d65)},
       "7-20786-123456.3.20786.9f86d081884c7d65"},
      {{{0, 0, 0}, 0, 0, 0}, "0-0-0.0.0.0000000000000000"},
      {{{1, 2, 3}, 2147483647, 2147483647, -1}, "1-2-3.2147483647.2147483647.ffffffffffffffff"},
      {{{1, 2, 3}, 4, 5, std::numeric_limits<int64_t>::min()}, "1-2-3.4.5.8000000000000000"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(c.token.ToString(), c.text);
    auto parsed = LeaseToken::Parse(c.text, "lease_token");
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, c.token);
  }
}

TEST(Ids, MalformedLeaseTokensAreRefused) {
  const std::vector<std::string> cases = {
      "",
      "7-20786-123456",  // A job id.
      "7-20786-123456.3.20786",
      "7-20786-123456.3.20786.",
      "7-20786-123456.3.20786.9f86d081884c7d6",    // 15 digits.
      "7-20786-123456.3.20786.9f86d081884c7d650",  // 17.
      "7-20786-123456.3.20786.9f86d081884c7d6g",
      "7-20786-123456.3.20786.0x86d081884c7d65",
      "7-20786-123456.3.20786.-f86d081884c7d65",
      "7-20786-123456.3.20786.+f86d081884c7d65",
      "7-20786-123456.3.20786. f86d081884c7d65",
      "7-20786-123456.-3.20786.9f86d081884c7d65",
      "7-20786-123456.03.20786.9f86d081884c7d65",
      "7-20786-123456.3.9f86d081884c7d65",
      "7-20786.3.20786.9f86d081884c7d65",
      ".3.20786.9f86d081884c7d65",
      "7-20786-123456.3.20786.9f86d081884c7d65\n",
      "7-20786-123456.3.20786.9f86d081884c7d65.1",
      "7-20786-123456.2147483648.20786.9f86d081884c7d65",
  };
  for (const std::string& text : cases) {
    auto parsed = LeaseToken::Parse(text, "items[0].lease_token");
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(DetailsOf(parsed.status()).metadata.at("field"), "items[0].lease_token");
  }
  EXPECT_EQ(LeaseToken::Parse("", "t").status().message(), "t: a lease token is required; Claim returns it");
}

TEST(Ids, IdsCompareByQueueDayAndSequenceAndHashAlike) {
  EXPECT_LT((JobId{1, 9, 9}), (JobId{2, 0, 0}));
  EXPECT_LT((JobId{1, 1, 9}), (JobId{1, 2, 0}));
  EXPECT_LT((JobId{1, 1, 1}), (JobId{1, 1, 2}));
  std::unordered_set<JobId, absl::Hash<JobId>> set = {{1, 2, 3}, {1, 2, 3}, {1, 2, 4}};
  EXPECT_EQ(set.size(), 2u);
  LeaseToken a{{1, 2, 3}, 4, 5, 6};
  LeaseToken b = a;
  EXPECT_EQ(a, b);
  b.secret = 7;
  EXPECT_NE(a, b);
}

}  // namespace
}  // namespace tenure::store
