#include "support/borders.h"

#include "tessera/models/model.h"

namespace tessera {
namespace {

// y = gelu(x up) down, loss = the mean of y y: for all plans without attention and experts.
Graph perceptron() {
  GraphBuilder g("perceptron");
  const Dim batch{"batch", 8}, in{"in", 4}, ffn{"ffn", 8}, out{"out", 4};
  const Init init{Init::Kind::kNormal, 0.02};
  const auto x = g.input("x", {batch, in}, DType::kFloat32);
  const auto up = g.parameter("up.weight", {in, ffn}, init);
  const auto down = g.parameter("down.weight", {ffn, out}, init);
  auto h =
      g.op1("up", "einsum", {x, up}, {{"spec", std::string("batch in+, in ffn -> batch ffn")}});
  h = g.op1("act", "gelu", {h});
  h = g.op1("down", "einsum", {h, down},
            {{"spec", std::string("batch ffn+, ffn out -> batch out")}});
  const auto square = g.op1("square", "mul", {h, h});
  g.graph().loss = g.op1("loss", "reduce_sum", {square},
                         {{"dims", std::string("batch out")}, {"factor", 1.0 / 32}});
  return *g.finish();
}

// Attention whose queries, keys and values are made of x; loss = the mean of its square. With
// `bias` a trained bias is added to the scores; with `segments` the tokens of a document see only
// each other.
struct AttentionGraph {
  int64_t batch = 1, seq = 4, heads = 1;
  bool bias = false, segments = false;
  Attributes attributes = {};
};

Graph attention_with(const AttentionGraph& form) {
  GraphBuilder g("attention");
  const Dim batch{"batch", form.batch}, seq{"seq", form.seq}, hidden{"hidden", 2};
  const Dim heads{"heads", form.heads}, group{"group", 1}, head_dim{"head_dim", 2};
  const Init init{Init::Kind::kNormal, 0.02};
  const auto x = g.input("x", {batch, seq, hidden}, DType::kFloat32);
  const auto product = [&](const std::string& name, std::vector<Dim> dims, const std::string& out) {
    std::string in;
    for (const Dim& dim : dims) in += (in.empty() ? "" : " ") + dim.name;
    const auto weight = g.parameter(name + ".weight", std::move(dims), init);
    return g.op1(name, "einsum", {x, weight},
                 {{"spec", "batch seq hidden+, " + in + " -> " + out}});
  };
  const auto q = product("q", {hidden, heads, group, head_dim}, "batch seq heads group head_dim");
  const auto k = product("k", {hidden, heads, head_dim}, "batch seq heads head_dim");
  const auto v = product("v", {hidden, heads, head_dim}, "batch seq heads head_dim");
  std::vector<TensorId> inputs = {q, k, v};
  if (form.bias) inputs.push_back(g.parameter("bias", {heads, seq, {"kv", form.seq}}, init));
  if (form.segments) {
    const auto documents = g.input("documents", {batch, seq}, DType::kInt64);
    inputs.insert(inputs.end(), {documents, documents});
  }
  const auto core = g.op("core", "attention", inputs, form.attributes)[0];
  const auto square = g.op1("square", "mul", {core, core});
  const auto elements = static_cast<double>(g.tensor(core).elements());
  g.graph().loss =
      g.op1("loss", "reduce_sum", {square},
            {{"dims", std::string("batch seq heads group head_dim")}, {"factor", 1 / elements}});
  return *g.finish();
}

Graph attention() { return attention_with({.attributes = {{"causal", int64_t{1}}}}); }

Graph biased_attention() { return attention_with({.heads = 2, .bias = true}); }

Graph masked_attention() {
  return attention_with({.batch = 2,
                         .seq = 8,
                         .heads = 2,
                         .segments = true,
                         .attributes = {{"causal", int64_t{1}},
                                        {"window", int64_t{3}},
                                        {"p", 0.25},
                                        {"key", std::string("core")}}});
}

Graph experts() {
  return build_model("mixtral:layers=1,hidden=2,heads=1,kv_heads=1,experts=2,seq=2,vocab=3,ffn=2",
                     2)
      ->graph;
}

constexpr const char* kStages =
    "stage = [\n  { ops = \"{up,act}\", at = 0 },\n"
    "  { ops = \"{down,square,loss}\", at = 1 },\n]\n";

}  // namespace

const std::vector<Border>& borders() {
  static const std::vector<Border> all = {
      {"zero3_prefetch", perceptron, 1,
       "mesh = { dp = 2 }\nmicro_batches = 2\nprefetch = { units = \"{up,down}\", ahead = 1 }\n"
       "split = [ { ops = \"*\", dim = \"batch\", over = \"dp\" } ]\n"
       "store = [\n  { tensors = \"optimizer.*\", over = \"dp\" },\n"
       "  { tensors = \"role:gradient\", over = \"dp\" },\n"
       "  { tensors = \"role:parameter\", over = \"dp\" },\n]\n"},
      {"one_f_one_b", perceptron, 0,
       std::string("mesh = { pp = 2 }\nmicro_batches = 4\nschedule = \"1f1b\"\n") + kStages},
      {"zero_bubble", perceptron, 0,
       std::string("mesh = { pp = 2 }\nmicro_batches = 4\nschedule = \"zb_h1\"\n") + kStages},
      {"two_meshes", perceptron, 2,
       "micro_batches = 2\nstage = [\n  { ops = \"{up,act}\", at = 0, mesh = { tp = 2 } },\n"
       "  { ops = \"{down,square,loss}\", at = 1, mesh = { dp = 2 } },\n]\n"
       "split = [\n  { ops = \"{up,act}\", dim = \"ffn\", over = \"tp\" },\n"
       "  { ops = \"{down,square,loss}\", dim = \"batch\", over = \"dp\" },\n]\n"},
      {"codec", perceptron, 0,
       "mesh = { dp = 2 }\nsplit = [ { ops = \"*\", dim = \"batch\", over = \"dp\" } ]\n"
       "compress = [ { tensors = \"role:gradient\", with = \"int8\", error_feedback = true } ]\n"},
      {"coded_messages", perceptron, 0,
       std::string("mesh = { pp = 2 }\nmicro_batches = 2\n") + kStages +
           "compress = [ { tensors = \"*\", with = \"topk:0.1\", error_feedback = true } ]\n"},
      {"tiers", perceptron, 0,
       "mesh = { dp = 1 }\nmicro_batches = 2\n"
       "store = [\n  { tensors = \"optimizer.*\", tier = \"disk\" },\n"
       "  { tensors = \"role:parameter\", tier = \"host\" },\n]\n"},
      {"ring_attention", attention, 1,
       "mesh = { cp = 2 }\nsplit = [\n  { ops = \"*\", dim = \"seq\", over = \"cp\" },\n"
       "  { ops = \"core\", dim = \"kv\", over = \"time:2\", order = \"rotated\", skew = \"-cp\" },"
       "\n]\n"},
      {"bias", biased_attention, 3,
       "mesh = { sp = 2, tp = 2 }\nsplit = [\n  { ops = \"*\", dim = \"seq\", over = \"sp\" },\n"
       "  { ops = \"*\", dim = \"heads\", over = \"tp\" },\n]\n"},
      {"bias_in_a_ring", biased_attention, 1,
       "mesh = { cp = 2 }\nsplit = [\n  { ops = \"*\", dim = \"seq\", over = \"cp\" },\n"
       "  { ops = \"core\", dim = \"kv\", over = \"time:2\", order = \"rotated\", skew = \"-cp\" },"
       "\n]\n"},
      {"masks", masked_attention, 3,
       "mesh = { dp = 2, tp = 2 }\nsplit = [\n"
       "  { ops = \"*\", dim = \"batch\", over = \"dp\" },\n"
       "  { ops = \"*\", dim = \"heads\", over = \"tp\" },\n]\n"},
      {"masks_in_a_ring", masked_attention, 2,
       "mesh = { cp = 4 }\nsplit = [\n  { ops = \"*\", dim = \"seq\", over = \"cp\" },\n"
       "  { ops = \"core\", dim = \"kv\", over = \"time:4\", order = \"rotated\", skew = \"-cp\" },"
       "\n]\n"},
      {"experts", experts, 1,
       "mesh = { dp = 1, ep = 2 }\nsplit = [\n"
       "  { ops = \"*\", dim = \"batch\", over = [\"dp\", \"ep\"] },\n"
       "  { ops = \"blocks.*.moe.{arrive,gate,act,up,mul,down}\", dim = \"batch\", "
       "over = \"dp\" },\n"
       "  { ops = \"blocks.*.moe.{arrive,gate,act,up,mul,down}\", dim = \"experts\", "
       "over = \"ep\" },\n]\n"},
  };
  return all;
}

Result<CompiledPlan> compile(const Border& border) {
  OptimizerSpec descent;
  descent.kind = "sgd";
  descent.momentum = border.plan.find("optimizer") == std::string::npos ? 0 : 0.5;
  descent.weight_decay = 0;
  descent.clip_norm = 0;
  return compile_graph(border.graph(), border.plan, descent);
}

}  // namespace tessera
