#include "formats/kv_wish.h"

#include <string_view>

#include <fmt/format.h>

#include "formats/quantization_config.h"

namespace sterling::formats {
namespace {

namespace json = boost::json;

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  return result;
}

std::optional<std::string> wish_from_text(std::string_view text) {
  const std::string name = lower(text);
  if (name.empty() || name == "none" || name == "auto" || name == "null") return std::nullopt;
  if (name == "fp8" || name == "float8" || name == "fp8_e4m3" || name == "float8_e4m3fn") return "fp8_e4m3";
  if (name == "fp4" || name == "nvfp4") return "nvfp4";
  return name;
}

std::optional<std::string> wish_from_scheme(const json::object& scheme) {
  const json::value* bits = scheme.if_contains("num_bits");
  const json::value* type = scheme.if_contains("type");
  if (bits == nullptr || !bits->is_int64()) return "unknown";
  const bool floating = type == nullptr || !type->is_string() || type->get_string() == "float";
  if (floating && bits->get_int64() == 8) return "fp8_e4m3";
  if (floating && bits->get_int64() == 4) return "nvfp4";
  if (floating && bits->get_int64() == 16) return "bf16";
  return fmt::format("{}{}", floating ? "float" : "int", bits->get_int64());
}

json::value value_of(const json::object& section, std::string_view key) {
  const json::value* value = section.if_contains(key);
  return value == nullptr ? json::value(nullptr) : *value;
}

// producer: {"name": "modelopt"}, or quant_method: "modelopt".
bool made_by_modelopt(const json::object& object) {
  const json::value* producer = object.if_contains("producer");
  if (producer != nullptr && producer->is_object()) {
    const json::value* name = producer->get_object().if_contains("name");
    if (name != nullptr && name->is_string() && lower(name->get_string()) == "modelopt") return true;
  }
  const json::value* method = object.if_contains("quant_method");
  return method != nullptr && method->is_string() && lower(method->get_string()).starts_with("modelopt");
}

}  // namespace

std::optional<std::string> canonical_kv_wish(const json::value& value) {
  if (value.is_string()) return wish_from_text(value.get_string());
  if (value.is_object()) return wish_from_scheme(value.get_object());
  return value.is_null() ? std::nullopt : std::optional<std::string>("unknown");
}

const json::object* quantization_section(const json::object& config) {
  const json::value* section = find_quantization_section(config).value;
  return section == nullptr ? nullptr : section->if_object();
}

const json::object* quantization_section_of_hf_quant(const json::object* hf_quant_config) {
  if (hf_quant_config == nullptr) return nullptr;
  const json::value* section = hf_quant_config->if_contains("quantization");
  return section != nullptr && section->is_object() ? &section->get_object() : hf_quant_config;
}

KvWish read_kv_wish(const Checkpoint& checkpoint) {
  KvWish result;
  if (const json::object* section = quantization_section(checkpoint.config())) {
    const bool by_algo = !section->contains("kv_cache_scheme") && section->contains("kv_cache_quant_algo");
    const std::string_view key = by_algo ? "kv_cache_quant_algo" : "kv_cache_scheme";
    result.sources.push_back({"config.json", fmt::format("quantization_config.{}", key), value_of(*section, key)});
    result.modelopt = made_by_modelopt(*section);
  }
  const json::object* hf_quant = checkpoint.hf_quant_config();
  if (const json::object* section = quantization_section_of_hf_quant(hf_quant)) {
    result.sources.push_back(
        {"hf_quant_config.json", "quantization.kv_cache_quant_algo", value_of(*section, "kv_cache_quant_algo")});
    result.modelopt = result.modelopt || made_by_modelopt(*hf_quant);
  }
  std::optional<std::optional<std::string>> first;
  for (const KvWishSource& source : result.sources) {
    const std::optional<std::string> wish = canonical_kv_wish(source.value);
    if (first && *first != wish) result.sources_disagree = true;
    if (!first) first = wish;
    if (!result.wish) result.wish = wish;
  }
  return result;
}

}  // namespace sterling::formats
