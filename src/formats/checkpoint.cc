#include "formats/checkpoint.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "formats/gguf.h"
#include "formats/gguf_model.h"
#include "formats/json.h"
#include "formats/listing.h"
#include "formats/message.h"
#include "formats/safetensors.h"
#include "formats/safetensors_index.h"
#include "formats/sorted_tensors.h"
#include "platform/mapped_file.h"

namespace sterling::formats {

namespace {

namespace fs = std::filesystem;
namespace json = boost::json;
using platform::MappedFile;

constexpr std::string_view kAccepted =
    "accepted: a directory with config.json and .safetensors weights, a directory with one .gguf file, or a .gguf file";

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.data().data()), file.data().size()};
}

Error path_error(ErrorCode code, const std::string& path, std::string_view problem) {
  return make_error(code, fmt::format("{}: {}", path, problem), path);
}

// Empty when the file is not there.
Expected<std::optional<json::object>> read_optional_object(const fs::path& path) {
  Expected<json::object> object = read_json_object(path);
  if (object) return std::optional<json::object>(std::move(*object));
  if (object.error().code == ErrorCode::kNotFound) return std::optional<json::object>();
  return object.error();
}

// A string, or a list of {name, template}.
Status check_chat_template(const json::value& value, const std::string& file) {
  if (value.is_string()) return {};
  const auto wrong = [&](std::string_view place, const json::value& found) {
    return make_error(ErrorCode::kCorrupt,
                      fmt::format("{}: {}: expected a string, or a list of {{name, template}}, found {}", file, place,
                                  describe(found)),
                      fmt::format("{}:{}", file, place));
  };
  if (!value.is_array()) return wrong("chat_template", value);
  for (std::size_t i = 0; i < value.get_array().size(); ++i) {
    const json::value& element = value.get_array()[i];
    const json::object* object = element.if_object();
    const json::value* name = object == nullptr ? nullptr : object->if_contains("name");
    const json::value* text = object == nullptr ? nullptr : object->if_contains("template");
    if (name == nullptr || text == nullptr || !name->is_string() || !text->is_string()) {
      return wrong(fmt::format("chat_template[{}]", i), element);
    }
  }
  return {};
}

// Headers of many shards, on a few threads. Of several faults the one of the first shard is told.
Status parse_shards(std::span<const std::unique_ptr<MappedFile>> files, std::vector<std::vector<TensorView>>& shards) {
  constexpr std::size_t kMostThreads = 4;
  constexpr std::size_t kShardsPerThread = 4;  // below this a thread costs more than it saves
  std::atomic<std::size_t> next = 0;
  std::vector<Status> statuses(files.size());
  const auto work = [&] {
    for (std::size_t i = next++; i < files.size(); i = next++) {
      Expected<SafetensorsContents> parsed = parse_safetensors(files[i]->data(), files[i]->path());
      if (parsed) {
        shards[i] = std::move(parsed->tensors);
      } else {
        statuses[i] = parsed.error();
      }
    }
  };
  std::vector<std::thread> threads;
  const std::size_t wanted = std::min(
      {kMostThreads, files.size() / kShardsPerThread, static_cast<std::size_t>(std::thread::hardware_concurrency())});
  try {
    while (threads.size() + 1 < wanted) threads.emplace_back(work);
  } catch (const std::exception&) {
    // No more threads to be had: those that run, and this one, do it all.
  }
  work();
  for (std::thread& thread : threads) thread.join();
  for (Status& status : statuses) {
    if (!status) return std::move(status);
  }
  return {};
}

}  // namespace

struct Checkpoint::Contents {
  std::string path;
  std::string config_file;
  CheckpointFormat format = CheckpointFormat::kConfigOnly;
  json::object config;
  std::optional<json::object> generation_config;
  std::optional<json::object> hf_quant_config;
  std::optional<json::object> tokenizer_config;
  std::optional<json::object> special_tokens_map;
  std::optional<json::value> chat_template;
  std::optional<GgufTokenizerData> gguf_tokenizer;
  std::vector<TensorView> tensors;
  mutable std::atomic<std::size_t> last_found = 0;  // where a search for a tensor begins: a hint, any value is right
  std::unique_ptr<MappedFile> tokenizer_json;
  std::vector<std::unique_ptr<MappedFile>> files;  // what tensors point into; names too, so the addresses must stay

  Status open_any();
  Status open_directory();
  Status open_gguf(const fs::path& file);
  Status open_safetensors(const ModelListing& listing);
  Status open_shards();
  Status open_tokenizer_files();
  Status open_chat_template();
  Expected<const MappedFile*> map(const fs::path& file);
};

Expected<const MappedFile*> Checkpoint::Contents::map(const fs::path& file) {
  Expected<MappedFile> mapped = MappedFile::open(file);
  if (!mapped) return mapped.error();
  files.push_back(std::make_unique<MappedFile>(std::move(*mapped)));
  return files.back().get();
}

Status Checkpoint::Contents::open_any() {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) {
    return path_error(ErrorCode::kNotFound, path, fmt::format("no such file or directory; {}", kAccepted));
  }
  if (error) {
    const bool denied = error == std::errc::permission_denied;
    return path_error(denied ? ErrorCode::kPermission : ErrorCode::kIo, path, error.message());
  }
  if (status.type() == fs::file_type::directory) return open_directory();
  if (!path.ends_with(".gguf")) {
    return path_error(ErrorCode::kInvalidArgument, path,
                      fmt::format("is neither a directory nor a .gguf file; {}", kAccepted));
  }
  return open_gguf(path);
}

Status Checkpoint::Contents::open_directory() {
  Expected<ModelListing> listing = list_model_directory(path);
  if (!listing) return listing.error();
  const bool weights = listing->has_index || !listing->safetensors.empty();
  if (!weights && !listing->ggufs.empty()) {
    if (listing->ggufs.size() > 1) {
      return path_error(ErrorCode::kInvalidArgument, path,
                        fmt::format("holds {} .gguf files ({}); name one of them", listing->ggufs.size(),
                                    joined_names(listing->ggufs)));
    }
    return open_gguf(fs::path(path) / listing->ggufs.front());
  }
  if (!listing->has_config) {
    return weights ? path_error(ErrorCode::kNotFound, path, "has .safetensors weights but no config.json")
                   : path_error(ErrorCode::kNotFound, path, fmt::format("holds no model; {}", kAccepted));
  }

  const fs::path directory(path);
  config_file = (directory / kConfigName).string();
  Expected<json::object> parsed = read_json_object(config_file);
  if (!parsed) return parsed.error();
  config = std::move(*parsed);

  Expected<std::optional<json::object>> generation = read_optional_object(directory / "generation_config.json");
  if (!generation) return generation.error();
  generation_config = std::move(*generation);
  Expected<std::optional<json::object>> quantisation = read_optional_object(directory / "hf_quant_config.json");
  if (!quantisation) return quantisation.error();
  hf_quant_config = std::move(*quantisation);

  if (Status status = open_tokenizer_files(); !status) return status;
  if (!weights) return {};
  format = CheckpointFormat::kSafetensors;
  return open_safetensors(*listing);
}

Status Checkpoint::Contents::open_safetensors(const ModelListing& listing) {
  if (listing.has_index) return open_shards();
  if (!listing.has_safetensors(kSingleName)) {
    return path_error(ErrorCode::kNotFound, path,
                      fmt::format("has {} .safetensors files ({}) but neither {} nor {}", listing.safetensors.size(),
                                  joined_names(listing.safetensors), kSingleName, kIndexName));
  }
  const Expected<const MappedFile*> file = map(fs::path(path) / kSingleName);
  if (!file) return file.error();
  Expected<SafetensorsContents> parsed = parse_safetensors((*file)->data(), (*file)->path());
  if (!parsed) return parsed.error();
  tensors = std::move(parsed->tensors);
  return {};
}

Status Checkpoint::Contents::open_shards() {
  const fs::path directory(path);
  const Expected<MappedFile> index_file = MappedFile::open(directory / kIndexName);
  if (!index_file) return index_file.error();
  const Expected<SafetensorsIndex> index = parse_safetensors_index(text_of(*index_file), index_file->path());
  if (!index) return index.error();

  // A second set of weights that nobody names: which of them is meant would be a guess.
  const bool single_is_shard =
      std::find(index->shards.begin(), index->shards.end(), kSingleName) != index->shards.end();
  std::error_code ignored;
  if (!single_is_shard && fs::exists(directory / kSingleName, ignored)) {
    return path_error(ErrorCode::kCorrupt, index_file->path(),
                      fmt::format("does not name {}, which lies beside it", kSingleName));
  }

  std::vector<std::vector<TensorView>> shards;
  for (const std::string& shard : index->shards) {
    const Expected<const MappedFile*> file = map(directory / shard);
    if (!file) {
      if (file.error().code != ErrorCode::kNotFound) return file.error();
      const auto shard_id = static_cast<std::uint32_t>(shards.size());
      const auto entry = std::find_if(index->entries.begin(), index->entries.end(),
                                      [&](const auto& e) { return e.shard == shard_id; });
      return make_error(ErrorCode::kNotFound,
                        fmt::format("{}: shard {} (of tensor {}, for one) is missing", index_file->path(), quote(shard),
                                    quote(entry->tensor)),
                        (directory / shard).string());
    }
    shards.emplace_back();
  }
  if (Status status = parse_shards(std::span(files).last(shards.size()), shards); !status) return status.error();
  Expected<std::vector<TensorView>> joined_tensors = join_shards(*index, index_file->path(), shards);
  if (!joined_tensors) return joined_tensors.error();
  tensors = std::move(*joined_tensors);
  return {};
}

Status Checkpoint::Contents::open_tokenizer_files() {
  const fs::path directory(path);
  Expected<MappedFile> tokenizer = MappedFile::open(directory / "tokenizer.json");
  if (tokenizer) {
    tokenizer_json = std::make_unique<MappedFile>(std::move(*tokenizer));
  } else if (tokenizer.error().code != ErrorCode::kNotFound) {
    return tokenizer.error();
  }
  Expected<std::optional<json::object>> settings = read_optional_object(directory / "tokenizer_config.json");
  if (!settings) return settings.error();
  tokenizer_config = std::move(*settings);
  Expected<std::optional<json::object>> special = read_optional_object(directory / "special_tokens_map.json");
  if (!special) return special.error();
  special_tokens_map = std::move(*special);
  return open_chat_template();
}

Status Checkpoint::Contents::open_chat_template() {
  const fs::path directory(path);
  const Expected<MappedFile> jinja = MappedFile::open(directory / "chat_template.jinja");
  if (jinja) {
    const std::string_view text = text_of(*jinja);
    if (!is_valid_utf8(text)) return path_error(ErrorCode::kCorrupt, jinja->path(), "is not valid UTF-8");
    chat_template = json::string(text.data(), text.size());
    return {};
  }
  if (jinja.error().code != ErrorCode::kNotFound) return jinja.error();

  const auto take = [&](const json::object& object, const std::string& file) -> Status {
    const json::value* value = object.if_contains("chat_template");
    if (value == nullptr || value->is_null()) return {};
    if (Status status = check_chat_template(*value, file); !status) return status;
    chat_template = *value;
    return {};
  };
  if (tokenizer_config) {
    if (Status status = take(*tokenizer_config, (directory / "tokenizer_config.json").string()); !status) return status;
  }
  if (chat_template) return {};
  const fs::path file = directory / "chat_template.json";
  Expected<std::optional<json::object>> object = read_optional_object(file);
  if (!object) return object.error();
  return *object ? take(**object, file.string()) : Status();
}

Status Checkpoint::Contents::open_gguf(const fs::path& file) {
  const Expected<const MappedFile*> mapped = map(file);
  if (!mapped) return mapped.error();
  config_file = (*mapped)->path();
  const std::string_view name = (*mapped)->path();
  const Expected<GgufContents> contents = parse_gguf((*mapped)->data(), name);
  if (!contents) return contents.error();
  Expected<GgufModel> model = gguf_model(*contents, name);
  if (!model) return model.error();
  format = CheckpointFormat::kGguf;
  config = std::move(model->config);
  generation_config = std::move(model->generation_config);
  tensors = std::move(model->tensors);
  gguf_tokenizer = std::move(model->tokenizer);
  chat_template = std::move(model->chat_template);
  return {};
}

std::string_view checkpoint_format_name(CheckpointFormat format) {
  switch (format) {
    case CheckpointFormat::kSafetensors: return "safetensors";
    case CheckpointFormat::kGguf: return "gguf";
    case CheckpointFormat::kConfigOnly: return "config-only";
  }
  return "?";
}

Expected<Checkpoint> Checkpoint::open(const fs::path& path) {
  try {
    auto contents = std::make_unique<Contents>();
    contents->path = path.string();
    if (Status status = contents->open_any(); !status) return status.error();
    return Checkpoint(std::move(contents));
  } catch (const std::exception& problem) {  // out of memory
    return path_error(ErrorCode::kResourceExhausted, path.string(), problem.what());
  }
}

Checkpoint::Checkpoint(std::unique_ptr<Contents> contents) : contents_(std::move(contents)) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

namespace {

template <typename T>
const T* pointer_to(const std::optional<T>& value) {
  return value ? &*value : nullptr;
}

}  // namespace

const std::string& Checkpoint::path() const {
  return contents_->path;
}
CheckpointFormat Checkpoint::format() const {
  return contents_->format;
}
const json::object& Checkpoint::config() const {
  return contents_->config;
}
const std::string& Checkpoint::config_file() const {
  return contents_->config_file;
}
const json::object* Checkpoint::generation_config() const {
  return pointer_to(contents_->generation_config);
}
const json::object* Checkpoint::hf_quant_config() const {
  return pointer_to(contents_->hf_quant_config);
}
std::span<const TensorView> Checkpoint::tensors() const {
  return contents_->tensors;
}
const json::object* Checkpoint::tokenizer_config() const {
  return pointer_to(contents_->tokenizer_config);
}
const json::object* Checkpoint::special_tokens_map() const {
  return pointer_to(contents_->special_tokens_map);
}
const json::value* Checkpoint::chat_template() const {
  return pointer_to(contents_->chat_template);
}
const GgufTokenizerData* Checkpoint::gguf_tokenizer() const {
  return pointer_to(contents_->gguf_tokenizer);
}

const TensorView* Checkpoint::find(std::string_view name) const {
  const std::vector<TensorView>& tensors = contents_->tensors;
  const std::size_t at = find_near(tensors, contents_->last_found.load(std::memory_order_relaxed), name);
  if (at == tensors.size()) return nullptr;
  contents_->last_found.store(at, std::memory_order_relaxed);
  return &tensors[at];
}

std::optional<std::string_view> Checkpoint::tokenizer_json() const {
  if (contents_->tokenizer_json == nullptr) return std::nullopt;
  return text_of(*contents_->tokenizer_json);
}

void Checkpoint::release_pages(const TensorView& tensor) const {
  for (const auto& file : contents_->files) {
    if (file->contains(tensor.data)) {
      file->release(tensor.data);
      return;
    }
  }
}

}  // namespace sterling::formats
