// For tests of this module: a table of small graphs that together execute every kind of op, forward
// and backward. A case is one op and its surroundings. The tests of values, of pieces, of gradients
// (kernels_test.cc) and of the narrow dtypes (narrow_kernels_test.cc) read the table.
//
//   const Graph graph = build_graph(cases()[0], DType::kFloat32, /*backward=*/true);
//   Workspace work(graph);
//   fill_inputs(work, cases()[0].high);
//   work.run();
#pragma once

#include <functional>
#include <iosfwd>
#include <vector>

#include "tessera/graph/builder.h"
#include "tessera/runtime/testing.h"

namespace tessera::testing {

using Build = std::function<TensorId(GraphBuilder&, DType)>;  // returns what the loss is made of
struct Case {
  const char* name;
  Build build;
  double high = 1;      // parameters are uniform in [-high, high)
  bool expand = false;  // every op that has an expansion is replaced by it
};
std::ostream& operator<<(std::ostream& out, const Case& c);

const std::vector<Case>& cases();
std::vector<Case> image_cases();       // cases() includes them
std::vector<Case> attention_cases();   // cases() includes them
std::vector<Case> recurrence_cases();  // cases() includes them
std::vector<Case> sparse_cases();      // cases() includes them
// Makes attention with a bias for each head, query and key, segments, a window, dropped weights,
// (t) capped scores, (v) values of another width, and (l) a result that uses the log-sum-exp too, as
// the letters of `form` say; c: causal.
TensorId attention_form(GraphBuilder& g, DType t, std::string_view form, int64_t seq = 5);
// Returns cases that are large enough for other code of the kernels to run: several blocks of
// queries, several heads in a block, products by either library.
const std::vector<Case>& large_cases();

// Returns the case's op, a loss that weighs its output by fixed random numbers, and the backward
// ops.
Graph build_graph(const Case& c, DType dtype, bool backward);
// Sets parameters and inputs to random numbers that depend only on their names.
void fill_inputs(Workspace& work, double high);

// Makes the kinds that no case has, updates above all, in one graph; nothing is differentiated.
Graph other_kinds(DType dtype);
// Sets what in that graph must be positive, a flag or an id; call it behind fill_inputs().
void fill_others(Workspace& work);

}  // namespace tessera::testing
