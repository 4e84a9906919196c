// Quantised weights in the CPU backend: products from codes against the reference decoding in double precision, on every tier with equal
// bits; row selections; tied embeddings; what is decoded to FP32 instead; NaN codes.
#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/cpu_backend_impl.h"
#include "base/float_types.h"
#include "kernels/dispatch.h"
#include "quant/stored_weight.h"

namespace sterling::backend {
namespace {

using quant::StoredWeight;
using quant::WeightFormat;

constexpr WeightFormat kFormats[] = {WeightFormat::kFp8Tensor, WeightFormat::kFp8Channel, WeightFormat::kFp8Block,
                                     WeightFormat::kNvfp4,     WeightFormat::kMxfp4,      WeightFormat::kMxfp8};

// A weight of random codes with its bytes.
struct Made {
  Made(WeightFormat format, std::int64_t rows, std::int64_t cols, std::int64_t block_cols = 128) {
    const bool four_bit = format == WeightFormat::kNvfp4 || format == WeightFormat::kMxfp4;
    codes.resize(static_cast<std::size_t>(rows * cols / (four_bit ? 2 : 1)));
    for (std::uint8_t& code : codes)
      code = static_cast<std::uint8_t>(four_bit ? next() : next() % 0x7f | (next() & 0x80));
    weight.format = format;
    weight.codes = view("w.weight", four_bit ? DType::kU8 : DType::kF8E4M3, {rows, four_bit ? cols / 2 : cols},
                        codes.data(), codes.size());
    const auto group = quant::scale_group(format);
    if (group > 0) {
      codes_of_scales.resize(static_cast<std::size_t>(rows * cols / group));
      for (std::uint8_t& code : codes_of_scales) {
        code = static_cast<std::uint8_t>(format == WeightFormat::kNvfp4 ? next() % 0x7f : 120 + next() % 12);
      }
      weight.scale = view("w.weight_scale", format == WeightFormat::kNvfp4 ? DType::kF8E4M3 : DType::kU8,
                          {rows, cols / group}, codes_of_scales.data(), codes_of_scales.size());
    } else {
      weight.block_rows = 128;
      weight.block_cols = block_cols;
      std::vector<std::int64_t> shape;
      if (format == WeightFormat::kFp8Channel) shape = {rows, 1};
      if (format == WeightFormat::kFp8Block) shape = {(rows + 127) / 128, (cols + block_cols - 1) / block_cols};
      std::int64_t count = 1;
      for (const std::int64_t extent : shape) count *= extent;
      for (std::int64_t i = 0; i < count; ++i) scales.push_back(0.001F * static_cast<float>(1 + next() % 100));
      weight.scale = view("w.weight_scale", DType::kF32, shape, scales.data(), scales.size() * 4);
    }
    if (format == WeightFormat::kNvfp4) {
      global = 3.0F;
      weight.global_scale = view("w.weight_global_scale", DType::kF32, {}, &global, 4);
      weight.divide_by_global = true;
    }
    EXPECT_TRUE(quant::check(weight).ok());
  }
  Made(const Made&) = delete;

  static TensorView view(std::string name, DType dtype, std::vector<std::int64_t> shape, const void* data,
                         std::size_t bytes) {
    TensorView v;
    v.name = std::move(name);
    v.dtype = dtype;
    v.shape = std::move(shape);
    v.data = {static_cast<const std::byte*>(data), bytes};
    v.file = "model.safetensors";
    return v;
  }
  unsigned next() {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<unsigned>(state >> 40U);
  }

  std::uint64_t state = 1;
  std::vector<std::uint8_t> codes, codes_of_scales;
  std::vector<float> scales;
  float global = 1.0F;
  StoredWeight weight;
};

std::unique_ptr<platform::ThreadPool> make_pool() {
  platform::ThreadPool::Options options;
  options.threads = 2;
  return std::move(*platform::ThreadPool::create(options));
}

// One backend with one linear, configured for a few rows.
struct Loaded {
  Loaded(const StoredWeight& weight, const RowSelection& rows, ProductInput input, Compute compute,
         const kernels::KernelTable* table)
      : pool(make_pool()), backend(CpuBackendOptions{compute, table, pool.get()}) {
    auto loaded = backend.load_linear(weight, nullptr, rows, input);
    if (!loaded) {
      error = loaded.error().message;
      return;
    }
    id = *loaded;
    PoolOptions options;
    options.max_batch_tokens = 16;
    const Status status = backend.configure(ModelSpec{}, options);
    EXPECT_TRUE(status.ok());
  }
  std::vector<float> product(std::int64_t m, std::int64_t k, std::int64_t n) {
    Matrix x = *backend.allocate(m, k);
    for (std::int64_t r = 0; r < m; ++r) {
      for (std::int64_t c = 0; c < k; ++c) x.data[r * x.ld + c] = input(r, c);
    }
    std::vector<float> out(static_cast<std::size_t>(m * n));
    backend.logits(x, id, out);
    return out;
  }
  // Not a BF16 value, so that rounding shows.
  static float input(std::int64_t r, std::int64_t c) {
    return static_cast<float>((r * 131 + c * 37) % 257 - 128) / 77.0F;
  }

  std::unique_ptr<platform::ThreadPool> pool;
  CpuBackend backend;
  LinearId id;
  std::string error;
};

std::vector<const kernels::KernelTable*> tables() {
  std::vector<const kernels::KernelTable*> found;
  for (const auto& state : kernels::inspect_tiers()) {
    if (state.usable) found.push_back(state.tier.table());
  }
  return found;
}

std::vector<float> decoded(const StoredWeight& weight) {
  std::vector<float> w(static_cast<std::size_t>(weight.rows() * weight.cols()));
  EXPECT_TRUE(quant::decode_rows(weight, 0, weight.rows(), w.data()).ok());
  return w;
}

// |found - exact| against the roundings of a product of k terms: k + k / group fused steps and the two of the row scale and the decoding.
void expect_product(const std::vector<float>& found, const StoredWeight& weight, std::int64_t m,
                    const std::vector<std::int64_t>& rows, bool round) {
  const std::int64_t k = weight.cols();
  const std::vector<float> w = decoded(weight);
  for (std::int64_t r = 0; r < m; ++r) {
    for (std::size_t n = 0; n < rows.size(); ++n) {
      double exact = 0.0, magnitude = 0.0;
      for (std::int64_t c = 0; c < k; ++c) {
        const float x = Loaded::input(r, c);
        const double term =
            double{round ? to_float(to_bf16(x)) : x} * double{w[static_cast<std::size_t>(rows[n] * k + c)]};
        exact += term;
        magnitude += std::fabs(term);
      }
      ASSERT_NEAR(found[static_cast<std::size_t>(r) * rows.size() + n], exact,
                  magnitude * static_cast<double>(2 * k + 4) * 0x1p-24)
          << "row " << r << " output " << n;
    }
  }
}

std::vector<std::int64_t> all_rows(std::int64_t n) {
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < n; ++i) rows.push_back(i);
  return rows;
}

TEST(CodedWeights, ProductsOfEveryFormatOnEveryTier) {
  for (const WeightFormat format : kFormats) {
    SCOPED_TRACE(quant::weight_format_name(format));
    const Made made(format, 150, 288);
    for (const std::int64_t m : {1, 3, 16}) {
      std::vector<float> first;
      for (const kernels::KernelTable* table : tables()) {
        SCOPED_TRACE(table->name);
        Loaded loaded(made.weight, {}, ProductInput::kActivation, Compute::kBf16, table);
        ASSERT_EQ(loaded.error, "");
        const std::vector<float> found = loaded.product(m, 288, 150);
        expect_product(found, made.weight, m, all_rows(150), true);
        if (first.empty()) first = found;
        ASSERT_EQ(std::memcmp(first.data(), found.data(), first.size() * 4), 0);
      }
    }
  }
}

// Codes stay codes: the memory is that of the checkpoint, up to whole panels and the scales of rows.
TEST(CodedWeights, StayPacked) {
  for (const WeightFormat format : kFormats) {
    SCOPED_TRACE(quant::weight_format_name(format));
    const Made made(format, 160, 512);
    const Loaded loaded(made.weight, {}, ProductInput::kActivation, Compute::kBf16, tables().front());
    const std::int64_t block_scales = format == WeightFormat::kFp8Block ? 160 * 4 * 4 : 0;
    EXPECT_LE(loaded.backend.weights().bytes, made.weight.stored_bytes() + 160 * 4 + block_scales + 4096);
    EXPECT_EQ(loaded.backend.weights().parameters, 160 * 512);
  }
}

TEST(CodedWeights, RowSelectionsTakeTheirScalesAlong) {
  for (const WeightFormat format : kFormats) {
    SCOPED_TRACE(quant::weight_format_name(format));
    const Made made(format, 288, 256);
    const RowSelection selection{48, 16, 40};
    std::vector<std::int64_t> rows;
    for (std::int64_t row = 0; row < 288; ++row) {
      if (row % 48 >= 16 && row % 48 < 40) rows.push_back(row);
    }
    Loaded loaded(made.weight, selection, ProductInput::kActivation, Compute::kBf16, tables().back());
    expect_product(loaded.product(5, 256, static_cast<std::int64_t>(rows.size())), made.weight, 5, rows, true);
  }
}

TEST(CodedWeights, Fp32ComputeAndFp32InputDecodeExactly) {
  for (const WeightFormat format : kFormats) {
    SCOPED_TRACE(quant::weight_format_name(format));
    const Made made(format, 40, 128);
    Loaded reference(made.weight, {}, ProductInput::kActivation, Compute::kFp32, tables().back());
    const std::vector<float> found = reference.product(3, 128, 40);
    expect_product(found, made.weight, 3, all_rows(40), false);
    Loaded router(made.weight, {}, ProductInput::kFp32, Compute::kBf16, tables().back());
    EXPECT_EQ(router.product(3, 128, 40), found);
  }
}

TEST(CodedWeights, BlocksOfOtherWidths) {
  for (const std::int64_t block_cols : {64, 256}) {
    const Made made(WeightFormat::kFp8Block, 200, 384, block_cols);
    Loaded loaded(made.weight, {}, ProductInput::kActivation, Compute::kBf16, tables().back());
    expect_product(loaded.product(2, 384, 200), made.weight, 2, all_rows(200), true);
  }
}

TEST(CodedWeights, TiedEmbeddingsGiveTheReferenceRows) {
  for (const WeightFormat format : kFormats) {
    SCOPED_TRACE(quant::weight_format_name(format));
    const Made made(format, 37, 288);
    Loaded loaded(made.weight, {}, ProductInput::kActivation, Compute::kBf16, tables().back());
    const EmbeddingId table = loaded.backend.embedding_of(loaded.id);
    const std::vector<std::int32_t> tokens = {0, 15, 16, 36, 20};
    SequenceSlice slice;
    slice.tokens = tokens;
    BatchView batch;
    batch.slices = {&slice, 1};
    loaded.backend.begin_step(batch);
    Matrix out = *loaded.backend.allocate(5, 288);
    loaded.backend.embed(table, out);
    const std::vector<float> w = decoded(made.weight);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      for (std::size_t c = 0; c < 288; ++c) {
        const float expected = w[static_cast<std::size_t>(tokens[i]) * 288 + c];
        // The one difference: a global scale that divides is kept as its rounded reciprocal.
        ASSERT_NEAR(out.data[static_cast<std::int64_t>(i) * out.ld + static_cast<std::int64_t>(c)], expected,
                    std::fabs(expected) * 0x1p-23)
            << tokens[i] << ", " << c;
      }
    }
  }
}

TEST(CodedWeights, NanCodesAreRefusedByPlace) {
  for (const WeightFormat format : {WeightFormat::kFp8Tensor, WeightFormat::kFp8Block, WeightFormat::kMxfp8}) {
    Made made(format, 40, 128);
    made.codes[33 * 128 + 5] = 0xff;
    const Loaded loaded(made.weight, {}, ProductInput::kActivation, Compute::kBf16, tables().back());
    EXPECT_NE(loaded.error.find("w.weight holds NaN at [33, 5]"), std::string::npos) << loaded.error;
  }
  Made made(WeightFormat::kNvfp4, 40, 128);
  made.codes_of_scales[7 * 8 + 2] = 0x7f;
  const Loaded loaded(made.weight, {}, ProductInput::kActivation, Compute::kBf16, tables().back());
  EXPECT_NE(loaded.error.find("[7, 2]"), std::string::npos) << loaded.error;
}

}  // namespace
}  // namespace sterling::backend
