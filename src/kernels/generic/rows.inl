// Row-wise and element-wise operations (contract.h).

inline int lanes_at(int i, int n) { return n - i < kLanes ? n - i : kLanes; }

// Lane sum of squares. A short last vector reads as zeros, which add nothing.
inline float sum_of_squares(const float* x, int n) {
  V sum = v_zero();
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const V v = v_load(x + i);
    sum = v_fma(v, v, sum);
  }
  if (i < n) {
    const V v = v_load_n(x + i, n - i);
    sum = v_fma(v, v, sum);
  }
  return v_sum(sum);
}

// 1 / sqrt(s): two roundings.
inline V reciprocal_root(float s) { return v_div(v_set(1.0f), v_sqrt(v_set(s))); }

void rms_norm(const float* x, size_t ldx, const float* w, float eps, int n, int rows, float* out, size_t ldo) {
  for (int row = 0; row < rows; ++row, x += ldx, out += ldo) {
    const V factor = reciprocal_root(sum_of_squares(x, n) / static_cast<float>(n) + eps);
    for (int i = 0; i < n; i += kLanes) {
      const int count = lanes_at(i, n);
      v_store_n(out + i, v_mul(v_mul(v_load_n(x + i, count), factor), v_load_n(w + i, count)), count);
    }
  }
}

void rms_norm_gated(const float* x, size_t ldx, const float* z, size_t ldz, const float* w, float eps, int n, int rows, float* out,
                    size_t ldo) {
  for (int row = 0; row < rows; ++row, x += ldx, z += ldz, out += ldo) {
    const V factor = reciprocal_root(sum_of_squares(x, n) / static_cast<float>(n) + eps);
    for (int i = 0; i < n; i += kLanes) {
      const int count = lanes_at(i, n);
      const V y = v_mul(v_mul(v_load_n(x + i, count), factor), v_load_n(w + i, count));
      v_store_n(out + i, v_mul(y, v_silu(v_load_n(z + i, count))), count);
    }
  }
}

void l2_norm(const float* x, size_t ldx, float eps, float scale, int n, int rows, float* out, size_t ldo) {
  for (int row = 0; row < rows; ++row, x += ldx, out += ldo) {
    const V factor = reciprocal_root(sum_of_squares(x, n) + eps);
    for (int i = 0; i < n; i += kLanes) {
      const int count = lanes_at(i, n);
      v_store_n(out + i, v_mul(v_mul(v_load_n(x + i, count), factor), v_set(scale)), count);
    }
  }
}

void rope(float* x, size_t ldx, const float* c, const float* s, int half, int rows) {
  for (int i = 0; i < half; i += kLanes) {
    const int count = lanes_at(i, half);
    const V cosine = v_load_n(c + i, count);
    const V sine = v_load_n(s + i, count);
    float* row = x + i;
    for (int r = 0; r < rows; ++r, row += ldx) {
      const V a = v_load_n(row, count);
      const V b = v_load_n(row + half, count);
      v_store_n(row, v_sub(v_mul(a, cosine), v_mul(b, sine)), count);
      v_store_n(row + half, v_add(v_mul(b, cosine), v_mul(a, sine)), count);
    }
  }
}

// out[i] = f(i-th vectors): the loop that all element-wise operations share.
template <class F>
inline void each(float* out, size_t n, const F& f) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) v_store(out + i, f(i, kLanes));
  if (i < n) v_store_n(out + i, f(i, static_cast<int>(n - i)), static_cast<int>(n - i));
}

void silu_mul(const float* gate, const float* up, float* out, size_t n) {
  each(out, n, [=](size_t i, int count) { return v_mul(v_silu(v_load_n(gate + i, count)), v_load_n(up + i, count)); });
}

void sigmoid_mul(const float* x, const float* gate, float* out, size_t n) {
  each(out, n, [=](size_t i, int count) { return v_mul(v_load_n(x + i, count), v_sigmoid(v_load_n(gate + i, count))); });
}

void add(const float* a, const float* b, float* out, size_t n) {
  each(out, n, [=](size_t i, int count) { return v_add(v_load_n(a + i, count), v_load_n(b + i, count)); });
}

void scale_add(const float* x, float scale, float* out, size_t n) {
  const V factor = v_set(scale);
  each(out, n, [=](size_t i, int count) { return v_fma(v_load_n(x + i, count), factor, v_load_n(out + i, count)); });
}

void gdn_gates(const float* a, const float* b, const float* exp_a_log, const float* dt_bias, float* decay, float* beta, int heads) {
  const size_t n = static_cast<size_t>(heads);
  each(decay, n, [=](size_t i, int count) {
    const V rate = v_softplus(v_add(v_load_n(a + i, count), v_load_n(dt_bias + i, count)));
    return v_exp(v_sub(v_zero(), v_mul(v_load_n(exp_a_log + i, count), rate)));
  });
  each(beta, n, [=](size_t i, int count) { return v_sigmoid(v_load_n(b + i, count)); });
}

void exp_array(const float* x, float* out, size_t n) {
  each(out, n, [=](size_t i, int count) { return v_exp(v_load_n(x + i, count)); });
}

void log_array(const float* x, float* out, size_t n) {
  each(out, n, [=](size_t i, int count) { return v_log(v_load_n(x + i, count)); });
}

// Token by token over the channels, so that memory is read in order; the window of earlier inputs is re-read from the cache.
void conv_silu(const ConvArgs* args) {
  const ConvArgs& a = *args;
  const int before = a.kernel - 1;
  const size_t channels = static_cast<size_t>(a.channels);
  // Input number `index`, counted from the first token of this call; negative: from the window.
  const auto input = [&](int index) {
    return index >= 0 ? a.u + static_cast<size_t>(index) * a.ldu : a.window + static_cast<size_t>(before + index) * channels;
  };
  for (int t = 0; t < a.tokens; ++t) {
    const float* rows[8];
    for (int j = 0; j < a.kernel; ++j) rows[j] = input(t - before + j);
    float* out = a.out + static_cast<size_t>(t) * a.ldo;
    for (int ch = a.channel_begin; ch < a.channel_end; ch += kLanes) {
      const int count = lanes_at(ch, a.channel_end);
      V sum = v_zero();
      for (int j = 0; j < a.kernel; ++j) {
        sum = v_fma(v_load_n(a.w + static_cast<size_t>(j) * channels + ch, count), v_load_n(rows[j] + ch, count), sum);
      }
      v_store_n(out + ch, v_silu(sum), count);
    }
  }
  // Ascending: a window row may be the source of an earlier one.
  for (int j = 0; j < before; ++j) {
    const float* source = input(a.tokens - before + j);
    float* target = a.window + static_cast<size_t>(j) * channels;
    for (int ch = a.channel_begin; ch < a.channel_end; ch += kLanes) {
      const int count = lanes_at(ch, a.channel_end);
      v_store_n(target + ch, v_load_n(source + ch, count), count);
    }
  }
}
