// Parts of the targets that shard by FSDP2 alone: fsdp2, accelerate, transformers.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/export/target.h"

namespace tessera {

// Returns an error for settings that FSDP2 without tensor, expert and pipeline parallelism cannot
// express.
Status check_fsdp(const ExportJob& job, std::string_view target);
// Sets what FSDP2 does: whether parameters are gathered for either pass, and whether blocks are made
// again.
void set_fsdp(ExportSettings& settings, bool reshards, bool recomputes);
// Returns the choices that a planner must keep fixed (ExportTarget::fixes).
std::vector<std::map<std::string, std::string>> fsdp_fixes();

}  // namespace tessera
