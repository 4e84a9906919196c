// Routing and the sum over experts, on numbers small enough to check by hand.
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "kernels/dispatch.h"
#include "platform/thread_pool.h"

namespace sterling::backend {
namespace {

constexpr std::int64_t kHidden = 3;
constexpr std::int64_t kInner = 5;
constexpr std::int32_t kExperts = 4;

double silu(double x) {
  return x / (1.0 + std::exp(-x));
}

struct Fixture {
  std::unique_ptr<platform::ThreadPool> pool;
  std::unique_ptr<Backend> backend;
  MoeSpec spec;
  MoeArgs args;
  std::vector<std::vector<float>> gate, up, down;  // per expert, row-major

  explicit Fixture(std::int32_t per_token, bool renormalise) {
    platform::ThreadPool::Options options;
    options.threads = 2;
    pool = *platform::ThreadPool::create(options);
    backend = make_cpu_backend({Compute::kFp32, *kernels::select("scalar"), pool.get()});
    for (std::int32_t e = 0; e < kExperts; ++e) {
      gate.push_back(values(kInner * kHidden, 3 * e + 1));
      up.push_back(values(kInner * kHidden, 3 * e + 2));
      down.push_back(values(kHidden * kInner, 3 * e + 3));
    }
    args.gate = load(gate, kInner, kHidden);
    args.up = load(up, kInner, kHidden);
    args.down = load(down, kHidden, kInner);
    spec.experts = kExperts;
    spec.experts_per_token = per_token;
    spec.intermediate = kInner;
    spec.norm_topk = renormalise;
    args.spec = &spec;
    ModelSpec model;
    model.hidden_size = kHidden;
    model.moe = spec;
    PoolOptions pools;
    pools.max_batch_tokens = 200;
    pools.max_batch_slices = 1;
    EXPECT_TRUE(backend->configure(model, pools).ok());
  }

  static std::vector<float> values(std::int64_t count, int seed) {
    std::vector<float> out;
    for (std::int64_t i = 0; i < count; ++i) {
      out.push_back(static_cast<float>((i * 7 + seed * 5) % 13 - 6) / 8.0F);
    }
    return out;
  }

  LinearId load(const std::vector<std::vector<float>>& all, std::int64_t rows, std::int64_t columns) {
    std::vector<quant::StoredWeight> weights;
    for (const std::vector<float>& one : all) {
      TensorView view{"expert", DType::kF32, {rows, columns}, std::as_bytes(std::span(one)), "test"};
      weights.push_back(quant::plain_weight(view));
    }
    const LinearId first = *backend->reserve_linears(weights, {}, ProductInput::kActivation);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const LinearId id{first.index + static_cast<std::int32_t>(i)};
      EXPECT_TRUE(backend->fill_linear(id, weights[i], {}).ok());
    }
    return first;
  }

  std::vector<double> expert(std::int32_t e, const float* x) const {
    const auto at = static_cast<std::size_t>(e);
    std::vector<double> out(kHidden, 0.0);
    for (std::size_t i = 0; i < kInner; ++i) {
      double g = 0.0;
      double u = 0.0;
      for (std::size_t j = 0; j < kHidden; ++j) {
        g += static_cast<double>(gate[at][i * kHidden + j]) * static_cast<double>(x[j]);
        u += static_cast<double>(up[at][i * kHidden + j]) * static_cast<double>(x[j]);
      }
      for (std::size_t j = 0; j < kHidden; ++j) {
        out[j] += static_cast<double>(down[at][j * kInner + i]) * silu(g) * u;
      }
    }
    return out;
  }

  // Rows of `router` logits; returns out [tokens][hidden].
  std::vector<float> run(std::vector<float> x, std::vector<float> router, std::vector<float> shared = {},
                         std::vector<float> shared_gate = {}) {
    const auto tokens = static_cast<std::int64_t>(x.size()) / kHidden;
    std::vector<float> out(x.size(), -1.0F);
    const std::int64_t shared_rows = shared.empty() ? 0 : tokens;
    backend->moe(args, {x.data(), tokens, kHidden, kHidden}, {router.data(), tokens, kExperts, kExperts},
                 {shared.data(), shared_rows, kHidden, kHidden}, {shared_gate.data(), shared_rows, 1, 1},
                 {out.data(), tokens, kHidden, kHidden});
    return out;
  }
};

TEST(Moe, TiesGoToTheLowerId) {
  Fixture f(2, true);
  f.run({1, 0, 0, 0, 1, 0, 0, 0, 1}, {0.5F, 0.5F, 0.5F, 0.5F, 1, 2, 1, 2, 0, 0, 1, 0});
  const RouterChoices choices = f.backend->read_choices();
  EXPECT_EQ(choices.experts, (std::vector<std::int32_t>{0, 1, 1, 3, 2, 0}));
  EXPECT_EQ(choices.margins, (std::vector<float>{0, 1, 0}));
  EXPECT_EQ(choices.magnitudes, (std::vector<float>{0.5F, 2, 1}));
  EXPECT_EQ(choices.weights[0], 0.5F);
  EXPECT_EQ(choices.weights[1], 0.5F);
}

TEST(Moe, ProbabilitiesAreOverAllExpertsAndRenormalisedOnlyWhereTheFamilyDoes) {
  const std::vector<float> logits{0.0F, std::log(2.0F), std::log(4.0F), std::log(1.0F)};  // 1 : 2 : 4 : 1
  for (const bool renormalise : {true, false}) {
    Fixture f(2, renormalise);
    f.run({1, 2, 3}, logits);
    const RouterChoices choices = f.backend->read_choices();
    EXPECT_EQ(choices.experts, (std::vector<std::int32_t>{2, 1}));
    EXPECT_NEAR(choices.weights[0], renormalise ? 4.0 / 6.0 : 4.0 / 8.0, 2e-7);
    EXPECT_NEAR(choices.weights[1], renormalise ? 2.0 / 6.0 : 2.0 / 8.0, 2e-7);
  }
}

TEST(Moe, LogitsFarApartAndAllExpertsChosen) {
  Fixture f(kExperts, true);
  f.run({1, 2, 3}, {-2e4F, 3e4F, 0, 1});
  const RouterChoices choices = f.backend->read_choices();
  EXPECT_EQ(choices.experts, (std::vector<std::int32_t>{1, 3, 2, 0}));
  EXPECT_EQ(choices.weights, (std::vector<float>{1, 0, 0, 0}));
  EXPECT_TRUE(std::isinf(choices.margins[0]));
}

TEST(Moe, ANanLogitPicksDistinctExpertsAndShowsInTheOutput) {
  Fixture f(2, true);
  const auto out = f.run({1, 2, 3}, {std::numeric_limits<float>::quiet_NaN(), 1, 2, 3});
  const RouterChoices choices = f.backend->read_choices();
  EXPECT_NE(choices.experts[0], choices.experts[1]);
  EXPECT_TRUE(std::isnan(out[0]));
}

TEST(Moe, OutputIsTheWeightedSumPlusTheScaledSharedExpert) {
  Fixture f(2, true);
  const std::vector<float> x{0.5F, -1.0F, 0.25F};
  const std::vector<float> shared{1.0F, -2.0F, 4.0F};
  const auto out =
      f.run(x, {0, std::log(3.0F), -5, 0.0F}, shared, {std::log(3.0F)});  // experts 1 and 0, 3 : 1; sigmoid 3/4
  const auto first = f.expert(1, x.data());
  const auto second = f.expert(0, x.data());
  for (std::size_t j = 0; j < kHidden; ++j) {
    EXPECT_NEAR(out[j], 0.75 * first[j] + 0.25 * second[j] + 0.75 * static_cast<double>(shared[j]), 2e-6);
  }
}

// A token's bits don't depend on how many others chose the same expert: alone, and among 200 (several chunks of one expert).
TEST(Moe, ATokensBitsDoNotDependOnTheOthers) {
  Fixture f(2, true);
  constexpr std::size_t kTokens = 200;
  const std::vector<float> x = Fixture::values(kTokens * kHidden, 3);
  std::vector<float> router;
  for (std::size_t t = 0; t < kTokens; ++t) {
    for (std::size_t e = 0; e < kExperts; ++e)
      router.push_back(static_cast<float>((t * 5 + e * 3) % 7) - (e == 2 ? 9 : 0));
  }
  const auto all = f.run(x, router);
  for (std::size_t t = 0; t < kTokens; ++t) {
    const auto alone = f.run({x.begin() + static_cast<std::ptrdiff_t>(t * kHidden),
                              x.begin() + static_cast<std::ptrdiff_t>((t + 1) * kHidden)},
                             {router.begin() + static_cast<std::ptrdiff_t>(t * kExperts),
                              router.begin() + static_cast<std::ptrdiff_t>((t + 1) * kExperts)});
    EXPECT_EQ(std::memcmp(alone.data(), all.data() + t * kHidden, kHidden * sizeof(float)), 0) << t;
  }
}

}  // namespace
}  // namespace sterling::backend
