// Reads files of text whole. A file that is not such a text is refused before it fills the memory:
// a file that is too large by its size, a device or a pipe without an end when it has given that
// much, a pipe that nobody writes to after some seconds.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/base/result.h"

namespace tessera {

// The limit of texts that describe something: models, plans, run files, machines, manifests.
inline constexpr int64_t kMostTextBytes = int64_t{256} << 20;
// The limit of texts that list something: traces, edges of graphs, rows of tables.
inline constexpr int64_t kMostDataTextBytes = int64_t{4} << 30;

// Returns the content of the file. read_file(path) of text.h calls it with kMostTextBytes. Returns
// an error if the file cannot be read or holds more than `most` bytes.
Result<std::string> read_text_file(const std::string& path, int64_t most);

// Checks whether a file can be written in pieces: it is written beside its place and renamed at the
// end, so that no half of it is ever there. Returns an error if the place holds something that a
// file must not replace: a folder, a device or a pipe.
Status check_replaceable(const std::string& path);

}  // namespace tessera
