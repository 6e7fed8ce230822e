// The machine of a row: its GPU and GPUs a node as a preset of the cluster module. Names and traits
// of devices are data: tessera/predict/data/machines.toml.
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
  int64_t gpus_a_node = 8;   // of the preset
  int64_t memory_bytes = 0;  // of a GPU: to judge what fits before a plan exists
  // Arithmetic that the GPU has.
  bool float16 = true, bfloat16 = true, fp8 = false, fp4 = false;
  bool tf32 = false;            // of the preset; looked up where a row states it
  bool flash_attention = true;  // FlashAttention and cuDNN have kernels for it
  bool early = false;  // sold before 2022: runs that do not say so are of that time's frameworks
  bool tuned = false;  // NVLink and sold since 2022: published runs overlap tensor parallelism
  bool xla = false;    // its programs are XLA's
  // If true, a node is the set of chips that the interconnect joins, not a host: what a row calls a
  // node does not count.
  bool joined = false;
  bool replaces = false;  // another device of about the speed of the named one
};

// Finds a machine by the name of a device ("A100-SXM4-80GB", "8x H100 PCIe", "TPU v4", "Gaudi 2")
// or of a cloud's instance ("p4d"), whatever case and punctuation and whatever words stand before
// it. The board and the memory in the name choose among variants. Nothing: the name is not known.
std::optional<Machine> find_machine(std::string_view gpu);

// Checks that a text is such a file. Errors: file:line of an unknown key, preset or trait, of an
// entry without kind and source.
Status check_machines(std::string_view toml, std::string_view file);

// Returns the machine of a row. `reason` gets what was not stated or is replaced by the nearest
// preset. Errors: no GPU, or a GPU that is not known.
Result<Machine> machine_of(const Row& row, std::string& reason);

}  // namespace tessera
