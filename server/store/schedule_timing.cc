// Slots of schedules: see the header. Layer: store.
#include "server/store/schedule_timing.h"

#include <algorithm>
#include <deque>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/base/time_zone.h"

namespace tenure::store {
namespace {

// Cron slots are counted one by one. Beyond so many the count stops, and the last ones are looked for from the other
// end.
constexpr int64_t kMaxWalk = 100'000;

// How often `part` fits into `whole`, which is not negative.
int64_t Whole(absl::Duration whole, absl::Duration part) {
  absl::Duration rest;
  return absl::IDivDuration(whole, part, &rest);
}

absl::Status Invalid(std::string_view path, const char* field, absl::string_view rule) {
  return InvalidField(absl::StrCat(absl::string_view(path.data(), path.size()), field), std::string(rule));
}

}  // namespace

absl::StatusOr<Timing> Timing::Make(const ScheduleTiming& timing, std::string_view path) {
  Timing out;
  if (timing.cron.empty() == (timing.interval == absl::ZeroDuration())) {
    return Invalid(path, "cron", "give exactly one of cron and interval");
  }
  if (timing.cron.empty()) {
    if (timing.interval < kMinInterval || timing.interval > kMaxInterval) {
      return Invalid(path, "interval",
                     absl::StrCat("is ", absl::FormatDuration(timing.interval), "; it must be from 1s to 366 days"));
    }
    out.interval_ = timing.interval;
    out.anchor_ = timing.anchor;
    return out;
  }
  absl::StatusOr<CronExpression> cron = CronExpression::Parse(timing.cron);
  if (!cron.ok()) return Invalid(path, "cron", cron.status().message());
  absl::StatusOr<absl::TimeZone> zone = LoadZone(timing.time_zone);
  if (!zone.ok()) return Invalid(path, "time_zone", zone.status().message());
  out.cron_ = *cron;
  out.zone_ = *zone;
  return out;
}

std::optional<absl::Time> Timing::Next(absl::Time after) const {
  if (cron_) return cron_->Next(after, zone_);
  if (after >= absl::FromCivil(absl::CivilYear(9000), absl::UTCTimeZone())) return std::nullopt;
  const absl::Time base = std::max(after, anchor_);
  return anchor_ + interval_ * (Whole(base - anchor_, interval_) + 1);
}

Timing::Plan Timing::Due(absl::Time next, absl::Time now, absl::Duration on_time, int catch_up, Overlap overlap) const {
  const size_t keep = static_cast<size_t>(std::clamp(catch_up, 0, kMaxRun));
  Plan plan;
  std::deque<absl::Time> last;  // The last kMaxRun that were met.
  int64_t met = 0;
  const auto walk = [&](absl::Time from) {
    met = 0;
    last.clear();
    std::optional<absl::Time> slot = from;
    while (slot && *slot <= now && met < kMaxWalk) {
      ++met;
      last.push_back(*slot);
      if (last.size() > static_cast<size_t>(kMaxRun)) last.pop_front();
      slot = Next(*slot);
    }
    plan.next = slot.value_or(absl::InfiniteFuture());
    return !slot || *slot > now;
  };
  int64_t in_all = 0;
  if (!cron_ && Whole(now - next, interval_) > kMaxRun) {
    in_all = Whole(now - next, interval_) + 1;
    walk(next + interval_ * (in_all - kMaxRun));
  } else if (walk(next)) {
    in_all = met;
  } else {
    // A year of every minute, say. No cron expression has more than one slot a minute, so that these hours hold no more
    // than the walk can count.
    in_all = kMaxWalk;
    walk(*Next(now - absl::Minutes(kMaxWalk - 1)));
  }
  size_t run = 0;
  for (size_t back = 0; back < last.size(); ++back) {
    if (back >= keep && now - last[last.size() - 1 - back] > on_time) break;
    run = back + 1;
  }
  if (overlap != Overlap::kAllow) run = std::min<size_t>(run, 1);
  plan.run.assign(last.end() - static_cast<std::ptrdiff_t>(run), last.end());
  plan.missed = std::max(in_all, met) - static_cast<int64_t>(run);
  return plan;
}

}  // namespace tenure::store
