// Products with coded weights: every tier against plain loops, bit for bit, over all remainders, formats and codes; against double
// precision; and the panels' bytes read back. What a code is worth is computed here from the formats' definitions.
#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/test_support.h"

namespace sterling::kernels {
namespace {

constexpr CodeFormat kFormats[] = {CodeFormat::kFp8, CodeFormat::kFp8Block, CodeFormat::kNvfp4, CodeFormat::kMxfp4,
                                   CodeFormat::kMxfp8};

const char* name_of(CodeFormat format) {
  constexpr const char* kNames[] = {"fp8", "fp8 block", "nvfp4", "mxfp4", "mxfp8"};
  return kNames[static_cast<int>(format)];
}

// OCP FP8: sign, 4 bits of exponent with bias 7, 3 of mantissa; exponent 0 has no hidden bit.
double e4m3(unsigned code) {
  const int exponent = static_cast<int>(code >> 3 & 15u);
  const int mantissa = static_cast<int>(code & 7u);
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return code & 0x80u ? -magnitude : magnitude;
}
// OCP MX E2M1: sign, 2 bits of exponent with bias 1, 1 of mantissa.
double e2m1(unsigned code) {
  const int exponent = static_cast<int>(code >> 1 & 3u);
  const int mantissa = static_cast<int>(code & 1u);
  const double magnitude = exponent == 0 ? 0.5 * mantissa : std::ldexp(2 + mantissa, exponent - 2);
  return code & 8u ? -magnitude : magnitude;
}

bool is_nan_code(unsigned e4m3_code) {
  return (e4m3_code & 0x7fu) == 0x7fu;
}

struct Problem {
  Problem(CodeFormat format_, int m_, int k_, int n_, std::uint64_t seed) : format(format_), m(m_), k(k_), n(n_) {
    Random random(seed);
    x.resize(static_cast<std::size_t>(m) * static_cast<std::size_t>(k));
    for (float& v : x) v = random.hostile(false);
    codes.resize(static_cast<std::size_t>(n));
    scales.resize(static_cast<std::size_t>(n));
    for (int row = 0; row < n; ++row) {
      auto& c = codes[static_cast<std::size_t>(row)];
      c.resize(static_cast<std::size_t>(k));
      for (std::uint8_t& code : c) {
        do code = static_cast<std::uint8_t>(random.below(is_four_bit(format) ? 16 : 256));
        while (!is_four_bit(format) && is_nan_code(code));
        // Odd seeds: few codes with exponent 0, so that most lines have none.
        if (seed % 2 == 1 && !is_four_bit(format) && random.below(1000) != 0)
          code = static_cast<std::uint8_t>(code | 8U);
        if (!is_four_bit(format) && is_nan_code(code)) code = 0x7e;
      }
      auto& s = scales[static_cast<std::size_t>(row)];
      s.resize(static_cast<std::size_t>(groups()) * code_scale_bytes(format));
      for (int g = 0; g < groups(); ++g) set_scale(s, g, random);
    }
    row_scale.resize(static_cast<std::size_t>(n));
    for (float& v : row_scale) v = std::fabs(random.normal()) + 0.01F;
    bias.resize(static_cast<std::size_t>(n));
    for (float& v : bias) v = random.normal();
    old.resize(static_cast<std::size_t>(m) * static_cast<std::size_t>(n));
    for (float& v : old) v = random.normal();
  }

  int group() const { return code_group(format); }
  int groups() const { return group() == 0 ? 0 : (k + group() - 1) / group(); }

  void set_scale(std::vector<std::byte>& s, int g, Random& random) const {
    const auto at = static_cast<std::size_t>(g);
    if (format == CodeFormat::kFp8Block) {
      const float value = std::fabs(random.normal()) * 0x1p-6F;
      std::memcpy(s.data() + at * 4, &value, 4);
    } else if (format == CodeFormat::kNvfp4) {
      s[at] = static_cast<std::byte>(random.below(127));
    } else {
      s[at] = static_cast<std::byte>(random.below(16) == 0 ? 0 : 90 + random.below(80));
    }
  }

  // Exact in double.
  double code_value(int row, int i) const {
    const unsigned code = codes[static_cast<std::size_t>(row)][static_cast<std::size_t>(i)];
    return is_four_bit(format) ? e2m1(code) : e4m3(code);
  }
  double scale_value(int row, int g) const {
    const std::byte* s = scales[static_cast<std::size_t>(row)].data();
    if (format == CodeFormat::kFp8Block) {
      float value = 0;
      std::memcpy(&value, s + static_cast<std::size_t>(g) * 4, 4);
      return value;
    }
    const auto code = std::to_integer<unsigned>(s[g]);
    if (format == CodeFormat::kNvfp4) return e4m3(code);
    return code == 0 ? 0.0 : std::ldexp(1.0, static_cast<int>(code) - 127);
  }

  // The bytes of a row of a checkpoint.
  std::vector<std::uint8_t> stored_codes(int row) const {
    const auto& c = codes[static_cast<std::size_t>(row)];
    if (!is_four_bit(format)) return c;
    std::vector<std::uint8_t> packed((c.size() + 1) / 2, 0);
    for (std::size_t i = 0; i < c.size(); ++i)
      packed[i / 2] = static_cast<std::uint8_t>(packed[i / 2] | c[i] << (i % 2 * 4));
    return packed;
  }

  std::vector<float> x_row(int r) const {
    std::vector<float> values(x.begin() + std::ptrdiff_t{r} * k, x.begin() + std::ptrdiff_t{r + 1} * k);
    for (float& v : values) v = round_bf16(v);
    return values;
  }
  std::vector<float> w_row(int row) const {
    std::vector<float> values;
    for (int i = 0; i < k; ++i) values.push_back(static_cast<float>(code_value(row, i)));
    return values;
  }

  // The contract in plain loops.
  float element(const std::vector<float>& xs, int row) const {
    const std::vector<float> w = w_row(row);
    if (group() == 0) return naive::chain(xs, w, 0, w.size());
    float total = 0.0F;
    for (int g = 0; g < groups(); ++g) {
      const auto begin = static_cast<std::size_t>(g * group());
      const float part = naive::chain(xs, w, begin, std::min(w.size(), begin + static_cast<std::size_t>(group())));
      total = std::fmaf(part, static_cast<float>(scale_value(row, g)), total);
    }
    return total;
  }
  std::vector<float> expected(bool with_row_scale, bool with_bias, bool add) const {
    std::vector<float> y(old.size());
    for (int r = 0; r < m; ++r) {
      const std::vector<float> xs = x_row(r);
      for (int c = 0; c < n; ++c) {
        const auto column = static_cast<std::size_t>(c);
        const std::size_t at = static_cast<std::size_t>(r) * static_cast<std::size_t>(n) + column;
        float v = element(xs, c);
        if (with_row_scale) v = v * row_scale[column];
        if (with_bias) v = v + bias[column];
        y[at] = add ? old[at] + v : v;
      }
    }
    return y;
  }

  CodeFormat format;
  int m, k, n;
  std::vector<float> x, row_scale, bias, old;
  std::vector<std::vector<std::uint8_t>> codes;  // one per element
  std::vector<std::vector<std::byte>> scales;    // as stored
};

platform::AlignedBuffer pack(const Problem& p) {
  const int panels = (p.n + kLanes - 1) / kLanes;
  const std::size_t panel_bytes = panel_bytes_coded(p.format, p.k);
  platform::AlignedBuffer w = bytes(panel_bytes * static_cast<std::size_t>(panels));
  for (int panel = 0; panel < panels; ++panel) {
    const int first = panel * kLanes;
    const int count = std::min(kLanes, p.n - first);
    std::vector<std::vector<std::uint8_t>> rows;
    const std::uint8_t* codes[kLanes] = {};
    const std::byte* scales[kLanes] = {};
    for (int row = 0; row < count; ++row) rows.push_back(p.stored_codes(first + row));
    for (int row = 0; row < count; ++row) {
      codes[row] = rows[static_cast<std::size_t>(row)].data();
      scales[row] = p.scales[static_cast<std::size_t>(first + row)].data();
    }
    pack_panel_coded(p.format, codes, scales, count, p.k, w.data() + static_cast<std::size_t>(panel) * panel_bytes);
  }
  return w;
}

class Packed {
 public:
  Packed(const KernelTable& table, const Problem& p)
      : table_(table), p_(p), w_(pack(p)), panels_((p.n + kLanes - 1) / kLanes) {
    x_ = bytes(table.packed_x_bytes_bf16(p.m, p.k));
    table.pack_x_bf16(p.x.data(), static_cast<std::size_t>(p.k), p.m, p.k, 0, p.m, x_.data());
  }
  int panels() const { return panels_; }
  void run(std::vector<float>& out, bool with_row_scale, bool with_bias, bool add, int row_begin, int row_end,
           int panel_begin, int panel_end) const {
    GemmArgs a{};
    a.x = x_.data();
    a.w = w_.data();
    a.out = out.data();
    a.ldo = static_cast<std::size_t>(p_.n);
    a.m = p_.m;
    a.k = p_.k;
    a.n = p_.n;
    a.row_begin = row_begin;
    a.row_end = row_end;
    a.panel_begin = panel_begin;
    a.panel_end = panel_end;
    a.row_scale = with_row_scale ? p_.row_scale.data() : nullptr;
    a.bias = with_bias ? p_.bias.data() : nullptr;
    a.add = add;
    table_.gemm_coded[static_cast<int>(p_.format)](&a);
  }
  std::vector<float> all() const {
    std::vector<float> out(p_.old.size());
    run(out, false, false, false, 0, p_.m, 0, panels_);
    return out;
  }

 private:
  const KernelTable& table_;
  const Problem& p_;
  platform::AlignedBuffer w_, x_;
  int panels_;
};

class CodedGemm : public PerTier {
 protected:
  void check(CodeFormat format, int m, int k, int n, std::uint64_t seed) {
    SCOPED_TRACE(testing::Message() << name_of(format) << " m " << m << " k " << k << " n " << n);
    const Problem p(format, m, k, n, seed);
    const Packed packed(table(), p);
    const bool with_row_scale = seed % 2 == 0;
    const bool with_bias = seed % 3 == 0;
    const bool add = seed % 5 < 2;
    std::vector<float> out = p.old;
    packed.run(out, with_row_scale, with_bias, add, 0, m, 0, packed.panels());
    STERLING_EXPECT_BITS(out, p.expected(with_row_scale, with_bias, add),
                         "element " << difference / n << ", " << difference % n);
  }
};

TEST_P(CodedGemm, AllRowRemainders) {
  for (const CodeFormat format : kFormats) {
    for (int m = 1; m <= 40; ++m) check(format, m, 50, 37, static_cast<std::uint64_t>(m));
  }
}

TEST_P(CodedGemm, AllColumnsAlongK) {
  for (const CodeFormat format : kFormats) {
    for (int k = 1; k <= 150; ++k) {
      check(format, 1, k, 18, static_cast<std::uint64_t>(k));
      if (k % 3 == 0) check(format, 14, k, 18, static_cast<std::uint64_t>(k));
    }
    for (const int k : {255, 256, 257, 272, 300, 384, 400}) {
      check(format, 2, k, 18, static_cast<std::uint64_t>(k));
      check(format, 14, k, 18, static_cast<std::uint64_t>(k));
    }
  }
}

TEST_P(CodedGemm, AllOutputRemainders) {
  for (const CodeFormat format : kFormats) {
    for (int n = 1; n <= 50; ++n) {
      check(format, 1, 40, n, static_cast<std::uint64_t>(n));
      check(format, 7, 40, n, static_cast<std::uint64_t>(n));
    }
  }
}

TEST_P(CodedGemm, EveryNumberOfPanelsForEveryFewRows) {
  for (const CodeFormat format : kFormats) {
    for (const int m : {1, 2, 3, 4, 5, 12}) {
      for (int panels = 1; panels <= 17; ++panels)
        check(format, m, 24, panels * 16, static_cast<std::uint64_t>(m * 17 + panels));
    }
  }
}

// Longer than one cut along K.
TEST_P(CodedGemm, CutsAlongKChangeNoBit) {
  for (const CodeFormat format : kFormats) {
    check(format, 27, 1501, 40, 6);
    check(format, 110, 1100, 16, 8);
    check(format, 1, 2100, 40, 9);
  }
}

TEST_P(CodedGemm, RangesGiveTheSameBits) {
  for (const CodeFormat format : kFormats) {
    const Problem p(format, 29, 46, 150, 3);
    const Packed packed(table(), p);
    std::vector<float> whole = p.old;
    packed.run(whole, true, true, true, 0, p.m, 0, packed.panels());
    std::vector<float> pieces = p.old;
    for (int row = 0; row < p.m; row += table().row_tile) {
      for (int panel = 0; panel < packed.panels(); panel += 3) {
        packed.run(pieces, true, true, true, row, std::min(p.m, row + table().row_tile), panel,
                   std::min(packed.panels(), panel + 3));
      }
    }
    STERLING_EXPECT_BITS(pieces, whole, name_of(format) << " element " << difference);
  }
}

TEST_P(CodedGemm, OneRowAloneEqualsTheRowAmongMany) {
  for (const CodeFormat format : kFormats) {
    const Problem many(format, 31, 400, 64, 9);
    const std::vector<float> all = Packed(table(), many).all();
    for (const int row : {0, 5, 11, 12, 23, 24, 30}) {
      Problem one = many;
      one.m = 1;
      one.x.assign(many.x.begin() + std::ptrdiff_t{row} * many.k, many.x.begin() + std::ptrdiff_t{row + 1} * many.k);
      one.old.resize(64);
      const std::vector<float> expected(all.begin() + std::ptrdiff_t{row} * 64,
                                        all.begin() + std::ptrdiff_t{row + 1} * 64);
      STERLING_EXPECT_BITS(Packed(table(), one).all(), expected,
                           name_of(format) << " row " << row << " column " << difference);
    }
  }
}

// Row r of x is 1 at element r and 0 elsewhere, so that y[r][n] is weight [n][r] itself, exactly: every code, and every code with every
// scale. With one row at a time and with all of them.
TEST_P(CodedGemm, EveryCodeWithEveryScaleIsExact) {
  for (const CodeFormat format : kFormats) {
    const int group = code_group(format);
    const int k = is_four_bit(format) ? 16 : 256;
    const int n = format == CodeFormat::kNvfp4 ? 256 : 255;  // one scale code per output row
    Problem p(format, k, k, n, 1);
    std::fill(p.x.begin(), p.x.end(), 0.0F);
    for (int i = 0; i < k; ++i) p.x[static_cast<std::size_t>(i) * static_cast<std::size_t>(k + 1)] = 1.0F;
    for (int row = 0; row < n; ++row) {
      for (int i = 0; i < k; ++i) {
        const auto code = static_cast<unsigned>(i);
        p.codes[static_cast<std::size_t>(row)][static_cast<std::size_t>(i)] =
            static_cast<std::uint8_t>(!is_four_bit(format) && is_nan_code(code) ? 0u : code);
      }
      auto& s = p.scales[static_cast<std::size_t>(row)];
      for (int g = 0; g < p.groups(); ++g) {
        if (group != 128)
          s[static_cast<std::size_t>(g)] =
              static_cast<std::byte>(format == CodeFormat::kNvfp4 && is_nan_code(static_cast<unsigned>(row)) ? 0 : row);
      }
    }
    std::vector<float> expected;
    for (int r = 0; r < k; ++r) {
      for (int c = 0; c < n; ++c) {
        const double scale = group == 0 ? 1.0 : p.scale_value(c, r / group);
        // 448 * 2^127 is beyond FP32.
        const double value = p.code_value(c, r) * scale;
        expected.push_back(std::fabs(value) < 0x1p-126 ? 0.0F : static_cast<float>(value) + 0.0F);
      }
    }
    std::vector<float> all = Packed(table(), p).all();
    for (float& v : all) v = v + 0.0F;  // zeros of either sign
    STERLING_EXPECT_BITS(all, expected, name_of(format) << " code " << difference / n << " scale " << difference % n);
    for (int r = 0; r < k; ++r) {
      Problem one = p;
      one.m = 1;
      one.x.assign(p.x.begin() + std::ptrdiff_t{r} * k, p.x.begin() + std::ptrdiff_t{r + 1} * k);
      one.old.resize(static_cast<std::size_t>(n));
      std::vector<float> alone = Packed(table(), one).all();
      for (float& v : alone) v = v + 0.0F;
      const std::vector<float> row(expected.begin() + std::ptrdiff_t{r} * n,
                                   expected.begin() + std::ptrdiff_t{r + 1} * n);
      STERLING_EXPECT_BITS(alone, row, name_of(format) << " alone, code " << r << " scale " << difference);
    }
  }
}

// Each of the K products and of the group sums is rounded once: |error| <= (k + groups) u sum |x w| / (1 - (k + groups) u), u = 2^-24.
TEST_P(CodedGemm, WithinTheBoundOfDoublePrecision) {
  for (const CodeFormat format : kFormats) {
    for (const int k : {576, 4096}) {
      Problem p(format, 3, k, 32, static_cast<std::uint64_t>(k));
      Random random(5);
      for (float& v : p.x) v = random.normal();
      for (auto& s : p.scales) {
        if (is_four_bit(format) || format == CodeFormat::kMxfp8) {
          for (std::byte& code : s)
            code = static_cast<std::byte>((format == CodeFormat::kNvfp4 ? 40 : 120) + random.below(10));
        }
      }
      const std::vector<float> out = Packed(table(), p).all();
      for (int r = 0; r < p.m; ++r) {
        const std::vector<float> xs = p.x_row(r);
        for (int c = 0; c < p.n; ++c) {
          double exact = 0.0;
          double magnitude = 0.0;
          for (int i = 0; i < k; ++i) {
            const double w = p.code_value(c, i) * (p.group() == 0 ? 1.0 : p.scale_value(c, i / p.group()));
            exact += double{xs[static_cast<std::size_t>(i)]} * w;
            magnitude += std::fabs(double{xs[static_cast<std::size_t>(i)]} * w);
          }
          const double steps = (k + p.groups()) * 0x1p-24;
          ASSERT_LE(std::fabs(out[static_cast<std::size_t>(r * p.n + c)] - exact), magnitude * steps / (1 - steps))
              << name_of(format) << " " << r << ", " << c;
        }
      }
    }
  }
}

STERLING_FOR_EVERY_TIER(CodedGemm);

TEST(CodedPanels, GiveBackTheirBytes) {
  for (const CodeFormat format : kFormats) {
    for (const int k : {1, 2, 7, 8, 15, 16, 17, 31, 33, 128, 129, 200, 576}) {
      for (const int n : {1, 15, 16}) {
        const Problem p(format, 1, k, n, static_cast<std::uint64_t>(k));
        const platform::AlignedBuffer panel = pack(p);
        for (int row = 0; row < n; ++row) {
          std::vector<std::uint8_t> codes(p.stored_codes(row).size(), 0xee);
          std::vector<std::byte> scales(p.scales[static_cast<std::size_t>(row)].size());
          unpack_panel_row_coded(format, panel.data(), row, k, codes.data(), scales.data());
          ASSERT_EQ(codes, p.stored_codes(row)) << name_of(format) << " k " << k << " row " << row;
          ASSERT_EQ(scales, p.scales[static_cast<std::size_t>(row)]) << name_of(format) << " k " << k << " row " << row;
        }
      }
    }
  }
}

TEST(CodedPanels, SizesAreThoseOfTheFormats) {
  // E4M3: and a bit for four codes of each lane.
  EXPECT_EQ(panel_bytes_coded(CodeFormat::kFp8, 4096), 16U * 4096 + 128);
  EXPECT_EQ(panel_bytes_coded(CodeFormat::kFp8, 4104), 16U * 4104 + 192);
  EXPECT_EQ(panel_bytes_coded(CodeFormat::kFp8Block, 4096), 16U * 4096 + 32 * 64 + 128);
  EXPECT_EQ(panel_bytes_coded(CodeFormat::kNvfp4, 4096), 256U * 144);
  EXPECT_EQ(panel_bytes_coded(CodeFormat::kMxfp4, 4096), 128U * 272);
  EXPECT_EQ(panel_bytes_coded(CodeFormat::kMxfp8, 4096), 128U * 528 + 128);
}

}  // namespace
}  // namespace sterling::kernels
