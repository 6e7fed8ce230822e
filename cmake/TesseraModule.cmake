# tessera_module(<name>
#                [DEPS <module>...]                        modules that this one may include
#                [HEADERS <module>...]                     modules whose interfaces it may include, without linking them
#                [LINK <library>...]                       third-party libraries that show in its headers
#                [PRIVATE_LINK <library>...]               third-party libraries that only its sources see
#                [BACKEND <folder> <stub folder> <condition>]...
#                [EXCLUDE <folder>...]                     subfolders that are no part of the library
#                [ALSO_SLOW]                               its tests have slow entries, too (tessera_test_program)
#                [OWN_HEADERS])                            its tests have no precompiled headers (tessera_compile_as_test)
#
# Makes the static library tessera_<name> from the *.cc files of the module's folder and of two levels of subfolders, the
# test program tessera_<name>_test from *_test.cc, and tessera_<name>_benchmark from *_benchmark.cc (target
# `benchmarks`). main.cc is left out; the cli makes its program from it.
#
# The link list is the permission to include: a module's headers are reachable only through an include directory of its
# own, which holds nothing but a link `tessera/<name>` to its folder. A header of a module that is not linked, directly
# or through others, is not found.
#
# BACKEND: of the two subfolders, the first is compiled if the condition variable holds, the second (the stub) if not.
# A module without sources, or with a dependency that was skipped, is skipped with a message.

function(tessera_glob variable)
  file(GLOB files CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cc" "${CMAKE_CURRENT_SOURCE_DIR}/*/*.cc"
    "${CMAKE_CURRENT_SOURCE_DIR}/*/*/*.cc")
  set(${variable} ${files} PARENT_SCOPE)
endfunction()

# tessera_filter(<variable> INCLUDE|EXCLUDE <regex> <file>...): list(FILTER) into another variable.
function(tessera_filter out mode regex)
  set(files ${ARGN})
  list(FILTER files ${mode} REGEX "${regex}")
  set(${out} ${files} PARENT_SCOPE)
endfunction()

# tessera_batch(<target>): compiles the target's sources TESSERA_UNITY at a time, those of one folder together, in equal
# shares. What is compiled together is one translation unit: names at file level must differ within a folder. Folders are
# kept apart so that a back end that is left out does not change the batches of the others (the compiler cache serves
# several presets). Sources with compile options of their own are left alone (CMake sees to that).
function(tessera_batch target)
  if(TESSERA_UNITY LESS 2)
    return()
  endif()
  get_target_property(files ${target} SOURCES)
  list(FILTER files INCLUDE REGEX "^[^$]*\\.cc$")
  set(folders "")
  foreach(file IN LISTS files)
    cmake_path(GET file PARENT_PATH folder)
    string(SHA1 key "${folder}")
    list(APPEND files_${key} "${file}")
    list(APPEND folders "${key}")
  endforeach()
  list(REMOVE_DUPLICATES folders)
  foreach(key IN LISTS folders)
    list(LENGTH files_${key} count)
    math(EXPR batches "(${count} + ${TESSERA_UNITY} - 1) / ${TESSERA_UNITY}")
    set(index 0)
    foreach(file IN LISTS files_${key})
      math(EXPR batch "${index} * ${batches} / ${count}")
      cmake_path(GET file PARENT_PATH name)
      cmake_path(GET name FILENAME name)
      if(count GREATER 1)
        set_source_files_properties("${file}" PROPERTIES UNITY_GROUP "${name}_${batch}")
      endif()
      math(EXPR index "${index} + 1")
    endforeach()
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()

# Where tests find files of the project: the macro TESSERA_SOURCE_DIR of "tessera/test/source_dir.h". A header rather
# than a definition for every test file, so that the compiler cache serves other checkouts too.
set(TESSERA_TEST_INCLUDE_DIR "${CMAKE_BINARY_DIR}/include/test")
file(CONFIGURE OUTPUT "${TESSERA_TEST_INCLUDE_DIR}/tessera/test/source_dir.h" CONTENT
  "#pragma once\n#define TESSERA_SOURCE_DIR \"@PROJECT_SOURCE_DIR@\"\n" @ONLY)
# How much quick tests try, for those of modules too: "tessera/test/all_cases.h".
file(CREATE_LINK "${PROJECT_SOURCE_DIR}/tests/support/all_cases.h" "${TESSERA_TEST_INCLUDE_DIR}/tessera/test/all_cases.h" SYMBOLIC)

# tessera_set_test_flags(<target> LINK <library>...): the flags of test code.
function(tessera_set_test_flags target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LINK")
  target_link_libraries(${target} PRIVATE tessera_compiler ${arg_LINK})
  target_include_directories(${target} SYSTEM BEFORE PRIVATE "${TESSERA_FMT_INCLUDE_DIR}")
  target_include_directories(${target} PRIVATE "${TESSERA_TEST_INCLUDE_DIR}")
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE -fPIE $<$<CONFIG:Release>:-O1>)
endfunction()

# tessera_compile_as_test(<target> [OWN_HEADERS] LINK <library>...): the flags of test code, for programs and for the OBJECT
# libraries of what several programs use. GoogleTest and what most tests include of the standard library are compiled once for
# all of them (tessera_test_headers), but not where sources are compiled alone: there each must include what it uses.
# A target that does not link GoogleTest has none of it. OWN_HEADERS leaves it out, too: the compiler cache does not share what has precompiled headers between build folders.
function(tessera_compile_as_test target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "OWN_HEADERS" "" "LINK")
  tessera_set_test_flags(${target} LINK ${arg_LINK})
  tessera_batch(${target})
  if(TESSERA_UNITY GREATER 1 AND NOT arg_OWN_HEADERS AND "GTest::gtest" IN_LIST arg_LINK)
    if(NOT TARGET tessera_test_headers)
      set(source "${CMAKE_BINARY_DIR}/test_headers/test_headers.cc")
      file(CONFIGURE OUTPUT "${source}" CONTENT "")
      add_library(tessera_test_headers OBJECT "${source}")
      tessera_set_test_flags(tessera_test_headers LINK fmt::fmt GTest::gmock GTest::gtest)
      target_compile_options(tessera_test_headers PRIVATE ${TESSERA_PRECOMPILED_OPTIONS})
      target_precompile_headers(tessera_test_headers PRIVATE
        <gtest/gtest.h> <gmock/gmock.h> <fmt/format.h> <algorithm> <cmath> <filesystem> <fstream> <functional> <map> <numeric>
        <optional> <random> <set> <string> <vector>)
    endif()
    target_compile_options(${target} PRIVATE ${TESSERA_PRECOMPILED_OPTIONS})
    target_precompile_headers(${target} REUSE_FROM tessera_test_headers)
  endif()
endfunction()

# A program that runs tests. Test code is compiled at -O1 also in release builds: it is large and runs once.
# Without libtorch every test case is a ctest entry, `<module>/<suite>.<case>`. Programs with libtorch take half a
# second to start, so an entry is a shard of their tests, `<module>/shard_<i>_of_<n>` (TesseraShards.cmake).
# ALSO_SLOW: beside the quick entries there are slow ones of the same program, `<module>_slow/...`, in which its loops try all
# combinations (tests/support/all_cases.h).
function(tessera_test_program target label)
  cmake_parse_arguments(PARSE_ARGV 2 arg "WITH_TORCH;ALSO_SLOW;OWN_HEADERS" "" "SOURCES;LINK")
  add_executable(${target} ${arg_SOURCES})
  set(own_headers "")
  if(arg_OWN_HEADERS)
    set(own_headers OWN_HEADERS)
  endif()
  tessera_compile_as_test(${target} ${own_headers} LINK ${arg_LINK} GTest::gmock_main GTest::gtest rapidcheck)
  set(properties LABELS ${label} TIMEOUT 3600)
  set(environment "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/scripts/tsan.supp")
  string(APPEND environment ";TESSERA_CHECK_GRAPHS=1")  # each graph that a transform makes is verified in full (graph.h)
  if(label STREQUAL "quick")
    set(properties LABELS ${label} TIMEOUT 600)
    string(APPEND environment ";RC_PARAMS=seed=20240607")  # RapidCheck's own default is another one in each run
  endif()
  string(REGEX REPLACE "^tessera_|_test$" "" name ${target})
  set(all_cases "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/scripts/tsan.supp;TESSERA_CHECK_GRAPHS=1;TESSERA_ALL_CASES=1")
  if(arg_WITH_TORCH)
    list(JOIN properties " " properties_text)
    set(shards "${CMAKE_CURRENT_BINARY_DIR}/${target}_shards.cmake")
    set(also_slow "")
    if(arg_ALSO_SLOW)
      set(also_slow "tessera_add_shards(${name}_slow \"$<TARGET_FILE:${target}>\" LABELS slow TIMEOUT 3600 ENVIRONMENT \"${all_cases}\")")
    endif()
    file(GENERATE OUTPUT "${shards}" CONTENT "include(\"${PROJECT_SOURCE_DIR}/cmake/TesseraShards.cmake\")
tessera_add_shards(${name} \"$<TARGET_FILE:${target}>\" ${properties_text} ENVIRONMENT \"${environment}\")
${also_slow}
")
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${shards}")
  else()
    gtest_discover_tests(${target} TEST_PREFIX "${name}/" DISCOVERY_MODE PRE_TEST
      PROPERTIES ${properties} ENVIRONMENT "${environment}")
    if(arg_ALSO_SLOW)
      gtest_discover_tests(${target} TEST_PREFIX "${name}_slow/" DISCOVERY_MODE PRE_TEST
        PROPERTIES LABELS slow TIMEOUT 3600 ENVIRONMENT "${all_cases}")
    endif()
  endif()
endfunction()

function(tessera_module name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "ALSO_SLOW;OWN_HEADERS" "" "DEPS;HEADERS;LINK;PRIVATE_LINK;BACKEND;EXCLUDE")
  set(target tessera_${name})
  tessera_glob(files)

  while(arg_BACKEND)
    list(POP_FRONT arg_BACKEND folder stub condition)
    if(${condition})
      set(left_out ${stub})
    else()
      set(left_out ${folder})
    endif()
    tessera_filter(files EXCLUDE "/tessera/${name}/${left_out}/[^/]*$" ${files})
  endwhile()

  foreach(folder IN LISTS arg_EXCLUDE)
    tessera_filter(files EXCLUDE "/tessera/${name}/${folder}/[^/]*$" ${files})
  endforeach()

  tessera_filter(tests INCLUDE "_test\\.cc$" ${files})
  tessera_filter(benchmarks INCLUDE "_benchmark\\.cc$" ${files})
  tessera_filter(sources EXCLUDE "(_test|_benchmark|/main)\\.cc$" ${files})

  if(NOT sources)
    message(STATUS "Module ${name}: skipped, it has no sources")
    return()
  endif()
  set(dependencies "")
  foreach(dependency IN LISTS arg_DEPS)
    if(NOT TARGET tessera_${dependency})
      message(STATUS "Module ${name}: skipped, it needs ${dependency}")
      return()
    endif()
    list(APPEND dependencies tessera_${dependency})
  endforeach()

  set(include_dir "${CMAKE_BINARY_DIR}/include/${name}")
  file(MAKE_DIRECTORY "${include_dir}/tessera")
  file(CREATE_LINK "${CMAKE_CURRENT_SOURCE_DIR}" "${include_dir}/tessera/${name}" SYMBOLIC)

  add_library(${target} STATIC ${sources})
  add_library(tessera::${name} ALIAS ${target})
  tessera_batch(${target})
  target_include_directories(${target} PUBLIC "${include_dir}")
  foreach(module IN LISTS arg_HEADERS)
    target_include_directories(${target} PUBLIC "${CMAKE_BINARY_DIR}/include/${module}")
  endforeach()
  target_include_directories(${target} SYSTEM BEFORE PUBLIC "${TESSERA_FMT_INCLUDE_DIR}")
  target_link_libraries(${target}
    PUBLIC ${dependencies} ${arg_LINK}
    PRIVATE $<BUILD_INTERFACE:tessera_compiler> ${arg_PRIVATE_LINK})
  set_property(GLOBAL APPEND PROPERTY TESSERA_MODULES ${name})

  # Libtorch stays private in its module but every program above links it.
  set(torch_option "")
  if("torch" IN_LIST arg_PRIVATE_LINK)
    set(torch_option WITH_TORCH)
  endif()
  foreach(dependency IN LISTS arg_DEPS)
    get_target_property(torch_below tessera_${dependency} TESSERA_WITH_TORCH)
    if(torch_below)
      set(torch_option WITH_TORCH)
    endif()
  endforeach()
  if(torch_option)
    set_target_properties(${target} PROPERTIES TESSERA_WITH_TORCH TRUE)
  endif()

  if(TESSERA_BUILD_TESTS AND tests)
    tessera_filter(slow INCLUDE "_slow_test\\.cc$" ${tests})
    tessera_filter(quick EXCLUDE "_slow_test\\.cc$" ${tests})
    if(quick)
      set(options "")
      foreach(option IN ITEMS ALSO_SLOW OWN_HEADERS)
        if(arg_${option})
          list(APPEND options ${option})
        endif()
      endforeach()
      tessera_test_program(${target}_test quick ${torch_option} ${options}
        SOURCES ${quick} LINK ${target} ${arg_PRIVATE_LINK})
    endif()
    if(slow)
      tessera_test_program(${target}_slow_test slow ${torch_option}
        SOURCES ${slow} LINK ${target} ${arg_PRIVATE_LINK})
    endif()
  endif()
  if(TESSERA_BUILD_BENCHMARKS AND benchmarks)
    tessera_benchmark_program(${target}_benchmark SOURCES ${benchmarks} LINK ${target} ${arg_PRIVATE_LINK})
  endif()
endfunction()

# tessera_embed(<target> <function> <file>...): the program holds the texts of the files, .toml or .json, so that it needs
# none beside it. Makes `const TextFiles& <function>()` (tessera/base/data_file.h): names without ending, and texts.
function(tessera_embed target function)
  set(entries "")
  foreach(file IN LISTS ARGN)
    get_filename_component(name "${file}" NAME)
    string(REGEX REPLACE "\\.(toml|json)$" "" name "${name}")
    file(READ "${file}" text)
    string(APPEND entries "      {\"${name}\", R\"toml(${text})toml\"},\n")
  endforeach()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${ARGN})
  configure_file("${PROJECT_SOURCE_DIR}/cmake/embedded.cc.in" "${CMAKE_CURRENT_BINARY_DIR}/${function}.cc" @ONLY)
  target_sources(${target} PRIVATE "${CMAKE_CURRENT_BINARY_DIR}/${function}.cc")
endfunction()

# Benchmarks are built only by name or by the target `benchmarks`.
add_custom_target(benchmarks)
function(tessera_benchmark_program target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LINK")
  add_executable(${target} EXCLUDE_FROM_ALL ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE tessera_heap tessera_compiler ${arg_LINK} benchmark::benchmark_main)
  target_include_directories(${target} SYSTEM BEFORE PRIVATE "${TESSERA_FMT_INCLUDE_DIR}")
  add_dependencies(benchmarks ${target})
endfunction()

include(GoogleTest)
