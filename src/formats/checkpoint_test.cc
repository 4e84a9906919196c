#include "formats/checkpoint.h"

#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/gguf_builder.h"
#include "formats/test_support.h"

namespace sterling::formats {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string message_of(const std::filesystem::path& path) {
  const auto checkpoint = Checkpoint::open(path);
  return checkpoint.ok() ? "accepted" : checkpoint.error().message;
}

std::string one_tensor(const std::string& name, const std::string& data) {
  const std::string size = std::to_string(data.size());
  return safetensors_bytes(
      "{\"" + name + R"(":{"dtype":"U8","shape":[)" + size + R"(],"data_offsets":[0,)" + size + "]}}", data);
}

std::string gguf_fixture(const std::string& name) {
  return std::string(STERLING_SOURCE_DIR) + "/tests/data/gguf/" + name;
}

TEST(Checkpoint, OpensASingleFileAndEverythingBesideIt) {
  const TemporaryFolder folder;
  folder.write("config.json", R"({"model_type": "llama"})");
  folder.write("generation_config.json", R"({"eos_token_id": 2})");
  folder.write("hf_quant_config.json", R"({"producer": {}})");
  folder.write("tokenizer.json", "{not looked at}");
  folder.write("tokenizer_config.json", R"({"chat_template": "from the config", "bos_token": "<s>"})");
  folder.write("special_tokens_map.json", R"({"bos_token": "<s>"})");
  folder.write("model.safetensors", one_tensor("w", "data"));
  auto opened = Checkpoint::open(folder.path());
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const Checkpoint checkpoint = std::move(*opened);
  EXPECT_EQ(checkpoint.path(), folder.path().string());
  EXPECT_EQ(checkpoint.format(), CheckpointFormat::kSafetensors);
  EXPECT_EQ(checkpoint_format_name(checkpoint.format()), "safetensors");
  EXPECT_TRUE(checkpoint.weights_present());
  EXPECT_EQ(checkpoint.config().at("model_type").as_string(), "llama");
  EXPECT_EQ(checkpoint.config_file(), (folder.path() / "config.json").string());
  EXPECT_EQ(checkpoint.generation_config()->at("eos_token_id").as_int64(), 2);
  EXPECT_TRUE(checkpoint.hf_quant_config()->contains("producer"));
  EXPECT_EQ(checkpoint.tokenizer_json(), "{not looked at}");
  EXPECT_EQ(checkpoint.tokenizer_config()->at("bos_token").as_string(), "<s>");
  EXPECT_EQ(checkpoint.special_tokens_map()->at("bos_token").as_string(), "<s>");
  EXPECT_EQ(checkpoint.chat_template()->as_string(), "from the config");
  EXPECT_EQ(checkpoint.gguf_tokenizer(), nullptr);
  ASSERT_EQ(checkpoint.tensors().size(), 1u);
  const TensorView* tensor = checkpoint.find("w");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(checkpoint.find("v"), nullptr);
  EXPECT_EQ(checkpoint.find("x"), nullptr);
  EXPECT_EQ(tensor->file, (folder.path() / "model.safetensors").string());
  checkpoint.release_pages(*tensor);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(tensor->data.data()), tensor->data.size()), "data");
}

TEST(Checkpoint, OpensShards) {
  const TemporaryFolder folder;
  folder.write("config.json", "{}");
  folder.write("model-1.safetensors", one_tensor("b", "22"));
  folder.write("model-2.safetensors", one_tensor("a", "1"));
  folder.write("model.safetensors.index.json",
               R"({"weight_map": {"a": "model-2.safetensors", "b": "model-1.safetensors"}})");
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  ASSERT_EQ(checkpoint->tensors().size(), 2u);
  EXPECT_EQ(checkpoint->tensors()[0].name, "a");
  EXPECT_EQ(checkpoint->tensors()[1].data.size(), 2u);
  EXPECT_EQ(checkpoint->tensors()[1].file, (folder.path() / "model-1.safetensors").string());
  for (const TensorView& tensor : checkpoint->tensors()) checkpoint->release_pages(tensor);

  folder.write("model.safetensors", one_tensor("a", "1"));
  EXPECT_THAT(message_of(folder.path()), HasSubstr("does not name model.safetensors, which lies beside it"));
  std::filesystem::remove(folder.path() / "model.safetensors");
  std::filesystem::remove(folder.path() / "model-1.safetensors");
  EXPECT_THAT(message_of(folder.path()),
              HasSubstr("shard \"model-1.safetensors\" (of tensor \"b\", for one) is missing"));
  std::filesystem::create_directory(folder.path() / "model-1.safetensors");
  EXPECT_THAT(message_of(folder.path()), HasSubstr("model-1.safetensors: is a directory"));
}

TEST(Checkpoint, OpensAConfigAlone) {
  const TemporaryFolder folder;
  folder.write("config.json", R"({"a": 1})");
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->format(), CheckpointFormat::kConfigOnly);
  EXPECT_FALSE(checkpoint->weights_present());
  EXPECT_TRUE(checkpoint->tensors().empty());
  EXPECT_EQ(checkpoint->find("w"), nullptr);
  EXPECT_EQ(checkpoint->chat_template(), nullptr);
  EXPECT_EQ(checkpoint->generation_config(), nullptr);
  EXPECT_EQ(checkpoint->tokenizer_json(), std::nullopt);
}

TEST(Checkpoint, OpensAGgufFileAndAFolderWithOne) {
  const TemporaryFolder folder;
  std::filesystem::copy(gguf_fixture("llama.gguf"), folder.path() / "m.gguf");
  for (const std::filesystem::path& path : {folder.path() / "m.gguf", folder.path()}) {
    const auto checkpoint = Checkpoint::open(path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    EXPECT_EQ(checkpoint->format(), CheckpointFormat::kGguf);
    EXPECT_EQ(checkpoint->config_file(), (folder.path() / "m.gguf").string());
    EXPECT_EQ(checkpoint->config().at("hidden_size").as_int64(), 32);
    EXPECT_EQ(checkpoint->config().at("rope_theta").as_double(), 500000.0);
    EXPECT_EQ(boost::json::serialize(*checkpoint->generation_config()),
              R"({"bos_token_id":1,"pad_token_id":2,"eos_token_id":[2,0]})");
    EXPECT_EQ(checkpoint->chat_template()->as_string(), "{% for m in messages %}{{ m.content }}{% endfor %}");
    ASSERT_NE(checkpoint->gguf_tokenizer(), nullptr);
    EXPECT_EQ(checkpoint->gguf_tokenizer()->tokens.size(), 12u);
    ASSERT_NE(checkpoint->find("model.layers.1.self_attn.q_proj.weight"), nullptr);
    EXPECT_EQ(checkpoint->find("model.layers.1.self_attn.q_proj.weight")->dtype, DType::kQ4_1);
    EXPECT_NE(checkpoint->find("rope_freqs.weight"), nullptr);
    for (const TensorView& tensor : checkpoint->tensors()) checkpoint->release_pages(tensor);
  }
  folder.write("n.gguf", "");
  EXPECT_THAT(message_of(folder.path()), HasSubstr("holds 2 .gguf files (m.gguf, n.gguf); name one of them"));
  EXPECT_THAT(message_of(folder.path() / "n.gguf"), HasSubstr("n.gguf: is not a GGUF file"));
}

TEST(Checkpoint, TakesTheChatTemplateFromItsOwnFileFirst) {
  const TemporaryFolder folder;
  folder.write("config.json", "{}");
  folder.write("chat_template.json", R"({"chat_template": "third"})");
  EXPECT_EQ(Checkpoint::open(folder.path())->chat_template()->as_string(), "third");
  folder.write("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "second"}]})");
  EXPECT_EQ(Checkpoint::open(folder.path())->chat_template()->at(0).at("template").as_string(), "second");
  folder.write("chat_template.jinja", "first");
  EXPECT_EQ(Checkpoint::open(folder.path())->chat_template()->as_string(), "first");

  folder.write("chat_template.jinja", "\xff");
  EXPECT_THAT(message_of(folder.path()), HasSubstr("chat_template.jinja: is not valid UTF-8"));
  std::filesystem::remove(folder.path() / "chat_template.jinja");
  folder.write("tokenizer_config.json", R"({"chat_template": 3})");
  EXPECT_THAT(message_of(folder.path()), HasSubstr("tokenizer_config.json: chat_template: expected a string, or a list "
                                                   "of {name, template}, found the number 3"));
  folder.write("tokenizer_config.json", R"({"chat_template": [{"name": "x"}]})");
  EXPECT_THAT(message_of(folder.path()), HasSubstr("tokenizer_config.json: chat_template[0]: expected"));
  folder.write("tokenizer_config.json", R"({"chat_template": null})");
  EXPECT_EQ(Checkpoint::open(folder.path())->chat_template()->as_string(), "third");
}

TEST(Checkpoint, NamesAPathThatIsNoModel) {
  const TemporaryFolder folder;
  EXPECT_THAT(message_of(folder.path() / "absent"), AllOf(HasSubstr("absent: no such file or directory"),
                                                          HasSubstr("accepted: a directory with config.json")));
  EXPECT_THAT(message_of(folder.path()), HasSubstr("holds no model; accepted:"));
  const auto file = folder.write("model.safetensors", one_tensor("w", "1"));
  EXPECT_THAT(message_of(file), HasSubstr("model.safetensors: is neither a directory nor a .gguf file; accepted:"));
  EXPECT_THAT(message_of(file / "below"), HasSubstr("no such file or directory"));
  EXPECT_THAT(message_of(folder.path()), HasSubstr("has .safetensors weights but no config.json"));
  folder.write("config.json", "{}");
  EXPECT_EQ(message_of(folder.path()), "accepted");
  std::filesystem::rename(file, folder.path() / "weights.safetensors");
  EXPECT_THAT(message_of(folder.path()), HasSubstr("has 1 .safetensors files (weights.safetensors) but neither "
                                                   "model.safetensors nor model.safetensors.index.json"));
  EXPECT_EQ(Checkpoint::open(folder.path() / "absent").error().code, ErrorCode::kNotFound);
  std::filesystem::create_directory(folder.path() / "folder.gguf");
  EXPECT_THAT(message_of(folder.path() / "folder.gguf"), HasSubstr("holds no model"));
}

TEST(Checkpoint, NamesAFolderThatMayNotBeRead) {
  const TemporaryFolder folder;
  folder.write("config.json", "{}");
  ASSERT_EQ(::chmod(folder.path().c_str(), 0), 0);
  const bool root = ::geteuid() == 0;  // root may read everything, so become somebody else for the call
  if (root && ::seteuid(65534) != 0) GTEST_SKIP() << "cannot give up root";
  const auto opened = Checkpoint::open(folder.path());
  if (root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
  ASSERT_EQ(::chmod(folder.path().c_str(), 0700), 0);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, ErrorCode::kPermission);
  EXPECT_THAT(opened.error().message, HasSubstr(folder.path().string() + ": the directory cannot be read"));
}

TEST(Checkpoint, NamesTheFileThatIsBroken) {
  for (const char* name : {"config.json", "generation_config.json", "hf_quant_config.json", "tokenizer_config.json",
                           "special_tokens_map.json", "chat_template.json", "model.safetensors.index.json"}) {
    const TemporaryFolder folder;
    folder.write("config.json", "{}");
    const std::string path = folder.write(name, "{\"a\": 1").string();
    EXPECT_THAT(message_of(folder.path()), StartsWith(path + ":1:8: the JSON ends in the middle")) << name;
    folder.write(name, "[]");
    EXPECT_THAT(message_of(folder.path()), HasSubstr("found an array")) << name;
    std::filesystem::remove(path);
    std::filesystem::create_directory(path);
    EXPECT_THAT(message_of(folder.path()), HasSubstr(path + ": is a directory, expected a file")) << name;
  }
  const TemporaryFolder folder;
  folder.write("config.json", "{}");
  const std::string path = folder.write("model.safetensors", "").string();
  EXPECT_THAT(message_of(folder.path()), HasSubstr(path + ": has 0 bytes"));
  EXPECT_EQ(Checkpoint::open(folder.path()).error().code, ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace sterling::formats
