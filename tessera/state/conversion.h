// Describes a conversion of a training run's state from one form to another, and what was done
// (import/convert/convert.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera {

struct ConvertRequest {
  std::string from, to;
  // "tessera", "dcp", "torch_dist" or "hf"; "": tessera, or dcp from a checkpoint of Tessera
  std::string format;
  std::string model;            // MODEL; "": as the checkpoint or the folder says
  std::string plan;             // the plan whose ranks' pieces are written; "": one rank holds all
  std::optional<int64_t> seed;  // of a checkpoint of Tessera; nothing: as it was, or 1
  // The rows of the padded vocabulary of a torch_dist folder. Nothing: as they were, or the next
  // multiple of 128 times the number of ranks that divide the vocabulary.
  std::optional<int64_t> vocabulary_rows = std::nullopt;
};

struct ConvertReport {
  std::string from, to;  // formats
  std::string path;      // what was written
  int64_t tensors = 0, bytes = 0;
  std::optional<int64_t> step;
  std::vector<std::string> notes;  // sentences that tell a user what to know
};

}  // namespace tessera
