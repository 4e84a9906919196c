# add_rust_staticlib(target crate_directory): an imported static library built by cargo from one crate of rust/.
#
# The archive goes below the build directory, or below STERLING_CARGO_TARGET_DIR (a CMake variable, or the environment
# variable of the same name at configure time) so that several build directories can share the compiled crates.
# Cargo never touches the network when its registry cache is filled; --locked keeps it to the committed Cargo.lock.
include_guard(GLOBAL)

# The newest rust-version that any crate of the lock file asks for.
set(STERLING_RUST_MINIMUM 1.85.0)

set(sterling_rust_help "Install Rust ${STERLING_RUST_MINIMUM} or newer: rustup (https://rustup.rs), or on Debian 12 \
`apt-get install cargo-web rustc-web`. Debian 12's plain `cargo` and `rustc` are 1.63 and too old.")

set(sterling_cargo_hints "$ENV{CARGO_HOME}/bin" "$ENV{HOME}/.cargo/bin")
find_program(STERLING_CARGO cargo HINTS ${sterling_cargo_hints} DOC "cargo, the Rust build tool")
find_program(STERLING_RUSTC rustc HINTS ${sterling_cargo_hints} DOC "rustc, the Rust compiler")
if(NOT STERLING_CARGO OR NOT STERLING_RUSTC)
  message(FATAL_ERROR "cargo and rustc were not found on PATH or in ~/.cargo/bin. ${sterling_rust_help}")
endif()
execute_process(COMMAND "${STERLING_RUSTC}" --version OUTPUT_VARIABLE sterling_rustc_says
                OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE sterling_rustc_failed)
if(sterling_rustc_failed OR NOT sterling_rustc_says MATCHES "^rustc ([0-9]+\\.[0-9]+\\.[0-9]+)")
  message(FATAL_ERROR "`${STERLING_RUSTC} --version` failed (${sterling_rustc_says}). ${sterling_rust_help}")
endif()
set(STERLING_RUSTC_VERSION "${CMAKE_MATCH_1}")
if(STERLING_RUSTC_VERSION VERSION_LESS STERLING_RUST_MINIMUM)
  message(FATAL_ERROR "${STERLING_RUSTC} is ${STERLING_RUSTC_VERSION}. ${sterling_rust_help}")
endif()

set(STERLING_CARGO_TARGET_DIR "$ENV{STERLING_CARGO_TARGET_DIR}" CACHE PATH
    "Where cargo keeps compiled crates; empty for <build directory>/cargo")

function(add_rust_staticlib target directory)
  if(STERLING_CARGO_TARGET_DIR)
    set(target_dir "${STERLING_CARGO_TARGET_DIR}")
  else()
    set(target_dir "${CMAKE_BINARY_DIR}/cargo")
  endif()
  set(archive "${target_dir}/release/lib${target}.a")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${directory}/src/*.rs")

  # RUSTFLAGS of the environment stay out: they would rebuild every crate and could add CPU-specific code.
  # Cargo takes its own lock on the target directory, so two builds that share one wait for each other.
  add_custom_command(
    OUTPUT "${archive}"
    COMMAND "${CMAKE_COMMAND}" -E env --unset=RUSTFLAGS "RUSTC=${STERLING_RUSTC}" "CARGO_TARGET_DIR=${target_dir}"
            "${STERLING_CARGO}" build --release --locked --quiet --manifest-path "${directory}/Cargo.toml"
    COMMAND "${CMAKE_COMMAND}" -E touch "${archive}"
    DEPENDS ${sources} "${directory}/Cargo.toml" "${directory}/Cargo.lock"
    COMMENT "Building the Rust library ${target} (the first time takes about two minutes)"
    USES_TERMINAL
    VERBATIM)
  add_custom_target(${target}_cargo DEPENDS "${archive}")

  add_library(${target} STATIC IMPORTED GLOBAL)
  # What Rust's standard library needs (`rustc --print native-static-libs`).
  set_target_properties(${target} PROPERTIES IMPORTED_LOCATION "${archive}"
                        INTERFACE_INCLUDE_DIRECTORIES "${directory}/include"
                        INTERFACE_LINK_LIBRARIES "pthread;dl;m;gcc_s")
  add_dependencies(${target} ${target}_cargo)
endfunction()
