#include "tessera/cli/libraries/load_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>

namespace tessera::cli {

Result<void*> load_library(const Library& library, const std::string& command) {
  if (library.linked != nullptr) return library.linked;
  std::error_code error;  // ignored, as the check below reports a library that is not found
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string file = (program.parent_path() / library.file).string();
  if (!std::filesystem::exists(file)) {
    return invalid_input(
        fmt::format("{}: this build has no {}: expected the library {}; to get it: {}", command,
                    library.what, file, library.how_to_get_it));
  }
  void* const loaded = ::dlopen(file.c_str(), RTLD_LAZY | RTLD_GLOBAL);
  void* const entry = loaded == nullptr ? nullptr : ::dlsym(loaded, library.entry);
  if (entry == nullptr) {
    return invalid_input(fmt::format("{}: the {} cannot be loaded: {}; to get it: {}", command,
                                     library.what, ::dlerror(), library.how_to_get_it));
  }
  return entry;
}

}  // namespace tessera::cli
