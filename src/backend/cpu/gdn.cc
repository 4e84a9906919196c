// Gated DeltaNet layers: convolution, gates, delta rule, gated norm. Each value head of each sequence runs token by token on one thread.
#include <algorithm>
#include <cmath>

#include "backend/cpu/cpu_backend_impl.h"
#include "base/check.h"

namespace sterling::backend {
namespace {

constexpr std::int64_t kChannelsPerTask = 256;  // a multiple of 16
constexpr float kL2Epsilon = 1e-6F;             // model-defined (HF l2norm), added to the sum of squares

}  // namespace

void CpuBackend::gdn(const GdnArgs& args, Matrix qkv, Matrix z, Matrix a, Matrix b, Matrix out) {
  const GdnSpec& spec = *args.spec;
  const std::int64_t channels = spec.conv_channels();
  const std::int64_t key_width = std::int64_t{spec.key_heads} * spec.key_dim;
  const std::int64_t tokens = qkv.rows;
  float* const conv = conv_out_.as<float>().data();
  float* const decay = gates_.as<float>().data();
  float* const beta = decay + std::int64_t{pools_.max_batch_tokens} * spec.value_heads;

  const std::int64_t blocks = (channels + kChannelsPerTask - 1) / kChannelsPerTask;
  const float* conv_weight = vectors_[static_cast<std::size_t>(args.conv.index)].data();
  pool_.parallel(slices_.size() * static_cast<std::size_t>(blocks), [&](std::size_t task, std::size_t) {
    const std::size_t s = task / static_cast<std::size_t>(blocks);
    const std::int64_t begin = static_cast<std::int64_t>(task) % blocks * kChannelsPerTask;
    const std::int64_t first = slice_begin_[s];
    kernels::ConvArgs call{};
    call.u = qkv.data + first * qkv.ld;
    call.ldu = static_cast<std::size_t>(qkv.ld);
    call.w = conv_weight;
    call.window = states_.window(args.state_layer, slices_[s].state_slot);
    call.out = conv + first * channels;
    call.ldo = static_cast<std::size_t>(channels);
    call.tokens = static_cast<int>(slices_[s].tokens.size());
    call.channels = static_cast<int>(channels);
    call.channel_begin = static_cast<int>(begin);
    call.channel_end = static_cast<int>(std::min(channels, begin + kChannelsPerTask));
    call.kernel = spec.conv_kernel;
    kernels_.conv_silu(&call);
  });

  const float q_scale = 1.0F / std::sqrt(static_cast<float>(spec.key_dim));
  const float* exp_a = vectors_[static_cast<std::size_t>(args.exp_a_log.index)].data();
  const float* dt_bias = vectors_[static_cast<std::size_t>(args.dt_bias.index)].data();
  parallel_rows(tokens, 2 * key_width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      float* q = conv + t * channels;
      float* k = q + key_width;
      const auto ld = static_cast<std::size_t>(spec.key_dim);
      kernels_.l2_norm(q, ld, kL2Epsilon, q_scale, spec.key_dim, spec.key_heads, q, ld);
      kernels_.l2_norm(k, ld, kL2Epsilon, 1.0F, spec.key_dim, spec.key_heads, k, ld);
      kernels_.gdn_gates(a.data + t * a.ld, b.data + t * b.ld, exp_a, dt_bias, decay + t * spec.value_heads,
                         beta + t * spec.value_heads, spec.value_heads);
    }
  });

  const float* norm = vectors_[static_cast<std::size_t>(args.norm.index)].data();
  const std::int64_t repeat = spec.value_heads / spec.key_heads;
  pool_.parallel(slices_.size() * static_cast<std::size_t>(spec.value_heads), [&](std::size_t task, std::size_t) {
    const std::size_t s = task / static_cast<std::size_t>(spec.value_heads);
    const auto head = static_cast<std::int64_t>(task % static_cast<std::size_t>(spec.value_heads));
    const std::int64_t first = slice_begin_[s];
    const auto count = static_cast<int>(slices_[s].tokens.size());
    const float* row = conv + first * channels;
    kernels::GdnArgs call{};
    call.q = row + head / repeat * spec.key_dim;
    call.k = call.q + key_width;
    call.v = row + 2 * key_width + head * spec.value_dim;
    call.ldq = call.ldk = call.ldv = static_cast<std::size_t>(channels);
    call.decay = decay + first * spec.value_heads + head;
    call.beta = beta + first * spec.value_heads + head;
    call.ld_decay = call.ld_beta = static_cast<std::size_t>(spec.value_heads);
    call.state = states_.state(args.state_layer, slices_[s].state_slot, static_cast<std::int32_t>(head));
    call.value_stride = static_cast<std::size_t>(states_.row_stride());
    call.out = out.data + first * out.ld + head * spec.value_dim;
    call.ldo = static_cast<std::size_t>(out.ld);
    call.tokens = count;
    call.key_dim = spec.key_dim;
    call.value_dim = spec.value_dim;
    kernels_.gdn(&call);
    kernels_.rms_norm_gated(call.out, call.ldo, z.data + first * z.ld + head * spec.value_dim,
                            static_cast<std::size_t>(z.ld), norm, args.norm_eps, spec.value_dim, count, call.out,
                            call.ldo);
  });
}

std::vector<float> CpuBackend::read_state(const GdnArgs& args, std::int32_t slot) const {
  const GdnSpec& spec = *args.spec;
  std::vector<float> result;
  result.reserve(static_cast<std::size_t>(spec.value_heads) * static_cast<std::size_t>(spec.key_dim * spec.value_dim));
  for (std::int32_t head = 0; head < spec.value_heads; ++head) {
    const float* state = states_.state(args.state_layer, slot, head);
    for (std::int32_t i = 0; i < spec.key_dim; ++i) {
      const float* row = state + std::int64_t{i} * states_.row_stride();
      result.insert(result.end(), row, row + spec.value_dim);
    }
  }
  return result;
}

std::vector<float> CpuBackend::read_conv_window(const GdnArgs& args, std::int32_t slot) const {
  const std::int64_t floats = std::int64_t{args.spec->conv_kernel - 1} * args.spec->conv_channels();
  const float* window = states_.window(args.state_layer, slot);
  return {window, window + floats};
}

}  // namespace sterling::backend
