// tenure.v1.ScheduleService: validate, convert, one engine call, convert back. Layer: rpc. Thread-safe.
#pragma once

#include "server/engine/schedule_engine.h"
#include "server/rpc/field_rules.h"
#include "server/rpc/method_table.h"
#include "tenure/v1/schedule_service.pb.h"

namespace tenure::rpc {

class ScheduleService {
 public:
  // The engine outlives the service.
  ScheduleService(engine::ScheduleEngine& engine, const Limits& limits) : engine_(engine), limits_(limits) {}
  // Adds the methods; the service outlives the table's use.
  void Register(MethodTable& table);

  void CreateSchedule(CallPtr<v1::CreateScheduleRequest, v1::CreateScheduleResponse> call);
  void UpdateSchedule(CallPtr<v1::UpdateScheduleRequest, v1::UpdateScheduleResponse> call);
  void GetSchedule(CallPtr<v1::GetScheduleRequest, v1::GetScheduleResponse> call);
  void ListSchedules(CallPtr<v1::ListSchedulesRequest, v1::ListSchedulesResponse> call);
  void DeleteSchedule(CallPtr<v1::DeleteScheduleRequest, v1::DeleteScheduleResponse> call);
  void PauseSchedule(CallPtr<v1::PauseScheduleRequest, v1::PauseScheduleResponse> call);
  void ResumeSchedule(CallPtr<v1::ResumeScheduleRequest, v1::ResumeScheduleResponse> call);
  void TriggerSchedule(CallPtr<v1::TriggerScheduleRequest, v1::TriggerScheduleResponse> call);

 private:
  engine::ScheduleEngine& engine_;
  const Limits limits_;
};

}  // namespace tenure::rpc
