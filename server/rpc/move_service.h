// tenure.v1.MoveService: validate, convert, one engine call, convert back. Layer: rpc. Thread-safe.
#pragma once

#include "server/engine/move_engine.h"
#include "server/rpc/method_table.h"
#include "tenure/v1/move_service.pb.h"

namespace tenure::rpc {

class MoveService {
 public:
  // The engine outlives the service.
  explicit MoveService(engine::MoveEngine& engine) : engine_(engine) {}
  // Adds the methods; the service outlives the table's use.
  void Register(MethodTable& table);

  void CreateMove(CallPtr<v1::CreateMoveRequest, v1::CreateMoveResponse> call);
  void GetMove(CallPtr<v1::GetMoveRequest, v1::GetMoveResponse> call);
  void ListMoves(CallPtr<v1::ListMovesRequest, v1::ListMovesResponse> call);
  void PauseMove(CallPtr<v1::PauseMoveRequest, v1::PauseMoveResponse> call);
  void ResumeMove(CallPtr<v1::ResumeMoveRequest, v1::ResumeMoveResponse> call);
  void CancelMove(CallPtr<v1::CancelMoveRequest, v1::CancelMoveResponse> call);

 private:
  engine::MoveEngine& engine_;
};

}  // namespace tenure::rpc
