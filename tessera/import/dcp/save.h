// Makes what torch.save writes: an archive (file.h) of a tensor or of another value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/base/dtype.h"
#include "tessera/import/dcp/pickle.h"

namespace tessera::dcp {

// The bytes of a tensor's archive before and behind its elements, which are row-major. The sizes of
// both do not depend on the checksum (CRC-32 of the elements' bytes).
struct SavedFrame {
  std::string before, after;
};
SavedFrame saved_frame(DType dtype, const std::vector<int64_t>& shape, uint32_t checksum);

// Returns the archive of a value that a pickle describes.
std::string saved_object(PickleWriter pickle);

// The most bytes of elements in one archive.
inline constexpr int64_t kMostSavedBytes = int64_t{1} << 30;

// Returns CRC-32 of the bytes that gave `checksum` and of these behind them.
uint32_t crc32_of(uint32_t checksum, const void* data, int64_t bytes);

}  // namespace tessera::dcp
