#include "tessera/cli/planned_model.h"

#include <utility>

#include "tessera/base/one_line.h"
#include "tessera/cli/output.h"
#include "tessera/models/planning_model.h"

namespace tessera::cli {

Result<std::string> planned_model(std::string_view text) {
  TESSERA_TRY(PlanningModel model, read_for_planning(text));
  for (const std::string& line : lines_of(model)) note(one_line(line) + "\n");
  return std::move(model.spec);
}

}  // namespace tessera::cli
