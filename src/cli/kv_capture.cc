#include "cli/kv_capture.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace sterling::cli {
namespace {

constexpr std::int64_t kChunk = 512;

}  // namespace

Expected<KvCapture> KvCapture::create(Runtime runtime, std::int64_t longest) {
  KvCapture capture(std::move(runtime));
  capture.chunk_ = static_cast<std::int32_t>(std::min(kChunk, longest));
  backend::PoolOptions pools;
  pools.max_batch_tokens = capture.chunk_;
  pools.max_batch_slices = 1;
  pools.max_sequence_tokens = static_cast<std::int32_t>(longest);
  pools.state_slots = 1;
  pools.kv_blocks = static_cast<std::int32_t>((longest + plan::kBlockTokens - 1) / plan::kBlockTokens);
  pools.kv = plan::KvFormat{plan::KvType::kFp32, plan::KvType::kFp32};
  if (Status status = capture.runtime_.model->configure(pools); !status) return status.error();
  capture.blocks_.resize(static_cast<std::size_t>(pools.kv_blocks));
  std::iota(capture.blocks_.begin(), capture.blocks_.end(), 0);
  return capture;
}

Status KvCapture::run(std::span<const std::int32_t> tokens, const Take& take) {
  model::Model& model = *runtime_.model;
  const auto n = static_cast<std::int32_t>(tokens.size());
  for (std::int32_t begin = 0; begin < n; begin += chunk_) {
    SequenceSlice slice;
    slice.tokens =
        tokens.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(std::min(chunk_, n - begin)));
    slice.start_position = begin;
    slice.block_table = blocks_;
    slice.state_slot = model.limits().state_slots > 0 ? 0 : -1;
    if (Status status = model.forward(BatchView{std::span(&slice, 1)}, {}); !status) return status;
  }
  std::int64_t index = 0;
  for (std::int32_t layer = 0; layer < model.spec().layer_count(); ++layer) {
    if (model.spec().layers[static_cast<std::size_t>(layer)] != LayerKind::kFullAttention) continue;
    for (const bool value : {false, true}) {
      if (Status status = take(index, value, model.read_kv(layer, blocks_, n, value)); !status) return status;
    }
    ++index;
  }
  return {};
}

}  // namespace sterling::cli
