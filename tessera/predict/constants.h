// Calibrated constants: those in use, and for each source of published runs those fitted without
// its rows, so that scores tell how predictions carry over to sources that are not known.
//
//   [all]
//   megatron-core.matmul_efficiency = 0.94
//   dgx-a100.cluster = "link:nic*0.8"
//   [without."vTrain measured single-node set"]
//   megatron-core.matmul_efficiency = 0.93
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "tessera/base/result.h"
#include "tessera/predict/predict.h"

namespace tessera {

struct Constants {
  PredictSettings all;
  std::map<std::string, PredictSettings> without;  // by source
  // Those fitted without the source; [all] where the file has none for it.
  const PredictSettings& for_source(const std::string& source) const;
};

// Errors: file:line of what is no TOML, a key outside [all] and [without], what parse_settings
// says.
Result<Constants> parse_constants(std::string_view toml, std::string_view file);
std::string_view constants_file();  // the text of tessera/predict/constants.toml
Result<Constants> load_constants(const std::string& path);  // "" means constants_file()

}  // namespace tessera
