#include "cli/sse_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sterling::cli {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> feed(SseParser& parser, std::string_view bytes) {
  auto events = parser.feed(bytes);
  EXPECT_TRUE(events.ok());
  return events.ok() ? *events : std::vector<std::string>{};
}

TEST(SseParser, EventsEndAtABlankLine) {
  SseParser parser;
  EXPECT_THAT(feed(parser, "data: one\n"), IsEmpty());
  EXPECT_THAT(feed(parser, "\ndata: two\n\ndata: three\n\n"), ElementsAre("one", "two", "three"));
}

TEST(SseParser, EveryLineEndAndEverySplit) {
  const std::string stream =
      "\xEF\xBB\xBF"
      "data: a\r\ndata: b\r\n\r\ndata:c\r\rdata\n\n: ping\n\nevent: x\nid: 7\ndata:  d\n\n";
  for (std::size_t step = 1; step <= stream.size(); ++step) {
    SseParser parser;
    std::vector<std::string> all;
    for (std::size_t at = 0; at < stream.size(); at += step) {
      for (std::string& event : feed(parser, std::string_view(stream).substr(at, step)))
        all.push_back(std::move(event));
    }
    EXPECT_THAT(all, ElementsAre("a\nb", "c", "", " d")) << "in steps of " << step;
  }
}

TEST(SseParser, CommentsAndOtherFieldsGiveNothing) {
  SseParser parser;
  EXPECT_THAT(feed(parser, ": ping\n\nevent: message\n\nretry: 10\n\ndatax: no\n\n"), IsEmpty());
}

TEST(SseParser, AnUnfinishedEventIsHeldBack) {
  SseParser parser;
  EXPECT_THAT(feed(parser, "data: [DONE]\n"), IsEmpty());
}

TEST(SseParser, ALineWithoutEndIsAnError) {
  SseParser parser;
  const std::string chunk(1 << 20, 'x');
  bool failed = false;
  for (int i = 0; i < 17 && !failed; ++i) failed = !parser.feed(chunk).ok();
  EXPECT_TRUE(failed);
}

}  // namespace
}  // namespace sterling::cli
