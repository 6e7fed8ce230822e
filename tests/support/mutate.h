// Makes mutations of correct programs, for tests of the verifier: the fault classes of
// docs/theory/superscaler.md section 13 and more. Every change is certainly wrong (mutate.cc says
// why for each class), so a verifier that accepts one has a hole.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "tessera/program/program.h"

namespace tessera {

struct Mutation {
  std::string kind;         // "drop_wait"
  std::string description;  // "drop_wait: rank 1 backward[17] wait #5"
  std::vector<Program> programs;
};

// Returns up to `per_kind` mutations of each kind, spread evenly over the places where it applies.
// `only`: returns those of these kinds alone, unless it is empty.
std::vector<Mutation> mutations(const Graph& graph, const std::vector<Program>& programs,
                                size_t per_kind = 8, const std::set<std::string>& only = {});

}  // namespace tessera
