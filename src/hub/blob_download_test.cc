#include "hub/blob_download.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hub/test_folder.h"

namespace sterling::hub {
namespace {

using ::testing::HasSubstr;

std::string random_text(std::size_t size) {
  std::mt19937 random(5);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

std::string sha256(const std::string& text) {
  Digest digest(HashKind::kSha256, static_cast<std::int64_t>(text.size()));
  digest.update(text);
  return digest.finish();
}

class DownloadTest : public ::testing::Test {
 protected:
  void begin(const std::string& there, bool size_known = true) {
    folder_.write("x.incomplete", there);
    const std::optional<std::int64_t> size = size_known ? std::optional<std::int64_t>(text_.size()) : std::nullopt;
    auto file = BlobFile::open(folder_.path() / "x.incomplete", size, sha256(text_), {});
    ASSERT_TRUE(file.ok());
    download_ = std::make_unique<BlobDownload>(WantedBlob{sha256(text_), size, sha256(text_), {"x"}}, 1000, position_);
    download_->start(std::move(*file));
  }
  void expect_true_beginning() {
    const std::string there = folder_.read("x.incomplete");
    EXPECT_EQ(there, text_.substr(0, there.size()));
  }
  TestFolder folder_;
  const std::string text_ = random_text(20'500);
  std::atomic<std::int64_t> position_ = 0;
  std::unique_ptr<BlobDownload> download_;
};

// Whatever the order in which pieces of parts come, the file is a beginning of the text after each, and whole at the end.
TEST_F(DownloadTest, AnyOrderOfArrival) {
  for (unsigned seed = 0; seed < 30; ++seed) {
    position_ = 0;
    begin(text_.substr(0, seed * 100));
    std::mt19937 random(seed);
    std::vector<std::shared_ptr<Part>> hands;
    bool complete = false;
    while (!complete) {
      if (hands.size() < 6) {
        if (auto part = download_->claim(true)) {
          hands.push_back(part);
          continue;
        }
      }
      ASSERT_FALSE(hands.empty());
      const std::size_t which = random() % hands.size();
      const auto part = hands[which];
      const std::int64_t left = *part->end - part->position();
      const std::int64_t size = std::min<std::int64_t>(left, 1 + random() % 400);
      const auto at = static_cast<std::size_t>(part->position());
      ASSERT_TRUE(download_->receive(*part, std::string_view(text_).substr(at, static_cast<std::size_t>(size))).ok());
      expect_true_beginning();
      if (size < left) continue;
      hands.erase(hands.begin() + static_cast<std::ptrdiff_t>(which));
      const auto whole = download_->complete(part);
      ASSERT_TRUE(whole.ok());
      expect_true_beginning();
      complete = *whole;
    }
    EXPECT_TRUE(hands.empty());
    EXPECT_EQ(folder_.read("x.incomplete"), text_);
    EXPECT_EQ(position_, static_cast<std::int64_t>(text_.size()));
    EXPECT_TRUE(download_->file().verify({}).ok());
    ASSERT_TRUE(download_->file().publish(folder_.path() / "x").ok());
    EXPECT_EQ(folder_.read("x"), text_);
  }
}

TEST_F(DownloadTest, PartsCoverTheFileOnce) {
  begin(text_.substr(0, 123));
  std::int64_t at = 123;
  std::vector<std::shared_ptr<Part>> parts;
  while (auto part = download_->claim(true)) {
    EXPECT_EQ(part->begin, at);
    at = *part->end;
    parts.push_back(part);
  }
  EXPECT_EQ(at, static_cast<std::int64_t>(text_.size()));
  EXPECT_EQ(download_->open_parts(), static_cast<int>(parts.size()));
}

TEST_F(DownloadTest, ParkingIsRefusedWhereMemoryIsShort) {
  begin("");
  const auto first = download_->claim(false);
  ASSERT_TRUE(first);
  EXPECT_FALSE(download_->claim(false));
  EXPECT_TRUE(download_->claim(true));
}

TEST_F(DownloadTest, WithoutRangesOnePartAtATime) {
  begin("");
  const auto first = download_->claim(true);
  const auto second = download_->claim(true);
  ASSERT_TRUE(download_->receive(*first, std::string_view(text_).substr(0, 300)).ok());
  ASSERT_TRUE(download_->receive(*second, std::string_view(text_).substr(1000, 500)).ok());
  download_->give_up_ranges();
  EXPECT_TRUE(first->dropped);
  EXPECT_TRUE(second->dropped);
  EXPECT_FALSE(download_->receive(*second, "x").ok());
  EXPECT_EQ(position_, 300);
  const auto rest = download_->claim(true);
  ASSERT_TRUE(rest);
  EXPECT_EQ(rest->begin, 300);
  EXPECT_EQ(rest->end, static_cast<std::int64_t>(text_.size()));
  EXPECT_FALSE(download_->claim(true));
  ASSERT_TRUE(download_->receive(*rest, std::string_view(text_).substr(300)).ok());
  EXPECT_TRUE(*download_->complete(rest));
  EXPECT_EQ(folder_.read("x.incomplete"), text_);
}

TEST_F(DownloadTest, UnknownSizeIsOnePart) {
  begin("", false);
  const auto part = download_->claim(true);
  ASSERT_TRUE(part);
  EXPECT_FALSE(part->end);
  EXPECT_FALSE(download_->claim(true));
  ASSERT_TRUE(download_->receive(*part, text_).ok());
  EXPECT_TRUE(*download_->complete(part));
  EXPECT_TRUE(download_->file().verify({}).ok());
}

TEST_F(DownloadTest, RestartThrowsAwayWhatWasThere) {
  begin(std::string(500, 'x'));
  EXPECT_EQ(position_, 500);
  ASSERT_TRUE(download_->restart().ok());
  EXPECT_EQ(position_, 0);
  EXPECT_EQ(download_->claim(true)->begin, 0);
  EXPECT_EQ(folder_.read("x.incomplete"), "");
}

TEST(BlobFile, ChecksSizeAndHash) {
  const TestFolder folder;
  const auto path = folder.path() / "x.incomplete";
  const auto fault = [&](std::optional<std::int64_t> size, const std::string& hash) {
    auto file = BlobFile::open(path, size, hash, {});
    EXPECT_TRUE(file.ok());
    const Status status = file->verify({});
    return status.ok() ? std::string() : status.error().message;
  };
  folder.write("x.incomplete", "hello\n");
  EXPECT_EQ(fault(6, "ce013625030ba8dba906f756967f9e9ca394464a"), "");
  EXPECT_EQ(fault(std::nullopt, "ce013625030ba8dba906f756967f9e9ca394464a"), "");
  EXPECT_EQ(fault(6, "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"), "");
  EXPECT_EQ(fault(6, ""), "");
  EXPECT_EQ(fault(6, "not-a-hash"), "");
  EXPECT_THAT(fault(7, ""), HasSubstr("6 bytes arrived, the hub says 7"));
  EXPECT_THAT(fault(6, std::string(64, 'a')),
              HasSubstr("5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"));
  // A beginning that is longer than the whole is none.
  EXPECT_EQ(BlobFile::open(path, 3, "", {})->written(), 0);
}

TEST(BlobFile, DoesNotFollowLinks) {
  const TestFolder folder;
  folder.write("target", "precious");
  std::filesystem::create_symlink(folder.path() / "target", folder.path() / "x.incomplete");
  EXPECT_FALSE(BlobFile::open(folder.path() / "x.incomplete", 3, "", {}).ok());
  EXPECT_EQ(folder.read("target"), "precious");
}

}  // namespace
}  // namespace sterling::hub
