// Random graphs; see random_case.h.
#include "random_graph.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/check.h"
#include "tessera/graph/builder.h"

namespace tessera {
namespace {

// Grows a graph over dims batch, seq and feature dims; every activation is [batch, seq, feature].
class GraphMaker {
 public:
  GraphMaker(Choices& choices, bool weights_apart)
      : c_(choices), g_("random"), prefix_(weights_apart ? "weights." : "") {}

  Graph make() {
    batch_ = c_.of<int64_t>({4, 8, 10, 12});
    seq_ = c_.of<int64_t>({2, 3, 4});
    const TensorId ids = g_.input("tokens", {{"batch", batch_}, {"seq", seq_}}, DType::kInt64);
    ids_ = ids;
    const TensorId table = weight("embed.weight", {{"vocab", 12}, feature()});
    tables_.push_back(table);
    const TensorId earlier = c_.one_in(6) ? earlier_pass(ids, table) : TensorId();
    TensorId x = g_.op1("embed", "embedding", {ids, table});
    if (earlier.valid()) x = g_.op1("recycle", "add", {x, earlier});
    values_.push_back(x);
    const uint32_t ops = 1 + c_.below(8);
    for (uint32_t i = 0; i < ops; ++i) step(fmt::format("op{}", i));
    finish_loss(ids);
    Result<Graph> graph = g_.finish();
    TESSERA_CHECK(graph.has_value(), "{}", graph.error().message);
    return std::move(*graph);
  }

 private:
  Dim feature() { return {"f" + std::to_string(features_++), c_.of<int64_t>({4, 6, 8, 3, 5})}; }
  TensorId weight(const std::string& name, std::vector<Dim> dims) {
    return g_.parameter(prefix_ + name, std::move(dims), {Init::Kind::kNormal, 0.3},
                        DType::kFloat64);
  }
  TensorId any() {
    return values_[values_.size() - 1 - c_.below(static_cast<uint32_t>(values_.size()))];
  }
  const std::vector<Dim>& dims(TensorId x) { return g_.tensor(x).dims; }

  // An earlier pass over the parameters of the graph, without gradients.
  TensorId earlier_pass(TensorId ids, TensorId table) {
    const TensorId x = g_.op1("pass.embed", "embedding", {ids, table});
    const TensorId y = g_.op1("pass.act", c_.of<std::string>({"gelu", "relu"}), {x});
    return g_.op1("pass.stop", "stop_gradient", {y});
  }

  void step(const std::string& name) {
    const TensorId x = any();
    switch (c_.below(17)) {
      case 0: values_.push_back(linear(name, x)); break;
      case 1:
        values_.push_back(g_.op1(name, c_.of<std::string>({"gelu", "silu", "relu"}), {x}));
        break;
      case 2: values_.push_back(binary(name, x, "add")); break;
      case 3: values_.push_back(norm(name, x)); break;
      case 4: values_.push_back(binary(name, x, "mul")); break;
      case 5: values_.push_back(g_.op1(name, "scale", {x}, {{"factor", 0.5}})); break;
      case 6: values_.push_back(c_.one_in(4) ? scan(name, x) : attention(name, x)); break;
      case 7: values_.push_back(g_.op1(name, "dropout", {x}, {{"p", 0.25}, {"key", name}})); break;
      case 8:
        values_.push_back(g_.op1(name, "softmax", {x}, {{"dim", dims(x).back().name}}));
        break;
      case 9: values_.push_back(bias(name, x)); break;
      case 10: values_.push_back(linear(name, x)); break;
      case 11: values_.push_back(imported(name, x)); break;
      case 12: values_.push_back(attention(name, x)); break;  // its splits are the richest
      case 13: values_.push_back(skip(name, x, maps(name, x))); break;
      case 14: values_.push_back(skip(name, x, mixture(name, x))); break;
      case 15:
      case 16:
        values_.push_back(c_.one_in(3) ? skip(name, x, attention(name, x)) : attention(name, x));
        break;
    }
  }

  TensorId linear(const std::string& name, TensorId x) {
    const Dim in = dims(x).back();
    TensorId w;
    for (TensorId old : weights_) {  // shared parameters
      if (dims(old)[0] == in && c_.one_in(3)) w = old;
    }
    if (!w.valid()) {
      w = weight(name + ".weight", {in, feature()});
      weights_.push_back(w);
    }
    const std::string out = dims(w)[1].name;
    if (out == in.name) return x;
    std::string spec = fmt::format("batch seq {0}+, {0} {1}", in.name, out);
    std::vector<TensorId> operands = {x, w};
    if (c_.one_in(2)) {
      operands.push_back(weight(name + ".bias", {dims(w)[1]}));
      spec += ", " + out;
    }
    return g_.op1(name, "einsum", operands,
                  {{"spec", spec + fmt::format(" -> batch seq {}", out)}});
  }

  // Ops that imported models have: functions, masks and indices.
  TensorId imported(const std::string& name, TensorId x) {
    const auto op1 = [&](const std::string& suffix, const char* kind, std::vector<TensorId> inputs,
                         Attributes attributes = {}) {
      return g_.op1(name + suffix, kind, std::move(inputs), std::move(attributes));
    };
    switch (c_.below(8)) {
      case 6: return grid(name, x);
      case 7: {  // the largest of each word's places, put back at those places
        const TensorId places = op1(".ids", "rename", {ids_}, {{"from", "seq"}, {"to", "k"}});
        const TensorId moved = op1(".moved", "rename", {x}, {{"from", "seq"}, {"to", "k"}});
        const Dim f = dims(x).back();
        const TensorId most =
            op1(".most", "scatter_max", {moved, places},
                {{"dim", "slots"},
                 {"dims", fmt::format("batch={} slots=12 {}={}", batch_, f.name, f.size)}});
        const TensorId back = op1(".back", "gather", {most, places}, {{"dim", "slots"}});
        return op1(".out", "rename", {back}, {{"from", "k"}, {"to", "seq"}});
      }
      case 0: return op1("", "where", {ids_, x}, {{"otherwise", 0.25}});
      case 1: {
        const TensorId square = op1(".square", "mul", {x, x});
        const TensorId least = op1(".least", "clamp", {square}, {{"min", 0.5}});
        return op1(".out", "div", {x, op1(".root", "sqrt", {least})});
      }
      case 2: return op1("", "cumsum", {x}, {{"dim", "seq"}, {"reverse", int64_t{c_.below(2)}}});
      case 3: {
        const TensorId wide = op1(".pad", "pad", {x},
                                  {{"dim", "seq"}, {"begin", 1}, {"size", seq_ + 2}, {"value", 2}});
        return op1(".out", "slice", {wide}, {{"dim", "seq"}, {"begin", 0}, {"size", seq_}});
      }
      case 4: {
        const TensorId places = op1(".ids", "rename", {ids_}, {{"from", "seq"}, {"to", "k"}});
        const TensorId picked = op1(".gather", "gather", {x, places}, {{"dim", "seq"}});
        return op1(".out", "rename", {picked}, {{"from", "k"}, {"to", "seq"}});
      }
      default:
        return op1("", c_.of<std::string>({"leaky_relu", "tanh", "sigmoid", "softplus"}).c_str(),
                   {x});
    }
  }

  // A plane, or a line, read at points that x gives.
  TensorId grid(const std::string& name, TensorId x) {
    const bool plane = c_.one_in(2);
    std::vector<Dim> places = {feature(), {"rows", c_.of<int64_t>({2, 3, 5})}};
    if (plane) places.push_back({"columns", c_.of<int64_t>({4, 3})});
    const TensorId points =
        g_.op1(name + ".points", "tanh",
               {product(name + ".at", x, {{"coordinates", plane ? int64_t{2} : int64_t{1}}})});
    return g_.op1(name + ".sample", "grid_sample", {weight(name + ".grid.weight", places), points},
                  {{"dims", plane ? "rows columns" : "rows"}});
  }

  TensorId bias(const std::string& name, TensorId x) {
    return g_.op1(name, "add", {x, weight(name + ".bias", {dims(x)[1], dims(x).back()})});
  }

  TensorId binary(const std::string& name, TensorId x, const std::string& kind) {
    for (TensorId y : values_) {
      if (dims(y) == dims(x) && (y != x || c_.one_in(3))) return g_.op1(name, kind, {x, y});
    }
    return linear(name, x);
  }

  TensorId norm(const std::string& name, TensorId x) {
    const Dim f = dims(x).back();
    const TensorId gamma =
        g_.parameter(name + ".weight", {f}, {Init::Kind::kOnes, 0}, DType::kFloat64);
    if (c_.one_in(2)) return g_.op(name, "rms_norm", {x, gamma}, {{"eps", 1e-5}})[0];
    return g_.op(name, "layer_norm", {x, gamma, weight(name + ".bias", {f})}, {{"eps", 1e-5}})[0];
  }

  TensorId attention(const std::string& name, TensorId x) {
    const Dim in = dims(x).back();
    const Dim heads{"heads", c_.of<int64_t>({2, 4, 3})};
    const Dim group{"group", c_.of<int64_t>({1, 2})};
    const Dim depth{"head_dim", 4};
    const TensorId wq = weight(name + ".q.weight", {in, heads, group, depth});
    const TensorId wk = weight(name + ".k.weight", {in, heads, depth});
    const TensorId wv = weight(name + ".v.weight", {in, heads, depth});
    const std::string kv =
        fmt::format("batch seq {0}+, {0} heads head_dim -> batch seq heads head_dim", in.name);
    const TensorId q = g_.op1(
        name + ".q", "einsum", {x, wq},
        {{"spec",
          fmt::format("batch seq {0}+, {0} heads group head_dim -> batch seq heads group head_dim",
                      in.name)}});
    const TensorId k = g_.op1(name + ".k", "einsum", {x, wk}, {{"spec", kv}});
    const TensorId v = g_.op1(name + ".v", "einsum", {x, wv}, {{"spec", kv}});
    std::vector<TensorId> operands = {q, k, v};
    if (c_.one_in(4)) operands.push_back(scores_bias(name, heads));
    if (c_.one_in(4)) operands.insert(operands.end(), 2, ids_);
    const double dropped = c_.one_in(5) ? 0.25 : 0.0;
    // A window has two keys at least: where each query sees one key, the gradients of queries and
    // keys are 0, and only rounding would be left of them.
    const int64_t window =
        c_.one_in(4) ? std::max<int64_t>(2, 1 + c_.below(static_cast<int>(seq_))) : 0;
    const TensorId o = g_.op(name + ".core", "attention", operands,
                             {{"causal", int64_t{c_.below(2)}},
                              {"window", window},
                              {"p", dropped},
                              {"key", dropped > 0 ? name : ""}})[0];
    const Dim out = feature();
    const TensorId wo = weight(name + ".out.weight", {heads, group, depth, out});
    return g_.op1(
        name + ".out", "einsum", {o, wo},
        {{"spec",
          fmt::format(
              "batch seq heads+ group+ head_dim+, heads group head_dim {0} -> batch seq {0}",
              out.name)}});
  }

  // A bias for each query and key, or for each key; for all heads or for each.
  TensorId scores_bias(const std::string& name, const Dim& heads) {
    std::vector<Dim> all = {{"kv", seq_}};
    if (c_.one_in(2)) all.insert(all.begin(), {"seq", seq_});
    if (c_.one_in(2)) all.insert(c_.one_in(2) ? all.begin() : all.end(), heads);
    return weight(name + ".scores_bias", all);
  }

  // A convolution and a recurrence between two products: a state scan or the gated delta rule.
  TensorId scan(const std::string& name, TensorId x) {
    const Dim in = dims(x).back();
    const Dim heads{"heads", c_.of<int64_t>({2, 3})}, group{"group", c_.of<int64_t>({1, 2})};
    const Dim depth{"head_dim", 2}, state{"state", 3};
    const auto made = [&](const std::string& what, const std::vector<Dim>& out) {
      std::string to;
      for (const Dim& dim : out) to += " " + dim.name;
      std::vector<Dim> all = {in};
      all.insert(all.end(), out.begin(), out.end());
      return g_.op1(name + "." + what, "einsum", {x, weight(name + "." + what + ".weight", all)},
                    {{"spec", fmt::format("batch seq {0}+, {0}{1} -> batch seq{1}", in.name, to)}});
    };
    const auto scaled = [&](const std::string& what, TensorId y, double factor) {
      return g_.op1(name + "." + what, "scale", {y}, {{"factor", factor}});
    };
    const bool delta = c_.one_in(2);
    std::vector<TensorId> taps = {made("b", {heads, state}),
                                  weight(name + ".conv.weight", {heads, state, {"taps", 2}})};
    if (!delta) taps.push_back(weight(name + ".conv.bias", {heads, state}));
    const TensorId b = g_.op1(name + ".conv", "causal_conv", taps);
    const TensorId dt = g_.op1(name + ".step", "softplus", {made("dt", {heads, group})});
    const TensorId values = made("x", {heads, group, depth}), c = made("c", {heads, state});
    const Attributes chunk = {{"chunk", int64_t{1 + c_.below(3)}}};
    TensorId y;
    if (delta) {  // keys are shorter than one, so that states do not grow
      const TensorId key = scaled("key", g_.op1(name + ".bounded", "sigmoid", {b}), 0.5);
      const TensorId beta = g_.op1(name + ".share", "sigmoid", {made("beta", {heads, group})});
      y = g_.op1(name + ".core", "gated_delta_rule",
                 {c, key, values, scaled("decay", dt, -1), beta}, chunk);
    } else {
      const TensorId rate = g_.op1(name + ".rate", "exp", {weight(name + ".log", {heads, group})});
      y = g_.op1(
          name + ".core", "state_scan",
          {values, dt, scaled("decay", rate, -1), b, c, weight(name + ".skip", {heads, group})},
          chunk);
    }
    const Dim out = feature();
    return g_.op1(
        name + ".out", "einsum", {y, weight(name + ".out.weight", {heads, group, depth, out})},
        {{"spec",
          fmt::format(
              "batch seq heads+ group+ head_dim+, heads group head_dim {0} -> batch seq {0}",
              out.name)}});
  }

  // Returns y, or its sum with x if both have equal dims or y can be brought to the dims of x.
  TensorId skip(const std::string& name, TensorId x, TensorId y) {
    if (c_.one_in(3)) return y;
    if (dims(x) != dims(y)) y = product(name + ".back", y, {dims(x).back()});
    return g_.op1(name + ".sum", "add", {x, y});
  }

  // Multiplies x [batch, seq, f] by a weight: its last dim becomes `out`.
  TensorId product(const std::string& name, TensorId x, std::vector<Dim> out) {
    const Dim in = dims(x).back();
    std::string to;
    for (const Dim& dim : out) to += " " + dim.name;
    out.insert(out.begin(), in);
    return g_.op1(name, "einsum", {x, weight(name + ".weight", std::move(out))},
                  {{"spec", fmt::format("batch seq {0}+, {0}{1} -> batch seq{1}", in.name, to)}});
  }

  // Maps [batch, channels, seq, width]: convolutions, pools and batch norms between two products.
  TensorId maps(const std::string& name, TensorId x) {
    const Dim width{"width", c_.of<int64_t>({3, 4})};
    Dim channels{name + "_c0", c_.of<int64_t>({2, 4, 3})};
    TensorId y = g_.op1(
        name + ".in", "einsum", {x, weight(name + ".in.weight", {dims(x).back(), channels, width})},
        {{"spec", fmt::format("batch seq {0}+, {0} {1} width -> batch {1} seq width",
                              dims(x).back().name, channels.name)}});
    const uint32_t layers = 1 + c_.below(3);
    for (uint32_t i = 0; i < layers; ++i) {
      const std::string at = fmt::format("{}.map{}", name, i);
      switch (c_.below(7)) {
        case 4: y = spread_convolution(at, y, channels); break;
        case 5: y = other_size(at, y); break;
        case 0: {
          const int64_t kernel = c_.of<int64_t>({3, 1});
          const Dim filters{fmt::format("{}_c{}", name, i + 1), c_.of<int64_t>({2, 4, 3})};
          const TensorId w =
              weight(at + ".weight", {filters, channels, {"kh", kernel}, {"kw", kernel}});
          y = g_.op1(at, "conv", {y, w}, {{"padding", fmt::format("{}", kernel / 2)}});
          channels = filters;
          break;
        }
        case 1: {
          const TensorId gamma =
              g_.parameter(at + ".weight", {channels}, {Init::Kind::kOnes, 0}, DType::kFloat64);
          y = g_.op(at, "batch_norm", {y, gamma, weight(at + ".bias", {channels})},
                    {{"dims", c_.of<std::string>({"seq width", "width", "seq"})}, {"eps", 0.1}})[0];
          break;
        }
        default:
          if (c_.one_in(3)) {
            y = g_.op1(at, "avg_pool", {y},
                       {{"kernel", "3"}, {"padding", "1"}, {"count_padding", int64_t{0}}});
          } else {
            y = g_.op1(at, c_.of<std::string>({"avg_pool", "sum_pool", "max_pool"}), {y},
                       {{"kernel", "3"}, {"padding", "1"}});
          }
      }
    }
    const Dim out = feature();
    return g_.op1(name + ".out", "einsum",
                  {y, weight(name + ".out.weight", {channels, width, out})},
                  {{"spec", fmt::format("batch {0}+ seq width+, {0} width {1} -> batch seq {1}",
                                        channels.name, out.name)}});
  }

  // A convolution of each channel, or of each of two groups, whose kernel skips elements.
  TensorId spread_convolution(const std::string& name, TensorId x, Dim& channels) {
    const bool paired = channels.size % 2 == 0 && c_.one_in(2);
    const int64_t groups = paired ? 2 : channels.size, dilation = 1 + c_.below(2);
    const Dim filters{name + "_out", paired ? c_.of<int64_t>({2, 6}) : channels.size};
    const TensorId w = weight(
        name + ".weight", {filters, {name + "_in", channels.size / groups}, {"kh", 3}, {"kw", 3}});
    channels = filters;
    return g_.op1(name, "conv", {x, w},
                  {{"padding", fmt::format("{}", dilation)},
                   {"dilation", fmt::format("{}", dilation)},
                   {"groups", groups}});
  }

  // Resizes maps to more places, or to another number of columns, and back.
  TensorId other_size(const std::string& name, TensorId x) {
    const int64_t width = dims(x).back().size;
    const std::string mode = c_.of<std::string>({"linear", "nearest"});
    const auto sizes = [](int64_t seq, int64_t columns) {
      return fmt::format("seq={} width={}", seq, columns);
    };
    const int64_t times = c_.of<int64_t>({2, 3}), columns = c_.of<int64_t>({width, width + 1});
    const TensorId more = g_.op1(name + ".more", "resize", {x},
                                 {{"dims", sizes(times * seq_, columns)},
                                  {"mode", mode},
                                  {"corners", int64_t{c_.below(2)}}});
    return g_.op1(name + ".less", "resize", {more}, {{"dims", sizes(seq_, width)}, {"mode", mode}});
  }

  // Each token goes to its most probable experts, which are products.
  TensorId mixture(const std::string& name, TensorId x) {
    const Dim in = dims(x).back(), inner{name + "_inner", c_.of<int64_t>({4, 3})}, out = feature();
    const Dim experts{"experts", c_.of<int64_t>({2, 4, 3})};
    const int64_t choices = 1 + c_.below(2);
    const int64_t capacity = 1 + c_.below(static_cast<uint32_t>(choices * seq_));
    const TensorId probabilities =
        g_.op1(name + ".probabilities", "softmax", {product(name + ".router", x, {experts})},
               {{"dim", experts.name}});
    const std::vector<TensorId> route =
        g_.op(name + ".route", "moe_route", {probabilities},
              {{"top_k", choices}, {"capacity", capacity}, {"normalize", int64_t{choices > 1}}});
    const Attributes slots = {{"experts", experts.size}, {"capacity", capacity}};
    const TensorId sent = g_.op1(name + ".dispatch", "moe_dispatch", {x, route[0]}, slots);
    const auto expert = [&](const std::string& what, TensorId y, const Dim& from, const Dim& to) {
      return g_.op1(name + what, "einsum",
                    {y, weight(name + what + ".weight", {experts, from, to})},
                    {{"spec", fmt::format("experts batch capacity {0}+, experts {0} {1} -> "
                                          "experts batch capacity {1}",
                                          from.name, to.name)}});
    };
    const TensorId h = g_.op1(name + ".act", "gelu", {expert(".up", sent, in, inner)});
    return g_.op1(name + ".combine", "moe_combine",
                  {expert(".down", h, inner, out), route[0], route[1]});
  }

  void finish_loss(TensorId ids) {
    // Every value that no op reads joins the loss, so that all parameters have gradients.
    std::vector<TensorId> ends;
    const std::vector<std::vector<OpId>> readers = g_.graph().consumers();
    for (TensorId x : values_) {
      if (readers[x.index()].empty()) ends.push_back(x);
    }
    std::vector<TensorId> terms;
    for (size_t i = 0; i < ends.size(); ++i) {
      const std::string name = fmt::format("loss{}", i);
      TensorId token;
      if (i == 0 && c_.one_in(2)) {  // tied head
        TensorId y = ends[i];
        const Dim to = dims(tables_[0])[1];
        if (dims(y).back() != to) {
          const TensorId w = weight(name + ".proj.weight", {dims(y).back(), to});
          y = g_.op1(name + ".proj", "einsum", {y, w},
                     {{"spec", fmt::format("batch seq {0}+, {0} {1} -> batch seq {1}",
                                           dims(y).back().name, to.name)}});
        }
        const TensorId logits = g_.op1(
            name + ".head", "einsum", {y, tables_[0]},
            {{"spec", fmt::format("batch seq {0}+, vocab {0} -> batch seq vocab", to.name)}});
        const std::vector<TensorId> parts =
            g_.op(name + ".cross_entropy", "cross_entropy", {logits, ids});
        token = g_.op1(name + ".token", "sub", {parts[0], parts[1]});
      } else {
        token = g_.op1(name + ".square", "mul", {ends[i], ends[i]});
      }
      std::string names;
      for (const Dim& dim : dims(token)) names += (names.empty() ? "" : " ") + dim.name;
      terms.push_back(
          g_.op1(name + ".sum", "reduce_sum", {token},
                 {{"dims", names}, {"factor", 1.0 / static_cast<double>(batch_ * seq_)}}));
    }
    g_.graph().loss = terms.size() == 1 ? terms[0] : g_.op1("total", "add_n", terms);
  }

  Choices& c_;
  GraphBuilder g_;
  std::string prefix_;  // of parameters
  int64_t batch_ = 4, seq_ = 2;
  int features_ = 0;
  TensorId ids_;
  std::vector<TensorId> values_, weights_, tables_;
};

}  // namespace

Graph random_graph(Choices& choices, bool weights_apart) {
  return GraphMaker(choices, weights_apart).make();
}

}  // namespace tessera
