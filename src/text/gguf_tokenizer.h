// The tokenizer arrays of a GGUF file written as a tokenizer.json, so that one implementation serves both kinds of model
// file. Private to text/.
#pragma once

#include <string>

#include "base/status.h"
#include "text/gguf_vocabulary.h"

namespace sterling::text {

Expected<std::string> tokenizer_json_from_gguf(const GgufVocabulary& vocabulary);

}  // namespace sterling::text
