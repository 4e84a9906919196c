#include "plan/hardware.h"

#include <array>
#include <cctype>
#include <string>
#include <utility>

namespace sterling::plan {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// Total memory as nvidia-smi prints it ("Memory-Usage … / 97887MiB"), of AMD devices as rocm-smi does ("VRAM Total Memory (B)"). It is less than
// the number on the box says: part of it is taken by error correction and firmware before any program sees it. Boards differ by a few MiB between firmware versions.
constexpr std::array kDevices = {
    Device{"a10", "NVIDIA A10, 24 GB", 23028 * kMiB},
    Device{"a100-40gb", "NVIDIA A100, 40 GB", 40960 * kMiB},
    Device{"a100-80gb", "NVIDIA A100, 80 GB", 81920 * kMiB},
    Device{"b200", "NVIDIA B200, 180 GB", 183359 * kMiB},
    Device{"h100", "NVIDIA H100, 80 GB", 81559 * kMiB},
    Device{"h200", "NVIDIA H200, 141 GB", 143771 * kMiB},
    Device{"l4", "NVIDIA L4, 24 GB", 23034 * kMiB},
    Device{"l40s", "NVIDIA L40S, 48 GB", 46068 * kMiB},
    Device{"mi300x", "AMD Instinct MI300X, 192 GB", 206'141'652'992},
    Device{"rtx-3090", "NVIDIA GeForce RTX 3090, 24 GB", 24576 * kMiB},
    Device{"rtx-4090", "NVIDIA GeForce RTX 4090, 24 GB", 24564 * kMiB},
    Device{"rtx-5090", "NVIDIA GeForce RTX 5090, 32 GB", 32607 * kMiB},
    Device{"rtx-6000-ada", "NVIDIA RTX 6000 Ada Generation, 48 GB", 49140 * kMiB},
    Device{"rtx-a6000", "NVIDIA RTX A6000, 48 GB", 49140 * kMiB},
    Device{"rtx-pro-6000", "NVIDIA RTX PRO 6000 Blackwell, 96 GB", 97887 * kMiB},
};

// Other ways to say the same.
constexpr std::array kAlso = {
    std::pair<std::string_view, std::string_view>{"a10g", "a10"},
    std::pair<std::string_view, std::string_view>{"a100", "a100-80gb"},
    std::pair<std::string_view, std::string_view>{"a100-40", "a100-40gb"},
    std::pair<std::string_view, std::string_view>{"a100-80", "a100-80gb"},
    std::pair<std::string_view, std::string_view>{"h100-80gb", "h100"},
    std::pair<std::string_view, std::string_view>{"h200-141gb", "h200"},
    std::pair<std::string_view, std::string_view>{"4090", "rtx-4090"},
    std::pair<std::string_view, std::string_view>{"5090", "rtx-5090"},
    std::pair<std::string_view, std::string_view>{"3090", "rtx-3090"},
    std::pair<std::string_view, std::string_view>{"pro-6000", "rtx-pro-6000"},
    std::pair<std::string_view, std::string_view>{"rtx-pro-6000-blackwell", "rtx-pro-6000"},
    std::pair<std::string_view, std::string_view>{"rtx-pro-6000-96gb", "rtx-pro-6000"},
};

std::string plain(std::string_view name) {
  std::string text;
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  for (const std::string_view word : {"nvidia", "geforce", "amd", "instinct"}) {
    if (text.starts_with(word)) text.erase(0, word.size());
  }
  return text;
}

}  // namespace

std::span<const Device> devices() {
  return kDevices;
}

const Device* find_device(std::string_view name) {
  std::string wanted = plain(name);
  for (const auto& [other, canonical] : kAlso) {
    if (plain(other) == wanted) wanted = plain(canonical);
  }
  for (const Device& device : kDevices) {
    if (plain(device.name) == wanted) return &device;
  }
  return nullptr;
}

}  // namespace sterling::plan
