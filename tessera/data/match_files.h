// Finds files by glob, as run files name them.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/result.h"

namespace tessera {

// Returns the regular files that a glob names, sorted by path, each once. Within one component of
// the path the wildcards are those of glob_match (base/text.h), a component `**` is any number of
// folders. Wildcards pass over names that start with a dot, and over links to folders. Errors: a
// folder that cannot be read.
Result<std::vector<std::string>> match_files(const std::string& glob);

// Returns the files of several globs, sorted, each once. A relative glob is looked up in the
// working directory first, then in `beside` (unless empty). Errors: a glob that matches no file.
Result<std::vector<std::string>> files_of(const std::vector<std::string>& globs,
                                          const std::string& beside);

// Looks a path, which is no glob, up in the working directory, then in `beside` (unless empty).
// Returns the path unchanged if no file is there.
std::string found_file(const std::string& path, const std::string& beside);

}  // namespace tessera
