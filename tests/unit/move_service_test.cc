// MoveService over JSON: which fields it refuses and with which words, what reaches the engine, and how its answers
// look. Layer: tests.
#include "server/rpc/move_service.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/service_fixture.h"

namespace tenure::rpc {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class MoveServiceTest : public testing::ServiceFixture<MoveService> {
 protected:
  MoveServiceTest() : ServiceFixture("MoveService") {}
};

TEST_F(MoveServiceTest, RefusedFieldsAreNamedWithTheirRule) {
  const auto create = [](const std::string& rest) {
    return absl::StrCat(R"({"spec":{"fromQueue":"a","toQueue":"b","source":"MOVE_SOURCE_BACKLOG")", rest, "}}");
  };
  struct Bad {
    std::string method, body, message;
  };
  const Bad rows[] = {
      {"CreateMove", "{}", "spec.from_queue: "},
      {"CreateMove", R"({"spec":{"fromQueue":"a b"}})", "spec.from_queue: "},
      {"CreateMove", R"({"spec":{"fromQueue":"a"}})", "spec.to_queue: "},
      {"CreateMove", R"({"spec":{"fromQueue":"a","toQueue":"b"}})", "spec.source: is required"},
      {"CreateMove", R"({"spec":{"fromQueue":"a","toQueue":"a","source":"MOVE_SOURCE_BACKLOG"}})",
       "spec.to_queue: must differ from from_queue"},
      {"CreateMove", create(R"(,"kinds":["k",""])"), "spec.kinds[1]: "},
      {"CreateMove", create(R"(,"jobsPerSecond":100001)"), "spec.jobs_per_second: "},
      {"CreateMove", create(R"(,"jobsPerSecond":-1)"), "spec.jobs_per_second: "},
      {"CreateMove", create(R"(,"maxInFlight":10001)"), "spec.max_in_flight: "},
      {"GetMove", "{}", "id: is required"},
      {"PauseMove", R"({"id":"x"})", "id: is required: the id of a move"},
      {"ResumeMove", R"({"id":"0"})", "id: is required"},
      {"CancelMove", R"({"id":"-1"})", "id: is required"},
      {"ListMoves", R"({"pageSize":1001})", "page_size: "},
      {"ListMoves", R"({"pageToken":"x"})", "page_token: "},
  };
  for (const Bad& bad : rows) {
    SCOPED_TRACE(bad.body);
    const JsonAnswer answer = Post(bad.method, bad.body);
    EXPECT_EQ(answer.http_status, 400) << answer.body;
    EXPECT_THAT(answer.body, HasSubstr(bad.message));
  }
  std::string kinds = R"("k")";
  for (int i = 0; i < 100; ++i) kinds += R"(,"k")";
  EXPECT_THAT(Post("CreateMove", create(absl::StrCat(R"(,"kinds":[)", kinds, "]"))).body, HasSubstr("spec.kinds: "));
}

TEST_F(MoveServiceTest, WhatIsAskedReachesTheEngineAndItsAnswerTheCaller) {
  store::MoveSpec asked;
  std::string request_id;
  engine_.create_move = [&](store::MoveSpec spec, std::string id, auto done) {
    asked = spec;
    request_id = std::move(id);
    store::Move move;
    move.id = 12;
    move.spec = std::move(spec);
    move.moved = 3;
    move.last_error = "why";
    done(move);
  };
  const JsonAnswer answer =
      Post("CreateMove", R"({"spec":{"fromQueue":"a","toQueue":"a","source":"MOVE_SOURCE_DEAD_LETTERS",)"
                         R"("kinds":["k","l"],"jobsPerSecond":50},"requestId":"r"})");
  ASSERT_EQ(answer.http_status, 200) << answer.body;
  EXPECT_EQ(asked.from, "a");
  EXPECT_EQ(asked.to, "a");
  EXPECT_EQ(asked.source, store::MoveSource::kDeadLetters);
  EXPECT_THAT(asked.kinds, ElementsAre("k", "l"));
  EXPECT_EQ(asked.rate, 50);
  EXPECT_FALSE(asked.max_in_flight.has_value());
  EXPECT_EQ(request_id, "r");
  EXPECT_THAT(answer.body, HasSubstr(R"("id":"12")"));
  EXPECT_THAT(answer.body, HasSubstr(R"("state":"MOVE_STATE_RUNNING")"));
  EXPECT_THAT(answer.body, HasSubstr(R"("movedJobs":"3")"));
  EXPECT_THAT(answer.body, HasSubstr(R"("lastError":"why")"));
  EXPECT_THAT(answer.body, Not(HasSubstr("endTime")));
}

TEST_F(MoveServiceTest, TheVerbsSetTheirStates) {
  std::vector<std::pair<int64_t, store::MoveState>> set;
  engine_.set_move_state = [&](int64_t id, store::MoveState state, auto done) {
    set.emplace_back(id, state);
    done(store::Move{.id = id, .state = state});
  };
  EXPECT_EQ(Post("PauseMove", R"({"id":"1"})").http_status, 200);
  EXPECT_EQ(Post("ResumeMove", R"({"id":"2"})").http_status, 200);
  EXPECT_THAT(Post("CancelMove", R"({"id":"3"})").body, HasSubstr("MOVE_STATE_CANCELLED"));
  EXPECT_THAT(set, ElementsAre(std::pair(int64_t{1}, store::MoveState::kPaused),
                               std::pair(int64_t{2}, store::MoveState::kRunning),
                               std::pair(int64_t{3}, store::MoveState::kCancelled)));
}

TEST_F(MoveServiceTest, ListsInPages) {
  std::vector<int64_t> before;
  engine_.list_moves = [&](int64_t from, int limit, auto done) {
    before.push_back(from);
    std::vector<store::Move> moves;
    for (int64_t id = from == 0 ? 5 : from - 1; id > 0 && static_cast<int>(moves.size()) < limit; --id) {
      moves.push_back({.id = id});
    }
    done(std::move(moves));
  };
  const JsonAnswer first = Post("ListMoves", R"({"pageSize":3})");
  EXPECT_THAT(first.body, HasSubstr(R"("id":"3")"));
  EXPECT_THAT(first.body, Not(HasSubstr(R"("id":"2")")));
  const size_t at = first.body.find(R"("nextPageToken":")");
  ASSERT_NE(at, std::string::npos);
  const std::string token = first.body.substr(at + 17, first.body.find('"', at + 17) - at - 17);
  const JsonAnswer second = Post("ListMoves", absl::StrCat(R"({"pageSize":3,"pageToken":")", token, R"("})"));
  EXPECT_THAT(second.body, HasSubstr(R"("id":"2")"));
  EXPECT_THAT(second.body, Not(HasSubstr("nextPageToken")));
  EXPECT_THAT(before, ElementsAre(0, 3));
}

}  // namespace
}  // namespace tenure::rpc
