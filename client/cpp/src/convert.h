// Between the API's messages and the public structs. Layer: client. Thread-safe: pure functions.
//
// Towards the daemon: text that people wrote freely (errors, progress, reasons) is cleaned and cut; text that means
// something (names, keys, headers) is checked, and an item that does not pass is refused here with INVALID_ARGUMENT,
// since a string that is not UTF-8 would make the daemon refuse the whole message with everybody else's items.
#pragma once

#include <chrono>
#include <optional>

#include "absl/status/status.h"
#include "tenure/client.h"
#include "tenure/v1/admin_service.pb.h"
#include "tenure/v1/job_service.pb.h"
#include "tenure/v1/queue_service.pb.h"
#include "tenure/v1/worker_service.pb.h"

namespace tenure::client::internal {

void ToProto(Duration from, google::protobuf::Duration* to);
void ToProto(Time from, google::protobuf::Timestamp* to);
Duration FromProto(const google::protobuf::Duration& from);
Time FromProto(const google::protobuf::Timestamp& from);

// INVALID_ARGUMENT naming the field whose text is not clean UTF-8; `to` is then unusable.
absl::Status ToProto(const JobSpec& from, v1::JobSpec* to);
absl::Status ToProto(const CompleteItem& from, v1::CompleteItem* to);
absl::Status ToProto(const ExtendItem& from, v1::ExtendItem* to);
absl::Status ToProto(const FailItem& from, v1::FailItem* to);
absl::Status ToProto(const ReleaseItem& from, v1::ReleaseItem* to);
absl::Status ToProto(const SnoozeItem& from, v1::SnoozeItem* to);
absl::Status ToProto(const Payload& from, v1::Payload* to);
void ToProto(const Progress& from, v1::Progress* to);
void ToProto(const QueueSettings& from, v1::QueueSettings* to);
absl::Status ToProto(const ClaimOptions& from, v1::ClaimRequest* to);
absl::Status ToProto(const JobFilter& from, v1::ListRequest* to);

// Checks one string: INVALID_ARGUMENT with metadata field and rule.
absl::Status CheckText(std::string_view field, std::string_view text);

// These take the contents of what they read.
Payload TakePayload(v1::Payload& from);
Backoff TakeBackoff(const v1::Backoff& from);
JobSpec TakeJobSpec(v1::JobSpec& from);
Job TakeJob(v1::Job& from);
ClaimedJob TakeClaimed(v1::ClaimedJob& from, SteadyTime sent);
Settled TakeSettled(v1::SettleResult& from);
Queue TakeQueue(v1::Queue& from);
Notice TakeNotice(v1::Notice& from);
Server TakeServer(const v1::Server& from);

}  // namespace tenure::client::internal
