// Exports and inventories in whole daemons: what they write, that nothing is doubled or lost when their leader is
// killed, and that retention waits for exports. Layer: tests.
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
#include "tests/support/target_fixture.h"

namespace tenure::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class ExportTest : public TargetFixture {};
class InventoryTest : public TargetFixture {};

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

}  // namespace
}  // namespace tenure::testing
