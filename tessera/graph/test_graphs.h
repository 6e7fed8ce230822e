// Small graphs for tests of this module.
#pragma once

#include <string>

#include "tessera/base/check.h"
#include "tessera/graph/builder.h"

namespace tessera::test_graphs {

inline const Init kNormal{Init::Kind::kNormal, 0.02};
inline const Init kOnes{Init::Kind::kOnes, 0};
inline const Init kZeros{Init::Kind::kZeros, 0};

inline Graph finished(GraphBuilder& g) {
  auto graph = g.finish();
  TESSERA_CHECK(graph.has_value(), "{}", graph.error().message);
  return *graph;
}

// Adds the mean cross entropy of logits [.., vocab] as the loss.
inline void add_loss(GraphBuilder& g, TensorId logits, TensorId targets) {
  const std::vector<Dim> rows = g.tensor(targets).dims;
  std::string dims;
  int64_t count = 1;
  for (const Dim& dim : rows) {
    dims += (dims.empty() ? "" : " ") + dim.name;
    count *= dim.size;
  }
  const auto ce = g.op("loss.cross_entropy", "cross_entropy", {logits, targets});
  const TensorId token = g.op1("loss.token", "sub", {ce[0], ce.back()});
  g.graph().loss = g.op1("loss", "reduce_sum", {token},
                         {{"dims", dims}, {"factor", 1.0 / static_cast<double>(count)}});
}

// Makes two layers with gelu between them.
inline Graph mlp() {
  GraphBuilder g("mlp");
  const TensorId x = g.input("x", {{"batch", 8}, {"in", 4}}, DType::kFloat32);
  const TensorId targets = g.input("targets", {{"batch", 8}}, DType::kInt64);
  const TensorId up = g.parameter("up.weight", {{"in", 4}, {"ffn", 16}}, kNormal);
  const TensorId bias = g.parameter("up.bias", {{"ffn", 16}}, kZeros);
  const TensorId down = g.parameter("down.weight", {{"ffn", 16}, {"vocab", 5}}, kNormal);
  const TensorId h =
      g.op1("up", "einsum", {x, up, bias}, {{"spec", "batch in+, in ffn, ffn -> batch ffn"}});
  const TensorId a = g.op1("act", "gelu", {h});
  const TensorId y =
      g.op1("down", "einsum", {a, down}, {{"spec", "batch ffn+, ffn vocab -> batch vocab"}});
  add_loss(g, y, targets);
  return finished(g);
}

// Makes Llama-like blocks with dropout, a layer norm at the end, and the embedding tied to the
// head.
inline Graph transformer(int layers) {
  const Dim batch{"batch", 2}, seq{"seq", 6}, hidden{"hidden", 8}, heads{"heads", 2},
      group{"group", 1}, head_dim{"head_dim", 4}, ffn{"ffn", 12}, vocab{"vocab", 10},
      half{"half", 2};
  GraphBuilder g("transformer");
  const TensorId tokens = g.input("tokens", {batch, seq}, DType::kInt64);
  const TensorId targets = g.input("targets", {batch, seq}, DType::kInt64);
  const TensorId cos = g.buffer("rotary.cos", {seq, half}, Init{Init::Kind::kRotaryCos, 10000});
  const TensorId sin = g.buffer("rotary.sin", {seq, half}, Init{Init::Kind::kRotarySin, 10000});
  const TensorId table = g.parameter("embed.weight", {vocab, hidden}, kNormal);
  TensorId x = g.op1("embed", "embedding", {tokens, table});
  for (int i = 0; i < layers; ++i) {
    g.push("blocks." + std::to_string(i));
    const TensorId gamma = g.parameter("attn_norm.weight", {hidden}, kOnes);
    const TensorId n = g.op("attn_norm", "rms_norm", {x, gamma})[0];
    const TensorId wq = g.parameter("attn.q.weight", {hidden, heads, group, head_dim}, kNormal);
    const TensorId wk = g.parameter("attn.k.weight", {hidden, heads, head_dim}, kNormal);
    const TensorId wv = g.parameter("attn.v.weight", {hidden, heads, head_dim}, kNormal);
    const TensorId wo = g.parameter("attn.o.weight", {heads, group, head_dim, hidden}, kNormal);
    TensorId q = g.op1(
        "attn.q", "einsum", {n, wq},
        {{"spec",
          "batch seq hidden+, hidden heads group head_dim -> batch seq heads group head_dim"}});
    TensorId k =
        g.op1("attn.k", "einsum", {n, wk},
              {{"spec", "batch seq hidden+, hidden heads head_dim -> batch seq heads head_dim"}});
    const TensorId v =
        g.op1("attn.v", "einsum", {n, wv},
              {{"spec", "batch seq hidden+, hidden heads head_dim -> batch seq heads head_dim"}});
    q = g.op1("attn.q_rotary", "rotary", {q, cos, sin});
    k = g.op1("attn.k_rotary", "rotary", {k, cos, sin});
    const TensorId o = g.op("attn.core", "attention", {q, k, v}, {{"causal", 1}})[0];
    const TensorId out = g.op1(
        "attn.o", "einsum", {o, wo},
        {{"spec",
          "batch seq heads+ group+ head_dim+, heads group head_dim hidden -> batch seq hidden"}});
    x = g.op1("attn.add", "add",
              {x, g.op1("attn.drop", "dropout", {out},
                        {{"p", 0.1}, {"key", "blocks." + std::to_string(i) + ".attn.drop"}})});
    const TensorId up = g.parameter("mlp.up.weight", {hidden, ffn}, kNormal);
    const TensorId down = g.parameter("mlp.down.weight", {ffn, hidden}, kNormal);
    const TensorId h = g.op1("mlp.act", "silu",
                             {g.op1("mlp.up", "einsum", {x, up},
                                    {{"spec", "batch seq hidden+, hidden ffn -> batch seq ffn"}})});
    const TensorId y = g.op1("mlp.down", "einsum", {h, down},
                             {{"spec", "batch seq ffn+, ffn hidden -> batch seq hidden"}});
    x = g.op1("mlp.add", "add", {x, y});
    g.pop();
  }
  const TensorId gamma = g.parameter("norm.weight", {hidden}, kOnes);
  const TensorId beta = g.parameter("norm.bias", {hidden}, kZeros);
  x = g.op("norm", "layer_norm", {x, gamma, beta})[0];
  const TensorId logits = g.op1("head", "einsum", {x, table},
                                {{"spec", "batch seq hidden+, vocab hidden -> batch seq vocab"}});
  add_loss(g, logits, targets);
  return finished(g);
}

}  // namespace tessera::test_graphs
