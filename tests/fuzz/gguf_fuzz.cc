// A GGUF file of any bytes: refused with a message, or its tensors lie in the file, and whatever can be decoded decodes.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "formats/gguf.h"
#include "formats/gguf_model.h"
#include "quant/decode.h"

namespace {

void decode_some(const sterling::TensorView& tensor, std::span<const std::byte> file) {
  if (!tensor.data.empty()) {
    STERLING_CHECK(tensor.data.data() >= file.data() &&
                   tensor.data.data() + tensor.data.size() <= file.data() + file.size());
  }
  const auto [rows, columns] = sterling::quant::row_shape(tensor);
  if (rows == 0 || columns > 1 << 20) return;
  std::vector<float> row(static_cast<std::size_t>(columns));
  for (const std::int64_t r : {std::int64_t{0}, rows / 2, rows - 1}) {
    STERLING_CHECK(sterling::quant::decode_rows(tensor, r, r + 1, row.data()).ok());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(bytes), size);
  const auto parsed = sterling::formats::parse_gguf(file, "fuzz.gguf");
  if (!parsed) {
    STERLING_CHECK(parsed.error().message.starts_with("fuzz.gguf"));
    return 0;
  }
  for (const sterling::TensorView& tensor : parsed->tensors) decode_some(tensor, file);
  const auto model = sterling::formats::gguf_model(*parsed, "fuzz.gguf");
  if (!model) {
    STERLING_CHECK(model.error().message.starts_with("fuzz.gguf"));
    return 0;
  }
  for (const sterling::TensorView& tensor : model->tensors) decode_some(tensor, file);
  return 0;
}
