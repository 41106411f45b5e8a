// Where and how objects for targets are written: directories, buckets, compression, jobs as lines. Layer: tests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "server/background/targets/digest.h"
#include "server/background/targets/gzip.h"
#include "server/background/targets/job_json.h"
#include "server/background/targets/object_sink.h"
#include "tests/support/http_receiver.h"
#include "tests/support/unzip.h"

namespace tenure::background::targets {
namespace {

namespace fs = std::filesystem;
using testing::Answer;
using ::testing::HasSubstr;
using testing::HttpReceiver;
using testing::Received;
using testing::Unzip;

TEST(GzipTest, ComesBackEqualAndIsTheSameEachTime) {
  std::string text;
  for (int i = 0; i < 50'000; ++i) absl::StrAppend(&text, "line ", i, "\n");
  std::string first;
  for (int round = 0; round < 2; ++round) {
    Gzip gzip;
    gzip.Append(text.substr(0, 1000));
    gzip.Append("");
    gzip.Append(text.substr(1000));
    const std::string bytes = gzip.Finish();
    EXPECT_EQ(Unzip(bytes), text);
    if (round == 1) {
      EXPECT_EQ(bytes, first);
    }
    first = bytes;
  }
  Gzip empty;
  EXPECT_EQ(Unzip(empty.Finish()), "");
}

class DirectorySinkTest : public ::testing::Test {
 protected:
  DirectorySinkTest() {
    char folder[] = "/tmp/tenure-sink-XXXXXX";
    root_ = mkdtemp(folder);
    access_.directory = root_;
  }
  ~DirectorySinkTest() override { fs::remove_all(root_); }
  absl::StatusOr<std::unique_ptr<ObjectSink>> Open(const std::string& path) {
    store::TargetSettings settings;
    settings.purpose = store::TargetPurpose::kEventLog;
    settings.url = "file://" + path;
    return MakeSink(settings, access_, http_);
  }
  std::string root_;
  Access access_;
  HttpClient http_{true};
};

TEST_F(DirectorySinkTest, WritesWholeFilesAndNothingOutside) {
  const auto sink = Open(root_ + "/a/b");
  ASSERT_EQ(sink.status(), absl::OkStatus());
  const std::string bytes("x\0y", 3);
  ASSERT_EQ(PutVerified(**sink, "t.1/events/1.jsonl", bytes, "", {}), absl::OkStatus());
  ASSERT_EQ(PutVerified(**sink, "t.1/events/1.jsonl", "other", "", {}), absl::OkStatus()) << "in its place";
  std::ifstream in(root_ + "/a/b/t.1/events/1.jsonl");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), "other");
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(root_)) files += entry.is_regular_file() ? 1 : 0;
  EXPECT_EQ(files, 1) << "nothing is left beside it";

  EXPECT_EQ(Open("/tmp").status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(Open(root_ + "-sibling").status().code(), absl::StatusCode::kPermissionDenied);
  fs::create_directory_symlink("/tmp", root_ + "/link");
  EXPECT_EQ(Open(root_ + "/link/x").status().code(), absl::StatusCode::kPermissionDenied) << "links are followed first";
  access_.directory.clear();
  EXPECT_THAT(std::string(Open(root_).status().message()), HasSubstr("--target-directory"));
}

TEST_F(DirectorySinkTest, WhatCannotBeWrittenSaysWhy) {
  std::ofstream(root_ + "/file") << "x";
  const auto sink = Open(root_ + "/file");
  ASSERT_EQ(sink.status(), absl::OkStatus());
  EXPECT_THAT(std::string((*sink)->Put("a", "b", "", {}).message()), HasSubstr("cannot"));
  EXPECT_THAT(std::string((*sink)->Read("none", 10, {}).status().message()), HasSubstr("cannot read"));
}

TEST(S3SinkTest, WritesAndReadsSignedObjects) {
  std::mutex mutex;
  std::map<std::string, std::string> objects;
  bool corrupt = false;
  HttpReceiver store([&](const Received& request) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (request.headers.count("authorization") == 0) return Answer{403, "<Error><Code>AccessDenied</Code></Error>", {}};
    EXPECT_EQ(request.headers.at("x-amz-content-sha256"), Hex(Sha256(request.body)));
    if (request.method == "PUT") {
      objects[request.target] = corrupt ? "other" : request.body;
      return Answer{200, "", {}};
    }
    const auto found = objects.find(request.target);
    if (found == objects.end()) return Answer{404, "<Error><Code>NoSuchKey</Code></Error>", {}};
    return Answer{200, found->second, {}};
  });
  store::TargetSettings settings;
  settings.purpose = store::TargetPurpose::kExport;
  settings.url = "s3://bucket/prefix";
  settings.endpoint = absl::StrCat("http://127.0.0.1:", store.port());
  Access access;
  HttpClient http(true);
  EXPECT_THAT(std::string(MakeSink(settings, access, http).status().message()), HasSubstr("no AWS credentials"));
  access.aws = {"id", "key", "", "eu-west-1"};
  const auto sink = MakeSink(settings, access, http);
  ASSERT_EQ(sink.status(), absl::OkStatus());
  const std::string bytes(3 << 20, 'x');
  ASSERT_EQ(PutVerified(**sink, "t.1/a%2Fb.csv.gz", bytes, "application/gzip", {}), absl::OkStatus());
  EXPECT_EQ(objects.count("/bucket/prefix/t.1/a%252Fb.csv.gz"), 1u);
  EXPECT_THAT(store.requests()[0].headers.at("authorization"), HasSubstr("/eu-west-1/s3/aws4_request"));
  EXPECT_THAT(std::string((*sink)->Read("none", 10, {}).status().message()), HasSubstr("404 NoSuchKey"));
  corrupt = true;
  EXPECT_EQ(PutVerified(**sink, "x", "abc", "", {}).code(), absl::StatusCode::kDataLoss);
}

TEST(FolderTest, ATargetsFolderIsItsOwn) {
  store::Target target;
  target.name = "a/b:c";
  target.created = absl::FromUnixMicros(1'800'000'000'000'001);
  EXPECT_EQ(FolderOf(target), "a%2Fb%3Ac.20270115T080000.000001");
  EXPECT_EQ(SegmentOf(".."), "..") << "a queue's file has an ending";
}

TEST(JobJsonTest, PayloadsComeBackEqual) {
  store::Job job;
  job.id = {1, 2, 3};
  job.kind = "k";
  job.state = store::JobState::kCompleted;
  job.payload = {R"({"a": "ü"})", "application/json"};
  job.result = store::Payload{std::string("\x00\xff", 2), "application/octet-stream"};
  job.error = store::JobError{"boom", "T", "trace", 2, absl::UnixEpoch()};
  job.headers = {{"h", "v"}};
  job.max_attempts = 7;
  job.backoff = store::Backoff{1'500'000, 2.5, 60'000'000};
  const auto line = nlohmann::json::parse(EndedJobJson(job, "q"));
  EXPECT_EQ(line["id"], "1-2-3");
  EXPECT_EQ(line["queue"], "q");
  EXPECT_EQ(line["state"], "completed");
  EXPECT_EQ(line["payload"]["text"], R"({"a": "ü"})");
  EXPECT_EQ(line["result"]["data"], "AP8=");
  EXPECT_EQ(line["error"]["detail"], "trace");
  EXPECT_EQ(line["maxAttempts"], 7);
  EXPECT_EQ(line["backoff"]["initial"], "1.500000s");
  job.payload = {"\xff", "text/plain"};  // Claims to be text.
  EXPECT_EQ(nlohmann::json::parse(EndedJobJson(job, "q"))["payload"]["data"], "/w==");
  const auto relayed = nlohmann::json::parse(RelayedJobJson(job, "q", "key"));
  EXPECT_EQ(relayed["idempotencyKey"], "key");
  EXPECT_EQ(relayed["payload"]["contentType"], "text/plain");
  EXPECT_FALSE(relayed.contains("attempt"));
}

}  // namespace
}  // namespace tenure::background::targets
