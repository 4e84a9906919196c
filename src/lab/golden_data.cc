#include "lab/golden_data.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <set>

#include <fmt/format.h>

#include "formats/safetensors.h"
#include "platform/mapped_file.h"

namespace sterling::lab {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors is little endian");

// Entries of one group, by their name inside it. Keeps the first error, so that callers read straight through.
class Reader {
 public:
  Reader(const formats::SafetensorsContents& contents, std::string file, std::string prefix)
      : contents_(contents), file_(std::move(file)), prefix_(std::move(prefix)) {}

  const TensorView* find(const std::string& name) const {
    const std::string full = prefix_ + name;
    const auto& all = contents_.tensors;
    const auto at = std::lower_bound(all.begin(), all.end(), full,
                                     [](const TensorView& view, const std::string& key) { return view.name < key; });
    return at != all.end() && at->name == full ? &*at : nullptr;
  }

  std::vector<std::int32_t> integers(const std::string& name, std::size_t rank = 1) {
    const TensorView* view = require(name, DType::kI32);
    if (view == nullptr) return {};
    if (view->shape.size() != rank)
      fail(name, rank == 1 ? "expected one dimension" : fmt::format("expected {} dimensions", rank));
    std::vector<std::int32_t> out(view->data.size() / sizeof(std::int32_t));
    std::memcpy(out.data(), view->data.data(), view->data.size());
    return out;
  }

  std::vector<std::byte> codes(const std::string& name) {
    if (find(name) == nullptr) return {};
    const TensorView* view = require(name, DType::kF8E4M3);
    return view == nullptr ? std::vector<std::byte>{} : std::vector<std::byte>(view->data.begin(), view->data.end());
  }

  GoldenTensor wide(const std::string& name) {
    const TensorView* view = require(name, DType::kF64);
    return view == nullptr ? GoldenTensor{} : copy<double>(name, *view);
  }

  std::optional<GoldenTensor> narrow(const std::string& name) {
    if (find(name) == nullptr) return std::nullopt;
    const TensorView* view = require(name, DType::kF32);
    return view == nullptr ? GoldenTensor{} : copy<float>(name, *view);
  }

  GoldenEntry entry(const std::string& stem, std::size_t rank) {
    GoldenEntry out{wide(stem + ".f64"), narrow(stem + ".f32")};
    if (!ok()) return out;
    if (out.wide.shape.size() != rank) fail(stem + ".f64", fmt::format("expected {} dimensions", rank));
    if (out.narrow && out.narrow->shape != out.wide.shape)
      fail(stem + ".f32", "its shape differs from the .f64 entry's");
    return out;
  }

  std::optional<GoldenEntry> optional_entry(const std::string& stem, std::size_t rank) {
    if (find(stem + ".f64") == nullptr) return std::nullopt;
    return entry(stem, rank);
  }

  void fail(const std::string& name, std::string_view what) {
    if (error_) return;
    error_ = make_error(ErrorCode::kCorrupt, fmt::format("{}: {}{}: {}", file_, prefix_, name, what), prefix_ + name);
  }
  bool ok() const { return !error_; }
  const Error& error() const { return *error_; }

 private:
  const TensorView* require(const std::string& name, DType dtype) {
    const TensorView* view = find(name);
    if (view == nullptr) {
      fail(name, "the entry is missing");
    } else if (view->dtype != dtype) {
      fail(name, fmt::format("expected {}, found {}", dtype_name(dtype), dtype_name(view->dtype)));
      return nullptr;
    }
    return view;
  }

  template <typename T>
  GoldenTensor copy(const std::string& name, const TensorView& view) {
    GoldenTensor out{view.shape, std::vector<double>(view.data.size() / sizeof(T))};
    for (std::size_t i = 0; i < out.values.size(); ++i) {
      T value;
      std::memcpy(&value, view.data.data() + i * sizeof(T), sizeof(T));
      out.values[i] = static_cast<double>(value);
      if (!std::isfinite(out.values[i])) fail(name, "a value is not finite");
    }
    return out;
  }

  const formats::SafetensorsContents& contents_;
  std::string file_;
  std::string prefix_;
  std::optional<Error> error_;
};

// A dimension of the entry that `expected` fixes.
void check_extent(Reader& reader, const std::string& name, const GoldenTensor& tensor, std::size_t axis,
                  std::int64_t expected) {
  if (!reader.ok() || tensor.shape[axis] == expected) return;
  reader.fail(name, fmt::format("dimension {} is {}, expected {}", axis, tensor.shape[axis], expected));
}

std::optional<GoldenInternals> read_internals(Reader& reader, const std::string& prompt, std::int64_t n) {
  if (reader.find(prompt + "hidden.f64") == nullptr) return std::nullopt;
  GoldenInternals out;
  out.hidden = reader.entry(prompt + "hidden", 3);
  out.mixer = reader.optional_entry(prompt + "mixer", 3);
  out.mlp = reader.optional_entry(prompt + "mlp", 3);
  out.k = reader.optional_entry(prompt + "k", 4);
  out.v = reader.optional_entry(prompt + "v", 4);
  out.router_weights = reader.optional_entry(prompt + "router.weights", 3);
  if (out.router_weights) {
    out.router_experts = reader.integers(prompt + "router.experts", 3);
    if (out.router_experts.size() != out.router_weights->wide.values.size()) {
      reader.fail(prompt + "router.experts", "its size differs from router.weights'");
    }
  }
  out.k_codes = reader.codes(prompt + "k.codes");
  out.v_codes = reader.codes(prompt + "v.codes");
  out.gdn_state = reader.optional_entry(prompt + "gdn.state", 4);
  out.gdn_conv = reader.optional_entry(prompt + "gdn.conv", 3);
  if (!reader.ok()) return out;
  const auto& shape = out.hidden.wide.shape;
  if (shape[0] < 3)
    reader.fail(prompt + "hidden.f64", "expected rows for embeddings, at least one layer and the final norm");
  check_extent(reader, prompt + "hidden.f64", out.hidden.wide, 1, n);
  for (const auto& [name, entry] : {std::pair{"mixer.f64", &out.mixer}, std::pair{"mlp.f64", &out.mlp}}) {
    if (!*entry) continue;
    check_extent(reader, prompt + name, (*entry)->wide, 0, shape[0] - 2);
    check_extent(reader, prompt + name, (*entry)->wide, 1, n);
    check_extent(reader, prompt + name, (*entry)->wide, 2, shape[2]);
  }
  for (const auto& [name, entry] : {std::pair{"k.f64", &out.k}, std::pair{"v.f64", &out.v}}) {
    if (*entry) check_extent(reader, prompt + name, (*entry)->wide, 2, n);
  }
  return out;
}

GoldenPrompt read_prompt(Reader& reader, const std::string& name) {
  const std::string stem = name + ".";
  GoldenPrompt out;
  out.name = name;
  out.tokens = reader.integers(stem + "tokens");
  out.positions = reader.integers(stem + "positions");
  out.logits = reader.entry(stem + "logits", 2);
  out.greedy_tokens = reader.integers(stem + "greedy.tokens");
  out.greedy_margins = reader.wide(stem + "greedy.margin").values;
  if (!reader.ok()) return out;
  const auto n = static_cast<std::int64_t>(out.tokens.size());
  if (n == 0) reader.fail(stem + "tokens", "the prompt is empty");
  for (const std::int32_t position : out.positions) {
    if (position < 0 || position >= n)
      reader.fail(stem + "positions", fmt::format("{} lies outside the prompt", position));
  }
  check_extent(reader, stem + "logits.f64", out.logits.wide, 0, static_cast<std::int64_t>(out.positions.size()));
  if (out.greedy_tokens.size() != out.greedy_margins.size()) {
    reader.fail(stem + "greedy.margin", "its size differs from greedy.tokens'");
  }
  out.internals = read_internals(reader, stem, n);
  return out;
}

// "p17" of "p17.tokens"; empty when the name is not of that form.
std::string prompt_name(std::string_view entry) {
  constexpr std::string_view kSuffix = ".tokens";
  if (entry.size() <= kSuffix.size() + 1 || entry[0] != 'p' || !entry.ends_with(kSuffix)) return {};
  const std::string_view digits = entry.substr(1, entry.size() - kSuffix.size() - 1);
  if (!std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; })) return {};
  return std::string(entry.substr(0, entry.size() - kSuffix.size()));
}

// Groups of a file: "" for "p1.tokens", "kv_none" for "kv_none.p1.tokens".
std::set<std::string> groups_of(const formats::SafetensorsContents& contents) {
  std::set<std::string> out;
  for (const TensorView& view : contents.tensors) {
    const std::size_t dot = view.name.find(".p");
    if (!prompt_name(view.name).empty()) out.insert("");
    if (dot != std::string::npos && !prompt_name(std::string_view(view.name).substr(dot + 1)).empty()) {
      out.insert(view.name.substr(0, dot));
    }
  }
  return out;
}

double largest_difference(std::span<const double> a, std::span<const double> b) {
  double largest = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::fabs(a[i] - b[i]));
  return largest;
}

// How far this set lies from the one without quantised K and V, prompt by prompt and layer by layer.
void measure_shift(Reader& plain, GoldenPrompt& prompt) {
  const GoldenTensor logits = plain.wide(prompt.name + ".logits.f64");
  if (!plain.ok()) return;
  if (logits.shape != prompt.logits.wide.shape || plain.integers(prompt.name + ".tokens") != prompt.tokens) {
    plain.fail(prompt.name + ".logits.f64", "differs in tokens or shape from the set with quantised K and V");
    return;
  }
  prompt.quantisation_shift = largest_difference(logits.values, prompt.logits.wide.values);
  if (const auto narrow = plain.narrow(prompt.name + ".logits.f32"); narrow && narrow->shape == logits.shape) {
    prompt.plain_distance = largest_difference(logits.values, narrow->values);
  }
  if (!prompt.internals) return;
  const GoldenTensor hidden = plain.wide(prompt.name + ".hidden.f64");
  const GoldenTensor& own = prompt.internals->hidden.wide;
  if (!plain.ok() || hidden.shape != own.shape) return;
  const std::size_t size = own.slice_size();
  for (std::size_t row = 0; row * size < own.values.size(); ++row) {
    prompt.internals->hidden_shift.push_back(largest_difference(std::span(hidden.values).subspan(row * size, size),
                                                                std::span(own.values).subspan(row * size, size)));
  }
}

}  // namespace

Expected<std::vector<std::string>> golden_groups(const std::filesystem::path& path) {
  Expected<platform::MappedFile> file = platform::MappedFile::open(path);
  if (!file) return file.error();
  Expected<formats::SafetensorsContents> contents = formats::parse_safetensors(file->data(), path.string());
  if (!contents) return contents.error();
  const std::set<std::string> groups = groups_of(*contents);
  return std::vector<std::string>(groups.begin(), groups.end());
}

Expected<GoldenData> load_golden(const std::filesystem::path& path, std::string_view group) {
  Expected<platform::MappedFile> file = platform::MappedFile::open(path);
  if (!file) return file.error();
  Expected<formats::SafetensorsContents> contents = formats::parse_safetensors(file->data(), path.string());
  if (!contents) return contents.error();

  const std::set<std::string> groups = groups_of(*contents);
  if (groups.empty())
    return make_error(ErrorCode::kCorrupt, path.string() + ": no entry is named pN.tokens", path.string());
  if (!groups.contains(std::string(group))) {
    return make_error(ErrorCode::kInvalidArgument,
                      group.empty() ? fmt::format("{}: the file holds several sets; choose one of {}", path.string(),
                                                  fmt::join(groups, ", "))
                                    : fmt::format("{}: there is no set \"{}\"", path.string(), group),
                      path.string());
  }

  const std::string prefix = group.empty() ? std::string() : std::string(group) + ".";
  Reader reader(*contents, path.string(), prefix);
  GoldenData out;
  out.file = path.string();
  for (const TensorView& view : contents->tensors) {
    if (!view.name.starts_with(prefix)) continue;
    const std::string name = prompt_name(std::string_view(view.name).substr(prefix.size()));
    if (!name.empty()) out.prompts.push_back(read_prompt(reader, name));
    if (!reader.ok()) return reader.error();
  }
  out.quantised_kv = !group.empty() && group != "kv_none" && groups.contains("kv_none");
  if (out.quantised_kv) {
    Reader plain(*contents, path.string(), "kv_none.");
    for (GoldenPrompt& prompt : out.prompts) measure_shift(plain, prompt);
    if (!plain.ok()) return plain.error();
  }
  const auto with_internals = [](const GoldenPrompt& prompt) { return prompt.internals.has_value(); };
  if (std::count_if(out.prompts.begin(), out.prompts.end(), with_internals) > 1) {
    return make_error(ErrorCode::kCorrupt, path.string() + ": more than one prompt has internals (pN.hidden.f64)",
                      path.string());
  }
  std::sort(out.prompts.begin(), out.prompts.end(),
            [](const GoldenPrompt& a, const GoldenPrompt& b) { return a.tokens.size() < b.tokens.size(); });
  return out;
}

}  // namespace sterling::lab
