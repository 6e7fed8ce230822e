// Runs of plans by formulas (tessera/runtime/formulas), compared with the serial run by the kernels of
// the processor.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace tessera {

struct FormulaRun {
  std::string model;
  std::string plan;                   // a recipe call, or the text of a plan file
  std::string optimizer = "adamw";    // as in `verify --optimizer`
  std::string precision = "float64";  // in which both runs compute
  bool quick = false;
  bool cached = false;  // whether rows of tables lie in a cache, which no accelerator has
};
std::ostream& operator<<(std::ostream& out, const FormulaRun& run);
// Returns runs that reach mixtures of experts, tables, dropout, optimizers and loss scales.
std::vector<FormulaRun> formula_runs();
void expect_equal_to_serial(const FormulaRun& run, const std::string& device);

}  // namespace tessera
