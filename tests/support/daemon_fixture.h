// Daemons that share the database of a StoreTest, and clients of them. Layer: tests; needs TENURE_BINARY_DIR.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tenure/client.h"
#include "tests/support/daemon.h"
#include "tests/support/store_fixture.h"

namespace tenure::testing {

inline client::Client ConnectTo(const std::string& address) {
  client::ClientOptions options;
  options.targets = {address};
  return *client::Client::Connect(options);
}

class DaemonFixture : public StoreTest {
 protected:
  static client::Client Connect(const std::string& address) { return ConnectTo(address); }
  // In this process.
  std::unique_ptr<TestDaemon> Start() {
    TestDaemonOptions options;
    options.database_url = database_.url();
    return std::make_unique<TestDaemon>(options);
  }
  // The real one, which can be killed; ready.
  std::unique_ptr<DaemonProcess> StartProcess() {
    DaemonProcessOptions options;
    options.binary = TENURE_BINARY_DIR "/bin/tenured";
    options.arguments = {"--database-url", database_.url()};
    auto daemon = std::make_unique<DaemonProcess>(options);
    EXPECT_TRUE(daemon->AwaitReady()) << daemon->Log();
    return daemon;
  }
};

}  // namespace tenure::testing
