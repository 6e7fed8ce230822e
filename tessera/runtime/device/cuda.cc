#include "tessera/runtime/device/cuda.h"

#include <ATen/Context.h>
#include <ATen/Version.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <utility>

#include "tessera/base/text.h"
#include "tessera/comm/gather_bytes.h"
#include "tessera/runtime/device/libtorch_device.h"
#include "tessera/runtime/device/nccl.h"
#include "tessera/runtime/device/staged_communicator.h"

namespace tessera::device {
namespace {

constexpr c10::DeviceType kType = c10::DeviceType::CUDA;

Status missing(const std::string& expected, const std::string& found) {
  return invalid_input(fmt::format(
      "device cuda: expected {}, found {} (docs/guides/run-on-gpus.md)", expected, found));
}

// Returns the folder of the libtorch that this process has loaded.
std::filesystem::path libtorch_folder() {
  Dl_info info{};
  const auto* inside = reinterpret_cast<const void*>(&c10::impl::device_guard_impl_registry);
  return dladdr(inside, &info) != 0 ? std::filesystem::path(info.dli_fname).parent_path()
                                    : std::filesystem::path();
}

// Returns the version that the loaded libtorch says of itself: "2.13.0".
std::string loaded_version() {
  const std::string text = at::show_config();
  constexpr std::string_view kKey = "TORCH_VERSION=";
  const size_t at = text.find(kKey);
  if (at == std::string::npos) return "an unknown one";
  const size_t begin = at + kKey.size();
  return text.substr(begin, text.find_first_of(", \n", begin) - begin);
}

Status load() {
  const std::filesystem::path library = libtorch_folder() / "libtorch_cuda.so";
  if (!std::filesystem::exists(library)) {
    return missing("the CUDA build of libtorch " TORCH_VERSION,
                   "its build for processors in the loader's path");
  }
  if (!loaded_version().starts_with(TORCH_VERSION))
    return missing("libtorch " TORCH_VERSION ", for which this program is built", loaded_version());
  if (dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr)
    return missing("libtorch_cuda.so and what it needs", dlerror());
  return {};
}

const Status& loaded() {
  static const Status status = load();
  return status;
}

// Names the GPU of a rank: the same name on two ranks means the same GPU.
std::string gpu_name(int index) {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  std::string gpu = std::to_string(index);
  if (visible != nullptr) {
    const std::vector<std::string> names = split_text(visible, ',');
    if (static_cast<size_t>(index) < names.size()) gpu = names[static_cast<size_t>(index)];
  }
  return fmt::format("{} {}", host.data(), gpu);
}

// Returns the GPU's name and the versions of driver and libtorch, as far as the driver tells.
std::string described(int index) {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  std::array<char, 256> name{"GPU"};
  int version = 0;
  using NameOf = int (*)(char*, int, int);
  using VersionOf = int (*)(int*);
  if (driver != nullptr) {
    if (auto* of = reinterpret_cast<NameOf>(dlsym(driver, "cuDeviceGetName")))
      of(name.data(), name.size() - 1, index);
    if (auto* of = reinterpret_cast<VersionOf>(dlsym(driver, "cuDriverGetVersion"))) of(&version);
  }
  return fmt::format("{}, driver for CUDA {}.{}, libtorch {}", name.data(), version / 1000,
                     version % 1000 / 10, loaded_version());
}

bool all_differ(comm::Communicator& world, const std::string& mine) {
  const std::vector<std::string> all = comm::gather_bytes(world, mine);
  return std::set<std::string>(all.begin(), all.end()).size() == all.size();
}

// Makes libtorch's functions for CUDA compute what those for processors compute, with the same result
// in each run where it can.
void configure() {
  // cuBLAS reads it when it makes its first handle.
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(true, /*warn_only=*/true);
  context.setDeterministicCuDNN(true);
  context.setBenchmarkCuDNN(false);
  context.setAllowTF32CuBLAS(false);
  context.setAllowTF32CuDNN(false);
  context.setSDPUseCuDNN(
      false);  // of two fused attentions, that of which formulas know the results
}

}  // namespace

Status cuda_missing() {
  TESSERA_TRY_VOID(loaded());
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver == nullptr) return missing("a driver of NVIDIA (libcuda.so.1)", "none");
  dlclose(driver);
  if (!c10::impl::hasDeviceGuardImpl(kType))
    return missing("a device guard of libtorch for CUDA", "none");
  if (c10::impl::VirtualGuardImpl(kType).deviceCount() == 0)
    return missing("a GPU that the driver shows", "none");
  return {};
}

Result<std::unique_ptr<Device>> cuda_device(int number, bool through_host) {
  configure();
  const int count = c10::impl::VirtualGuardImpl(kType).deviceCount();
  const int index = number % count;
  const Place place{static_cast<int8_t>(kType), static_cast<int8_t>(index)};
  return libtorch_device(
      place, described(index),
      [place, index, through_host](comm::Communicator& world, const Connections& connections,
                                   PlaceOf where) -> Result<std::unique_ptr<comm::Communicator>> {
        const bool apart = all_differ(world, gpu_name(index));
        if (world.size() == 1 || through_host || !apart)
          return staged_communicator(world, std::move(where));
        TESSERA_TRY(const Nccl* nccl, nccl_library());
        return nccl_communicator(*nccl, world, connections, place, std::move(where));
      });
}

}  // namespace tessera::device
