// Each fault that a start must not survive, injected into a real backend, is caught by the check that is meant for it; the same subject without
// the fault passes (proof_test.cc).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <list>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proof/kv_codec.h"
#include "proof/proof.h"
#include "proof/test_support.h"

namespace sterling::proof {
namespace {

using plan::KvFormat;
using plan::KvType;

constexpr KvFormat kBf16{KvType::kBf16, KvType::kBf16};
constexpr KvFormat kFp8{KvType::kFp8E4m3, KvType::kFp8E4m3};

std::filesystem::path golden(const std::string& name) {
  return std::filesystem::path(STERLING_SOURCE_DIR "/tests/golden") / name / "checkpoint";
}

Subject subject_of(const std::string& name, KvFormat format) {
  Subject subject{.checkpoint = golden(name)};
  subject.declared.kv = subject.pool = format;
  if (plan::needs_scales(format.k)) {
    const auto checkpoint = formats::Checkpoint::open(subject.checkpoint);
    EXPECT_TRUE(checkpoint.ok());
    subject.declared.kv_scales = subject.pool_scales =
        even_scales(model::check(*checkpoint).value().spec, 0.013F, 0.021F, false);
  }
  return subject;
}

// The checks that failed.
std::vector<std::string> caught(const Subject& subject) {
  const auto report = prove_subject(subject);
  EXPECT_TRUE(report.ok()) << report.error().message;
  std::vector<std::string> names;
  if (!report.ok()) return names;
  for (const Finding& finding : report->findings) {
    if (!finding.passed) names.push_back(finding.check);
  }
  return names;
}

template <typename Fault, typename... Arguments>
MakeFault with(Arguments... arguments) {
  return
      [=](std::unique_ptr<backend::Backend> inner) { return std::make_unique<Fault>(std::move(inner), arguments...); };
}

// Matrices of the CPU backend lie in ordinary memory.
void for_each(backend::Matrix m, const std::function<float(float)>& change) {
  for (std::int64_t r = 0; r < m.rows; ++r) {
    for (std::int64_t c = 0; c < m.cols; ++c) m.data[r * m.ld + c] = change(m.data[r * m.ld + c]);
  }
}

float keep_bits(float x, int dropped) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &x, 4);
  bits = (bits + (1U << (dropped - 1))) & ~((1U << dropped) - 1);
  std::memcpy(&x, &bits, 4);
  return x;
}
float to_bf16(float x) {
  return keep_bits(x, 16);
}
float to_fp8_mantissa(float x) {
  return keep_bits(x, 20);
}

class WithCopy {
 public:
  explicit WithCopy(backend::Matrix m) : m_(m) {
    for_each(m_, [this](float x) {
      saved_.push_back(x);
      return x;
    });
  }
  ~WithCopy() {
    std::size_t at = 0;
    for_each(m_, [&](float) { return saved_[at++]; });
  }

 private:
  backend::Matrix m_;
  std::vector<float> saved_;
};

TEST(FaultInjection, PoolOfAnotherType) {
  Subject subject = subject_of("llama", kBf16);
  subject.pool = {KvType::kFp8E4m3Token, KvType::kFp8E4m3Token};
  EXPECT_THAT(caught(subject), testing::Contains("kv.size"));
  // The same size per element, so that nothing but the bits tells.
  class Claims final : public FaultyBackend {
   public:
    using FaultyBackend::FaultyBackend;
    KvFormat kv_format() const override { return kFp8; }
  };
  Subject claims = subject_of("llama", kFp8);
  claims.pool = {KvType::kFp8E5m2, KvType::kFp8E5m2};
  claims.fault = with<Claims>();
  EXPECT_THAT(caught(claims), testing::Contains("kv.write"));
}

TEST(FaultInjection, PoolOfAnotherSize) {
  class Larger final : public FaultyBackend {
   public:
    using FaultyBackend::FaultyBackend;
    std::int64_t kv_pool_bytes() const override { return FaultyBackend::kv_pool_bytes() + 64; }
  };
  Subject subject = subject_of("llama", kBf16);
  subject.fault = with<Larger>();
  EXPECT_THAT(caught(subject), testing::Contains("kv.size"));
}

TEST(FaultInjection, SwappedScales) {
  Subject sides = subject_of("llama", kFp8);
  std::swap(sides.pool_scales.k, sides.pool_scales.v);
  EXPECT_THAT(caught(sides), testing::Contains("kv.write"));
  Subject layers = subject_of("llama", kFp8);
  ASSERT_GE(layers.pool_scales.k.size(), 2U);
  std::swap(layers.pool_scales.k[0], layers.pool_scales.k[1]);
  EXPECT_THAT(caught(layers), testing::Contains("kv.write"));
  Subject ones = subject_of("llama", kFp8);
  ones.pool_scales = {};
  EXPECT_THAT(caught(ones), testing::Contains("kv.write"));
}

// One stored element changes behind the writer's back.
class FlippedByte final : public FaultyBackend {
 public:
  FlippedByte(std::unique_ptr<Backend> inner, bool value, std::uint32_t mask)
      : FaultyBackend(std::move(inner)), value_(value), mask_(mask) {}
  void begin_step(const BatchView& batch) override {
    slice_ = &batch.slices[0];
    FaultyBackend::begin_step(batch);
  }
  void write_kv(const AttentionArgs& args, Matrix k, Matrix v) override {
    FaultyBackend::write_kv(args, k, v);
    if (args.kv_layer != 1 || slice_->start_position == 0) return;
    inner().poke_kv(args, slice_->block_table, 3, 0, 5, value_, mask_);
  }

 private:
  const SequenceSlice* slice_ = nullptr;
  bool value_;
  std::uint32_t mask_;
};

TEST(FaultInjection, FlippedBit) {
  for (const bool value : {false, true}) {
    Subject wide = subject_of("llama", kBf16);
    wide.fault = with<FlippedByte>(value, 1U);  // the lowest bit there is
    EXPECT_THAT(caught(wide), testing::Contains("kv.write"));
    Subject narrow = subject_of("llama", kFp8);
    narrow.fault = with<FlippedByte>(value, 1U);
    EXPECT_THAT(caught(narrow), testing::Contains("kv.write"));
  }
}

// K and V pass through something narrower on their way into a pool of the right type.
class RoundsOnWrite final : public FaultyBackend {
 public:
  using FaultyBackend::FaultyBackend;
  void write_kv(const AttentionArgs& args, Matrix k, Matrix v) override {
    const WithCopy saved_k(k);
    const WithCopy saved_v(v);
    for_each(k, to_fp8_mantissa);
    for_each(v, to_fp8_mantissa);
    FaultyBackend::write_kv(args, k, v);
  }
};

// Attention multiplies a q that was rounded further than declared.
class RoundsOnRead final : public FaultyBackend {
 public:
  using FaultyBackend::FaultyBackend;
  void attention(const AttentionArgs& args, Matrix q, Matrix out) override {
    const WithCopy saved(q);
    for_each(q, to_fp8_mantissa);
    FaultyBackend::attention(args, q, out);
  }
};

// Attention gives back a result that passed through BF16.
class RoundsResult final : public FaultyBackend {
 public:
  using FaultyBackend::FaultyBackend;
  void attention(const AttentionArgs& args, Matrix q, Matrix out) override {
    FaultyBackend::attention(args, q, out);
    for_each(out, to_bf16);
  }
};

TEST(FaultInjection, KernelsThatQuietlyRound) {
  for (const KvFormat format : {kBf16, kFp8}) {
    Subject write = subject_of("qwen3_5_text", format);
    write.fault = with<RoundsOnWrite>();
    if (format == kBf16) {
      EXPECT_THAT(caught(write), testing::Contains("kv.write"));
    }
    Subject read = subject_of("qwen3_5_text", format);
    read.fault = with<RoundsOnRead>();
    EXPECT_THAT(caught(read), testing::Contains("kv.read"));
    Subject result = subject_of("qwen3_5_text", format);
    result.fault = with<RoundsResult>();
    EXPECT_THAT(caught(result), testing::Contains("kv.read"));
  }
}

// Attention reads a copy made when the step began, not the pool: what is flipped in the pool never shows.
class ReadsOtherBytes final : public FaultyBackend {
 public:
  using FaultyBackend::FaultyBackend;
  void begin_step(const BatchView& batch) override {
    results_.clear();
    FaultyBackend::begin_step(batch);
  }
  void attention(const AttentionArgs& args, Matrix q, Matrix out) override {
    for (const auto& [layer, values] : results_) {
      if (layer != args.kv_layer) continue;
      std::size_t at = 0;
      for_each(out, [&, &copy = values](float) { return copy[at++]; });
      return;
    }
    FaultyBackend::attention(args, q, out);
    results_.emplace_back(args.kv_layer, read(out));
  }

 private:
  std::list<std::pair<std::int32_t, std::vector<float>>> results_;
};

TEST(FaultInjection, ReaderOfOtherBytes) {
  for (const KvFormat format : {kBf16, kFp8, KvFormat{KvType::kFp8E4m3Token, KvType::kBf16}}) {
    Subject subject = subject_of("llama", format);
    subject.fault = with<ReadsOtherBytes>();
    EXPECT_THAT(caught(subject), testing::Contains("kv.flip"));
  }
}

// Recurrent state kept in a narrower type: what the slot gives back has `dropped` bits fewer.
class NarrowState final : public FaultyBackend {
 public:
  NarrowState(std::unique_ptr<Backend> inner, int dropped) : FaultyBackend(std::move(inner)), dropped_(dropped) {}
  std::vector<float> read_state(const GdnArgs& args, std::int32_t slot) const override {
    std::vector<float> values = FaultyBackend::read_state(args, slot);
    for (float& x : values) x = keep_bits(x, dropped_);
    return values;
  }

 private:
  int dropped_;
};

// A convolution window that lost its oldest input.
class ShortWindow final : public FaultyBackend {
 public:
  using FaultyBackend::FaultyBackend;
  std::vector<float> read_conv_window(const GdnArgs& args, std::int32_t slot) const override {
    std::vector<float> values = FaultyBackend::read_conv_window(args, slot);
    values.front() = 0.0F;
    return values;
  }
};

TEST(FaultInjection, RecurrentStateInANarrowerType) {
  for (const int dropped : {16, 13}) {  // BF16's and FP16's mantissa
    Subject subject = subject_of("qwen3_5_text", kBf16);
    subject.fault = with<NarrowState>(dropped);
    EXPECT_THAT(caught(subject), testing::ElementsAre("state")) << dropped;
  }
  Subject window = subject_of("qwen3_5_text", kBf16);
  window.fault = with<ShortWindow>();
  EXPECT_THAT(caught(window), testing::ElementsAre("state"));
}

// The loader packs a matrix one byte of which is not the file's.
class AlteredWeight final : public FaultyBackend {
 public:
  AlteredWeight(std::unique_ptr<Backend> inner, int which) : FaultyBackend(std::move(inner)), which_(which) {}
  Expected<backend::LinearId> load_linear(const quant::StoredWeight& weight, const TensorView* bias,
                                          const backend::RowSelection& rows, backend::ProductInput input) override {
    if (count_++ != which_) return FaultyBackend::load_linear(weight, bias, rows, input);
    quant::StoredWeight changed = weight;
    bytes_.assign(weight.codes.data.begin(), weight.codes.data.end());
    bytes_[0] ^= std::byte{1};
    changed.codes.data = bytes_;
    return FaultyBackend::load_linear(changed, bias, rows, input);
  }

 private:
  int which_;
  int count_ = 0;
  std::vector<std::byte> bytes_;
};

TEST(FaultInjection, AlteredWeight) {
  for (const char* name : {"llama", "llama-nvfp4-ct", "llama-fp8-block", "llama-mxfp4", "qwen3_5-nvfp4"}) {
    for (const int which : {0, 3}) {
      Subject subject = subject_of(name, kBf16);
      subject.fault = with<AlteredWeight>(which);
      EXPECT_THAT(caught(subject), testing::ElementsAre("weights")) << name << " " << which;
    }
  }
}

}  // namespace
}  // namespace sterling::proof
