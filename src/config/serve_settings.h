// The settings of `sterling serve`, and the same as plain typed options for the code that builds the server.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "config/resolver.h"
#include "config/setting.h"

namespace sterling::config {

const Schema& serve_schema();

// A value, and who asked for it: "default", "flag --kv-cache-dtype", "environment STERLING_COMPUTE", "file sterling.conf:3".
struct Asked {
  std::string value;
  std::string by;
};

// Optionals are empty for "auto", "none" and not set.
struct ServeOptions {
  std::string model;  // directory, .gguf file or hub id; never empty
  std::optional<std::string> served_model_name;
  std::string host;
  std::uint16_t port = 0;  // 0: any free port
  std::optional<std::string> api_key;
  std::optional<std::string> api_key_file;

  Asked compute;                             // "bf16" or "fp32"
  Asked kv_cache_dtype;                      // a type's name, or "checkpoint"
  Asked kv_cache_dtype_k, kv_cache_dtype_v;  // empty: as kv_cache_dtype
  std::optional<std::string> kv_scales;
  bool accept_unscaled_kv = false;
  bool dry_run = false;
  std::optional<std::int64_t> seed;
  std::optional<std::string> chat_template;
  bool strict = false;

  std::optional<std::string> isa;      // forced tier
  std::optional<std::size_t> threads;  // compute threads
  bool pin_threads = false;

  std::optional<std::size_t> max_model_len;    // tokens
  std::optional<std::size_t> kv_cache_memory;  // bytes
  std::size_t max_num_seqs = 0;
  std::size_t max_num_batched_tokens = 0;
  std::size_t max_queue = 0;

  std::size_t max_body_size = 0;  // bytes
  std::size_t max_connections = 0;
  double header_timeout = 0;              // seconds
  std::optional<double> request_timeout;  // seconds
  double drain_timeout = 0;               // seconds

  std::string log_level;   // "debug", "info", "warning", "error"
  std::string log_format;  // "text", "json"
};

// kInvalidArgument: no model; api_key and api_key_file together.
Expected<ServeOptions> serve_options(const Settings& settings);

}  // namespace sterling::config
