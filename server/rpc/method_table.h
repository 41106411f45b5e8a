// The RPCs, once, for every transport: path -> handler, and the metrics of each call. Services add their methods; the
// gRPC server and the JSON dispatcher look them up. Layer: rpc. Filled before serving, then read only: thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "google/protobuf/descriptor.h"
#include "server/base/clock.h"
#include "server/base/metrics.h"
#include "server/rpc/call.h"

namespace tenure::rpc {

class Method {
 public:
  Method(Clock& clock, Metrics& metrics, const google::protobuf::MethodDescriptor& descriptor);
  virtual ~Method() = default;
  Method(const Method&) = delete;
  Method& operator=(const Method&) = delete;

  // "/tenure.v1.JobService/Enqueue"
  const std::string& path() const { return path_; }
  const google::protobuf::MethodDescriptor& descriptor() const { return descriptor_; }

  // A call with an empty request. `finished` runs once, inside its Finish. Parse the request into it, then Run it; if
  // the request does not parse, Finish it with the error instead: either way it is counted.
  std::shared_ptr<CallBase> NewCall(std::optional<absl::Duration> timeout, std::string peer,
                                    CallBase::Finished finished) const;
  // Starts the handler; returns without waiting.
  virtual void Run(const std::shared_ptr<CallBase>& call) const = 0;

 protected:
  virtual std::shared_ptr<CallBase> Make(std::optional<absl::Duration> timeout, std::string peer) const = 0;

  Clock& clock_;

 private:
  void Record(absl::StatusCode code, Clock::TimePoint started) const;

  Metrics& metrics_;
  const google::protobuf::MethodDescriptor& descriptor_;
  const std::string path_;
  const std::string label_;
  prometheus::Histogram& duration_;
  // Series by status code, looked up on first use: a look-up in the family hashes strings under a lock.
  mutable std::array<std::atomic<prometheus::Counter*>, 17> by_code_{};
};

class MethodTable {
 public:
  // All outlive the table.
  MethodTable(Clock& clock, Metrics& metrics) : clock_(clock), metrics_(metrics) {}

  // Registers `handler` as the RPC `name` of the proto service `service` ("tenure.v1.JobService"). The proto must
  // declare it with these types; anything else is a programming error and aborts.
  template <typename Request, typename Response>
  void Add(std::string_view service, std::string_view name, std::function<void(CallPtr<Request, Response>)> handler) {
    Insert(std::make_unique<Typed<Request, Response>>(
        clock_, metrics_, Find(service, name, *Request::descriptor(), *Response::descriptor()), std::move(handler)));
  }

  // nullptr if there is none.
  const Method* Find(std::string_view path) const;
  // By path.
  const std::map<std::string, std::unique_ptr<Method>, std::less<>>& methods() const { return methods_; }

 private:
  template <typename Request, typename Response>
  class Typed final : public Method {
   public:
    Typed(Clock& clock, Metrics& metrics, const google::protobuf::MethodDescriptor& descriptor,
          std::function<void(CallPtr<Request, Response>)> handler)
        : Method(clock, metrics, descriptor), handler_(std::move(handler)) {}
    void Run(const std::shared_ptr<CallBase>& call) const override {
      handler_(std::static_pointer_cast<Call<Request, Response>>(call));
    }

   protected:
    std::shared_ptr<CallBase> Make(std::optional<absl::Duration> timeout, std::string peer) const override {
      return std::make_shared<Call<Request, Response>>(clock_, timeout, std::move(peer));
    }

   private:
    const std::function<void(CallPtr<Request, Response>)> handler_;
  };

  static const google::protobuf::MethodDescriptor& Find(std::string_view service, std::string_view name,
                                                        const google::protobuf::Descriptor& request,
                                                        const google::protobuf::Descriptor& response);
  void Insert(std::unique_ptr<Method> method);

  Clock& clock_;
  Metrics& metrics_;
  std::map<std::string, std::unique_ptr<Method>, std::less<>> methods_;
};

}  // namespace tenure::rpc
