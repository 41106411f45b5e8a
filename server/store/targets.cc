// Names of events. Layer: store. Values only.
#include "server/store/targets.h"

#include "absl/strings/str_cat.h"

namespace tenure::store {

std::string_view OutcomeName(JobState state) {
  switch (state) {
    case JobState::kCompleted:
      return "completed";
    case JobState::kDiscarded:
      return "discarded";
    case JobState::kCancelled:
      return "cancelled";
    case JobState::kExpired:
      return "expired";
    default:
      return "";
  }
}

std::string JobEvent::Id() const { return absl::StrCat(job.ToString(), ".", std::string(OutcomeName(state))); }

}  // namespace tenure::store
