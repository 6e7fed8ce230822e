# The precompiled header of test programs: GoogleTest and the library headers that most tests include are parsed once.
# Sources include what they use all the same, and clang-tidy reads them without. CMAKE_DISABLE_PRECOMPILE_HEADERS=ON
# builds without.
#
# tessera_use_test_headers(<target>): compiles the target with it.
# tessera_test_headers is compiled as tessera_test_program compiles tests; GCC refuses a header of other flags.
if(TESSERA_BUILD_TESTS)
  set(source "${CMAKE_BINARY_DIR}/precompiled/tessera_test_headers.cc")
  file(CONFIGURE OUTPUT "${source}" CONTENT "// Nothing: the library is its precompiled header.\n")
  add_library(tessera_test_headers OBJECT "${source}")
  target_link_libraries(tessera_test_headers PRIVATE tessera_compiler fmt::fmt GTest::gmock GTest::gtest)
  target_include_directories(tessera_test_headers SYSTEM BEFORE PRIVATE "${TESSERA_FMT_INCLUDE_DIR}")
  set_target_properties(tessera_test_headers PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(tessera_test_headers PRIVATE -fPIE $<$<CONFIG:Release>:-O1>)
  target_precompile_headers(tessera_test_headers PRIVATE <algorithm> <cmath> <cstdint> <functional> <map> <memory>
    <optional> <set> <string> <string_view> <vector> <fmt/format.h> <gtest/gtest.h> <gmock/gmock.h>)
endif()

function(tessera_use_test_headers target)
  target_precompile_headers(${target} REUSE_FROM tessera_test_headers)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -fpch-preprocess)  # ccache asks for it
  endif()
endfunction()
