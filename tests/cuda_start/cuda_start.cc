// Starts the path to GPUs as far as this machine goes, and says where it ends:
//
//   cuda_start              on any libtorch: says in one line what is missing
//   cuda_start --libraries  on the CUDA build (scripts/cuda-check): its libraries and NCCL must load
//
// Exit codes: 0 as expected; 1 not.
#include <cstdio>
#include <string_view>

#include "tessera/runtime/device/cuda.h"
#include "tessera/runtime/device/nccl.h"

int main(int arguments, char** words) {
  using namespace tessera::device;
  const bool libraries = arguments > 1 && std::string_view(words[1]) == "--libraries";
  const tessera::Status missing = cuda_missing();
  std::printf("%s\n", missing ? "a GPU is there" : missing.error().message.c_str());
  if (!missing && missing.error().message.find('\n') != std::string::npos) return 1;
  if (!libraries) return 0;
  // With all libraries there the first thing that can be missing is the driver.
  const std::string_view said = missing ? "" : std::string_view(missing.error().message);
  if (!missing && !said.starts_with("device cuda: expected a driver") &&
      !said.starts_with("device cuda: expected a GPU"))
    return 1;
  const auto nccl = nccl_library();
  if (!nccl) {
    std::printf("%s\n", nccl.error().message.c_str());
    return 1;
  }
  int version = 0;
  NcclId id;
  if ((*nccl)->get_version(&version) != 0 || (*nccl)->get_unique_id(&id) != 0) return 1;
  std::printf("libtorch's part for CUDA is loaded; NCCL %d\n", version);
  return 0;
}
