// From texts to programs: the one way from what users name (a model, a plan, a batch, a precision)
// to a lowering, from which the program of every rank is made. Nothing is run or priced here.
//
//   model text --build_model--> forward graph --training_graph--> graph that is trained
//       --prepare--> as the plan wants it --Lowering::create--> lowering
//
// One plan:
//
//   TESSERA_TRY(const Compiled compiled, compile({"gpt:layers=4", "megatron(tp=2,dp=2)"}));
//   TESSERA_TRY(const Program program, compiled.lowering->lower(0));
//
// Many plans of a model: a Compiler keeps what they have in common. A plan then costs what is its
// own: it is resolved and lowered, but the model is neither built nor differentiated again.
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

// The names and texts with which a user asks for a plan of a model.
struct CompileTexts {
  std::string model, plan;  // a model's text; a plan file or a recipe call
  int64_t batch = 0;        // 0: one sequence for each replica and micro-batch of the plan
  std::string precision = "float32";  // what the run computes in, as in RUN.toml
  std::string beside = "";            // a file in whose folder a plan file may lie
  OptimizerSpec optimizer = {};
  bool fetch_gradients = false;         // each "grad.<parameter>" is kept to the end of the step
  std::vector<std::string> fetch = {};  // and so are tensors of the forward graph of these names
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
  DType computes_in() const;  // of products and activations: `compute`, or what the plan says
};

struct CompileOptions {
  OptimizerSpec optimizer = {};
  bool fetch_gradients = false;
  std::vector<std::string> fetch = {};
  // As of LowerOptions: of a plan that is priced, and not run, verified or printed.
  bool equal_stages_once = false;
};
CompileOptions for_price(OptimizerSpec optimizer = {});

// A session: models and graphs are kept, by content, for the plans to come. What a plan becomes
// does not depend on what was compiled before. Not to be used by several threads at once.
class Compiler {
 public:
  // Keeps so many models, and for so many (model, precision, optimizer) the graphs that are
  // trained; those that were used last.
  explicit Compiler(size_t keeps = 4) : keeps_(keeps) {}

  Result<Compiled> compile(const CompileTexts& texts);
  Result<Compiled> compile(std::shared_ptr<const Model> model, Plan plan, DType compute,
                           const CompileOptions& options = {});

  // The batch of a run, as of build_model_of. The model of a graph file is kept, in that dtype.
  Result<int64_t> batch_of(const std::string& spec, int64_t given, int64_t otherwise,
                           std::optional<DType> dtype = {});
  // `dtype`: as of build_model.
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
    Plan plan;  // that first asked for it
    OptimizerSpec optimizer;
    GraphVariants trained;
  };
  Result<GraphVariants*> trained(const std::shared_ptr<const Graph>& forward, const Plan& plan,
                                 const OptimizerSpec& optimizer);

  size_t keeps_;
  std::shared_ptr<PathCache> paths_ = std::make_shared<PathCache>();
  std::list<KnownModel> models_;  // the one used last comes first; so the graphs
  std::list<KnownGraph> graphs_;
};

// A session of one plan.
Result<Compiled> compile(const CompileTexts& texts);

// The model's graph, which keeps the model alive.
std::shared_ptr<const Graph> forward_of(const std::shared_ptr<const Model>& model);

// Programs of all ranks, accepted by the verifier. memory_limit_bytes: of a rank's device arena; 0:
// none.
Result<std::vector<Program>> lower_and_verify(const Lowering& lowering,
                                              int64_t memory_limit_bytes = 0);

}  // namespace tessera
