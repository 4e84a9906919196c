// A safetensors file of any bytes: refused with a message, or every tensor's bytes lie in the file and cover its data.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "formats/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(bytes), size);
  const auto parsed = sterling::formats::parse_safetensors(file, "fuzz.safetensors");
  if (!parsed) {
    STERLING_CHECK(parsed.error().message.starts_with("fuzz.safetensors"));
    return 0;
  }
  std::uint64_t covered = 0;
  for (const sterling::TensorView& tensor : parsed->tensors) {
    covered += tensor.data.size();
    if (tensor.data.empty()) continue;
    STERLING_CHECK(tensor.data.data() >= file.data() && tensor.data.data() + tensor.data.size() <= file.data() + size);
    STERLING_CHECK(sterling::dtype_bytes(tensor.dtype, static_cast<std::uint64_t>(tensor.elements())) ==
                   tensor.data.size());
  }
  STERLING_CHECK(covered <= size - 8);
  return 0;
}
