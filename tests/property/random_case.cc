#include "random_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "tessera/base/check.h"
#include "tessera/graph/builder.h"
#include "tessera/graph/kinds.h"

namespace tessera {

uint32_t Choices::below(uint32_t n) {
  if (n <= 1 || next_ >= stream_.size()) return 0;
  return stream_[next_++] % n;
}

namespace {

// Grows a graph over dims batch, seq and feature dims; every activation is [batch, seq, feature].
class GraphMaker {
 public:
  explicit GraphMaker(Choices& choices) : c_(choices), g_("random") {}

  Graph make() {
    batch_ = c_.of<int64_t>({4, 8, 12});
    seq_ = c_.of<int64_t>({2, 3, 4});
    const TensorId ids = g_.input("tokens", {{"batch", batch_}, {"seq", seq_}}, DType::kInt64);
    const TensorId table = weight("embed.weight", {{"vocab", 12}, feature()});
    tables_.push_back(table);
    TensorId x = g_.op1("embed", "embedding", {ids, table});
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
    return g_.parameter(name, std::move(dims), {Init::Kind::kNormal, 0.3}, DType::kFloat64);
  }
  TensorId any() {
    return values_[values_.size() - 1 - c_.below(static_cast<uint32_t>(values_.size()))];
  }
  const std::vector<Dim>& dims(TensorId x) { return g_.tensor(x).dims; }

  void step(const std::string& name) {
    const TensorId x = any();
    switch (c_.below(11)) {
      case 0: values_.push_back(linear(name, x)); break;
      case 1:
        values_.push_back(g_.op1(name, c_.of<std::string>({"gelu", "silu", "relu"}), {x}));
        break;
      case 2: values_.push_back(binary(name, x, "add")); break;
      case 3: values_.push_back(norm(name, x)); break;
      case 4: values_.push_back(binary(name, x, "mul")); break;
      case 5: values_.push_back(g_.op1(name, "scale", {x}, {{"factor", 0.5}})); break;
      case 6: values_.push_back(attention(name, x)); break;
      case 7: values_.push_back(g_.op1(name, "dropout", {x}, {{"p", 0.25}, {"key", name}})); break;
      case 8:
        values_.push_back(g_.op1(name, "softmax", {x}, {{"dim", dims(x).back().name}}));
        break;
      case 9: values_.push_back(bias(name, x)); break;
      case 10: values_.push_back(linear(name, x)); break;
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
    const TensorId o = g_.op(name + ".core", "attention", {q, k, v},
                             {{"causal", int64_t{c_.below(2)}}, {"scale", 0.0}})[0];
    const Dim out = feature();
    const TensorId wo = weight(name + ".out.weight", {heads, group, depth, out});
    return g_.op1(
        name + ".out", "einsum", {o, wo},
        {{"spec",
          fmt::format(
              "batch seq heads+ group+ head_dim+, heads group head_dim {0} -> batch seq {0}",
              out.name)}});
  }

  void finish_loss(TensorId ids) {
    // Every value that nobody reads joins the loss, so that all parameters have gradients.
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
  int64_t batch_ = 4, seq_ = 2;
  int features_ = 0;
  std::vector<TensorId> values_, weights_, tables_;
};

struct Axis {
  std::string name;
  int64_t size;
};

// A plan: one split entry an op and dim, so that it stays readable when it fails.
class PlanMaker {
 public:
  PlanMaker(Choices& choices, const Graph& graph) : c_(choices), graph_(graph) {}

  std::pair<std::string, int64_t> make() {
    const uint32_t stages = 1 + c_.below(3);
    int64_t ranks = stages;
    std::string mesh;
    if (stages > 1) mesh = fmt::format("pp = {}", stages);
    const uint32_t axes = c_.below(3);
    for (uint32_t a = 0; a < axes; ++a) {
      const int64_t size = c_.of<int64_t>({2, 3, 4});
      if (ranks * size > 12) continue;
      axes_.push_back({std::string(1, static_cast<char>('a' + a)), size});
      ranks *= size;
      mesh += (mesh.empty() ? "" : ", ") + fmt::format("{} = {}", axes_.back().name, size);
    }
    if (mesh.empty()) mesh = "a = 1";
    const int64_t micro = c_.of<int64_t>({1, 2, 4});
    out_ = fmt::format("mesh = {{ {} }}\nmicro_batches = {}\nschedule = \"{}\"\n", mesh, micro,
                       c_.of<std::string>({"1f1b", "gpipe"}));
    if (c_.one_in(3)) out_ += "bucket_bytes = 256\n";
    make_stages(stages);
    make_splits(micro);
    make_stores();
    return {out_, ranks};
  }

 private:
  void make_stages(uint32_t stages) {
    if (stages == 1) return;
    // Forward ops in graph order, cut at random places.
    const size_t ops = graph_.ops().size();  // at least 4
    std::vector<size_t> cuts;                // stage s ends with op cuts[s]
    for (uint32_t s = 1; s < stages; ++s) {
      const size_t left = ops - stages + s - (cuts.empty() ? 0 : cuts.back() + 1);
      cuts.push_back((cuts.empty() ? 0 : cuts.back() + 1) + c_.below(static_cast<uint32_t>(left)));
    }
    size_t stage = 0;
    for (size_t i = 0; i < ops; ++i) {
      while (stage < cuts.size() && i > cuts[stage]) ++stage;
      out_ += fmt::format("[[stage]]\nops = \"{}\"\nat = {}\n", graph_.ops()[i].path, stage);
    }
  }

  void make_splits(int64_t micro) {
    if (axes_.empty()) return;
    for (const Op& op : graph_.ops()) {
      std::vector<Axis> free = axes_;
      bool loop = false;
      for (const OpDim& dim : op.annotation.dims) {
        if (dim.mark == Mark::kFrozen && !expandable(op, dim.name)) continue;
        if (dim.name.empty() || std::isdigit(static_cast<unsigned char>(dim.name[0])) != 0)
          continue;
        std::string over;
        const bool over_time_only = is_weighted(op, dim.name);
        while (!over_time_only && !free.empty() && c_.one_in(3)) {
          const size_t pick = c_.below(static_cast<uint32_t>(free.size()));
          over += fmt::format("{}\"{}\"", over.empty() ? "" : ", ", free[pick].name);
          free.erase(free.begin() + static_cast<std::ptrdiff_t>(pick));
        }
        std::string extra;
        const int64_t size = dim.name == "batch" ? dim.size / micro : dim.size;
        if (!loop && size >= 2 && c_.one_in(5)) {
          const int64_t steps = std::min<int64_t>(size, c_.of<int64_t>({2, 3, 4}));
          over += fmt::format("{}\"time:{}\"", over.empty() ? "" : ", ", steps);
          loop = true;
          if (c_.one_in(2)) {
            const Axis& axis = c_.of(axes_);
            const bool nested = axis.size == steps && c_.one_in(3);
            extra = fmt::format("order = \"{}\"\nskew = [\"{}{}\"]\n",
                                nested ? "nested" : "rotated", c_.one_in(2) ? "-" : "", axis.name);
          }
        }
        if (over.empty()) continue;
        out_ += fmt::format("[[split]]\nops = \"{}\"\ndim = \"{}\"\nover = [{}]\n{}", op.path,
                            dim.name, over, extra);
      }
    }
  }

  // Parts along the dim have weights: merged by the op alone.
  static bool is_weighted(const Op& op, const std::string& dim) {
    for (const OperandDims& output : op.annotation.outputs) {
      if (output.combiner == Combiner::kWeighted && !output.contains(op.annotation.find(dim)))
        return true;
    }
    return false;
  }

  static bool expandable(const Op& op, const std::string& dim) {
    const KindInfo* kind = find_kind(op.kind);
    if (kind == nullptr || kind->expandable == nullptr) return false;
    const std::vector<std::string> names = kind->expandable(op);
    return std::find(names.begin(), names.end(), dim) != names.end();
  }

  void make_stores() {
    if (!axes_.empty()) {
      for (const char* role : {"optimizer_state", "gradient", "parameter"}) {
        if (!c_.one_in(3)) continue;
        out_ += fmt::format("[[store]]\ntensors = \"role:{}\"\nover = \"{}\"\n", role,
                            c_.of(axes_).name);
      }
    }
    for (const Op& op : graph_.ops()) {
      if (!c_.one_in(12) || op.id == graph_.tensor(graph_.loss).producer) continue;
      const Tensor& tensor = graph_.tensor(op.outputs[0]);
      out_ += fmt::format("[[store]]\ntensors = \"{}\"\nrecompute = true\n", tensor.name);
    }
    make_tiers();
  }

  void make_tiers() {
    const std::vector<std::string> tiers{"host", "disk"}, keeps{"block", "micro_batch", "step"},
        fractions{"0.3", "0.7", "1.0"};
    for (const char* role : {"optimizer_state", "gradient", "parameter", "activation"}) {
      if (!c_.one_in(4)) continue;
      out_ += fmt::format("[[store]]\ntensors = \"role:{}\"\ntier = \"{}\"\n", role, c_.of(tiers));
      if (c_.one_in(2)) out_ += fmt::format("fraction = {}\n", c_.of(fractions));
      if (c_.one_in(2)) out_ += fmt::format("keep = \"{}\"\n", c_.of(keeps));
    }
  }

  Choices& c_;
  const Graph& graph_;
  std::vector<Axis> axes_;
  std::string out_;
};

}  // namespace

RandomCase random_case(const std::vector<uint32_t>& stream) {
  Choices choices(stream);
  RandomCase out;
  out.graph = GraphMaker(choices).make();
  std::tie(out.plan, out.ranks) = PlanMaker(choices, out.graph).make();
  return out;
}

}  // namespace tessera
