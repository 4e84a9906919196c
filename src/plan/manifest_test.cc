#include "plan/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sterling::plan {
namespace {

using ::testing::HasSubstr;

ManifestFacts facts() {
  ManifestFacts f;
  f.version = "1.2.3";
  f.model = "name";
  f.architecture = "LlamaForCausalLM";
  f.fingerprint = "abcd";
  f.isa = "avx2";
  f.arithmetic = "canonical";
  f.kernels = {{"linear", "avx2"}, {"attention", "avx2"}};
  return f;
}

Precision precision() {
  Precision p;
  p.compute = "bf16";
  p.kv = {KvType::kFp8E4m3, KvType::kFp8E4m3};
  p.kv_scales = {{{0.5F}}, {{0.25F}}};
  p.kv_scale_state = KvScaleState::kFromFile;
  p.kv_scale_source = "file /tmp/kv.json";
  PrecisionRow row;
  row.role = "kv.keys";
  row.effective = row.stored = "fp8_e4m3";
  row.requested = "fp8_e4m3";
  row.requested_by = "flag --kv-cache-dtype";
  row.scale_source = "file /tmp/kv.json";
  row.reason = "as asked";
  p.rows.push_back(row);
  return p;
}

std::string hash_of(const ManifestFacts& f, const Precision& p) {
  return std::string(manifest_json(f, p).at("hash").get_string());
}

TEST(Manifest, HashIsOfWhatDecidesBits) {
  const std::string hash = hash_of(facts(), precision());
  EXPECT_EQ(hash.size(), 32U);
  EXPECT_EQ(hash, hash_of(facts(), precision()));

  const auto changed = [&](auto change) {
    ManifestFacts f = facts();
    Precision p = precision();
    change(f, p);
    return hash_of(f, p) != hash;
  };
  // Not: names, places, who asked, why.
  EXPECT_FALSE(changed([](auto& f, auto&) { f.model = "other"; }));
  EXPECT_FALSE(changed([](auto&, auto& p) { p.kv_scale_source = p.rows[0].scale_source = "file /srv/kv.json"; }));
  EXPECT_FALSE(changed([](auto&, auto& p) { p.rows[0].requested_by = "environment STERLING_KV_CACHE_DTYPE"; }));
  EXPECT_FALSE(changed([](auto&, auto& p) { p.rows[0].reason = "other words"; }));
  EXPECT_FALSE(changed([](auto& f, auto&) { f.metadata.wish = "fp8_e4m3"; }));
  EXPECT_FALSE(changed([](auto& f, auto&) { std::swap(f.kernels[0], f.kernels[1]); }));
  // But: weights, code, kernels, types, scales, acceptance.
  EXPECT_TRUE(changed([](auto& f, auto&) { f.fingerprint = "abce"; }));
  EXPECT_TRUE(changed([](auto& f, auto&) { f.version = "1.2.4"; }));
  EXPECT_TRUE(changed([](auto& f, auto&) { f.isa = "avx512"; }));
  EXPECT_TRUE(changed([](auto& f, auto&) { f.kernels[0].second = "ref"; }));
  EXPECT_TRUE(changed([](auto&, auto& p) { p.compute = "fp32"; }));
  EXPECT_TRUE(changed([](auto&, auto& p) { p.kv.v = KvType::kBf16; }));
  EXPECT_TRUE(changed([](auto&, auto& p) { p.kv_scales.k[0][0] = 0.5000001F; }));
  EXPECT_TRUE(changed([](auto&, auto& p) { p.unscaled_accepted = true; }));
  EXPECT_TRUE(changed([](auto&, auto& p) { p.rows[0].effective = "bf16"; }));
}

TEST(Manifest, DocumentHasTheContractsFields) {
  ManifestFacts f = facts();
  f.metadata.wish = "fp8_e4m3";
  f.metadata.places = {{"config.json quantization_config.kv_cache_scheme", "fp8_e4m3", "\"FP8\""}};
  const auto document = manifest_json(f, precision());
  EXPECT_EQ(document.at("kv_cache").at("dtype").as_string(), "fp8_e4m3");
  EXPECT_EQ(document.at("kv_cache").at("k_bits").as_string(), "fp8_e4m3 (1-4-3)");
  EXPECT_EQ(document.at("kv_cache").at("scales").at("state").as_string(), "from_file");
  EXPECT_EQ(document.at("metadata").at("kv_cache_wish").as_string(), "fp8_e4m3");
  EXPECT_EQ(document.at("rows").as_array().size(), 1U);
  EXPECT_EQ(document.at("rows").at(0).at("requested_by").as_string(), "flag --kv-cache-dtype");
  EXPECT_THAT(precision_table(precision()), HasSubstr("fp8_e4m3 by flag --kv-cache-dtype"));
}

}  // namespace
}  // namespace sterling::plan
