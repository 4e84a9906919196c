# add_rust_staticlib(target crate_directory): an imported static library built by cargo from one crate of rust/.
#
# The archive goes below the build directory, or below STERLING_CARGO_TARGET_DIR (a CMake variable, or the environment
# variable of the same name at configure time) so that several build directories can share the compiled crates.
# Cargo never touches the network when its registry cache is filled; --locked keeps it to the committed Cargo.lock.
include_guard(GLOBAL)

# The newest rust-version that any crate of the lock file asks for.
set(STERLING_RUST_MINIMUM 1.85.0)

set(sterling_rust_help "Install it with rustup (https://rustup.rs), or on Debian 12 \
`apt-get install cargo-web rustc-web`. Debian 12's plain `cargo` and `rustc` are 1.63 and too old.")

# The first pair of cargo and rustc that is new enough, from PATH, $CARGO_HOME/bin and ~/.cargo/bin: a machine may have
# an old one from its distribution beside a rustup one that its PATH does not name.
function(sterling_find_rust)
  set(folders "")
  find_program(on_path rustc NO_CACHE)
  if(on_path)
    get_filename_component(folder "${on_path}" DIRECTORY)
    list(APPEND folders "${folder}")
  endif()
  if(DEFINED ENV{CARGO_HOME})
    list(APPEND folders "$ENV{CARGO_HOME}/bin")
  endif()
  list(APPEND folders "$ENV{HOME}/.cargo/bin")
  list(REMOVE_DUPLICATES folders)

  set(found "")
  foreach(folder ${folders})
    if(NOT EXISTS "${folder}/rustc" OR NOT EXISTS "${folder}/cargo")
      continue()
    endif()
    execute_process(COMMAND "${folder}/rustc" --version OUTPUT_VARIABLE says ERROR_VARIABLE says
                    OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(says MATCHES "^rustc ([0-9]+\\.[0-9]+\\.[0-9]+)")
      if(NOT CMAKE_MATCH_1 VERSION_LESS STERLING_RUST_MINIMUM)
        set(STERLING_RUSTC "${folder}/rustc" CACHE FILEPATH "The Rust compiler")
        set(STERLING_CARGO "${folder}/cargo" CACHE FILEPATH "Rust's build tool")
        return()
      endif()
      string(APPEND found " ${folder}/rustc is ${CMAKE_MATCH_1}.")
    else()
      string(APPEND found " ${folder}/rustc does not run (${says}).")
    endif()
  endforeach()
  if(NOT found)
    set(found " None was found on PATH or in ~/.cargo/bin.")
  endif()
  message(FATAL_ERROR "Rust ${STERLING_RUST_MINIMUM} or newer is needed.${found} ${sterling_rust_help}")
endfunction()
if(NOT STERLING_RUSTC OR NOT STERLING_CARGO)
  sterling_find_rust()
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
