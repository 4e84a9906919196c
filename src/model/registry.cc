#include <array>
#include <string>

#include <fmt/format.h>

#include "model/arch/families.h"
#include "model/architecture.h"

namespace sterling::model {
namespace {

// One row per family.
constexpr std::array kArchitectures{&kLlama,    &kQwen2,     &kQwen3,         &kQwen35Text, &kQwen35,
                                    &kQwen3Moe, &kQwen3Next, &kQwen35MoeText, &kQwen35Moe,  &kMixtral};

std::string accepted_names() {
  std::string names;
  for (const Architecture* architecture : kArchitectures) {
    if (!names.empty()) names += ", ";
    names += architecture->name;
  }
  return names;
}

// The value at a dotted path of object keys, or nullptr.
const boost::json::value* value_at(const boost::json::object& root, std::string_view path) {
  const boost::json::object* object = &root;
  while (true) {
    // Keys may hold dots themselves ("transformers.js_config"): try the whole rest first.
    if (const auto* whole = object->if_contains(path)) return whole;
    const std::size_t dot = path.find('.');
    if (dot == std::string_view::npos) return nullptr;
    const auto* child = object->if_contains(path.substr(0, dot));
    if (child == nullptr || !child->is_object()) return nullptr;
    object = &child->get_object();
    path.remove_prefix(dot + 1);
  }
}

// A setting nobody read is harmless when it is switched off or empty; anything else might change the arithmetic.
bool is_off(const boost::json::value& value) {
  if (value.is_null()) return true;
  if (value.is_bool()) return !value.get_bool();
  if (value.is_array()) return value.get_array().empty();
  if (value.is_object()) return value.get_object().empty();
  return false;
}

}  // namespace

std::span<const Architecture* const> architectures() {
  return kArchitectures;
}

const Architecture* find_architecture(std::string_view name) {
  for (const Architecture* architecture : kArchitectures) {
    if (architecture->name == name) return architecture;
  }
  return nullptr;
}

Expected<SpecResult> read_model_spec(const boost::json::object& config, std::string_view config_file) {
  const formats::ObjectReader reader(config, config_file);
  const std::vector<std::string> names = reader.strings("architectures");
  const std::string model_type = reader.string_or("model_type", "");
  if (Status status = reader.status(); !status) return status.error();
  if (names.size() != 1) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("{}: architectures has {} entries; accepted: one", config_file, names.size()),
                      "architectures");
  }
  const Architecture* architecture = find_architecture(names[0]);
  if (architecture == nullptr) {
    return make_error(
        ErrorCode::kUnsupported,
        fmt::format("{}: architecture \"{}\" is not supported; accepted: {}", config_file, names[0], accepted_names()),
        "architectures");
  }
  auto spec = architecture->read_spec(reader);
  if (!spec) return spec.error();
  for (const std::string& path : reader.unread()) {
    const boost::json::value* value = value_at(config, path);
    if (value == nullptr || is_off(*value)) continue;
    return make_error(
        ErrorCode::kUnsupported,
        fmt::format("{}: {} = {} is not known for {}; it might change what the model computes, so it is not "
                    "ignored",
                    config_file, path, boost::json::serialize(*value), architecture->name),
        path);
  }
  spec->architecture = names[0];
  spec->model_type = model_type;
  return SpecResult{architecture, std::move(*spec)};
}

}  // namespace sterling::model
