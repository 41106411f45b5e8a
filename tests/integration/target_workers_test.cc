// Event log, export, inventory and relay in whole daemons: what they write, that nothing is doubled or lost when their
// leader is killed, and that retention waits for exports. Layer: tests.
#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/base/status.h"
#include "server/store/postgres/connection.h"
#include "tenure/client.h"
#include "tests/support/daemon.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/http_receiver.h"
#include "tests/support/raw_http.h"
#include "tests/support/store_fixture.h"

namespace tenure::testing {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

std::string ReadFile(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string Unzip(const std::string& bytes) {
  z_stream stream{};
  EXPECT_EQ(inflateInit2(&stream, 15 + 16), Z_OK);
  std::string in = bytes, out(1 << 22, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(in.data());
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(inflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  inflateEnd(&stream);
  return out;
}

class TargetWorkersTest : public StoreTest {
 protected:
  TargetWorkersTest() {
    char folder[] = "/tmp/tenure-targets-XXXXXX";
    folder_ = mkdtemp(folder);
  }
  ~TargetWorkersTest() override { fs::remove_all(folder_); }

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
  static client::Client Connect(const std::string& address) {
    client::ClientOptions options;
    options.targets = {address};
    return *client::Client::Connect(options);
  }
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

class EventLogTest : public TargetWorkersTest {};
class ExportTest : public TargetWorkersTest {};
class InventoryTest : public TargetWorkersTest {};
class RelayTest : public TargetWorkersTest {};

// All events of the log; names without gaps.
std::vector<std::string> ReadLog(const std::vector<fs::path>& files) {
  std::vector<std::string> ids;
  int64_t next = 1;
  for (const fs::path& file : files) {
    const std::vector<std::string> range = absl::StrSplit(file.stem().string(), '-');
    EXPECT_EQ(std::stoll(range[0]), next) << file;
    const std::vector<std::string> lines = absl::StrSplit(ReadFile(file), '\n', absl::SkipEmpty());
    EXPECT_EQ(std::stoll(range[1]), next + static_cast<int64_t>(lines.size()) - 1) << file;
    next += static_cast<int64_t>(lines.size());
    for (const std::string& line : lines) ids.push_back(nlohmann::json::parse(line)["job"]["id"]);
  }
  return ids;
}

TEST_F(EventLogTest, WritesEventsInOrderOneObjectAFlush) {
  const auto daemon = Start({"event-log.batch=4"});
  client::Client client = Connect(daemon->grpc_address());
  client::TargetSpec spec = Spec(client::TargetPurpose::kEventLog);
  spec.interval = 1s;
  ASSERT_EQ(client.CreateTarget("log", spec, /*paused=*/true).status(), absl::OkStatus());
  std::vector<std::string> ids = EndJobs(client, 10);
  ASSERT_EQ(client.ResumeTarget("log").status(), absl::OkStatus());
  ASSERT_TRUE(Eventually(20, [&] { return client.GetTarget("log")->events_total == 10; }));
  EXPECT_EQ(Files("/events/").size(), 3u) << "at most four each";
  EXPECT_EQ(ReadLog(Files("/events/")), ids);
  for (const std::string& id : EndJobs(client, 2)) ids.push_back(id);
  ASSERT_TRUE(Eventually(20, [&] { return client.GetTarget("log")->events_total == 12; }));
  EXPECT_EQ(ReadLog(Files("/events/")), ids);
  std::string metrics;
  HttpGet(daemon->http_port(), "/metrics", &metrics);
  EXPECT_THAT(metrics, ContainsRegex("tenure_target_objects_total.outcome=.written.,purpose=.event-log.. [4-9]"));
  EXPECT_THAT(metrics, ContainsRegex("tenure_target_events_total.outcome=.accepted.,purpose=.event-log.. 12"));
}

TEST_F(EventLogTest, ATargetThatCannotBeWrittenSaysSoAndHoldsNobodyUp) {
  const auto daemon = Start();
  client::Client client = Connect(daemon->grpc_address());
  client::TargetSpec bad = Spec(client::TargetPurpose::kEventLog), good = bad;
  bad.interval = good.interval = 1s;
  bad.url = "file:///somewhere-else";
  ASSERT_EQ(client.CreateTarget("bad", bad).status(), absl::OkStatus());
  ASSERT_EQ(client.CreateTarget("good", good).status(), absl::OkStatus());
  EndJobs(client, 3);
  ASSERT_TRUE(Eventually(20, [&] { return client.GetTarget("good")->events_total == 3; }));
  ASSERT_TRUE(
      Eventually(20, [&] { return absl::StrContains(client.GetTarget("bad")->last_error, "--target-directory"); }));
  std::string metrics;
  ASSERT_TRUE(Eventually(20, [&] {
    HttpGet(daemon->http_port(), "/metrics", &metrics);
    return absl::StrContains(metrics, "tenure_target_breakers_open{purpose=\"event-log\"} 1");
  }));
  client::TargetChange mended;
  mended.url = good.url;
  ASSERT_EQ(client.UpdateTarget("bad", mended).status(), absl::OkStatus());
  EXPECT_TRUE(Eventually(20, [&] { return client.GetTarget("bad")->events_total == 3; }));
}

TEST_F(EventLogTest, AKilledLeaderLeavesNeitherGapsNorDoubles) {
  auto first = StartProcess();
  ASSERT_TRUE(Eventually(20, [&] {
    return Sql("select count(*) from tenure.leader where worker = 'event-log' and expires_at > now()") == "1";
  }));
  auto second = StartProcess();
  client::Client client = Connect(second->grpc_address());
  client::TargetSpec spec = Spec(client::TargetPurpose::kEventLog);
  spec.interval = 1s;
  ASSERT_EQ(client.CreateTarget("log", spec).status(), absl::OkStatus());
  std::vector<std::string> ids = EndJobs(client, 100);
  ASSERT_TRUE(Eventually(30, [&] { return !Files("/events/").empty(); }));
  first->Kill();
  for (const std::string& id : EndJobs(client, 50)) ids.push_back(id);
  ASSERT_TRUE(Eventually(40, [&] { return client.GetTarget("log")->events_total == 150; }));
  EXPECT_EQ(ReadLog(Files("/events/")), ids);
}

TEST_F(ExportTest, NoDayIsDroppedBeforeItIsExported) {
  const auto daemon = Start({"retention.partition_interval=1s", "retention.history_days=1", "export.object_rows=15"});
  client::Client client = Connect(daemon->grpc_address());
  // Not served: it holds everything.
  ASSERT_EQ(client.CreateTarget("held", Spec(client::TargetPurpose::kExport), /*paused=*/true).status(),
            absl::OkStatus());
  std::vector<std::string> ids = EndJobs(client, 40);
  std::sort(ids.begin(), ids.end());
  // As if they had ended 40 days ago.
  Sql("select tenure.ensure_day(tenure.today() - 40)");
  Sql("update tenure.history set ended_on = ended_on - 40");
  const std::string day = Sql("select to_char((now() at time zone 'utc')::date - 40, 'YYYY-MM-DD')");
  const std::string table =
      "tenure.history_" + Sql("select to_char((now() at time zone 'utc')::date - 40, 'YYYYMMDD')");
  const std::string there = absl::StrCat("select to_regclass('", table, "') is not null");
  Sql("select tenure.ensure_day(tenure.today() - 5)");
  const std::string young = "tenure.history_" + Sql("select to_char((now() at time zone 'utc')::date - 5, 'YYYYMMDD')");
  // Retention comes by every second, and would have dropped it.
  const auto rounds = [&] {
    return std::stoll(Sql("select coalesce(sum(runs), 0) from tenure.shard_member where worker = 'retention'"));
  };
  const int64_t before = rounds();
  ASSERT_TRUE(Eventually(30, [&] { return rounds() >= before + 1; }));
  EXPECT_EQ(Sql(there), "t");
  EXPECT_TRUE(Files("/history/").empty());

  ASSERT_EQ(client.CreateTarget("archive", Spec(client::TargetPurpose::kExport)).status(), absl::OkStatus());
  ASSERT_TRUE(Eventually(30, [&] { return !Files(day + "/manifest.json").empty(); }));
  EXPECT_EQ(Sql(there), "t") << "the other target has not got it";
  ASSERT_EQ(client.ResumeTarget("held").status(), absl::OkStatus());
  ASSERT_TRUE(Eventually(30, [&] { return Sql(there) == "f"; }));
  EXPECT_EQ(Sql(absl::StrCat("select to_regclass('", young, "') is not null")), "t") << "not old enough to be exported";

  for (const char* target : {"archive", "held"}) {
    const std::string place = absl::StrCat("/", target, ".");
    std::vector<std::string> exported;
    nlohmann::json manifest;
    for (const fs::path& file : Files(day)) {
      if (!absl::StrContains(file.string(), place) || !absl::StrContains(file.string(), "/history/")) continue;
      if (file.filename() == "manifest.json") {
        manifest = nlohmann::json::parse(ReadFile(file));
        continue;
      }
      for (const auto& line : absl::StrSplit(Unzip(ReadFile(file)), '\n', absl::SkipEmpty())) {
        const auto job = nlohmann::json::parse(std::string(line));
        EXPECT_EQ(job["queue"], "q");
        EXPECT_EQ(job["payload"]["text"], "{}");
        exported.push_back(job["id"]);
      }
    }
    std::sort(exported.begin(), exported.end());
    EXPECT_EQ(exported, ids) << target;
    EXPECT_EQ(manifest["rows"], 40) << target;
    ASSERT_EQ(manifest["objects"].size(), 3u) << target;
    EXPECT_EQ(manifest["objects"][0]["rows"], 15);
  }
}

TEST_F(ExportTest, ADayThatGrewAfterItsExportIsTakenAgain) {
  const int32_t queue = store_->EnsureQueue("q", true)->id;
  const auto fence = store_->AcquireLeader("export", *store_->RegisterReplica("r", "test"), absl::Minutes(5));
  ASSERT_TRUE(fence.ok() && fence->has_value());
  store::TargetSettings settings;
  settings.purpose = store::TargetPurpose::kExport;
  settings.url = "file:///x";
  const auto target = store_->CreateTarget("archive", settings, {}, false);
  ASSERT_EQ(target.status(), absl::OkStatus());
  Sql("select tenure.ensure_day(tenure.today() - 40)");
  const auto days = store_->ListExports(target->id, 30);
  ASSERT_EQ(days.status(), absl::OkStatus());
  ASSERT_EQ(days->size(), 2u) << "history and dead letters";
  const store::DayPartition day = (*days)[0].parent == "history" ? (*days)[0] : (*days)[1];
  EXPECT_EQ(*store_->DropExported(**fence, day), false) << "not taken";
  ASSERT_EQ(store_->RecordExport(**fence, target->id, day, 0), absl::OkStatus());
  // A transaction of that day that ends now.
  Sql(absl::StrCat(
      "insert into tenure.history (ended_on, id, queue_id, state, priority, day, attempt, failures, crashes, "
      "releases, snoozes, token, token_secret, settled_verb, due_at, created_at, ended_at, kind, payload_size) "
      "values ((now() at time zone 'utc')::date - 40, 7, ",
      queue, ", 6, 0, 1, 1, 0, 0, 0, 0, 1, 1, 1, now(), now(), now(), 'k', 2)"));
  EXPECT_EQ(*store_->DropExported(**fence, day), false);
  EXPECT_EQ(Sql(absl::StrCat("select count(*) from tenure.", day.table)), "1");
  EXPECT_EQ(store_->ListExports(target->id, 30)->size(), 2u) << "it has to be taken again";
  EXPECT_EQ(store_->ReadDay(day, 0, 10)->size(), 1u);
  ASSERT_EQ(store_->RecordExport(**fence, target->id, day, 1), absl::OkStatus());
  EXPECT_EQ(*store_->DropExported(**fence, day), true);
  EXPECT_EQ(Sql(absl::StrCat("select to_regclass('tenure.", day.table, "') is null")), "t");
  // A term that is over writes nothing.
  const store::Fence stale = **fence;
  ASSERT_EQ(store_->ReleaseLeader(stale), absl::OkStatus());
  const auto rest = store_->ListExports(target->id, 30);
  ASSERT_TRUE(store_->AcquireLeader("export", *store_->RegisterReplica("s", "test"), absl::Minutes(5)).ok());
  EXPECT_EQ(DetailsOf(store_->RecordExport(stale, target->id, (*rest)[0], 0)).reason, "TERM_OVER");
}

TEST_F(ExportTest, AKilledLeaderIsFollowedAndEachRowIsExportedOnce) {
  auto first = StartProcess();
  ASSERT_TRUE(AwaitLeader("export"));
  auto second = StartProcess();
  client::Client client = Connect(second->grpc_address());
  std::vector<std::string> ids = EndJobs(client, 30);
  Sql("select tenure.ensure_day(tenure.today() - n) from generate_series(40, 44) n");
  Sql("update tenure.history set ended_on = ended_on - 40 - id::int % 5");
  ASSERT_EQ(client.CreateTarget("archive", Spec(client::TargetPurpose::kExport)).status(), absl::OkStatus());
  ASSERT_TRUE(Eventually(30, [&] { return !Files("/history/").empty(); })) << "in the middle of it";
  first->Kill();
  const std::string left =
      "select count(*) from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = 'tenure' and "
      "c.relkind = 'r' and c.relname like 'history_2%' and right(c.relname, 8) < to_char(now() - interval '30 days', "
      "'YYYYMMDD')";
  ASSERT_TRUE(Eventually(40, [&] { return Sql(left) == "0"; })) << Sql(left);
  std::vector<std::string> exported;
  int64_t rows = 0;
  for (const fs::path& file : Files("/history/")) {
    if (file.filename() == "manifest.json") {
      rows += nlohmann::json::parse(ReadFile(file))["rows"].get<int64_t>();
      continue;
    }
    for (const auto& line : absl::StrSplit(Unzip(ReadFile(file)), '\n', absl::SkipEmpty())) {
      exported.push_back(nlohmann::json::parse(std::string(line))["id"]);
    }
  }
  EXPECT_EQ(rows, 30);
  EXPECT_THAT(exported, ::testing::UnorderedElementsAreArray(ids));
}

TEST_F(InventoryTest, ListsTheLiveJobsOfItsQueues) {
  const auto daemon = Start({"inventory.batch=3"});
  client::Client client = Connect(daemon->grpc_address());
  std::set<std::string> ids;
  for (int i = 0; i < 8; ++i) ids.insert(Enqueue(client, "a/b"));
  Enqueue(client, "other");
  client::TargetSpec spec = Spec(client::TargetPurpose::kInventory);
  EXPECT_EQ(client.CreateTarget("stock", spec).status().code(), absl::StatusCode::kInvalidArgument)
      << "queues are required";
  spec.queues = {"a/b", "empty"};
  ASSERT_EQ(client.CreateTarget("stock", spec).status(), absl::OkStatus());
  ASSERT_TRUE(Eventually(20, [&] { return !Files("manifest.json").empty(); }));
  const fs::path place = Files("manifest.json")[0].parent_path();
  const auto manifest = nlohmann::json::parse(ReadFile(place / "manifest.json"));
  ASSERT_EQ(manifest["queues"].size(), 2u);
  std::set<std::string> listed;
  for (const auto& queue : manifest["queues"]) {
    const std::string csv = Unzip(ReadFile(place / queue["name"].get<std::string>()));
    const std::vector<std::string> lines = absl::StrSplit(csv, "\r\n", absl::SkipEmpty());
    ASSERT_EQ(static_cast<int64_t>(lines.size()), queue["jobs"].get<int64_t>() + 1) << csv;
    EXPECT_THAT(lines[0], HasSubstr("id,queue,state,kind"));
    for (size_t i = 1; i < lines.size(); ++i) {
      const std::vector<std::string> cells = absl::StrSplit(lines[i], ',');
      EXPECT_EQ(cells.size(), 23u) << lines[i];
      EXPECT_EQ(cells[1], "a/b");
      EXPECT_EQ(cells[2], "ready");
      EXPECT_TRUE(listed.insert(cells[0]).second);
    }
  }
  EXPECT_EQ(listed, ids);
  // Once per interval.
  ASSERT_TRUE(Eventually(20, [&] { return client.GetTarget("stock")->last_success_time.has_value(); }));
  EXPECT_EQ(Files("manifest.json").size(), 1u);
  Sql("update tenure.target_state set next_at = now()");
  EXPECT_TRUE(Eventually(20, [&] { return Files("manifest.json").size() == 2; }));
}

TEST_F(InventoryTest, AKilledLeaderIsFollowed) {
  auto first = StartProcess();
  ASSERT_TRUE(AwaitLeader("inventory"));
  auto second = StartProcess();
  client::Client client = Connect(second->grpc_address());
  Enqueue(client, "q");
  client::TargetSpec spec = Spec(client::TargetPurpose::kInventory);
  spec.queues = {"q"};
  ASSERT_EQ(client.CreateTarget("stock", spec).status(), absl::OkStatus());
  ASSERT_TRUE(Eventually(20, [&] { return client.GetTarget("stock")->last_success_time.has_value(); }));
  EXPECT_EQ(Files("manifest.json").size(), 1u);
  first->Kill();
  Sql("update tenure.target_state set next_at = now()");
  ASSERT_TRUE(Eventually(40, [&] { return Files("manifest.json").size() == 2; }));
  const auto manifest = nlohmann::json::parse(ReadFile(Files("manifest.json")[1]));
  EXPECT_EQ(manifest["queues"][0]["jobs"], 1);
}

TEST_F(InventoryTest, ListsOnceForEachSlotOfItsSchedule) {
  const auto daemon = Start();
  client::Client client = Connect(daemon->grpc_address());
  Enqueue(client, "q");
  client::TargetSpec spec = Spec(client::TargetPurpose::kInventory);
  spec.queues = {"q"};
  spec.cron = "0 0 1 1 *";
  spec.time_zone = "Asia/Tokyo";
  const auto made = client.CreateTarget("stock", spec);
  ASSERT_EQ(made.status(), absl::OkStatus());
  EXPECT_EQ(made->spec.cron, "0 0 1 1 *");
  EXPECT_EQ(made->spec.time_zone, "Asia/Tokyo");
  EXPECT_FALSE(made->spec.interval.has_value());
  // Nothing at once, but at the next new year there.
  const std::string at = "select (next_at at time zone 'Asia/Tokyo')::text from tenure.target_state";
  const std::string next = Sql(at);
  EXPECT_EQ(next, Sql("select (date_trunc('year', now() at time zone 'Asia/Tokyo') + interval '1 year')::text"));
  // Several slots were missed: the last one is made up for, under its own name.
  Sql("update tenure.target_state set next_at = '2019-01-01 00:00 Asia/Tokyo'");
  ASSERT_TRUE(Eventually(20, [&] { return Sql(at) == next; })) << Sql(at);
  ASSERT_EQ(Files("manifest.json").size(), 1u);
  const fs::path manifest = Files("manifest.json")[0];
  EXPECT_EQ(
      manifest.parent_path().filename().string(),
      Sql("select to_char(date_trunc('year', now() at time zone 'Asia/Tokyo') at time zone 'Asia/Tokyo' at time zone "
          "'UTC', 'YYYY-MM-DD\"T\"HH24MISS.MS\"Z\"')"));
  const auto content = nlohmann::json::parse(ReadFile(manifest));
  EXPECT_EQ(content["queues"][0]["jobs"], 1);
  EXPECT_TRUE(fs::exists(manifest.parent_path() / content["queues"][0]["name"].get<std::string>()));
  // Its writer died before it could write down that the slot is done: whoever follows leaves the manifest as it is.
  Enqueue(client, "q");
  const size_t files = Files("/inventory/").size();
  Sql("update tenure.target_state set next_at = '2019-01-01 00:00 Asia/Tokyo'");
  ASSERT_TRUE(Eventually(20, [&] { return Sql(at) == next; }));
  EXPECT_EQ(Files("/inventory/").size(), files);
  EXPECT_EQ(nlohmann::json::parse(ReadFile(manifest)), content);
  // An interval takes the place of the schedule, and the other way round.
  client::TargetChange change;
  change.interval = 1h;
  auto changed = client.UpdateTarget("stock", change);
  ASSERT_EQ(changed.status(), absl::OkStatus());
  EXPECT_EQ(changed->spec.cron, "");
  EXPECT_EQ(changed->spec.time_zone, "");
  EXPECT_EQ(changed->spec.interval, std::optional<client::Duration>(1h));
  EXPECT_EQ(Sql("select next_at <= now() + interval '1 hour' from tenure.target_state"), "t");
  change = {};
  change.cron = "@yearly";
  changed = client.UpdateTarget("stock", change);
  ASSERT_EQ(changed.status(), absl::OkStatus());
  EXPECT_FALSE(changed->spec.interval.has_value());
  EXPECT_EQ(changed->spec.time_zone, "UTC");
  EXPECT_EQ(Sql("select extract(doy from next_at at time zone 'UTC') from tenure.target_state"), "1");
}

TEST_F(InventoryTest, AKilledLeaderLeavesOneManifestForEachSlot) {
  auto first = StartProcess();
  ASSERT_TRUE(AwaitLeader("inventory"));
  auto second = StartProcess();
  client::Client client = Connect(second->grpc_address());
  Enqueue(client, "q");
  client::TargetSpec spec = Spec(client::TargetPurpose::kInventory);
  spec.queues = {"q"};
  spec.cron = "0 0 1 1 *";
  ASSERT_EQ(client.CreateTarget("stock", spec).status(), absl::OkStatus());
  // The first one dies after the manifest and before the slot is written down as done: a lock keeps it from that.
  auto holder = store::postgres::Connection::Open(database_.url(), "holder", absl::Seconds(5)).value();
  {
    store::postgres::Transaction lock(*holder, {absl::Seconds(60)});
    ASSERT_TRUE(lock.Run("select 1 from tenure.target for update", store::postgres::Params()).ok());
    Sql("update tenure.target_state set next_at = '2019-01-01'");
    ASSERT_TRUE(Eventually(30, [&] { return !Files("manifest.json").empty(); }));
    first->Kill();
  }
  ASSERT_TRUE(Eventually(40, [&] { return Sql("select next_at > now() from tenure.target_state") == "t"; }));
  EXPECT_EQ(Files("manifest.json").size(), 1u);
}

TEST_F(TargetWorkersTest, ATargetThatHangsHoldsUpNoOther) {
  HttpReceiver silent;
  silent.Hold();
  auto daemon = Start();
  client::Client client = Connect(daemon->grpc_address());
  for (const auto purpose :
       {client::TargetPurpose::kEventLog, client::TargetPurpose::kExport, client::TargetPurpose::kInventory}) {
    client::TargetSpec good = Spec(purpose), bad = good;
    if (purpose == client::TargetPurpose::kEventLog) good.interval = bad.interval = 1s;
    if (purpose == client::TargetPurpose::kInventory) good.queues = bad.queues = {"q"};
    bad.url = "s3://bucket/prefix";
    bad.endpoint = absl::StrCat("http://127.0.0.1:", silent.port());
    const std::string name = absl::StrCat(static_cast<int>(purpose));
    ASSERT_EQ(client.CreateTarget("a-bad-" + name, bad).status(), absl::OkStatus());
    ASSERT_EQ(client.CreateTarget("good-" + name, good).status(), absl::OkStatus());
  }
  EndJobs(client, 1);
  // Only now: without an export target such a day would be dropped.
  Sql("select tenure.ensure_day(tenure.today() - 40)");
  Sql("update tenure.history set ended_on = ended_on - 40");
  EndJobs(client, 1);
  // Each of the three hangs by now, a minute long.
  ASSERT_TRUE(silent.Await([](const auto& requests) { return requests.size() >= 3; }));
  EXPECT_TRUE(Eventually(20, [&] { return !Files("/events/").empty(); }));
  EXPECT_TRUE(Eventually(20, [&] { return Files("/history/").size() == 2; }));
  EXPECT_TRUE(Eventually(20, [&] { return !Files("/inventory/").empty(); }));
  EndJobs(client, 1);
  EXPECT_TRUE(Eventually(20, [&] { return client.GetTarget("good-2")->events_total >= 2; })) << "and goes on";
  EXPECT_EQ(client.GetTarget("a-bad-2")->events_total, 0);
  // The daemon stops though they hang.
  const auto began = std::chrono::steady_clock::now();
  daemon.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - began, 20s);
}

TEST_F(RelayTest, APeerThatHangsHoldsUpNoOther) {
  ScopedDatabase peer_database(MigratedTemplate());
  TestDaemonOptions peer_options;
  peer_options.database_url = peer_database.url();
  TestDaemon peer(peer_options);
  HttpReceiver silent;
  silent.Hold();
  const auto daemon = Start({"relay.timeout=1m"});
  client::Client client = Connect(daemon->grpc_address());
  client::TargetSpec spec;
  spec.purpose = client::TargetPurpose::kRelay;
  spec.url = silent.url("");
  spec.queues = {"stuck"};
  ASSERT_EQ(client.CreateTarget("a-silent", spec).status(), absl::OkStatus());
  Enqueue(client, "stuck");
  ASSERT_TRUE(silent.Await([](const auto& requests) { return !requests.empty(); }));
  spec.url = absl::StrCat("http://127.0.0.1:", peer.http_port());
  spec.queues = {"orders"};
  ASSERT_EQ(client.CreateTarget("peer", spec).status(), absl::OkStatus());
  for (int i = 0; i < 3; ++i) {
    const std::string id = Enqueue(client, "orders");
    ASSERT_TRUE(Eventually(20, [&] { return client.Get(id)->state == client::JobState::kCompleted; }));
  }
}

TEST_F(RelayTest, AKilledLeaderLosesAndDoublesNoJob) {
  ScopedDatabase peer_database(MigratedTemplate());
  TestDaemonOptions peer_options;
  peer_options.database_url = peer_database.url();
  TestDaemon peer(peer_options);
  auto first = StartProcess();
  ASSERT_TRUE(AwaitLeader("relay"));
  auto second = StartProcess();
  client::Client client = Connect(second->grpc_address());
  client::TargetSpec spec;
  spec.purpose = client::TargetPurpose::kRelay;
  spec.url = absl::StrCat("http://127.0.0.1:", peer.http_port());
  spec.queues = {"orders"};
  ASSERT_EQ(client.CreateTarget("peer", spec).status(), absl::OkStatus());
  std::set<std::string> payloads;
  for (int i = 0; i < 60; ++i) {
    if (i == 30) {
      ASSERT_TRUE(Eventually(20, [&] { return Sql("select count(*) > 0 from tenure.history") == "t"; }));
      first->Kill();
    }
    payloads.insert(absl::StrCat("{\"n\": ", i, "}"));
    Enqueue(client, "orders", absl::StrCat("{\"n\": ", i, "}"));
  }
  // What the killed one held comes back when its leases run out.
  Sql("update tenure.job set lease_until = now() where state = 4");
  ASSERT_TRUE(Eventually(60, [&] { return Sql("select count(*) from tenure.history where state = 6") == "60"; }))
      << Sql("select count(*) from tenure.history where state = 6");
  client::Client there = Connect(peer.grpc_address());
  std::multiset<std::string> arrived;
  for (const auto& job : there.ListAll({.queue = "orders", .include_payloads = true})) {
    ASSERT_EQ(job.status(), absl::OkStatus());
    arrived.insert(job->payload.data);
  }
  EXPECT_EQ(arrived, std::multiset<std::string>(payloads.begin(), payloads.end()));
}

TEST_F(RelayTest, JobsArriveOnceThoughAnswersAreLost) {
  // The peer, behind something that loses the answer of the first call: the job is there, and nobody knows.
  ScopedDatabase peer_database(MigratedTemplate());
  TestDaemonOptions peer_options;
  peer_options.database_url = peer_database.url();
  TestDaemon peer(peer_options);
  std::atomic<int> calls{0};
  HttpReceiver lossy([&](const Received& request) {
    const int call = ++calls;
    if (call == 2) return Answer{503, "{}", {}};  // Not even passed on.
    RawHttp http(static_cast<uint16_t>(peer.http_port()));
    const RawReply reply = http.Post(request.target, "Content-Type: application/json\r\n", request.body);
    if (call == 1) return Answer{502, "lost", {}};
    return Answer{reply.status, reply.body, {}};
  });
  const auto daemon = Start();
  client::Client client = Connect(daemon->grpc_address());
  client::TargetSpec spec;
  spec.purpose = client::TargetPurpose::kRelay;
  spec.url = lossy.url("");
  spec.queues = {"orders"};
  spec.secret = "a-token-of-the-peer";
  std::set<std::string> payloads;
  std::vector<std::string> ids;
  for (int i = 0; i < 30; ++i) {
    payloads.insert(absl::StrCat("{\"n\": ", i, "}"));
    ids.push_back(Enqueue(client, "orders", absl::StrCat("{\"n\": ", i, "}")));
  }
  Enqueue(client, "others");
  ASSERT_EQ(client.CreateTarget("peer", spec).status(), absl::OkStatus());
  ASSERT_TRUE(Eventually(60, [&] { return Sql("select count(*) from tenure.history where state = 6") == "30"; }));
  EXPECT_EQ(Sql("select count(*) from tenure.job"), "1") << "other queues stay";
  EXPECT_EQ(lossy.requests()[0].headers.at("authorization"), "Bearer a-token-of-the-peer");
  client::Client there = Connect(peer.grpc_address());
  const auto list = there.List({.queue = "orders", .include_payloads = true}, 100);
  ASSERT_EQ(list.status(), absl::OkStatus());
  EXPECT_EQ(list->jobs.size(), 30u) << "none twice";
  std::set<std::string> arrived, there_ids;
  for (const client::Job& job : list->jobs) {
    arrived.insert(job.payload.data);
    there_ids.insert(job.id);
  }
  EXPECT_EQ(arrived, payloads);
  const auto done = client.Get(ids[0]);
  ASSERT_EQ(done.status(), absl::OkStatus());
  ASSERT_TRUE(done->result.has_value());
  EXPECT_TRUE(there_ids.contains(nlohmann::json::parse(done->result->data)["peerJobId"].get<std::string>()));
  std::string metrics;
  HttpGet(daemon->http_port(), "/metrics", &metrics);
  EXPECT_THAT(metrics, ContainsRegex("tenure_target_events_total.outcome=.accepted.,purpose=.relay.. 30"));
  EXPECT_THAT(metrics, ContainsRegex("tenure_target_events_total.outcome=.refused.,purpose=.relay.. [1-9]"));
}

}  // namespace
}  // namespace tenure::testing
