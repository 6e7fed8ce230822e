// Calibrated constants: settings that replace values of presets, each with the sources of published
// runs on which it was fitted. The program's own constants are in
// tessera/predict/data/constants.toml.
//
//   [[constants]]
//   kind = "fitted"
//   rows = ["SimuMax B200 measured set"]
//   machines = ["dgx-b200"]            # or frameworks = [...]; neither: every row is meant
//   matmul_efficiency = 0.87           # keys of --style-set: options of a style, plan.KEY, cluster
//
// When the rows of a source are scored, constants that were fitted only on this source are left
// out. A table with `without = "SOURCE"` is used only for the rows of SOURCE. Its values were
// fitted again without this source and replace constants that were fitted on it among others.
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
  std::string without;  // the source for whose rows the block is used; "": all rows
  PredictSettings settings;
};

struct Constants {
  PredictSettings all;  // settings of the blocks that are used for all rows
  std::vector<ConstantsBlock> blocks;
  // Returns the settings for the rows of this source. Leaves out the blocks that were fitted only
  // on this source, and adds the blocks whose `without` is this source.
  PredictSettings without(const std::string& source) const;
  // Returns the sources for which without(source) and `all` are different settings.
  std::vector<std::string> sources() const;
};

// Reads constants. Returns an error with file:line for invalid TOML, an unknown key or setting, or
// a table without kind and rows.
Result<Constants> parse_constants(std::string_view toml, std::string_view file);
Result<Constants> load_constants(const std::string& path);  // "": the program's own constants

}  // namespace tessera
