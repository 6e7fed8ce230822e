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
  std::string format;  // "tessera", "dcp" or "hf"; "": tessera, or dcp from a checkpoint of Tessera
  std::string model;   // MODEL; "": as the checkpoint or the folder says
  std::string plan;    // the plan whose ranks' pieces are written; "": one rank holds all
  std::optional<int64_t> seed;  // of a checkpoint of Tessera; nothing: as it was, or 1
};

struct ConvertReport {
  std::string from, to;  // formats
  std::string path;      // what was written
  int64_t tensors = 0, bytes = 0;
  std::optional<int64_t> step;
  std::vector<std::string> notes;  // sentences that tell a user what to know
};

}  // namespace tessera
