// What one row of Qwen3.5's vocabulary costs the sampler, by setting; and the row kernels by vector width.
#include "engine/sampler.h"

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "engine/row_kernels.h"

namespace sterling::bench {
namespace {

constexpr std::size_t kVocabSize = 248320;

// Rows like a model's: a wide bell, and a few tokens far above it. Several, so that no branch is learnt by heart.
std::vector<std::vector<float>> model_like_rows() {
  std::mt19937_64 random(1);
  std::normal_distribution<float> bell(0.0F, 2.5F);
  std::vector<std::vector<float>> rows(8);
  for (auto& row : rows) {
    row.resize(kVocabSize);
    for (float& x : row) x = bell(random);
    for (int i = 0; i < 5; ++i) row[random() % kVocabSize] = 18.0F - 2.0F * static_cast<float>(i);
  }
  return rows;
}

struct Case {
  const char* name;
  float temperature;
  std::int32_t top_k;
  float top_p;
  float min_p;
  std::int32_t top_logprobs;
};

constexpr Case kCases[] = {
    {"greedy", 0.0F, 0, 1.0F, 0.0F, -1},
    {"greedy/logprobs", 0.0F, 0, 1.0F, 0.0F, 0},
    {"greedy/logprobs/top:20", 0.0F, 0, 1.0F, 0.0F, 20},
    {"top_k:20/top_p:0.95", 0.7F, 20, 0.95F, 0.0F, -1},
    {"top_k:20/top_p:0.95/logprobs/top:5", 0.7F, 20, 0.95F, 0.0F, 5},
    {"top_p:0.95", 0.7F, 0, 0.95F, 0.0F, -1},
    {"min_p:0.05", 0.7F, 0, 1.0F, 0.05F, -1},
    {"untruncated", 1.0F, 0, 1.0F, 0.0F, -1},
    {"hot/top_p:0.95", 3.0F, 0, 0.95F, 0.0F, -1},  // a nucleus of most of the vocabulary: the worst case
};

void draw_rows(benchmark::State& state, const Case& setting) {
  auto rows = model_like_rows();
  engine::Sampler sampler;
  engine::SamplingParams params;
  params.temperature = setting.temperature;
  params.top_k = setting.top_k;
  params.top_p = setting.top_p;
  params.min_p = setting.min_p;
  engine::DrawRequest request;
  request.params = &params;
  request.top_logprobs = setting.top_logprobs;
  for (auto _ : state) {
    benchmark::DoNotOptimize(sampler.draw(rows[static_cast<std::size_t>(request.position) % rows.size()], request));
    ++request.position;
  }
}

void add_all() {
  for (const Case& setting : kCases) {
    benchmark::RegisterBenchmark((std::string("draw/") + setting.name).c_str(), [&setting](benchmark::State& state) {
      draw_rows(state, setting);
    })->Unit(benchmark::kMicrosecond);
  }
  for (const engine::RowKernels* kernels : engine::available_row_kernels()) {
    const std::string name = kernels->name;
    constexpr std::size_t kBlocks = kVocabSize / engine::kRowBlock;
    benchmark::RegisterBenchmark((name + "/scan").c_str(), [kernels](benchmark::State& state) {
      const std::vector<float> row = model_like_rows()[0];
      std::vector<float> maxima(kBlocks);
      for (auto _ : state) benchmark::DoNotOptimize(kernels->scan(row.data(), kBlocks, maxima.data()));
    })->Unit(benchmark::kMicrosecond);
    benchmark::RegisterBenchmark((name + "/sum_exp").c_str(), [kernels](benchmark::State& state) {
      const std::vector<float> row = model_like_rows()[0];
      std::vector<double> sums(kBlocks);
      for (auto _ : state) {
        kernels->sum_exp(row.data(), kBlocks, 18.0, 1.0, sums.data());
        benchmark::DoNotOptimize(sums.data());
      }
    })->Unit(benchmark::kMicrosecond);
  }
}

}  // namespace
}  // namespace sterling::bench

int main(int argc, char** argv) {
  sterling::bench::add_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
