// Parts of tessera inspect: what it says about a model, a plan, the roles of a lowering, an op and
// a program.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/base/result.h"
#include "tessera/cli/planning.h"

namespace tessera::cli {

struct InspectOptions {
  std::string subject, plan, model, op;
  std::optional<int64_t> rank;
  int64_t batch = 0;
  bool json = false, text = false;
};

Result<int> inspect_model(const InspectOptions& options);      // without a plan
Result<int> inspect_plan_text(const InspectOptions& options);  // a plan file without a model
Result<int> inspect_roles(const InspectOptions& options, const Planned& planned);
Result<int> inspect_op(const InspectOptions& options, const Planned& planned);
Result<int> inspect_rank(const InspectOptions& options, const Planned& planned);
// The program file `file` in the place of its rank's program: parsed and verified among the others.
Result<int> inspect_program(const InspectOptions& options, const Planned& planned,
                            const std::string& file);

}  // namespace tessera::cli
