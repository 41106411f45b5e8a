#include "server/rpc/method_table.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "server/base/logging.h"
#include "server/rpc/status_mapping.h"

namespace tenure::rpc {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::MethodDescriptor;

Method::Method(Clock& clock, Metrics& metrics, const MethodDescriptor& descriptor)
    : clock_(clock),
      metrics_(metrics),
      descriptor_(descriptor),
      path_(absl::StrCat("/", descriptor.service()->full_name(), "/", descriptor.name())),
      label_(path_.substr(1)),
      duration_(metrics.rpc_duration.Add({{"method", label_}})) {}

std::shared_ptr<CallBase> Method::NewCall(std::optional<absl::Duration> timeout, std::string peer,
                                          CallBase::Finished finished) const {
  std::shared_ptr<CallBase> call = Make(timeout, std::move(peer));
  call->set_finished([this, finished = std::move(finished)](CallBase& ended, const absl::Status& status) {
    Record(status.code(), ended.started());
    finished(ended, status);
  });
  return call;
}

void Method::Record(absl::StatusCode code, Clock::TimePoint started) const {
  duration_.Observe(std::chrono::duration<double>(clock_.Now() - started).count());
  const size_t index = static_cast<size_t>(code) < by_code_.size() ? static_cast<size_t>(code) : 2;  // 2: UNKNOWN
  prometheus::Counter* counter = by_code_[index].load(std::memory_order_acquire);
  if (counter == nullptr) {
    counter = &metrics_.rpcs.Add({{"method", label_}, {"code", std::string(CodeName(code))}});
    by_code_[index].store(counter, std::memory_order_release);
  }
  counter->Increment();
}

const Method* MethodTable::Find(std::string_view path) const {
  auto found = methods_.find(path);
  return found == methods_.end() ? nullptr : found->second.get();
}

const MethodDescriptor& MethodTable::Find(std::string_view service, std::string_view name, const Descriptor& request,
                                          const Descriptor& response) {
  const auto* service_descriptor = DescriptorPool::generated_pool()->FindServiceByName(std::string(service));
  const MethodDescriptor* method =
      service_descriptor == nullptr ? nullptr : service_descriptor->FindMethodByName(std::string(name));
  if (method == nullptr || method->input_type() != &request || method->output_type() != &response) {
    LogError("the proto declares no such method with these types",
             {{"service", std::string(service)}, {"method", std::string(name)}});
    std::abort();
  }
  return *method;
}

void MethodTable::Insert(std::unique_ptr<Method> method) {
  std::string path = method->path();
  methods_.emplace(std::move(path), std::move(method));
}

}  // namespace tenure::rpc
