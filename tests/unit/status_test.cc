// The statuses that carry facts for programs from one layer to the next.
#include "server/base/status.h"

#include <gtest/gtest.h>

#include <string>

namespace tenure {
namespace {

absl::Status Twice(const absl::StatusOr<int>& in, int& out) {
  TENURE_ASSIGN_OR_RETURN(out, in);
  out *= 2;
  return absl::OkStatus();
}

absl::Status Checked(absl::Status status, bool& went_on) {
  TENURE_RETURN_IF_ERROR(status);
  went_on = true;
  return absl::OkStatus();
}

TEST(Status, MakeErrorCarriesItsFacts) {
  const absl::Status status = MakeError(absl::StatusCode::kFailedPrecondition, "LEASE_HELD", "worker a holds it",
                                        {{"holder", "a"}, {"until", "2026-01-01T00:00:00Z"}}, absl::Milliseconds(1500));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "worker a holds it");
  const ErrorDetails details = DetailsOf(status);
  EXPECT_EQ(details.reason, "LEASE_HELD");
  EXPECT_EQ(details.metadata, (std::map<std::string, std::string>{{"holder", "a"}, {"until", "2026-01-01T00:00:00Z"}}));
  ASSERT_TRUE(details.retry_after.has_value());
  EXPECT_EQ(*details.retry_after, absl::Milliseconds(1500));
}

TEST(Status, MetadataMayBeEmptyAndHoldAnyTextWithoutNul) {
  const ErrorDetails details =
      DetailsOf(MakeError(absl::StatusCode::kInternal, "R", "m", {{"empty", ""}, {"text", "a\nb=\"ü\""}}));
  EXPECT_EQ(details.metadata, (std::map<std::string, std::string>{{"empty", ""}, {"text", "a\nb=\"ü\""}}));
  EXPECT_FALSE(details.retry_after.has_value());
}

TEST(Status, FactsSurviveACopyOfTheStatus) {
  absl::Status copy;
  {
    const absl::Status status = MakeError(absl::StatusCode::kNotFound, "JOB_NOT_FOUND", "m");
    copy = status;
  }
  EXPECT_EQ(DetailsOf(copy).reason, "JOB_NOT_FOUND");
}

TEST(Status, AStatusOfAnotherMakeHasNoFacts) {
  for (const absl::Status& status : {absl::OkStatus(), absl::InternalError("m")}) {
    const ErrorDetails details = DetailsOf(status);
    EXPECT_EQ(details.reason, "");
    EXPECT_TRUE(details.metadata.empty());
    EXPECT_FALSE(details.retry_after.has_value());
  }
}

TEST(Status, InvalidFieldNamesTheFieldAndTheRule) {
  const absl::Status status = InvalidField("jobs[3].kind", "must not be empty");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "jobs[3].kind: must not be empty");
  const ErrorDetails details = DetailsOf(status);
  EXPECT_EQ(details.reason, "INVALID_FIELD");
  EXPECT_EQ(details.metadata.at("field"), "jobs[3].kind");
  EXPECT_EQ(details.metadata.at("rule"), "must not be empty");
  EXPECT_EQ(DetailsOf(InvalidField("payload", "too large", "PAYLOAD_TOO_LARGE")).reason, "PAYLOAD_TOO_LARGE");
}

TEST(Status, TheMacrosLeaveOnAnError) {
  int out = 0;
  EXPECT_TRUE(Twice(21, out).ok());
  EXPECT_EQ(out, 42);
  EXPECT_EQ(Twice(absl::NotFoundError("gone"), out).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(out, 42);
  bool went_on = false;
  EXPECT_FALSE(Checked(absl::AbortedError("m"), went_on).ok());
  EXPECT_FALSE(went_on);
  EXPECT_TRUE(Checked(absl::OkStatus(), went_on).ok());
  EXPECT_TRUE(went_on);
}

}  // namespace
}  // namespace tenure
