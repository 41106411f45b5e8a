// An error's facts on the wire: google.rpc.Status, grpc::Status and ItemError.
#include "server/rpc/status_mapping.h"

#include <grpcpp/support/status.h>
#include <gtest/gtest.h>

#include <string>

#include "server/base/status.h"
#include "server/rpc/text.h"

namespace tenure::rpc {
namespace {

template <typename Detail>
std::optional<Detail> Find(const google::rpc::Status& status) {
  Detail detail;
  for (const auto& any : status.details()) {
    if (any.UnpackTo(&detail)) return detail;
  }
  return std::nullopt;
}

TEST(StatusMapping, ReasonMetadataAndDelayTravelAsDetails) {
  const google::rpc::Status status =
      ToRpcStatus(MakeError(absl::StatusCode::kResourceExhausted, "OVERLOADED", "the line is full",
                            {{"waiting", "200000"}}, absl::Milliseconds(1500)));
  EXPECT_EQ(status.code(), 8);
  EXPECT_EQ(status.message(), "the line is full");
  const auto info = Find<google::rpc::ErrorInfo>(status);
  ASSERT_TRUE(info);
  EXPECT_EQ(info->reason(), "OVERLOADED");
  EXPECT_EQ(info->domain(), "tenure");
  EXPECT_EQ(info->metadata().at("waiting"), "200000");
  const auto retry = Find<google::rpc::RetryInfo>(status);
  ASSERT_TRUE(retry);
  EXPECT_EQ(retry->retry_delay().seconds(), 1);
  EXPECT_EQ(retry->retry_delay().nanos(), 500'000'000);
  EXPECT_FALSE(Find<google::rpc::BadRequest>(status));
}

TEST(StatusMapping, AnInvalidFieldIsABadRequest) {
  const google::rpc::Status status = ToRpcStatus(InvalidField("jobs[3].kind", "is required"));
  EXPECT_EQ(status.code(), 3);
  EXPECT_EQ(status.message(), "jobs[3].kind: is required");
  const auto bad = Find<google::rpc::BadRequest>(status);
  ASSERT_TRUE(bad);
  ASSERT_EQ(bad->field_violations_size(), 1);
  EXPECT_EQ(bad->field_violations(0).field(), "jobs[3].kind");
  EXPECT_EQ(bad->field_violations(0).description(), "is required");
  EXPECT_EQ(Find<google::rpc::ErrorInfo>(status)->reason(), "INVALID_FIELD");
}

TEST(StatusMapping, EveryErrorHasAReason) {
  for (int code = 1; code <= 16; ++code) {
    const auto name = CodeName(static_cast<absl::StatusCode>(code));
    const google::rpc::Status status = ToRpcStatus(absl::Status(static_cast<absl::StatusCode>(code), "x"));
    EXPECT_EQ(status.code(), code);
    EXPECT_EQ(Find<google::rpc::ErrorInfo>(status)->reason(), name);
    v1::ItemError item;
    ToItemError(absl::Status(static_cast<absl::StatusCode>(code), "x"), &item);
    EXPECT_EQ(item.reason(), name);
    EXPECT_EQ(item.code(), code);
  }
}

TEST(StatusMapping, GrpcStatusCarriesTheDetails) {
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
  const grpc::Status status = ToGrpcStatus(MakeError(absl::StatusCode::kNotFound, "JOB_NOT_FOUND", "no job 1-2-3"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status.error_message(), "no job 1-2-3");
  google::rpc::Status decoded;
  ASSERT_TRUE(decoded.ParseFromString(status.error_details()));
  EXPECT_EQ(Find<google::rpc::ErrorInfo>(decoded)->reason(), "JOB_NOT_FOUND");
}

TEST(StatusMapping, ItemErrorHasTheSameFacts) {
  v1::ItemError item;
  ToItemError(MakeError(absl::StatusCode::kFailedPrecondition, "LEASE_HELD", "held", {{"holder", "w"}, {"until", "t"}}),
              &item);
  EXPECT_EQ(item.code(), 9);
  EXPECT_EQ(item.reason(), "LEASE_HELD");
  EXPECT_EQ(item.message(), "held");
  EXPECT_EQ(item.metadata().at("holder"), "w");
  EXPECT_EQ(item.metadata().at("until"), "t");
}

// A message that quotes a caller's bytes must not make the answer impossible to encode, nor outgrow the trailer.
TEST(StatusMapping, MessagesAreSanitisedAndBounded) {
  v1::ItemError item;
  ToItemError(MakeError(absl::StatusCode::kInternal, "INTERNAL",
                        std::string("bad \xFF byte ") + std::string(10'000, 'x'), {{"quoted", "\xFE"}}),
              &item);
  EXPECT_TRUE(IsUtf8(item.message()));
  EXPECT_LE(item.message().size(), 4096u);
  EXPECT_EQ(item.metadata().at("quoted"), "\xEF\xBF\xBD");
}

}  // namespace
}  // namespace tenure::rpc
