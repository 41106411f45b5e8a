// tenurectl schedule: make, change, list, pause, resume, delete and trigger schedules. Layer: client/cli. Not
// thread-safe.
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/named_calls.h"
#include "client/cli/options.h"
#include "client/cli/output.h"
#include "client/cli/values.h"

namespace tenure::cli {
namespace {

const std::map<std::string, v1::OverlapPolicy>& Policies() {
  static const auto* policies =
      new std::map<std::string, v1::OverlapPolicy>{{"allow", v1::OVERLAP_POLICY_ALLOW},
                                                   {"skip", v1::OVERLAP_POLICY_SKIP},
                                                   {"cancel-previous", v1::OVERLAP_POLICY_CANCEL_PREVIOUS}};
  return *policies;
}

std::string PolicyName(v1::OverlapPolicy policy) {
  for (const auto& [name, value] : Policies()) {
    if (value == policy) return name;
  }
  return absl::StrCat(static_cast<int>(policy));
}

struct SpecOptions {
  std::string name;
  std::optional<std::string> cron, time_zone, queue, kind, tenant, overlap, description;
  std::optional<absl::Duration> every, ttl, backoff_initial, backoff_max;
  std::optional<double> backoff_multiplier;
  std::optional<int32_t> catch_up, priority, max_attempts, crash_budget;
  PayloadOptions payload;
  std::map<std::string, std::string> headers;
  bool paused = false;
  std::vector<std::string> reset;

  bool has_payload() const { return payload.given() || !payload.content_type.empty(); }
  bool has_job() const {
    return queue || kind || tenant || ttl || backoff_initial || backoff_max || backoff_multiplier || priority ||
           max_attempts || crash_budget || has_payload() || !headers.empty();
  }
};

void AddSpec(CLI::App& command, SpecOptions& options, bool create) {
  command.add_option("name", options.name, "Name of the schedule: 1 to 128 of A-Z a-z 0-9 . _ : / -")->required();
  CLI::Option* cron = command.add_option("-c,--cron", options.cron,
                                         "When: minute hour day-of-month month day-of-week, or @hourly, @daily, ...");
  AddDuration(command, "--every", options.every, "When: so long from one slot to the next, 1s to 366d")->excludes(cron);
  command.add_option("--time-zone", options.time_zone, "Of --cron, such as Europe/Berlin [UTC]");
  CLI::Option* queue = command.add_option("-q,--queue", options.queue, "The jobs' queue");
  CLI::Option* kind = command.add_option("-k,--kind", options.kind, "Names the jobs' handler");
  if (create) {
    queue->required();
    kind->required();
  }
  AddPayload(command, "payload", options.payload, "The jobs' payload", /*positional=*/create);
  AddPairs(command, "--header", options.headers, "A header of the jobs; may be repeated");
  command.add_option("--priority", options.priority, "Higher first, -100 to 100 [0]");
  command.add_option("--tenant", options.tenant, "The fairness key");
  AddDuration(command, "--ttl", options.ttl, "A job expires unless it has started so long after its slot fired");
  command
      .add_option("--max-attempts", options.max_attempts, "Failures until a job becomes a dead letter [the queue's]")
      ->check(CLI::Range(1, 10'000));
  command.add_option("--crash-budget", options.crash_budget, "Leases that may run out under a job [the queue's]")
      ->check(CLI::Range(1, 1'000));
  AddDuration(command, "--backoff-initial", options.backoff_initial, "Wait after the first failure [the queue's]");
  command.add_option("--backoff-multiplier", options.backoff_multiplier, "Growth of the wait per failure");
  AddDuration(command, "--backoff-max", options.backoff_max, "The longest wait");
  std::vector<std::string> names;
  for (const auto& [name, unused] : Policies()) names.push_back(name);
  command.add_option("--overlap", options.overlap, "What to do while the job before has not ended [allow]")
      ->check(CLI::IsMember(names));
  command.add_option("--catch-up", options.catch_up, "How many missed slots run, 0 to 100 [1]");
  command.add_option("--description", options.description, "A note for people");
}

absl::Status SetJob(const SpecOptions& options, std::istream& in, v1::JobSpec& job) {
  if (options.queue) job.set_queue(*options.queue);
  if (options.kind) job.set_kind(*options.kind);
  if (options.tenant) job.set_tenant(*options.tenant);
  if (options.priority) job.set_priority(*options.priority);
  if (options.max_attempts) job.set_max_attempts(*options.max_attempts);
  if (options.crash_budget) job.set_crash_budget(*options.crash_budget);
  if (options.ttl) *job.mutable_ttl() = ToProto(*options.ttl);
  if (options.backoff_initial) *job.mutable_backoff()->mutable_initial() = ToProto(*options.backoff_initial);
  if (options.backoff_multiplier) job.mutable_backoff()->set_multiplier(*options.backoff_multiplier);
  if (options.backoff_max) *job.mutable_backoff()->mutable_max() = ToProto(*options.backoff_max);
  if (!options.headers.empty()) {
    job.mutable_headers()->clear();
    job.mutable_headers()->insert(options.headers.begin(), options.headers.end());
  }
  if (!options.has_payload()) return absl::OkStatus();
  job.clear_payload();
  return ReadPayload(options.payload, "payload", in, *job.mutable_payload());
}

// All but the job. The names of what is set go to `fields`.
void SetRest(const SpecOptions& options, v1::ScheduleSpec& spec, std::vector<std::string>& fields) {
  if (options.cron) {
    spec.set_cron(*options.cron);
    fields.emplace_back("cron");
  }
  if (options.every) {
    *spec.mutable_interval() = ToProto(*options.every);
    fields.emplace_back("interval");
  }
  if (options.time_zone) {
    spec.set_time_zone(*options.time_zone);
    fields.emplace_back("time_zone");
  }
  if (options.overlap) {
    spec.set_overlap_policy(Policies().at(*options.overlap));
    fields.emplace_back("overlap_policy");
  }
  if (options.catch_up) {
    spec.set_catch_up(*options.catch_up);
    fields.emplace_back("catch_up");
  }
  if (options.description) {
    spec.set_description(*options.description);
    fields.emplace_back("description");
  }
}

std::string When(const v1::ScheduleSpec& spec) {
  if (spec.has_cron()) return OneLine(spec.cron(), 256);
  return absl::StrCat("every ", ShowDuration(FromProto(spec.interval())));
}

void PrintSchedule(Context& context, const v1::Schedule& schedule) {
  if (context.json) {
    PrintJson(context.out(), schedule);
    return;
  }
  const v1::ScheduleSpec& spec = schedule.spec();
  const v1::JobSpec& job = spec.job();
  std::string upcoming;
  for (const auto& time : schedule.upcoming_times()) {
    absl::StrAppend(&upcoming, upcoming.empty() ? "" : ", ", ShowTime(FromProto(time)));
  }
  std::string last;
  if (schedule.has_last_time()) {
    last = absl::StrCat(ShowTime(FromProto(schedule.last_time())), ", job ", schedule.last_job_id());
  }
  context.out() << "Schedule " << schedule.name() << (schedule.paused() ? " (paused)" : "") << '\n';
  PrintFields(context.out(),
              {{"description", OneLine(spec.description(), 1024)},
               {"when", When(spec)},
               {"time zone", spec.has_cron() ? OneLine(spec.time_zone(), 64) : ""},
               {"next", upcoming},
               {"last", last},
               {"queue", job.queue()},
               {"kind", OneLine(job.kind(), 128)},
               {"priority", job.priority() == 0 ? "" : absl::StrCat(job.priority())},
               {"tenant", OneLine(job.tenant(), 255)},
               {"payload", OneLine(job.payload().has_text() ? job.payload().text() : job.payload().data(), 200)},
               {"ttl", job.has_ttl() ? ShowDuration(FromProto(job.ttl())) : ""},
               {"overlap", PolicyName(spec.overlap_policy())},
               {"catch up", absl::StrCat(spec.catch_up(), " missed slots")},
               {"fired", absl::StrCat(schedule.fired_total(), " slots")},
               {"skipped", absl::StrCat(schedule.skipped_missed_total(), " missed, ", schedule.skipped_overlap_total(),
                                        " overlapped")},
               {"created", schedule.has_create_time() ? ShowTime(FromProto(schedule.create_time())) : ""}});
}

std::string Subject(const std::string& name) { return absl::StrCat("schedule: ", name); }

int Create(Context& context, const SpecOptions& options) {
  v1::CreateScheduleRequest request;
  request.set_name(options.name);
  request.set_paused(options.paused);
  std::vector<std::string> fields;
  SetRest(options, *request.mutable_spec(), fields);
  const absl::Status job = SetJob(options, context.in(), *request.mutable_spec()->mutable_job());
  if (!job.ok()) return context.ReportUsage(std::string(job.message()));
  const auto response = context.connection().CreateSchedule(request);
  if (!response.ok()) return context.Report(response.status(), Subject(options.name));
  PrintSchedule(context, response->schedule());
  return kExitDone;
}

int Update(Context& context, const SpecOptions& options) {
  v1::UpdateScheduleRequest request;
  request.set_name(options.name);
  std::vector<std::string> fields;
  SetRest(options, *request.mutable_spec(), fields);
  if (options.has_job()) {
    // The mask knows the job only as a whole: keep what was not named.
    v1::GetScheduleRequest get;
    get.set_name(options.name);
    const auto current = context.connection().GetSchedule(get);
    if (!current.ok()) return context.Report(current.status(), Subject(options.name));
    v1::JobSpec& job = *request.mutable_spec()->mutable_job();
    job = current->schedule().spec().job();
    const absl::Status set = SetJob(options, context.in(), job);
    if (!set.ok()) return context.ReportUsage(std::string(set.message()));
    fields.emplace_back("job");
  }
  fields.insert(fields.end(), options.reset.begin(), options.reset.end());
  if (fields.empty()) {
    return context.ReportUsage("schedule update needs something to change; see tenurectl schedule update --help");
  }
  for (const std::string& field : fields) request.mutable_update_mask()->add_paths(field);
  const auto response = context.connection().UpdateSchedule(request);
  if (!response.ok()) return context.Report(response.status(), Subject(options.name));
  PrintSchedule(context, response->schedule());
  return kExitDone;
}

struct ListOptions {
  std::string prefix;
  int32_t page_size = 0;
  int64_t limit = 0;
};

int List(Context& context, const ListOptions& options) {
  Table table({{"SCHEDULE"},
               {"STATE"},
               {"WHEN"},
               {"TIME ZONE"},
               {"QUEUE"},
               {"KIND"},
               {"NEXT"},
               {"LAST"},
               {"FIRED", true},
               {"SKIPPED", true}});
  v1::ListSchedulesRequest request;
  request.set_name_prefix(options.prefix);
  request.set_page_size(options.page_size);
  int64_t printed = 0;
  do {
    const auto response = context.connection().ListSchedules(request);
    if (!response.ok()) return context.Report(response.status());
    const absl::Time now = absl::Now();
    for (const v1::Schedule& schedule : response->schedules()) {
      if (options.limit > 0 && printed == options.limit) break;
      ++printed;
      if (context.json) {
        PrintJson(context.out(), schedule);
        continue;
      }
      const v1::ScheduleSpec& spec = schedule.spec();
      table.AddRow({schedule.name(), schedule.paused() ? "paused" : "active", When(spec),
                    spec.has_cron() ? OneLine(spec.time_zone(), 64) : "", spec.job().queue(),
                    OneLine(spec.job().kind(), 128),
                    schedule.has_next_time() ? ShowWhen(FromProto(schedule.next_time()), now) : "",
                    schedule.has_last_time() ? ShowWhen(FromProto(schedule.last_time()), now) : "",
                    absl::StrCat(schedule.fired_total()),
                    absl::StrCat(schedule.skipped_missed_total() + schedule.skipped_overlap_total())});
    }
    table.Print(context.out());
    request.set_page_token(response->next_page_token());
  } while (!request.page_token().empty() && (options.limit == 0 || printed < options.limit));
  if (printed == 0) {
    context.err() << "no schedules; make one: tenurectl schedule create NAME --cron '0 6 * * *' -q QUEUE -k KIND\n";
  }
  return kExitDone;
}

int Trigger(Context& context, const std::string& name, const std::string& request_id) {
  v1::TriggerScheduleRequest request;
  request.set_name(name);
  request.set_request_id(request_id);
  const auto response = context.connection().TriggerSchedule(request);
  if (!response.ok()) return context.Report(response.status(), Subject(name));
  if (context.json) {
    PrintJson(context.out(), *response);
    return kExitDone;
  }
  context.out() << response->job_id() << '\n';
  if (response->replayed()) context.err() << "an earlier call with this request id made the job\n";
  return kExitDone;
}

}  // namespace

void AddScheduleCommands(CLI::App& root, Context& context) {
  CLI::App* group = root.add_subcommand("schedule", "Make, change, list and steer schedules (cron)");
  group->require_subcommand(1);

  auto create_options = std::make_shared<SpecOptions>();
  CLI::App* create = group->add_subcommand("create", "Make a schedule");
  create->footer("Give --cron or --every. Shows the next slots, so that the expression can be checked.");
  AddSpec(*create, *create_options, /*create=*/true);
  create->add_flag("--paused", create_options->paused, "Make no jobs until it is resumed");
  OnRun(*create, context, [&context, create_options] { return Create(context, *create_options); });

  auto update_options = std::make_shared<SpecOptions>();
  CLI::App* update = group->add_subcommand("update", "Change a schedule; what is not named stays");
  AddSpec(*update, *update_options, /*create=*/false);
  AddRepeated(*update, "--reset", update_options->reset, "Set this back to its default; may be repeated")
      ->check(CLI::IsMember({"time_zone", "overlap_policy", "catch_up", "description"}));
  OnRun(*update, context, [&context, update_options] { return Update(context, *update_options); });

  const auto add_names = [&context, group](const std::string& name, const std::string& description, auto run) {
    auto names = std::make_shared<std::vector<std::string>>();
    CLI::App* command = group->add_subcommand(name, description);
    command->add_option("name", *names, "Names of schedules")->required();
    OnRun(*command, context, [names, run] { return run(*names); });
  };
  const auto print = [&context](const auto& response, const std::string&) {
    PrintSchedule(context, response.schedule());
  };
  add_names("get", "Show schedules with their next slots", [&context, print](const std::vector<std::string>& names) {
    return ForEachName<v1::GetScheduleRequest>(
        context, "schedule", names, [&](const auto& request) { return context.connection().GetSchedule(request); },
        print);
  });
  add_names("pause", "Make no further jobs", [&context, print](const std::vector<std::string>& names) {
    return ForEachName<v1::PauseScheduleRequest>(
        context, "schedule", names, [&](const auto& request) { return context.connection().PauseSchedule(request); },
        print);
  });
  add_names("resume", "Go on with the first slot after now", [&context, print](const std::vector<std::string>& names) {
    return ForEachName<v1::ResumeScheduleRequest>(
        context, "schedule", names, [&](const auto& request) { return context.connection().ResumeSchedule(request); },
        print);
  });
  add_names("delete", "Remove schedules; jobs that they made stay", [&context](const std::vector<std::string>& names) {
    return ForEachName<v1::DeleteScheduleRequest>(
        context, "schedule", names, [&](const auto& request) { return context.connection().DeleteSchedule(request); },
        [&context](const v1::DeleteScheduleResponse& response, const std::string& name) {
          if (context.json) {
            PrintJson(context.out(), response);
          } else {
            context.out() << "deleted " << name << '\n';
          }
        });
  });

  auto list_options = std::make_shared<ListOptions>();
  CLI::App* list = group->add_subcommand("list", "List schedules with their next and last slots");
  list->add_option("--prefix", list_options->prefix, "Only names that start so");
  list->add_option("--limit", list_options->limit, "At most so many [all]")->check(AtLeastOne());
  list->add_option("--page-size", list_options->page_size, "So many per call, at most 1000 [100]")
      ->check(CLI::Range(1, 1000));
  OnRun(*list, context, [&context, list_options] { return List(context, *list_options); });

  auto trigger_name = std::make_shared<std::string>(), request_id = std::make_shared<std::string>();
  CLI::App* trigger = group->add_subcommand("trigger", "Make a job of the schedule now, apart from its slots");
  trigger->footer("Prints the job's id.");
  trigger->add_option("name", *trigger_name, "Name of the schedule")->required();
  trigger->add_option("--request-id", *request_id,
                      "Makes the call safe to repeat: the repeat answers with the same job");
  OnRun(*trigger, context,
        [&context, trigger_name, request_id] { return Trigger(context, *trigger_name, *request_id); });
}

}  // namespace tenure::cli
