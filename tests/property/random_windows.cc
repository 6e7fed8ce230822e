#include "random_windows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "tessera/base/box.h"
#include "tessera/base/check.h"
#include "tessera/graph/builder.h"
#include "tessera/graph/kinds.h"

namespace tessera {
namespace {

// The largest size of a spatial dim that an op may make, so that a case stays small.
constexpr int64_t kLargest = 12;

// Grows a graph; every activation is [batch, channels, spatial dims..].
class NetworkMaker {
 public:
  NetworkMaker(Choices& choices, Features& features)
      : c_(choices), features_(features), g_("windows") {}

  Graph make() {
    spatial_ = 1 + c_.below(3);
    features_.insert(fmt::format("spatial dims: {}", spatial_));
    std::vector<Dim> dims = {{"batch", c_.of<int64_t>({2, 4, 3})},
                             {"channels", c_.of<int64_t>({2, 4, 3})}};
    static const std::vector<std::string> names = {"depth", "height", "width"};
    const std::vector<int64_t> sizes = spatial_ == 3 ? std::vector<int64_t>{4, 5, 3, 6}
                                                     : std::vector<int64_t>{7, 4, 9, 5, 8, 3, 6};
    for (size_t d = 3 - spatial_; d < 3; ++d) dims.push_back({names[d], c_.of(sizes)});
    // A weight is added to the input, so that the gradient at every place of the input is compared.
    const TensorId shift = weight("shift.weight", {dims.begin() + 1, dims.end()});
    TensorId x = g_.op1("shift", "add", {g_.input("x", dims, DType::kFloat64), shift});
    const uint32_t layers = 1 + c_.below(3);
    for (uint32_t i = 0; i < layers; ++i) x = layer(fmt::format("layer{}", i), x);
    TensorId loss = g_.op1("square", "mul", {x, x});
    std::string all;
    double places = 1;
    for (const Dim& dim : dims_of(x)) {
      all += (all.empty() ? "" : " ") + dim.name;
      places *= static_cast<double>(dim.size);
    }
    loss = g_.op1("sum", "reduce_sum", {loss}, {{"dims", all}, {"factor", 1 / places}});
    g_.graph().loss = loss;
    Result<Graph> graph = g_.finish();
    TESSERA_CHECK(graph.has_value(), "{}", graph.error().message);
    return std::move(*graph);
  }

 private:
  // The windows along one spatial dim.
  struct Drawn {
    int64_t kernel = 1, dilation = 1, stride = 1, padding = 0;
    int64_t span() const { return (kernel - 1) * dilation + 1; }
    int64_t positions(int64_t size) const { return (size + 2 * padding - span()) / stride + 1; }
  };

  const std::vector<Dim>& dims_of(TensorId x) { return g_.tensor(x).dims; }
  std::vector<Dim> spatial_of(TensorId x) {
    const std::vector<Dim>& dims = dims_of(x);
    return {dims.end() - static_cast<std::ptrdiff_t>(spatial_), dims.end()};
  }
  TensorId weight(const std::string& name, std::vector<Dim> dims) {
    return g_.parameter(name, std::move(dims), {Init::Kind::kNormal, 0.5}, DType::kFloat64);
  }
  static std::string numbers(const std::vector<Drawn>& all, int64_t Drawn::*which) {
    std::vector<int64_t> out;
    for (const Drawn& one : all) out.push_back(one.*which);
    return fmt::format("{}", fmt::join(out, " "));
  }

  TensorId layer(const std::string& name, TensorId x) {
    switch (c_.below(10)) {
      case 4: return transposed(name, x);
      case 5:
      case 6: return pool(name, x);
      case 7: return resize(name, x);
      case 8: return g_.op1(name, "gelu", {x});
      case 9: return equal_values_ ? convolution(name, x) : largest(name, x);
      default: return convolution(name, x);
    }
  }

  // Draws windows over x that have few enough places; padding is smaller than a window.
  std::vector<Drawn> windows(TensorId x, bool may_spread) {
    std::vector<Drawn> all;
    for (const Dim& dim : spatial_of(x)) {
      Drawn one;
      one.kernel = c_.of<int64_t>(spatial_ == 3 ? std::vector<int64_t>{3, 1, 2}
                                                : std::vector<int64_t>{3, 1, 2, 4, 5});
      if (may_spread) one.dilation = c_.of<int64_t>({1, 1, 2, 3});
      one.stride = c_.of<int64_t>({1, 1, 2, 3});
      if (dim.size > kLargest / 2) one.stride = std::max<int64_t>(one.stride, 2);
      one.padding = c_.below(static_cast<uint32_t>(one.span()));
      const int64_t lacks = one.span() - dim.size - 2 * one.padding;
      if (lacks > 0) one.padding += (lacks + 1) / 2;
      if (one.dilation > 1 && one.kernel > 1) features_.insert("window: dilated");
      if (one.stride > 1) features_.insert("window: stride");
      if (one.stride > one.span()) features_.insert("window: skips elements");
      if (one.padding > 0) features_.insert("window: padding");
      if (one.span() % 2 == 0) features_.insert("window: even");
      all.push_back(one);
    }
    return all;
  }

  // The filters and channels of a weight for groups of the channels of x.
  struct Grouped {
    int64_t groups = 1;
    Dim filters, inside;
  };
  Grouped grouped(const std::string& name, const Dim& channels) {
    if (channels.size % 2 == 0 && c_.one_in(4)) {
      features_.insert("groups");
      return {2, {name + "_out", c_.of<int64_t>({2, 4})}, {name + "_in", channels.size / 2}};
    }
    if (c_.one_in(4)) {
      features_.insert("groups: of one channel");
      return {channels.size, {name + "_out", channels.size}, {name + "_in", 1}};
    }
    return {1, {name + "_out", c_.of<int64_t>({2, 4, 3})}, channels};
  }

  TensorId convolution(const std::string& name, TensorId x) {
    features_.insert("op: convolution");
    const std::vector<Drawn> all = windows(x, true);
    const Grouped by = grouped(name, dims_of(x)[1]);
    std::vector<Dim> dims = {by.filters, by.inside};
    for (size_t d = 0; d < all.size(); ++d) dims.push_back({fmt::format("k{}", d), all[d].kernel});
    return g_.op1(name, "conv", {x, weight(name + ".weight", dims)},
                  {{"stride", numbers(all, &Drawn::stride)},
                   {"padding", numbers(all, &Drawn::padding)},
                   {"dilation", numbers(all, &Drawn::dilation)},
                   {"groups", by.groups}});
  }

  TensorId transposed(const std::string& name, TensorId x) {
    features_.insert("op: transposed convolution");
    equal_values_ = true;  // zeros where no window comes
    std::vector<Drawn> all = windows(x, true);
    const std::vector<Dim> from = spatial_of(x);
    const Dim made{name + "_out", c_.of<int64_t>({2, 3})};
    std::vector<Dim> dims = {dims_of(x)[1], made};
    std::string sizes;
    for (size_t d = 0; d < all.size(); ++d) {
      Drawn& one = all[d];
      if (from[d].size * one.stride > kLargest) one.stride = 1;
      // Sizes that have as many windows as x has elements.
      const auto size = [&] {
        return (from[d].size - 1) * one.stride + one.span() - 2 * one.padding;
      };
      one.padding = std::min(one.padding, one.span() - 1);
      while (size() < 1) --one.padding;
      const int64_t more = c_.below(static_cast<uint32_t>(one.stride));
      sizes += fmt::format("{}{}={}", d == 0 ? "" : " ", from[d].name, size() + more);
      dims.push_back({fmt::format("k{}", d), one.kernel});
    }
    return g_.op1(name, "conv_transpose", {x, weight(name + ".weight", dims)},
                  {{"dims", sizes},
                   {"channels", made.name},
                   {"stride", numbers(all, &Drawn::stride)},
                   {"padding", numbers(all, &Drawn::padding)},
                   {"dilation", numbers(all, &Drawn::dilation)}});
  }

  // A pool has windows over at least the last two dims: of a line, channels are read one by one.
  Attributes pool_attributes(const std::vector<Drawn>& all) const {
    const bool line = all.size() == 1;
    return {{"kernel", (line ? "1 " : "") + numbers(all, &Drawn::kernel)},
            {"stride", (line ? "1 " : "") + numbers(all, &Drawn::stride)},
            {"padding", (line ? "0 " : "") + numbers(all, &Drawn::padding)}};
  }

  TensorId pool(const std::string& name, TensorId x) {
    const auto kind = c_.of<std::string>({"avg_pool", "sum_pool"});
    features_.insert("op: " + kind);
    equal_values_ = true;  // windows with the same elements
    Attributes attributes = pool_attributes(windows(x, false));
    if (kind == "avg_pool") attributes["count_padding"] = int64_t{c_.below(2)};
    return g_.op1(name, kind, {x}, attributes);
  }

  TensorId largest(const std::string& name, TensorId x) {
    features_.insert("op: max_pool");
    return g_.op1(name, "max_pool", {x}, pool_attributes(windows(x, false)));
  }

  TensorId resize(const std::string& name, TensorId x) {
    features_.insert("op: resize");
    equal_values_ = true;  // elements that are repeated
    std::string sizes;
    for (const Dim& dim : spatial_of(x)) {
      const std::vector<int64_t> some = {dim.size, std::min(2 * dim.size, kLargest),
                                         std::max<int64_t>(1, dim.size / 2), dim.size + 1};
      sizes += fmt::format("{}{}={}", sizes.empty() ? "" : " ", dim.name, c_.of(some));
    }
    return g_.op1(name, "resize", {x},
                  {{"dims", sizes},
                   {"mode", c_.of<std::string>({"linear", "nearest"})},
                   {"corners", int64_t{c_.below(2)}}});
  }

  Choices& c_;
  Features& features_;
  GraphBuilder g_;
  size_t spatial_ = 1;
  // Whether elements may be equal but for rounding, so that the largest of them differs between
  // runs. If so, no pool takes the tensor.
  bool equal_values_ = false;
};

// Splits any dims of each op, or equal dims of all ops; with loops over time, rims first, halos
// that are computed, micro-batches, shards at rest and recomputation.
class SplitMaker {
 public:
  SplitMaker(Choices& choices, const Graph& graph, Features& features)
      : c_(choices), graph_(graph), features_(features) {}

  std::string make() {
    static const std::vector<std::vector<int64_t>> meshes = {
        {2}, {2, 2}, {2, 2, 2}, {3}, {3, 2}, {2, 2, 2}, {4}, {2, 3}, {2, 4}, {5}, {8}, {6}};
    for (const int64_t size : c_.of(meshes))
      axes_.push_back({std::string(1, static_cast<char>('a' + axes_.size())), size});
    std::vector<std::string> mesh;
    for (const auto& [name, size] : axes_) mesh.push_back(fmt::format("{} = {}", name, size));
    std::string text = fmt::format("mesh = {{ {} }}\n", fmt::join(mesh, ", "));
    const int64_t batch = graph_.tensor(graph_.ops()[0].outputs[0]).dims[0].size;
    if (batch % 2 == 0 && c_.one_in(5)) {
      micro_batches_ = 2;
      text += "micro_batches = 2\n";
      features_.insert("micro-batches");
    }
    same_ = c_.one_in(2);
    features_.insert(same_ ? "splits: the same of all ops" : "splits: of each op");
    for (const Op& op : graph_.ops()) text += splits_of(op);
    if (c_.one_in(5)) {
      text +=
          fmt::format("[[store]]\ntensors = \"role:parameter\"\nover = [\"{}\"]\n", axes_[0].first);
      features_.insert("parameters in shards");
    }
    for (const Op& op : graph_.ops()) {
      if (op.id == graph_.tensor(graph_.loss).producer || !c_.one_in(10)) continue;
      text += fmt::format("[[store]]\ntensors = \"{}\"\nrecompute = true\n",
                          graph_.tensor(op.outputs[0]).name);
      features_.insert("recomputation");
    }
    return text;
  }

 private:
  using Axis = std::pair<std::string, int64_t>;

  // Draws the axes of one dim, of those that the op has left.
  std::vector<Axis> draw(std::vector<Axis>& left, bool spatial) {
    std::vector<Axis> out;
    while (!left.empty() && (spatial && out.empty() ? !c_.one_in(4) : c_.one_in(5))) {
      const size_t pick = c_.below(static_cast<uint32_t>(left.size()));
      out.push_back(left[pick]);
      left.erase(left.begin() + static_cast<std::ptrdiff_t>(pick));
    }
    return out;
  }

  std::vector<Axis> axes_of(const std::string& dim, std::vector<Axis>& left, bool spatial) {
    if (!same_) return draw(left, spatial);
    if (!drawn_.contains(dim)) {
      std::vector<Axis> unused = axes_;
      std::erase_if(unused, [&](const Axis& axis) {
        return std::any_of(drawn_.begin(), drawn_.end(), [&](const auto& other) {
          return std::find(other.second.begin(), other.second.end(), axis) != other.second.end();
        });
      });
      drawn_[dim] = draw(unused, spatial);
    }
    return drawn_[dim];
  }

  std::string splits_of(const Op& op) {
    std::string text;
    std::vector<Axis> left = axes_;
    bool steps = false, rims = false;
    size_t spatial_cuts = 0;
    for (const OpDim& dim : op.annotation.dims) {
      if (dim.mark == Mark::kFrozen || dim.name.empty() || dim.literal()) continue;
      const bool spatial = dim.name == "depth" || dim.name == "height" || dim.name == "width";
      const std::vector<Axis> axes = axes_of(dim.name, left, spatial);
      std::vector<std::string> over;
      int64_t parts = 1;
      for (const auto& [name, size] : axes) {
        over.push_back(fmt::format("\"{}\"", name));
        parts *= size;
      }
      if (spatial && parts > 1) ++spatial_cuts;
      if (parts > 1) note_pieces(dim, parts);
      std::string more;
      const int64_t size = dim.name == "batch" ? dim.size / micro_batches_ : dim.size;
      if (!steps && !rims && size >= 2 && c_.one_in(8)) {
        over.push_back(fmt::format("\"time:{}\"", std::min<int64_t>(size, 2 + c_.below(2))));
        steps = true;
        features_.insert(dim.window ? "time: of windows" : "time: of another dim");
      } else if (!steps && parts > 1 && dim.window && c_.one_in(3)) {
        over.emplace_back("\"time:rims\"");
        rims = true;
        features_.insert("rims");
      }
      if (!steps && parts > 1 && c_.one_in(4)) {
        more = "halo = \"compute\"\n";
        features_.insert("halo computed");
      }
      if (over.empty()) continue;
      text += fmt::format("[[split]]\nops = \"{}\"\ndim = \"{}\"\nover = [{}]\n{}", op.path,
                          dim.name, fmt::join(over, ", "), more);
    }
    const bool windowed = std::any_of(op.annotation.dims.begin(), op.annotation.dims.end(),
                                      [](const OpDim& dim) { return dim.window.has_value(); });
    if (windowed && spatial_cuts > 0)
      features_.insert(fmt::format("spatial dims that are cut: {}", spatial_cuts));
    return text;
  }

  void note_pieces(const OpDim& dim, int64_t parts) {
    const int64_t smallest = split_interval({0, dim.size}, parts, parts - 1).size,
                  largest = split_interval({0, dim.size}, parts, 0).size;
    if (smallest == 0) features_.insert("pieces: empty");
    if (smallest != largest) features_.insert("pieces: uneven");
    if (!dim.window) return;
    const Window& window = *dim.window;
    if (smallest > 0 && smallest * window.stride < window.kernel - window.stride)
      features_.insert("pieces: smaller than the halo");
  }

  Choices& c_;
  const Graph& graph_;
  Features& features_;
  std::vector<Axis> axes_;
  std::map<std::string, std::vector<Axis>> drawn_;  // by dim, where all ops have the same splits
  bool same_ = false;
  int64_t micro_batches_ = 1;
};

}  // namespace

RandomCase random_windows(const std::vector<uint32_t>& stream) {
  Choices choices(stream);
  RandomCase out;
  out.graph = NetworkMaker(choices, out.features).make();
  out.plan = SplitMaker(choices, out.graph, out.features).make();
  return out;
}

const Features& all_window_features() {
  static const Features features{"spatial dims: 1",
                                 "spatial dims: 2",
                                 "spatial dims: 3",
                                 "op: convolution",
                                 "op: transposed convolution",
                                 "op: avg_pool",
                                 "op: sum_pool",
                                 "op: max_pool",
                                 "op: resize",
                                 "window: dilated",
                                 "window: stride",
                                 "window: skips elements",
                                 "window: padding",
                                 "window: even",
                                 "groups",
                                 "groups: of one channel",
                                 "splits: the same of all ops",
                                 "splits: of each op",
                                 "spatial dims that are cut: 1",
                                 "spatial dims that are cut: 2",
                                 "spatial dims that are cut: 3",
                                 "pieces: empty",
                                 "pieces: uneven",
                                 "pieces: smaller than the halo",
                                 "time: of windows",
                                 "time: of another dim",
                                 "rims",
                                 "halo computed",
                                 "micro-batches",
                                 "parameters in shards",
                                 "recomputation"};
  return features;
}

}  // namespace tessera
