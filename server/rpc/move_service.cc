#include "server/rpc/move_service.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/rpc/conversion.h"
#include "server/rpc/field_rules.h"
#include "server/rpc/page_token.h"
#include "server/rpc/text.h"

namespace tenure::rpc {
namespace {

constexpr int kMaxKinds = 100;
constexpr int kMaxRate = 100'000;
constexpr int kMaxInFlight = 10'000;
constexpr size_t kMaxRequestId = 255;

absl::StatusOr<std::optional<int32_t>> Bounded(const Field& field, int32_t value, int32_t max) {
  if (value == 0) return std::optional<int32_t>();
  TENURE_RETURN_IF_ERROR(CheckRange(field, value, 1, max));
  return std::optional<int32_t>(value);
}

absl::StatusOr<store::MoveSpec> MoveFrom(v1::MoveSpec& from) {
  store::MoveSpec spec;
  const Field field("spec");
  TENURE_RETURN_IF_ERROR(CheckQueueName(field / "from_queue", from.from_queue()));
  TENURE_RETURN_IF_ERROR(CheckQueueName(field / "to_queue", from.to_queue()));
  if (from.source() != v1::MOVE_SOURCE_DEAD_LETTERS && from.source() != v1::MOVE_SOURCE_BACKLOG) {
    return Invalid(field / "source", "is required: MOVE_SOURCE_DEAD_LETTERS or MOVE_SOURCE_BACKLOG");
  }
  if (from.source() == v1::MOVE_SOURCE_BACKLOG && from.from_queue() == from.to_queue()) {
    return Invalid(field / "to_queue", "must differ from from_queue: the backlog is there already");
  }
  TENURE_RETURN_IF_ERROR(CheckCount(field / "kinds", from.kinds_size(), 0, kMaxKinds, "kinds"));
  for (int i = 0; i < from.kinds_size(); ++i) {
    TENURE_RETURN_IF_ERROR(CheckKind(field.Item("kinds", i), from.kinds(i)));
    spec.kinds.push_back(std::move(*from.mutable_kinds(i)));
  }
  TENURE_ASSIGN_OR_RETURN(spec.rate, Bounded(field / "jobs_per_second", from.jobs_per_second(), kMaxRate));
  TENURE_ASSIGN_OR_RETURN(spec.max_in_flight, Bounded(field / "max_in_flight", from.max_in_flight(), kMaxInFlight));
  spec.from = std::move(*from.mutable_from_queue());
  spec.to = std::move(*from.mutable_to_queue());
  spec.source = static_cast<store::MoveSource>(from.source());
  return spec;
}

void ToMessage(const store::Move& move, v1::Move* out) {
  out->set_id(absl::StrCat(move.id));
  v1::MoveSpec& spec = *out->mutable_spec();
  spec.set_from_queue(move.spec.from);
  spec.set_to_queue(move.spec.to);
  spec.set_source(static_cast<v1::MoveSource>(move.spec.source));
  for (const std::string& kind : move.spec.kinds) spec.add_kinds(kind);
  spec.set_jobs_per_second(move.spec.rate.value_or(0));
  spec.set_max_in_flight(move.spec.max_in_flight.value_or(0));
  out->set_state(static_cast<v1::MoveState>(move.state));
  out->set_standing(move.standing);
  out->set_moved_jobs(move.moved);
  out->set_failed_jobs(move.failed);
  out->set_last_error(SanitizeText(move.last_error, 4096));
  ToProto(move.created, out->mutable_create_time());
  ToProto(move.updated, out->mutable_update_time());
  if (move.ended) ToProto(*move.ended, out->mutable_end_time());
}

template <typename Call>
std::function<void(absl::StatusOr<store::Move>)> AnswerMove(std::shared_ptr<Call> call) {
  return [call = std::move(call)](const absl::StatusOr<store::Move>& move) {
    if (!move.ok()) return call->Finish(move.status());
    ToMessage(*move, call->response().mutable_move());
    call->Finish();
  };
}

// The number in `id`, or the call has been finished with an error.
template <typename Call>
std::optional<int64_t> IdOf(Call& call) {
  int64_t id = 0;
  if (absl::SimpleAtoi(call.request().id(), &id) && id > 0) return id;
  call.Finish(Invalid(Field("id"), "is required: the id of a move, a number from 1 on"));
  return std::nullopt;
}

}  // namespace

void MoveService::Register(MethodTable& table) {
  constexpr char kService[] = "tenure.v1.MoveService";
  table.Add<v1::CreateMoveRequest, v1::CreateMoveResponse>(kService, "CreateMove",
                                                           [this](auto call) { CreateMove(std::move(call)); });
  table.Add<v1::GetMoveRequest, v1::GetMoveResponse>(kService, "GetMove",
                                                     [this](auto call) { GetMove(std::move(call)); });
  table.Add<v1::ListMovesRequest, v1::ListMovesResponse>(kService, "ListMoves",
                                                         [this](auto call) { ListMoves(std::move(call)); });
  table.Add<v1::PauseMoveRequest, v1::PauseMoveResponse>(kService, "PauseMove",
                                                         [this](auto call) { PauseMove(std::move(call)); });
  table.Add<v1::ResumeMoveRequest, v1::ResumeMoveResponse>(kService, "ResumeMove",
                                                           [this](auto call) { ResumeMove(std::move(call)); });
  table.Add<v1::CancelMoveRequest, v1::CancelMoveResponse>(kService, "CancelMove",
                                                           [this](auto call) { CancelMove(std::move(call)); });
}

void MoveService::CreateMove(CallPtr<v1::CreateMoveRequest, v1::CreateMoveResponse> call) {
  v1::CreateMoveRequest& request = call->request();
  absl::StatusOr<store::MoveSpec> spec = MoveFrom(*request.mutable_spec());
  if (!spec.ok()) return call->Finish(spec.status());
  absl::Status valid = CheckText(Field("request_id"), request.request_id(), 0, kMaxRequestId);
  if (!valid.ok()) return call->Finish(valid);
  engine_.CreateMove(*std::move(spec), request.request_id(), AnswerMove(call));
}

void MoveService::GetMove(CallPtr<v1::GetMoveRequest, v1::GetMoveResponse> call) {
  if (const auto id = IdOf(*call)) engine_.GetMove(*id, AnswerMove(call));
}

void MoveService::ListMoves(CallPtr<v1::ListMovesRequest, v1::ListMovesResponse> call) {
  const v1::ListMovesRequest& request = call->request();
  absl::StatusOr<int32_t> page_size = PageSizeFrom(request.page_size(), 100);
  if (!page_size.ok()) return call->Finish(page_size.status());
  absl::StatusOr<std::string> token = DecodePageToken(request.page_token(), request);
  if (!token.ok()) return call->Finish(token.status());
  int64_t before = 0;
  if (!token->empty() && !absl::SimpleAtoi(*token, &before)) {
    return call->Finish(Invalid(Field("page_token"), "is not one that ListMoves gave"));
  }
  // One more than the page tells whether there is a next one.
  engine_.ListMoves(before, *page_size + 1,
                    [call, limit = static_cast<size_t>(*page_size)](absl::StatusOr<std::vector<store::Move>> moves) {
                      if (!moves.ok()) return call->Finish(moves.status());
                      v1::ListMovesResponse& response = call->response();
                      if (moves->size() > limit) {
                        moves->resize(limit);
                        response.set_next_page_token(EncodePageToken(absl::StrCat(moves->back().id), call->request()));
                      }
                      for (const store::Move& move : *moves) ToMessage(move, response.add_moves());
                      call->Finish();
                    });
}

void MoveService::PauseMove(CallPtr<v1::PauseMoveRequest, v1::PauseMoveResponse> call) {
  if (const auto id = IdOf(*call)) engine_.SetMoveState(*id, store::MoveState::kPaused, AnswerMove(call));
}

void MoveService::ResumeMove(CallPtr<v1::ResumeMoveRequest, v1::ResumeMoveResponse> call) {
  if (const auto id = IdOf(*call)) engine_.SetMoveState(*id, store::MoveState::kRunning, AnswerMove(call));
}

void MoveService::CancelMove(CallPtr<v1::CancelMoveRequest, v1::CancelMoveResponse> call) {
  if (const auto id = IdOf(*call)) engine_.SetMoveState(*id, store::MoveState::kCancelled, AnswerMove(call));
}

}  // namespace tenure::rpc
