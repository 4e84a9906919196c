#include "cli/hub_access.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

namespace sterling::cli {
namespace {

bool is_name_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// "~/x", "$NAME/x" and "${NAME}/x" of a variable that a service file or a Python program may have set; the shell never saw them.
std::string expanded(std::string text, const Invocation& invocation) {
  if (text == "~" || text.starts_with("~/")) text = environment_value(invocation, "HOME") + text.substr(1);
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const bool braced = text.compare(i, 2, "${") == 0;
    const std::size_t begin = i + (braced ? 2 : 1);
    std::size_t end = begin;
    while (text[i] == '$' && end < text.size() && is_name_character(text[end])) ++end;
    const std::string value =
        end > begin ? environment_value(invocation, std::string_view(text).substr(begin, end - begin)) : std::string();
    const bool closed = !braced || (end < text.size() && text[end] == '}');
    if (text[i] != '$' || end == begin || !closed || value.empty()) {  // unknown names stay as they are
      out.push_back(text[i++]);
      continue;
    }
    out += value;
    i = end + (braced ? 1 : 0);
  }
  return out;
}

Expected<std::string> cleaned_token(std::string text, const std::string& source) {
  const auto is_space = [](unsigned char c) { return std::isspace(c) != 0; };
  text.erase(text.begin(), std::find_if_not(text.begin(), text.end(), is_space));
  text.erase(std::find_if_not(text.rbegin(), text.rend(), is_space).base(), text.end());
  const auto fits = [](unsigned char c) { return c > 0x20 && c < 0x7f; };  // it becomes part of a header line
  if (std::all_of(text.begin(), text.end(), fits)) return text;
  return make_error(
      ErrorCode::kInvalidArgument,
      fmt::format("{} holds no token: blanks, control characters or letters beyond ASCII are in it", source), source);
}

Expected<std::string> token_of_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(4096, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(0, file.gcount())));
  return cleaned_token(std::move(text), path.string());
}

bool is_set(const std::string& value) {
  return !value.empty() && value != "0" && value != "false" && value != "FALSE" && value != "off" && value != "no";
}

}  // namespace

std::string environment_value(const Invocation& invocation, std::string_view name) {
  for (const auto& [key, value] : invocation.environment) {
    if (key == name) return value;
  }
  return {};
}

hub::Locations hub_locations(const Invocation& invocation) {
  const auto path = [&](std::string_view name) { return expanded(environment_value(invocation, name), invocation); };
  hub::Environment environment;
  environment.home = environment_value(invocation, "HOME");
  environment.xdg_cache_home = path("XDG_CACHE_HOME");
  environment.hf_home = path("HF_HOME");
  environment.hf_hub_cache = path("HF_HUB_CACHE");
  environment.huggingface_hub_cache = path("HUGGINGFACE_HUB_CACHE");
  environment.hf_endpoint = environment_value(invocation, "HF_ENDPOINT");
  environment.hf_token_path = path("HF_TOKEN_PATH");
  environment.hf_hub_offline = environment_value(invocation, "HF_HUB_OFFLINE");
  return hub::locate(environment);
}

Expected<hub::ResolvedModel> resolve_model(const std::string& model, const Invocation& invocation) {
  return hub::resolve_model(model, hub_locations(invocation));
}

Expected<std::string> hub_token(const std::optional<std::string>& file, const hub::Locations& locations,
                                const Invocation& invocation) {
  if (file) {
    auto token = token_of_file(*file);
    if (!token || !token->empty()) return token;
    return make_error(ErrorCode::kNotFound, fmt::format("--token-file {}: can't be read, or is empty", *file),
                      "--token-file");
  }
  if (is_set(environment_value(invocation, "HF_HUB_DISABLE_IMPLICIT_TOKEN"))) return std::string();
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
    auto token = cleaned_token(environment_value(invocation, name), name);
    if (!token || !token->empty()) return token;
  }
  return token_of_file(locations.token_file);
}

}  // namespace sterling::cli
