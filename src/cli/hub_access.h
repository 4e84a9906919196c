// The hub as this process sees it: its environment variables, the token, and MODEL arguments that may be hub ids.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "cli/command.h"
#include "hub/locations.h"
#include "hub/resolve.h"

namespace sterling::cli {

// A variable's value, empty when it is not set.
std::string environment_value(const Invocation& invocation, std::string_view name);

hub::Locations hub_locations(const Invocation& invocation);

// MODEL → what to open. Every command that takes a MODEL goes through here (hub/resolve.h says what is looked for).
Expected<hub::ResolvedModel> resolve_model(const std::string& model, const Invocation& invocation);

// The user's token: `file` if given, else HF_TOKEN, HUGGING_FACE_HUB_TOKEN, the token file of `hf auth login`; empty when there is none, and
// the last three are left alone when HF_HUB_DISABLE_IMPLICIT_TOKEN says so. Messages name the source, never the value.
Expected<std::string> hub_token(const std::optional<std::string>& file, const hub::Locations& locations,
                                const Invocation& invocation);

}  // namespace sterling::cli
