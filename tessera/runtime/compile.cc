#include "tessera/runtime/compile.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "tessera/graph/builder.h"
#include "tessera/plan/load.h"
#include "tessera/plan/prepare.h"
#include "tessera/program/verify.h"

namespace tessera {
namespace {

std::vector<TensorId> fetched(const Graph& graph, const CompileOptions& options) {
  std::vector<TensorId> ids;
  std::map<TensorId, TensorId> last;  // by parameter; with a loss scale, the unscaled gradient
  for (const Tensor& tensor : graph.tensors()) {
    const bool gradient = tensor.role == Role::kGradient && tensor.of.valid() &&
                          graph.tensor(tensor.of).role == Role::kParameter;
    if (options.fetch_gradients && gradient) last[tensor.of] = tensor.id;
  }
  for (const auto& [parameter, gradient] : last) ids.push_back(gradient);
  return ids;
}

OptimizerSpec specification(const OptimizerConfig& config) {
  OptimizerSpec spec;
  spec.kind = config.kind;
  spec.beta1 = config.beta1;
  spec.beta2 = config.beta2;
  spec.eps = config.eps;
  spec.weight_decay = config.weight_decay;
  spec.momentum = config.momentum;
  spec.clip_norm = config.clip;
  return spec;
}

}  // namespace

Result<Compiled> compile(const CompileOptions& options) {
  TESSERA_TRY(const DType compute, parse_dtype(options.precision));
  TESSERA_TRY(Model model, build_model(options.model, options.batch, storage_dtype(compute)));
  TESSERA_TRY(Plan plan, load_plan(options.plan, model.graph, options.beside, compute));
  return compile_model(std::move(model), std::move(plan), options);
}

Result<Compiled> compile_model(Model model, Plan plan, const CompileOptions& options) {
  Compiled compiled;
  compiled.model = std::move(model);
  compiled.plan = std::move(plan);
  TESSERA_TRY(const DType compute, parse_dtype(options.precision));
  const Precision precision = computing_in(compute, compiled.plan.precision);
  TESSERA_TRY(const Graph training, training_graph(compiled.model.graph, compiled.plan, precision,
                                                   specification(options.optimizer)));
  TESSERA_TRY(Prepared prepared, prepare(training, compiled.plan));
  compiled.graph = std::make_shared<const Graph>(std::move(prepared.graph));
  compiled.ranks = static_cast<int>(prepared.plan.ranks);
  LowerOptions lower_options;
  lower_options.fetch = fetched(*compiled.graph, options);
  TESSERA_TRY(Lowering lowering,
              Lowering::create(compiled.graph, std::move(prepared.plan), lower_options));
  compiled.lowering = std::make_unique<Lowering>(std::move(lowering));
  return compiled;
}

Result<std::vector<Program>> lower_and_verify(const Compiled& compiled,
                                              int64_t memory_limit_bytes) {
  std::vector<Program> programs;
  for (int rank = 0; rank < compiled.ranks; ++rank) {
    TESSERA_TRY(Program program, compiled.lowering->lower(rank));
    programs.push_back(std::move(program));
  }
  VerifyOptions limits;
  limits.memory_limit_bytes = memory_limit_bytes;
  const std::vector<Rejection> rejections = verify(compiled.lowering->graph(), programs, limits);
  if (!rejections.empty()) return check_failed(rejections.front().to_string());
  return programs;
}

}  // namespace tessera
