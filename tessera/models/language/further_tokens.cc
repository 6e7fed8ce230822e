#include "tessera/models/language/further_tokens.h"

#include <fmt/format.h>

#include <string>
#include <utility>

namespace tessera {

FurtherTokens::FurtherTokens(GraphBuilder& g, int64_t depths, TensorId targets, TensorId table) {
  TensorId next = targets;
  for (int64_t depth = 0; depth < depths && g.ok(); ++depth) {
    const std::vector<Dim> dims = g.tensor(targets).dims;
    embeddings_.push_back(g.op1(fmt::format("embed.mtp_{}", depth), "embedding", {next, table}));
    next = g.input(fmt::format("targets_{}", depth + 1), dims, DType::kInt64);
    targets_.push_back(next);
  }
}

TensorId FurtherTokens::join(GraphBuilder& g, size_t depth, TensorId state,
                             const LinearOptions& product, double eps, bool norm_shifted) const {
  const std::vector<Dim> hidden = {{"hidden_out", size_of(g, state, "hidden")}};
  const TensorId before = rms_norm(g, "state_norm", state, eps, norm_shifted),
                 token = rms_norm(g, "token_norm", embeddings_[depth], eps, norm_shifted);
  const TensorId sum = g.op1("sum", "add",
                             {linear(g, "state", before, {"hidden"}, hidden, product),
                              linear(g, "token", token, {"hidden"}, hidden, product)});
  return g.op1("joined", "rename", {sum},
               {{"from", std::string("hidden_out")}, {"to", std::string("hidden")}});
}

TensorId FurtherTokens::loss(GraphBuilder& g, size_t depth, TensorId normed, TensorId head,
                             double weight) const {
  if (!g.ok()) return {};
  const std::string name = fmt::format("mtp_{}", depth), scope = "loss." + name;
  const Dim vocab = g.tensor(head).dims.front();
  const TensorId logits = output_head(g, normed, head, true, vocab, {}, "head." + name);
  const TensorId mean =
      cross_entropy_sum(g, scope, logits, targets_[depth], g.tensor(targets_[depth]).elements());
  return g.op1(scope + ".weighted", "scale", {mean}, {{"factor", weight}});
}

void add_to_loss(GraphBuilder& g, std::vector<TensorId> others) {
  if (others.empty()) return;
  others.insert(others.begin(), g.graph().loss);
  g.graph().loss = g.op1("loss.total", "add_n", std::move(others));
}

}  // namespace tessera
