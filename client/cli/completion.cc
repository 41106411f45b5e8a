// Shell completion from the CLI11 tree. Layer: client/cli. Thread-safe: pure functions.
//
// Each script walks the words typed so far, follows those that name a subcommand, and offers the subcommands and
// options of the command it arrives at.
#include "client/cli/completion.h"

#include <memory>
#include <ostream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/cli/commands.h"

namespace tenure::cli {
namespace {

struct Command {
  std::string path;  // "job enqueue"; empty for the root.
  const CLI::App* app;
};

std::vector<const CLI::App*> Subcommands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* sub) { return !sub->get_name().empty(); });
}

void Collect(const CLI::App& app, const std::string& path, std::vector<Command>& commands) {
  commands.push_back({path, &app});
  for (const CLI::App* sub : Subcommands(app)) {
    Collect(*sub, path.empty() ? sub->get_name() : absl::StrCat(path, " ", sub->get_name()), commands);
  }
}

std::vector<Command> AllCommands(const CLI::App& root) {
  std::vector<Command> commands;
  Collect(root, "", commands);
  return commands;
}

std::vector<const CLI::Option*> NamedOptions(const CLI::App& app) {
  return app.get_options([](const CLI::Option* option) { return option->nonpositional(); });
}

// "-q" and "--queue".
std::vector<std::string> Spellings(const CLI::Option& option) {
  std::vector<std::string> words;
  for (const std::string& name : option.get_snames()) words.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) words.push_back("--" + name);
  return words;
}

bool TakesValue(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

// Options whose values are files; all others with a value complete to nothing rather than to a wrong guess.
bool TakesFile(const CLI::Option& option) { return option.get_type_name() == "FILE"; }

std::vector<std::string> ValueOptions(const std::vector<Command>& commands, bool files) {
  std::vector<std::string> words;
  for (const Command& command : commands) {
    for (const CLI::Option* option : NamedOptions(*command.app)) {
      if (!TakesValue(*option) || TakesFile(*option) != files) continue;
      for (const std::string& word : Spellings(*option)) {
        if (std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
      }
    }
  }
  return words;
}

std::vector<std::string> Words(const CLI::App& app, const CLI::App& root) {
  std::vector<std::string> words;
  for (const CLI::App* sub : Subcommands(app)) words.push_back(sub->get_name());
  for (const CLI::Option* option : NamedOptions(app)) {
    for (const std::string& word : Spellings(*option)) words.push_back(word);
  }
  if (&app != &root) {
    // Global options may stand after the command, too; -h is there already.
    for (const CLI::Option* option : NamedOptions(root)) {
      for (const std::string& word : Spellings(*option)) {
        if (std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
      }
    }
  }
  return words;
}

// For single quotes in sh; fish and zsh take the same.
std::string Quote(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

// Lines of `case` that follow the words to a command's path: `path` grows by each word that names a subcommand.
std::string PathCases(const std::vector<Command>& commands, const std::string& indent) {
  std::string text;
  for (const Command& command : commands) {
    for (const CLI::App* sub : Subcommands(*command.app)) {
      const std::string path =
          command.path.empty() ? sub->get_name() : absl::StrCat(command.path, " ", sub->get_name());
      absl::StrAppend(&text, indent, "'", command.path, "|", sub->get_name(), "') path='", path, "' ;;\n");
    }
  }
  return text;
}

}  // namespace

std::string BashCompletion(const CLI::App& root) {
  const std::vector<Command> commands = AllCommands(root);
  std::string text = absl::StrCat("# bash completion for ", root.get_name(), "; load it with:  source <(",
                                  root.get_name(), " completion bash)\n_", root.get_name(), "() {\n");
  absl::StrAppend(
      &text,
      "  local current=\"${COMP_WORDS[COMP_CWORD]}\" previous=\"${COMP_WORDS[COMP_CWORD-1]}\" path='' words='' i\n"
      "  COMPREPLY=()\n"
      "  case \"$previous\" in\n");
  const std::vector<std::string> files = ValueOptions(commands, true);
  if (!files.empty()) {
    absl::StrAppend(&text, "    ", absl::StrJoin(files, "|"),
                    ") COMPREPLY=($(compgen -f -- \"$current\")); return ;;\n");
  }
  absl::StrAppend(&text, "    ", absl::StrJoin(ValueOptions(commands, false), "|"), ") return ;;\n  esac\n");
  absl::StrAppend(&text,
                  "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
                  "    case \"$path|${COMP_WORDS[i]}\" in\n",
                  PathCases(commands, "      "), "    esac\n  done\n  case \"$path\" in\n");
  for (const Command& command : commands) {
    absl::StrAppend(&text, "    '", command.path, "') words='", absl::StrJoin(Words(*command.app, root), " "),
                    "' ;;\n");
  }
  absl::StrAppend(&text, "  esac\n  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n}\ncomplete -F _",
                  root.get_name(), " ", root.get_name(), "\n");
  return text;
}

std::string ZshCompletion(const CLI::App& root) {
  const std::vector<Command> commands = AllCommands(root);
  const std::string& name = root.get_name();
  std::string text = absl::StrCat("#compdef ", name, "\n# zsh completion for ", name, "; load it with:  source <(",
                                  name, " completion zsh)\n_", name, "() {\n");
  absl::StrAppend(&text,
                  "  local path_='' word\n  local -a commands options\n"
                  "  case \"${words[CURRENT-1]}\" in\n");
  const std::vector<std::string> files = ValueOptions(commands, true);
  if (!files.empty()) absl::StrAppend(&text, "    ", absl::StrJoin(files, "|"), ") _files; return ;;\n");
  absl::StrAppend(&text, "    ", absl::StrJoin(ValueOptions(commands, false), "|"),
                  ") return ;;\n  esac\n"
                  "  for word in \"${(@)words[2,CURRENT-1]}\"; do\n"
                  "    case \"$path_|$word\" in\n",
                  absl::StrReplaceAll(PathCases(commands, "      "), {{"path=", "path_="}}),
                  "    esac\n  done\n  case \"$path_\" in\n");
  // _describe splits at a colon.
  const auto described = [](const std::string& word, const std::string& description) {
    return Quote(absl::StrCat(absl::StrReplaceAll(word, {{":", "\\:"}}), ":", description));
  };
  for (const Command& command : commands) {
    absl::StrAppend(&text, "    '", command.path, "')\n      commands=(");
    for (const CLI::App* sub : Subcommands(*command.app)) {
      absl::StrAppend(&text, "\n        ", described(sub->get_name(), sub->get_description()));
    }
    absl::StrAppend(&text, ")\n      options=(");
    std::vector<const CLI::Option*> options = NamedOptions(*command.app);
    if (command.app != &root) {
      for (const CLI::Option* option : NamedOptions(root)) {
        if (Spellings(*option).back() != "--help") options.push_back(option);
      }
    }
    for (const CLI::Option* option : options) {
      for (const std::string& word : Spellings(*option)) {
        absl::StrAppend(&text, "\n        ", described(word, option->get_description()));
      }
    }
    absl::StrAppend(&text, ")\n      ;;\n");
  }
  absl::StrAppend(&text,
                  "  esac\n"
                  "  (( ${#commands} )) && _describe 'command' commands\n"
                  "  [[ \"${words[CURRENT]}\" == -* ]] && _describe 'option' options\n"
                  "}\n"
                  "compdef _",
                  name, " ", name, "\n");
  return text;
}

std::string FishCompletion(const CLI::App& root) {
  const std::vector<Command> commands = AllCommands(root);
  const std::string& name = root.get_name();
  const std::string at = absl::StrCat("__", name, "_at");
  std::string text = absl::StrCat("# fish completion for ", name, "; load it with:  ", name,
                                  " completion fish | source\n"
                                  "# True if the words typed so far lead to the command in the argument.\n"
                                  "function ",
                                  at,
                                  "\n  set -l path ''\n"
                                  "  for word in (commandline -opc)[2..-1]\n"
                                  "    switch \"$path|$word\"\n");
  for (const Command& command : commands) {
    for (const CLI::App* sub : Subcommands(*command.app)) {
      const std::string path =
          command.path.empty() ? sub->get_name() : absl::StrCat(command.path, " ", sub->get_name());
      absl::StrAppend(&text, "      case '", command.path, "|", sub->get_name(), "'\n        set path '", path, "'\n");
    }
  }
  absl::StrAppend(&text, "    end\n  end\n  test \"$path\" = \"$argv[1]\"\nend\ncomplete -c ", name, " -f\n");
  const auto quote = [](const std::string& value) {
    return absl::StrCat("'", absl::StrReplaceAll(value, {{"\\", "\\\\"}, {"'", "\\'"}}), "'");
  };
  for (const Command& command : commands) {
    // Global options complete everywhere.
    const std::string condition = command.path.empty() ? "" : absl::StrCat(" -n \"", at, " '", command.path, "'\"");
    for (const CLI::App* sub : Subcommands(*command.app)) {
      absl::StrAppend(&text, "complete -c ", name, " -n \"", at, " '", command.path, "'\" -a ", sub->get_name(), " -d ",
                      quote(sub->get_description()), "\n");
    }
    for (const CLI::Option* option : NamedOptions(*command.app)) {
      absl::StrAppend(&text, "complete -c ", name, condition);
      for (const std::string& word : option->get_snames()) absl::StrAppend(&text, " -s ", word);
      for (const std::string& word : option->get_lnames()) absl::StrAppend(&text, " -l ", word);
      if (TakesValue(*option)) absl::StrAppend(&text, TakesFile(*option) ? " -r -F" : " -x");
      absl::StrAppend(&text, " -d ", quote(option->get_description()), "\n");
    }
  }
  return text;
}

void AddCompletionCommand(CLI::App& root, Context& context) {
  CLI::App* group = root.add_subcommand("completion", "Print a completion script for a shell");
  group->require_subcommand(1);
  group->footer(
      "Load it with:  source <(tenurectl completion bash)   or, in fish:  tenurectl completion fish | source");
  const auto add = [group, &root, &context](const char* shell, std::string (*generate)(const CLI::App&)) {
    CLI::App* command = group->add_subcommand(shell, absl::StrCat("For ", shell));
    OnRun(*command, context, [&root, &context, generate] {
      context.out() << generate(root);
      return kExitDone;
    });
  };
  add("bash", &BashCompletion);
  add("zsh", &ZshCompletion);
  add("fish", &FishCompletion);
}

}  // namespace tenure::cli
