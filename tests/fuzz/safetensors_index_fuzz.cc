// A shard index of any bytes: refused with a message, or sorted entries that point at plain file names.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "formats/safetensors_index.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  const auto parsed = sterling::formats::parse_safetensors_index(text, "fuzz.json");
  if (!parsed) {
    STERLING_CHECK(parsed.error().message.starts_with("fuzz.json"));
    return 0;
  }
  std::string_view previous;
  for (const auto& entry : parsed->entries) {
    STERLING_CHECK(entry.shard < parsed->shards.size());
    STERLING_CHECK(&entry == parsed->entries.data() || previous < entry.tensor);
    previous = entry.tensor;
  }
  for (const auto& shard : parsed->shards) STERLING_CHECK(shard.find('/') == std::string::npos && shard.front() != '.');
  return 0;
}
