// JSON calls of all services in front of a fake engine. Layer: tests.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>

#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "server/rpc/admin_service.h"
#include "server/rpc/job_service.h"
#include "server/rpc/json_dispatch.h"
#include "server/rpc/limit_service.h"
#include "server/rpc/method_table.h"
#include "server/rpc/move_service.h"
#include "server/rpc/queue_service.h"
#include "server/rpc/schedule_service.h"
#include "server/rpc/target_service.h"
#include "server/rpc/worker_service.h"
#include "tests/support/fake_engine.h"
#include "tests/support/manual_clock.h"

namespace tenure::testing {

class JsonTest : public ::testing::Test {
 protected:
  JsonTest() {
    jobs_.Register(methods_);
    workers_.Register(methods_);
    queues_.Register(methods_);
    schedules_.Register(methods_);
    targets_.Register(methods_);
    moves_.Register(methods_);
    limits_.Register(methods_);
    admin_.Register(methods_);
  }

  // For engines that answer at once.
  rpc::JsonAnswer Post(const std::string& path, const std::string& body) {
    std::optional<rpc::JsonAnswer> answer;
    int answers = 0;
    auto call = dispatcher_.Call({.path = path, .body = body, .timeout = {}, .peer = "test"}, [&](rpc::JsonAnswer a) {
      answer = std::move(a);
      ++answers;
    });
    EXPECT_EQ(answers, 1);
    EXPECT_NE(call, nullptr);
    return answer.value_or(rpc::JsonAnswer{});
  }

  static google::protobuf::Struct Json(const std::string& text) {
    google::protobuf::Struct out;
    EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(text, &out).ok()) << text;
    return out;
  }

  static std::string Field(const rpc::JsonAnswer& answer, const std::string& name) {
    return Json(answer.body).fields().at(name).string_value();
  }

  FakeEngine engine_;
  ManualClock clock_;
  Metrics metrics_;
  rpc::MethodTable methods_{clock_, metrics_};
  rpc::JobService jobs_{engine_, rpc::Limits{.max_payload_bytes = 1000}};
  rpc::WorkerService workers_{engine_, rpc::Limits()};
  rpc::QueueService queues_{engine_};
  rpc::ScheduleService schedules_{engine_, rpc::Limits{.max_payload_bytes = 1000}};
  rpc::TargetService targets_{engine_};
  rpc::MoveService moves_{engine_};
  rpc::LimitService limits_{engine_};
  rpc::AdminService admin_{engine_};
  rpc::JsonDispatcher dispatcher_{methods_};
};

}  // namespace tenure::testing
