// The back ends that there are (backend.h), by name.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/orchestrate/live/backend.h"

namespace tessera::share {

struct BackendKind {
  std::string_view name;
  // Returns the nodes of the back end; none: it has those that --cluster says. Errors: it is not on this
  // machine (invalid input). Faults: it does not answer.
  Result<std::vector<BackendNode>> (*nodes)();
  Result<std::unique_ptr<Backend>> (*make)(const BackendSetup& setup);
};
// Returns the row of the name. Errors: another word.
Result<const BackendKind*> find_backend(const std::string& name);

}  // namespace tessera::share
