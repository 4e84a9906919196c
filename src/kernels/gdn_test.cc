// Gated DeltaNet and its convolution: every tier against the contract in plain loops; one call against one call per token.
#include <algorithm>

#include "kernels/test_support.h"

namespace sterling::kernels {
namespace {

struct Problem {
  Problem(int tokens_, int key_dim_, int value_dim_, std::uint64_t seed)
      : tokens(tokens_), key_dim(key_dim_), value_dim(value_dim_) {
    stride = static_cast<std::size_t>((value_dim + 15) / 16 * 16);
    Random random(seed);
    const auto fill = [&](std::vector<float>& to, std::size_t count, float scale) {
      to.resize(count);
      for (float& v : to) v = scale * random.hostile(false);
      for (float& v : to) v = std::fabs(v) > 100.0F ? 1.0F : v;
    };
    const auto t = static_cast<std::size_t>(tokens);
    fill(q, t * ldk(), 0.3F);
    fill(k, t * ldk(), 0.3F);
    fill(v, t * ldv(), 1.0F);
    for (std::size_t i = 0; i < t * 3; ++i) {
      decay.push_back(std::min(1.0F, std::fabs(random.normal())));
      beta.push_back(std::min(1.0F, std::fabs(random.normal())));
    }
    state.resize(static_cast<std::size_t>(key_dim) * stride, 0.0F);
    for (std::size_t i = 0; i < static_cast<std::size_t>(key_dim); ++i) {
      for (std::size_t j = 0; j < static_cast<std::size_t>(value_dim); ++j)
        state[i * stride + j] = random.hostile(false);
    }
    for (float& s : state) s = std::fabs(s) > 100.0F ? -1.0F : s;
  }
  // Row strides with room behind the row, as in a fused projection.
  std::size_t ldk() const { return static_cast<std::size_t>(key_dim) + 5; }
  std::size_t ldv() const { return static_cast<std::size_t>(value_dim) + 3; }

  void run(const KernelTable& table, int first, int count, std::vector<float>& s, std::vector<float>& out) const {
    GdnArgs a{};
    const auto at = static_cast<std::size_t>(first);
    a.q = q.data() + at * ldk();
    a.k = k.data() + at * ldk();
    a.v = v.data() + at * ldv();
    a.ldq = a.ldk = ldk();
    a.ldv = ldv();
    a.decay = decay.data() + at * 3;
    a.beta = beta.data() + at * 3;
    a.ld_decay = a.ld_beta = 3;
    a.state = s.data();
    a.value_stride = stride;
    a.out = out.data() + at * ldv();
    a.ldo = ldv();
    a.tokens = count;
    a.key_dim = key_dim;
    a.value_dim = value_dim;
    table.gdn(&a);
  }

  void expected(std::vector<float>& s, std::vector<float>& out) const {
    const auto rows = static_cast<std::size_t>(key_dim);
    for (std::size_t t = 0; t < static_cast<std::size_t>(tokens); ++t) {
      const std::vector<float> kt(k.begin() + static_cast<std::ptrdiff_t>(t * ldk()),
                                  k.begin() + static_cast<std::ptrdiff_t>(t * ldk() + rows));
      const std::vector<float> qt(q.begin() + static_cast<std::ptrdiff_t>(t * ldk()),
                                  q.begin() + static_cast<std::ptrdiff_t>(t * ldk() + rows));
      for (std::size_t j = 0; j < static_cast<std::size_t>(value_dim); ++j) {
        std::vector<float> column(rows);
        for (std::size_t i = 0; i < rows; ++i) column[i] = s[i * stride + j] * decay[t * 3];
        const float r = naive::quad_sum(kt, column);
        const float d = (v[t * ldv() + j] - r) * beta[t * 3];
        out[t * ldv() + j] = std::fmaf(naive::lane_dot(qt, kt), d, naive::quad_sum(qt, column));
        for (std::size_t i = 0; i < rows; ++i) column[i] = std::fmaf(kt[i], d, column[i]);
        for (std::size_t i = 0; i < rows; ++i) s[i * stride + j] = column[i];
      }
    }
  }

  int tokens, key_dim, value_dim;
  std::size_t stride;
  std::vector<float> q, k, v, decay, beta, state;
};

class Gdn : public PerTier {};

TEST_P(Gdn, EqualsThePlainRecurrence) {
  std::uint64_t seed = 1;
  for (const int key_dim : {1, 2, 3, 4, 5, 16, 31, 128, 600}) {  // 600: too long for the block buffer
    for (const int value_dim : {1, 15, 16, 17, 32, 48, 64, 128}) {
      for (const int tokens : {1, 2, 3}) {
        const Problem p(tokens, key_dim, value_dim, seed++);
        std::vector<float> state = p.state;
        std::vector<float> expected_state = p.state;
        std::vector<float> out(static_cast<std::size_t>(tokens) * p.ldv(), 9.0F);
        std::vector<float> expected_out = out;
        p.run(table(), 0, tokens, state, out);
        p.expected(expected_state, expected_out);
        STERLING_EXPECT_BITS(out, expected_out,
                             key_dim << "x" << value_dim << " tokens " << tokens << " out " << difference);
        STERLING_EXPECT_BITS(state, expected_state,
                             key_dim << "x" << value_dim << " tokens " << tokens << " state " << difference);
      }
    }
  }
}

// Chunks of any size leave the same state and outputs.
TEST_P(Gdn, ChunksGiveTheSameBits) {
  const Problem p(23, 128, 128, 99);
  std::vector<float> whole_state = p.state;
  std::vector<float> whole(static_cast<std::size_t>(p.tokens) * p.ldv());
  p.run(table(), 0, p.tokens, whole_state, whole);
  for (const int chunk : {1, 2, 7}) {
    std::vector<float> state = p.state;
    std::vector<float> out(whole.size());
    for (int first = 0; first < p.tokens; first += chunk)
      p.run(table(), first, std::min(chunk, p.tokens - first), state, out);
    STERLING_EXPECT_BITS(out, whole, "chunk " << chunk << " out " << difference);
    STERLING_EXPECT_BITS(state, whole_state, "chunk " << chunk << " state " << difference);
  }
}

// Against the recurrence in double, one step from a given state (over many steps errors grow with the data): every stored or returned
// value is a short formula, whose roundings are counted.
TEST_P(Gdn, OneStepWithinTheBoundOfDoublePrecision) {
  Problem p(1, 128, 64, 7);
  Random random(3);
  for (auto* values : {&p.q, &p.k, &p.v, &p.state}) {
    for (float& x : *values) x = 0.1F * random.normal();
  }
  std::vector<float> state = p.state;
  std::vector<float> out(p.ldv());
  p.run(table(), 0, 1, state, out);
  const double g = p.decay[0];
  for (std::size_t j = 0; j < 64; ++j) {
    double r = 0.0, r_magnitude = 0.0;
    for (std::size_t i = 0; i < 128; ++i) {
      const double term = p.k[i] * (p.state[i * p.stride + j] * g);
      r += term;
      r_magnitude += std::fabs(term);
    }
    const double d = (p.v[j] - r) * p.beta[0];
    const double d_error =
        (r_magnitude * 36 + std::fabs(p.v[j]) * 3) * 0x1p-24;  // 32 chain steps, 2 joins, decay, difference, beta
    double o = 0.0, o_error = 0.0;
    for (std::size_t i = 0; i < 128; ++i) {
      const double s = p.k[i] * d + p.state[i * p.stride + j] * g;
      const double s_error = std::fabs(p.k[i]) * d_error +
                             (std::fabs(p.k[i] * d) + 2 * std::fabs(p.state[i * p.stride + j] * g)) * 0x1p-23;
      ASSERT_LE(std::fabs(state[i * p.stride + j] - s), s_error) << i << ", " << j;
      o += p.q[i] * s;
      o_error += std::fabs(p.q[i]) * (s_error + std::fabs(s) * 36 * 0x1p-24);
    }
    ASSERT_LE(std::fabs(out[j] - o), o_error) << j;
  }
}

struct Conv {
  Conv(int tokens_, int channels_, int kernel_, std::uint64_t seed)
      : tokens(tokens_), channels(channels_), kernel(kernel_) {
    Random random(seed);
    const auto c = static_cast<std::size_t>(channels);
    u.resize(static_cast<std::size_t>(tokens) * ld());
    w.resize(static_cast<std::size_t>(kernel) * c);
    window.resize(static_cast<std::size_t>(kernel - 1) * c);
    for (auto* values : {&u, &w, &window}) {
      for (float& x : *values) x = random.hostile(false);
    }
  }
  std::size_t ld() const { return static_cast<std::size_t>(channels) + 7; }
  void run(const KernelTable& table, int first, int count, int begin, int end, std::vector<float>& win,
           std::vector<float>& out) const {
    ConvArgs a{};
    a.u = u.data() + static_cast<std::size_t>(first) * ld();
    a.ldu = ld();
    a.w = w.data();
    a.window = win.data();
    a.out = out.data() + static_cast<std::size_t>(first) * ld();
    a.ldo = ld();
    a.tokens = count;
    a.channels = channels;
    a.channel_begin = begin;
    a.channel_end = end;
    a.kernel = kernel;
    table.conv_silu(&a);
  }
  void expected(std::vector<float>& win, std::vector<float>& out) const {
    const auto c = static_cast<std::size_t>(channels);
    std::vector<std::vector<float>> inputs;
    for (int j = 0; j < kernel - 1; ++j)
      inputs.emplace_back(win.begin() + std::ptrdiff_t{j} * channels, win.begin() + std::ptrdiff_t{j + 1} * channels);
    for (int t = 0; t < tokens; ++t) {
      const auto begin = u.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(t) * ld());
      inputs.emplace_back(begin, begin + channels);
    }
    for (std::size_t t = 0; t < static_cast<std::size_t>(tokens); ++t) {
      for (std::size_t ch = 0; ch < c; ++ch) {
        float acc = 0.0F;
        for (std::size_t j = 0; j < static_cast<std::size_t>(kernel); ++j)
          acc = std::fmaf(w[j * c + ch], inputs[t + j][ch], acc);
        out[t * ld() + ch] = naive::silu(acc);
      }
    }
    for (std::size_t j = 0; j + 1 < static_cast<std::size_t>(kernel); ++j) {
      std::copy_n(inputs[inputs.size() - static_cast<std::size_t>(kernel - 1) + j].begin(), channels,
                  win.begin() + static_cast<std::ptrdiff_t>(j * c));
    }
  }
  int tokens, channels, kernel;
  std::vector<float> u, w, window;
};

class ConvSilu : public PerTier {};

TEST_P(ConvSilu, EqualsThePlainLoops) {
  std::uint64_t seed = 1;
  for (int kernel = 2; kernel <= 8; ++kernel) {
    for (const int tokens : {1, 2, 3, 4, 9}) {
      for (const int channels : {1, 16, 21, 48}) {
        const Conv conv(tokens, channels, kernel, seed++);
        std::vector<float> window = conv.window, expected_window = conv.window;
        std::vector<float> out(static_cast<std::size_t>(tokens) * conv.ld(), 3.0F);
        std::vector<float> expected = out;
        conv.expected(expected_window, expected);
        // Channel ranges in any order, as threads take them.
        const int middle = channels > 16 ? 16 : channels;
        conv.run(table(), 0, tokens, middle, channels, window, out);
        conv.run(table(), 0, tokens, 0, middle, window, out);
        STERLING_EXPECT_BITS(
            out, expected,
            "kernel " << kernel << " tokens " << tokens << " channels " << channels << " at " << difference);
        STERLING_EXPECT_BITS(window, expected_window,
                             "window, kernel " << kernel << " tokens " << tokens << " at " << difference);
      }
    }
  }
}

TEST_P(ConvSilu, TokenByTokenGivesTheSameBits) {
  const Conv conv(11, 40, 4, 5);
  std::vector<float> window = conv.window, step_window = conv.window;
  std::vector<float> out(11 * conv.ld()), step_out(11 * conv.ld());
  conv.run(table(), 0, 11, 0, 40, window, out);
  for (int t = 0; t < 11; ++t) conv.run(table(), t, 1, 0, 40, step_window, step_out);
  STERLING_EXPECT_BITS(step_out, out, "at " << difference);
  STERLING_EXPECT_BITS(step_window, window, "window at " << difference);
}

STERLING_FOR_EVERY_TIER(Gdn);
STERLING_FOR_EVERY_TIER(ConvSilu);

}  // namespace
}  // namespace sterling::kernels
