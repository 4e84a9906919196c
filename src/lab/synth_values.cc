#include "lab/synth_values.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "base/check.h"
#include "base/float_types.h"
#include "quant/encode.h"
#include "quant/float_codes.h"

namespace sterling::lab {
namespace {

constexpr std::size_t kEntries = 65536;
constexpr int kLanes = 4;

// Inverse of the standard normal distribution function: halving to within 2e-5, then two steps of Newton's method, to a double's last bits or so.
double normal_quantile(double p) {
  const auto below = [](double z) { return 0.5 * std::erfc(-z / std::numbers::sqrt2); };
  double low = -9.0;
  double high = 9.0;
  for (int step = 0; step < 20; ++step) {
    const double middle = 0.5 * (low + high);
    (below(middle) < p ? low : high) = middle;
  }
  double z = 0.5 * (low + high);
  for (int step = 0; step < 2; ++step) {
    z -= (below(z) - p) * std::sqrt(2.0 * std::numbers::pi) * std::exp(0.5 * z * z);
  }
  return z;
}

double midpoint(std::size_t index, std::size_t count) {
  return (static_cast<double>(index) + 0.5) / static_cast<double>(count);
}

template <typename T>
void put(ValueTable& table, std::size_t index, T value) {
  std::memcpy(table.values.data() + index * sizeof(T), &value, sizeof(T));
}

template <typename T>
ValueTable empty_table() {
  return {sizeof(T), std::vector<std::byte>(kEntries * sizeof(T))};
}

// The generator: bits of (key, counter).
std::uint64_t bits_of(std::uint64_t key, std::uint64_t counter) {
  std::uint64_t z = key + (counter + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

template <typename T>
void draw_as(const ValueTable& table, std::uint64_t key, std::uint64_t first, std::span<std::byte> out) {
  const std::byte* values = table.values.data();
  const std::size_t count = out.size() / sizeof(T);
  std::byte* to = out.data();
  std::uint64_t counter = first / kLanes;
  for (std::size_t i = 0; i < count; i += kLanes) {
    std::uint64_t word = bits_of(key, counter++);
    const std::size_t lanes = std::min<std::size_t>(kLanes, count - i);
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      std::memcpy(to + (i + lane) * sizeof(T), values + (word & 0xffffu) * sizeof(T), sizeof(T));
      word >>= 16;
    }
  }
}

}  // namespace

ValueTable plain_table(DType dtype, const Distribution& d) {
  const bool wide = dtype == DType::kF32;
  STERLING_CHECK(wide || dtype == DType::kBF16);
  ValueTable table = wide ? empty_table<float>() : empty_table<std::uint16_t>();
  for (std::size_t i = 0; i < kEntries; ++i) {
    const double p = midpoint(i, kEntries);
    const auto value = static_cast<float>(d.centre + d.deviation * (d.uniform ? 2.0 * p - 1.0 : normal_quantile(p)));
    if (wide) {
      put(table, i, value);
    } else {
      put(table, i, to_bf16(value).bits);
    }
  }
  return table;
}

CodeTables nvfp4_tables() {
  // Of 16 standard normal values the largest magnitude is about 2; its block's scale makes it 6.
  constexpr double kTypicalLargest = 2.0;
  // The largest element of a whole tensor, about, takes the largest scale.
  constexpr double kTensorLargest = 5.0;
  CodeTables tables{empty_table<std::uint8_t>(), empty_table<std::uint8_t>()};
  std::uint8_t code[256];
  double squares = 0.0;
  for (std::size_t i = 0; i < 256; ++i) {
    code[i] = quant::float_to_e2m1(static_cast<float>(normal_quantile(midpoint(i, 256)) * 6.0 / kTypicalLargest));
    squares += std::pow(quant::e2m1_to_float(code[i]), 2.0) / 256.0;
  }
  double scale_squares = 0.0;
  for (std::size_t i = 0; i < kEntries; ++i) {
    put(tables.codes, i, static_cast<std::uint8_t>(code[i & 255u] | (code[i >> 8] << 4)));
    // The largest of 16 magnitudes lies below m with probability erf(m / sqrt 2)^16.
    const double largest = normal_quantile(0.5 + 0.5 * std::pow(midpoint(i, kEntries), 1.0 / 16.0));
    const std::uint8_t scale = quant::float_to_e4m3(static_cast<float>(largest * 448.0 / kTensorLargest));
    put(tables.scales, i, scale);
    scale_squares += std::pow(quant::e4m3_to_float(scale), 2.0) / static_cast<double>(kEntries);
  }
  tables.unit = 1.0 / std::sqrt(squares * scale_squares);
  return tables;
}

CodeTables fp8_tables() {
  // The largest quantile, 4.3, comes to lie just below 448.
  constexpr double kCodesPerDeviation = 100.0;
  CodeTables tables{empty_table<std::uint8_t>(), {}};
  double squares = 0.0;
  for (std::size_t i = 0; i < kEntries; ++i) {
    const std::uint8_t code =
        quant::float_to_e4m3(static_cast<float>(normal_quantile(midpoint(i, kEntries)) * kCodesPerDeviation));
    put(tables.codes, i, code);
    squares += std::pow(quant::e4m3_to_float(code), 2.0) / static_cast<double>(kEntries);
  }
  tables.unit = 1.0 / std::sqrt(squares);
  return tables;
}

ValueTable block_scale_table(double scale) {
  return plain_table(DType::kBF16, {scale, 0.2 * scale, true});
}

std::uint64_t tensor_key(std::uint64_t seed, std::string_view name) {
  // FNV-1a over the name, then mixed with the seed so that near seeds and near names have nothing in common.
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return bits_of(bits_of(seed, 0) ^ hash, 1);
}

void draw(const ValueTable& table, std::uint64_t key, std::uint64_t first, std::span<std::byte> out) {
  STERLING_CHECK(first % kLanes == 0);
  if (table.element_bytes == 1) return draw_as<std::uint8_t>(table, key, first, out);
  if (table.element_bytes == 2) return draw_as<std::uint16_t>(table, key, first, out);
  draw_as<std::uint32_t>(table, key, first, out);
}

}  // namespace sterling::lab
