#include "cli/chat_line.h"

#include <gtest/gtest.h>

namespace sterling::cli {
namespace {

TEST(ChatLine, Messages) {
  EXPECT_EQ(parse_chat_line("").kind, ChatLineKind::kEmpty);
  EXPECT_EQ(parse_chat_line(" \t\r\n").kind, ChatLineKind::kEmpty);
  EXPECT_EQ(parse_chat_line("  hello there \n").kind, ChatLineKind::kMessage);
  EXPECT_EQ(parse_chat_line("  hello there \n").text, "hello there");
  EXPECT_EQ(parse_chat_line("a /reset").kind, ChatLineKind::kMessage);
  EXPECT_EQ(parse_chat_line("//etc/hosts").kind, ChatLineKind::kMessage);
  EXPECT_EQ(parse_chat_line("//etc/hosts").text, "/etc/hosts");
}

TEST(ChatLine, Commands) {
  EXPECT_EQ(parse_chat_line("/reset\n").kind, ChatLineKind::kReset);
  EXPECT_EQ(parse_chat_line(" /quit").kind, ChatLineKind::kQuit);
  EXPECT_EQ(parse_chat_line("/help").kind, ChatLineKind::kHelp);
  const ChatLine system = parse_chat_line("/system  You are  terse. ");
  EXPECT_EQ(system.kind, ChatLineKind::kSystem);
  EXPECT_EQ(system.text, "You are  terse.");
  EXPECT_EQ(parse_chat_line("/system").kind, ChatLineKind::kSystem);
  EXPECT_EQ(parse_chat_line("/system").text, "");
}

TEST(ChatLine, UnknownCommandsNameTheNearest) {
  const ChatLine line = parse_chat_line("/rest");
  EXPECT_EQ(line.kind, ChatLineKind::kUnknown);
  EXPECT_EQ(line.nearest, "/reset");
  EXPECT_EQ(parse_chat_line("/sytsem be kind").nearest, "/system");
  EXPECT_EQ(parse_chat_line("/zzzzzzzz").nearest, "");
  EXPECT_EQ(parse_chat_line("/quit now").kind, ChatLineKind::kUnknown);
  EXPECT_EQ(parse_chat_line("/quit now").nearest, "/quit");
}

}  // namespace
}  // namespace sterling::cli
