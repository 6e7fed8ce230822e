// Writes a public architecture (architecture.h) as the text of a model (model.h), so that every
// command can take a published name where it takes a MODEL.
//
//   const auto known = find_architecture("Llama-3-8B");
//   TESSERA_TRY(const std::string text, architecture_text(*known));  // "llama:layers=32,..."
//
// The text has the sizes of the architecture. Keys that the table does not know have the default
// of the family, so the arithmetic and the parameters of such a model are those of the published one, but
// its function may differ in small things (the base of rotary positions, norms of queries).
#pragma once

#include <string>

#include "tessera/base/result.h"
#include "tessera/models/architecture.h"

namespace tessera {

// Returns the text. `seq` and `vocab` are those of the architecture. An architecture with experts
// has a capacity factor of 1, because its tokens are assumed to be balanced over the experts: no
// token is dropped and no slot is empty. Returns an error if no family builds the architecture.
Result<std::string> architecture_text(const Architecture& model);

}  // namespace tessera
