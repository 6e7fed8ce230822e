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

// Files of tokens that are read in the same way; one source of a TokenCorpus (corpus.h).
struct TokenFilesConfig {
  std::vector<std::string> files;  // globs
  std::string format;              // a name of token_file.h; "": the suffix says it
  double weight = 0;               // weight of the source (corpus.h); 0: none is given
  // Whether each sequence is one document. If not, sequences are windows that may cross the borders
  // of documents.
  bool padded = false;
  int64_t end_of_document = -1;  // the token that ends a document; -1: none is known
  friend bool operator==(const TokenFilesConfig&, const TokenFilesConfig&) = default;
};

// Two datasets of one HDF5 file: `inputs` is for the model's input, of which there must be only
// one, and `labels` is for its targets.
struct Hdf5Config {
  std::string file, inputs, labels;
  bool given() const { return !file.empty(); }
  friend bool operator==(const Hdf5Config&, const Hdf5Config&) = default;
};

struct DataConfig {
  DataConfig() = default;
  // Makes a config of globs of files whose bytes are the tokens, or of the word "random".
  DataConfig(std::initializer_list<std::string> globs);  // NOLINT: data = {"a.txt"} as in the file
  explicit DataConfig(const std::vector<std::string>& globs);

  std::vector<TokenFilesConfig> tokens;
  std::map<std::string, std::string> arrays;  // by input of the model: "x.npy" or "x.h5:dataset"
  Hdf5Config hdf5;
  double scale = 1;  // the numbers of arrays are multiplied by it
  // By input: how many steps later the step is whose samples this input gets.
  std::map<std::string, int64_t> ahead;
  // Augmentation: each sample of an input array of floating-point numbers is shifted in its last
  // two dims, in each by a random number of places, at most `shift`.
  int64_t shift = 0;
  bool flip = false;  // augmentation: half of these samples are mirrored along the last dim
  // If above 0, ranks read the arrays once and keep them in memory, each rank at most so many
  // bytes. If 0, files are read at each step.
  int64_t store_bytes = 0;
  std::string clicks;  // a file of clicks (click_file.h)
  // The common beginning of the names of the files about a graph's nodes: "data/graphs/cora".
  std::string nodes;
  std::string part = "train";  // which nodes the loss is about: train, val or test
  bool random = false;         // inputs are random numbers, new ones for each step

  bool given() const {
    return random || !tokens.empty() || !arrays.empty() || hdf5.given() || !clicks.empty() ||
           !nodes.empty();
  }
  friend bool operator==(const DataConfig&, const DataConfig&) = default;
};

// Returns the value of the key `data` in TOML. read_data_config() makes an equal config from it.
std::string to_text(const DataConfig& config);

// Reads the value of the key `data`. Errors do not name the file: "expected data to be ..., found
// ...".
Result<DataConfig> read_data_config(const toml::node& node);

}  // namespace tessera
