// Rows of settings that several commands have: one wording, one set of limits.
#pragma once

#include "config/setting.h"

namespace sterling::cli {

inline constexpr config::Setting kModelArgument{
    .key = "model",
    .type = config::SettingType::kPath,
    .help = "A directory, a .gguf file, or a hub id.",
    .placeholder = "MODEL",
    .positional = true,
};
inline constexpr config::Setting kIsaSetting{
    .key = "isa",
    .type = config::SettingType::kChoice,
    .effect = config::Effect::kSpeed,
    .help = "Kernel tier; all give the same bits.",
    .placeholder = "TIER",
    .word = "auto",
    .choices = {{{"scalar"}, {"avx2"}, {"avx512"}, {"avx512bf16"}}},
};
inline constexpr config::Setting kThreadsSetting{
    .key = "threads",
    .type = config::SettingType::kInteger,
    .default_text = "0",
    .effect = config::Effect::kSpeed,
    .help = "Compute threads; 0: one per physical core. The results are the same.",
    .placeholder = "N",
    .max = 4096,
};
inline constexpr config::Setting kJsonSetting{
    .key = "json",
    .type = config::SettingType::kBoolean,
    .default_text = "false",
    .help = "One JSON document on stdout, nothing else.",
};

}  // namespace sterling::cli
