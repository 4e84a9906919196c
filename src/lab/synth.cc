#include "lab/synth.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "formats/json.h"
#include "formats/safetensors_writer.h"
#include "lab/output_folder.h"

namespace sterling::lab {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPieceElements = 1 << 16;  // of one task
constexpr std::size_t kBufferBytes = 8 << 20;    // made, then written

// Tables are made once for all tensors that share a distribution.
class Tables {
 public:
  const ValueTable& of(const SynthTensor& tensor) {
    using Content = SynthTensor::Content;
    switch (tensor.content) {
      case Content::kNvfp4Codes: return nvfp4().codes;
      case Content::kNvfp4Scales: return nvfp4().scales;
      case Content::kFp8Codes: return fp8().codes;
      case Content::kFp8BlockScales: {
        const auto [entry, fresh] = block_scales_.try_emplace(tensor.scale);
        if (fresh) entry->second = block_scale_table(tensor.scale);
        return entry->second;
      }
      default: break;
    }
    const auto [entry, fresh] = plain_.try_emplace({tensor.tensor.dtype, tensor.distribution});
    if (fresh) entry->second = plain_table(tensor.tensor.dtype, tensor.distribution);
    return entry->second;
  }

 private:
  const CodeTables& nvfp4() {
    if (!nvfp4_) nvfp4_ = nvfp4_tables();
    return *nvfp4_;
  }
  const CodeTables& fp8() {
    if (!fp8_) fp8_ = fp8_tables();
    return *fp8_;
  }

  std::optional<CodeTables> nvfp4_;
  std::optional<CodeTables> fp8_;
  std::map<double, ValueTable> block_scales_;
  std::map<std::pair<DType, Distribution>, ValueTable> plain_;
};

Expected<boost::json::object> read_config(const fs::path& path, std::string* name) {
  std::error_code ignored;
  const fs::path file = fs::is_directory(path, ignored) ? path / "config.json" : path;
  *name = file.string();
  return formats::read_json_object(file);
}

// Makes and writes one tensor.
class Filler {
 public:
  Filler(const SynthOptions& options, platform::ThreadPool& pool, formats::SafetensorsWriter& writer)
      : options_(options), pool_(pool), writer_(writer), buffer_(kBufferBytes) {}

  Status fill(const SynthTensor& tensor, std::size_t index) {
    if (tensor.content == SynthTensor::Content::kConstant) {
      const auto value = static_cast<float>(tensor.scale);
      return write(index, std::as_bytes(std::span(&value, 1)));
    }
    const ValueTable& table = tables_.of(tensor);
    const std::uint64_t key = tensor_key(options_.seed, tensor.tensor.name);
    // One stored element is one draw; of two FP4 codes in a byte, the byte.
    std::size_t elements = 1;
    for (const std::int64_t extent : tensor.tensor.shape) elements *= static_cast<std::size_t>(extent);
    const std::size_t batch = kBufferBytes / table.element_bytes;
    for (std::size_t first = 0; first < elements; first += batch) {
      const std::size_t count = std::min(batch, elements - first);
      const auto bytes = std::span(buffer_).first(count * table.element_bytes);
      pool_.parallel((count + kPieceElements - 1) / kPieceElements, [&](std::size_t piece, std::size_t) {
        const std::size_t begin = piece * kPieceElements;
        const std::size_t size = std::min(kPieceElements, count - begin);
        draw(table, key, first + begin, bytes.subspan(begin * table.element_bytes, size * table.element_bytes));
      });
      if (Status status = write(index, bytes); !status) return status;
    }
    return {};
  }

 private:
  Status write(std::size_t index, std::span<const std::byte> bytes) {
    if (options_.stopped && options_.stopped()) return make_error(ErrorCode::kCancelled, "stopped; nothing was kept");
    if (Status status = writer_.append(index, bytes); !status) return status;
    done_ += static_cast<std::int64_t>(bytes.size());
    if (options_.progress) options_.progress(done_, writer_.total_bytes());
    return {};
  }

  const SynthOptions& options_;
  platform::ThreadPool& pool_;
  formats::SafetensorsWriter& writer_;
  std::vector<std::byte> buffer_;
  std::int64_t done_ = 0;
  Tables tables_;
};

}  // namespace

Expected<SynthReport> synthesize(const SynthOptions& options, platform::ThreadPool& pool) {
  std::string config_file;
  auto config = read_config(options.config, &config_file);
  if (!config) return config.error();
  auto folder = OutputFolder::check(options.out);
  if (!folder) return folder.error();
  auto plan = plan_synth(std::move(*config), config_file, options.request);
  if (!plan) return plan.error();

  std::vector<formats::PlannedTensor> planned;
  for (const SynthTensor& tensor : plan->tensors) planned.push_back(tensor.tensor);
  auto writer = formats::SafetensorsWriter::create(folder->path(), std::move(planned), {options.shard_bytes});
  if (!writer) return writer.error();
  const std::string config_text = pretty_json(plan->config);
  const std::string quant_text = plan->hf_quant_config.empty() ? std::string() : pretty_json(plan->hf_quant_config);
  const auto bytes = (*writer)->total_bytes() + static_cast<std::int64_t>(config_text.size() + quant_text.size());
  if (Status status = folder->create(bytes); !status) return status.error();

  Filler filler(options, pool, **writer);
  for (std::size_t i = 0; i < plan->tensors.size(); ++i) {
    if (Status status = filler.fill(plan->tensors[i], i); !status) return status.error();
  }
  // Metadata last but for the weights' names: a folder without config.json is no checkpoint yet.
  Status status = (*writer)->finish();
  if (status && !quant_text.empty()) status = folder->write("hf_quant_config.json", quant_text);
  if (status) status = folder->write("config.json", config_text);
  if (!status) {
    (*writer)->discard();
    return status.error();
  }
  folder->keep();
  SynthReport report;
  report.out = folder->path().string();
  report.architecture = std::string(plan->config.at("architectures").as_array().at(0).as_string());
  report.layers = plan->layers;
  report.tensors = static_cast<std::int64_t>(plan->tensors.size());
  report.quantised_modules = plan->quantised_modules;
  report.bytes = bytes;
  report.files = (*writer)->files();
  report.files.insert(report.files.end(), folder->files().begin(), folder->files().end());
  return report;
}

}  // namespace sterling::lab
