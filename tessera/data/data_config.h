// The data section of a run file. docs/guides/data.md explains the keys.
//
//   data = ["docs/**/*.md"]                                # bytes of files
//   data = { files = "train.bin", format = "uint16" }      # tokens
//   data = [{ files = "a.idx", weight = 3 }, { files = "b.idx", weight = 1 }]
//   data = { arrays = { images = "x.npy", targets = "y.npy" }, scale = 0.0625 }
//   data = { hdf5 = "universes.h5", inputs = "volumes", labels = "parameters" }
//   data = { arrays = { images = "x.npy", targets = "y.npy" }, shift = 4, flip = true }
//   data = { hdf5 = "universes.h5", inputs = "volumes", labels = "parameters", store = "16 GiB" }
//   data = { clicks = "day.clicks" }
//   data = { nodes = "data/graphs/cora", part = "train" }
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

// Files of tokens that are read in the same way.
struct TokenFilesConfig {
  std::vector<std::string> files;  // globs
  std::string format;              // a name of token_file.h; "": by the suffix
  double weight = 0;               // share of the sequences; 0: none is given
  bool padded = false;             // one document a sequence; else windows run over their borders
  int64_t end_of_document = -1;    // the token that ends a document; -1: none is known
  friend bool operator==(const TokenFilesConfig&, const TokenFilesConfig&) = default;
};

// Datasets of one file: the input of a model that has one, and its targets.
struct Hdf5Config {
  std::string file, inputs, labels;
  bool given() const { return !file.empty(); }
  friend bool operator==(const Hdf5Config&, const Hdf5Config&) = default;
};

struct DataConfig {
  DataConfig() = default;
  // Takes globs of files whose bytes are the tokens, or the word "random".
  DataConfig(std::initializer_list<std::string> globs);  // NOLINT: data = {"a.txt"} as in the file
  explicit DataConfig(const std::vector<std::string>& globs);

  std::vector<TokenFilesConfig> tokens;
  std::map<std::string, std::string> arrays;  // "x.npy" or "x.h5:dataset" by input of the model
  Hdf5Config hdf5;
  double scale = 1;                      // factor of the numbers of arrays
  std::map<std::string, int64_t> ahead;  // inputs that get the samples of that many steps later
  int64_t shift = 0;  // floating maps of arrays are moved by at most this in two dims
  bool flip = false;  // and half of them are mirrored along the last dim
  // With a number above 0 ranks read arrays once and keep them, each in at most so many bytes; 0:
  // files are read at each step.
  int64_t store_bytes = 0;
  std::string clicks;          // a file of clicks (click_file.h)
  std::string nodes;           // the begin of the names of files about a graph's nodes
  std::string part = "train";  // the nodes whose classes are given: train, val or test
  bool random = false;         // other random inputs each step

  bool given() const {
    return random || !tokens.empty() || !arrays.empty() || hdf5.given() || !clicks.empty() ||
           !nodes.empty();
  }
  friend bool operator==(const DataConfig&, const DataConfig&) = default;
};

// Returns the value of the key `data` in TOML, from which read_data_config makes an equal config.
std::string to_text(const DataConfig& config);

// Reads the key `data`. Errors lack the place: "expected data to be ..., found ...".
Result<DataConfig> read_data_config(const toml::node& node);

}  // namespace tessera
