# Language level, warnings, sanitizers and the compiler cache, collected in the target `tessera_compiler`.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

find_program(CCACHE_PROGRAM ccache)
mark_as_advanced(CCACHE_PROGRAM)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Paths relative to the project let build folders of equal flags share objects (presets `release` and `planning`). The
  # cache serves sources with precompiled headers if it may pass over macros that only the compiler sees.
  set(CMAKE_CXX_COMPILER_LAUNCHER env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" "CCACHE_SLOPPINESS=pch_defines,time_macros"
    "${CCACHE_PROGRAM}")
endif()

# What sources with precompiled headers are compiled with beside: GCC then names these headers to the compiler cache.
set(TESSERA_PRECOMPILED_OPTIONS "")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(TESSERA_PRECOMPILED_OPTIONS -fpch-preprocess)
endif()

add_library(tessera_compiler INTERFACE)
target_compile_options(tessera_compiler INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror)
# __FILE__ is relative to the project: batches name their sources by whole paths (TESSERA_UNITY), and the objects of one
# checkout would not serve another.
target_compile_options(tessera_compiler INTERFACE "-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # False positives of GCC 12 on std::string concatenation and std::optional / std::variant at -O2 and above
  # (GCC bugs 105651, 105562, 105329).
  target_compile_options(tessera_compiler INTERFACE
    -Wno-restrict -Wno-maybe-uninitialized -Wno-stringop-overflow -Wno-stringop-overread -Wno-array-bounds)
endif()
if(TESSERA_UNITY GREATER 1 AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Types of unnamed namespaces in members of others are wrong in headers only; a source in a batch looks like a header.
  target_compile_options(tessera_compiler INTERFACE -Wno-subobject-linkage)
endif()

if(TESSERA_ENABLE_TSAN AND (TESSERA_ENABLE_ASAN OR TESSERA_ENABLE_UBSAN))
  message(FATAL_ERROR "TESSERA_ENABLE_TSAN cannot be combined with TESSERA_ENABLE_ASAN or TESSERA_ENABLE_UBSAN")
endif()
set(sanitizers "")
if(TESSERA_ENABLE_ASAN)
  list(APPEND sanitizers -fsanitize=address)
endif()
if(TESSERA_ENABLE_UBSAN)
  list(APPEND sanitizers -fsanitize=undefined -fno-sanitize-recover=undefined)
endif()
if(TESSERA_ENABLE_TSAN)
  list(APPEND sanitizers -fsanitize=thread)
endif()
if(sanitizers)
  target_compile_options(tessera_compiler INTERFACE ${sanitizers} -fno-omit-frame-pointer)
  target_link_options(tessera_compiler INTERFACE ${sanitizers})
endif()
