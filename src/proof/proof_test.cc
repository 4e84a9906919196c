// No false alarm: every checkpoint of tests/golden, in both computes, with every type of K and V, on every tier of the machine.
#include "proof/proof.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "proof/test_support.h"

namespace sterling::proof {
namespace {

std::vector<std::filesystem::path> checkpoints() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(STERLING_SOURCE_DIR "/tests/golden")) {
    if (entry.is_directory()) paths.push_back(entry.path() / "checkpoint");
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

ModelSpec spec_of(const std::filesystem::path& path) {
  const auto checkpoint = formats::Checkpoint::open(path);
  EXPECT_TRUE(checkpoint.ok());
  return model::check(*checkpoint).value().spec;
}

std::string failures(const ProofReport& report) {
  std::string text;
  for (const Finding& finding : report.findings) {
    if (!finding.passed) text += finding.check + ": " + finding.detail + "\n";
  }
  return text;
}

void expect_passes(Subject subject, plan::KvFormat format, bool per_head) {
  const ModelSpec spec = spec_of(subject.checkpoint);
  const bool scaled = plan::needs_scales(format.k) || plan::needs_scales(format.v);
  subject.declared.kv = subject.pool = format;
  if (scaled) subject.declared.kv_scales = subject.pool_scales = even_scales(spec, 0.013F, 0.021F, per_head);
  SCOPED_TRACE(testing::Message() << subject.checkpoint << " KV " << plan::kv_format_name(format) << " on "
                                  << subject.isa << (subject.compute == backend::Compute::kBf16 ? " bf16" : " fp32"));
  const auto report = prove_subject(subject);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_TRUE(report->passed()) << failures(*report);
  const auto has = [&](std::string_view check) {
    return std::any_of(report->findings.begin(), report->findings.end(),
                       [&](const Finding& f) { return f.check == check; });
  };
  for (const char* check : {"kv.size", "kv.write", "kv.read", "kv.flip", "weights", "logits"})
    EXPECT_TRUE(has(check)) << check;
  EXPECT_EQ(has("state"), spec.gdn.has_value());
}

TEST(Proof, PassesOnEveryCheckpointInBothComputes) {
  const auto paths = checkpoints();
  ASSERT_GE(paths.size(), 15U);
  for (const auto& path : paths) {
    expect_passes({.checkpoint = path}, {plan::KvType::kBf16, plan::KvType::kBf16}, false);
    expect_passes({.checkpoint = path, .compute = backend::Compute::kFp32}, {plan::KvType::kFp32, plan::KvType::kFp32},
                  false);
  }
}

TEST(Proof, PassesWithEveryTypeOfKAndV) {
  for (const char* name : {"llama", "qwen3_5_text"}) {
    const std::filesystem::path path = std::filesystem::path(STERLING_SOURCE_DIR "/tests/golden") / name / "checkpoint";
    for (const plan::KvType k : plan::kKvTypes) {
      for (const plan::KvType v : plan::kKvTypes) {
        expect_passes({.checkpoint = path}, {k, v}, v == plan::KvType::kFp8E4m3);
        expect_passes({.checkpoint = path, .compute = backend::Compute::kFp32}, {k, v}, false);
      }
    }
  }
}

TEST(Proof, PassesOnEveryTier) {
  const std::filesystem::path path = STERLING_SOURCE_DIR "/tests/golden/qwen3_5_moe_text/checkpoint";
  for (const char* isa : {"scalar", "avx2", "avx512", "avx512bf16"}) {
    if (!kernels::select(isa)) continue;  // this CPU does not have it
    expect_passes({.checkpoint = path, .isa = isa}, {plan::KvType::kBf16, plan::KvType::kFp8E4m3}, true);
  }
}

}  // namespace
}  // namespace sterling::proof
