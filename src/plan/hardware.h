// Accelerators by name, with the memory that their driver reports.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace sterling::plan {

struct Device {
  std::string_view name;     // "rtx-pro-6000"
  std::string_view product;  // "NVIDIA RTX PRO 6000 Blackwell, 96 GB"
  std::int64_t memory_bytes = 0;
};

std::span<const Device> devices();
// By name or another common way to say it; case, blanks, '-' and '_' don't count, and neither do the vendor's words ("NVIDIA GeForce RTX 4090"). nullptr: not in
// the table.
const Device* find_device(std::string_view name);

}  // namespace sterling::plan
