// Calibrated constants: settings over the presets, each with the sources of published runs on which
// it was fitted. The program's own are tessera/predict/data/constants.toml.
//
//   [[constants]]
//   kind = "fitted"
//   rows = ["SimuMax B200 measured set"]
//   machines = ["dgx-b200"]            # or frameworks = [...]; neither: every row is meant
//   matmul_efficiency = 0.87           # keys of --style-set: options of a style, plan.KEY, cluster
//
// Where a source's own rows are scored, those constants are left out that were fitted on that source
// alone. A table with `without = "SOURCE"` instead holds only there: values that were found anew
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
  // Without what was fitted on this source alone, and with what was found without it.
  PredictSettings without(const std::string& source) const;
  // Sources for which without() differs from `all`.
  std::vector<std::string> sources() const;
};

// Errors: file:line of what is no TOML, an unknown key or setting, a table without kind and rows.
Result<Constants> parse_constants(std::string_view toml, std::string_view file);
Result<Constants> load_constants(const std::string& path);  // "": the program's own

}  // namespace tessera
