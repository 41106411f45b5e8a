// Rows of targets: see the header. Layer: store/postgres.
#include "server/store/postgres/target_rows.h"

#include "server/store/postgres/rows.h"

namespace tenure::store::postgres {

Target ReadTarget(const Result& r, int row) {
  Target target;
  target.id = r.Int(row, r.Column("id"));
  target.name = r.Text(row, r.Column("name"));
  target.version = r.Int(row, r.Column("version"));
  TargetSettings& settings = target.settings;
  settings.purpose = static_cast<TargetPurpose>(r.Int(row, r.Column("purpose")));
  settings.url = r.Text(row, r.Column("url"));
  settings.region = r.Text(row, r.Column("region"));
  settings.endpoint = r.Text(row, r.Column("endpoint"));
  settings.queues = r.TextArray(row, r.Column("queues"));
  settings.events = static_cast<int16_t>(r.Int(row, r.Column("events")));
  if (const int column = r.Column("interval_us"); !r.IsNull(row, column)) {
    settings.interval = absl::Microseconds(r.Int(row, column));
  }
  settings.cron = r.Text(row, r.Column("cron"));
  settings.time_zone = r.Text(row, r.Column("time_zone"));
  if (const int column = r.Column("min_age_days"); !r.IsNull(row, column)) settings.min_age_days = r.Int32(row, column);
  settings.secret = r.Text(row, r.Column("secret"));
  settings.description = r.Text(row, r.Column("description"));
  target.has_secret = r.Bool(row, r.Column("has_secret"));
  target.paused = r.Bool(row, r.Column("paused"));
  target.created = r.Time(row, r.Column("created_at"));
  target.updated = r.Time(row, r.Column("updated_at"));
  target.taken = r.Int(row, r.Column("taken"));
  target.waiting = r.Int(row, r.Column("waiting"));
  target.dead = r.Int(row, r.Column("dead"));
  target.last_success = r.OptionalTime(row, r.Column("last_success_at"));
  target.last_error_at = r.OptionalTime(row, r.Column("last_error_at"));
  target.last_error = r.Text(row, r.Column("last_error"));
  return target;
}

std::vector<int32_t> ReadQueueIds(const Result& r, int row) {
  std::vector<int32_t> ids;
  for (const int64_t id : r.IntArray(row, r.Column("queue_ids"))) ids.push_back(static_cast<int32_t>(id));
  return ids;
}

std::vector<Delivery> ReadDeliveries(const Result& r) {
  const int id = r.Column("id"), event = r.Column("event_id"), body = r.Column("body"), attempts = r.Column("attempts"),
            first = r.Column("first_failed_at"), last = r.Column("last_failed_at"), error = r.Column("last_error");
  std::vector<Delivery> deliveries;
  for (int row = 0; row < r.rows(); ++row) {
    if (r.IsNull(row, id)) continue;
    deliveries.push_back({r.Int(row, id), r.Text(row, event), r.Text(row, body), r.Int32(row, attempts),
                          r.Time(row, first), r.Time(row, last), r.Text(row, error)});
  }
  return deliveries;
}

JobEvent ReadEvent(const Result& r, int row) {
  JobEvent event;
  event.job = {r.Int32(row, r.Column("queue_id")), r.Int32(row, r.Column("job_day")), r.Int(row, r.Column("job_id"))};
  event.state = static_cast<JobState>(r.Int(row, r.Column("state")));
  event.queue = r.Text(row, r.Column("queue"));
  event.kind = r.Text(row, r.Column("kind"));
  event.tenant = r.Text(row, r.Column("tenant"));
  event.attempt = r.Int32(row, r.Column("attempt"));
  event.failures = r.Int32(row, r.Column("failures"));
  event.crashes = r.Int32(row, r.Column("crashes"));
  event.created = r.Time(row, r.Column("created_at"));
  event.started = r.OptionalTime(row, r.Column("started_at"));
  event.ended = r.Time(row, r.Column("ended_at"));
  event.error_message = r.Text(row, r.Column("error_message"));
  event.error_type = r.Text(row, r.Column("error_type"));
  const int key = r.Column("effect_key");
  event.effect_key = r.IsNull(row, key) ? event.job.ToString() : r.Text(row, key);
  event.retry_of = r.Text(row, r.Column("retry_of"));
  if (const int headers = r.Column("headers"); !r.IsNull(row, headers)) event.headers = FromJson(r.Json(row, headers));
  return event;
}

}  // namespace tenure::store::postgres
