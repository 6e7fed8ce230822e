// Replaces hdf5/ in builds without the HDF5 library.
#include <fmt/format.h>

#include "tessera/data/array_file.h"

namespace tessera {

namespace {

tl::unexpected<Error> not_here(const std::string& path) {
  return invalid_input(
      fmt::format("'{}': expected a program that knows HDF5, found one that was built without "
                  "libhdf5-dev (scripts/setup installs it)",
                  path));
}

}  // namespace

bool have_hdf5() { return false; }

Result<std::unique_ptr<ArrayFile>> open_hdf5(const ArrayName& name) { return not_here(name.path); }

Status write_hdf5(const std::string& path,
                  const std::vector<std::pair<std::string, const ArrayFile*>>& /*arrays*/) {
  return not_here(path);
}

}  // namespace tessera
