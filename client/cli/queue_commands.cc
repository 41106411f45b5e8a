// tenurectl queue: make, change, list, pause and resume queues. Layer: client/cli. Not thread-safe.
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

struct SettingsOptions {
  std::string name;
  std::optional<int32_t> max_attempts;
  std::optional<int32_t> crash_budget;
  std::optional<absl::Duration> backoff_initial;
  std::optional<double> backoff_multiplier;
  std::optional<absl::Duration> backoff_max;
  std::optional<int64_t> max_depth;
  std::optional<int64_t> max_tenant_depth;
  std::optional<std::string> description;
  std::optional<bool> groups_skip_retrying;
  std::optional<bool> fair_tenants;
  std::optional<absl::Duration> priority_ageing;
  std::optional<absl::Duration> start_within;
  std::optional<std::string> dead_letter_queue;
  std::optional<int32_t> dead_letter_rate;
  bool paused = false;
  std::vector<std::string> reset;

  bool has_backoff() const { return backoff_initial || backoff_multiplier || backoff_max; }
};

void AddSettings(CLI::App& command, SettingsOptions& options) {
  command.add_option("name", options.name, "Name of the queue: 1 to 128 of A-Z a-z 0-9 . _ : / -")->required();
  command.add_option("--max-attempts", options.max_attempts, "Failures until a job becomes a dead letter [20]")
      ->check(CLI::Range(1, 10'000));
  command
      .add_option("--crash-budget", options.crash_budget, "Leases that may run out before it becomes a dead letter [5]")
      ->check(CLI::Range(1, 1'000));
  AddDuration(command, "--backoff-initial", options.backoff_initial, "Wait after the first failure [1s]");
  command.add_option("--backoff-multiplier", options.backoff_multiplier, "Growth of the wait per failure [2]");
  AddDuration(command, "--backoff-max", options.backoff_max, "The longest wait [1h]");
  command.add_option("--max-depth", options.max_depth,
                     "Jobs that have not ended; beyond it enqueues are refused [no bound]");
  command.add_option("--max-tenant-depth", options.max_tenant_depth, "The same for each tenant [no bound]");
  command.add_option("--description", options.description, "A note for people");
  AddBool(command, "--groups-skip-retrying", options.groups_skip_retrying,
          "true: a group passes over a job that waits for its retry [false: it holds the group]");
  AddBool(command, "--fair-tenants", options.fair_tenants, "true: tenants take turns, by weight [false]");
  AddDuration(command, "--priority-ageing", options.priority_ageing,
              "A ready job gains one priority for each such time [none]");
  AddDuration(command, "--start-within", options.start_within,
              "A job that has not started so long after it was due expires [never]");
  command.add_option("--dead-letter-queue", options.dead_letter_queue, "Where its dead letters are moved [they stay]");
  command
      .add_option("--dead-letter-rate", options.dead_letter_rate, "How many a second, 1 to 100000 [as fast as it goes]")
      ->check(CLI::Range(1, 100'000));
}

void SetBackoff(const SettingsOptions& options, v1::Backoff& backoff) {
  if (options.backoff_initial) *backoff.mutable_initial() = ToProto(*options.backoff_initial);
  if (options.backoff_multiplier) backoff.set_multiplier(*options.backoff_multiplier);
  if (options.backoff_max) *backoff.mutable_max() = ToProto(*options.backoff_max);
}

v1::QueueSettings MakeSettings(const SettingsOptions& options) {
  v1::QueueSettings settings;
  if (options.max_attempts) settings.set_max_attempts(*options.max_attempts);
  if (options.crash_budget) settings.set_crash_budget(*options.crash_budget);
  if (options.max_depth) settings.set_max_depth(*options.max_depth);
  if (options.max_tenant_depth) settings.set_max_tenant_depth(*options.max_tenant_depth);
  if (options.description) settings.set_description(*options.description);
  if (options.groups_skip_retrying) settings.set_groups_skip_retrying(*options.groups_skip_retrying);
  if (options.fair_tenants) settings.set_fair_tenants(*options.fair_tenants);
  if (options.priority_ageing) *settings.mutable_priority_ageing() = ToProto(*options.priority_ageing);
  if (options.dead_letter_queue) settings.set_dead_letter_queue(*options.dead_letter_queue);
  if (options.dead_letter_rate) settings.set_dead_letter_jobs_per_second(*options.dead_letter_rate);
  if (options.start_within) *settings.mutable_start_within() = ToProto(*options.start_within);
  if (options.has_backoff()) SetBackoff(options, *settings.mutable_backoff());
  return settings;
}

std::string Age(const v1::QueueStats& stats) {
  return stats.has_oldest_ready_age() ? ShowDuration(FromProto(stats.oldest_ready_age())) : "";
}

std::string DeadLetters(const v1::QueueSettings& settings) {
  if (settings.dead_letter_queue().empty() || settings.dead_letter_jobs_per_second() == 0) {
    return settings.dead_letter_queue();
  }
  return absl::StrCat(settings.dead_letter_queue(), ", ", settings.dead_letter_jobs_per_second(), " a second");
}

void PrintQueue(Context& context, const v1::Queue& queue) {
  if (context.json) {
    PrintJson(context.out(), queue);
    return;
  }
  const v1::QueueSettings& settings = queue.settings();
  const v1::QueueStats& stats = queue.stats();
  std::string backoff;
  if (settings.has_backoff()) {
    backoff =
        absl::StrCat(ShowDuration(FromProto(settings.backoff().initial())), " x ", settings.backoff().multiplier(),
                     ", at most ", ShowDuration(FromProto(settings.backoff().max())));
  }
  context.out() << "Queue " << queue.name() << (queue.paused() ? " (paused)" : "") << '\n';
  PrintFields(
      context.out(),
      {{"description", OneLine(settings.description(), 1024)},
       {"groups", settings.groups_skip_retrying() ? "pass over jobs that wait for a retry" : ""},
       {"tenants", settings.fair_tenants() ? "take turns by weight" : ""},
       {"priority ageing", settings.has_priority_ageing() ? ShowDuration(FromProto(settings.priority_ageing())) : ""},
       {"created", queue.has_create_time() ? ShowTime(FromProto(queue.create_time())) : ""},
       {"max attempts", absl::StrCat(settings.max_attempts())},
       {"crash budget", absl::StrCat(settings.crash_budget())},
       {"backoff", backoff},
       {"max depth", settings.max_depth() > 0 ? absl::StrCat(settings.max_depth()) : ""},
       {"max tenant depth", settings.max_tenant_depth() > 0 ? absl::StrCat(settings.max_tenant_depth()) : ""},
       {"start within", settings.has_start_within() ? ShowDuration(FromProto(settings.start_within())) : ""},
       {"dead letters go to", DeadLetters(settings)},
       {"ready", absl::StrCat(stats.ready())},
       {"oldest ready", Age(stats)},
       {"leased", absl::StrCat(stats.leased())},
       {"scheduled", absl::StrCat(stats.scheduled())},
       {"blocked", absl::StrCat(stats.blocked())},
       {"suspended", absl::StrCat(stats.suspended())},
       {"enqueued", absl::StrCat(stats.enqueued_total(), " in all")},
       {"ended", absl::StrCat(stats.completed_total(), " completed, ", stats.discarded_total(), " discarded, ",
                              stats.cancelled_total(), " cancelled, ", stats.expired_total(), " expired")}});
}

int Create(Context& context, const SettingsOptions& options) {
  if (options.dead_letter_rate && options.dead_letter_queue.value_or("").empty()) {
    return context.ReportUsage("--dead-letter-rate: needs --dead-letter-queue, the queue that its dead letters go to");
  }
  v1::CreateQueueRequest request;
  request.set_name(options.name);
  *request.mutable_settings() = MakeSettings(options);
  request.set_paused(options.paused);
  const auto response = context.connection().CreateQueue(request);
  if (!response.ok()) return context.Report(response.status(), absl::StrCat("queue: ", options.name));
  PrintQueue(context, response->queue());
  return kExitDone;
}

int Update(Context& context, const SettingsOptions& options) {
  v1::UpdateQueueRequest request;
  request.set_name(options.name);
  *request.mutable_settings() = MakeSettings(options);
  const auto mask = [&request](const char* field) { request.mutable_update_mask()->add_paths(field); };
  if (options.max_attempts) mask("max_attempts");
  if (options.crash_budget) mask("crash_budget");
  if (options.max_depth) mask("max_depth");
  if (options.max_tenant_depth) mask("max_tenant_depth");
  if (options.description) mask("description");
  if (options.groups_skip_retrying) mask("groups_skip_retrying");
  if (options.fair_tenants) mask("fair_tenants");
  if (options.priority_ageing) mask("priority_ageing");
  if (options.start_within) mask("start_within");
  if (options.dead_letter_queue) mask("dead_letter_queue");
  if (options.dead_letter_rate) mask("dead_letter_jobs_per_second");
  if (options.has_backoff()) {
    // The mask knows the backoff only as a whole: keep the parts that were not named.
    v1::GetQueueRequest get;
    get.set_name(options.name);
    const auto current = context.connection().GetQueue(get);
    if (!current.ok()) return context.Report(current.status(), absl::StrCat("queue: ", options.name));
    *request.mutable_settings()->mutable_backoff() = current->queue().settings().backoff();
    SetBackoff(options, *request.mutable_settings()->mutable_backoff());
    mask("backoff");
  }
  for (const std::string& field : options.reset) mask(field.c_str());
  if (request.update_mask().paths().empty()) {
    return context.ReportUsage("queue update needs at least one setting to change; see tenurectl queue update --help");
  }
  const auto response = context.connection().UpdateQueue(request);
  // Said in the words of the API otherwise.
  if (options.dead_letter_rate && !response.ok()) {
    const ErrorFacts facts = FactsOf(response.status());
    const auto field = facts.metadata.find("field");
    if (field != facts.metadata.end() && field->second == "settings.dead_letter_jobs_per_second") {
      return context.ReportUsage(
          "--dead-letter-rate: the queue has no rule for its dead letters; name where they go with "
          "--dead-letter-queue");
    }
  }
  if (!response.ok()) return context.Report(response.status(), absl::StrCat("queue: ", options.name));
  PrintQueue(context, response->queue());
  return kExitDone;
}

struct ListOptions {
  std::string prefix;
  int32_t page_size = 0;
  int64_t limit = 0;
};

int List(Context& context, const ListOptions& options) {
  Table table({{"QUEUE"},
               {"STATE"},
               {"READY", true},
               {"OLDEST", true},
               {"LEASED", true},
               {"SCHEDULED", true},
               {"BLOCKED", true},
               {"COMPLETED", true},
               {"DISCARDED", true}});
  v1::ListQueuesRequest request;
  request.set_name_prefix(options.prefix);
  request.set_page_size(options.page_size);
  int64_t printed = 0;
  do {
    const auto response = context.connection().ListQueues(request);
    if (!response.ok()) return context.Report(response.status());
    for (const v1::Queue& queue : response->queues()) {
      if (options.limit > 0 && printed == options.limit) break;
      ++printed;
      if (context.json) {
        PrintJson(context.out(), queue);
        continue;
      }
      const v1::QueueStats& stats = queue.stats();
      table.AddRow({queue.name(), queue.paused() ? "paused" : "open", absl::StrCat(stats.ready()), Age(stats),
                    absl::StrCat(stats.leased()), absl::StrCat(stats.scheduled()), absl::StrCat(stats.blocked()),
                    absl::StrCat(stats.completed_total()), absl::StrCat(stats.discarded_total())});
    }
    table.Print(context.out());
    request.set_page_token(response->next_page_token());
  } while (!request.page_token().empty() && (options.limit == 0 || printed < options.limit));
  if (printed == 0) context.err() << "no queues; the first job makes one: tenurectl job enqueue -q NAME -k KIND\n";
  return kExitDone;
}

}  // namespace

void AddQueueCommands(CLI::App& root, Context& context) {
  CLI::App* group = root.add_subcommand("queue", "Make, change, list, pause and resume queues");
  group->require_subcommand(1);

  auto create_options = std::make_shared<SettingsOptions>();
  CLI::App* create = group->add_subcommand("create", "Make a queue");
  AddSettings(*create, *create_options);
  create->add_flag("--paused", create_options->paused, "Serve no claims from it until it is resumed");
  OnRun(*create, context, [&context, create_options] { return Create(context, *create_options); });

  auto update_options = std::make_shared<SettingsOptions>();
  CLI::App* update = group->add_subcommand("update", "Change a queue's settings; those not named stay");
  AddSettings(*update, *update_options);
  AddRepeated(*update, "--reset", update_options->reset, "Set this back to its default; may be repeated")
      ->check(CLI::IsMember({"max_attempts", "crash_budget", "backoff", "description", "max_depth", "max_tenant_depth",
                             "groups_skip_retrying", "fair_tenants", "priority_ageing", "start_within",
                             "dead_letter_queue", "dead_letter_jobs_per_second"}));
  OnRun(*update, context, [&context, update_options] { return Update(context, *update_options); });

  const auto add_names = [&context, group](const std::string& name, const std::string& description, auto run) {
    auto names = std::make_shared<std::vector<std::string>>();
    CLI::App* command = group->add_subcommand(name, description);
    command->add_option("name", *names, "Names of queues")->required();
    OnRun(*command, context, [names, run] { return run(*names); });
  };
  const auto print = [&context](const auto& response, const std::string&) { PrintQueue(context, response.queue()); };
  add_names("get", "Show queues with their settings and counts",
            [&context, print](const std::vector<std::string>& names) {
              return ForEachName<v1::GetQueueRequest>(
                  context, "queue", names, [&](const auto& request) { return context.connection().GetQueue(request); },
                  print);
            });
  add_names("pause", "Serve no further claims; held leases go on",
            [&context, print](const std::vector<std::string>& names) {
              return ForEachName<v1::PauseQueueRequest>(
                  context, "queue", names,
                  [&](const auto& request) { return context.connection().PauseQueue(request); }, print);
            });
  add_names("resume", "Serve claims again", [&context, print](const std::vector<std::string>& names) {
    return ForEachName<v1::ResumeQueueRequest>(
        context, "queue", names, [&](const auto& request) { return context.connection().ResumeQueue(request); }, print);
  });

  auto list_options = std::make_shared<ListOptions>();
  CLI::App* list = group->add_subcommand("list", "List queues with their counts");
  list->add_option("--prefix", list_options->prefix, "Only names that start so");
  list->add_option("--limit", list_options->limit, "At most so many [all]")->check(AtLeastOne());
  list->add_option("--page-size", list_options->page_size, "So many per call, at most 1000 [100]")
      ->check(CLI::Range(1, 1000));
  OnRun(*list, context, [&context, list_options] { return List(context, *list_options); });
}

}  // namespace tenure::cli
