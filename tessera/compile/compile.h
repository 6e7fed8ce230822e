// From texts to programs: the one way from the names that users give (a model, a plan, a batch, a
// precision) to a lowering, from which the program of every rank is made. Nothing is run or priced
// here.
//
//   model text --build_model--> forward graph --training_graph--> graph that is trained
//       --prepare--> as the plan wants it --Lowering::create--> lowering
//
// One plan:
//
//   TESSERA_TRY(const Compiled compiled, compile({"gpt:layers=4", "megatron(tp=2,dp=2)"}));
//   TESSERA_TRY(const Program program, compiled.lowering->lower(0));
//
// Many plans of a model: a Compiler keeps what they have in common. A plan is then resolved and
// lowered, but the model is neither built nor differentiated again.
//
//   Compiler compiler;
//   TESSERA_TRY(const auto model, compiler.model("gpt:layers=4", 64));
//   for (const Plan& plan : plans) {
//     TESSERA_TRY(const auto lowering, compiler.lower(forward_of(model), plan));
//   }
//
// Errors are one line: those of the model's text name the key, those of the plan file:line.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/graph/builder.h"
#include "tessera/models/model.h"
#include "tessera/plan/path_cache.h"
#include "tessera/plan/plan.h"
#include "tessera/plan/prepare.h"
#include "tessera/program/lower.h"

namespace tessera {

// `CompileTexts` are the names and texts with which a user asks for a plan of a model.
struct CompileTexts {
  std::string model, plan;  // a model's text; a plan file or a recipe call
  int64_t batch = 0;        // 0: one sequence for each replica and micro-batch of the plan
  std::string precision = "float32";  // the dtype of the computation, as in RUN.toml
  std::string beside = "";            // a file in whose folder a plan file may lie
  OptimizerSpec optimizer = {};
  bool fetch_gradients = false;         // keep each "grad.<parameter>" to the end of the step
  std::vector<std::string> fetch = {};  // and tensors of the forward graph with these names
};

struct Compiled {
  std::shared_ptr<const Model> model;  // its graph is the forward graph
  int64_t batch = 0;
  bool batch_is_default = false;
  DType compute = DType::kFloat32;  // CompileTexts::precision
  std::unique_ptr<const Lowering> lowering;

  const Graph& graph() const { return lowering->graph(); }  // with backward and update, as lowered
  const ResolvedPlan& plan() const { return lowering->plan(); }
  int ranks() const { return static_cast<int>(plan().ranks); }
  DType computes_in() const;  // the dtype of products and activations: `compute`, or the plan's
};

struct CompileOptions {
  OptimizerSpec optimizer = {};
  bool fetch_gradients = false;
  std::vector<std::string> fetch = {};
  // As in LowerOptions: for a plan that is priced, and not run, verified or printed.
  bool equal_stages_once = false;
};
CompileOptions for_price(OptimizerSpec optimizer = {});

// A `Compiler` is a session: it keeps models and graphs, by content, for the plans to come. The
// result for a plan does not depend on what was compiled before. It must not be used by several
// threads at once.
class Compiler {
 public:
  // Makes a session that keeps `keeps` models, and the trained graphs of as many (model, precision,
  // optimizer): those that were used last.
  explicit Compiler(size_t keeps = 4) : keeps_(keeps) {}

  Result<Compiled> compile(const CompileTexts& texts);
  Result<Compiled> compile(std::shared_ptr<const Model> model, Plan plan, DType compute,
                           const CompileOptions& options = {});

  // Returns the batch of a run as build_model_of does. Keeps the model of a graph file, in that
  // dtype.
  Result<int64_t> batch_of(const std::string& spec, int64_t given, int64_t otherwise,
                           std::optional<DType> dtype = {});
  // Returns the model. `dtype`: as in build_model.
  Result<std::shared_ptr<const Model>> model(const std::string& spec, int64_t batch,
                                             std::optional<DType> dtype = {});
  // Lowers the plan of a forward graph, in the precision that the plan says. The session recognises
  // a graph that it has seen before by its address.
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
    Plan plan;  // the first plan that asked for it
    OptimizerSpec optimizer;
    GraphVariants trained;
  };
  Result<GraphVariants*> trained(const std::shared_ptr<const Graph>& forward, const Plan& plan,
                                 const OptimizerSpec& optimizer);

  size_t keeps_;
  std::shared_ptr<PathCache> paths_ = std::make_shared<PathCache>();
  std::list<KnownModel> models_;  // the one used last comes first; likewise the graphs
  std::list<KnownGraph> graphs_;
};

// Compiles one plan in a session of its own.
Result<Compiled> compile(const CompileTexts& texts);

// Returns the model's graph, which keeps the model alive.
std::shared_ptr<const Graph> forward_of(const std::shared_ptr<const Model>& model);

// Returns the programs of all ranks if the verifier accepts them. memory_limit_bytes: of a rank's
// device arena; 0: none.
Result<std::vector<Program>> lower_and_verify(const Lowering& lowering,
                                              int64_t memory_limit_bytes = 0);

}  // namespace tessera
