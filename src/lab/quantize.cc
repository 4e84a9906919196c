#include "lab/quantize.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "base/float_types.h"
#include "formats/safetensors_writer.h"
#include "lab/output_folder.h"
#include "lab/quantize_plan.h"
#include "platform/float_env.h"
#include "quant/decode.h"
#include "quant/float_codes.h"

namespace sterling::lab {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kPieceElements = 1 << 17;  // of one task, about
constexpr std::size_t kPiecesAtOnce = 32;         // made, then written

// Tasks of the pool flush subnormals to zero; quantising needs IEEE arithmetic, as the calling thread has it.
class FloatStateScope {
 public:
  explicit FloatStateScope(std::uint32_t state) : saved_(platform::read_float_state()) {
    platform::write_float_state(state);
  }
  ~FloatStateScope() { platform::write_float_state(saved_); }
  FloatStateScope(const FloatStateScope&) = delete;
  FloatStateScope& operator=(const FloatStateScope&) = delete;

 private:
  std::uint32_t saved_;
};

// Rows of one matrix that one task handles, and what comes out of them.
struct Piece {
  std::vector<float> values;
  std::vector<std::byte> codes;
  std::vector<std::byte> scales;
  float largest = 0.0F;
  quant::QuantError error;
  Status status;
};

class Quantizer {
 public:
  Quantizer(const formats::Checkpoint& source, const QuantizeOptions& options, const QuantizePlan& plan,
            platform::ThreadPool& pool, formats::SafetensorsWriter& writer)
      : source_(source),
        options_(options),
        plan_(plan),
        pool_(pool),
        writer_(writer),
        float_state_(platform::read_float_state()) {
    for (const QuantizeStep& step : plan.steps) {
      if (step.matrix) groups_[step.matrix->scale_group].push_back(&*step.matrix);
    }
    pieces_.resize(kPiecesAtOnce);
  }

  Expected<std::vector<QuantizedModule>> run() {
    std::vector<QuantizedModule> report;
    for (const QuantizeStep& step : plan_.steps) {
      if (step.copy != nullptr) {
        if (Status status = copy(*step.copy, step.first_output); !status) return status.error();
        continue;
      }
      auto error = matrix(*step.matrix, step.first_output);
      if (!error) return error.error();
      report.push_back({step.matrix->module, *error});
    }
    return report;
  }

 private:
  Status copy(const TensorView& tensor, std::size_t output) {
    constexpr std::size_t kBytes = 8 << 20;
    for (std::size_t at = 0; at < tensor.data.size(); at += kBytes) {
      if (Status status = write(output, tensor.data.subspan(at, std::min(kBytes, tensor.data.size() - at))); !status) {
        return status;
      }
    }
    source_.release_pages(tensor);
    return {};
  }

  Status write(std::size_t output, std::span<const std::byte> bytes) {
    if (options_.stopped && options_.stopped()) return make_error(ErrorCode::kCancelled, "stopped; nothing was kept");
    if (Status status = writer_.append(output, bytes); !status) return status;
    done_ += static_cast<std::int64_t>(bytes.size());
    if (options_.progress) options_.progress(done_, writer_.total_bytes());
    return {};
  }

  std::int64_t rows_per_piece(const QuantizeMatrix& matrix) const {
    if (options_.target == WeightTarget::kFp8Block) return kFp8BlockSize;
    return std::clamp<std::int64_t>(kPieceElements / std::max<std::int64_t>(matrix.module.cols, 1), 1,
                                    matrix.module.rows);
  }

  // Decodes the matrix piece by piece, `make` in tasks, `take` in order on this thread.
  template <typename Make, typename Take>
  Status for_pieces(const QuantizeMatrix& matrix, const Make& make, const Take& take) {
    const std::int64_t height = rows_per_piece(matrix);
    const std::int64_t count = (matrix.module.rows + height - 1) / height;
    for (std::int64_t first = 0; first < count; first += static_cast<std::int64_t>(kPiecesAtOnce)) {
      const auto batch = static_cast<std::size_t>(std::min<std::int64_t>(kPiecesAtOnce, count - first));
      pool_.parallel(batch, [&](std::size_t index, std::size_t) {
        const FloatStateScope ieee(float_state_);
        const std::int64_t begin = (first + static_cast<std::int64_t>(index)) * height;
        const std::int64_t rows = std::min(height, matrix.module.rows - begin);
        Piece& piece = pieces_[index];
        piece.error = {};
        piece.values.resize(static_cast<std::size_t>(rows * matrix.module.cols));
        piece.status = quant::decode_rows(*matrix.source, matrix.first_row + begin, matrix.first_row + begin + rows,
                                          piece.values.data());
        if (piece.status) make(piece, rows);
      });
      for (std::size_t i = 0; i < batch; ++i) {
        if (!pieces_[i].status) return pieces_[i].status;
        if (Status status = take(pieces_[i]); !status) return status;
      }
    }
    return {};
  }

  // The largest magnitude over all matrices that share a scale; each group is read once for it.
  Expected<float> largest_of(const std::string& group) {
    if (const auto known = largest_.find(group); known != largest_.end()) return known->second;
    float largest = 0.0F;
    for (const QuantizeMatrix* matrix : groups_.at(group)) {
      Status status = for_pieces(
          *matrix, [](Piece& piece, std::int64_t) { piece.largest = quant::largest_magnitude(piece.values); },
          [&](const Piece& piece) {
            if (!std::isfinite(piece.largest)) return Status(not_finite(*matrix));
            largest = std::max(largest, piece.largest);
            return Status{};
          });
      if (!status) return status.error();
    }
    largest_.emplace(group, largest);
    return largest;
  }

  static Error not_finite(const QuantizeMatrix& matrix) {
    return make_error(ErrorCode::kCorrupt,
                      fmt::format("{}: tensor {} holds NaN or infinity (in {}); such a weight can't be quantised",
                                  matrix.source->file, matrix.source->name, matrix.module.name),
                      matrix.source->name);
  }

  Expected<quant::QuantError> matrix(const QuantizeMatrix& matrix, std::size_t output) {
    float scale = 1.0F;
    if (options_.target != WeightTarget::kFp8Block) {
      const auto largest = largest_of(matrix.scale_group);
      if (!largest) return largest.error();
      scale =
          options_.target == WeightTarget::kNvfp4 ? quant::nvfp4_global_scale(*largest) : quant::fp8_scale(*largest);
    }
    quant::QuantError error;
    Status status = for_pieces(
        matrix, [&](Piece& piece, std::int64_t rows) { encode(piece, rows, matrix.module.cols, scale); },
        [&](const Piece& piece) {
          if (!std::isfinite(piece.largest)) return Status(not_finite(matrix));
          error.merge(piece.error);
          if (Status written = write(output, piece.codes); !written) return written;
          return piece.scales.empty() ? Status{} : write(output + 1, piece.scales);
        });
    if (status && options_.target == WeightTarget::kNvfp4) status = write_value(output + 2, scale);
    if (status && options_.target == WeightTarget::kFp8) {
      status = write_value(output + 1, scale);
      if (status && plan_.metadata.activations) status = write_value(output + 2, 1.0F);
    }
    if (!status) return status.error();
    if (matrix.last_of_source) source_.release_pages(*matrix.source);
    return error;
  }

  Status write_value(std::size_t output, float value) { return write(output, std::as_bytes(std::span(&value, 1))); }

  void encode(Piece& piece, std::int64_t rows, std::int64_t cols, float scale) const {
    piece.scales.clear();
    piece.largest = 0.0F;  // FP8 per block alone has not been looked through before
    if (options_.target == WeightTarget::kNvfp4) {
      encode_nvfp4(piece, scale);
    } else if (options_.target == WeightTarget::kFp8) {
      piece.codes.resize(piece.values.size());
      auto* codes = reinterpret_cast<std::uint8_t*>(piece.codes.data());
      quant::encode_fp8(piece.values, scale, codes);
      for (std::size_t i = 0; i < piece.values.size(); ++i) {
        piece.error.add(piece.values[i],
                        static_cast<double>(quant::e4m3_to_float(codes[i])) * static_cast<double>(scale));
      }
    } else {
      encode_blocks(piece, rows, cols);
    }
  }

  void encode_nvfp4(Piece& piece, float global) const {
    const std::size_t blocks = piece.values.size() / static_cast<std::size_t>(quant::kNvfp4Group);
    piece.codes.resize(piece.values.size() / 2);
    piece.scales.resize(blocks);
    for (std::size_t block = 0; block < blocks; ++block) {
      const float* x = piece.values.data() + block * static_cast<std::size_t>(quant::kNvfp4Group);
      auto* codes = reinterpret_cast<std::uint8_t*>(piece.codes.data()) + block * 8;
      const std::uint8_t code = quant::encode_nvfp4_block(x, global, options_.search, codes);
      piece.scales[block] = static_cast<std::byte>(code);
      const double step = static_cast<double>(quant::e4m3_to_float(code)) * static_cast<double>(global);
      for (std::size_t i = 0; i < static_cast<std::size_t>(quant::kNvfp4Group); ++i) {
        const auto nibble = static_cast<std::uint8_t>(codes[i / 2] >> (i % 2 * 4));
        piece.error.add(x[i], static_cast<double>(quant::e2m1_to_float(nibble)) * step);
      }
    }
  }

  // One row of 128 x 128 blocks. Scales are stored in BF16, as Qwen's files have them, and codes made with what is stored.
  static void encode_blocks(Piece& piece, std::int64_t rows, std::int64_t cols) {
    const std::int64_t blocks = (cols + kFp8BlockSize - 1) / kFp8BlockSize;
    std::vector<float> scales(static_cast<std::size_t>(blocks));
    piece.scales.resize(static_cast<std::size_t>(blocks) * sizeof(std::uint16_t));
    piece.codes.resize(piece.values.size());
    auto* codes = reinterpret_cast<std::uint8_t*>(piece.codes.data());
    const auto part = [&](std::int64_t row, std::int64_t block) {
      const std::int64_t begin = block * kFp8BlockSize;
      return std::span<const float>(piece.values)
          .subspan(static_cast<std::size_t>(row * cols + begin),
                   static_cast<std::size_t>(std::min(kFp8BlockSize, cols - begin)));
    };
    for (std::int64_t block = 0; block < blocks; ++block) {
      float largest = 0.0F;
      for (std::int64_t row = 0; row < rows; ++row) {
        const float in_row = quant::largest_magnitude(part(row, block));
        largest = std::isfinite(in_row) ? std::max(largest, in_row) : in_row;
        if (!std::isfinite(in_row)) break;
      }
      if (!std::isfinite(largest)) {
        piece.largest = largest;
        return;
      }
      // Down to the smallest normal value: engines that flush subnormals would read a scale of 0.
      const bf16 stored = to_bf16(std::max(quant::fp8_scale(largest), 0x1p-126F));
      const float scale = to_float(stored);
      piece.scales[static_cast<std::size_t>(2 * block)] = static_cast<std::byte>(stored.bits & 0xffu);
      piece.scales[static_cast<std::size_t>(2 * block + 1)] = static_cast<std::byte>(stored.bits >> 8);
      for (std::int64_t row = 0; row < rows; ++row) {
        const auto values = part(row, block);
        std::uint8_t* out = codes + row * cols + block * kFp8BlockSize;
        quant::encode_fp8(values, scale, out);
        for (std::size_t i = 0; i < values.size(); ++i) {
          piece.error.add(values[i], static_cast<double>(quant::e4m3_to_float(out[i])) * static_cast<double>(scale));
        }
      }
    }
  }

  const formats::Checkpoint& source_;
  const QuantizeOptions& options_;
  const QuantizePlan& plan_;
  platform::ThreadPool& pool_;
  formats::SafetensorsWriter& writer_;
  std::uint32_t float_state_;
  std::map<std::string, std::vector<const QuantizeMatrix*>> groups_;
  std::map<std::string, float> largest_;
  std::vector<Piece> pieces_;
  std::int64_t done_ = 0;
};

// Files beside the weights that belong to a model: tokenizer, templates, generation settings, licence.
std::vector<fs::path> side_files(const fs::path& folder) {
  constexpr std::string_view kWritten[] = {"config.json", "hf_quant_config.json"};
  constexpr std::string_view kWeights[] = {".safetensors", ".bin",     ".pt",   ".pth", ".gguf",
                                           ".h5",          ".msgpack", ".onnx", ".ckpt"};
  std::vector<fs::path> out;
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(folder, code)) {
    const std::string name = entry.path().filename().string();
    std::error_code ignored;
    if (!entry.is_regular_file(ignored) || name.starts_with('.') || name.ends_with(".index.json")) continue;
    if (std::find(std::begin(kWritten), std::end(kWritten), name) != std::end(kWritten)) continue;
    const std::string extension = entry.path().extension().string();
    if (std::find(std::begin(kWeights), std::end(kWeights), extension) != std::end(kWeights)) continue;
    out.push_back(entry.path());
  }
  std::sort(out.begin(), out.end());
  return out;
}

Status write_side_files(const formats::Checkpoint& source, const QuantizePlan& plan, OutputFolder& folder) {
  for (const fs::path& file : side_files(source.path())) {
    if (Status status = folder.copy(file, file.filename().string()); !status) return status;
  }
  const auto hf_quant = hf_quant_config(plan.metadata);
  if (!hf_quant.empty()) {
    if (Status status = folder.write("hf_quant_config.json", pretty_json(hf_quant)); !status) return status;
  }
  boost::json::object config = source.config();
  config["quantization_config"] = quantization_config(plan.metadata);
  return folder.write("config.json", pretty_json(config));
}

}  // namespace

Expected<QuantizeReport> quantize(const formats::Checkpoint& source, const QuantizeOptions& options,
                                  platform::ThreadPool& pool) {
  if (options.search == quant::ScaleSearch::kMse && options.target != WeightTarget::kNvfp4) {
    return make_error(
        ErrorCode::kInvalidArgument,
        fmt::format("--search mse is for nvfp4: the grid of {} is so fine that a scale's choice hardly matters",
                    weight_target_name(options.target)),
        "--search");
  }
  auto folder = OutputFolder::check(options.out);
  if (!folder) return folder.error();
  auto plan = plan_quantize(source, options.target, options.excludes, options.version);
  if (!plan) return plan.error();
  auto writer = formats::SafetensorsWriter::create(folder->path(), plan->outputs, {options.shard_bytes});
  if (!writer) return writer.error();
  // What is copied beside the weights is small; a few megabytes cover it.
  constexpr std::int64_t kSideBytes = std::int64_t{64} << 20;
  if (Status status = folder->create((*writer)->total_bytes() + kSideBytes); !status) return status.error();

  auto modules = Quantizer(source, options, *plan, pool, **writer).run();
  if (!modules) return modules.error();
  Status status = (*writer)->finish();
  if (status) status = write_side_files(source, *plan, *folder);
  if (!status) {
    (*writer)->discard();
    return status.error();
  }
  folder->keep();
  QuantizeReport report;
  report.out = folder->path().string();
  report.modules = std::move(*modules);
  report.left = plan->metadata.plain;
  for (const TensorView& tensor : source.tensors())
    report.source_bytes += static_cast<std::int64_t>(tensor.data.size());
  report.bytes = (*writer)->total_bytes();
  report.files = (*writer)->files();
  report.files.insert(report.files.end(), folder->files().begin(), folder->files().end());
  return report;
}

}  // namespace sterling::lab
