// One service over JSON, on a fake engine. Layer: tests. One thread at a time.
#pragma once

#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "server/base/metrics.h"
#include "server/rpc/json_dispatch.h"
#include "server/rpc/method_table.h"
#include "tests/support/fake_engine.h"
#include "tests/support/manual_clock.h"

namespace tenure::testing {

template <typename Service>
class ServiceFixture : public ::testing::Test {
 protected:
  // `name` as in the path of its calls: "LimitService". `arguments` follow the engine.
  template <typename... Arguments>
  explicit ServiceFixture(std::string name, Arguments&&... arguments)
      : name_(std::move(name)), service_(engine_, std::forward<Arguments>(arguments)...) {
    service_.Register(methods_);
  }

  rpc::JsonAnswer Post(const std::string& method, const std::string& body) {
    rpc::JsonAnswer out;
    dispatcher_.Call({.path = "/tenure.v1." + name_ + "/" + method, .body = body},
                     [&](rpc::JsonAnswer answer) { out = std::move(answer); });
    return out;
  }

  FakeEngine engine_;

 private:
  const std::string name_;
  ManualClock clock_;
  Metrics metrics_;
  rpc::MethodTable methods_{clock_, metrics_};
  Service service_;
  rpc::JsonDispatcher dispatcher_{methods_};
};

}  // namespace tenure::testing
