// Compiles the names that users give (a model, a plan, a batch, a precision) to a lowering, from
// which the program of every rank is made. All commands use these functions. Nothing is run or
// priced here.
//
//   model text --build_model--> forward graph --training_graph--> graph that is trained
//       --prepare--> as the plan wants it --Lowering::create--> lowering
//
// One plan:
//
//   TESSERA_TRY(const Compiled compiled, compile({"gpt:layers=4", "megatron(tp=2,dp=2)"}));
//   TESSERA_TRY(const Program program, compiled.lowering->lower(0));
//
// To compile many plans of a model, use a Compiler. It keeps the model and its differentiated
// graph, so that each further plan is only resolved and lowered.
//
//   Compiler compiler;
//   TESSERA_TRY(const auto model, compiler.model("gpt:layers=4", 64));
//   for (const Plan& plan : plans) {
//     TESSERA_TRY(const auto lowering, compiler.lower(forward_of(model), plan));
//   }
//
// An error is one line. An error in the text of the model names the key, one in the plan
// has file:line.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/compile/outer_fragments.h"
#include "tessera/graph/builder.h"
#include "tessera/models/model.h"
#include "tessera/plan/islands.h"
#include "tessera/plan/plan.h"
#include "tessera/plan/prepare.h"
#include "tessera/plan/resolve/path_cache.h"
#include "tessera/program/lower.h"

namespace tessera {

// `CompileTexts` are the names and texts with which a user asks for a plan of a model.
struct CompileTexts {
  std::string model, plan;  // a model's text; a plan file or a recipe call
  int64_t batch = 0;        // 0: one sequence for each replica and micro-batch of the plan
  std::string precision = "float32";  // the dtype of the computation, as in RUN.toml
  std::string beside = "";            // a file whose folder is also searched for a plan file
  OptimizerSpec optimizer = {};
  bool fetch_gradients = false;         // keep all gradients of parameters to the end of the step
  std::vector<std::string> fetch = {};  // also keep the tensors with these names
  bool takes_outer = false;             // whether the plan may have outer steps
};

struct Compiled {
  std::shared_ptr<const Model> model;  // its member `graph` is the forward graph
  int64_t batch = 0;
  bool batch_is_default = false;
  DType compute = DType::kFloat32;           // CompileTexts::precision
  std::shared_ptr<const Lowering> lowering;  // of one island, if the plan has outer steps
  // The plan's outer steps (plan/outer_steps.h). `model` and `batch` are then those of one island.
  struct Outer {
    Plan plan;  // of all islands
    std::vector<OuterFragment> fragments;
  };
  std::shared_ptr<const Outer> outer;  // null: the plan has none

  // Returns the lowered graph, with backward and update ops.
  const Graph& graph() const { return lowering->graph(); }
  const ResolvedPlan& plan() const { return lowering->plan(); }
  int islands() const { return outer ? static_cast<int>(tessera::islands(outer->plan)) : 1; }
  int ranks() const { return static_cast<int>(plan().ranks) * islands(); }  // of all islands
  DType computes_in() const;  // dtype of products and activations: that of the plan, or `compute`
};

struct CompileOptions {
  OptimizerSpec optimizer = {};
  bool fetch_gradients = false;
  std::vector<std::string> fetch = {};
  // As LowerOptions::equal_stages_once. Only for a plan that is priced and not run, verified
  // or printed.
  bool equal_stages_once = false;
};
// Returns the options for a plan that is only priced.
CompileOptions for_price(OptimizerSpec optimizer = {});

// A `Compiler` is a session that compiles several plans. It keeps models and trained graphs, so
// that later plans with the same model can use them. The result for a plan does not depend on what
// was compiled before. A Compiler must not be used by several threads at once.
class Compiler {
 public:
  // Makes a session that keeps the `keeps` models and the `keeps` trained graphs that were
  // used last.
  explicit Compiler(size_t keeps = 4) : keeps_(keeps) {}

  Result<Compiled> compile(const CompileTexts& texts);
  Result<Compiled> compile(std::shared_ptr<const Model> model, Plan plan, DType compute,
                           const CompileOptions& options = {});

  // Returns the batch of a run by the rules of build_model_of: `given` if it is not 0, else the
  // batch of a graph file, else `otherwise`. If it had to read a graph file, keeps its model in
  // that dtype.
  Result<int64_t> batch_of(const std::string& spec, int64_t given, int64_t otherwise,
                           std::optional<DType> dtype = {});
  // Returns the model with this spec and batch, which is built if the session does not have it.
  // `dtype` is as in build_model.
  Result<std::shared_ptr<const Model>> model(const std::string& spec, int64_t batch,
                                             std::optional<DType> dtype = {});
  // Returns the graph that is trained for the plan, in the precision that the plan says, with the
  // default optimizer. Calls with the same `forward` pointer share it.
  Result<std::shared_ptr<const Graph>> trained_graph(const std::shared_ptr<const Graph>& forward,
                                                     const Plan& plan);
  // Lowers the plan on a forward graph, in the precision that the plan says. Calls with the same
  // `forward` pointer share the trained graph.
  Result<std::unique_ptr<Lowering>> lower(const std::shared_ptr<const Graph>& forward,
                                          const Plan& plan, const CompileOptions& options = {});

 private:
  struct KnownModel {
    std::string spec;
    int64_t batch;
    std::optional<DType> dtype;
    std::shared_ptr<const Model> model;
  };
  struct KnownGraph {
    std::shared_ptr<const Graph> forward;
    Plan plan;  // the first plan for which the graph was made
    OptimizerSpec optimizer;
    GraphVariants trained;
  };
  Result<GraphVariants*> trained(const std::shared_ptr<const Graph>& forward, const Plan& plan,
                                 const OptimizerSpec& optimizer);

  size_t keeps_;
  std::shared_ptr<PathCache> paths_ = std::make_shared<PathCache>();
  std::list<KnownModel> models_;  // the model used last comes first; so does the graph below
  std::list<KnownGraph> graphs_;
};

// Compiles one plan in a session of its own.
Result<Compiled> compile(const CompileTexts& texts);

// Returns a pointer to the model's forward graph. The pointer keeps the model alive.
std::shared_ptr<const Graph> forward_of(const std::shared_ptr<const Model>& model);

// Returns the programs of all ranks; an error if the verifier rejects them. memory_limit_bytes: the
// most bytes of the device arena of a rank; 0: no limit.
Result<std::vector<Program>> lower_and_verify(const Lowering& lowering,
                                              int64_t memory_limit_bytes = 0);

}  // namespace tessera
