// What is written is read back by our own reader, whose checks are those of the reference reader; tests/makers has the reference library.
#include "formats/safetensors_writer.h"

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include <gtest/gtest.h>

#include "formats/safetensors.h"
#include "formats/safetensors_index.h"

namespace sterling::formats {
namespace {

namespace fs = std::filesystem;

class WriterTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "writer_test.XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override {
    std::error_code ignored;
    fs::permissions(folder_, fs::perms::owner_all, ignored);
    fs::remove_all(folder_, ignored);
  }
  std::string read(const std::string& name) const {
    std::ifstream in(folder_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  std::set<std::string> names() const {
    std::set<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_)) found.insert(entry.path().filename().string());
    return found;
  }
  static std::vector<std::byte> bytes(std::size_t count, int first) {
    std::vector<std::byte> data(count);
    for (std::size_t i = 0; i < count; ++i) data[i] = static_cast<std::byte>(first + static_cast<int>(i));
    return data;
  }

  fs::path folder_;
};

std::vector<PlannedTensor> plan() {
  return {{"b.weight", DType::kU8, {3}},  {"b.scale", DType::kF32, {}}, {"a\"quote", DType::kBF16, {2, 2}},
          {"empty", DType::kF32, {0, 4}}, {"z", DType::kBF16, {1}},     {"b.weight_scale", DType::kF8E4M3, {1, 2}}};
}

TEST_F(WriterTest, OneFileInPublishedOrder) {
  auto writer = SafetensorsWriter::create(folder_, plan(), {});
  ASSERT_TRUE(writer) << writer.error().message;
  EXPECT_EQ((*writer)->shard_count(), 1u);
  EXPECT_TRUE(names().empty());
  // In pieces and out of order.
  ASSERT_TRUE((*writer)->append(2, bytes(3, 1)));
  ASSERT_TRUE((*writer)->append(0, bytes(3, 50)));
  ASSERT_TRUE((*writer)->append(2, bytes(5, 4)));
  ASSERT_TRUE((*writer)->append(1, bytes(4, 90)));
  EXPECT_EQ(names(), std::set<std::string>{"model.safetensors.incomplete"});
  ASSERT_TRUE((*writer)->append(4, bytes(2, 70)));
  ASSERT_TRUE((*writer)->append(5, bytes(2, 80)));
  ASSERT_TRUE((*writer)->finish());
  EXPECT_EQ(names(), std::set<std::string>{"model.safetensors"});
  EXPECT_EQ((*writer)->files(), std::vector<std::string>{"model.safetensors"});

  const std::string file = read("model.safetensors");
  EXPECT_EQ(static_cast<std::int64_t>(file.size()), (*writer)->total_bytes());
  const auto contents = parse_safetensors(std::as_bytes(std::span(file)), "model.safetensors");
  ASSERT_TRUE(contents) << contents.error().message;
  ASSERT_EQ(contents->tensors.size(), 6u);
  EXPECT_EQ(contents->metadata, (std::vector<std::pair<std::string, std::string>>{{"format", "pt"}}));
  const auto data_of = [&](std::string_view name) {
    for (const TensorView& t : contents->tensors) {
      if (t.name == name) return std::vector<std::byte>(t.data.begin(), t.data.end());
    }
    return std::vector<std::byte>();
  };
  EXPECT_EQ(data_of("a\"quote"), bytes(8, 1));
  EXPECT_EQ(data_of("b.weight"), bytes(3, 50));
  EXPECT_EQ(data_of("b.scale"), bytes(4, 90));
  // Largest elements first, then names.
  const std::vector<std::string> order = {"b.scale", "empty", "a\\\"quote", "\"z\"", "b.weight_scale", "b.weight\""};
  std::size_t last = 0;
  for (const std::string& name : order) {
    const std::size_t at = file.find(name);
    ASSERT_NE(at, std::string::npos) << name;
    EXPECT_GT(at, last) << name;
    last = at;
  }
  EXPECT_EQ(static_cast<unsigned char>(file[0]) % 8, 0);
}

TEST_F(WriterTest, ShardsAndIndex) {
  std::vector<PlannedTensor> tensors;
  for (int i = 0; i < 5; ++i) tensors.push_back({"t" + std::to_string(i), DType::kU8, {i == 2 ? 100 : 40}});
  auto writer = SafetensorsWriter::create(folder_, tensors, {.shard_bytes = 80});
  ASSERT_TRUE(writer);
  EXPECT_EQ((*writer)->shard_count(), 3u);  // t0 t1 | t2 (too large) | t3 t4
  for (std::size_t i = 0; i < 5; ++i) ASSERT_TRUE((*writer)->append(i, bytes(i == 2 ? 100 : 40, static_cast<int>(i))));
  ASSERT_TRUE((*writer)->finish());
  EXPECT_EQ(names(), (std::set<std::string>{"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                                            "model-00003-of-00003.safetensors", "model.safetensors.index.json"}));
  EXPECT_EQ((*writer)->files().back(), "model.safetensors.index.json");
  const std::string text = read("model.safetensors.index.json");
  const auto index = parse_safetensors_index(text, "index");
  ASSERT_TRUE(index) << index.error().message;
  EXPECT_NE(text.find("\"total_size\": 260"), std::string::npos);
  std::vector<std::string> files;
  std::vector<std::vector<TensorView>> shards;
  files.reserve(3);
  for (const std::string& shard : index->shards) {
    files.push_back(read(shard));
    auto contents = parse_safetensors(std::as_bytes(std::span(files.back())), shard);
    ASSERT_TRUE(contents);
    shards.push_back(contents->tensors);
  }
  const auto joined = join_shards(*index, "index", shards);
  ASSERT_TRUE(joined) << joined.error().message;
  EXPECT_EQ(joined->size(), 5u);
  std::int64_t size = 0;
  for (const std::string& name : names()) size += static_cast<std::int64_t>(fs::file_size(folder_ / name));
  EXPECT_EQ(size, (*writer)->total_bytes());
}

TEST_F(WriterTest, NothingStaysWithoutFinish) {
  {
    auto writer =
        SafetensorsWriter::create(folder_, {{"a", DType::kU8, {4}}, {"b", DType::kU8, {4}}}, {.shard_bytes = 4});
    ASSERT_TRUE(writer);
    ASSERT_TRUE((*writer)->append(0, bytes(4, 0)));
    ASSERT_TRUE((*writer)->append(1, bytes(2, 0)));
    EXPECT_EQ(names().size(), 2u);
    const Status status = (*writer)->finish();
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().where, "b");
  }
  EXPECT_TRUE(names().empty());
}

TEST_F(WriterTest, NothingStaysWhenTheIndexCantBeWritten) {
  fs::create_directory(folder_ / "model.safetensors.index.json.incomplete");
  {
    auto writer =
        SafetensorsWriter::create(folder_, {{"a", DType::kU8, {4}}, {"b", DType::kU8, {4}}}, {.shard_bytes = 4});
    ASSERT_TRUE(writer);
    ASSERT_TRUE((*writer)->append(0, bytes(4, 0)));
    ASSERT_TRUE((*writer)->append(1, bytes(4, 0)));
    EXPECT_FALSE((*writer)->finish());
  }
  EXPECT_EQ(names(), std::set<std::string>{"model.safetensors.index.json.incomplete"});
}

TEST_F(WriterTest, RefusesWhatItCantWrite) {
  EXPECT_FALSE(SafetensorsWriter::create(folder_, {{"a", DType::kU8, {1}}, {"a", DType::kU8, {1}}}, {}));
  EXPECT_FALSE(SafetensorsWriter::create(folder_, {{"a", DType::kQ4_0, {32}}}, {}));
  EXPECT_FALSE(
      SafetensorsWriter::create(folder_, {{"a", DType::kF32, {std::int64_t{1} << 40, std::int64_t{1} << 40}}}, {}));
  EXPECT_FALSE(SafetensorsWriter::create(folder_, {{"a", DType::kF32, {-1}}}, {}));
  EXPECT_FALSE(SafetensorsWriter::create(folder_, {}, {.shard_bytes = 0}));
  auto writer = SafetensorsWriter::create(folder_, {{"a", DType::kU8, {1}}}, {});
  ASSERT_TRUE(writer);
  EXPECT_FALSE((*writer)->append(0, bytes(2, 0)));
  auto lost = SafetensorsWriter::create(folder_ / "absent", {{"a", DType::kU8, {1}}}, {});
  ASSERT_TRUE(lost);
  const Status status = (*lost)->append(0, bytes(1, 0));
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("model.safetensors.incomplete"), std::string::npos);
}

TEST_F(WriterTest, ATemporaryFileOfSomebodyElseIsLeftAlone) {
  std::ofstream(folder_ / "model.safetensors.incomplete") << "mine";
  {
    auto writer = SafetensorsWriter::create(folder_, {{"a", DType::kU8, {1}}}, {});
    ASSERT_TRUE(writer);
    EXPECT_FALSE((*writer)->append(0, bytes(1, 0)));
  }
  EXPECT_EQ(read("model.safetensors.incomplete"), "mine");
}

}  // namespace
}  // namespace sterling::formats
