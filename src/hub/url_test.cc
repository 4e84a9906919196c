#include "hub/url.h"

#include <gtest/gtest.h>

namespace sterling::hub {
namespace {

TEST(PercentEncode, Rfc3986) {
  EXPECT_EQ(percent_encode("aZ09-._~"), "aZ09-._~");
  EXPECT_EQ(percent_encode("a b/c%?#&+"), "a%20b%2Fc%25%3F%23%26%2B");
  EXPECT_EQ(percent_encode("a/b c", "/"), "a/b%20c");
  EXPECT_EQ(percent_encode("\xc3\xa9"), "%C3%A9");
}

TEST(Origin, SchemeHostAndPort) {
  const auto hub = origin_of("https://HuggingFace.co/org/name");
  ASSERT_TRUE(hub);
  EXPECT_EQ(hub, origin_of("https://huggingface.co:443"));
  EXPECT_NE(hub, origin_of("http://huggingface.co:443"));
  EXPECT_NE(hub, origin_of("https://huggingface.co:444"));
  EXPECT_NE(hub, origin_of("https://cdn.huggingface.co"));
  EXPECT_NE(hub, origin_of("https://huggingface.co.evil.example"));
  EXPECT_NE(hub, origin_of("https://evil.example/https://huggingface.co"));
  EXPECT_NE(hub, origin_of("https://huggingface.co@evil.example"));
  for (const char* none :
       {"", "huggingface.co", "/path", "file:///etc/passwd", "ftp://host", "http://", "javascript:x"}) {
    EXPECT_FALSE(origin_of(none)) << none;
  }
}

// The examples of RFC 3986, 5.4, as far as they concern http.
TEST(ResolveReference, AsRedirects) {
  const std::string base = "http://a/b/c/d?q";
  EXPECT_EQ(resolve_reference(base, "g"), "http://a/b/c/g");
  EXPECT_EQ(resolve_reference(base, "/g"), "http://a/g");
  EXPECT_EQ(resolve_reference(base, "g?y"), "http://a/b/c/g?y");
  EXPECT_EQ(resolve_reference(base, "../g"), "http://a/b/g");
  EXPECT_EQ(resolve_reference(base, "https://other.example/x?s=1#f"), "https://other.example/x?s=1");
  EXPECT_EQ(resolve_reference("https://h/x", "//other.example/y"), "https://other.example/y");
  EXPECT_FALSE(resolve_reference(base, "file:///etc/passwd"));
  EXPECT_FALSE(resolve_reference(base, "gopher://x/"));
  EXPECT_FALSE(resolve_reference(base, ""));
}

TEST(ShownUrl, LeavesSecretsOut) {
  EXPECT_EQ(shown_url("https://user:secret@h.example:8443/a/b?X-Amz-Signature=secret#secret"),
            "https://h.example:8443/a/b");
  EXPECT_EQ(shown_url("no url at all").find("no url"), std::string::npos);
}

TEST(NextLink, OfALinkHeader) {
  EXPECT_EQ(next_link("<https://h/a?cursor=1>; rel=\"next\""), "https://h/a?cursor=1");
  EXPECT_EQ(next_link("<https://h/first>; rel=\"first\", </a,b>; rel=\"next\""), "/a,b");
  EXPECT_EQ(next_link("<https://h/x>; rel=\"prev\""), std::nullopt);
  EXPECT_EQ(next_link(""), std::nullopt);
  EXPECT_EQ(next_link("<unclosed; rel=\"next\""), std::nullopt);
}

}  // namespace
}  // namespace sterling::hub
