// What a run file says of its data. Keys and their meaning: docs/guides/data.md.
//
//   data = ["docs/**/*.md"]                                # bytes of files
//   data = { files = "train.bin", format = "uint16" }      # tokens
//   data = [{ files = "a.idx", weight = 3 }, { files = "b.idx", weight = 1 }]
//   data = { arrays = { images = "x.npy", targets = "y.npy" }, scale = 0.0625 }
//   data = { arrays = { images = "x.npy", targets = "y.npy" }, shift = 4, flip = true }
//   data = { clicks = "day.clicks" }
//   data = "random"
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/base/toml.h"

namespace tessera {

// Files of tokens that are read alike.
struct TokenFilesConfig {
  std::vector<std::string> files;  // globs
  std::string format;              // a name of token_file.h; "": by the suffix
  double weight = 0;               // share of the sequences; 0: none is given
  bool padded = false;             // a document a sequence; else windows run over their borders
  int64_t end_of_document = -1;    // the token that ends a document; -1: none is known
  friend bool operator==(const TokenFilesConfig&, const TokenFilesConfig&) = default;
};

struct DataConfig {
  DataConfig() = default;
  // Globs of files whose bytes are the tokens, or the word "random".
  DataConfig(std::initializer_list<std::string> globs);  // NOLINT: data = {"a.txt"} as in the file
  explicit DataConfig(const std::vector<std::string>& globs);

  std::vector<TokenFilesConfig> tokens;
  std::map<std::string, std::string> arrays;  // .npy file by input of the model
  double scale = 1;                           // factor of the numbers of arrays
  std::map<std::string, int64_t> ahead;       // inputs that get the samples of so many steps later
  int64_t shift = 0;    // floating maps of arrays are moved by up to so many places in two dims
  bool flip = false;    // and half of them are mirrored along the last dim
  std::string clicks;   // a file of clicks (click_file.h)
  bool random = false;  // other random inputs each step

  bool given() const { return random || !tokens.empty() || !arrays.empty() || !clicks.empty(); }
  friend bool operator==(const DataConfig&, const DataConfig&) = default;
};

// The value of the key `data`, in TOML: read_data_config makes the same of it.
std::string to_text(const DataConfig& config);

// Errors lack the place: "expected data to be ..., found ...".
Result<DataConfig> read_data_config(const toml::node& node);

}  // namespace tessera
