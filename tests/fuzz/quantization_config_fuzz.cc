// Quantisation metadata of any content: {"config": config.json, "hf": hf_quant_config.json or absent, "module": a module name to ask for}.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "formats/json.h"
#include "formats/quantization_config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  const auto parsed = sterling::formats::parse_json_object(text, "fuzz.json");
  if (!parsed) return 0;
  const auto* config = parsed->if_contains("config");
  const auto* hf = parsed->if_contains("hf");
  const auto* module = parsed->if_contains("module");
  if (config == nullptr || !config->is_object()) return 0;
  const auto read = sterling::formats::read_quantization_config(
      config->get_object(), hf != nullptr && hf->is_object() ? &hf->get_object() : nullptr);
  if (!read) {
    STERLING_CHECK(!read.error().message.empty());
    return 0;
  }
  const std::string name =
      module != nullptr && module->is_string() ? std::string(module->get_string()) : "model.layers.0.mlp.up_proj";
  // The lookup tables answer as the patterns one by one do.
  bool any = false;
  for (const std::string& pattern : read->ignored.all()) {
    any = any || sterling::formats::ModulePatterns::match(pattern, name);
  }
  STERLING_CHECK(read->ignored.matches(name) == any);
  (void)read->announces(name);
  (void)sterling::formats::foreign_method_of_tensor(name);
  return 0;
}
