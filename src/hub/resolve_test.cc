#include "hub/resolve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hub/test_folder.h"

namespace sterling::hub {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kOne = "664dba2223947f7bb85c6518f335a1a1fd745aa9";
const std::string kTwo = "664dbffffffffffffffffffffffffffffffffff0";
const std::string kThree = "0123456789012345678901234567890123456789";

class ResolveTest : public ::testing::Test {
 protected:
  void SetUp() override {
    locations_.cache = folder_.path() / "hub";
    for (const std::string& commit : {kOne, kTwo, kThree})
      folder_.write("hub/models--org--name/snapshots/" + commit + "/config.json", "{}");
    folder_.write("hub/models--org--name/refs/main", kOne);
    folder_.write("hub/models--org--name/refs/pr/1", kTwo + "\n");
    folder_.write("hub/models--org--name/refs/gone", std::string(40, 'e'));
    folder_.write("hub/models--org--name/refs/broken", "../../../etc");
    folder_.write("hub/models--org--name/refs/abcdef0", kThree);
  }
  std::string commit(const std::string& model) {
    const auto resolved = resolve_model(model, locations_);
    if (!resolved) return resolved.error().message;
    EXPECT_EQ(resolved->path, locations_.cache / "models--org--name" / "snapshots" / resolved->commit);
    return resolved->commit;
  }
  Error error(const std::string& model) {
    const auto resolved = resolve_model(model, locations_);
    EXPECT_FALSE(resolved.ok()) << model;
    return resolved.ok() ? Error{} : resolved.error();
  }
  TestFolder folder_;
  Locations locations_;
};

TEST_F(ResolveTest, Revisions) {
  EXPECT_EQ(commit("org/name"), kOne);
  EXPECT_EQ(commit("org/name@main"), kOne);
  EXPECT_EQ(commit("org/name@pr/1"), kTwo);
  EXPECT_EQ(commit("org/name@" + kThree), kThree);
  EXPECT_EQ(commit("org/name@01234"), kThree);
  EXPECT_EQ(commit("org/name@664dba2"), kOne);
  EXPECT_EQ(commit("org/name@abcdef0"), kThree);  // a reference before a hash
}

TEST_F(ResolveTest, ErrorsSayWhereAndHow) {
  const Error nowhere = error("org/other");
  EXPECT_EQ(nowhere.code, ErrorCode::kNotFound);
  EXPECT_THAT(nowhere.message, AllOf(HasSubstr("models--org--other"), HasSubstr("`sterling pull org/other`")));
  EXPECT_THAT(error("org/name@v1").message,
              AllOf(HasSubstr("revision v1"), HasSubstr("references there: abcdef0, broken, gone, main, pr/1"),
                    HasSubstr(kOne), HasSubstr("`sterling pull org/name@v1`")));
  EXPECT_EQ(error("org/name@gone").code, ErrorCode::kNotFound);
  EXPECT_EQ(error("org/name@0123").code, ErrorCode::kNotFound);  // too short for a hash
  EXPECT_EQ(error("org/name@" + std::string(40, 'd')).code, ErrorCode::kNotFound);
  const Error several = error("org/name@664db");
  EXPECT_EQ(several.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(several.message, AllOf(HasSubstr(kOne), HasSubstr(kTwo)));
  const Error broken = error("org/name@broken");
  EXPECT_EQ(broken.code, ErrorCode::kCorrupt);
  EXPECT_THAT(broken.message, HasSubstr("refs/broken"));
}

TEST_F(ResolveTest, PathsStayPaths) {
  folder_.write("org/name/config.json", "{}");
  const std::string local = (folder_.path() / "org/name").string();
  const auto there = resolve_model(local, locations_);
  ASSERT_TRUE(there.ok());
  EXPECT_EQ(there->path, local);
  EXPECT_FALSE(there->repo);
  for (const char* text : {"./absent", "/absent/model", "a/b/c", "absent.gguf", "../org/name", ""}) {
    const auto path = resolve_model(text, locations_);
    ASSERT_TRUE(path.ok()) << text;
    EXPECT_EQ(path->path, text);
    EXPECT_FALSE(path->repo);
  }
}

TEST_F(ResolveTest, NamesWithoutOrganisation) {
  folder_.write("hub/models--gpt2/snapshots/" + kOne + "/config.json", "{}");
  folder_.write("hub/models--gpt2/refs/main", kOne);
  EXPECT_EQ(resolve_model("gpt2", locations_)->commit, kOne);
}

// The order of huggingface_hub's own documentation; tests/hub/interop_test.py asks the library.
TEST(Locations, Precedence) {
  Environment environment;
  environment.home = "/h";
  EXPECT_EQ(locate(environment).cache, "/h/.cache/huggingface/hub");
  EXPECT_EQ(locate(environment).token_file, "/h/.cache/huggingface/token");
  environment.xdg_cache_home = "/x";
  EXPECT_EQ(locate(environment).cache, "/x/huggingface/hub");
  environment.hf_home = "/y";
  EXPECT_EQ(locate(environment).cache, "/y/hub");
  EXPECT_EQ(locate(environment).token_file, "/y/token");
  environment.huggingface_hub_cache = "/old";
  EXPECT_EQ(locate(environment).cache, "/old");
  environment.hf_hub_cache = "/new";
  EXPECT_EQ(locate(environment).cache, "/new");
  environment.hf_token_path = "/t";
  EXPECT_EQ(locate(environment).token_file, "/t");
  EXPECT_EQ(locate(environment).endpoint, "https://huggingface.co");
  environment.hf_endpoint = "http://mirror:8080//";
  EXPECT_EQ(locate(environment).endpoint, "http://mirror:8080");
}

TEST(Locations, OfflineWords) {
  for (const char* word : {"1", "on", "YES", "True"}) EXPECT_TRUE(locate({.hf_hub_offline = word}).offline) << word;
  for (const char* word : {"", "0", "off", "no", "false", "2"})
    EXPECT_FALSE(locate({.hf_hub_offline = word}).offline) << word;
}

}  // namespace
}  // namespace sterling::hub
