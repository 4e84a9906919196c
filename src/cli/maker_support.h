// What `sterling synth` and `sterling quantize` share: settings and threads.
#pragma once

#include <memory>

#include "base/status.h"
#include "config/resolver.h"
#include "config/setting.h"
#include "platform/thread_pool.h"

namespace sterling::cli {

inline constexpr config::Setting kShardSize{
    .key = "shard_size",
    .type = config::SettingType::kBytes,
    .default_text = "5GB",
    .help = "Tensors' bytes per file at most; a larger tensor gets a file of its own.",
    .placeholder = "SIZE",
    .min = 1,
};
inline constexpr config::Setting kThreads{
    .key = "threads",
    .type = config::SettingType::kInteger,
    .default_text = "0",
    .effect = config::Effect::kSpeed,
    .help = "Threads that compute; 0: one per core. The files are the same.",
    .placeholder = "N",
    .max = 4096,
};
inline constexpr config::Setting kJson{
    .key = "json",
    .type = config::SettingType::kBoolean,
    .default_text = "false",
    .help = "One JSON document on stdout, nothing else.",
};

// As many as the setting "threads" says.
Expected<std::unique_ptr<platform::ThreadPool>> start_maker_threads(const config::Settings& settings);

}  // namespace sterling::cli
