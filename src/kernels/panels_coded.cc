// Panels of coded weights: the layouts of contract.h, byte by byte.
#include <algorithm>
#include <cstring>

#include "kernels/contract.h"
#include "kernels/panels.h"

namespace sterling::kernels {
namespace {

constexpr std::size_t kLaneCount = kLanes;
constexpr std::size_t kBlockElements = 8;  // 4 K pairs
constexpr std::size_t kBlockLines = 2;     // of E4M3 codes

std::size_t block_bytes(CodeFormat format) {
  return kBlockElements * kLaneCount / (is_four_bit(format) ? 2 : 1);
}

// Where things stand in a panel.
struct Layout {
  Layout(CodeFormat f, std::size_t columns)
      : group(code_group(f) == 0 ? std::max<std::size_t>(columns, 1) : static_cast<std::size_t>(code_group(f))),
        scale_bytes(code_scale_bytes(f)),
        block(block_bytes(f)),
        group_bytes(kLaneCount * scale_bytes + (group + kBlockElements - 1) / kBlockElements * block) {}

  std::size_t scale_at(std::size_t g, std::size_t lane) const { return g * group_bytes + lane * scale_bytes; }
  // The block that holds element i.
  std::size_t block_at(std::size_t i) const {
    return i / group * group_bytes + kLaneCount * scale_bytes + i % group / kBlockElements * block;
  }

  std::size_t group, scale_bytes, block, group_bytes;
};

// Element i of a lane within its block: byte of an E4M3 code; byte and bit of an E2M1 code.
constexpr std::size_t e4m3_byte(std::size_t i, std::size_t lane) {
  return (i % kBlockElements / 4 * kLaneCount + lane) * 4 + i % 2 * 2 + i % 4 / 2;
}
// Where the bits of the lines stand in a panel, and how many bytes they take.
std::size_t flags_at(CodeFormat format, std::size_t columns) {
  const auto group = static_cast<std::size_t>(code_group(format));
  const std::size_t groups = group == 0 ? 0 : (columns + group - 1) / group;
  return groups * kLaneCount * code_scale_bytes(format) +
         (columns + kBlockElements - 1) / kBlockElements * block_bytes(format);
}
std::size_t flag_bytes(CodeFormat format, std::size_t columns) {
  const std::size_t lines = (columns + kBlockElements - 1) / kBlockElements * kBlockLines;
  return is_four_bit(format) ? 0 : (lines + 511) / 512 * 64;
}
constexpr std::size_t e2m1_bit(std::size_t i) {
  return i % kBlockElements / 2 * 4 + i % 2 * 16;
}
constexpr std::size_t e2m1_byte(std::size_t i, std::size_t lane) {
  return lane * 4 + e2m1_bit(i) / 8;
}
constexpr unsigned e2m1_shift(std::size_t i) {
  return static_cast<unsigned>(e2m1_bit(i) % 8);
}

}  // namespace

int code_group(CodeFormat format) {
  switch (format) {
    case CodeFormat::kFp8: return 0;
    case CodeFormat::kFp8Block: return 128;
    case CodeFormat::kNvfp4: return 16;
    case CodeFormat::kMxfp4:
    case CodeFormat::kMxfp8: return 32;
  }
  return 0;
}

std::size_t code_scale_bytes(CodeFormat format) {
  return format == CodeFormat::kFp8 ? 0 : format == CodeFormat::kFp8Block ? sizeof(float) : 1;
}

bool is_four_bit(CodeFormat format) {
  return format == CodeFormat::kNvfp4 || format == CodeFormat::kMxfp4;
}

std::size_t panel_bytes_coded(CodeFormat format, std::int64_t k) {
  const auto columns = static_cast<std::size_t>(k);
  return flags_at(format, columns) + flag_bytes(format, columns);
}

void pack_panel_coded(CodeFormat format, const std::uint8_t* const* codes, const std::byte* const* scales,
                      int row_count, int k, void* panel) {
  const auto columns = static_cast<std::size_t>(k);
  const Layout layout(format, columns);
  auto* const target = static_cast<std::uint8_t*>(panel);
  std::memset(target, 0, panel_bytes_coded(format, k));
  const bool four_bit = is_four_bit(format);
  std::uint8_t* const flags = target + flags_at(format, columns);
  for (std::size_t lane = 0; lane < static_cast<std::size_t>(row_count); ++lane) {
    if (layout.scale_bytes != 0) {
      for (std::size_t g = 0; g * layout.group < columns; ++g) {
        std::memcpy(target + layout.scale_at(g, lane), scales[lane] + g * layout.scale_bytes, layout.scale_bytes);
      }
    }
    const std::uint8_t* const row = codes[lane];
    for (std::size_t first = 0; first < columns; first += kBlockElements) {
      std::uint8_t* const block = target + layout.block_at(first);
      const std::size_t end = std::min(columns, first + kBlockElements);
      for (std::size_t i = first; i < end; ++i) {
        if (four_bit) {
          const unsigned code = row[i / 2] >> (i % 2 * 4) & 15u;
          block[e2m1_byte(i, lane)] = static_cast<std::uint8_t>(block[e2m1_byte(i, lane)] | code << e2m1_shift(i));
        } else {
          block[e4m3_byte(i, lane)] = row[i];
          const std::size_t index = i / (kBlockElements / kBlockLines);
          if ((row[i] & 0x78U) == 0) flags[index / 8] = static_cast<std::uint8_t>(flags[index / 8] | 1U << index % 8);
        }
      }
    }
  }
}

void unpack_panel_row_coded(CodeFormat format, const void* panel, int lane_index, int k, std::uint8_t* codes,
                            std::byte* scales) {
  const auto columns = static_cast<std::size_t>(k);
  const auto lane = static_cast<std::size_t>(lane_index);
  const Layout layout(format, columns);
  const auto* const source = static_cast<const std::uint8_t*>(panel);
  if (layout.scale_bytes != 0) {
    for (std::size_t g = 0; g * layout.group < columns; ++g) {
      std::memcpy(scales + g * layout.scale_bytes, source + layout.scale_at(g, lane), layout.scale_bytes);
    }
  }
  for (std::size_t i = 0; i < columns; ++i) {
    const std::uint8_t* const block = source + layout.block_at(i);
    if (is_four_bit(format)) {
      const unsigned code = block[e2m1_byte(i, lane)] >> e2m1_shift(i) & 15u;
      if (i % 2 == 0) {
        codes[i / 2] = static_cast<std::uint8_t>(code);
      } else {
        codes[i / 2] = static_cast<std::uint8_t>(codes[i / 2] | code << 4);
      }
    } else {
      codes[i] = block[e4m3_byte(i, lane)];
    }
  }
}

}  // namespace sterling::kernels
