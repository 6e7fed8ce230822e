// Outer steps: training with few exchanges over a slow link. The ranks along one axis of the mesh
// form islands. Each island trains a copy of the model of its own, on its own share of the batch,
// and nothing is sent over the axis in these inner steps. After `every` inner steps the islands
// compare their parameters with those of the last comparison; the mean difference (the
// pseudo-gradient) is the gradient of an outer step by an optimizer of its own. In plan texts:
//
//   mesh = { site = 2, dp = 4 }
//   outer = { axis = "site", every = 50, optimizer = "sgd", lr = 0.7, momentum = 0.9, nesterov = true }
//
// This is DiLoCo (arXiv 2311.08105). With `fragments` = F the parameters are cut into F parts, of
// which one has its outer step after every / F inner steps, in turn. With `delay` = d the
// difference is taken d inner steps before the outer step, so that it has that time to travel. With
// `mix` = a an island keeps the share a of its own parameters when it takes the new ones. `with`
// names a codec for the pseudo-gradient (base/codec.h). These three are Streaming DiLoCo (arXiv
// 2501.18512). A run with outer steps does not compute what the serial run computes: it is compared
// with a run of the same rule in which each island is one rank.
//
// Invariants of a plan with outer steps: the axis is the first of the mesh, so that the ranks of an
// island follow each other; no other entry names it; no stage has a mesh of its own; `fragments`
// divides `every`; `delay` is less than every / fragments.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/base/codec.h"
#include "tessera/base/result.h"

namespace tessera {

struct OuterSteps {
  std::string axis;
  int64_t every = 0;              // inner steps between two outer steps of a parameter
  int64_t fragments = 1;          // parts of the parameters that have outer steps in turn
  int64_t delay = 0;              // inner steps between taking the difference and the outer step
  double mix = 0;                 // share of an island's own parameters that it keeps, 0 to 1
  std::string optimizer = "sgd";  // a name of graph/optimizers.h
  double lr = 0.7, momentum = 0.9;
  bool nesterov = true;
  std::optional<Compression> compression;                 // of the pseudo-gradient
  int line = 0;                                           // line of the plan's text; ignored by ==
  int64_t interval() const { return every / fragments; }  // inner steps between two outer steps
  friend bool operator==(const OuterSteps& a, const OuterSteps& b);
};
// Writes the value of the key.
std::string to_toml(const OuterSteps& outer);

class TomlReader;
// Reads the value of the key `outer`. Errors have file:line.
Result<OuterSteps> read_outer_steps(const TomlReader& reader);

}  // namespace tessera
