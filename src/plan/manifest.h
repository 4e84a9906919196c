// The precision manifest: the resolver's table with what computed it, as one JSON document. Served at /v1/precision, logged as one line,
// carried by benchmarks and audits. Its hash stands in every response, so that two answers can be told apart by what made them.
//
// The hash covers what decides bits (model, versions, kernels, types, scales, acceptance) and leaves out what does not: paths, thread
// counts, sizes of pools, times, results of proofs.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <boost/json.hpp>

#include "plan/precision.h"

namespace sterling::plan {

struct ManifestFacts {
  std::string version;  // of this program
  std::string model;    // as the API calls it; not hashed
  std::string architecture;
  std::string fingerprint;  // SHA-256 of the checkpoint's configuration and tensor headers
  std::string isa;          // "avx512bf16"
  std::string arithmetic;   // "canonical": all tiers of this class give equal bits
  std::vector<std::pair<std::string, std::string>> kernels;  // operation → kernel
  MetadataWish metadata;
};

// {"manifest_version", "hash", "version", "model": {…}, "isa", "kernels", "compute", "kv_cache": {…}, "metadata": {…}, "rows": […]}
boost::json::object manifest_json(const ManifestFacts& facts, const Precision& precision);

boost::json::object precision_row_json(const PrecisionRow& row);

// The table for people: one line per row, columns aligned.
std::string precision_table(const Precision& precision);

}  // namespace sterling::plan
