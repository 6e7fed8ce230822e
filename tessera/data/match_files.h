// Finds files by glob, as run files name them.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/result.h"

namespace tessera {

// Returns the regular files that match a glob, sorted by path, each once. Inside one component of
// the path the wildcards are those of glob_match (base/text.h); a component `**` stands for any
// number of folders. Wildcards do not match names that start with a dot and do not follow links to
// folders. Errors: a folder that cannot be read.
Result<std::vector<std::string>> match_files(const std::string& glob);

// Returns the files that match any of the globs, sorted, each once. A relative glob is looked up in
// the working directory first. If nothing matches there, it is looked up in the folder `beside`,
// unless that is empty. Errors: a glob that matches no file.
Result<std::vector<std::string>> files_of(const std::vector<std::string>& globs,
                                          const std::string& beside);

// Returns where the file `path`, which is no glob, is found: in the working directory or else in
// the folder `beside` (unless that is empty). Returns the path unchanged if there is no file in
// either.
std::string found_file(const std::string& path, const std::string& beside);

}  // namespace tessera
