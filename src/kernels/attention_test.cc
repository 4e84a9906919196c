// Attention spans and their merge: every tier against the contract in plain loops, and the independence of a row from its company.
#include <algorithm>
#include <limits>

#include "kernels/kv_tiles.h"
#include "kernels/test_support.h"

namespace sterling::kernels {
namespace {

// What tiles store, and whether nothing is rounded to BF16.
struct Form {
  KvCode k, v;
  bool wide;

  bool k_bf16() const { return !wide && k != KvCode::kFp32; }
  bool v_bf16() const { return !wide && v != KvCode::kFp32; }
};
constexpr Form kBf16Form = {KvCode::kBf16, KvCode::kBf16, false};
constexpr Form kF32Form = {KvCode::kFp32, KvCode::kFp32, true};

std::vector<Form> all_forms() {
  std::vector<Form> forms;
  for (const bool wide : {false, true}) {
    for (const KvCode k : kKvCodes) {
      for (const KvCode v : kKvCodes) forms.push_back({k, v, wide});
    }
  }
  return forms;
}

struct Result {
  std::vector<float> max, sum, out;
};

struct Problem {
  Problem(int m_, int head_dim_, int tiles_, Form form_, std::uint64_t seed)
      : m(m_), head_dim(head_dim_), tiles(tiles_), form(form_) {
    Random random(seed);
    const auto dim = static_cast<std::size_t>(head_dim);
    q.resize(static_cast<std::size_t>(m) * dim);
    for (float& v : q) v = random.hostile(false);
    // Far exponents are for the products; here they would leave one probability of 1.
    for (float& v : q) v = std::fabs(v) > 100.0F ? 1.0F : v;
    k.resize(static_cast<std::size_t>(tiles * kTileTokens) * dim);
    v.resize(k.size());
    for (float& x : k) x = random.normal();
    for (float& x : v) x = random.hostile(false);
    for (int r = 0; r < m; ++r) visible.push_back(random.below(tiles * kTileTokens + 3) - 1);
  }
  std::vector<float> round(std::vector<float> values) const {
    if (!form.wide) {
      for (float& x : values) x = round_bf16(x);
    }
    return values;
  }
  std::vector<float> raw_row(const std::vector<float>& from, int index) const {
    return {from.begin() + std::ptrdiff_t{index} * head_dim, from.begin() + std::ptrdiff_t{index + 1} * head_dim};
  }
  // A row as it is stored, without its scale.
  std::vector<float> stored(KvCode code, float scale_of_all, const std::vector<float>& from, int index) const {
    std::vector<float> values = raw_row(from, index);
    std::vector<float> elements(values.size());
    KvCounts counts;
    const float by = code == KvCode::kE4m3Token ? token_scale(values.data(), head_dim) : scale_of_all;
    encode_kv(code, values.data(), head_dim, by, elements.data(), counts);
    decode_kv(code, elements.data(), head_dim, values.data());
    return values;
  }
  float token(KvCode code, const std::vector<float>& from, int index) const {
    return code == KvCode::kE4m3Token ? token_scale(raw_row(from, index).data(), head_dim) : 1.0F;
  }
  float k_factor() const { return form.k == KvCode::kE4m3 || form.k == KvCode::kE5m2 ? k_scale : 1.0F; }
  float v_factor() const { return form.v == KvCode::kE4m3 || form.v == KvCode::kE5m2 ? v_scale : 1.0F; }

  Result expected() const {
    Result result;
    std::vector<std::vector<float>> keys_of, values_of;
    for (int j = 0; j < tiles * kTileTokens; ++j) {
      keys_of.push_back(stored(form.k, k_scale, k, j));
      values_of.push_back(stored(form.v, v_scale, v, j));
    }
    const float factor = scale * k_factor();
    for (int r = 0; r < m; ++r) {
      const int keys = std::clamp(visible[static_cast<std::size_t>(r)], 0, tiles * kTileTokens);
      const std::vector<float> query = round(raw_row(q, r));
      std::vector<float> scores;
      for (int j = 0; j < keys; ++j) {
        scores.push_back(naive::product(query, keys_of[static_cast<std::size_t>(j)], form.k_bf16()) *
                         (factor * token(form.k, k, j)));
      }
      float max = -std::numeric_limits<float>::infinity();
      for (const float s : scores) max = std::max(max, s);
      std::vector<float> p;
      for (const float s : scores) p.push_back(naive::exp(s - (max + 0.0F)));
      p = round(p);
      result.max.push_back(max + 0.0F);
      result.sum.push_back(naive::lane_sum(p));
      for (int j = 0; j < keys; ++j) p[static_cast<std::size_t>(j)] *= token(form.v, v, j);
      for (int d = 0; d < head_dim; ++d) {
        std::vector<float> column;
        for (int j = 0; j < keys; ++j)
          column.push_back(values_of[static_cast<std::size_t>(j)][static_cast<std::size_t>(d)]);
        result.out.push_back(naive::product(p, column, form.v_bf16()) * v_factor() + 0.0F);
      }
    }
    return result;
  }

  int m, head_dim, tiles;
  Form form;
  float scale = 0.125F;
  float k_scale = 0.0123F;
  float v_scale = 0.0345F;
  std::vector<float> q, k, v;
  std::vector<std::int32_t> visible;
};

Result run(const KernelTable& table, const Problem& p) {
  std::vector<platform::AlignedBuffer> memory;
  std::vector<const void*> k_tiles;
  std::vector<const void*> v_tiles;
  KvCounts counts;
  for (int tile = 0; tile < p.tiles; ++tile) {
    memory.push_back(bytes(k_tile_bytes(p.form.k, p.head_dim)));
    void* k = memory.back().data();
    memory.push_back(bytes(v_tile_bytes(p.form.v, p.head_dim)));
    void* v = memory.back().data();
    k_tiles.push_back(k);
    v_tiles.push_back(v);
    for (int slot = 0; slot < kTileTokens; ++slot) {
      const float* k_row = p.k.data() + std::ptrdiff_t{tile * kTileTokens + slot} * p.head_dim;
      const float* v_row = p.v.data() + std::ptrdiff_t{tile * kTileTokens + slot} * p.head_dim;
      write_kv_row(KvSide::kK, p.form.k, k, slot, k_row, p.head_dim, p.k_scale, counts);
      write_kv_row(KvSide::kV, p.form.v, v, slot, v_row, p.head_dim, p.v_scale, counts);
    }
  }
  const bool bf16 = p.form.k_bf16();
  auto q = bytes(bf16 ? table.packed_x_bytes_bf16(p.m, p.head_dim) : table.packed_x_bytes_f32(p.m, p.head_dim));
  const auto ld = static_cast<std::size_t>(p.head_dim);
  bf16 ? table.pack_x_bf16(p.q.data(), ld, p.m, p.head_dim, 0, p.m, q.data())
       : table.pack_x_f32(p.q.data(), ld, p.m, p.head_dim, 0, p.m, !p.form.wide, q.data());
  const bool coded = kv_element_bytes(p.form.k) == 1 || kv_element_bytes(p.form.v) == 1;
  auto scratch = bytes(table.attention_scratch_bytes(p.m, p.head_dim, coded));
  std::memset(scratch.data(), 0xff, scratch.size());  // NaN: nothing stale may count
  Result result;
  result.max.resize(static_cast<std::size_t>(p.m));
  result.sum.resize(static_cast<std::size_t>(p.m));
  result.out.resize(static_cast<std::size_t>(p.m * p.head_dim));
  AttentionSpanArgs a{};
  a.q = q.data();
  a.k_tiles = k_tiles.data();
  a.v_tiles = v_tiles.data();
  a.tiles = p.tiles;
  a.m = p.m;
  a.head_dim = p.head_dim;
  a.scale = p.scale * p.k_factor();
  a.v_scale = p.v_factor();
  a.k_code = p.form.k;
  a.v_code = p.form.v;
  a.wide = p.form.wide;
  a.visible = p.visible.data();
  a.max = result.max.data();
  a.sum = result.sum.data();
  a.out = result.out.data();
  a.scratch = scratch.data();
  table.attention_span(&a);
  return result;
}

void expect_same(const Result& found, const Result& expected) {
  STERLING_EXPECT_BITS(found.max, expected.max, "max of row " << difference);
  STERLING_EXPECT_BITS(found.sum, expected.sum, "sum of row " << difference);
  STERLING_EXPECT_BITS(found.out, expected.out, "out " << difference);
}

class Attention : public PerTier {
 protected:
  void check(const Problem& p) {
    SCOPED_TRACE(testing::Message() << "m " << p.m << " head_dim " << p.head_dim << " tiles " << p.tiles << " K "
                                    << static_cast<int>(p.form.k) << " V " << static_cast<int>(p.form.v)
                                    << (p.form.wide ? " wide" : ""));
    expect_same(run(table(), p), p.expected());
  }
};

TEST_P(Attention, RowsTilesAndDimensions) {
  std::uint64_t seed = 1;
  for (const Form form : {kBf16Form, kF32Form}) {
    for (int m = 1; m <= 14; ++m) check(Problem(m, 16, 1 + m % 5, form, seed++));
    for (const int head_dim : {2, 6, 14, 18, 30, 48, 64, 80}) check(Problem(3, head_dim, 2, form, seed++));
    for (const int tiles : {1, 2, 7, 8, 9, 15, 31, 32}) check(Problem(2, 8, tiles, form, seed++));
    check(Problem(25, 128, 3, form, seed++));
  }
}

// Every K beside every V under either arithmetic: with one row tile and with several, with remainders of dims and tokens.
TEST_P(Attention, EveryKindOfTile) {
  std::uint64_t seed = 1000;
  for (const Form& form : all_forms()) {
    for (const int m : {1, 3, 12, 29}) check(Problem(m, 18, 3, form, seed++));
    check(Problem(5, 64, 9, form, seed++));
  }
  for (const KvCode code : kKvCodes) {
    for (int m = 1; m <= 14; ++m) check(Problem(m, 16, 1 + m % 5, {code, code, false}, seed++));
    for (const int head_dim : {2, 6, 14, 30, 48, 80}) check(Problem(3, head_dim, 2, {code, code, false}, seed++));
    check(Problem(2, 8, 32, {code, code, false}, seed++));
  }
}

// Every code, the ones that are no numbers included: a single key, whose value is the output.
TEST_P(Attention, EveryCodeIsReadAsItIsWritten) {
  for (const KvCode code : {KvCode::kE4m3, KvCode::kE5m2}) {
    for (const int m : {1, 40}) {
      for (int base = 0; base < 256; base += 16) {
        Problem p(m, 16, 1, {KvCode::kBf16, code, false}, 3);
        p.v_scale = 1.0F;
        std::vector<std::uint8_t> codes(16);
        for (int i = 0; i < 16; ++i) codes[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(base + i);
        std::vector<float> values(16);
        decode_kv(code, codes.data(), 16, values.data());
        std::fill(p.visible.begin(), p.visible.end(), 1);
        std::fill(p.v.begin(), p.v.end(), 0.0F);
        std::copy(values.begin(), values.end(), p.v.begin());
        const Result result = run(table(), p);
        for (std::size_t d = 0; d < 16; ++d) {
          // Infinity can't be written: it is stored as the largest value.
          const float expected = std::isinf(values[d]) ? std::copysign(57344.0F, values[d]) : values[d] + 0.0F;
          for (std::size_t r = 0; r < static_cast<std::size_t>(m); ++r)
            ASSERT_TRUE(same_bits(result.out[r * 16 + d], expected))
                << base + static_cast<int>(d) << " " << result.out[r * 16 + d];
        }
      }
    }
  }
}

TEST_P(Attention, EveryNumberOfVisibleKeys) {
  for (const Form form : {kBf16Form, kF32Form}) {
    Problem p(41, 6, 3, form, 77);
    for (int r = 0; r < p.m; ++r) p.visible[static_cast<std::size_t>(r)] = r;
    check(p);
    for (int r = 0; r < p.m; ++r) p.visible[static_cast<std::size_t>(r)] = 49 - r;  // 49: one more than there are
    check(p);
  }
}

TEST_P(Attention, RowsThatSeeNothing) {
  Problem p(4, 10, 2, kBf16Form, 5);
  p.visible = {0, -512, 3, 0};
  const Result result = run(table(), p);
  for (const std::size_t r : {std::size_t{0}, std::size_t{1}, std::size_t{3}}) {
    EXPECT_EQ(result.max[r], -std::numeric_limits<float>::infinity());
    EXPECT_EQ(result.sum[r], 0.0F);
    for (std::size_t d = 0; d < 10; ++d) EXPECT_TRUE(same_bits(result.out[r * 10 + d], 0.0F));
  }
  p.visible = {0, 0, 0, 0};
  check(p);
}

// Prefill and decode: a row computed alone has the bits it has among many.
TEST_P(Attention, OneRowAloneEqualsTheRowAmongMany) {
  const Problem many(37, 32, 6, kBf16Form, 11);
  const Result all = run(table(), many);
  for (int r = 0; r < many.m; ++r) {
    Problem one = many;
    one.m = 1;
    one.q.assign(many.q.begin() + std::ptrdiff_t{r} * 32, many.q.begin() + std::ptrdiff_t{r + 1} * 32);
    one.visible = {many.visible[static_cast<std::size_t>(r)]};
    const Result alone = run(table(), one);
    const auto at = static_cast<std::size_t>(r);
    ASSERT_TRUE(same_bits(alone.max[0], all.max[at]) && same_bits(alone.sum[0], all.sum[at])) << r;
    STERLING_EXPECT_BITS(alone.out, std::vector<float>(all.out.begin() + r * 32, all.out.begin() + (r + 1) * 32),
                         "row " << r);
  }
}

// Keys that a row may not see change nothing, however many there are and whatever (finite) they hold: here the other rows of the tile see
// all of them. Some values are so small that products are flushed to signed zeros, and a sum of those must not tell its company.
TEST_P(Attention, MaskedKeysChangeNoBit) {
  for (const float size : {1.0F, 0x1p-126F}) {
    Problem few(5, 16, 1, kBf16Form, 21);
    for (float& v : few.v) v *= size;
    few.visible = {1, 2, 7, 15, 16};
    Problem more(6, 16, 32, kBf16Form, 22);
    for (float& v : more.v) v *= size;
    std::copy(few.q.begin(), few.q.end(), more.q.begin());
    std::copy(few.k.begin(), few.k.end(), more.k.begin());
    std::copy(few.v.begin(), few.v.end(), more.v.begin());
    more.visible = {1, 2, 7, 15, 16, 512};
    check(few);
    Result among = run(table(), more);
    among.max.pop_back();
    among.sum.pop_back();
    among.out.resize(few.q.size());
    expect_same(among, run(table(), few));
  }
}

// Softmax in double over the same rounded inputs. The probabilities are rounded to BF16 (2^-9), the sums and products in FP32 add k * 2^-24.
TEST_P(Attention, WithinTheBoundOfDoublePrecision) {
  for (const Form form : {kBf16Form, kF32Form}) {
    Problem p(6, 64, 32, form, 31);
    Random random(5);
    for (float& v : p.q) v = random.normal();
    for (float& v : p.v) v = random.normal();
    p.visible = {512, 100, 17, 1, 511, 300};
    const Result result = run(table(), p);
    for (int r = 0; r < p.m; ++r) {
      const auto at = static_cast<std::size_t>(r);
      const int keys = p.visible[at];
      std::vector<double> weights;
      double total = 0.0;
      for (int j = 0; j < keys; ++j) {
        double score = 0.0;
        for (std::size_t d = 0; d < 64; ++d)
          score += double{p.round(p.raw_row(p.q, r))[d]} * double{p.round(p.raw_row(p.k, j))[d]};
        weights.push_back(std::exp(score * p.scale));
        total += weights.back();
      }
      for (std::size_t d = 0; d < 64; ++d) {
        double exact = 0.0;
        double magnitude = 0.0;
        for (int j = 0; j < keys; ++j) {
          const double term = weights[static_cast<std::size_t>(j)] / total * double{p.round(p.raw_row(p.v, j))[d]};
          exact += term;
          magnitude += std::fabs(term);
        }
        const double found = double{result.out[at * 64 + d]} / double{result.sum[at]};
        // Each weight and the sum are off by at most this factor: its own rounding, exp, and the score's error in the exponent.
        const double weight_error = (!form.wide ? 0x1p-8 : 0.0) + 64 * 8 * 0x1p-24 + 2 * 512 * 0x1p-24;
        ASSERT_LE(std::fabs(found - exact), 2 * weight_error * magnitude) << r << ", " << d;
      }
    }
  }
}

TEST_P(Attention, MergeOfSpans) {
  for (const int head_dim : {2, 16, 30, 128}) {
    for (const int spans : {1, 2, 5}) {
      Random random(static_cast<std::uint64_t>(head_dim + spans));
      const int m = 3;
      const auto row_floats = static_cast<std::size_t>(head_dim);
      std::vector<float> max, sum, out;
      for (int i = 0; i < spans * m; ++i) {
        const bool empty = i >= m && random.below(3) == 0;
        max.push_back(empty ? -std::numeric_limits<float>::infinity() : 10.0F * random.normal());
        sum.push_back(empty ? 0.0F : 1.0F + std::fabs(random.normal()));
        for (int d = 0; d < head_dim; ++d) out.push_back(empty ? 0.0F : random.hostile(false));
      }
      const std::size_t ld = row_floats + 3;
      std::vector<float> result(ld * m, 7.0F);
      std::vector<float> expected = result;
      for (std::size_t r = 0; r < m; ++r) {
        float top = -std::numeric_limits<float>::infinity();
        float total = 0.0F;
        std::vector<float> acc(row_floats, 0.0F);
        for (std::size_t s = 0; s < static_cast<std::size_t>(spans); ++s) {
          const std::size_t at = s * m + r;
          if (sum[at] == 0.0F) continue;
          const float new_top = std::max(top, max[at]);
          const float a = naive::exp(top - new_top);
          const float b = naive::exp(max[at] - new_top);
          total = std::fmaf(total, a, sum[at] * b);
          for (std::size_t d = 0; d < row_floats; ++d) acc[d] = std::fmaf(acc[d], a, out[at * row_floats + d] * b);
          top = new_top;
        }
        for (std::size_t d = 0; d < row_floats; ++d) expected[r * ld + d] = acc[d] / total;
      }
      AttentionMergeArgs args{};
      args.max = max.data();
      args.sum = sum.data();
      args.out = out.data();
      args.spans = spans;
      args.m = m;
      args.head_dim = head_dim;
      args.result = result.data();
      args.ld = ld;
      table().attention_merge(&args);
      STERLING_EXPECT_BITS(result, expected,
                           "head_dim " << head_dim << " spans " << spans << " element " << difference);
    }
  }
}

TEST_P(Attention, ScratchGrowsWithRows) {
  for (int m = 1; m < 40; ++m)
    EXPECT_LE(table().attention_scratch_bytes(m, 64, true), table().attention_scratch_bytes(m + 1, 64, true));
}

STERLING_FOR_EVERY_TIER(Attention);

}  // namespace
}  // namespace sterling::kernels
