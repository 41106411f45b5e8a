// tenurectl limit: set, show, list and delete limits of concurrency keys and queues. Layer: client/cli. Not
// thread-safe.
#include <memory>
#include <optional>
#include <ostream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/options.h"
#include "client/cli/output.h"
#include "client/cli/values.h"

namespace tenure::cli {
namespace {

// Which limit a command is about: QUEUE KEY, QUEUE KEY --prefix, QUEUE TENANT --tenant, or QUEUE alone.
struct LimitName {
  std::string queue;
  std::string key;
  bool prefix = false;
  bool tenant = false;
};

void AddName(CLI::App& command, LimitName& name) {
  command.add_option("queue", name.queue, "Name of the queue")->required();
  CLI::Option* key = command.add_option("key", name.key, "The concurrency key; without one, the queue itself");
  CLI::Option* prefix =
      command.add_flag("--prefix", name.prefix, "Each key that begins so and has no limit of its own")->needs(key);
  command.add_flag("--tenant", name.tenant, "The tenant of this name: its weight where tenants take turns")
      ->needs(key)
      ->excludes(prefix);
}

template <typename Request>
void SetName(const LimitName& name, Request& request) {
  request.set_queue(name.queue);
  request.set_key(name.key);
  request.set_scope(name.key.empty() ? v1::LIMIT_SCOPE_QUEUE
                    : name.prefix    ? v1::LIMIT_SCOPE_PREFIX
                    : name.tenant    ? v1::LIMIT_SCOPE_TENANT
                                     : v1::LIMIT_SCOPE_KEY);
}

std::string Subject(const LimitName& name) {
  return absl::StrCat("limit: ", name.queue, name.key.empty() ? "" : " ", OneLine(name.key, 255),
                      name.prefix ? "*" : "");
}

std::string Key(const v1::Limit& limit) {
  if (limit.scope() == v1::LIMIT_SCOPE_QUEUE) return "(queue)";
  if (limit.scope() == v1::LIMIT_SCOPE_TENANT) return absl::StrCat("tenant ", OneLine(limit.key(), 255));
  return absl::StrCat(OneLine(limit.key(), 255), limit.scope() == v1::LIMIT_SCOPE_PREFIX ? "*" : "");
}

std::string AtOnce(const v1::Limit& limit) { return limit.has_max_leased() ? absl::StrCat(limit.max_leased()) : ""; }

std::string Weight(const v1::Limit& limit) { return limit.has_weight() ? absl::StrCat(limit.weight()) : ""; }

std::string Rate(const v1::Limit& limit) {
  if (!limit.has_rate()) return "";
  return absl::StrCat("1 per ", absl::FormatDuration(FromProto(limit.rate().interval())), ", burst ",
                      limit.rate().burst());
}

void PrintLimit(Context& context, const v1::Limit& limit) {
  if (context.json) {
    PrintJson(context.out(), limit);
    return;
  }
  const v1::LimitUsage& usage = limit.usage();
  context.out() << "Limit of " << limit.queue() << ' ' << Key(limit) << '\n';
  PrintFields(
      context.out(),
      {{"at once", AtOnce(limit)},
       {"rate", Rate(limit)},
       {"weight", Weight(limit)},
       {"held", limit.has_usage() ? absl::StrCat(usage.held()) : ""},
       {"waiting", limit.has_usage() ? absl::StrCat(usage.waiting(), usage.waiting() >= 1000 ? " or more" : "") : ""},
       {"paused for", usage.has_paused_for() ? ShowDuration(FromProto(usage.paused_for())) : ""},
       {"next start in", usage.has_next_start_in() ? ShowDuration(FromProto(usage.next_start_in())) : ""},
       {"set", limit.has_update_time() ? ShowTime(FromProto(limit.update_time())) : ""}});
}

// What SetLimit takes as an interval, said as a rate.
CLI::Validator RateOfStarts() {
  return CLI::Validator(
      [](std::string& text) {
        double rate = 0;
        if (absl::SimpleAtod(text, &rate) && rate >= 1.0 / 86'400 && rate <= 100'000) return std::string();
        return absl::StrCat("must be a number of starts a second, from 1 a day (0.0000116) to 100000, not \"",
                            OneLine(text, 100), "\"; --max 0 stops all starts");
      },
      "");
}

struct SetOptions {
  LimitName name;
  std::optional<int32_t> max;
  std::optional<absl::Duration> every;
  std::optional<double> rate;
  std::optional<int32_t> burst;
  std::optional<int32_t> weight;
};

int Set(Context& context, const SetOptions& options) {
  const bool limits = options.max || options.every || options.rate;
  if (options.name.tenant && (limits || options.burst)) {
    return context.ReportUsage("--tenant: takes --weight alone; to limit a tenant, name it in a concurrency key");
  }
  if (options.name.tenant != options.weight.has_value()) {
    return context.ReportUsage(options.weight ? "--weight: is for a tenant; add --tenant"
                                              : "--tenant: needs --weight, its turns where others get one");
  }
  if (options.burst && !options.every && !options.rate) {
    return context.ReportUsage("--burst: needs --rate or --every");
  }
  if (!options.weight && !limits) {
    return context.ReportUsage(
        "limit set needs --max, --rate or --every; to take a limit away: tenurectl limit delete");
  }
  v1::SetLimitRequest request;
  SetName(options.name, request);
  if (options.max) request.set_max_leased(*options.max);
  if (options.every) *request.mutable_rate()->mutable_interval() = ToProto(*options.every);
  if (options.rate) *request.mutable_rate()->mutable_interval() = ToProto(absl::Seconds(1 / *options.rate));
  if (options.burst) request.mutable_rate()->set_burst(*options.burst);
  if (options.weight) request.set_weight(*options.weight);
  const auto response = context.connection().SetLimit(request);
  if (!response.ok()) return context.Report(response.status(), Subject(options.name));
  PrintLimit(context, response->limit());
  return kExitDone;
}

int Get(Context& context, const LimitName& name) {
  v1::GetLimitRequest request;
  SetName(name, request);
  const auto response = context.connection().GetLimit(request);
  if (!response.ok()) return context.Report(response.status(), Subject(name));
  PrintLimit(context, response->limit());
  return kExitDone;
}

int Delete(Context& context, const LimitName& name) {
  v1::DeleteLimitRequest request;
  SetName(name, request);
  const auto response = context.connection().DeleteLimit(request);
  if (!response.ok()) return context.Report(response.status(), Subject(name));
  if (context.json) {
    PrintJson(context.out(), *response);
  } else {
    context.out() << "deleted the " << Subject(name) << '\n';
  }
  return kExitDone;
}

int List(Context& context, const std::string& queue) {
  Table table({{"KEY"}, {"AT ONCE", true}, {"RATE"}, {"WEIGHT", true}, {"SET"}});
  v1::ListLimitsRequest request;
  request.set_queue(queue);
  int64_t printed = 0;
  do {
    const auto response = context.connection().ListLimits(request);
    if (!response.ok()) return context.Report(response.status(), absl::StrCat("queue: ", queue));
    for (const v1::Limit& limit : response->limits()) {
      ++printed;
      if (context.json) {
        PrintJson(context.out(), limit);
      } else {
        table.AddRow({Key(limit), AtOnce(limit), Rate(limit), Weight(limit), ShowTime(FromProto(limit.update_time()))});
      }
    }
    table.Print(context.out());
    request.set_page_token(response->next_page_token());
  } while (!request.page_token().empty());
  if (printed == 0) context.err() << "no limits; set one: tenurectl limit set QUEUE KEY --max 10\n";
  return kExitDone;
}

}  // namespace

void AddLimitCommands(CLI::App& root, Context& context) {
  CLI::App* group = root.add_subcommand("limit", "Limit how many jobs of a key or queue run at once, and how fast");
  group->require_subcommand(1);

  auto set_options = std::make_shared<SetOptions>();
  CLI::App* set = group->add_subcommand("set", "Set a limit as a whole; holds at once, on all replicas");
  set->footer("Raising a limit admits who waits; lowering one takes nothing from anybody.");
  AddName(*set, set_options->name);
  set->add_option("--max", set_options->max, "At most so many jobs at once, 0 to 1000000 [any number]");
  CLI::Option* every = AddDuration(*set, "--every", set_options->every, "At most one start in so long");
  set->add_option("--rate", set_options->rate, "At most so many starts a second, above 0 and up to 100000")
      ->check(RateOfStarts())
      ->excludes(every);
  set->add_option("--burst", set_options->burst, "So many starts at once after a pause, 1 to 1000000 [1]");
  set->add_option("--weight", set_options->weight, "Turns of a tenant where others get one, 1 to 1000");
  OnRun(*set, context, [&context, set_options] { return Set(context, *set_options); });

  auto get_name = std::make_shared<LimitName>();
  CLI::App* get = group->add_subcommand("get", "Show a limit, who holds it and who waits");
  AddName(*get, *get_name);
  OnRun(*get, context, [&context, get_name] { return Get(context, *get_name); });

  auto list_queue = std::make_shared<std::string>();
  CLI::App* list = group->add_subcommand("list", "List the limits of a queue");
  list->add_option("queue", *list_queue, "Name of the queue")->required();
  OnRun(*list, context, [&context, list_queue] { return List(context, *list_queue); });

  auto delete_name = std::make_shared<LimitName>();
  CLI::App* remove = group->add_subcommand("delete", "Take a limit away; who waits for it is admitted");
  AddName(*remove, *delete_name);
  OnRun(*remove, context, [&context, delete_name] { return Delete(context, *delete_name); });
}

}  // namespace tenure::cli
