// What a model keeps in memory while it serves, whatever its family and whoever runs it: keys and values per token, recurrent state per
// sequence. The capacity rules of every engine start from this; they differ in how bytes become pools.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "plan/kv_format.h"
#include "spec/model_spec.h"

namespace sterling::plan {

// Equal attention layers.
struct AttentionCache {
  std::int64_t layers = 0;
  std::int64_t kv_heads = 0;
  std::int64_t k_dim = 0;  // of a head; of a latent cache the whole vector
  std::int64_t v_dim = 0;
  bool latent = false;  // multi-head latent attention: one vector per token that all heads share, whole on every rank
  std::int64_t window = 0;  // sliding window in tokens; 0: the cache grows with the sequence
};

// Equal Gated DeltaNet layers.
struct RecurrentCache {
  std::int64_t layers = 0;
  std::int64_t key_heads = 0;
  std::int64_t value_heads = 0;
  std::int64_t key_dim = 0;
  std::int64_t value_dim = 0;
  std::int64_t conv_columns = 0;  // kernel - 1: the inputs that the convolution still needs

  std::int64_t conv_channels() const { return 2 * key_heads * key_dim + value_heads * value_dim; }
};

struct CacheShape {
  std::int64_t heads = 0;  // query heads; 0: not known
  std::int64_t max_position_embeddings = 0;
  // Empty where the configuration does not say enough (sizes that differ by layer, an unknown kind of layer).
  std::optional<std::vector<AttentionCache>> attention;
  bool state_known = true;              // false: there is a recurrent state of a kind that has no formula here
  std::optional<RecurrentCache> state;  // empty and known: the model has none
};

CacheShape cache_shape(const ModelSpec& spec);

// What one of `ranks` tensor-parallel ranks keeps. Query heads, Gated DeltaNet heads and channels are divided; KV heads too, and where there are more
// ranks than KV heads each rank holds a copy of one; a latent cache is whole on every rank. kInvalidArgument, `where` "--tp": it does not divide.
Expected<CacheShape> rank_slice(const CacheShape& shape, std::int32_t ranks);
// The same of a whole description: the sizes that the rank's pools and operations have. Weights are not its matter.
Expected<ModelSpec> rank_slice(const ModelSpec& spec, std::int32_t ranks);

// Bytes of stored K and V. Sixteen elements are the unit, because 4-bit types carry a scale byte for as many.
struct KvStorage {
  std::string name;
  std::int64_t k_bytes_per_16 = 0;
  std::int64_t v_bytes_per_16 = 0;
  std::int64_t k_scale_bytes = 0;  // per token and head
  std::int64_t v_scale_bytes = 0;
};
KvStorage kv_storage(const KvFormat& format);

// One token of one layer.
std::int64_t kv_bytes_per_token_layer(const AttentionCache& layer, const KvStorage& storage);
// One token of all layers whose cache grows with the sequence.
std::int64_t kv_bytes_per_token(const CacheShape& shape, const KvStorage& storage);
// The full windows of one sequence, all sliding layers.
std::int64_t window_bytes_per_sequence(const CacheShape& shape, const KvStorage& storage);
// Layers of the kind.
std::int64_t growing_layers(const CacheShape& shape);
std::int64_t sliding_layers(const CacheShape& shape);

// FP32 recurrent state and a convolution window of `conv_bytes` per element.
std::int64_t state_bytes_per_layer(const RecurrentCache& state, std::int64_t conv_bytes);
std::int64_t state_bytes_per_sequence(const CacheShape& shape, std::int64_t conv_bytes);

}  // namespace sterling::plan
