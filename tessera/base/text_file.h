// Reads a whole text file into memory, up to a limit. A file whose size is above the limit is
// refused before it is read. A device or pipe that gives more than the limit is refused when the
// limit is reached. A pipe that nobody writes to is refused after some seconds.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/base/result.h"

namespace tessera {

// The most bytes of a text that describes something: a model, plan, run file, machine or manifest.
inline constexpr int64_t kMostTextBytes = int64_t{256} << 20;
// The most bytes of a text that lists something: a trace, edges of a graph, rows of a table.
inline constexpr int64_t kMostDataTextBytes = int64_t{4} << 30;

// Returns the content of the file, or an error if the file cannot be read or has more than `most`
// bytes. read_file(path) of text.h does the same with kMostTextBytes.
Result<std::string> read_text_file(const std::string& path, int64_t most);

// Checks that the file at `path` can be replaced, for callers that write a temporary file piece by
// piece and rename it to `path` at the end. Returns an error if `path` is a folder, a device or a
// pipe, which a file must not replace.
Status check_replaceable(const std::string& path);

}  // namespace tessera
