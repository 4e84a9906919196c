// The cache through the backend: scales per layer and per head, scales per token, paging, counters, raw read-back, and attention against
// a reading of the definition in double: softmax over what read_kv gives.
#include <cmath>
#include <cstring>
#include <memory>
#include <random>

#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "kernels/dispatch.h"
#include "quant/encode.h"
#include "quant/float_codes.h"

namespace sterling::backend {
namespace {

using plan::KvType;

constexpr std::int32_t kHeads = 6;
constexpr std::int32_t kKvHeads = 2;
constexpr std::int32_t kHeadDim = 24;
constexpr std::int32_t kTokens = 530;  // a block is 16 tokens, a span 512
constexpr std::int32_t kBlocks = (kTokens + plan::kBlockTokens - 1) / plan::kBlockTokens;

ModelSpec small_spec() {
  ModelSpec spec;
  spec.architecture = "test";
  spec.hidden_size = kHeads * kHeadDim;
  spec.layers.assign(2, LayerKind::kFullAttention);
  spec.attention.heads = kHeads;
  spec.attention.kv_heads = kKvHeads;
  spec.attention.head_dim = kHeadDim;
  spec.attention.scale = 0.2F;
  return spec;
}

class Cache {
 public:
  Cache(const PoolOptions& wishes, Compute compute, const kernels::KernelTable* table) {
    platform::ThreadPool::Options threads;
    threads.threads = 2;
    pool_ = std::move(*platform::ThreadPool::create(threads));
    backend_ = make_cpu_backend({compute, table, pool_.get()});
    PoolOptions options = wishes;
    options.kv_blocks = kBlocks + 3;
    options.max_batch_tokens = kTokens;
    options.max_batch_slices = 1;
    options.max_sequence_tokens = kTokens;
    status_ = backend_->configure(spec_, options);
    if (!status_) return;
    for (std::int32_t i = 0; i < kBlocks; ++i) blocks_.push_back(kBlocks + 1 - i);  // not in order
    q_ = *backend_->allocate(kTokens, kHeads * kHeadDim);
    k_ = *backend_->allocate(kTokens, kKvHeads * kHeadDim);
    v_ = *backend_->allocate(kTokens, kKvHeads * kHeadDim);
    out_ = *backend_->allocate(kTokens, kHeads * kHeadDim);
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    for (const Matrix& m : {q_, k_, v_}) {
      for (std::int64_t row = 0; row < m.rows; ++row) {
        // Tokens of very different sizes, as outliers make them.
        const float size = m.data == q_.data ? 1.0F : std::exp2(static_cast<float>(row % 7) - 4.0F);
        for (std::int64_t col = 0; col < m.cols; ++col) m.data[row * m.ld + col] = size * normal(random);
      }
    }
  }

  const Status& status() const { return status_; }
  Backend& backend() { return *backend_; }
  Matrix k() const { return k_; }
  Matrix v() const { return v_; }
  std::span<const std::int32_t> blocks() const { return blocks_; }
  AttentionArgs args(std::int32_t layer) const { return {layer, &spec_.attention}; }

  // Writes and attends in two chunks; returns the last rows' outputs [rows][heads * head_dim].
  std::vector<float> run(std::int32_t layer, std::int32_t cut) {
    std::vector<float> result;
    for (const auto& [begin, end] : {std::pair{0, cut}, std::pair{cut, kTokens}}) {
      const std::int32_t count = end - begin;
      if (count == 0) continue;
      std::vector<std::int32_t> ids(static_cast<std::size_t>(count), 0);
      SequenceSlice slice;
      slice.tokens = ids;
      slice.start_position = begin;
      slice.block_table = blocks_;
      const BatchView batch{std::span(&slice, 1)};
      backend_->begin_step(batch);
      const auto rows = [begin = begin, count](Matrix m) { return Matrix{m.data + begin * m.ld, count, m.cols, m.ld}; };
      backend_->write_kv(args(layer), rows(k_), rows(v_));
      backend_->attention(args(layer), rows(q_), rows(out_));
    }
    for (std::int64_t row = 0; row < out_.rows; ++row) {
      result.insert(result.end(), out_.data + row * out_.ld, out_.data + row * out_.ld + out_.cols);
    }
    return result;
  }

  // In double over the decoded cache.
  std::vector<double> expected(std::int32_t layer, std::int64_t token) {
    const std::vector<float> k = backend_->read_kv(args(layer), blocks_, kTokens, false);
    const std::vector<float> v = backend_->read_kv(args(layer), blocks_, kTokens, true);
    std::vector<double> out;
    for (std::int32_t head = 0; head < kHeads; ++head) {
      const std::int64_t base = std::int64_t{head / (kHeads / kKvHeads)} * kTokens;
      std::vector<double> weights;
      double total = 0.0;
      for (std::int64_t t = 0; t <= token; ++t) {
        double score = 0.0;
        for (std::int64_t d = 0; d < kHeadDim; ++d) {
          score += double{q_.data[token * q_.ld + head * kHeadDim + d]} *
                   double{k[static_cast<std::size_t>((base + t) * kHeadDim + d)]};
        }
        weights.push_back(std::exp(score * double{spec_.attention.scale}));
        total += weights.back();
      }
      for (std::int64_t d = 0; d < kHeadDim; ++d) {
        double sum = 0.0;
        for (std::int64_t t = 0; t <= token; ++t) {
          sum += weights[static_cast<std::size_t>(t)] / total *
                 double{v[static_cast<std::size_t>((base + t) * kHeadDim + d)]};
        }
        out.push_back(sum);
      }
    }
    return out;
  }

 private:
  ModelSpec spec_ = small_spec();
  std::unique_ptr<platform::ThreadPool> pool_;
  std::unique_ptr<Backend> backend_;
  Status status_;
  std::vector<std::int32_t> blocks_;
  Matrix q_, k_, v_, out_;
};

std::vector<const kernels::KernelTable*> tables() {
  std::vector<const kernels::KernelTable*> result;
  for (const kernels::TierState& state : kernels::inspect_tiers()) {
    if (state.usable) result.push_back(state.tier.table());
  }
  return result;
}

PoolOptions with(KvType k, KvType v) {
  PoolOptions options;
  options.kv = plan::KvFormat{k, v};
  options.kv_scales.k = {{0.011F}, {0.02F, 0.031F}};  // a tensor's, then each head's
  options.kv_scales.v = {{0.017F, 0.023F}, {0.029F}};
  return options;
}

float stored_scale(const PoolOptions& options, std::int32_t layer, std::int32_t head, bool value) {
  const auto& scales = (value ? options.kv_scales.v : options.kv_scales.k)[static_cast<std::size_t>(layer)];
  return scales.size() == 1 ? scales[0] : scales[static_cast<std::size_t>(head)];
}

// Every format under both arithmetics: close to double, and to the bit the same on every tier and for another cut of the prompt.
TEST(KvCache, AttentionOverEveryFormat) {
  for (const Compute compute : {Compute::kBf16, Compute::kFp32}) {
    for (const KvType k : plan::kKvTypes) {
      for (const KvType v : plan::kKvTypes) {
        SCOPED_TRACE(plan::kv_format_name({k, v}) + (compute == Compute::kFp32 ? " fp32" : " bf16"));
        std::vector<float> first;
        for (const kernels::KernelTable* table : tables()) {
          Cache cache(with(k, v), compute, table);
          ASSERT_TRUE(cache.status().ok());
          for (const std::int32_t layer : {1, 0}) {
            const std::vector<float> out = cache.run(layer, 17 + 13 * static_cast<std::int32_t>(first.size() % 2));
            if (layer == 0) {
              if (first.empty()) first = out;
              ASSERT_EQ(std::memcmp(first.data(), out.data(), out.size() * sizeof(float)), 0) << table->name;
            }
            if (table->name != std::string("scalar")) continue;
            for (const std::int64_t token : {0, 16, 511, 529}) {
              const std::vector<double> expected = cache.expected(layer, token);
              for (std::size_t i = 0; i < expected.size(); ++i) {
                // BF16 queries and probabilities: scores off by 2^-9 of a product of size 8, V up to 8 in size.
                const double bound = compute == Compute::kBf16 ? 0.15 : 2e-4;
                ASSERT_NEAR(out[static_cast<std::size_t>(token) * expected.size() + i], expected[i], bound) << token;
              }
            }
          }
        }
      }
    }
  }
}

// Codes and scales against quant/'s encoder, which is held to ml_dtypes.
TEST(KvCache, RawCodesAndScales) {
  for (const KvType type : {KvType::kFp8E4m3, KvType::kFp8E5m2, KvType::kFp8E4m3Token}) {
    const PoolOptions options = with(type, type);
    Cache cache(options, Compute::kBf16, tables().back());
    ASSERT_TRUE(cache.status().ok());
    cache.run(1, 100);
    for (const bool value : {false, true}) {
      const Matrix source = value ? cache.v() : cache.k();
      const auto raw = cache.backend().read_kv_raw(cache.args(1), cache.blocks(), kTokens, value);
      const auto scales = cache.backend().read_kv_scales(cache.args(1), cache.blocks(), kTokens, value);
      const auto decoded = cache.backend().read_kv(cache.args(1), cache.blocks(), kTokens, value);
      ASSERT_EQ(raw.size(), static_cast<std::size_t>(kKvHeads * kTokens * kHeadDim));
      KvCounters expected;
      for (std::int32_t head = 0; head < kKvHeads; ++head) {
        for (std::int64_t t = 0; t < kTokens; ++t) {
          const auto index = static_cast<std::size_t>(head * kTokens + t);
          const float* row = source.data + t * source.ld + head * kHeadDim;
          double largest = 0.0;
          for (int d = 0; d < kHeadDim; ++d) largest = std::max(largest, std::fabs(double{row[d]}));
          const float scale = type == KvType::kFp8E4m3Token
                                  ? static_cast<float>(std::exp2(std::ceil(std::log2(largest / 448.0))))
                                  : stored_scale(options, 1, head, value);
          ASSERT_EQ(scales[index], scale);
          for (int d = 0; d < kHeadDim; ++d) {
            const bool e5m2 = type == KvType::kFp8E5m2;
            const float x = row[d] / scale;
            const std::uint8_t code = e5m2 ? quant::float_to_e5m2(x) : quant::float_to_e4m3(x);
            const std::size_t at = index * kHeadDim + static_cast<std::size_t>(d);
            ASSERT_EQ(int{code}, std::to_integer<int>(raw[at])) << row[d];
            ASSERT_EQ(decoded[at], (e5m2 ? quant::e5m2_to_float(code) : quant::e4m3_to_float(code)) * scale);
            expected.clipped += std::fabs(x) > (e5m2 ? 61439.99F : 464.0F) ? 1 : 0;
            expected.underflowed += (code & 0x7f) == 0 && row[d] != 0.0F ? 1 : 0;
          }
        }
      }
      const KvCounters found = cache.backend().kv_counters(1, value);
      EXPECT_EQ(found.written, kTokens * kKvHeads * kHeadDim);
      EXPECT_EQ(found.clipped, expected.clipped);
      EXPECT_EQ(found.underflowed, expected.underflowed);
      EXPECT_EQ(found.non_finite, 0);
      if (type == KvType::kFp8E4m3) {
        EXPECT_GT(found.clipped, 0);
      } else if (type == KvType::kFp8E4m3Token) {
        EXPECT_EQ(found.clipped, 0);
      }
      EXPECT_EQ(cache.backend().kv_counters(0, value).written, 0);
    }
  }
}

TEST(KvCache, PokedBitsReachReadersAndAttention) {
  for (const KvType type : plan::kKvTypes) {
    for (const bool value : {false, true}) {
      SCOPED_TRACE(plan::kv_type_name(type));
      Cache cache(with(type, type), Compute::kBf16, tables().back());
      ASSERT_TRUE(cache.status().ok());
      const std::vector<float> before = cache.run(0, 0);
      const auto raw = cache.backend().read_kv_raw(cache.args(0), cache.blocks(), kTokens, value);
      const std::size_t bytes = raw.size() / static_cast<std::size_t>(kKvHeads * kTokens * kHeadDim);
      const std::uint32_t sign = 1U << (8 * bytes - 1);
      cache.backend().poke_kv(cache.args(0), cache.blocks(), 20, 1, 7, value, sign);
      auto expected = raw;
      const std::size_t at = (static_cast<std::size_t>(kTokens + 20) * kHeadDim + 7) * bytes + bytes - 1;
      expected[at] ^= std::byte{0x80};
      EXPECT_EQ(cache.backend().read_kv_raw(cache.args(0), cache.blocks(), kTokens, value), expected);
      cache.backend().poke_kv(cache.args(0), cache.blocks(), 20, 1, 7, value, sign);
      EXPECT_EQ(cache.backend().read_kv_raw(cache.args(0), cache.blocks(), kTokens, value), raw);
    }
  }
}

TEST(KvCache, PoolIsAsLargeAsPlanned) {
  const ModelSpec spec = small_spec();
  for (const KvType k : plan::kKvTypes) {
    for (const KvType v : plan::kKvTypes) {
      Cache cache(with(k, v), Compute::kBf16, tables().front());
      ASSERT_TRUE(cache.status().ok());
      const plan::KvFormat format{k, v};
      EXPECT_EQ(cache.backend().kv_format(), format);
      EXPECT_EQ(cache.backend().kv_pool_bytes(),
                plan::kv_bytes_per_token(spec, format) * plan::kBlockTokens * (kBlocks + 3));
      const auto side = [](KvType type, std::int64_t dims) {
        const std::int64_t element = type == KvType::kFp32 ? 4 : type == KvType::kBf16 ? 2 : 1;
        return dims * element + (type == KvType::kFp8E4m3Token ? 4 : 0);
      };
      EXPECT_EQ(plan::kv_bytes_per_token(spec, format), 2 * kKvHeads * (side(k, 24) + side(v, 32)));
    }
  }
}

TEST(KvCache, NonFiniteValuesAreCountedAndStayVisible) {
  for (const KvType type : plan::kKvTypes) {
    Cache cache(with(type, type), Compute::kBf16, tables().back());
    ASSERT_TRUE(cache.status().ok());
    cache.v().data[5 * cache.v().ld + 3] = std::nanf("");
    cache.k().data[6 * cache.k().ld + 3] = std::numeric_limits<float>::infinity();
    const std::vector<float> out = cache.run(0, 0);
    EXPECT_EQ(cache.backend().kv_counters(0, true).non_finite, 1);
    EXPECT_EQ(cache.backend().kv_counters(0, false).non_finite, 1);
    const auto v = cache.backend().read_kv(cache.args(0), cache.blocks(), 6, true);
    EXPECT_TRUE(std::isnan(v[5 * kHeadDim + 3])) << plan::kv_type_name(type);
    EXPECT_TRUE(std::isnan(out[5 * kHeads * kHeadDim + 3])) << plan::kv_type_name(type);
  }
}

TEST(KvCache, BadScalesAreRefused) {
  const auto refused = [](std::vector<std::vector<float>> k) {
    PoolOptions options;
    options.kv = plan::KvFormat{KvType::kFp8E4m3, KvType::kFp8E4m3};
    options.kv_scales.k = std::move(k);
    const Cache cache(options, Compute::kBf16, tables().front());
    return !cache.status() && cache.status().error().code == ErrorCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused({{1.0F}}));
  EXPECT_TRUE(refused({{1.0F}, {1.0F, 1.0F, 1.0F}}));
  for (const float bad : {0.0F, -1.0F, std::nanf(""), std::numeric_limits<float>::infinity(), 0x1p-130F}) {
    EXPECT_TRUE(refused({{1.0F}, {bad}})) << bad;
  }
  EXPECT_FALSE(refused({{1.0F}, {1.0F, 0x1p-126F}}));
}

}  // namespace
}  // namespace sterling::backend
