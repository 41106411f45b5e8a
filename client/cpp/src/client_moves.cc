// Client's calls on moves. See tenure/client.h.
#include <utility>

#include "calls.h"
#include "convert.h"
#include "tenure/client.h"

namespace tenure::client {
namespace {

using internal::Call;

Move TakeMove(v1::Move& from) {
  Move to;
  to.id = std::move(*from.mutable_id());
  v1::MoveSpec& spec = *from.mutable_spec();
  to.spec.from_queue = std::move(*spec.mutable_from_queue());
  to.spec.to_queue = std::move(*spec.mutable_to_queue());
  to.spec.source = static_cast<MoveSource>(spec.source());
  for (std::string& kind : *spec.mutable_kinds()) to.spec.kinds.push_back(std::move(kind));
  if (spec.jobs_per_second() != 0) to.spec.jobs_per_second = spec.jobs_per_second();
  if (spec.max_in_flight() != 0) to.spec.max_in_flight = spec.max_in_flight();
  to.state = static_cast<MoveState>(from.state());
  to.standing = from.standing();
  to.moved_jobs = from.moved_jobs();
  to.failed_jobs = from.failed_jobs();
  to.last_error = std::move(*from.mutable_last_error());
  if (from.has_create_time()) to.create_time = internal::FromProto(from.create_time());
  if (from.has_update_time()) to.update_time = internal::FromProto(from.update_time());
  if (from.has_end_time()) to.end_time = internal::FromProto(from.end_time());
  return to;
}

// The calls that name a move and answer with it.
template <typename Request, typename Response>
absl::StatusOr<Move> NamedMove(internal::Connection& connection, std::string_view id, const CallOptions& options) {
  if (absl::Status status = internal::CheckText("id", id); !status.ok()) return status;
  Request request;
  request.set_id(std::string(id));
  Response response;
  absl::Status status = Call(connection, request, &response, internal::BoundsOf(connection, options));
  if (!status.ok()) return status;
  return TakeMove(*response.mutable_move());
}

}  // namespace

absl::StatusOr<Move> Client::CreateMove(const MoveSpec& spec, std::string_view request_id, const CallOptions& options) {
  v1::CreateMoveRequest request;
  v1::MoveSpec& to = *request.mutable_spec();
  for (const auto& [field, text] : {std::pair<const char*, std::string_view>{"from_queue", spec.from_queue},
                                    {"to_queue", spec.to_queue},
                                    {"request_id", request_id}}) {
    if (absl::Status status = internal::CheckText(field, text); !status.ok()) return status;
  }
  to.set_from_queue(spec.from_queue);
  to.set_to_queue(spec.to_queue);
  to.set_source(static_cast<v1::MoveSource>(spec.source));
  for (const std::string& kind : spec.kinds) {
    if (absl::Status status = internal::CheckText("kinds", kind); !status.ok()) return status;
    to.add_kinds(kind);
  }
  to.set_jobs_per_second(spec.jobs_per_second.value_or(0));
  to.set_max_in_flight(spec.max_in_flight.value_or(0));
  request.set_request_id(request_id.empty() ? NewRequestId() : std::string(request_id));
  v1::CreateMoveResponse response;
  absl::Status status = Call(*connection_, request, &response, internal::BoundsOf(*connection_, options));
  if (!status.ok()) return status;
  return TakeMove(*response.mutable_move());
}

absl::StatusOr<Move> Client::GetMove(std::string_view id, const CallOptions& options) {
  return NamedMove<v1::GetMoveRequest, v1::GetMoveResponse>(*connection_, id, options);
}

absl::StatusOr<MovePage> Client::ListMoves(int page_size, std::string_view page_token, const CallOptions& options) {
  v1::ListMovesRequest request;
  request.set_page_size(page_size);
  request.set_page_token(std::string(page_token));
  v1::ListMovesResponse response;
  absl::Status status = Call(*connection_, request, &response, internal::BoundsOf(*connection_, options));
  if (!status.ok()) return status;
  MovePage page;
  for (v1::Move& move : *response.mutable_moves()) page.moves.push_back(TakeMove(move));
  page.next_page_token = std::move(*response.mutable_next_page_token());
  return page;
}

absl::StatusOr<Move> Client::PauseMove(std::string_view id, const CallOptions& options) {
  return NamedMove<v1::PauseMoveRequest, v1::PauseMoveResponse>(*connection_, id, options);
}

absl::StatusOr<Move> Client::ResumeMove(std::string_view id, const CallOptions& options) {
  return NamedMove<v1::ResumeMoveRequest, v1::ResumeMoveResponse>(*connection_, id, options);
}

absl::StatusOr<Move> Client::CancelMove(std::string_view id, const CallOptions& options) {
  return NamedMove<v1::CancelMoveRequest, v1::CancelMoveResponse>(*connection_, id, options);
}

}  // namespace tenure::client
