#include "workloads.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "kernels/kv_tiles.h"
#include "kernels/panels.h"

namespace sterling::bench {
namespace {

using kernels::kLanes;

platform::AlignedBuffer allocate(std::size_t bytes) {
  auto buffer = platform::AlignedBuffer::allocate(bytes, "benchmark");
  if (!buffer) std::abort();
  return std::move(*buffer);
}

std::uint32_t next(std::uint64_t& state) {
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  return static_cast<std::uint32_t>(state >> 33);
}
float small(std::uint64_t& state) {
  return static_cast<float>(next(state) & 0xffffu) * 0x1p-16F - 0.5F;
}

// BF16 values in ±[0.25, 1): cheap to make and never subnormal. Parallel, so that pages are spread as the readers are.
void fill_bf16(platform::ThreadPool& pool, platform::AlignedBuffer& buffer) {
  const auto values = buffer.as<std::uint16_t>();
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  pool.parallel((values.size() + kPiece - 1) / kPiece, [&](std::size_t piece, std::size_t) {
    std::uint64_t state = piece + 1;
    const std::size_t end = std::min(values.size(), (piece + 1) * kPiece);
    for (std::size_t i = piece * kPiece; i < end; ++i) {
      const std::uint32_t r = next(state);
      values[i] = static_cast<std::uint16_t>((r & 0x807fu) | ((125u + (r >> 20) % 2u) << 7));
    }
  });
}

// Of the types behind kF32.
kernels::CodeFormat code_format(Weights type) {
  return static_cast<kernels::CodeFormat>(static_cast<int>(type) - static_cast<int>(Weights::kFp8));
}

std::size_t panel_bytes(Weights type, int k) {
  switch (type) {
    case Weights::kBf16: return kernels::panel_bytes_bf16(k);
    case Weights::kF32: return kernels::panel_bytes_f32(k);
    default: return kernels::panel_bytes_coded(code_format(type), k);
  }
}

// E4M3 code nearest to a value in ±448, halves away from zero.
std::uint8_t e4m3_code(float value) {
  const float magnitude = std::fabs(value);
  const int exponent = magnitude < 0x1p-6F ? -6 : std::ilogb(magnitude);
  const auto eighths =
      static_cast<int>(std::ldexp(magnitude, 3 - exponent) + 0.5F);  // 16 of them carry into the exponent
  const int code = exponent == -6 && eighths < 8 ? eighths : (exponent + 7) * 8 + eighths - 8;
  return static_cast<std::uint8_t>(std::min(code, 0x7e) | (value < 0.0F ? 0x80 : 0));
}

// Bytes as a checkpoint has them. E4M3: a normal distribution whose largest magnitude, 448, is 25 deviations with one scale for a tensor and four with
// a scale per group: decoding branches on small codes, so how many there are matters. E2M1: uniform codes, positive scales.
void fill_coded(platform::ThreadPool& pool, platform::AlignedBuffer& buffer, kernels::CodeFormat format, int k) {
  std::vector<std::uint8_t> table(1 << 16);
  std::uint64_t seed = 11;
  const float deviation = 448.0F / (format == kernels::CodeFormat::kFp8 ? 25.0F : 4.0F);
  for (std::uint8_t& code : table) {
    float sum = 0.0F;  // of twelve: variance 1
    for (int i = 0; i < 12; ++i) sum += small(seed);
    code = kernels::is_four_bit(format) ? static_cast<std::uint8_t>(next(seed)) : e4m3_code(sum * deviation);
  }
  const std::size_t panel = kernels::panel_bytes_coded(format, k);
  const auto row = static_cast<std::size_t>(k);
  pool.parallel(buffer.size() / panel, [&](std::size_t index, std::size_t) {
    std::uint64_t state = index + 1;
    std::vector<std::uint8_t> bytes(2 * row * kLanes);
    const std::uint8_t* codes[kLanes];
    const std::byte* scales[kLanes];
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      std::uint8_t* const from = bytes.data() + lane * 2 * row;
      for (std::size_t i = 0; i < row; ++i) from[i] = table[next(state) & 0xffffU];
      for (std::size_t i = row; i < 2 * row; ++i) from[i] = static_cast<std::uint8_t>(0x30U + next(state) % 16);
      codes[lane] = from;
      scales[lane] = reinterpret_cast<const std::byte*>(from + row);
    }
    kernels::pack_panel_coded(format, codes, scales, kLanes, k, buffer.data() + index * panel);
  });
}

}  // namespace

const char* weights_name(Weights type) {
  constexpr const char* kNames[] = {"bf16", "f32", "fp8", "fp8_block", "nvfp4", "mxfp4", "mxfp8"};
  return kNames[static_cast<int>(type)];
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

GemmWorkload::GemmWorkload(const kernels::KernelTable& table, platform::ThreadPool& pool, Weights type, int m, int k,
                           int n, int layers)
    : table_(table), pool_(pool), type_(type), m_(m), k_(k), n_(n), layers_(layers) {
  const std::size_t panels = static_cast<std::size_t>((n + kLanes - 1) / kLanes);
  layer_bytes_ = panels * panel_bytes(type, k);
  w_ = allocate(layer_bytes_ * static_cast<std::size_t>(layers));
  type == Weights::kBf16 || type == Weights::kF32 ? fill_bf16(pool, w_) : fill_coded(pool, w_, code_format(type), k);
  std::vector<float> x(static_cast<std::size_t>(m) * static_cast<std::size_t>(k));
  std::uint64_t state = 7;
  for (float& v : x) v = small(state);
  const bool bf16 = type != Weights::kF32;
  x_ = allocate(bf16 ? table.packed_x_bytes_bf16(m, k) : table.packed_x_bytes_f32(m, k));
  bf16 ? table.pack_x_bf16(x.data(), static_cast<std::size_t>(k), m, k, 0, m, x_.data())
       : table.pack_x_f32(x.data(), static_cast<std::size_t>(k), m, k, 0, m, false, x_.data());
  out_ = allocate(static_cast<std::size_t>(m) * panels * kLanes * sizeof(float));
}

void GemmWorkload::run() {
  const int panels = (n_ + kLanes - 1) / kLanes;
  const int threads = static_cast<int>(pool_.threads());
  const int group = std::clamp(panels / (threads * 8), 4, 16);
  const int tasks = (panels + group - 1) / group;
  for (int layer = 0; layer < layers_; ++layer) {
    const std::byte* w = w_.data() + static_cast<std::size_t>(layer) * layer_bytes_;
    pool_.parallel(static_cast<std::size_t>(tasks), [&](std::size_t task, std::size_t) {
      kernels::GemmArgs args{};
      args.x = x_.data();
      args.w = w;
      args.out = out_.as<float>().data();
      args.ldo = static_cast<std::size_t>(panels) * kLanes;
      args.m = args.row_end = m_;
      args.k = k_;
      args.n = n_;
      args.panel_begin = static_cast<int>(task) * group;
      args.panel_end = std::min(panels, args.panel_begin + group);
      switch (type_) {
        case Weights::kBf16: table_.gemm_bf16(&args); break;
        case Weights::kF32: table_.gemm_f32(&args); break;
        default: table_.gemm_coded[static_cast<int>(code_format(type_))](&args);
      }
    });
  }
}

AttentionWorkload::AttentionWorkload(const kernels::KernelTable& table, platform::ThreadPool& pool, int sequences,
                                     int tokens, int m, int head_dim, kernels::KvCode code)
    : table_(table), pool_(pool), sequences_(sequences), tokens_(tokens), m_(m), head_dim_(head_dim), code_(code) {
  spans_ = (tokens + kernels::kSpanTokens - 1) / kernels::kSpanTokens;
  const std::size_t tile = kernels::k_tile_bytes(code_, head_dim) + kernels::v_tile_bytes(code_, head_dim);
  kv_ = allocate(static_cast<std::size_t>(sequences) * static_cast<std::size_t>((tokens + 15) / 16) * tile);
  code_ == kernels::KvCode::kBf16 ? fill_bf16(pool, kv_) : fill_kv();
  std::vector<float> q(static_cast<std::size_t>(m) * static_cast<std::size_t>(head_dim));
  std::uint64_t state = 9;
  for (float& v : q) v = small(state);
  q_ = allocate(table.packed_x_bytes_bf16(m, head_dim));
  table.pack_x_bf16(q.data(), static_cast<std::size_t>(head_dim), m, head_dim, 0, m, q_.data());
  partial_floats_ =
      static_cast<std::size_t>(m) * static_cast<std::size_t>(spans_ + 1) * static_cast<std::size_t>(head_dim + 16);
  partial_ = allocate(partial_floats_ * sizeof(float) * pool.threads());
  scratch_bytes_ = (table.attention_scratch_bytes(m, head_dim, true) + 63) / 64 * 64;
  scratch_ = allocate(scratch_bytes_ * pool.threads());
  visible_.assign(static_cast<std::size_t>(m), kernels::kSpanTokens);
}

// Normal values in tiles, as scales per token would leave them.
void AttentionWorkload::fill_kv() {
  const std::size_t k_bytes = kernels::k_tile_bytes(code_, head_dim_);
  const std::size_t tile = k_bytes + kernels::v_tile_bytes(code_, head_dim_);
  pool_.parallel(kv_.size() / tile, [&](std::size_t index, std::size_t) {
    std::uint64_t state = index + 1;
    std::vector<float> row(static_cast<std::size_t>(head_dim_));
    kernels::KvCounts counts;
    for (int slot = 0; slot < 2 * kernels::kTileTokens; ++slot) {
      for (float& x : row) x = small(state) + small(state) + small(state) + small(state);
      const bool value = slot >= kernels::kTileTokens;
      kernels::write_kv_row(value ? kernels::KvSide::kV : kernels::KvSide::kK, code_,
                            kv_.data() + index * tile + (value ? k_bytes : 0), slot % kernels::kTileTokens, row.data(),
                            head_dim_, kernels::token_scale(row.data(), head_dim_), counts);
    }
  });
}

void AttentionWorkload::run() {
  const std::size_t k_bytes = kernels::k_tile_bytes(code_, head_dim_);
  const std::size_t tile_bytes = k_bytes + kernels::v_tile_bytes(code_, head_dim_);
  const auto m = static_cast<std::size_t>(m_);
  const auto dim = static_cast<std::size_t>(head_dim_);
  pool_.parallel(static_cast<std::size_t>(sequences_), [&](std::size_t sequence, std::size_t thread) {
    float* partial = partial_.as<float>().data() + thread * partial_floats_;
    float* max = partial;
    float* sum = max + m * static_cast<std::size_t>(spans_);
    float* out = sum + m * static_cast<std::size_t>(spans_);
    float* result = out + m * static_cast<std::size_t>(spans_) * dim;
    const std::byte* kv = kv_.data() + sequence * static_cast<std::size_t>((tokens_ + 15) / 16) * tile_bytes;
    for (int span = 0; span < spans_; ++span) {
      const int left = tokens_ - span * kernels::kSpanTokens;
      const int tiles = (std::min(left, kernels::kSpanTokens) + 15) / 16;
      const void* k_tiles[32];
      const void* v_tiles[32];
      for (int tile = 0; tile < tiles; ++tile) {
        k_tiles[tile] = kv + static_cast<std::size_t>(span * 32 + tile) * tile_bytes;
        v_tiles[tile] = static_cast<const std::byte*>(k_tiles[tile]) + k_bytes;
      }
      const std::size_t at = static_cast<std::size_t>(span) * m;
      kernels::AttentionSpanArgs args{};
      args.q = q_.data();
      args.k_tiles = k_tiles;
      args.v_tiles = v_tiles;
      args.tiles = tiles;
      args.m = m_;
      args.head_dim = head_dim_;
      args.scale = 0.088F;
      args.v_scale = 1.0F;
      args.k_code = args.v_code = code_;
      args.visible = visible_.data();
      args.max = max + at;
      args.sum = sum + at;
      args.out = out + at * dim;
      args.scratch = scratch_.data() + thread * scratch_bytes_;
      table_.attention_span(&args);
    }
    kernels::AttentionMergeArgs merge{max, sum, out, spans_, m_, head_dim_, result, dim};
    table_.attention_merge(&merge);
  });
}

GdnWorkload::GdnWorkload(const kernels::KernelTable& table, platform::ThreadPool& pool, int heads, int tokens,
                         int key_dim, int value_dim)
    : table_(table), pool_(pool), heads_(heads), tokens_(tokens), key_dim_(key_dim), value_dim_(value_dim) {
  const auto h = static_cast<std::size_t>(heads);
  const auto t = static_cast<std::size_t>(tokens);
  const auto key = static_cast<std::size_t>(key_dim);
  const auto value = static_cast<std::size_t>(value_dim);
  state_ = allocate(h * key * value * sizeof(float));
  qkv_ = allocate(h * t * (2 * key + value) * sizeof(float));
  out_ = allocate(h * t * value * sizeof(float));
  gates_ = allocate(h * t * sizeof(float));
  std::uint64_t seed = 3;
  for (float& v : qkv_.as<float>()) v = 0.1F * small(seed);
  for (float& v : gates_.as<float>()) v = 0.5F + 0.9F * small(seed);
  for (float& v : state_.as<float>()) v = small(seed);
}

void GdnWorkload::run() {
  const auto t = static_cast<std::size_t>(tokens_);
  const auto key = static_cast<std::size_t>(key_dim_);
  const auto value = static_cast<std::size_t>(value_dim_);
  pool_.parallel(static_cast<std::size_t>(heads_), [&](std::size_t head, std::size_t) {
    kernels::GdnArgs args{};
    const float* qkv = qkv_.as<float>().data() + head * t * (2 * key + value);
    args.q = qkv;
    args.k = qkv + key;
    args.v = qkv + 2 * key;
    args.ldq = args.ldk = args.ldv = 2 * key + value;
    args.decay = args.beta = gates_.as<float>().data() + head * t;
    args.ld_decay = args.ld_beta = 1;
    args.state = state_.as<float>().data() + head * key * value;
    args.value_stride = value;
    args.out = out_.as<float>().data() + head * t * value;
    args.ldo = value;
    args.tokens = tokens_;
    args.key_dim = key_dim_;
    args.value_dim = value_dim_;
    table_.gdn(&args);
  });
}

ReadWorkload::ReadWorkload(platform::ThreadPool& pool, std::size_t bytes) : pool_(pool), buffer_(allocate(bytes)) {
  fill_bf16(pool, buffer_);
}

void ReadWorkload::run() {
  using Words = std::uint64_t __attribute__((vector_size(16)));
  constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
  std::atomic<std::uint64_t> total{0};
  pool_.parallel(buffer_.size() / kPieceBytes, [&](std::size_t piece, std::size_t) {
    const auto* from = reinterpret_cast<const Words*>(buffer_.data() + piece * kPieceBytes);
    Words sums[8] = {};
    for (std::size_t i = 0; i < kPieceBytes / sizeof(Words); i += 8) {
      for (std::size_t j = 0; j < 8; ++j) sums[j] += from[i + j];
    }
    for (const Words& s : sums) total += s[0] + s[1];
  });
  checksum_ = total;
}

}  // namespace sterling::bench
