// Small graphs for the tests of this module, which lies below tessera/models.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tessera/graph/builder.h"

namespace tessera {

struct TestModel {
  int64_t layers = 2, batch = 8, seq = 4, hidden = 8, heads = 4, group = 1, head_dim = 2, ffn = 16,
          vocab = 12;
};

inline void add_test_block(GraphBuilder& g, TensorId& x, const TestModel& m, int64_t layer) {
  const Init init{Init::Kind::kNormal, 0.02};
  const Dim hidden{"hidden", m.hidden}, heads{"heads", m.heads}, group{"group", m.group};
  const Dim head_dim{"head_dim", m.head_dim}, ffn{"ffn", m.ffn};
  g.push("blocks." + std::to_string(layer));
  const auto gamma = g.parameter("ln_1.weight", {hidden}, init);
  const auto beta = g.parameter("ln_1.bias", {hidden}, init);
  auto h = g.op("ln_1", "layer_norm", {x, gamma, beta}, {{"eps", 1e-5}})[0];
  const auto product = [&](const std::string& name, TensorId in, std::vector<Dim> dims,
                           const std::string& spec) {
    const auto weight = g.parameter(name + ".weight", std::move(dims), init);
    return g.op1(name, "einsum", {in, weight}, {{"spec", spec}});
  };
  const auto q =
      product("attn.q", h, {hidden, heads, group, head_dim},
              "batch seq hidden+, hidden heads group head_dim -> batch seq heads group head_dim");
  const std::string key = "batch seq hidden+, hidden heads head_dim -> batch seq heads head_dim";
  const auto k = product("attn.k", h, {hidden, heads, head_dim}, key);
  const auto v = product("attn.v", h, {hidden, heads, head_dim}, key);
  const auto core = g.op("attn.core", "attention", {q, k, v}, {{"causal", int64_t{1}}})[0];
  const auto out =
      product("attn.out", core, {heads, group, head_dim, hidden},
              "batch seq heads+ group+ head_dim+, heads group head_dim hidden -> batch seq hidden");
  x = g.op1("attn.residual", "add", {x, out});
  h = product("mlp.up", x, {hidden, ffn}, "batch seq hidden+, hidden ffn -> batch seq ffn");
  h = g.op1("mlp.act", "gelu", {h});
  h = product("mlp.down", h, {ffn, hidden}, "batch seq ffn+, ffn hidden -> batch seq hidden");
  x = g.op1("mlp.residual", "add", {x, h});
  g.pop();
}

inline Graph test_transformer(const TestModel& m = {}) {
  GraphBuilder g("test");
  const Dim batch{"batch", m.batch}, seq{"seq", m.seq}, hidden{"hidden", m.hidden},
      vocab{"vocab", m.vocab};
  const auto tokens = g.input("tokens", {batch, seq}, DType::kInt64);
  const auto targets = g.input("targets", {batch, seq}, DType::kInt64);
  const auto table =
      g.parameter("embed.token.weight", {vocab, hidden}, {Init::Kind::kNormal, 0.02});
  auto x = g.op1("embed.token", "embedding", {tokens, table});
  for (int64_t layer = 0; layer < m.layers; ++layer) add_test_block(g, x, m, layer);
  const auto gamma = g.parameter("final.ln.weight", {hidden}, {Init::Kind::kOnes});
  const auto beta = g.parameter("final.ln.bias", {hidden}, {Init::Kind::kZeros});
  x = g.op("final.ln", "layer_norm", {x, gamma, beta}, {{"eps", 1e-5}})[0];
  x = g.op1("head", "einsum", {x, table},
            {{"spec", std::string("batch seq hidden+, vocab hidden -> batch seq vocab")}});
  const auto parts = g.op("loss.cross_entropy", "cross_entropy", {x, targets});
  const auto token = g.op1("loss.token", "sub", {parts[0], parts[1]});
  const auto loss = g.op1("loss.mean", "reduce_sum", {token},
                          {{"dims", std::string("batch seq")}, {"factor", 1.0 / 32}});
  g.graph().loss = loss;
  auto graph = g.finish();
  EXPECT_TRUE(graph.has_value()) << (graph ? "" : graph.error().message);
  return graph ? *graph : Graph();
}

// Returns a graph of two products, the backward ops of one of them and its update, made by hand.
inline Graph test_mlp() {
  GraphBuilder g("mlp");
  const Dim batch{"batch", 8}, in{"in", 4}, ffn{"ffn", 16}, out{"out", 4};
  const Init init{Init::Kind::kNormal, 0.02};
  const auto x = g.input("x", {batch, in}, DType::kFloat32);
  const auto lr = g.input("lr", {}, DType::kFloat32);
  const auto up_weight = g.parameter("up.weight", {in, ffn}, init);
  const auto down_weight = g.parameter("down.weight", {ffn, out}, init);
  const auto up = g.op1("up", "einsum", {x, up_weight},
                        {{"spec", std::string("batch in+, in ffn -> batch ffn")}});
  const auto act = g.op1("act", "gelu", {up});
  g.op1("down", "einsum", {act, down_weight},
        {{"spec", std::string("batch ffn+, ffn out -> batch out")}});
  g.set_phase(Phase::kBackward);
  g.set_role(Role::kGradient);
  const auto dy = g.op1(
      "seed", "fill", {},
      {{"value", 1.0}, {"dims", std::string("batch=8 out=4")}, {"dtype", std::string("float32")}});
  g.set_mirror(OpId(2));
  const auto dact = g.op1("down.dx", "einsum", {dy, down_weight},
                          {{"spec", std::string("batch out+, ffn out -> batch ffn")}});
  g.graph().tensor(dact).of = act;
  const auto grad = g.op1("down.dw", "einsum", {act, dy},
                          {{"spec", std::string("batch+ ffn, batch out -> ffn out")}});
  g.graph().tensor(grad).name = "grad.down.weight";
  g.graph().tensor(grad).of = down_weight;
  g.set_phase(Phase::kUpdate);
  g.set_mirror({});
  const auto momentum =
      g.state("optimizer.momentum.down.weight", down_weight, {Init::Kind::kZeros});
  if (!g.ok()) {
    ADD_FAILURE() << g.finish().error().message;
    return {};
  }
  const auto updated = g.op("update.down.weight", "sgd", {down_weight, grad, momentum, lr},
                            {{"momentum", 0.9}, {"weight_decay", 0.0}});
  g.graph().tensor(updated[0]).update_of = down_weight;
  g.graph().tensor(updated[1]).update_of = momentum;
  for (TensorId id : updated)
    g.graph().tensor(id).role = g.graph().tensor(g.graph().tensor(id).update_of).role;
  auto graph = g.finish();
  EXPECT_TRUE(graph.has_value()) << (graph ? "" : graph.error().message);
  return graph ? *graph : Graph();
}

}  // namespace tessera
