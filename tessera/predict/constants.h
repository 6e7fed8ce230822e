// Calibrated constants: settings over the presets, each with the sources of published runs on which
// it was fitted. The program's own are tessera/predict/data/constants.toml.
//
//   [[constants]]
//   kind = "fitted"
//   rows = ["SimuMax B200 measured set"]
//   machines = ["dgx-b200"]            # or frameworks = [...]; neither: every row is meant
//   matmul_efficiency = 0.87           # keys of --style-set: options of a style, plan.KEY, cluster
//
// Where a source's own rows are scored, constants that were fitted on that source alone are left
// out. A table with `without = "SOURCE"` instead holds only there: its values were found anew
// without the source.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/data_file.h"
#include "tessera/base/result.h"
#include "tessera/predict/predict.h"

namespace tessera {

struct ConstantsBlock {
  Origin origin;
  std::string without;  // a source; "": holds everywhere
  PredictSettings settings;
};

struct Constants {
  PredictSettings all;  // of the blocks that hold everywhere
  std::vector<ConstantsBlock> blocks;
  // Returns settings without those fitted on this source alone, with those found without it.
  PredictSettings without(const std::string& source) const;
  // Returns the sources for which without() differs from `all`.
  std::vector<std::string> sources() const;
};

// Reads constants. Errors: file:line of invalid TOML, an unknown key or setting, a table without
// kind and rows.
Result<Constants> parse_constants(std::string_view toml, std::string_view file);
Result<Constants> load_constants(const std::string& path);  // "": the program's own

}  // namespace tessera
