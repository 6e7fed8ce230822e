#include "tessera/compile/compile.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "tessera/base/doing.h"
#include "tessera/graph/optimizers.h"
#include "tessera/plan/load.h"
#include "tessera/program/verify/verify.h"

namespace tessera {
namespace {

// Returns the gradient of each parameter. If there is a loss scale, these are the gradients after
// its removal.
std::vector<TensorId> gradients_of(const Graph& graph) {
  std::map<TensorId, TensorId> last;  // by parameter: the last gradient in the order of tensors
  for (const Tensor& tensor : graph.tensors()) {
    const bool gradient = tensor.role == Role::kGradient && tensor.of.valid() &&
                          graph.tensor(tensor.of).role == Role::kParameter;
    if (gradient) last[tensor.of] = tensor.id;
  }
  std::vector<TensorId> ids;
  for (const auto& [parameter, gradient] : last) ids.push_back(gradient);
  return ids;
}

// Returns whether all fields are equal. The structured binding names every field, so that this does
// not compile if a field is added and not compared.
bool alike(const OptimizerSpec& a, const OptimizerSpec& b) {
  const auto fields = [](const OptimizerSpec& spec) {
    const auto& [kind, beta1, beta2, eps, weight_decay, momentum, nesterov, rounding, clip_norm,
                 precision, groups, by_rows, micro_batch_dim] = spec;
    return std::tie(kind, beta1, beta2, eps, weight_decay, momentum, nesterov, rounding, clip_norm,
                    precision, groups, by_rows, micro_batch_dim);
  };
  return fields(a) == fields(b);
}

// Returns whether the two plans have the same trained graph. If a plan has loops, the plans must be
// equal, because the graph of a loop depends on the splits and stages of its ops. If the optimizer
// may update tables by rows, both must have micro-batches of the same dim or none, because such an
// update reads values that were collected over micro-batches.
bool train_alike(const Plan& a, const Plan& b, const OptimizerSpec& optimizer) {
  if (a.precision != b.precision || a.expand != b.expand || a.reorders != b.reorders) return false;
  const auto collects = [](const Plan& plan) {
    return plan.micro_batches > 1 ? plan.micro_batch_dim : "";
  };
  if (may_update_rows(optimizer) && collects(a) != collects(b)) return false;
  return a.loops.empty() ? b.loops.empty() : a == b;
}

// Returns the entry for which `is` holds, after moving it to the front of the list. If there
// is none, returns null and drops the last entries, so that one can be added without
// exceeding `keeps`.
template <class T, class Is>
T* recall(std::list<T>& known, size_t keeps, const Is& is) {
  const auto found = std::find_if(known.begin(), known.end(), is);
  if (found != known.end()) {
    known.splice(known.begin(), known, found);
    return &known.front();
  }
  while (known.size() >= std::max<size_t>(1, keeps)) known.pop_back();
  return nullptr;
}

}  // namespace

CompileOptions for_price(OptimizerSpec optimizer) {
  CompileOptions out;
  out.optimizer = std::move(optimizer);
  out.equal_stages_once = true;
  return out;
}

DType Compiled::computes_in() const {
  const DType at_rest = storage_dtype(compute);
  return at_rest == DType::kFloat64 ? at_rest : plan().plan.precision.compute.value_or(at_rest);
}

Result<std::shared_ptr<const Model>> Compiler::model(const std::string& spec, int64_t batch,
                                                     std::optional<DType> dtype) {
  const KnownModel* known = recall(models_, keeps_, [&](const KnownModel& other) {
    return other.spec == spec && other.batch == batch && other.dtype == dtype;
  });
  if (known != nullptr) return known->model;
  TESSERA_TRY(Model built, build_model(spec, batch, dtype));
  models_.push_front({spec, batch, dtype, std::make_shared<const Model>(std::move(built))});
  return models_.front().model;
}

Result<int64_t> Compiler::batch_of(const std::string& spec, int64_t given, int64_t otherwise,
                                   std::optional<DType> dtype) {
  if (given != 0 || !names_graph_file(spec)) return given != 0 ? given : otherwise;
  TESSERA_TRY(Model built, build_model_of(spec, 0, otherwise, dtype));
  const int64_t batch = built.batch;
  models_.push_front({spec, batch, dtype, std::make_shared<const Model>(std::move(built))});
  return batch;
}

Result<GraphVariants*> Compiler::trained(const std::shared_ptr<const Graph>& forward,
                                         const Plan& plan, const OptimizerSpec& optimizer) {
  KnownGraph* known = recall(graphs_, keeps_, [&](const KnownGraph& other) {
    return other.forward == forward && alike(other.optimizer, optimizer) &&
           train_alike(other.plan, plan, optimizer);
  });
  if (known != nullptr) return &known->trained;
  TESSERA_TRY(Graph graph, training_graph(*forward, plan, plan.precision, optimizer));
  graphs_.push_front(
      {forward, plan, optimizer, GraphVariants(std::make_shared<const Graph>(std::move(graph)))});
  return &graphs_.front().trained;
}

Result<std::shared_ptr<const Graph>> Compiler::trained_graph(
    const std::shared_ptr<const Graph>& forward, const Plan& plan) {
  TESSERA_TRY(const GraphVariants* graphs, trained(forward, plan, {}));
  return graphs->graph();
}

Result<std::unique_ptr<Lowering>> Compiler::lower(const std::shared_ptr<const Graph>& forward,
                                                  const Plan& plan, const CompileOptions& options) {
  const Doing doing("lowering the plan", plan.file);
  TESSERA_TRY(GraphVariants * graphs, trained(forward, plan, options.optimizer));
  TESSERA_TRY(SharedPrepared prepared, prepare_shared(*graphs, plan));
  LowerOptions lowering_options;
  lowering_options.equal_stages_once = options.equal_stages_once;
  lowering_options.paths = paths_;
  if (options.fetch_gradients) lowering_options.fetch = gradients_of(*prepared.graph);
  for (const std::string& name : options.fetch) {
    const TensorId id = prepared.graph->find_tensor(name);
    if (!id.valid()) {
      return invalid_input(fmt::format(
          "expected a tensor of the graph to keep to the end of the step, found '{}'", name));
    }
    lowering_options.fetch.push_back(id);
  }
  TESSERA_TRY(Lowering lowering,
              Lowering::create(std::move(prepared.graph), std::move(prepared.plan),
                               std::move(lowering_options)));
  return std::make_unique<Lowering>(std::move(lowering));
}

Result<Compiled> Compiler::compile(std::shared_ptr<const Model> model, Plan plan, DType compute,
                                   const CompileOptions& options) {
  plan.precision = computing_in(compute, plan.precision);
  Compiled compiled;
  compiled.batch = model->batch;
  compiled.compute = compute;
  if (plan.outer) {
    TESSERA_TRY(const Plan island, plan_of_island(plan, 0));
    TESSERA_TRY(compiled.lowering, lower(forward_of(model), island, options));
    TESSERA_TRY(auto fragments, compile_outer(plan, *compiled.lowering));
    compiled.outer = std::make_shared<const Compiled::Outer>(
        Compiled::Outer{std::move(plan), std::move(fragments)});
    compiled.model = std::move(model);
    return compiled;
  }
  TESSERA_TRY(compiled.lowering, lower(forward_of(model), plan, options));
  compiled.model = std::move(model);
  return compiled;
}

Result<Compiled> Compiler::compile(const CompileTexts& texts) {
  TESSERA_TRY(const DType compute, parse_dtype(texts.precision));
  const DType at_rest = storage_dtype(compute);
  TESSERA_TRY(int64_t batch, batch_of(texts.model, texts.batch, 0, at_rest));
  // The plan is read with a model of batch 1 if the batch is not known yet, because a plan does not
  // depend on the batch.
  TESSERA_TRY(auto built, model(texts.model, std::max<int64_t>(batch, 1), at_rest));
  TESSERA_TRY(Plan plan, load_plan(texts.plan, built->graph, texts.beside, compute));
  if (batch == 0) {
    batch = smallest_batch(plan);
    TESSERA_TRY(built, model(texts.model, batch, at_rest));
  }
  if (plan.outer && !texts.takes_outer) return tl::unexpected(refuse_outer_steps(plan));
  // Each island trains on its share of the batch.
  const int64_t shares = islands(plan);
  if (batch % shares != 0) {
    return invalid_input(
        fmt::format("{}:{}: expected a batch that the {} islands of axis '{}' "
                    "divide, found {}",
                    plan.file, plan.outer->line, shares, plan.outer->axis, batch));
  }
  if (shares > 1) {
    TESSERA_TRY(built, model(texts.model, batch / shares, at_rest));
  }
  TESSERA_TRY(Compiled compiled, compile(std::move(built), std::move(plan), compute,
                                         {texts.optimizer, texts.fetch_gradients, texts.fetch}));
  compiled.batch = batch / shares;
  compiled.batch_is_default = texts.batch == 0 && !names_graph_file(texts.model);
  return compiled;
}

Result<Compiled> compile(const CompileTexts& texts) { return Compiler(1).compile(texts); }

std::shared_ptr<const Graph> forward_of(const std::shared_ptr<const Model>& model) {
  return {model, &model->graph};
}

Result<std::vector<Program>> lower_and_verify(const Lowering& lowering,
                                              int64_t memory_limit_bytes) {
  const Doing doing("proving the programs of the plan", lowering.plan().plan.file);
  std::vector<Program> programs;
  for (int rank = 0; rank < static_cast<int>(lowering.plan().ranks); ++rank) {
    TESSERA_TRY(Program program, lowering.lower(rank));
    programs.push_back(std::move(program));
  }
  VerifyOptions limits;
  limits.memory_limit_bytes = memory_limit_bytes;
  const std::vector<Rejection> rejections = verify(lowering.graph(), programs, limits);
  if (!rejections.empty()) return check_failed(rejections.front().to_string());
  return programs;
}

}  // namespace tessera
