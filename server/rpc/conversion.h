// Protobuf requests to the engine's structs, with all validation, and the engine's answers back to protobuf. Functions
// that take a mutable request move its strings out. An error names the field by its path from the request
// ("items[7].duration") and the rule. Layer: rpc. Thread-safe: values only.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/engine/engine.h"
#include "server/rpc/field_rules.h"
#include "tenure/v1/admin_service.pb.h"
#include "tenure/v1/job_service.pb.h"
#include "tenure/v1/queue_service.pb.h"
#include "tenure/v1/worker_service.pb.h"

namespace tenure::rpc {

// --- Requests (conversion.cc)
// -----------------------------------------------------------------------------------------

// How long a poll may be asked to wait.
inline constexpr absl::Duration kMaxWait = absl::Seconds(60);

absl::StatusOr<engine::EnqueueItem> JobFrom(const Field& field, v1::JobSpec& spec, const Limits& limits);
// Without queue and page token, which their callers resolve.
absl::StatusOr<store::ListFilter> ListFilterFrom(const v1::ListRequest& request);

// For a claim from queues (job_ids empty); `wait` as asked for.
absl::StatusOr<engine::ClaimCall> ClaimFrom(v1::ClaimRequest& request);
// For a claim of named jobs: all but the ids, whose errors are their own.
absl::StatusOr<engine::NamedClaimCall> NamedClaimFrom(v1::ClaimRequest& request);
absl::StatusOr<absl::Duration> WaitFrom(bool has_wait, const google::protobuf::Duration& wait);

absl::StatusOr<store::ExtendItem> ExtendFrom(const Field& field, v1::ExtendItem& item);
absl::StatusOr<engine::CompleteItem> CompleteFrom(const Field& field, v1::CompleteItem& item, const Limits& limits);
// The texts of the error never fail: they are cut and sanitised, so that a failure can always be reported.
absl::StatusOr<store::FailItem> FailFrom(const Field& field, v1::FailItem& item);
absl::StatusOr<store::GiveBackItem> ReleaseFrom(const Field& field, v1::ReleaseItem& item);
absl::StatusOr<store::GiveBackItem> SnoozeFrom(const Field& field, v1::SnoozeItem& item);

// `set` (if given): the names of the fields that are set.
absl::StatusOr<store::QueueSettings> SettingsFrom(const v1::QueueSettings& settings,
                                                  std::set<std::string>* set = nullptr);
// The fields that an UpdateQueue changes.
absl::StatusOr<std::set<std::string>> UpdatedFields(const v1::UpdateQueueRequest& request, std::set<std::string> set);

// 0 means `fallback`; at most 1,000.
absl::StatusOr<int32_t> PageSizeFrom(int32_t page_size, int32_t fallback);

// --- Answers (conversion_answers.cc)
// ----------------------------------------------------------------------------------

v1::JobState ToProto(store::JobState state);
void ToProto(absl::Time time, google::protobuf::Timestamp* out);
void ToProto(absl::Duration duration, google::protobuf::Duration* out);
void ToProto(const store::Backoff& backoff, v1::Backoff* out);
// `text` if the content type is textual and the bytes are valid UTF-8, else `data`. Moves.
void ToProto(store::Payload&& payload, v1::Payload* out);
// Moves. `queue`: its name.
void ToProto(store::Job&& job, std::string queue, v1::Job* out);
void ToProto(store::ClaimedJob&& claimed, std::string queue, v1::ClaimedJob* out);
void ToProto(const engine::SettleAnswer& answer, v1::SettleResult* out);
void ToProto(const engine::ExtendAnswer& answer, v1::ExtendResult* out);
void ToProto(const engine::QueueInfo& info, v1::Queue* out);
void ToProto(const store::Notice& notice, v1::Notice* out);
void ToProto(const store::WorkerRow& worker, v1::Worker* out);
void ToProto(const store::ReplicaRow& replica, v1::Server* out);
void ToProto(const store::BackgroundRow& row, v1::BackgroundWorker* out);

// The ids and tokens of an answer without their payloads: what giving the leases back needs.
engine::ClaimAnswer LeasesOf(const std::vector<store::ClaimedJob>& jobs);

}  // namespace tenure::rpc
