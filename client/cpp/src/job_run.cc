// See job_run.h, and JobContext in tenure/worker_pool.h.
#include "job_run.h"

#include <cxxabi.h>

#include <cstdio>
#include <cstdlib>
#include <typeinfo>

namespace tenure::client {
namespace internal {
namespace {

std::string TypeName(const std::type_info& type) {
  int failed = 0;
  char* readable = abi::__cxa_demangle(type.name(), nullptr, nullptr, &failed);
  std::string name = failed == 0 ? readable : type.name();
  std::free(readable);
  return name;
}

}  // namespace

Outcome JobRun::Execute(const Handler& handler) {
  JobContext context(*this);
  // Every outcome can be thrown as well as returned.
  try {
    return handler(context);
  } catch (Complete& outcome) {
    return std::move(outcome);
  } catch (Fail& outcome) {
    return std::move(outcome);
  } catch (RetryAfter& outcome) {
    return std::move(outcome);
  } catch (Snooze& outcome) {
    return outcome;
  } catch (Discard& outcome) {
    return std::move(outcome);
  } catch (Cancelled& outcome) {
    return outcome;
  } catch (SettledElsewhere& outcome) {
    return outcome;
  } catch (const std::exception& error) {
    Count(shared->counters.handler_exceptions);
    return Fail{error.what(), TypeName(typeid(error)), {}};
  } catch (...) {
    Count(shared->counters.handler_exceptions);
    const std::type_info* type = abi::__cxa_current_exception_type();
    const std::string name = type != nullptr ? TypeName(*type) : "unknown";
    return Fail{"the handler threw a value of type " + name, name, {}};
  }
}

void JobRun::AddFollowUp(JobSpec spec) {
  std::lock_guard lock(mutex_);
  follow_ups_.push_back(std::move(spec));
}

std::vector<JobSpec> JobRun::TakeFollowUps() {
  std::lock_guard lock(mutex_);
  return std::exchange(follow_ups_, {});
}

void PoolShared::LastResort(std::string_view what) {
  std::fprintf(stderr, "tenure: a hook or logger of the worker pool threw: %.*s\n", static_cast<int>(what.size()),
               what.data());
}

}  // namespace internal

const Job& JobContext::job() const { return run_.claimed.job; }
const std::string& JobContext::lease_token() const { return run_.claimed.lease_token; }
std::stop_token JobContext::stop_token() const { return run_.lease->stop_token(); }
SteadyTime JobContext::deadline() const { return run_.lease->end(); }
LeaseState JobContext::lease_state() const { return run_.lease->state(); }

void JobContext::ReportProgress(double fraction, std::string message) {
  run_.keeper->SetProgress(run_.lease, {fraction, std::move(message)});
}

void JobContext::AddFollowUp(JobSpec spec) { run_.AddFollowUp(std::move(spec)); }

void JobContext::Log(LogLevel level, std::string_view message) const {
  std::string line = "job " + id() + " (" + kind() + ", attempt " + std::to_string(attempt()) + "): ";
  line.append(message);
  run_.shared->Log(level, line);
}

}  // namespace tenure::client
