// Readers for tests/text/, which tools/text/make_fixtures.py writes. For tests only.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <boost/json.hpp>

#include "text/gguf_vocabulary.h"

namespace sterling::text::testing {

inline std::filesystem::path fixture_path(const std::string& name) {
  return std::filesystem::path(STERLING_SOURCE_DIR) / "tests" / "text" / name;
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::string read_fixture(const std::string& name) {
  return read_file(fixture_path(name));
}

inline boost::json::value read_json(const std::string& name) {
  return boost::json::parse(read_fixture(name));
}

inline std::string to_string(const boost::json::value& value) {
  return std::string(value.as_string().data(), value.as_string().size());
}

inline std::vector<std::string> read_strings() {
  std::vector<std::string> out;
  const boost::json::value list = read_json("strings.json");
  for (const auto& item : list.as_array()) out.push_back(to_string(item));
  return out;
}

inline std::vector<std::int32_t> to_ids(const boost::json::value& value) {
  std::vector<std::int32_t> out;
  for (const auto& id : value.as_array()) out.push_back(static_cast<std::int32_t>(id.to_number<std::int64_t>()));
  return out;
}

// Sequences of ids, each with its length in front, as LEB128 numbers.
inline std::vector<std::vector<std::int32_t>> read_ids(const std::string& name) {
  const std::string bytes = read_fixture(name);
  std::size_t at = 0;
  const auto next = [&] {
    std::uint32_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes.at(at++));
      value |= static_cast<std::uint32_t>(byte & 0x7F) << shift;
      if ((byte & 0x80) == 0) return value;
    }
  };
  std::vector<std::vector<std::int32_t>> out;
  while (at < bytes.size()) {
    std::vector<std::int32_t> ids(next());
    for (std::int32_t& id : ids) id = static_cast<std::int32_t>(next());
    out.push_back(std::move(ids));
  }
  return out;
}

// The vocabulary of SmolLM2-135M-Instruct as its GGUF file carries it. Merge number i makes token number base + i, so two
// 16-bit ids per merge are enough.
inline GgufVocabulary smollm2_vocabulary() {
  const boost::json::value base = read_json("smollm2.base.json");
  GgufVocabulary out;
  out.model = "gpt2";
  out.pre = "smollm";
  for (const auto& token : base.at("tokens").as_array()) out.tokens.push_back(to_string(token));
  for (const auto& type : base.at("types").as_array()) out.token_types.push_back(type.to_number<int>());
  const std::string merges = read_fixture("smollm2.merges.bin");
  const auto id = [&](std::size_t at) {
    return static_cast<std::size_t>(static_cast<unsigned char>(merges.at(at))) |
           static_cast<std::size_t>(static_cast<unsigned char>(merges.at(at + 1))) << 8;
  };
  for (std::size_t at = 0; at < merges.size(); at += 4) {
    const std::string left = out.tokens.at(id(at));
    const std::string right = out.tokens.at(id(at + 2));
    out.merges.push_back(left + " " + right);
    out.tokens.push_back(left + right);
    out.token_types.push_back(1);
  }
  out.bos_id = base.at("bos").to_number<std::int32_t>();
  out.eos_id = base.at("eos").to_number<std::int32_t>();
  out.unk_id = base.at("unk").to_number<std::int32_t>();
  out.pad_id = base.at("pad").to_number<std::int32_t>();
  out.add_bos = false;
  return out;
}

// Vocabulary and merges of a byte-level tokenizer.json as a GGUF file would carry them.
inline GgufVocabulary gguf_of(const std::string& tokenizer_json, const std::string& pre) {
  const boost::json::value json = boost::json::parse(tokenizer_json);
  GgufVocabulary out;
  out.model = "gpt2";
  out.pre = pre;
  std::map<std::int64_t, std::pair<std::string, int>> tokens;
  for (const auto& [token, id] : json.at("model").at("vocab").as_object()) {
    tokens[id.to_number<std::int64_t>()] = {std::string(token), 1};
  }
  for (const auto& added : json.at("added_tokens").as_array()) {
    tokens[added.at("id").to_number<std::int64_t>()] = {to_string(added.at("content")),
                                                        added.at("special").as_bool() ? 3 : 4};
  }
  for (const auto& [id, token] : tokens) {
    out.tokens.push_back(token.first);
    out.token_types.push_back(token.second);
  }
  for (const auto& merge : json.at("model").at("merges").as_array()) {
    out.merges.push_back(to_string(merge.at(0)) + " " + to_string(merge.at(1)));
  }
  return out;
}

}  // namespace sterling::text::testing
