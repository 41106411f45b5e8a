// tenurectl target: make, change, list, pause, resume and delete targets; dead deliveries. Layer: client/cli. Not
// thread-safe.
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/commands.h"
#include "client/cli/named_calls.h"
#include "client/cli/options.h"
#include "client/cli/output.h"
#include "client/cli/values.h"

namespace tenure::cli {
namespace {

template <typename Enum>
using Names = std::map<std::string, Enum>;

const Names<v1::TargetPurpose>& Purposes() {
  static const auto* names = new Names<v1::TargetPurpose>{{"notify", v1::TARGET_PURPOSE_NOTIFY},
                                                          {"event-log", v1::TARGET_PURPOSE_EVENT_LOG},
                                                          {"export", v1::TARGET_PURPOSE_EXPORT},
                                                          {"inventory", v1::TARGET_PURPOSE_INVENTORY},
                                                          {"relay", v1::TARGET_PURPOSE_RELAY}};
  return *names;
}

const Names<v1::JobOutcome>& Outcomes() {
  static const auto* names = new Names<v1::JobOutcome>{{"completed", v1::JOB_OUTCOME_COMPLETED},
                                                       {"discarded", v1::JOB_OUTCOME_DISCARDED},
                                                       {"cancelled", v1::JOB_OUTCOME_CANCELLED},
                                                       {"expired", v1::JOB_OUTCOME_EXPIRED}};
  return *names;
}

template <typename Enum>
std::vector<std::string> Keys(const Names<Enum>& names) {
  std::vector<std::string> keys;
  for (const auto& [name, unused] : names) keys.push_back(name);
  return keys;
}

template <typename Enum>
std::string NameOf(const Names<Enum>& names, int value) {
  for (const auto& [name, number] : names) {
    if (number == value) return name;
  }
  return absl::StrCat(value);
}

struct SpecOptions {
  std::string name, purpose;
  std::optional<std::string> url, region, endpoint, description, secret_file, cron, time_zone;
  std::vector<std::string> queues, events, reset;
  std::optional<absl::Duration> interval;
  std::optional<int32_t> min_age_days;
  bool paused = false;
};

void AddSpec(CLI::App& command, SpecOptions& options, bool create) {
  command.add_option("name", options.name, "Name of the target: 1 to 128 of A-Z a-z 0-9 . _ : / -")->required();
  if (create) {
    command.add_option("-p,--purpose", options.purpose, "What it is for")
        ->required()
        ->check(CLI::IsMember(Keys(Purposes())));
  }
  CLI::Option* url =
      command.add_option("-u,--url", options.url, "Where: https://..., sqs+https://..., s3://..., file:///...");
  if (create) url->required();
  AddRepeated(command, "-q,--queue", options.queues, "Only this queue; may be repeated [all]");
  AddRepeated(command, "-e,--event", options.events, "Only this end of jobs; may be repeated [all]")
      ->check(CLI::IsMember(Keys(Outcomes())));
  command.add_option("--secret-file", options.secret_file, "File with the secret; - for stdin");
  AddDuration(command, "--interval", options.interval, "How long events are gathered, or from one listing to the next");
  command.add_option("--cron", options.cron, "Of inventory, instead of --interval: when, such as '0 6 * * *'");
  command.add_option("--time-zone", options.time_zone, "Of --cron, such as Europe/Berlin [UTC]");
  command.add_option("--min-age-days", options.min_age_days, "Of export: how many days a day must be over [30]");
  command.add_option("--region", options.region, "Of SQS and S3");
  command.add_option("--endpoint", options.endpoint, "Another store than Amazon's: https://host[:port]");
  command.add_option("--description", options.description, "A note for people");
}

// What is set, and its names in `fields`.
absl::Status SetSpec(const SpecOptions& options, std::istream& in, v1::TargetSpec& spec,
                     std::vector<std::string>& fields) {
  const auto text = [&](const std::optional<std::string>& value, const char* field, auto set) {
    if (!value) return;
    set(*value);
    fields.emplace_back(field);
  };
  text(options.url, "url", [&](const std::string& value) { spec.set_url(value); });
  text(options.region, "region", [&](const std::string& value) { spec.set_region(value); });
  text(options.endpoint, "endpoint", [&](const std::string& value) { spec.set_endpoint(value); });
  text(options.cron, "cron", [&](const std::string& value) { spec.set_cron(value); });
  text(options.time_zone, "time_zone", [&](const std::string& value) { spec.set_time_zone(value); });
  text(options.description, "description", [&](const std::string& value) { spec.set_description(value); });
  for (const std::string& queue : options.queues) spec.add_queues(queue);
  if (!options.queues.empty()) fields.emplace_back("queues");
  for (const std::string& event : options.events) spec.add_events(Outcomes().at(event));
  if (!options.events.empty()) fields.emplace_back("events");
  if (options.interval) {
    *spec.mutable_interval() = ToProto(*options.interval);
    fields.emplace_back("interval");
  }
  if (options.min_age_days) {
    spec.set_min_age_days(*options.min_age_days);
    fields.emplace_back("min_age_days");
  }
  if (options.secret_file) {
    std::ifstream file;
    if (*options.secret_file != "-") {
      file.open(*options.secret_file);
      if (!file.is_open())
        return absl::InvalidArgumentError(absl::StrCat("--secret-file: cannot read ", *options.secret_file));
    }
    const std::string secret(std::istreambuf_iterator<char>(file.is_open() ? file : in), {});
    // Editors and echo end a file with a newline, which is no part of the secret.
    spec.set_secret(std::string(absl::StripAsciiWhitespace(secret)));
    fields.emplace_back("secret");
  }
  return absl::OkStatus();
}

std::string Events(const v1::TargetSpec& spec) {
  return absl::StrJoin(spec.events(), ", ",
                       [](std::string* out, int event) { out->append(NameOf(Outcomes(), event)); });
}

std::string Queues(const v1::TargetSpec& spec) {
  return spec.queues().empty() ? "all" : absl::StrJoin(spec.queues(), ", ");
}

void PrintTarget(Context& context, const v1::Target& target) {
  if (context.json) {
    PrintJson(context.out(), target);
    return;
  }
  const v1::TargetSpec& spec = target.spec();
  std::string error;
  if (!target.last_error().empty()) {
    error = absl::StrCat(OneLine(target.last_error(), 300), " (", ShowTime(FromProto(target.last_error_time())), ")");
  }
  const bool events = !spec.events().empty();
  context.out() << "Target " << target.name() << (target.paused() ? " (paused)" : "") << '\n';
  PrintFields(context.out(),
              {{"description", OneLine(spec.description(), 1024)},
               {"purpose", NameOf(Purposes(), spec.purpose())},
               {"url", OneLine(spec.url(), 2048)},
               {"region", OneLine(spec.region(), 64)},
               {"endpoint", OneLine(spec.endpoint(), 300)},
               {"queues", Queues(spec)},
               {"events", Events(spec)},
               {"interval", spec.has_interval() ? ShowDuration(FromProto(spec.interval())) : ""},
               {"cron", OneLine(spec.cron(), 256)},
               {"time zone", spec.time_zone()},
               {"min age", spec.min_age_days() == 0 ? "" : absl::StrCat(spec.min_age_days(), " days")},
               {"secret", target.has_secret() ? "set" : ""},
               {"taken", events ? absl::StrCat(target.events_total(), " events") : ""},
               {"to send again", events ? absl::StrCat(target.waiting_deliveries()) : ""},
               {"dead", events ? absl::StrCat(target.dead_deliveries()) : ""},
               {"last success", target.has_last_success_time() ? ShowTime(FromProto(target.last_success_time())) : ""},
               {"last error", error},
               {"created", target.has_create_time() ? ShowTime(FromProto(target.create_time())) : ""}});
}

std::string Subject(const std::string& name) { return absl::StrCat("target: ", name); }

int Create(Context& context, const SpecOptions& options) {
  v1::CreateTargetRequest request;
  request.set_name(options.name);
  request.set_paused(options.paused);
  request.mutable_spec()->set_purpose(Purposes().at(options.purpose));
  std::vector<std::string> fields;
  const absl::Status set = SetSpec(options, context.in(), *request.mutable_spec(), fields);
  if (!set.ok()) return context.ReportUsage(std::string(set.message()));
  const auto response = context.connection().CreateTarget(request);
  if (!response.ok()) return context.Report(response.status(), Subject(options.name));
  PrintTarget(context, response->target());
  return kExitDone;
}

int Update(Context& context, const SpecOptions& options) {
  v1::UpdateTargetRequest request;
  request.set_name(options.name);
  std::vector<std::string> fields;
  const absl::Status set = SetSpec(options, context.in(), *request.mutable_spec(), fields);
  if (!set.ok()) return context.ReportUsage(std::string(set.message()));
  fields.insert(fields.end(), options.reset.begin(), options.reset.end());
  if (fields.empty()) {
    return context.ReportUsage("target update needs something to change; see tenurectl target update --help");
  }
  for (const std::string& field : fields) request.mutable_update_mask()->add_paths(field);
  const auto response = context.connection().UpdateTarget(request);
  if (!response.ok()) return context.Report(response.status(), Subject(options.name));
  PrintTarget(context, response->target());
  return kExitDone;
}

int List(Context& context, const std::string& prefix) {
  Table table({{"TARGET"},
               {"STATE"},
               {"PURPOSE"},
               {"URL"},
               {"QUEUES"},
               {"EVENTS"},
               {"TAKEN", true},
               {"LAST SUCCESS"},
               {"ERROR"}});
  v1::ListTargetsRequest request;
  request.set_name_prefix(prefix);
  bool any = false;
  do {
    const auto response = context.connection().ListTargets(request);
    if (!response.ok()) return context.Report(response.status());
    const absl::Time now = absl::Now();
    for (const v1::Target& target : response->targets()) {
      any = true;
      if (context.json) {
        PrintJson(context.out(), target);
        continue;
      }
      const v1::TargetSpec& spec = target.spec();
      table.AddRow({target.name(), target.paused() ? "paused" : "active", NameOf(Purposes(), spec.purpose()),
                    OneLine(spec.url(), 60), OneLine(Queues(spec), 40), Events(spec),
                    absl::StrCat(target.events_total()),
                    target.has_last_success_time() ? ShowWhen(FromProto(target.last_success_time()), now) : "",
                    OneLine(target.last_error(), 60)});
    }
    table.Print(context.out());
    request.set_page_token(response->next_page_token());
  } while (!request.page_token().empty());
  if (!any)
    context.err() << "no targets; make one: tenurectl target create NAME -p notify -u https://... --secret-file FILE\n";
  return kExitDone;
}

int Dead(Context& context, const std::string& name, int64_t limit) {
  Table table({{"ID", true}, {"EVENT"}, {"ATTEMPTS", true}, {"FIRST"}, {"LAST"}, {"ERROR"}});
  v1::ListDeadDeliveriesRequest request;
  request.set_name(name);
  int64_t printed = 0;
  do {
    const auto response = context.connection().ListDeadDeliveries(request);
    if (!response.ok()) return context.Report(response.status(), Subject(name));
    const absl::Time now = absl::Now();
    for (const v1::DeadDelivery& delivery : response->deliveries()) {
      if (limit > 0 && printed == limit) break;
      ++printed;
      if (context.json) {
        PrintJson(context.out(), delivery);
        continue;
      }
      table.AddRow({absl::StrCat(delivery.id()), OneLine(delivery.event_id(), 128), absl::StrCat(delivery.attempts()),
                    ShowWhen(FromProto(delivery.first_failure_time()), now),
                    ShowWhen(FromProto(delivery.last_failure_time()), now), OneLine(delivery.last_error(), 120)});
    }
    table.Print(context.out());
    request.set_page_token(response->next_page_token());
  } while (!request.page_token().empty() && (limit == 0 || printed < limit));
  if (printed == 0) context.err() << "no dead deliveries\n";
  return kExitDone;
}

int Redrive(Context& context, const std::string& name, const std::vector<int64_t>& ids) {
  v1::RedriveDeliveriesRequest request;
  request.set_name(name);
  request.mutable_delivery_ids()->Add(ids.begin(), ids.end());
  int64_t redriven = 0;
  while (true) {
    const auto response = context.connection().RedriveDeliveries(request);
    if (!response.ok()) return context.Report(response.status(), Subject(name));
    redriven += response->redriven();
    if (context.json) PrintJson(context.out(), *response);
    if (!response->more() || !ids.empty()) break;
  }
  if (!context.json) context.out() << "due again: " << redriven << '\n';
  return kExitDone;
}

}  // namespace

void AddTargetCommands(CLI::App& root, Context& context) {
  CLI::App* group = root.add_subcommand(
      "target", "Where events of jobs, and copies of jobs, go: webhooks, SQS, buckets, directories");
  group->require_subcommand(1);

  auto create_options = std::make_shared<SpecOptions>();
  CLI::App* create = group->add_subcommand("create", "Make a target");
  AddSpec(*create, *create_options, /*create=*/true);
  create->add_flag("--paused", create_options->paused, "Send nothing until it is resumed");
  OnRun(*create, context, [&context, create_options] { return Create(context, *create_options); });

  auto update_options = std::make_shared<SpecOptions>();
  CLI::App* update = group->add_subcommand("update", "Change a target; what is not named stays");
  AddSpec(*update, *update_options, /*create=*/false);
  AddRepeated(*update, "--reset", update_options->reset, "Set this back to its default; may be repeated")
      ->check(CLI::IsMember({"queues", "events", "interval", "cron", "time_zone", "min_age_days", "secret", "region",
                             "endpoint", "description"}));
  OnRun(*update, context, [&context, update_options] { return Update(context, *update_options); });

  const auto add_names = [&context, group](const std::string& name, const std::string& description, auto run) {
    auto names = std::make_shared<std::vector<std::string>>();
    CLI::App* command = group->add_subcommand(name, description);
    command->add_option("name", *names, "Names of targets")->required();
    OnRun(*command, context, [names, run] { return run(*names); });
  };
  const auto print = [&context](const auto& response, const std::string&) { PrintTarget(context, response.target()); };
  add_names("get", "Show targets and how they fare", [&context, print](const std::vector<std::string>& names) {
    return ForEachName<v1::GetTargetRequest>(
        context, "target", names, [&](const auto& request) { return context.connection().GetTarget(request); }, print);
  });
  add_names("pause", "Send nothing more; events wait", [&context, print](const std::vector<std::string>& names) {
    return ForEachName<v1::PauseTargetRequest>(
        context, "target", names, [&](const auto& request) { return context.connection().PauseTarget(request); },
        print);
  });
  add_names("resume", "Go on where it stopped", [&context, print](const std::vector<std::string>& names) {
    return ForEachName<v1::ResumeTargetRequest>(
        context, "target", names, [&](const auto& request) { return context.connection().ResumeTarget(request); },
        print);
  });
  add_names(
      "delete", "Remove targets, with what they have not been sent", [&context](const std::vector<std::string>& names) {
        return ForEachName<v1::DeleteTargetRequest>(
            context, "target", names, [&](const auto& request) { return context.connection().DeleteTarget(request); },
            [&context](const v1::DeleteTargetResponse& response, const std::string& name) {
              if (context.json) {
                PrintJson(context.out(), response);
              } else {
                context.out() << "deleted " << name << '\n';
              }
            });
      });

  auto prefix = std::make_shared<std::string>();
  CLI::App* list = group->add_subcommand("list", "List targets");
  list->add_option("--prefix", *prefix, "Only names that start so");
  OnRun(*list, context, [&context, prefix] { return List(context, *prefix); });

  auto dead_name = std::make_shared<std::string>();
  auto limit = std::make_shared<int64_t>(0);
  CLI::App* dead = group->add_subcommand("dead", "List deliveries that were given up");
  dead->add_option("name", *dead_name, "Name of the target")->required();
  dead->add_option("--limit", *limit, "At most so many [all]")->check(AtLeastOne());
  OnRun(*dead, context, [&context, dead_name, limit] { return Dead(context, *dead_name, *limit); });

  auto redrive_name = std::make_shared<std::string>();
  auto ids = std::make_shared<std::vector<int64_t>>();
  CLI::App* redrive = group->add_subcommand("redrive", "Send dead deliveries again");
  redrive->add_option("name", *redrive_name, "Name of the target")->required();
  redrive->add_option("id", *ids, "Which of them [all]");
  OnRun(*redrive, context, [&context, redrive_name, ids] { return Redrive(context, *redrive_name, *ids); });
}

}  // namespace tenure::cli
