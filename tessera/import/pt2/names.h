// Names of the entries of a .pt2 archive, and the importer's limits on sizes. Each entry's path in
// the archive is a root folder, whatever its name, followed by the name here; the root folder is
// the first component of the first entry's path. The format is PyTorch's
// (torch/csrc/export/pt2_archive_constants.h).
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

// The only major version of the schema that can be read. A larger minor version only adds fields,
// so every minor version is accepted.
inline constexpr int64_t kSchemaMajor = 8;

// Limits that are checked before anything is allocated.
inline constexpr int64_t kMaxEntries = 1'000'000;
inline constexpr int64_t kMaxText = int64_t{1} << 30;      // most bytes of a JSON entry
inline constexpr int64_t kMaxRank = 16;                    // most dims of a tensor
inline constexpr int64_t kMaxElements = int64_t{1} << 48;  // most elements of a tensor
// Limits on the elements of tensors that are known at import: of one tensor, of all that are kept
// at a time, and of all that are read or computed during the import.
inline constexpr int64_t kMaxConstant = 1 << 24;
inline constexpr int64_t kMaxConstants = 1 << 26;
inline constexpr int64_t kMaxComputed = 1 << 29;

}  // namespace tessera::pt2
