// The contract between models and recipes: the paths and dims by which recipes find the parts of a
// model. A recipe knows no family. It writes plan entries such as "blocks.*.mlp, dim ffn, over tp",
// so a model works with every recipe exactly if its ops are where the recipes look.
//
// A part that a model lacks is no breach: a network without attention has no ops blocks.<i>.attn,
// and a recipe that needs them says so. A breach is a part under another name, which recipes would
// leave whole without a message: an MLP whose dim is "width", or blocks that begin with number 1.
//
// build_model checks every model that it builds. The table in docs/reference/models.md is printed
// from contract(), and a test tries each recipe on the examples of each family.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/graph/graph.h"

namespace tessera {

struct ContractClause {
  std::string name;      // "mlp"
  std::string expected;  // the graph's part, a noun phrase: "ops with the dim 'ffn' below ..."
  std::vector<std::string> recipes;  // recipes that rely on it
  // Returns the part of a forward graph that breaks the clause, as a text; empty if nothing does.
  std::string (*breach)(const Graph&);
};
const std::vector<ContractClause>& contract();

// Checks the forward graph. Returns an error for the first clause that it breaks, in one line: what
// was expected, which recipes need it, what was found.
Status check_contract(const Graph& graph);

}  // namespace tessera
