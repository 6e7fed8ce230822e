// Finds the machine of a row: the preset of the cluster module for its GPU and its number of GPUs a
// node. Names and traits of devices are in the data file tessera/predict/data/machines.toml.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/base/result.h"
#include "tessera/predict/row.h"

namespace tessera {

struct Machine {
  std::string preset;        // "dgx-a100"; the cluster's text is "dgx-a100:<nodes>"
  int64_t gpus_a_node = 8;   // GPUs a node of the preset
  int64_t memory_bytes = 0;  // memory of a GPU, to judge what fits before a plan exists
  // True for each arithmetic that the GPU has.
  bool float16 = true, bfloat16 = true, fp8 = false, fp4 = false;
  bool tf32 = false;            // set only if a row states tf32, from the preset
  bool flash_attention = true;  // FlashAttention and cuDNN have kernels for it
  bool early = false;  // sold before 2022; a run's framework, if unknown, is one of that time
  bool tuned = false;  // NVLink, sold since 2022; published runs overlap tensor parallelism
  bool xla = false;    // programs for it are made by XLA
  // True: a node is the set of chips that the interconnect joins, and not a host. The GPUs a node
  // that a row states are then ignored.
  bool joined = false;
  bool replaces = false;  // true: the preset is another device of about the same speed
};

// Finds a machine by the name of a device ("A100-SXM4-80GB", "8x H100 PCIe", "TPU v4", "Gaudi 2")
// or of a cloud's instance ("p4d"), Case, punctuation and words that precede the name do not
// matter. If a device has variants, the board and the memory in the text choose one. Returns
// nothing if no name is known.
std::optional<Machine> find_machine(std::string_view gpu);

// Checks that a text has the form of machines.toml. Returns an error with file:line for an unknown
// key, preset or trait, or an entry without kind and source.
Status check_machines(std::string_view toml, std::string_view file);

// Returns the machine of a row. `reason` gets what the row did not state and what the nearest
// preset replaces. Returns an error if the row has no GPU or an unknown one.
Result<Machine> machine_of(const Row& row, std::string& reason);

}  // namespace tessera
