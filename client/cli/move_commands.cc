// tenurectl move: move dead letters or a backlog to another queue, and steer that. Layer: client/cli. Not thread-safe.
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/commands.h"
#include "client/cli/options.h"
#include "client/cli/output.h"
#include "client/cli/values.h"

namespace tenure::cli {
namespace {

const char* SourceName(const v1::Move& move) {
  if (move.standing()) return "dead letter rule";
  return move.spec().source() == v1::MOVE_SOURCE_DEAD_LETTERS ? "dead letters" : "backlog";
}

const char* StateName(v1::MoveState state) {
  switch (state) {
    case v1::MOVE_STATE_RUNNING:
      return "running";
    case v1::MOVE_STATE_PAUSED:
      return "paused";
    case v1::MOVE_STATE_DONE:
      return "done";
    case v1::MOVE_STATE_CANCELLED:
      return "cancelled";
    default:
      return "unknown";
  }
}

std::string Bound(int32_t value) { return value == 0 ? "-" : absl::StrCat(value); }

void PrintMove(Context& context, const v1::Move& move) {
  if (context.json) return PrintJson(context.out(), move);
  const absl::Time now = absl::Now();
  const v1::MoveSpec& spec = move.spec();
  context.out() << "Move " << move.id() << '\n';
  PrintFields(context.out(), {{"state", StateName(move.state())},
                              {"what", SourceName(move)},
                              {"from", spec.from_queue()},
                              {"to", spec.to_queue()},
                              {"kinds", OneLine(absl::StrJoin(spec.kinds(), ", "), 1000)},
                              {"jobs per second", spec.jobs_per_second() == 0 ? "" : Bound(spec.jobs_per_second())},
                              {"max in flight", spec.max_in_flight() == 0 ? "" : Bound(spec.max_in_flight())},
                              {"moved", absl::StrCat(move.moved_jobs())},
                              {"failed", move.failed_jobs() == 0 ? "" : absl::StrCat(move.failed_jobs())},
                              {"last error", OneLine(move.last_error(), 1000)},
                              {"created", ShowWhen(FromProto(move.create_time()), now)},
                              {"ended", move.has_end_time() ? ShowWhen(FromProto(move.end_time()), now) : ""}});
}

struct CreateOptions {
  std::string from, to, request_id;
  bool dead_letters = false, backlog = false;
  std::vector<std::string> kinds;
  int32_t rate = 0, max_in_flight = 0;
};

int Create(Context& context, const CreateOptions& options) {
  if (options.dead_letters == options.backlog) {
    return context.ReportUsage("say what to move: --dead-letters or --backlog");
  }
  v1::CreateMoveRequest request;
  v1::MoveSpec& spec = *request.mutable_spec();
  spec.set_from_queue(options.from);
  spec.set_to_queue(options.to.empty() && options.dead_letters ? options.from : options.to);
  if (spec.to_queue().empty()) return context.ReportUsage("say where to: --to QUEUE");
  spec.set_source(options.dead_letters ? v1::MOVE_SOURCE_DEAD_LETTERS : v1::MOVE_SOURCE_BACKLOG);
  for (const std::string& kind : options.kinds) spec.add_kinds(kind);
  spec.set_jobs_per_second(options.rate);
  spec.set_max_in_flight(options.max_in_flight);
  request.set_request_id(options.request_id);
  const auto response = context.connection().CreateMove(request);
  if (!response.ok()) return context.Report(response.status());
  PrintMove(context, response->move());
  return kExitDone;
}

int List(Context& context, int64_t limit) {
  Table table({{"MOVE", true},
               {"STATE"},
               {"WHAT"},
               {"FROM"},
               {"TO"},
               {"PER SECOND", true},
               {"IN FLIGHT", true},
               {"MOVED", true},
               {"FAILED", true},
               {"CREATED"},
               {"LAST ERROR"}});
  v1::ListMovesRequest request;
  int64_t printed = 0;
  do {
    const auto response = context.connection().ListMoves(request);
    if (!response.ok()) return context.Report(response.status());
    const absl::Time now = absl::Now();
    for (const v1::Move& move : response->moves()) {
      if (limit > 0 && printed == limit) break;
      ++printed;
      if (context.json) {
        PrintJson(context.out(), move);
        continue;
      }
      const v1::MoveSpec& spec = move.spec();
      table.AddRow({move.id(), StateName(move.state()), SourceName(move), spec.from_queue(), spec.to_queue(),
                    Bound(spec.jobs_per_second()), Bound(spec.max_in_flight()), absl::StrCat(move.moved_jobs()),
                    absl::StrCat(move.failed_jobs()), ShowWhen(FromProto(move.create_time()), now),
                    OneLine(move.last_error(), 60)});
    }
    table.Print(context.out());
    request.set_page_token(response->next_page_token());
  } while (!request.page_token().empty() && (limit == 0 || printed < limit));
  if (printed == 0) context.err() << "no moves; start one: tenurectl move create --from QUEUE --dead-letters\n";
  return kExitDone;
}

}  // namespace

void AddMoveCommands(CLI::App& root, Context& context) {
  CLI::App* group = root.add_subcommand("move", "Move dead letters or a backlog to another queue");
  group->require_subcommand(1);

  auto options = std::make_shared<CreateOptions>();
  CLI::App* create = group->add_subcommand("create", "Start a move; it goes on inside the daemon");
  create->add_option("--from", options->from, "Whose jobs are moved")->required();
  create->add_option("--to", options->to, "Where they go [dead letters: back to the same queue]");
  create->add_flag("--dead-letters", options->dead_letters, "Move the dead letters there are now");
  create->add_flag("--backlog", options->backlog, "Move live jobs but for those that are leased");
  AddRepeated(*create, "-k,--kind", options->kinds, "Only jobs of this kind; may be repeated");
  create->add_option("--rate", options->rate, "Jobs a second, 1 to 100000 [as fast as it goes]")
      ->check(CLI::Range(1, 100'000));
  create
      ->add_option("--max-in-flight", options->max_in_flight,
                   "At most so many of its jobs live at a time, 1 to 10000 [no bound]")
      ->check(CLI::Range(1, 10'000));
  create->add_option("--request-id", options->request_id,
                     "Makes the call safe to repeat: the repeat answers with the same move");
  OnRun(*create, context, [&context, options] { return Create(context, *options); });

  const auto add_ids = [&context, group](const std::string& name, const std::string& description, auto rpc) {
    auto ids = std::make_shared<std::vector<std::string>>();
    CLI::App* command = group->add_subcommand(name, description);
    command->add_option("id", *ids, "Ids of moves")->required();
    OnRun(*command, context, [&context, ids, rpc] {
      int exit_status = kExitDone;
      for (const std::string& id : *ids) {
        const auto response = rpc(id);
        if (!response.ok()) {
          exit_status = Worse(exit_status, context.Report(response.status(), absl::StrCat("move: ", id)));
          if (exit_status == kExitUnreachable) return exit_status;
          continue;
        }
        PrintMove(context, response->move());
      }
      return exit_status;
    });
  };
  const auto named = [](auto request, const std::string& id) {
    request.set_id(id);
    return request;
  };
  add_ids("get", "Show moves with their progress", [&context, named](const std::string& id) {
    return context.connection().GetMove(named(v1::GetMoveRequest(), id));
  });
  add_ids("pause", "Stop moves until they are resumed", [&context, named](const std::string& id) {
    return context.connection().PauseMove(named(v1::PauseMoveRequest(), id));
  });
  add_ids("resume", "Go on with paused moves", [&context, named](const std::string& id) {
    return context.connection().ResumeMove(named(v1::ResumeMoveRequest(), id));
  });
  add_ids("cancel", "End moves; what was moved stays moved", [&context, named](const std::string& id) {
    return context.connection().CancelMove(named(v1::CancelMoveRequest(), id));
  });

  auto limit = std::make_shared<int64_t>(0);
  CLI::App* list = group->add_subcommand("list", "List moves, the newest first");
  list->add_option("--limit", *limit, "At most so many [all]")->check(AtLeastOne());
  OnRun(*list, context, [&context, limit] { return List(context, *limit); });
}

}  // namespace tenure::cli
