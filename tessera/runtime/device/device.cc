#include "tessera/runtime/device/device.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "tessera/base/one_line.h"
#include "tessera/base/text.h"
#include "tessera/runtime/device/test_device.h"

namespace tessera::device {

void Device::upload(Stream& stream, const Memory& memory, int64_t offset, const std::byte* from,
                    int64_t bytes) {
  stream.launch([&] { std::memcpy(memory.data() + offset, from, static_cast<size_t>(bytes)); });
  stream.finish();
}

void Device::download(Stream& stream, const Memory& memory, int64_t offset, std::byte* to,
                      int64_t bytes) {
  stream.launch([&] { std::memcpy(to, memory.data() + offset, static_cast<size_t>(bytes)); });
  stream.finish();
}

Result<std::unique_ptr<Device>> open(std::string_view name) {
  const char* stated = name.empty() ? std::getenv("TESSERA_DEVICE") : nullptr;
  if (name.empty()) name = stated == nullptr || *stated == '\0' ? "cpu" : stated;
  const auto refused = [&] {
    return invalid_input(
        fmt::format("{} '{}': expected cpu, test, test(seed=N) or test(kernels=formulas)",
                    stated == nullptr ? "device" : "TESSERA_DEVICE", short_line(name)));
  };
  const auto call = parse_call(name);
  if (!call) return refused();
  uint64_t seed = 1;
  bool formulas = false;
  for (const auto& [key, value] : call->arguments) {
    const auto number = parse_int(value);
    if (call->name == "test" && key == "seed" && number && *number >= 0) {
      seed = static_cast<uint64_t>(*number);
    } else if (call->name == "test" && key == "kernels" && value == "formulas") {
      formulas = true;
    } else {
      return refused();
    }
  }
  if (call->name == "cpu") return nullptr;
  if (call->name == "test") return test_device(seed, formulas);
  return refused();
}

}  // namespace tessera::device
