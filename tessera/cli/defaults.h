// A user's file of defaults: what the options --cluster, --style and --precision are where they are
// not given. Two files are read, and the first one that has a key counts:
//
//   ./tessera.toml                                  of the working directory
//   $XDG_CONFIG_HOME/tessera/defaults.toml          of the user (~/.config without the variable)
//
//   cluster = "dgx-h100:4"
//   style = "torchtitan"
//   precision = "bfloat16"
//
// The answer says first which default came from where.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/result.h"

namespace tessera::cli {

struct Default {
  std::string key, value, file;
};

// Reads the files that exist. Errors, one line "file:line: ...": an unknown key (with the nearest
// one), a value that is no text, a file that is no TOML.
Result<std::vector<Default>> read_defaults();

}  // namespace tessera::cli
