// sterling: one program, one command per job.
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"
#include "cli/version.h"
#include "config/nearest.h"

extern char** environ;

namespace {

using sterling::cli::Command;
using sterling::cli::commands;

void print_help(std::FILE* to) {
  std::fputs(
      "sterling — an LLM inference server whose numerical precision is explicit, reported and proven\n\n"
      "Usage: sterling COMMAND [arguments]      sterling COMMAND --help\n\nCommands:\n",
      to);
  for (const Command& command : commands()) {
    std::fprintf(to, "  %-10.*s %.*s\n", static_cast<int>(command.name.size()), command.name.data(),
                 static_cast<int>(command.summary.size()), command.summary.data());
  }
  std::fputs(
      "\nOptions:\n  --version   print the version and exit\n  --help      print this and exit\n\n"
      "Exit codes: 0 ok, 1 failure, 2 usage, 3 verification mismatch, 4 cannot determine, 5 not ready in time\n",
      to);
}

std::vector<std::pair<std::string, std::string>> read_environment() {
  std::vector<std::pair<std::string, std::string>> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    variables.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

int unknown_command(const std::string& name) {
  std::vector<std::string> names;
  for (const Command& command : commands()) names.emplace_back(command.name);
  const std::string near = sterling::config::nearest(name, names);
  std::fprintf(stderr, "sterling: unknown command \"%s\"%s%s%s; see sterling --help\n", name.c_str(),
               near.empty() ? "" : "; did you mean \"", near.c_str(), near.empty() ? "" : "\"?");
  return sterling::cli::kExitUsage;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + (argc > 0 ? 1 : 0), argv + argc);
  if (args.empty()) {
    print_help(stderr);
    return sterling::cli::kExitUsage;
  }
  if (args[0] == "--help" || args[0] == "-h" || args[0] == "help") {
    print_help(stdout);
    return sterling::cli::kExitOk;
  }
  if (args[0] == "--version" || args[0] == "version") {
    std::printf("sterling %s\n", sterling::cli::kVersion);
    return sterling::cli::kExitOk;
  }
  for (const Command& command : commands()) {
    if (command.name != args[0]) continue;
    return command.run({{args.begin() + 1, args.end()}, read_environment()});
  }
  return unknown_command(args[0]);
}
