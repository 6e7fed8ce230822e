# Third-party libraries, all from the system except libtorch (a Python wheel in .venv, see scripts/setup).
# Sets TESSERA_HAVE_TORCH, TESSERA_HAVE_MPI and TESSERA_HAVE_CBC.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(tl-expected REQUIRED)
find_package(tomlplusplus QUIET)
if(NOT TARGET tomlplusplus::tomlplusplus)
  find_package(PkgConfig REQUIRED)
  pkg_check_modules(tomlplusplus REQUIRED IMPORTED_TARGET tomlplusplus)
  add_library(tomlplusplus::tomlplusplus ALIAS PkgConfig::tomlplusplus)
endif()
find_package(CLI11 REQUIRED)
find_package(PkgConfig REQUIRED)  # Debian's CMake files of libzip ask for its command line tools too
pkg_check_modules(libzip REQUIRED IMPORTED_TARGET libzip)
find_package(ZLIB REQUIRED)  # libzip needs it too
pkg_check_modules(sqlite3 REQUIRED IMPORTED_TARGET sqlite3)
pkg_check_modules(yaml_cpp REQUIRED IMPORTED_TARGET yaml-cpp)
pkg_check_modules(pugixml REQUIRED IMPORTED_TARGET pugixml)
find_path(TESSERA_XXHASH_INCLUDE_DIR xxhash.h REQUIRED)  # used as headers alone; Debian: libxxhash-dev
if(TESSERA_BUILD_TESTS)
  find_package(GTest REQUIRED)
  find_package(rapidcheck REQUIRED)
endif()
if(TESSERA_BUILD_BENCHMARKS)
  find_package(benchmark REQUIRED)
endif()

# Our fmt, first on the include path of every target. The torch wheel ships the headers of another fmt release, and its
# include directory precedes the system's; without this, files that see torch would compile against one release and
# link against the other. A directory that holds nothing but fmt keeps everything else of the system where it was.
get_target_property(fmt_include_dirs fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
list(GET fmt_include_dirs 0 fmt_include_dir)
set(TESSERA_FMT_INCLUDE_DIR "${CMAKE_BINARY_DIR}/include/third_party")
file(MAKE_DIRECTORY "${TESSERA_FMT_INCLUDE_DIR}")
file(CREATE_LINK "${fmt_include_dir}/fmt" "${TESSERA_FMT_INCLUDE_DIR}/fmt" SYMBOLIC)

# tessera_optional(<what> <option> <found> <variable>): applies ON / OFF / AUTO and reports the outcome.
function(tessera_optional what option found variable)
  if("${${option}}" STREQUAL "ON" AND NOT found)
    message(FATAL_ERROR "${option}=ON, but ${what} was not found; run scripts/setup, or set ${option}=OFF")
  endif()
  if(found)
    message(STATUS "${what}: used")
    set(${variable} TRUE PARENT_SCOPE)
  else()
    message(STATUS "${what}: not used (${option}=${${option}})")
    set(${variable} FALSE PARENT_SCOPE)
  endif()
endfunction()

set(Torch_FOUND FALSE)
if(NOT TESSERA_USE_TORCH STREQUAL "OFF")
  set(torch_python "${CMAKE_CURRENT_SOURCE_DIR}/.venv/bin/python")
  if(EXISTS "${torch_python}")
    # The same path as torch.utils.cmake_prefix_path, without the seconds that importing torch takes.
    execute_process(
      COMMAND "${torch_python}" -c
        "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '', end='')"
      OUTPUT_VARIABLE torch_root)
    if(torch_root)
      list(PREPEND CMAKE_PREFIX_PATH "${torch_root}/share/cmake")
    endif()
  endif()
  # Its config warns about an optional library (kineto) that the wheel links statically.
  set(CMAKE_MESSAGE_LOG_LEVEL ERROR)
  find_package(Torch QUIET)
  unset(CMAKE_MESSAGE_LOG_LEVEL)
endif()
tessera_optional("libtorch" TESSERA_USE_TORCH "${Torch_FOUND}" TESSERA_HAVE_TORCH)

set(MPI_CXX_FOUND FALSE)
if(NOT TESSERA_USE_MPI STREQUAL "OFF")
  set(MPI_CXX_SKIP_MPICXX TRUE)
  find_package(MPI QUIET COMPONENTS CXX)
endif()
tessera_optional("MPI" TESSERA_USE_MPI "${MPI_CXX_FOUND}" TESSERA_HAVE_MPI)

# Debian: libhdf5-dev.
set(hdf5_FOUND FALSE)
if(NOT TESSERA_USE_HDF5 STREQUAL "OFF")
  pkg_check_modules(hdf5 QUIET IMPORTED_TARGET hdf5)
endif()
tessera_optional("HDF5" TESSERA_USE_HDF5 "${hdf5_FOUND}" TESSERA_HAVE_HDF5)

# Of CBC, a solver of integer programs, only the header is needed here: its library is loaded when a program is solved.
set(cbc_found FALSE)
if(NOT TESSERA_USE_CBC STREQUAL "OFF")
  find_path(TESSERA_CBC_INCLUDE_DIR coin/Cbc_C_Interface.h)
  if(TESSERA_CBC_INCLUDE_DIR)
    set(cbc_found TRUE)
  endif()
endif()
tessera_optional("CBC" TESSERA_USE_CBC "${cbc_found}" TESSERA_HAVE_CBC)

# Programs (not tests) that plan allocate many small objects; sanitizers bring an allocator of their own.
set(mimalloc_FOUND FALSE)
if(NOT TESSERA_USE_MIMALLOC STREQUAL "OFF" AND NOT TESSERA_ENABLE_ASAN AND NOT TESSERA_ENABLE_TSAN)
  find_package(mimalloc QUIET)
endif()
tessera_optional("mimalloc" TESSERA_USE_MIMALLOC "${mimalloc_FOUND}" TESSERA_HAVE_MIMALLOC)
add_library(tessera_heap INTERFACE)
if(TESSERA_HAVE_MIMALLOC)
  # Nothing refers to it: it replaces malloc and operator new by being loaded.
  target_link_libraries(tessera_heap INTERFACE -Wl,--push-state,--no-as-needed mimalloc -Wl,--pop-state)
  target_sources(tessera_heap INTERFACE "${CMAKE_CURRENT_SOURCE_DIR}/tessera/heap/options.cc")
endif()

# The compiler is called by hand (tessera/sparse/CMakeLists.txt): as a language of the project it would link every program.
set(CUDA_FOUND FALSE)
if(NOT TESSERA_USE_CUDA STREQUAL "OFF" AND NOT TESSERA_ENABLE_ASAN AND NOT TESSERA_ENABLE_TSAN)
  find_package(CUDAToolkit QUIET)
  if(CUDAToolkit_FOUND AND CUDAToolkit_NVCC_EXECUTABLE)
    set(CUDA_FOUND TRUE)
  endif()
endif()
tessera_optional("CUDA" TESSERA_USE_CUDA "${CUDA_FOUND}" TESSERA_HAVE_CUDA)
