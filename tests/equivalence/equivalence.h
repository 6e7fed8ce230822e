// The property that everything rests on: a random graph under a random plan computes the result of
// one rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "random_case.h"

namespace tessera {

// A way to draw cases, by name, and all features that it may draw.
struct CaseSource {
  std::string name;
  RandomCase (*draw)(const std::vector<uint32_t>& stream);
  const Features& features;
  // Whether the plan language may refuse a plan, in one line that names a line of the plan; then
  // there is nothing to compare. At most one plan in five may be refused.
  bool may_be_refused = false;
};

struct Comparison {
  std::string disagreement;  // "" if all agree; else what differs, with plan and graph
  bool refused = false;      // nothing was run
};

// Runs the case of the stream on threads in float64 and compares loss, gradients and updated
// parameters with the serial run (1e-9), and bytes, messages and peak memory with their predictions
// (exactly).
Comparison compare_to_serial(const CaseSource& source, const std::vector<uint32_t>& stream);

// Compares `cases` cases, and expects that every feature of the source is drawn. Prints how many
// cases have passed, also after each thousand, and with TESSERA_SHOW_DRAWN the drawn features.
// TESSERA_LAST_CASE names a file for the running case, in case it stops the process. Must be called
// once in a program.
void expect_equal_to_serial(const CaseSource& source, int cases);

// Graphs of all kinds of ops under all of the plan language (random_case.h); networks of ops that
// read through windows (random_windows.h); stages on meshes of their own (random_case.h).
CaseSource all_cases();
CaseSource window_cases();
CaseSource mesh_cases();

}  // namespace tessera
