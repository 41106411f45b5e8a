// Daemons that serve targets into a folder, and what they wrote there. Layer: tests; needs TENURE_BINARY_DIR.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tenure/client.h"
#include "tests/support/daemon_fixture.h"
#include "tests/support/eventually.h"
#include "tests/support/unzip.h"

namespace tenure::testing {

namespace fs = std::filesystem;

inline std::string ReadFile(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class TargetFixture : public StoreTest {
 protected:
  TargetFixture() {
    char folder[] = "/tmp/tenure-targets-XXXXXX";
    folder_ = mkdtemp(folder);
  }
  ~TargetFixture() override { fs::remove_all(folder_); }

  std::unique_ptr<TestDaemon> Start(std::vector<std::string> set = {}) {
    TestDaemonOptions options;
    options.database_url = database_.url();
    options.settings = {{"allow-private-targets", "true"}, {"target-directory", folder_}};
    options.environment = {{"AWS_ACCESS_KEY_ID", "AKID"}, {"AWS_SECRET_ACCESS_KEY", "secret"}};
    for (const char* fast : {"event-log.poll_interval=20ms", "export.interval=100ms", "inventory.poll_interval=20ms",
                             "relay.poll_interval=20ms"}) {
      set.emplace_back(fast);
    }
    options.set = std::move(set);
    return std::make_unique<TestDaemon>(options);
  }
  std::unique_ptr<DaemonProcess> StartProcess() {
    DaemonProcessOptions options;
    options.binary = TENURE_BINARY_DIR "/bin/tenured";
    options.arguments = {"--database-url",     database_.url(), "--allow-private-targets",
                         "--target-directory", folder_,         "--set",
                         "event-log.batch=20", "--set",         "export.interval=1s"};
    auto daemon = std::make_unique<DaemonProcess>(options);
    EXPECT_TRUE(daemon->AwaitReady()) << daemon->Log();
    return daemon;
  }
  static client::Client Connect(const std::string& address) { return ConnectTo(address); }
  client::TargetSpec Spec(client::TargetPurpose purpose) const {
    client::TargetSpec spec;
    spec.purpose = purpose;
    spec.url = "file://" + folder_;
    return spec;
  }
  static std::string Enqueue(client::Client& client, const std::string& queue, const std::string& payload = "{}") {
    client::JobSpec spec;
    spec.queue = queue;
    spec.kind = "k";
    spec.payload = client::Payload::Text(payload);
    const auto job = client.Enqueue(spec);
    EXPECT_EQ(job.status(), absl::OkStatus());
    return job.ok() ? job->job_id : "";
  }
  static std::vector<std::string> EndJobs(client::Client& client, int count) {
    std::vector<std::string> ids;
    for (int i = 0; i < count; ++i) {
      ids.push_back(Enqueue(client, "q"));
      EXPECT_EQ(client.Cancel(ids.back()).status(), absl::OkStatus());
    }
    return ids;
  }
  bool AwaitLeader(const std::string& worker) {
    return Eventually(20, [&] {
      return Sql(absl::StrCat("select count(*) from tenure.leader where worker = '", worker,
                              "' and expires_at > now()")) == "1";
    });
  }
  // Files whose path has this in it, in order.
  std::vector<fs::path> Files(const std::string& part) const {
    std::vector<fs::path> files;
    std::error_code ignored;  // A file may be renamed while it is looked at.
    for (auto it = fs::recursive_directory_iterator(folder_, ignored); it != fs::recursive_directory_iterator();
         it.increment(ignored)) {
      if (it->is_regular_file(ignored) && absl::StrContains(it->path().string(), part) &&
          !absl::EndsWith(it->path().string(), ".tmp")) {
        files.push_back(it->path());
      }
    }
    std::sort(files.begin(), files.end());
    return files;
  }
  std::string folder_;
};

}  // namespace tenure::testing
