#include <array>

#include "cli/command.h"

namespace sterling::cli {
namespace {

// One row per command, in the order of `sterling --help`.
constexpr std::array kCommands{
    Command{"serve", "run the server: OpenAI API on loopback", run_serve},
    Command{"chat", "talk to a model, or to a running server, in the terminal", run_chat},
    Command{"pull", "fetch a checkpoint from the hub into the local cache", run_pull},
    Command{"inspect", "what a checkpoint contains, from its headers alone", run_inspect},
    Command{"plan", "what fits: weights, KV cache, state; tokens and sequences, here or on named GPUs", run_plan},
    Command{"synth", "write a checkpoint with random weights, for benchmarks and capacity tests", run_synth},
    Command{"quantize", "write a checkpoint again with FP8 or NVFP4 weights", run_quantize},
    Command{"calibrate", "K/V scales for an FP8 cache, from real prompts", run_calibrate},
    Command{"audit", "what each precision choice costs on your prompts; how far two servers are apart", run_audit},
    Command{"golden", "compare a model with reference vectors, layer by layer", run_golden},
    Command{"doctor", "this host: instruction sets, measured kernel rates, bandwidth, limits", run_doctor},
};

}  // namespace

std::span<const Command> commands() {
  return kCommands;
}

int exit_code_for(const Error& error) {
  if (error.code == ErrorCode::kVerification) return kExitMismatch;
  return error.code == ErrorCode::kInvalidArgument ? kExitUsage : kExitFailure;
}

}  // namespace sterling::cli
