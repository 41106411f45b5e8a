// The metrics: declared as docs/metrics.md says, accepted by promtool, bounded in their labels; and what keeps the
// gauges.
#include "server/base/metrics.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/base/process_metrics.h"
#include "server/http/metrics_page.h"

namespace tenure {
namespace {

std::string TypeName(prometheus::MetricType type) {
  switch (type) {
    case prometheus::MetricType::Counter:
      return "counter";
    case prometheus::MetricType::Gauge:
      return "gauge";
    case prometheus::MetricType::Histogram:
      return "histogram";
    default:
      return "?";
  }
}

// Puts one series into each family, so that each shows on the page.
void TouchAll(Metrics& m) {
  auto labels = [&](const std::string& name) {
    prometheus::Labels out;
    for (const MetricInfo& info : m.catalog()) {
      if (info.name != name) continue;
      for (const std::string& label : info.labels) out[label] = "x";
    }
    return out;
  };
  for (CounterFamily* family : {&m.jobs_enqueued,
                                &m.jobs_admitted,
                                &m.jobs_settled,
                                &m.lease_acquisitions,
                                &m.lease_losses,
                                &m.leases_extended,
                                &m.stale_tokens,
                                &m.claims,
                                &m.shed,
                                &m.rpcs,
                                &m.http_requests,
                                &m.http_refused_connections,
                                &m.db_errors,
                                &m.db_retries,
                                &m.background_panics,
                                &m.background_runs,
                                &m.background_restarts,
                                &m.rewritten_rows,
                                &m.moved_jobs,
                                &m.target_events,
                                &m.target_objects,
                                &m.process_cpu}) {
    Metrics::Add(*family, labels(family->family().GetName()), 3);
  }
  for (auto* family : {&m.queue_jobs,
                       &m.queue_oldest_ready_age,
                       &m.queue_paused,
                       &m.queue_blocked_jobs,
                       &m.queue_waiting_tenants,
                       &m.queue_limit_jobs,
                       &m.queue_limit_held_jobs,
                       &m.leases_tracked,
                       &m.polls_parked,
                       &m.http_connections,
                       &m.db_connections,
                       &m.event_lag,
                       &m.db_oldest_transaction,
                       &m.db_dead_tuples,
                       &m.db_live_tuples,
                       &m.db_clock_difference,
                       &m.db_table_dead_tuples,
                       &m.db_table_live_tuples,
                       &m.db_index_bytes,
                       &m.db_index_surplus,
                       &m.background_leader,
                       &m.background_term,
                       &m.background_shards,
                       &m.background_last_success,
                       &m.target_lag,
                       &m.target_breakers_open,
                       &m.build_info,
                       &m.process_resident_memory,
                       &m.process_virtual_memory,
                       &m.process_open_fds,
                       &m.process_max_fds,
                       &m.process_threads,
                       &m.process_start_time}) {
    family->Add(labels(family->GetName())).Set(2);
  }
  for (HistogramFamily* family :
       {&m.job_start_latency, &m.rpc_duration, &m.db_statement_duration, &m.batch_items, &m.target_request_duration}) {
    family->Observe(labels(family->family().GetName()), 0.3);
  }
}

TEST(Metrics, EachIsListedInTheDocsAndNothingElseIs) {
  std::ifstream file(std::string(TENURE_SOURCE_DIR) + "/docs/metrics.md");
  ASSERT_TRUE(file.is_open());
  std::set<std::string> listed;
  std::string line;
  while (std::getline(file, line)) {
    std::vector<std::string> cells = absl::StrSplit(line, '|');
    if (cells.size() < 6) continue;
    for (std::string& cell : cells) cell = std::string(absl::StripAsciiWhitespace(cell));
    if (cells[1] == "name" || cells[1][0] == '-') continue;
    EXPECT_FALSE(cells[4].empty()) << cells[1] << " has no meaning";
    EXPECT_TRUE(listed.insert(absl::StrCat(cells[1], " | ", cells[2], " | ", cells[3])).second) << cells[1] << " twice";
  }
  std::set<std::string> declared;
  const Metrics metrics;
  for (const MetricInfo& info : metrics.catalog()) {
    declared.insert(absl::StrCat(info.name, " | ", TypeName(info.type), " | ", absl::StrJoin(info.labels, ", ")));
  }
  for (const std::string& row : declared) EXPECT_TRUE(listed.contains(row)) << "not in docs/metrics.md: " << row;
  for (const std::string& row : listed) EXPECT_TRUE(declared.contains(row)) << "only in docs/metrics.md: " << row;
  EXPECT_GT(declared.size(), 40u);
}

TEST(Metrics, TheCatalogIsTheRegistry) {
  Metrics metrics;
  TouchAll(metrics);
  std::set<std::string> declared;
  for (const MetricInfo& info : metrics.catalog()) EXPECT_TRUE(declared.insert(info.name).second) << info.name;
  std::set<std::string> collected;
  for (const auto& family : metrics.registry().Collect()) collected.insert(family.name);
  EXPECT_EQ(collected, declared);
  EXPECT_EQ(metrics.WronglyLabelled(), std::vector<std::string>());
}

TEST(Metrics, NamesFollowTheConventions) {
  const Metrics metrics;
  const std::set<std::string> bounded = {"queue",   "outcome", "state", "reason", "verb",      "kind",   "what",
                                         "method",  "code",    "route", "class",  "statement", "worker", "shard",
                                         "version", "purpose", "table", "index",  "rewrite"};
  for (const MetricInfo& info : metrics.catalog()) {
    const bool total = info.name.size() > 6 && info.name.substr(info.name.size() - 6) == "_total";
    EXPECT_EQ(total, info.type == prometheus::MetricType::Counter) << info.name;
    EXPECT_TRUE(info.name.rfind("tenure_", 0) == 0 || info.name.rfind("process_", 0) == 0) << info.name;
    EXPECT_FALSE(info.help.empty()) << info.name;
    EXPECT_EQ(info.name.find("_ms"), std::string::npos) << info.name;
    for (const std::string& label : info.labels) EXPECT_TRUE(bounded.contains(label)) << info.name << " " << label;
  }
}

TEST(Metrics, WrongLabelsAreFound) {
  Metrics metrics;
  Metrics::Add(metrics.claims, {{"result", "jobs"}});
  ASSERT_EQ(metrics.WronglyLabelled().size(), 1u);
  EXPECT_EQ(metrics.WronglyLabelled()[0], "tenure_claims_total result=jobs");
}

TEST(Metrics, WhatHasNotHappenedYetIsZeroWhereItsLabelsAreKnown) {
  Metrics metrics;
  const std::string page = http::MetricsPage(metrics, nullptr).Render().body;
  for (const char* series :
       {"tenure_claims_total{outcome=\"empty\"} 0\n", "tenure_polls_parked{kind=\"notices\"} 0\n",
        "tenure_shed_total{what=\"http_body\"} 0\n", "tenure_db_retries_total{reason=\"deadlock\"} 0\n",
        "tenure_http_refused_connections_total 0\n", "tenure_leases_tracked 0\n"}) {
    EXPECT_NE(page.find(series), std::string::npos) << series;
  }
}

TEST(Metrics, PassPromtool) {
  // The Debian package prometheus, which the tests' list of packages names.
  ASSERT_EQ(std::system("command -v promtool >/dev/null 2>&1"), 0)
      << "promtool is not installed: apt-get install prometheus";
  Metrics metrics;
  metrics.SetVersion("1.2.3");
  TouchAll(metrics);
  http::MetricsPage page(metrics, nullptr);
  std::string path = "/tmp/tenure-metrics-XXXXXX";
  const int fd = mkstemp(path.data());
  ASSERT_GE(fd, 0);
  close(fd);
  std::ofstream(path) << page.Render().body;
  FILE* tool = popen(("promtool check metrics <" + path + " 2>&1").c_str(), "r");
  ASSERT_NE(tool, nullptr);
  std::string said;
  char chunk[512];
  while (size_t got = fread(chunk, 1, sizeof chunk, tool)) said.append(chunk, got);
  const int status = pclose(tool);
  unlink(path.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(said, "");
}

TEST(Metrics, QueuesBeyondTheBoundShareOneSeries) {
  Metrics metrics(/*max_queues=*/2);
  for (const char* queue : {"a", "b", "c", "d", "a", "c"}) {
    Metrics::Add(metrics.leases_extended, {{"queue", queue}});
    metrics.job_start_latency.Observe({{"queue", queue}}, 1);
  }
  EXPECT_EQ(metrics.leases_extended.Add({{"queue", "a"}}).Value(), 2);
  EXPECT_EQ(metrics.leases_extended.Add({{"queue", "b"}}).Value(), 1);
  EXPECT_EQ(metrics.leases_extended.Add({{"queue", "_other"}}).Value(), 3);
  EXPECT_EQ(&metrics.leases_extended.Add({{"queue", "d"}}), &metrics.leases_extended.Add({{"queue", "c"}}));
  EXPECT_EQ(metrics.leases_extended.family().Collect().at(0).metric.size(), 3u);
  EXPECT_EQ(metrics.job_start_latency.family().Collect().at(0).metric.size(), 3u);
  // Other labels are not queues.
  for (int i = 0; i < 5; ++i) Metrics::Add(metrics.rpcs, {{"method", absl::StrCat("m", i)}, {"code", "OK"}});
  EXPECT_EQ(metrics.rpcs.family().Collect().at(0).metric.size(), 5u);
}

TEST(Metrics, ThreadsMayMeetNewSeriesAtOnce) {
  Metrics metrics(/*max_queues=*/10);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        metrics.job_start_latency.Observe({{"queue", absl::StrCat("q", i % 20)}}, 0.01);
        Metrics::Add(metrics.leases_extended, {{"queue", absl::StrCat("q", i % 20)}});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  double counted = 0;
  const auto counters = metrics.leases_extended.family().Collect();
  ASSERT_EQ(counters.at(0).metric.size(), 11u);
  for (const auto& series : counters[0].metric) counted += series.counter.value;
  EXPECT_EQ(counted, 8000);
  uint64_t observed = 0;
  const auto histograms = metrics.job_start_latency.family().Collect();
  for (const auto& series : histograms.at(0).metric) {
    observed += series.histogram.sample_count;
  }
  EXPECT_EQ(observed, 8000u);
}

TEST(Metrics, EveryHistogramHasTheBucketsOfItsDeclaration) {
  Metrics metrics;
  const auto bounds = [](HistogramFamily& family, const prometheus::Labels& labels) {
    std::vector<double> out;
    for (const auto& bucket : family.Add(labels).Collect().histogram.bucket) out.push_back(bucket.upper_bound);
    EXPECT_TRUE(std::is_sorted(out.begin(), out.end()));
    EXPECT_EQ(std::adjacent_find(out.begin(), out.end()), out.end());
    EXPECT_TRUE(std::isinf(out.back()));
    out.pop_back();
    return std::pair(out.front(), out.back());
  };
  const std::pair seconds(0.0001, 60.0), items(1.0, 10'000.0);
  EXPECT_EQ(bounds(metrics.job_start_latency, {{"queue", "q"}}), seconds);
  EXPECT_EQ(bounds(metrics.rpc_duration, {{"method", "m"}}), seconds);
  EXPECT_EQ(bounds(metrics.db_statement_duration, {{"statement", "s"}}), seconds);
  EXPECT_EQ(bounds(metrics.batch_items, {{"verb", "claim"}}), items);
}

// --- The process -----------------------------------------------------------------------------------------------------

TEST(ProcessMetrics, AStatLineIsReadWhateverTheCommandIsCalled) {
  const std::string line =
      "1234 (evil) R ( x) S 1 1234 1234 0 -1 4194560 5000 0 3 0 150 50 0 0 20 0 7 0 90000 123456789 2500 "
      "18446744073709551615 1 1 0 0 0 0 0 4096 0 0 0 0 17 1 0 0 0 0 0\n";
  auto stat = ParseProcessStat(line, 100, 4096);
  ASSERT_TRUE(stat.has_value());
  EXPECT_EQ(stat->cpu_seconds, 2);
  EXPECT_EQ(stat->threads, 7);
  EXPECT_EQ(stat->start_seconds, 900);
  EXPECT_EQ(stat->virtual_bytes, 123456789);
  EXPECT_EQ(stat->resident_bytes, 2500 * 4096);
  for (const char* bad : {"", "1234 (x", "1234 (x) S 1 2 3", "1234 (x) S a b c"}) {
    EXPECT_FALSE(ParseProcessStat(bad, 100, 4096).has_value()) << bad;
  }
}

TEST(ProcessMetrics, TellOfThisProcess) {
  Metrics metrics;
  ProcessMetrics process(metrics);
  process.Refresh();
  EXPECT_GE(metrics.process_threads.Add({}).Value(), 1);
  EXPECT_GT(metrics.process_resident_memory.Add({}).Value(), 1e6);
  EXPECT_GT(metrics.process_virtual_memory.Add({}).Value(), metrics.process_resident_memory.Add({}).Value());
  EXPECT_GT(metrics.process_max_fds.Add({}).Value(), 0);
  const double now = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  EXPECT_LT(metrics.process_start_time.Add({}).Value(), now + 2);
  EXPECT_GT(metrics.process_start_time.Add({}).Value(), now - 3600);

  const double files = metrics.process_open_fds.Add({}).Value();
  const int fd = dup(1);
  const double cpu = metrics.process_cpu.Add({}).Value();
  while (clock() < (cpu + 0.1) * CLOCKS_PER_SEC) {  // Spends CPU time: that is what is measured.
  }
  process.Refresh();
  close(fd);
  EXPECT_EQ(metrics.process_open_fds.Add({}).Value(), files + 1);
  EXPECT_GE(metrics.process_cpu.Add({}).Value(), cpu + 0.05);
}

TEST(Metrics, TheVersionIsALabel) {
  Metrics metrics;
  metrics.SetVersion("1.2.3");
  EXPECT_NE(http::MetricsPage(metrics, nullptr).Render().body.find("tenure_build_info{version=\"1.2.3\"} 1\n"),
            std::string::npos);
}

}  // namespace
}  // namespace tenure
