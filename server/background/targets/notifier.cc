// Notifier: see the header. Layer: background/targets.
#include "server/background/targets/notifier.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/background/targets/event_json.h"
#include "server/base/status.h"

namespace tenure::background::targets {
namespace {

constexpr size_t kMaxError = 500;
constexpr int kDueBatch = 100;
constexpr int kPruneBatch = 1000;
constexpr auto kUpkeepInterval = std::chrono::minutes(1);
constexpr absl::Duration kFinishGrace = absl::Seconds(2);

bool IsStale(const absl::Status& status) { return DetailsOf(status).reason == "PAGE_STALE"; }

}  // namespace

absl::Duration RetryAfter(const NotifierOptions& options, int attempts, std::string_view event_id) {
  absl::Duration wait = options.first_retry;
  for (int i = 1; i < attempts && wait < options.longest_retry; ++i) wait *= 2;
  // FNV-1a: the same in every process.
  uint32_t hash = 2166136261u;
  for (const char c : event_id) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return std::min(wait, options.longest_retry) * (1 + 0.1 * (hash % 1000) / 1000.0);
}

struct Notifier::Lane {
  // A message on its way: of the page, or one that was refused before.
  struct Item {
    Message message;
    int64_t delivery = 0;  // 0: of the page.
    int32_t attempts = 0;  // Before this one.
    bool sent = false;
    std::optional<Verdict> verdict;
  };

  store::TargetWork work;
  std::unique_ptr<Sender> sender;
  std::string unsendable;  // Why there is no sender.
  std::string noted;       // What was written down of it.
  bool gone = false;       // Paused or deleted.
  Breaker breaker;
  int running = 0;
  std::optional<store::EventPage> page;
  Clock::TimePoint page_taken;
  std::vector<Item> of_page, again;
  Clock::TimePoint look_again{};  // For deliveries.

  static bool AllSent(const std::vector<Item>& items) {
    return std::all_of(items.begin(), items.end(), [](const Item& item) { return item.sent; });
  }
  static bool AnySent(const std::vector<Item>& items) { return !items.empty() && items.front().sent; }
};

Notifier::Notifier(store::Store& store, Clock& clock, Metrics& metrics, const Access& access, NotifierOptions options)
    : store_(store),
      clock_(clock),
      metrics_(metrics),
      access_(access),
      options_(options),
      http_(access.allow_private) {}

Notifier::~Notifier() {
  lanes_.clear();
  ShowState();
}

absl::StatusOr<absl::Duration> Notifier::Round(RunContext& context) {
  const std::stop_callback wake(context.stop(), [this] { http_.Wake(); });
  const Clock::TimePoint now = clock_.Now();
  if (now >= next_load_) {
    next_load_ = now + absl::ToChronoNanoseconds(options_.poll_interval);
    TENURE_RETURN_IF_ERROR(Load(context.fence()));
  }
  if (now >= next_upkeep_) {
    next_upkeep_ = now + kUpkeepInterval;
    TENURE_RETURN_IF_ERROR(Upkeep(context.fence()));
  }
  for (const auto& [id, lane] : lanes_) {
    TENURE_RETURN_IF_ERROR(Fill(context.fence(), *lane));
    SendFrom(*lane);
  }
  ShowState();
  http_.Run(absl::FromChrono(std::max(next_load_ - clock_.Now(), Clock::Duration::zero())));
  for (auto it = lanes_.begin(); it != lanes_.end();) {
    TENURE_RETURN_IF_ERROR(Settle(context.fence(), *it->second));
    it = it->second->gone && it->second->running == 0 ? lanes_.erase(it) : std::next(it);
  }
  return absl::ZeroDuration();
}

absl::Status Notifier::Load(const store::Fence& fence) {
  TENURE_ASSIGN_OR_RETURN(std::vector<store::TargetWork> targets, store_.LoadTargets(store::TargetPurpose::kNotify));
  for (const auto& [id, lane] : lanes_) lane->gone = true;
  for (store::TargetWork& work : targets) {
    std::unique_ptr<Lane>& lane = lanes_[work.target.id];
    if (lane == nullptr) lane = std::make_unique<Lane>();
    const bool changed = lane->sender == nullptr || lane->work.target.version != work.target.version;
    lane->gone = false;
    lane->work = std::move(work);
    if (changed) {
      absl::StatusOr<std::unique_ptr<Sender>> sender = MakeSender(lane->work.target.settings, access_);
      lane->unsendable = sender.ok() ? "" : std::string(sender.status().message());
      lane->sender = sender.ok() ? *std::move(sender) : nullptr;
      lane->breaker = Breaker();  // Its owner may have mended it.
    }
    if (!lane->unsendable.empty() && lane->unsendable != lane->noted) {
      TENURE_RETURN_IF_ERROR(store_.NoteTarget(fence, lane->work.target.id, lane->unsendable, std::nullopt));
    }
    lane->noted = lane->unsendable;
  }
  return absl::OkStatus();
}

absl::Status Notifier::Fill(const store::Fence& fence, Lane& lane) {
  if (lane.gone || lane.sender == nullptr) return absl::OkStatus();
  const int64_t target = lane.work.target.id;
  while (!lane.page && lane.work.fresh) {
    TENURE_ASSIGN_OR_RETURN(store::EventPage page, store_.TakePage(fence, target, options_.batch, /*planned=*/false));
    if (page.nothing) {
      lane.work.fresh = false;
      break;
    }
    if (page.events.empty()) {
      const absl::Status finished = store_.FinishPage(fence, target, page, 0, {}, "");
      if (!finished.ok() && !IsStale(finished)) return finished;
      lane.work.fresh = page.more && finished.ok();  // The next look finds what came meanwhile.
      continue;
    }
    for (const store::JobEvent& event : page.events) lane.of_page.push_back({{event.Id(), EventJson(event)}});
    lane.page = std::move(page);
    lane.page_taken = clock_.Now();
  }
  const Clock::TimePoint now = clock_.Now();
  if (lane.again.empty() && lane.work.next_delivery && *lane.work.next_delivery <= absl::ZeroDuration() &&
      now >= lane.look_again) {
    TENURE_ASSIGN_OR_RETURN(std::vector<store::Delivery> due, store_.DueDeliveries(target, kDueBatch));
    for (store::Delivery& delivery : due) {
      lane.again.push_back({{std::move(delivery.event_id), std::move(delivery.body)}, delivery.id, delivery.attempts});
    }
    // What is due by then is known from the next look at the targets.
    if (due.empty()) lane.look_again = now + absl::ToChronoNanoseconds(options_.poll_interval);
  }
  return absl::OkStatus();
}

void Notifier::SendFrom(Lane& lane) {
  if (lane.gone || lane.sender == nullptr) return;
  // What was refused before goes first: it has waited longest.
  for (std::vector<Lane::Item>* items : {&lane.again, &lane.of_page}) {
    size_t next = 0;
    while (lane.breaker.Room(clock_.Now(), lane.running, options_.in_flight) > 0) {
      while (next < items->size() && (*items)[next].sent) ++next;
      std::vector<size_t> batch;
      const size_t most = lane.breaker.open() ? 1 : lane.sender->batch();
      for (; next < items->size() && batch.size() < most; ++next) batch.push_back(next);
      if (batch.empty()) break;
      std::vector<Message> messages;
      for (const size_t i : batch) {
        (*items)[i].sent = true;
        messages.push_back((*items)[i].message);
      }
      HttpRequest request = lane.sender->Request(messages, absl::Now());
      request.timeout = options_.timeout;
      ++lane.running;
      http_.Start(std::move(request), [this, &lane, items, batch,
                                       messages](const absl::StatusOr<HttpResponse>& response) {
        --lane.running;
        if (response.ok()) {
          metrics_.target_request_duration.Observe({{"purpose", "notify"}}, absl::ToDoubleSeconds(response->took));
        }
        // The sender may be another one by now, of the same kind or not; what was sent by the old one is judged so.
        const std::vector<Verdict> verdicts = lane.sender != nullptr ? lane.sender->Judge(messages, response)
                                                                     : std::vector<Verdict>(messages.size(), Verdict{});
        bool trouble = false, accepted = false;
        for (size_t i = 0; i < batch.size(); ++i) {
          (*items)[batch[i]].verdict = verdicts[i];
          trouble = trouble || verdicts[i].trouble;
          accepted = accepted || verdicts[i].accepted;
        }
        if (trouble && !accepted) {
          lane.breaker.Failed(clock_.Now());
        } else {
          lane.breaker.Succeeded();
        }
      });
    }
  }
}

absl::Status Notifier::Settle(const store::Fence& fence, Lane& lane) {
  if (lane.running > 0) return absl::OkStatus();
  const int64_t target = lane.work.target.id;
  // With the breaker open, or without a target, what has been sent is all that will be sent for now.
  const bool cut = lane.gone || lane.breaker.open() || lane.sender == nullptr;
  int accepted = 0, refused_count = 0, dead = 0;
  const auto judge = [&](const Lane::Item& item, std::string& error, absl::Duration& retry_in, bool& is_dead) {
    error = item.verdict->error.substr(0, kMaxError);
    const int attempts = item.attempts + 1;
    is_dead = attempts >= options_.max_attempts;
    retry_in = std::max(RetryAfter(options_, attempts, item.message.event_id), item.verdict->retry_after);
    ++(is_dead ? dead : refused_count);
  };
  if (lane.page && (Lane::AllSent(lane.of_page) || (cut && Lane::AnySent(lane.of_page)))) {
    std::vector<store::Refused> refused;
    std::string error;
    size_t sent = 0;
    for (const Lane::Item& item : lane.of_page) {
      if (!item.sent) break;
      ++sent;
      if (item.verdict->accepted) {
        ++accepted;
        continue;
      }
      store::Refused& entry = refused.emplace_back();
      entry.event_id = item.message.event_id;
      entry.body = item.message.body;
      judge(item, entry.error, entry.retry_in, entry.dead);
      error = entry.error;
    }
    const absl::Status finished = store_.FinishPage(fence, target, *lane.page, sent, refused, error);
    if (!finished.ok() && !IsStale(finished)) return finished;
    lane.work.fresh = lane.page->more || sent < lane.of_page.size();
    lane.page.reset();
    lane.of_page.clear();
  }
  if (!lane.again.empty() && (Lane::AllSent(lane.again) || cut)) {
    std::vector<store::DeliveryOutcome> outcomes;
    for (const Lane::Item& item : lane.again) {
      if (!item.sent) continue;
      store::DeliveryOutcome& outcome = outcomes.emplace_back();
      outcome.id = item.delivery;
      outcome.accepted = item.verdict->accepted;
      if (outcome.accepted) {
        ++accepted;
      } else {
        judge(item, outcome.error, outcome.retry_in, outcome.dead);
      }
    }
    // The breaker is open and none of them has been tried: they keep.
    if (!outcomes.empty()) {
      TENURE_RETURN_IF_ERROR(store_.SettleDeliveries(fence, target, outcomes));
      lane.again.clear();
    } else if (lane.gone) {
      lane.again.clear();
    }
  }
  Metrics::Add(metrics_.target_events, {{"purpose", "notify"}, {"outcome", "accepted"}}, accepted);
  Metrics::Add(metrics_.target_events, {{"purpose", "notify"}, {"outcome", "refused"}}, refused_count);
  Metrics::Add(metrics_.target_events, {{"purpose", "notify"}, {"outcome", "dead"}}, dead);
  return absl::OkStatus();
}

absl::Status Notifier::Upkeep(const store::Fence& fence) {
  for (const auto& [id, lane] : lanes_) {
    TENURE_RETURN_IF_ERROR(store_.PruneDeliveries(fence, id, options_.dead_retention, kPruneBatch).status());
  }
  return store_.RotateOutbox(fence);
}

void Notifier::ShowState() {
  double lag = 0;
  int open = 0;
  for (const auto& [id, lane] : lanes_) {
    if (lane->breaker.open()) ++open;
    if (!lane->page) continue;
    lag = std::max(lag, absl::ToDoubleSeconds(lane->page->lag + absl::FromChrono(clock_.Now() - lane->page_taken)));
  }
  metrics_.target_lag.Add({{"purpose", "notify"}}).Set(lag);
  metrics_.target_breakers_open.Add({{"purpose", "notify"}}).Set(open);
}

void Notifier::Finish(RunContext& context) {
  const Clock::TimePoint deadline = clock_.Now() + absl::ToChronoNanoseconds(kFinishGrace);
  while (http_.running() > 0 && clock_.Now() < deadline) http_.Run(absl::Milliseconds(100));
  for (const auto& [id, lane] : lanes_) {
    lane->gone = true;
    // If the term is over, the next leader does it again.
    if (!Settle(context.fence(), *lane).ok()) return;
  }
}

}  // namespace tenure::background::targets
