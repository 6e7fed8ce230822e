// Files of text, read whole. A file that is no text of that kind is refused before it fills the
// memory: one that is too large by its size, a device or a pipe without an end when it has given so
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

// Returns what the file holds. read_file(path) of text.h is this with kMostTextBytes. Errors: it
// cannot be read, or holds more than `most` bytes.
Result<std::string> read_text_file(const std::string& path, int64_t most);

// A file that is written in pieces is written beside its place and renamed at the end, so that it is
// never there in half. Error: something is there that a file must not take the place of, a folder, a
// device or a pipe.
Status check_replaceable(const std::string& path);

}  // namespace tessera
