# Compiler settings that hold for every unit of the project.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

# Results must not depend on how a compiler contracts or reorders floating point: a*b+c is an FMA only where the source
# says so, and fast-math is never on.
add_compile_options(-Wall -Wextra -Werror -ffp-contract=off -fno-fast-math)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # g++ 12 sees an overlap in the standard library's own "text" + std::string (GCC bug 105651).
  add_compile_options(-Wno-restrict)
endif()
# Sections let the linker drop the parts of the Rust archive that nothing calls.
add_compile_options(-ffunction-sections -fdata-sections)
add_link_options(-Wl,--gc-sections)

set(STERLING_SANITIZE "" CACHE STRING "address (with undefined), thread, or empty")
if(STERLING_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(STERLING_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Asio has fences beside its mutexes; g++ warns that the sanitizer does not see them.
    add_compile_options(-Wno-tsan)
  endif()
  add_link_options(-fsanitize=thread)
elseif(NOT STERLING_SANITIZE STREQUAL "")
  message(FATAL_ERROR "STERLING_SANITIZE is '${STERLING_SANITIZE}'; accepted: address, thread, or empty")
endif()

if(NOT STERLING_SANITIZE STREQUAL "" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # With a sanitizer's checks in between, g++ can't follow std::variant and std::optional any more (its manual warns of it).
  # The other presets keep the warning.
  add_compile_options(-Wno-maybe-uninitialized)
endif()

find_program(STERLING_MOLD mold)
if(STERLING_MOLD)
  add_link_options(-fuse-ld=mold)
endif()
find_program(STERLING_CCACHE ccache)
if(STERLING_CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${STERLING_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${STERLING_CCACHE})
endif()
