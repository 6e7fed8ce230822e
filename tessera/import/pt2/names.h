// Names of the entries of a .pt2 archive, and the importer's limits on their size. Names follow the
// root folder of the archive, which is the first component of its first entry. The format is
// PyTorch's (torch/csrc/export/pt2_archive_constants.h).
#pragma once

#include <cstdint>
#include <string_view>

namespace tessera::pt2 {

inline constexpr std::string_view kFormatEntry = "archive_format";
inline constexpr std::string_view kFormat = "pt2";
inline constexpr std::string_view kVersionEntry = "archive_version";
inline constexpr std::string_view kVersion = "0";
inline constexpr std::string_view kByteOrderEntry = "byteorder";
inline constexpr std::string_view kByteOrder = "little";
inline constexpr std::string_view kModels = "models/";
inline constexpr std::string_view kModelEnding = ".json";
inline constexpr std::string_view kWeights = "data/weights/";
inline constexpr std::string_view kWeightsConfigEnding = "_weights_config.json";
inline constexpr std::string_view kConstants = "data/constants/";
inline constexpr std::string_view kConstantsConfigEnding = "_constants_config.json";

// Another major number of the schema is another language; a larger minor number only adds to it.
inline constexpr int64_t kSchemaMajor = 8;

// Limits that hold before anything is allocated.
inline constexpr int64_t kMaxEntries = 1'000'000;
inline constexpr int64_t kMaxText = int64_t{1} << 30;      // bytes of a JSON entry
inline constexpr int64_t kMaxRank = 16;                    // dims of a tensor
inline constexpr int64_t kMaxElements = int64_t{1} << 48;  // elements of a tensor
// Limits of tensors that are computed at import: elements of one, of all that are kept at a time,
// and of all that are made.
inline constexpr int64_t kMaxConstant = 1 << 24;
inline constexpr int64_t kMaxConstants = 1 << 26;
inline constexpr int64_t kMaxComputed = 1 << 29;

}  // namespace tessera::pt2
