// Reads the configuration of another framework's run: what `tessera import job.toml` and
// `tessera export --from` share.
#pragma once

#include <string>

#include "tessera/export/export.h"

namespace tessera::cli {

// Returns the plan that the file asks for. `ranks`: that the launcher starts; 0 if the file says it.
// Errors have the file's name.
Result<ReadBack> read_job(const ExportTarget& target, const std::string& path,
                          const std::string& model, int64_t ranks);

}  // namespace tessera::cli
