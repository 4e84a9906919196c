// A configuration file of any bytes through the parser and the typed reader.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "formats/json.h"
#include "formats/object_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  const auto parsed = sterling::formats::parse_json_object(text, "fuzz.json");
  if (!parsed) {
    STERLING_CHECK(parsed.error().message.starts_with("fuzz.json"));
    return 0;
  }
  // What was accepted stays acceptable: written and read again it has the same keys.
  const auto again = sterling::formats::parse_json_object(boost::json::serialize(*parsed), "again.json");
  STERLING_CHECK(again.ok() && again->size() == parsed->size());

  const sterling::formats::ObjectReader reader(*parsed, "fuzz.json");
  const std::int64_t hidden = reader.integer("hidden_size", 1, 1 << 20);
  STERLING_CHECK(hidden >= 1 && hidden <= 1 << 20);
  const double eps = reader.number_or("rms_norm_eps", 0.5, 0.0, 1.0);
  STERLING_CHECK(eps >= 0.0 && eps <= 1.0);
  for (const std::int64_t id : reader.integer_or_list("eos_token_id", 0, 1000)) STERLING_CHECK(id >= 0 && id <= 1000);
  (void)reader.optional_strings("architectures");
  (void)reader.boolean_or("tie_word_embeddings", false);
  if (const auto child = reader.optional_object("rope_parameters")) {
    (void)child->string_or("rope_type", "default");
    (void)child->number("rope_theta", 1.0, 1e12);
  }
  STERLING_CHECK(reader.unread().size() < 2 * size + 1);
  return 0;
}
