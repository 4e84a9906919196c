// Row-wise and element-wise operations, and the step's bookkeeping.
#include <algorithm>
#include <cstring>

#include "backend/cpu/cpu_backend_impl.h"
#include "base/check.h"
#include "base/float_types.h"
#include "kernels/rope_table.h"

namespace sterling::backend {
namespace {

// Row `row` of a panel matrix as FP32 (tied embeddings).
void read_panel_row(const PackedLinear& linear, std::int64_t row, float* out) {
  const std::int64_t lane = row % kernels::kLanes;
  const std::byte* panel = linear.panels.data() + row / kernels::kLanes * linear.panel_bytes;
  if (linear.type == PanelType::kCoded) {
    decode_coded_row(linear, row, out);
  } else if (linear.type == PanelType::kBf16) {
    const auto* values = reinterpret_cast<const bf16*>(panel);
    for (std::int64_t i = 0; i < linear.k; ++i)
      out[i] = to_float(values[((i / 2) * kernels::kLanes + lane) * 2 + i % 2]);
  } else {
    const auto* values = reinterpret_cast<const float*>(panel);
    for (std::int64_t i = 0; i < linear.k; ++i) out[i] = values[i * kernels::kLanes + lane];
  }
}

void read_table_row(const Embedding& table, std::int64_t row, float* out) {
  if (table.dtype == DType::kBF16) {
    const auto* values = reinterpret_cast<const bf16*>(table.rows.data()) + row * table.k;
    for (std::int64_t i = 0; i < table.k; ++i) out[i] = to_float(values[i]);
  } else {
    std::memcpy(out, reinterpret_cast<const float*>(table.rows.data()) + row * table.k,
                static_cast<std::size_t>(table.k) * sizeof(float));
  }
}

}  // namespace

void CpuBackend::begin_step(const BatchView& batch) {
  slices_ = batch.slices;
  positions_.clear();
  slice_begin_.clear();
  for (const SequenceSlice& slice : slices_) {
    slice_begin_.push_back(static_cast<std::int32_t>(positions_.size()));
    for (std::size_t i = 0; i < slice.tokens.size(); ++i) {
      positions_.push_back(slice.start_position + static_cast<std::int32_t>(i));
    }
    if (states_.slots() > 0 && slice.start_position == 0) {
      STERLING_CHECK(slice.state_slot >= 0 && slice.state_slot < states_.slots());
      states_.clear(slice.state_slot);
    }
  }
  STERLING_CHECK(static_cast<std::int64_t>(positions_.size()) <= pools_.max_batch_tokens);
  const auto tokens = static_cast<std::int64_t>(positions_.size());
  for (Rope& rope : ropes_) {
    const auto half = static_cast<std::int64_t>(rope.inverse_frequencies.size());
    parallel_rows(tokens, half * 64, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) {
        kernels::rope_cos_sin(positions_[static_cast<std::size_t>(t)], rope.inverse_frequencies.data(),
                              static_cast<int>(half), rope.cosines.data() + t * half, rope.sines.data() + t * half);
      }
    });
  }
}

void CpuBackend::embed(EmbeddingId id, Matrix out) {
  const Embedding& table = embeddings_[static_cast<std::size_t>(id.index)];
  std::int64_t row = 0;
  for (const SequenceSlice& slice : slices_) {
    const std::int64_t first = row;
    parallel_rows(static_cast<std::int64_t>(slice.tokens.size()), table.k, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) {
        float* target = out.data + (first + t) * out.ld;
        const std::int64_t token = slice.tokens[static_cast<std::size_t>(t)];
        if (table.tied_linear >= 0) {
          read_panel_row(linears_[static_cast<std::size_t>(table.tied_linear)], token, target);
        } else {
          read_table_row(table, token, target);
        }
      }
    });
    row += static_cast<std::int64_t>(slice.tokens.size());
  }
}

void CpuBackend::rms_norm(Matrix x, VectorId weight, float eps, Matrix out) {
  const float* w = vectors_[static_cast<std::size_t>(weight.index)].data();
  parallel_rows(x.rows, x.cols, [&](std::int64_t begin, std::int64_t end) {
    kernels_.rms_norm(x.data + begin * x.ld, static_cast<std::size_t>(x.ld), w, eps, static_cast<int>(x.cols),
                      static_cast<int>(end - begin), out.data + begin * out.ld, static_cast<std::size_t>(out.ld));
  });
}

void CpuBackend::head_norm(Matrix x, std::int64_t width, VectorId weight, float eps) {
  const float* w = vectors_[static_cast<std::size_t>(weight.index)].data();
  const auto heads = static_cast<int>(x.cols / width);
  parallel_rows(x.rows, x.cols, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      float* row = x.data + t * x.ld;
      kernels_.rms_norm(row, static_cast<std::size_t>(width), w, eps, static_cast<int>(width), heads, row,
                        static_cast<std::size_t>(width));
    }
  });
}

void CpuBackend::rope(Matrix x, std::int64_t heads, std::int64_t head_dim, RopeId id) {
  const Rope& rope = ropes_[static_cast<std::size_t>(id.index)];
  const auto half = static_cast<std::int64_t>(rope.inverse_frequencies.size());
  parallel_rows(x.rows, x.cols, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      kernels_.rope(x.data + t * x.ld, static_cast<std::size_t>(head_dim), rope.cosines.data() + t * half,
                    rope.sines.data() + t * half, static_cast<int>(half), static_cast<int>(heads));
    }
  });
}

void CpuBackend::silu_mul(Matrix gate, Matrix up, Matrix out) {
  parallel_rows(gate.rows, gate.cols, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      kernels_.silu_mul(gate.data + t * gate.ld, up.data + t * up.ld, out.data + t * out.ld,
                        static_cast<std::size_t>(gate.cols));
    }
  });
}

void CpuBackend::sigmoid_mul(Matrix x, Matrix gate, Matrix out) {
  parallel_rows(x.rows, x.cols, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      kernels_.sigmoid_mul(x.data + t * x.ld, gate.data + t * gate.ld, out.data + t * out.ld,
                           static_cast<std::size_t>(x.cols));
    }
  });
}

void CpuBackend::add(Matrix x, Matrix y, Matrix out) {
  parallel_rows(x.rows, x.cols, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      kernels_.add(x.data + t * x.ld, y.data + t * y.ld, out.data + t * out.ld, static_cast<std::size_t>(x.cols));
    }
  });
}

Matrix CpuBackend::gather_logit_rows(Matrix x, Matrix out) {
  std::int64_t row = 0;
  for (std::size_t s = 0; s < slices_.size(); ++s) {
    for (const std::int32_t offset : slices_[s].logit_rows) {
      std::memcpy(out.data + row * out.ld, x.data + (slice_begin_[s] + offset) * x.ld,
                  static_cast<std::size_t>(x.cols) * sizeof(float));
      ++row;
    }
  }
  return Matrix{out.data, row, x.cols, out.ld};
}

std::vector<float> CpuBackend::read(Matrix x) const {
  std::vector<float> values(static_cast<std::size_t>(x.rows * x.cols));
  for (std::int64_t row = 0; row < x.rows; ++row) {
    std::memcpy(values.data() + row * x.cols, x.data + row * x.ld, static_cast<std::size_t>(x.cols) * sizeof(float));
  }
  return values;
}

}  // namespace sterling::backend
