// The contract between models and recipes: the paths and dims by which recipes find the parts of a
// model. Recipes do not know the families of models. They write plan entries such as "blocks.*.mlp,
// dim ffn, over tp". So a model works with every recipe if its ops have the paths and dims that the
// recipes name.
//
// A part that a model lacks is no breach of the contract: a network without attention has no ops
// blocks.<i>.attn, and a recipe that needs such ops says so. It is a breach if a part has another
// name, because recipes would then leave the part unsplit without a message. Examples are an MLP
// whose dim is "width", and blocks that begin with number 1.
//
// build_model checks every model that it builds. The table in docs/reference/models.md is printed
// from contract(), and a test runs each recipe on the examples of each family.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/graph/graph.h"

namespace tessera {

struct ContractClause {
  std::string name;  // "mlp"
  // The part that a graph has to have, as a noun phrase: "ops with the dim 'ffn' below ...".
  std::string expected;
  std::vector<std::string> recipes;  // recipes that rely on the clause
  // Returns, as a text, the part of a forward graph that breaks the clause. Empty if nothing does.
  std::string (*breach)(const Graph&);
};
const std::vector<ContractClause>& contract();

// Checks the forward graph. Returns an error for the first clause that the graph breaks, in one
// line: the expected part, the recipes that need it, and what was found instead.
Status check_contract(const Graph& graph);

}  // namespace tessera
