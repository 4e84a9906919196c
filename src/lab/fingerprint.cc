#include "lab/fingerprint.h"

#include <algorithm>

#include <fmt/format.h>

#include "platform/sha256.h"

namespace sterling::lab {
namespace {

constexpr std::size_t kSampledTensors = 64;
constexpr std::size_t kSampledBytes = 1024;

}  // namespace

std::string checkpoint_fingerprint(const formats::Checkpoint& checkpoint) {
  const auto tensors = checkpoint.tensors();
  std::string text = boost::json::serialize(checkpoint.config());
  text += '\n';
  for (const TensorView& tensor : tensors) {
    text += fmt::format("{} {}", tensor.name, dtype_name(tensor.dtype));
    for (const std::int64_t extent : tensor.shape) text += fmt::format(" {}", extent);
    text += '\n';
  }
  const std::size_t samples = std::min(kSampledTensors, tensors.size());
  for (std::size_t i = 0; i < samples; ++i) {
    const TensorView& tensor = tensors[i * tensors.size() / samples];
    const auto* bytes = reinterpret_cast<const char*>(tensor.data.data());
    text.append(bytes, std::min(kSampledBytes, tensor.data.size()));
  }
  return platform::sha256(text);
}

}  // namespace sterling::lab
