// The comparison against a subject that plays back the reference, exactly or with faults put in.
#include "lab/golden.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sterling::lab {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::filesystem::path kGolden = std::filesystem::path(STERLING_SOURCE_DIR) / "tests" / "golden";

// Dimensions of tests/golden/qwen3_5 as its config.json says: layers g a g g.
ModelSpec hybrid_spec() {
  ModelSpec spec;
  spec.model_type = "qwen3_5";
  spec.vocab_size = 215;
  spec.hidden_size = 62;
  spec.gdn = GdnSpec{.key_heads = 3, .value_heads = 3, .key_dim = 14, .value_dim = 10, .conv_kernel = 3};
  spec.layers = {LayerKind::kLinearAttention, LayerKind::kFullAttention, LayerKind::kLinearAttention,
                 LayerKind::kLinearAttention};
  return spec;
}

std::vector<float> to_float(const GoldenTensor& tensor) {
  return {tensor.values.begin(), tensor.values.end()};
}

// Gives back what Hugging Face's float32 run gave (kNarrow) or the float64 truth rounded once (kWide); `spoil` may change a run.
class Playback : public GoldenSubject {
 public:
  enum Source { kWide, kNarrow };
  Playback(const GoldenData& data, ModelSpec spec, Source source)
      : data_(data), spec_(std::move(spec)), source_(source) {}

  std::function<void(const GoldenPrompt&, GoldenRun&)> spoil;
  std::function<void(const GoldenPrompt&, std::vector<std::int32_t>&)> spoil_text;

  const ModelSpec& spec() const override { return spec_; }

  Expected<GoldenRun> run(std::span<const std::int32_t> tokens, bool want_internals) override {
    const GoldenPrompt& prompt = of(tokens);
    GoldenRun out;
    const auto vocab = static_cast<std::size_t>(prompt.logits.wide.shape[1]);
    out.logits.assign(tokens.size() * vocab, 0.0F);  // positions that were not recorded must not matter
    const std::vector<float> rows = pick(prompt.logits);
    for (std::size_t i = 0; i < prompt.positions.size(); ++i) {
      std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(i * vocab), vocab,
                  out.logits.begin() + prompt.positions[i] * static_cast<std::ptrdiff_t>(vocab));
    }
    if (want_internals) {
      const GoldenInternals& internals = *prompt.internals;
      out.hidden = pick(internals.hidden);
      if (internals.mixer) out.mixer = pick(*internals.mixer);
      if (internals.mlp) out.mlp = pick(*internals.mlp);
      if (internals.k) out.k = pick(*internals.k);
      if (internals.v) out.v = pick(*internals.v);
      if (internals.gdn_state) out.gdn_state = pick(*internals.gdn_state);
      if (internals.gdn_conv) {
        const auto kernel = static_cast<std::size_t>(internals.gdn_conv->wide.shape.back());
        const std::vector<float> window = pick(*internals.gdn_conv);
        for (std::size_t i = 0; i < window.size(); ++i) {
          if (i % kernel != 0) out.gdn_conv.push_back(window[i]);
        }
      }
    }
    if (spoil) spoil(prompt, out);
    return out;
  }

  Expected<std::vector<std::int32_t>> greedy(std::span<const std::int32_t> tokens, std::int32_t steps) override {
    const GoldenPrompt& prompt = of(tokens);
    EXPECT_EQ(static_cast<std::size_t>(steps), prompt.greedy_tokens.size());
    std::vector<std::int32_t> out = prompt.greedy_tokens;
    if (spoil_text) spoil_text(prompt, out);
    return out;
  }

 private:
  const GoldenPrompt& of(std::span<const std::int32_t> tokens) const {
    for (const GoldenPrompt& prompt : data_.prompts) {
      if (std::equal(tokens.begin(), tokens.end(), prompt.tokens.begin(), prompt.tokens.end())) return prompt;
    }
    std::abort();
  }
  std::vector<float> pick(const GoldenEntry& entry) const {
    return to_float(source_ == kNarrow && entry.narrow ? *entry.narrow : entry.wide);
  }

  const GoldenData& data_;
  ModelSpec spec_;
  Source source_;
};

GoldenData load(const std::filesystem::path& dir) {
  Expected<GoldenData> data = load_golden(dir / "golden.safetensors");
  if (!data) ADD_FAILURE() << data.error().message;
  return data ? std::move(*data) : GoldenData{};
}

class GoldenComparison : public ::testing::Test {
 protected:
  void SetUp() override {
    data = load(kGolden / "qwen3_5");
    ASSERT_EQ(data.prompts.size(), 6U);
    subject = std::make_unique<Playback>(data, hybrid_spec(), Playback::kNarrow);
  }
  GoldenReport compare(GoldenCompute compute = GoldenCompute::kFp32) {
    Expected<GoldenReport> report = compare_golden(*subject, data, compute, "scalar");
    if (!report) ADD_FAILURE() << report.error().message;
    return report ? std::move(*report) : GoldenReport{};
  }
  const GoldenPrompt& prompt(std::string_view name) const {
    for (const GoldenPrompt& candidate : data.prompts) {
      if (candidate.name == name) return candidate;
    }
    std::abort();
  }
  // Adds `amount` to one value of one layer of an entry of `layers` layers.
  static void add(std::vector<float>& values, std::size_t layers, std::size_t layer, double amount) {
    values[values.size() / layers * layer + 5] += static_cast<float>(amount);
  }

  GoldenData data;
  std::unique_ptr<Playback> subject;
};

TEST_F(GoldenComparison, ReadsPromptsByLengthWithTheirShapes) {
  std::vector<std::size_t> lengths;
  for (const GoldenPrompt& p : data.prompts) lengths.push_back(p.tokens.size());
  EXPECT_THAT(lengths, ElementsAre(1, 2, 17, 64, 65, 130));
  EXPECT_THAT(prompt("p130").positions, ElementsAre(126, 127, 128, 129));
  const GoldenInternals& internals = *prompt("p17").internals;
  EXPECT_THAT(internals.hidden.wide.shape, ElementsAre(6, 17, 62));
  EXPECT_THAT(internals.k->wide.shape, ElementsAre(1, 2, 17, 32));
  EXPECT_THAT(internals.gdn_state->wide.shape, ElementsAre(3, 3, 14, 10));
  EXPECT_THAT(internals.gdn_conv->wide.shape, ElementsAre(3, 114, 3));
  EXPECT_FALSE(prompt("p64").internals.has_value());
}

TEST_F(GoldenComparison, HuggingFacesOwnFloat32RunPassesAtRatioOne) {
  for (const GoldenCompute compute : {GoldenCompute::kFp32, GoldenCompute::kBf16}) {
    const GoldenReport report = compare(compute);
    EXPECT_TRUE(report.passed());
    EXPECT_EQ(report.family, "qwen3_5");
    for (const GoldenPromptResult& p : report.prompts) {
      EXPECT_EQ(p.logits.max_abs_error, *p.logits.hf_fp32_error) << p.name;
      EXPECT_EQ(p.top1_matches, p.top1_total);
      EXPECT_EQ(p.greedy.matched, 24);
    }
    ASSERT_EQ(report.layers.size(), 4U);
    EXPECT_EQ(report.embedding->max_abs_error, 0.0);
    EXPECT_THAT(report.layers[0].entries.size(), 4);  // mixer, mlp, gdn_state, gdn_conv
    EXPECT_EQ(report.layers[1].entries[2].name, "k");
    EXPECT_EQ(report.layers[3].entries[2].name, "gdn_state");
    EXPECT_EQ(report.layers[3].entries[2].max_abs_error, *report.layers[3].entries[2].hf_fp32_error);
  }
}

TEST_F(GoldenComparison, BoundsAreFourAndTwoToThe17Yardsticks) {
  const GoldenReport fp32 = compare(GoldenCompute::kFp32);
  const GoldenReport bf16 = compare(GoldenCompute::kBf16);
  for (std::size_t i = 0; i < fp32.prompts.size(); ++i) {
    const GoldenResult& logits = fp32.prompts[i].logits;
    const double expected = std::max(*logits.hf_fp32_error, 4 * 0x1p-24 * logits.max_abs_reference);
    EXPECT_DOUBLE_EQ(logits.bound, 4 * expected);
    EXPECT_DOUBLE_EQ(bf16.prompts[i].logits.bound, 2 * 65536 * expected);
  }
}

TEST_F(GoldenComparison, AttentionModelsHaveHalfTheBf16Bound) {
  const GoldenReport hybrid = compare(GoldenCompute::kBf16);
  ModelSpec spec = hybrid_spec();
  spec.gdn.reset();
  subject = std::make_unique<Playback>(data, spec, Playback::kNarrow);
  const GoldenReport attention = compare(GoldenCompute::kBf16);
  EXPECT_DOUBLE_EQ(attention.prompts[0].logits.bound * 2, hybrid.prompts[0].logits.bound);
  EXPECT_DOUBLE_EQ(attention.layers[0].hidden.bound * 2, hybrid.layers[0].hidden.bound);
}

TEST_F(GoldenComparison, EveryKindOfEntryIsHeldToItsBoundInItsLayer) {
  const GoldenReport clean = compare();
  struct Fault {
    std::vector<float> GoldenRun::*member;
    std::size_t slices, slice;
    std::int64_t layer;
  };
  const std::map<std::string, Fault> faults = {
      {"embedding", {&GoldenRun::hidden, 6, 0, 0}},
      {"hidden", {&GoldenRun::hidden, 6, 3, 2}},
      {"final norm", {&GoldenRun::hidden, 6, 5, 4}},
      {"mixer", {&GoldenRun::mixer, 4, 3, 3}},
      {"mlp", {&GoldenRun::mlp, 4, 0, 0}},
      {"k", {&GoldenRun::k, 1, 0, 1}},
      {"v", {&GoldenRun::v, 1, 0, 1}},
      {"state", {&GoldenRun::gdn_state, 3, 1, 2}},
      {"conv", {&GoldenRun::gdn_conv, 3, 2, 3}},
  };
  for (const auto& [name, fault] : faults) {
    subject->spoil = [&fault = fault](const GoldenPrompt& p, GoldenRun& run) {
      if (p.internals) add(run.*(fault.member), fault.slices, fault.slice, 0.01);
    };
    const GoldenReport report = compare();
    EXPECT_FALSE(report.passed()) << name;
    EXPECT_EQ(report.first_layer_over_bound, fault.layer) << name;
  }
  EXPECT_TRUE(clean.passed());
}

TEST_F(GoldenComparison, JustInsideTheBoundPassesAndJustOutsideFails) {
  subject = std::make_unique<Playback>(data, hybrid_spec(), Playback::kWide);
  for (const GoldenCompute compute : {GoldenCompute::kFp32, GoldenCompute::kBf16}) {
    subject->spoil = nullptr;
    const double bound = compare(compute).prompts[2].logits.bound;
    for (const double share : {0.9, 1.1}) {
      subject->spoil = [&](const GoldenPrompt& p, GoldenRun& run) {
        if (p.name == "p17") run.logits[20] += static_cast<float>(share * bound);
      };
      const GoldenReport report = compare(compute);
      EXPECT_EQ(report.passed(), share < 1.0);
      EXPECT_NEAR(report.prompts[2].logits.max_abs_error, share * bound, 2e-6);
    }
  }
}

TEST_F(GoldenComparison, NotANumberIsNeverWithinABound) {
  subject->spoil = [](const GoldenPrompt& p, GoldenRun& run) {
    if (p.internals) run.k[0] = std::numeric_limits<float>::quiet_NaN();
  };
  const GoldenReport report = compare(GoldenCompute::kBf16);
  EXPECT_FALSE(report.passed());
  EXPECT_EQ(report.first_layer_over_bound, 1);
  const boost::json::object json = golden_report_json(report);
  EXPECT_TRUE(json.at("layers").at(1).at("entries").at(2).at("max_abs_error").is_null());
  EXPECT_FALSE(json.at("passed").as_bool());
}

TEST_F(GoldenComparison, DecidedGreedyStepsMustAgree) {
  subject->spoil_text = [](const GoldenPrompt& p, std::vector<std::int32_t>& text) {
    if (p.name == "p64") text[7] += 1;
  };
  const GoldenReport report = compare();
  EXPECT_FALSE(report.passed());
  const GoldenGreedy& greedy = report.prompts[3].greedy;
  EXPECT_EQ(greedy.decided, 24);  // the maker keeps every margin far above FP32's bound
  EXPECT_EQ(greedy.matched, 7);
  EXPECT_EQ(greedy.first_mismatch, 7);
  EXPECT_EQ(greedy.margin_at_mismatch, prompt("p64").greedy_margins[7]);
  const boost::json::object json = golden_report_json(report).at("greedy").as_object();
  EXPECT_EQ(json.at("tokens").as_int64(), 144);
  EXPECT_EQ(json.at("matched").as_int64(), 127);
  EXPECT_EQ(json.at("first_mismatch").as_int64(), 7);
}

TEST_F(GoldenComparison, ComparisonOfTextEndsAtTheFirstUndecidedStep) {
  for (GoldenPrompt& p : data.prompts) {
    if (p.name == "p64") p.greedy_margins[5] = 0.0;
  }
  subject->spoil_text = [](const GoldenPrompt& p, std::vector<std::int32_t>& text) {
    if (p.name == "p64") text[7] += 1;
  };
  const GoldenReport report = compare();
  EXPECT_TRUE(report.passed());
  EXPECT_EQ(report.prompts[3].greedy.decided, 5);
  EXPECT_EQ(report.prompts[3].greedy.matched, 7);
  EXPECT_EQ(golden_report_json(report).at("greedy").at("first_mismatch").as_int64(), 7);
}

TEST_F(GoldenComparison, TextThatEndsEarlyIsAMismatch) {
  subject->spoil_text = [](const GoldenPrompt&, std::vector<std::int32_t>& text) { text.resize(3); };
  const GoldenReport report = compare();
  EXPECT_FALSE(report.passed());
  EXPECT_EQ(report.prompts[0].greedy.first_mismatch, 3);
}

TEST_F(GoldenComparison, WithoutFloat32EntriesTheResidualStreamGivesTheYardstick) {
  const GoldenReport with = compare();
  for (GoldenPrompt& p : data.prompts) {
    if (!p.internals) continue;
    for (auto* entry : {&p.internals->mixer, &p.internals->mlp, &p.internals->k, &p.internals->v,
                        &p.internals->gdn_state, &p.internals->gdn_conv}) {
      (*entry)->narrow.reset();
    }
  }
  const GoldenReport without = compare();
  EXPECT_TRUE(without.passed());
  for (std::size_t i = 0; i < with.layers.size(); ++i) {
    for (std::size_t e = 0; e < with.layers[i].entries.size(); ++e) {
      const GoldenResult& measured = with.layers[i].entries[e];
      const GoldenResult& estimated = without.layers[i].entries[e];
      EXPECT_FALSE(estimated.hf_fp32_error.has_value());
      // The estimate must be of the measured size, or it is no estimate.
      EXPECT_GT(estimated.bound, 0.4 * measured.bound) << i << " " << measured.name;
      EXPECT_LT(estimated.bound, 12 * measured.bound) << i << " " << measured.name;
    }
  }
}

TEST_F(GoldenComparison, AReferenceOfAnotherModelIsRefused) {
  struct Case {
    std::function<void(ModelSpec&)> change;
    std::string message;
  };
  for (const Case& c :
       std::vector<Case>{{[](ModelSpec& s) { s.vocab_size = 214; }, "has 215 logits per token, the model has 214"},
                         {[](ModelSpec& s) { s.layers.pop_back(); }, "has 4 layers, the model has 3"}}) {
    ModelSpec spec = hybrid_spec();
    c.change(spec);
    Playback other(data, spec, Playback::kWide);
    const auto report = compare_golden(other, data, GoldenCompute::kFp32, "scalar");
    ASSERT_FALSE(report.ok());
    EXPECT_EQ(report.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(report.error().message, HasSubstr(c.message));
  }
}

TEST_F(GoldenComparison, JsonHasTheContractsFields) {
  const boost::json::object json = golden_report_json(compare());
  EXPECT_EQ(json.at("family").as_string(), "qwen3_5");
  EXPECT_EQ(json.at("compute").as_string(), "fp32");
  EXPECT_EQ(json.at("isa").as_string(), "scalar");
  EXPECT_TRUE(json.at("passed").as_bool());
  EXPECT_TRUE(json.at("first_layer_over_bound").is_null());
  const boost::json::object& first = json.at("prompts").at(0).as_object();
  for (const char* field : {"name", "length", "max_abs_logit_error", "max_abs_reference", "hf_fp32_error",
                            "ratio_to_hf_fp32", "top1_matches", "top1_total"}) {
    EXPECT_TRUE(first.contains(field)) << field;
  }
  EXPECT_EQ(first.at("ratio_to_hf_fp32").as_double(), 1.0);
  const boost::json::array& layers = json.at("layers").as_array();
  ASSERT_EQ(layers.size(), 4U);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    EXPECT_EQ(layers[i].at("layer").as_uint64(), i);
    EXPECT_TRUE(layers[i].at("max_abs_error").is_double());
    EXPECT_TRUE(layers[i].at("hf_fp32_error").is_double());
  }
  const boost::json::object& greedy = json.at("greedy").as_object();
  EXPECT_EQ(greedy.at("tokens").as_int64(), 144);
  EXPECT_EQ(greedy.at("matched").as_int64(), 144);
  EXPECT_TRUE(greedy.at("first_mismatch").is_null());
  EXPECT_TRUE(greedy.at("margin_at_mismatch").is_null());
}

// ---- reading ---------------------------------------------------------------------------------------------------------

class GoldenFile : public ::testing::Test {
 protected:
  void SetUp() override {
    dir = std::filesystem::path(::testing::TempDir()) /
          (std::string("golden_") + ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(dir);
  }
  void TearDown() override { std::filesystem::remove_all(dir); }

  // One-token prompt with two logits; `change` edits entries: name -> (dtype, shape, bytes).
  struct Entry {
    std::string dtype, shape;
    std::string bytes;
  };
  template <typename T>
  static std::string bytes_of(std::initializer_list<T> values) {
    std::string out(values.size() * sizeof(T), '\0');
    std::memcpy(out.data(), values.begin(), out.size());
    return out;
  }
  Expected<GoldenData> read(const std::function<void(std::map<std::string, Entry>&)>& change,
                            std::string_view group = {}) {
    std::map<std::string, Entry> entries = {
        {"p1.greedy.margin", {"F64", "[1]", bytes_of<double>({0.5})}},
        {"p1.greedy.tokens", {"I32", "[1]", bytes_of<std::int32_t>({1})}},
        {"p1.logits.f32", {"F32", "[1,2]", bytes_of<float>({1.0F, 2.0F})}},
        {"p1.logits.f64", {"F64", "[1,2]", bytes_of<double>({1.0, 2.0})}},
        {"p1.positions", {"I32", "[1]", bytes_of<std::int32_t>({0})}},
        {"p1.tokens", {"I32", "[1]", bytes_of<std::int32_t>({1})}},
    };
    change(entries);
    std::string header = "{";
    std::string body;
    for (const auto& [name, entry] : entries) {
      header += (body.empty() ? "\"" : ",\"") + name + "\":{\"dtype\":\"" + entry.dtype +
                "\",\"shape\":" + entry.shape + ",\"data_offsets\":[" + std::to_string(body.size()) + "," +
                std::to_string(body.size() + entry.bytes.size()) + "]}";
      body += entry.bytes;
    }
    header += "}";
    const std::uint64_t size = header.size();
    std::ofstream file(dir / "golden.safetensors", std::ios::binary);
    file.write(reinterpret_cast<const char*>(&size), sizeof(size)) << header << body;
    file.close();
    return load_golden(dir / "golden.safetensors", group);
  }

  std::filesystem::path dir;
};

TEST_F(GoldenFile, TheSmallFileReads) {
  const auto data = read([](auto&) {});
  ASSERT_TRUE(data.ok()) << data.error().message;
  EXPECT_THAT(data->prompts.at(0).logits.wide.values, ElementsAre(1.0, 2.0));
  EXPECT_FALSE(data->prompts[0].internals.has_value());
}

TEST_F(GoldenFile, FaultsAreNamed) {
  struct Case {
    std::function<void(std::map<std::string, Entry>&)> change;
    std::string message;
  };
  const std::vector<Case> cases = {
      {[](auto& e) { e.erase("p1.logits.f64"); }, "p1.logits.f64: the entry is missing"},
      {[](auto& e) { e.erase("p1.tokens"); }, "no entry is named pN.tokens"},
      {[](auto& e) {
         e["p1.tokens"] = {"I64", "[1]", bytes_of<std::int64_t>({1})};
       },
       "p1.tokens: expected I32, found I64"},
      {[](auto& e) { e["p1.positions"].bytes = bytes_of<std::int32_t>({1}); },
       "p1.positions: 1 lies outside the prompt"},
      {[](auto& e) {
         e["p1.positions"] = {"I32", "[2]", bytes_of<std::int32_t>({0, 0})};
       },
       "dimension 0 is 1, expected 2"},
      {[](auto& e) {
         e["p1.logits.f32"] = {"F32", "[1,1]", bytes_of<float>({1.0F})};
       },
       "its shape differs"},
      {[](auto& e) {
         e["p1.logits.f64"].bytes = bytes_of<double>({1.0, std::nan("")});
       },
       "p1.logits.f64: a value is not finite"},
      {[](auto& e) {
         e["p1.greedy.margin"] = {"F64", "[2]", bytes_of<double>({1.0, 1.0})};
       },
       "its size differs"},
      {[](auto& e) {
         e["p1.hidden.f64"] = {"F64", "[2,1,1]", bytes_of<double>({1.0, 1.0})};
       },
       "at least one layer"},
  };
  for (const Case& c : cases) {
    const auto data = read(c.change);
    ASSERT_FALSE(data.ok()) << c.message;
    EXPECT_EQ(data.error().code, ErrorCode::kCorrupt);
    EXPECT_THAT(data.error().message, HasSubstr(c.message));
  }
}

TEST_F(GoldenFile, SetsAreChosenByName) {
  const auto move_to_set = [](std::map<std::string, Entry>& entries) {
    std::map<std::string, Entry> moved;
    for (auto& [name, entry] : entries) moved["kv_none." + name] = entry;
    entries = moved;
  };
  const auto unchosen = read(move_to_set);
  ASSERT_FALSE(unchosen.ok());
  EXPECT_THAT(unchosen.error().message, HasSubstr("choose one of kv_none"));
  EXPECT_FALSE(read(move_to_set, "kv_unit").ok());
  const auto chosen = read(move_to_set, "kv_none");
  ASSERT_TRUE(chosen.ok()) << chosen.error().message;
  EXPECT_EQ(chosen->prompts.size(), 1U);
}

TEST_F(GoldenFile, AnAbsentFileIsNotFound) {
  const auto data = load_golden(dir / "nowhere.safetensors");
  ASSERT_FALSE(data.ok());
  EXPECT_EQ(data.error().code, ErrorCode::kNotFound);
}

// Every committed set must be readable and internally consistent.
TEST(GoldenSets, CommittedSetsRead) {
  int sets = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kGolden)) {
    if (!entry.is_directory()) continue;
    ++sets;
    const GoldenData data = load(entry.path());
    // Sets of quantised checkpoints ("llama-mxfp4") record three prompts.
    const bool quantised = entry.path().filename().string().find('-') != std::string::npos;
    EXPECT_EQ(data.prompts.size(), quantised ? 3U : 6U) << entry.path();
  }
  EXPECT_EQ(sets, 19);
}

}  // namespace
}  // namespace sterling::lab
