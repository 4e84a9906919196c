// Same request, same bits: alone or among others, whole or in chunks, on one thread or several, on every kernel tier this machine has.
// The yardstick is equality of every logit's bits with one plain run: scalar tier, one thread, whole prompt, nobody else.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "formats/checkpoint.h"
#include "kernels/dispatch.h"
#include "model/model.h"
#include "platform/thread_pool.h"

namespace sterling::model {
namespace {

constexpr std::int32_t kMaxTokens = 96;  // of one sequence
constexpr std::int32_t kDecodeSteps = 6;
constexpr std::int32_t kSequences = 8;
constexpr std::int32_t kBlocksEach = (kMaxTokens + plan::kBlockTokens - 1) / plan::kBlockTokens;

struct Subject {
  std::unique_ptr<platform::ThreadPool> pool;
  std::unique_ptr<backend::Backend> backend;
  std::unique_ptr<Model> model;
};

Subject load(const std::string& family, const kernels::KernelTable* table, std::size_t threads) {
  Subject subject;
  auto checkpoint =
      formats::Checkpoint::open(std::string(STERLING_SOURCE_DIR) + "/tests/golden/" + family + "/checkpoint");
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  platform::ThreadPool::Options options;
  options.threads = threads;
  subject.pool = std::move(*platform::ThreadPool::create(options));
  subject.backend = backend::make_cpu_backend({backend::Compute::kBf16, table, subject.pool.get()});
  auto model = Model::load(*checkpoint, *subject.backend, {});
  EXPECT_TRUE(model.ok()) << model.error().message;
  subject.model = std::move(*model);
  const Status status = subject.model->configure({.kv_blocks = kBlocksEach * kSequences,
                                                  .state_slots = kSequences,
                                                  .max_batch_tokens = kMaxTokens * kSequences,
                                                  .max_batch_slices = kSequences,
                                                  .max_sequence_tokens = kMaxTokens});
  EXPECT_TRUE(status.ok());
  return subject;
}

// A sequence with its place in the pools.
struct Sequence {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> blocks;
  std::int32_t slot = 0;
  std::int32_t done = 0;
};

std::vector<std::int32_t> random_tokens(std::uint32_t seed, std::int32_t count, std::int32_t vocab) {
  std::mt19937 generator(seed);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(generator() % static_cast<std::uint32_t>(vocab));
  return tokens;
}

Sequence make_sequence(std::vector<std::int32_t> tokens, std::int32_t place) {
  Sequence sequence{std::move(tokens), std::vector<std::int32_t>(kBlocksEach), place, 0};
  std::iota(sequence.blocks.rbegin(), sequence.blocks.rend(), place * kBlocksEach);
  return sequence;
}

// One step: `counts[i]` new tokens of sequence i (0: not in the step). Returns the logits after each one's last token.
std::vector<std::vector<float>> step(Model& model, std::vector<Sequence>& sequences,
                                     const std::vector<std::int32_t>& counts) {
  std::vector<SequenceSlice> slices;
  std::vector<std::int32_t> last(sequences.size());
  std::vector<std::size_t> who;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    if (counts[i] == 0) continue;
    Sequence& sequence = sequences[i];
    last[i] = counts[i] - 1;
    SequenceSlice slice;
    slice.tokens = std::span(sequence.tokens)
                       .subspan(static_cast<std::size_t>(sequence.done), static_cast<std::size_t>(counts[i]));
    slice.start_position = sequence.done;
    slice.block_table = sequence.blocks;
    slice.state_slot = sequence.slot;
    slice.logit_rows = std::span(&last[i], 1);
    slices.push_back(slice);
    who.push_back(i);
    sequence.done += counts[i];
  }
  const auto vocab = static_cast<std::size_t>(model.limits().vocab_size);
  std::vector<float> logits(slices.size() * vocab);
  const Status status = model.forward(BatchView{slices}, logits);
  EXPECT_TRUE(status.ok());
  std::vector<std::vector<float>> result(sequences.size());
  for (std::size_t k = 0; k < who.size(); ++k) {
    result[who[k]].assign(logits.begin() + static_cast<std::ptrdiff_t>(k * vocab),
                          logits.begin() + static_cast<std::ptrdiff_t>((k + 1) * vocab));
  }
  return result;
}

// Logits after the prompt and after each of the following tokens, prompt cut into chunks.
std::vector<std::vector<float>> run_alone(Model& model, const std::vector<std::int32_t>& tokens, std::int32_t prompt,
                                          std::int32_t chunk, std::int32_t place) {
  std::vector<Sequence> sequences{make_sequence(tokens, place)};
  std::vector<std::vector<float>> result;
  while (sequences[0].done < static_cast<std::int32_t>(tokens.size())) {
    const std::int32_t count = sequences[0].done < prompt ? std::min(chunk, prompt - sequences[0].done) : 1;
    auto logits = step(model, sequences, {count});
    if (sequences[0].done >= prompt) result.push_back(std::move(logits[0]));
  }
  return result;
}

void expect_same_bits(const std::vector<std::vector<float>>& expected, const std::vector<std::vector<float>>& actual,
                      const std::string& what) {
  ASSERT_EQ(expected.size(), actual.size()) << what;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(expected[i].size(), actual[i].size()) << what;
    ASSERT_EQ(std::memcmp(expected[i].data(), actual[i].data(), expected[i].size() * sizeof(float)), 0)
        << what << ": logits differ at step " << i;
  }
}

class Determinism : public testing::TestWithParam<const char*> {};

TEST_P(Determinism, SameBitsWhateverTheScheduleThreadsAndTier) {
  const std::string family = GetParam();
  const Subject plain = load(family, *kernels::select("scalar"), 1);
  const std::int32_t vocab = plain.model->limits().vocab_size;
  std::vector<std::vector<std::int32_t>> texts;
  std::vector<std::int32_t> prompts;
  std::vector<std::vector<std::vector<float>>> expected;
  for (std::int32_t i = 0; i < kSequences; ++i) {
    prompts.push_back(1 + i * 11);  // 1 … 78, around block edges
    texts.push_back(random_tokens(static_cast<std::uint32_t>(100 + i), prompts.back() + kDecodeSteps, vocab));
    expected.push_back(run_alone(*plain.model, texts.back(), prompts.back(), kMaxTokens, i));
    ASSERT_EQ(expected.back().size(), static_cast<std::size_t>(kDecodeSteps + 1));
  }

  for (const kernels::TierState& tier : kernels::inspect_tiers()) {
    if (!tier.usable) continue;
    const kernels::KernelTable* table = tier.tier.table();
    for (const std::size_t threads : {std::size_t{1}, std::size_t{2}, std::size_t{3}}) {
      const std::string where = std::string(table->name) + ", " + std::to_string(threads) + " threads";
      const Subject subject = load(family, table, threads);
      for (const std::int32_t chunk : {1, 7, 64}) {
        const std::size_t i = 6;
        expect_same_bits(expected[i], run_alone(*subject.model, texts[i], prompts[i], chunk, 2),
                         where + ", chunks of " + std::to_string(chunk));
      }
      // All at once, in random portions: prefill chunks of some beside decode rows of others.
      std::mt19937 generator(static_cast<std::uint32_t>(threads));
      std::vector<Sequence> sequences;
      for (std::int32_t i = 0; i < kSequences; ++i)
        sequences.push_back(make_sequence(texts[static_cast<std::size_t>(i)], i));
      std::vector<std::vector<std::vector<float>>> actual(kSequences);
      for (bool open = true; open;) {
        open = false;
        std::vector<std::int32_t> counts(kSequences);
        for (std::size_t i = 0; i < kSequences; ++i) {
          const std::int32_t left = static_cast<std::int32_t>(texts[i].size()) - sequences[i].done;
          if (left == 0 || generator() % 4 == 0) {
            open = open || left > 0;
            continue;
          }
          open = true;
          const std::int32_t to_prompt = prompts[i] - sequences[i].done;
          counts[i] = to_prompt > 0 ? std::min(to_prompt, static_cast<std::int32_t>(1 + generator() % 40)) : 1;
        }
        if (std::all_of(counts.begin(), counts.end(), [](std::int32_t n) { return n == 0; })) continue;
        auto logits = step(*subject.model, sequences, counts);
        for (std::size_t i = 0; i < kSequences; ++i) {
          if (counts[i] > 0 && sequences[i].done >= prompts[i]) actual[i].push_back(std::move(logits[i]));
        }
      }
      for (std::size_t i = 0; i < kSequences; ++i) {
        expect_same_bits(expected[i], actual[i], where + ", among eight, sequence " + std::to_string(i));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Determinism,
                         testing::Values("llama", "qwen2", "qwen3", "qwen3_5", "qwen3_5_text", "qwen3_moe",
                                         "qwen3_next", "qwen3_5_moe"));

}  // namespace
}  // namespace sterling::model
