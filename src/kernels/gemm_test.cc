// Matrix products: every tier against plain loops, bit for bit, over all remainders and hostile values; and against double precision
// within the bound that the number of roundings allows.
#include <algorithm>
#include <limits>

#include "kernels/test_support.h"

namespace sterling::kernels {
namespace {

enum class Weights { kBf16, kF32, kF32Wide };

struct Problem {
  Problem(int m_, int k_, int n_, Weights type_, std::uint64_t seed, bool infinite = false)
      : m(m_), k(k_), n(n_), type(type_) {
    Random random(seed);
    x.resize(static_cast<std::size_t>(m) * static_cast<std::size_t>(k));
    w.resize(static_cast<std::size_t>(n) * static_cast<std::size_t>(k));
    for (float& v : x) v = random.hostile(infinite);
    for (float& v : w) {
      v = random.hostile(infinite);
      // Weights are what a file holds: BF16 subnormals stay, the kernels read them as zero.
      if (type == Weights::kBf16) v = to_float(to_bf16(v));
    }
    bias.resize(static_cast<std::size_t>(n));
    for (float& v : bias) v = random.normal();
    old.resize(static_cast<std::size_t>(m) * static_cast<std::size_t>(n));
    for (float& v : old) v = random.normal();
  }

  std::vector<float> row(const std::vector<float>& from, int index, bool round) const {
    std::vector<float> values(from.begin() + std::ptrdiff_t{index} * k, from.begin() + std::ptrdiff_t{index + 1} * k);
    if (round) {
      for (float& v : values) v = round_bf16(v);
    }
    return values;
  }

  std::vector<float> expected(bool round, bool with_bias, bool add) const {
    std::vector<float> y(old.size());
    for (int r = 0; r < m; ++r) {
      const std::vector<float> xs = row(x, r, round);
      for (int c = 0; c < n; ++c) {
        const auto at = static_cast<std::size_t>(r) * static_cast<std::size_t>(n) + static_cast<std::size_t>(c);
        float v = type == Weights::kF32Wide ? naive::wide_product(xs, row(w, c, false))
                                            : naive::product(xs, row(w, c, false), type == Weights::kBf16);
        if (with_bias) v = v + bias[static_cast<std::size_t>(c)];
        y[at] = add ? old[at] + v : v;
      }
    }
    return y;
  }

  int m, k, n;
  Weights type;
  std::vector<float> x, w, bias, old;
};

// The problem packed for one tier, ready to run in pieces.
class Packed {
 public:
  Packed(const KernelTable& table, const Problem& p, bool round) : table_(table), p_(p) {
    const bool bf16_weights = p.type == Weights::kBf16;
    const std::size_t panel_bytes = bf16_weights ? panel_bytes_bf16(p.k) : panel_bytes_f32(p.k);
    panels_ = (p.n + kLanes - 1) / kLanes;
    w_ = bytes(panel_bytes * static_cast<std::size_t>(panels_));
    for (int panel = 0; panel < panels_; ++panel) {
      const int first = panel * kLanes;
      const int count = std::min(kLanes, p.n - first);
      void* target = w_.data() + static_cast<std::size_t>(panel) * panel_bytes;
      const float* source = p.w.data() + std::ptrdiff_t{first} * p.k;
      if (bf16_weights) {
        std::vector<std::uint16_t> bits;
        for (std::ptrdiff_t i = 0; i < std::ptrdiff_t{count} * p.k; ++i) bits.push_back(to_bf16(source[i]).bits);
        pack_panel_bf16(bits.data(), static_cast<std::size_t>(p.k), count, p.k, target);
      } else {
        pack_panel_f32(source, static_cast<std::size_t>(p.k), count, p.k, target);
      }
    }
    x_ = bytes(bf16_weights ? table.packed_x_bytes_bf16(p.m, p.k) : table.packed_x_bytes_f32(p.m, p.k));
    // In two pieces, as two threads would.
    const int middle = p.m / 2 / table.row_tile * table.row_tile;
    for (const auto& [begin, end] : {std::pair{middle, p.m}, std::pair{0, middle}}) {
      const auto ldx = static_cast<std::size_t>(p.k);
      bf16_weights ? table.pack_x_bf16(p.x.data(), ldx, p.m, p.k, begin, end, x_.data())
                   : table.pack_x_f32(p.x.data(), ldx, p.m, p.k, begin, end, round, x_.data());
    }
  }

  int panels() const { return panels_; }

  void run(std::vector<float>& out, bool with_bias, bool add, int row_begin, int row_end, int panel_begin,
           int panel_end) const {
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
    a.bias = with_bias ? p_.bias.data() : nullptr;
    a.add = add;
    switch (p_.type) {
      case Weights::kBf16: table_.gemm_bf16(&a); break;
      case Weights::kF32: table_.gemm_f32(&a); break;
      case Weights::kF32Wide: table_.gemm_f32_wide(&a); break;
    }
  }

 private:
  const KernelTable& table_;
  const Problem& p_;
  platform::AlignedBuffer w_;
  platform::AlignedBuffer x_;
  int panels_ = 0;
};

class Gemm : public PerTier {
 protected:
  void check(int m, int k, int n, Weights type, std::uint64_t seed, bool infinite = false) {
    SCOPED_TRACE(testing::Message() << "m " << m << " k " << k << " n " << n
                                    << (type == Weights::kBf16 ? " bf16" : " f32"));
    const Problem p(m, k, n, type, seed, infinite);
    const bool round = type == Weights::kBf16 || seed % 2 == 0;
    const bool with_bias = seed % 3 == 0;
    const bool add = seed % 5 < 2;
    const Packed packed(table(), p, round);
    std::vector<float> out = p.old;
    packed.run(out, with_bias, add, 0, m, 0, packed.panels());
    STERLING_EXPECT_BITS(out, p.expected(round, with_bias, add),
                         "element " << difference / n << ", " << difference % n);
  }
};

TEST_P(Gemm, AllRowRemainders) {
  for (int m = 1; m <= 2 * 12 + 1; ++m) {
    for (const Weights type : {Weights::kBf16, Weights::kF32, Weights::kF32Wide})
      check(m, 33, 37, type, static_cast<std::uint64_t>(m));
  }
}

TEST_P(Gemm, AllColumnsAlongK) {
  for (int k = 1; k <= 70; ++k) {
    for (const Weights type : {Weights::kBf16, Weights::kF32, Weights::kF32Wide})
      check(3, k, 18, type, static_cast<std::uint64_t>(k));
  }
}

TEST_P(Gemm, AllOutputRemainders) {
  for (int n = 1; n <= 50; ++n) {
    for (const Weights type : {Weights::kBf16, Weights::kF32, Weights::kF32Wide})
      check(2, 8, n, type, static_cast<std::uint64_t>(n));
  }
}

TEST_P(Gemm, EveryNumberOfPanelsForEveryRowCount) {
  for (int m = 1; m <= 12; ++m) {
    for (int panels = 1; panels <= 17; ++panels)
      check(m, 6, panels * 16, Weights::kBf16, static_cast<std::uint64_t>(m * 17 + panels));
  }
}

TEST_P(Gemm, InfinitiesAndNaN) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    for (const Weights type : {Weights::kBf16, Weights::kF32, Weights::kF32Wide}) check(5, 9, 20, type, seed, true);
  }
}

// Longer than one cut along K, with more than one tile: partial sums are stored in between.
TEST_P(Gemm, CutsAlongKChangeNoBit) {
  check(27, 1500, 40, Weights::kBf16, 6);
  check(27, 1501, 40, Weights::kF32, 7);
  check(110, 1100, 16, Weights::kBf16, 8);
}

// Any split into row and panel ranges gives the bits of the whole: threads may share work out as they like.
TEST_P(Gemm, RangesGiveTheSameBits) {
  const Problem p(29, 46, 150, Weights::kBf16, 3);
  const Packed packed(table(), p, true);
  std::vector<float> whole = p.old;
  packed.run(whole, true, true, 0, p.m, 0, packed.panels());
  std::vector<float> pieces = p.old;
  for (int row = 0; row < p.m; row += table().row_tile) {
    for (int panel = 0; panel < packed.panels(); panel += 3) {
      packed.run(pieces, true, true, row, std::min(p.m, row + table().row_tile), panel,
                 std::min(packed.panels(), panel + 3));
    }
  }
  STERLING_EXPECT_BITS(pieces, whole, "element " << difference);
}

// Outside the computed panels nothing is written.
TEST_P(Gemm, WritesOnlyItsRange) {
  const Problem p(7, 10, 70, Weights::kF32, 4);
  const Packed packed(table(), p, false);
  std::vector<float> out = p.old;
  packed.run(out, false, false, 0, p.m, 1, 2);
  const std::vector<float> expected = p.expected(false, false, false);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t column = i % 70;
    ASSERT_TRUE(same_bits(out[i], column >= 16 && column < 32 ? expected[i] : p.old[i])) << i;
  }
}

// A row's result does not depend on the rows beside it.
TEST_P(Gemm, OneRowAloneEqualsTheRowAmongMany) {
  const Problem many(31, 200, 64, Weights::kBf16, 9);
  const Packed packed(table(), many, true);
  std::vector<float> all(many.old.size());
  packed.run(all, false, false, 0, many.m, 0, packed.panels());
  for (const int row : {0, 5, 11, 12, 23, 24, 30}) {
    Problem one = many;
    one.m = 1;
    one.x = many.row(many.x, row, false);
    const Packed alone(table(), one, true);
    std::vector<float> out(64);
    alone.run(out, false, false, 0, 1, 0, alone.panels());
    const std::vector<float> expected(all.begin() + row * 64, all.begin() + (row + 1) * 64);
    STERLING_EXPECT_BITS(out, expected, "row " << row << " column " << difference);
  }
}

// |error| <= k * 2^-24 * sum |x w| / (1 - k 2^-24): k roundings of a chain (Higham, Accuracy and Stability, 3.1). Normal-range data.
TEST_P(Gemm, WithinTheBoundOfDoublePrecision) {
  for (const int k : {576, 4096}) {
    Random random(static_cast<std::uint64_t>(k));
    Problem p(4, k, 32, Weights::kBf16, 1);
    for (float& v : p.x) v = random.normal();
    for (float& v : p.w) v = to_float(to_bf16(random.normal()));
    const Packed packed(table(), p, true);
    std::vector<float> out(p.old.size());
    packed.run(out, false, false, 0, p.m, 0, packed.panels());
    for (int r = 0; r < p.m; ++r) {
      const std::vector<float> xs = p.row(p.x, r, true);
      for (int c = 0; c < p.n; ++c) {
        double exact = 0.0;
        double magnitude = 0.0;
        for (int i = 0; i < k; ++i) {
          const double term =
              double{xs[static_cast<std::size_t>(i)]} * double{p.w[static_cast<std::size_t>(c * k + i)]};
          exact += term;
          magnitude += std::fabs(term);
        }
        const double steps = k * 0x1p-24;
        ASSERT_LE(std::fabs(out[static_cast<std::size_t>(r * p.n + c)] - exact), magnitude * steps / (1 - steps))
            << r << ", " << c;
      }
    }
  }
}

TEST_P(Gemm, PackedSizeGrowsWithRows) {
  for (int m = 1; m < 40; ++m) {
    EXPECT_LE(table().packed_x_bytes_bf16(m, 33), table().packed_x_bytes_bf16(m + 1, 33));
    EXPECT_LE(table().packed_x_bytes_f32(m, 33), table().packed_x_bytes_f32(m + 1, 33));
  }
}

STERLING_FOR_EVERY_TIER(Gemm);

}  // namespace
}  // namespace sterling::kernels
