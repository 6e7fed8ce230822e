// Solves with CBC. As in the published program (docs/planners/alpa.md section 7), there is one
// binary variable for each choice of a node, and for each edge one variable between 0 and 1 for
// each pair of choices. The sum of the pairs with a given choice of one node equals the variable of
// that choice. So if the choices are whole numbers, the pairs are, too.
#include <coin/Cbc_C_Interface.h>
#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "tessera/planners/published/one_hot_cbc.h"

namespace tessera::published {
namespace {

constexpr const char* kLibrary = "libCbcSolver.so.3";
// The value to which the largest cost is scaled, because CBC ignores differences of costs
// below 1e-5.
constexpr double kLargest = 1e4;
// The time limit for CBC, which is that of the publication.
constexpr const char* kMostSeconds = "600";

// The functions of CBC that are used, from its library.
struct Cbc {
  decltype(&Cbc_newModel) new_model = nullptr;
  decltype(&Cbc_deleteModel) delete_model = nullptr;
  decltype(&Cbc_setParameter) set_parameter = nullptr;
  decltype(&Cbc_addCol) add_column = nullptr;
  decltype(&Cbc_addRow) add_row = nullptr;
  decltype(&Cbc_solve) solve = nullptr;
  decltype(&Cbc_isProvenOptimal) is_optimal = nullptr;
  decltype(&Cbc_isProvenInfeasible) is_infeasible = nullptr;
  decltype(&Cbc_getColSolution) solution = nullptr;
  bool is_complete = false;
};

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

const Cbc& cbc() {
  static const Cbc loaded = [] {
    Cbc out;
    void* library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);  // never closed
    out.is_complete = library != nullptr && find(library, "Cbc_newModel", out.new_model) &&
                      find(library, "Cbc_deleteModel", out.delete_model) &&
                      find(library, "Cbc_setParameter", out.set_parameter) &&
                      find(library, "Cbc_addCol", out.add_column) &&
                      find(library, "Cbc_addRow", out.add_row) &&
                      find(library, "Cbc_solve", out.solve) &&
                      find(library, "Cbc_isProvenOptimal", out.is_optimal) &&
                      find(library, "Cbc_isProvenInfeasible", out.is_infeasible) &&
                      find(library, "Cbc_getColSolution", out.solution);
    return out;
  }();
  return loaded;
}

class Model {
 public:
  explicit Model(double scale) : scale_(scale), model_(cbc().new_model()) {
    cbc().set_parameter(model_, "log", "0");
    cbc().set_parameter(model_, "sec", kMostSeconds);
  }
  ~Model() { cbc().delete_model(model_); }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // Adds a variable between 0 and 1, which is 0 where the cost is infinite.
  int column(double cost, bool is_whole) {
    const bool is_allowed = std::isfinite(cost);
    cbc().add_column(model_, "", 0, is_allowed ? 1 : 0, is_allowed ? cost * scale_ : 0,
                     is_whole ? 1 : 0, 0, nullptr, nullptr);
    return columns_++;
  }
  void row(const std::vector<int>& columns, const std::vector<double>& factors, char sense,
           double value) {
    cbc().add_row(model_, "", static_cast<int>(columns.size()), columns.data(), factors.data(),
                  sense, value);
  }
  void solve() { cbc().solve(model_); }
  bool is_optimal() const { return cbc().is_optimal(model_) != 0; }
  bool is_infeasible() const { return cbc().is_infeasible(model_) != 0; }
  double value(int column) const { return cbc().solution(model_)[column]; }

 private:
  double scale_;
  Cbc_Model* model_;
  int columns_ = 0;
};

double largest_cost(const OneHotProblem& problem) {
  double out = 0;
  const auto see = [&](double cost) {
    if (std::isfinite(cost)) out = std::max(out, std::abs(cost));
  };
  for (const auto& node : problem.nodes) {
    for (const double cost : node) see(cost);
  }
  for (const OneHotEdge& edge : problem.edges) {
    for (const auto& row : edge.cost) {
      for (const double cost : row) see(cost);
    }
  }
  return out;
}

using Columns = std::vector<std::vector<int>>;  // by node, then by choice

void add_edge(Model& model, const OneHotEdge& edge, const Columns& choices) {
  const std::vector<int>&from = choices[edge.from], &to = choices[edge.to];
  Columns pairs(from.size());
  for (size_t a = 0; a < from.size(); ++a) {
    for (size_t b = 0; b < to.size(); ++b) pairs[a].push_back(model.column(edge.cost[a][b], false));
  }
  const auto sum_is = [&](std::vector<int> columns, int choice) {
    std::vector<double> factors(columns.size(), 1);
    columns.push_back(choice);
    factors.push_back(-1);
    model.row(columns, factors, 'E', 0);
  };
  for (size_t a = 0; a < from.size(); ++a) sum_is(pairs[a], from[a]);
  for (size_t b = 0; b < to.size(); ++b) {
    std::vector<int> columns;
    for (size_t a = 0; a < from.size(); ++a) columns.push_back(pairs[a][b]);
    sum_is(columns, to[b]);
  }
}

void add_limit(Model& model, const OneHotLimit& limit, const Columns& choices) {
  std::map<int, double> sums;  // a node may stand in the limit several times
  for (size_t i = 0; i < limit.nodes.size(); ++i) {
    for (size_t s = 0; s < limit.amount[i].size(); ++s)
      sums[choices[limit.nodes[i]][s]] += limit.amount[i][s];
  }
  std::vector<int> columns;
  std::vector<double> amounts;
  for (const auto& [column, amount] : sums) {
    columns.push_back(column);
    amounts.push_back(amount);
  }
  model.row(columns, amounts, 'L', limit.most);
}

}  // namespace

bool cbc_available() { return cbc().is_complete; }

Result<std::optional<OneHotAnswer>> solve_one_hot_by_cbc(const OneHotProblem& problem) {
  if (!cbc_available()) {
    return invalid_input(std::string("CBC cannot be loaded: expected the library ") + kLibrary +
                         "; Debian's package coinor-libcbc3 has it");
  }
  const double largest = largest_cost(problem);
  Model model(largest > 0 ? kLargest / largest : 1);
  Columns choices;
  for (const auto& node : problem.nodes) {
    std::vector<int>& own = choices.emplace_back();
    for (const double cost : node) own.push_back(model.column(cost, true));
  }
  for (const std::vector<int>& own : choices)
    model.row(own, std::vector<double>(own.size(), 1), 'E', 1);
  for (const OneHotEdge& edge : problem.edges) add_edge(model, edge, choices);
  for (const OneHotLimit& limit : problem.limits) add_limit(model, limit, choices);
  model.solve();
  if (model.is_infeasible()) return std::nullopt;
  if (!model.is_optimal()) return fault("CBC ended without a proof that its answer is optimal");
  OneHotAnswer out;
  for (const std::vector<int>& own : choices) {
    size_t best = 0;
    for (size_t s = 1; s < own.size(); ++s) {
      if (model.value(own[s]) > model.value(own[best])) best = s;
    }
    out.choices.push_back(best);
  }
  out.cost = out.bound = cost_of(problem, out.choices);
  out.solver = "cbc";
  return out;
}

}  // namespace tessera::published
