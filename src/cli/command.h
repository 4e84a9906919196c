// The commands of the program. One file each, one row in commands.cc. Only cli/ reads argv, the environment and the terminal.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace sterling::cli {

// Exit codes, shared by all commands (docs and scripts rely on them).
enum ExitCode : int {
  kExitOk = 0,
  kExitFailure = 1,
  kExitUsage = 2,
  kExitMismatch = 3,
  kExitUndetermined = 4,
  kExitNotReady = 5,
};

// What a command is given: everything after its name, and the process environment.
struct Invocation {
  std::vector<std::string> args;
  std::vector<std::pair<std::string, std::string>> environment;
};

struct Command {
  std::string_view name;
  std::string_view summary;  // one line, for `sterling --help`
  int (*run)(const Invocation& invocation);
};

std::span<const Command> commands();

int run_serve(const Invocation& invocation);
int run_chat(const Invocation& invocation);
int run_pull(const Invocation& invocation);
int run_inspect(const Invocation& invocation);
int run_plan(const Invocation& invocation);
int run_synth(const Invocation& invocation);
int run_quantize(const Invocation& invocation);
int run_calibrate(const Invocation& invocation);
int run_audit(const Invocation& invocation);
int run_golden(const Invocation& invocation);
int run_doctor(const Invocation& invocation);

// kExitUsage for a wrong request, kExitFailure otherwise.
int exit_code_for(const Error& error);

}  // namespace sterling::cli
