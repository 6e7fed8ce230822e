#include "tessera/cost/family.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>

#include "tessera/graph/kinds.h"
#include "tessera/graph/windows.h"

namespace tessera {
namespace {

int64_t volume(const View& view) { return view.box.volume(); }

int64_t bytes(const Program& program, const View& view) {
  return view.box.volume() * dtype_bytes(program.buffer(view.buffer).dtype);
}

double as_size(int64_t n) { return static_cast<double>(std::max<int64_t>(n, 1)); }

// ---- einsum
struct Operand {
  const OperandDims* dims = nullptr;
  bool has(int dim) const { return dims != nullptr && dims->contains(dim); }
  // Returns the last dim of the operand whose size in the box is above 1; -1 if there is none.
  int last(const Box& box) const {
    for (size_t d = dims->dims.size(); d-- > 0;) {
      const int dim = dims->dims[d].back();
      if (box.dims[static_cast<size_t>(dim)].size > 1) return dim;
    }
    return -1;
  }
};

struct Product {
  int64_t batch = 1, m = 1, n = 1, k = 1;
  bool a_transposed = false, b_transposed = false;
};

Product product_of(const Annotation& annotation, const Box& box) {
  Operand a{&annotation.inputs[0]};
  Operand b{annotation.inputs.size() > 1 ? &annotation.inputs[1] : nullptr};
  const Operand y{&annotation.outputs[0]};
  const int y_last = y.last(box);
  if (b.dims != nullptr && y_last >= 0 && a.has(y_last) && !b.has(y_last)) std::swap(a, b);
  Product product;
  for (size_t d = 0; d < box.rank(); ++d) {
    const int dim = static_cast<int>(d);
    const int64_t size = box.dims[d].size;
    if (a.has(dim) && b.has(dim)) {
      (y.has(dim) ? product.batch : product.k) *= size;
    } else if (a.has(dim)) {
      product.m *= size;
    } else if (b.has(dim)) {
      product.n *= size;
    }
  }
  const auto contracted = [&](int dim) {
    return dim >= 0 && a.has(dim) && b.has(dim) && !y.has(dim);
  };
  const int a_last = a.last(box);
  product.a_transposed = a_last >= 0 && !contracted(a_last);
  product.b_transposed = b.dims != nullptr && contracted(b.last(box));
  return product;
}

FamilyKey einsum_family(const Compute& compute, const Annotation& annotation, std::string name) {
  const Product p = product_of(annotation, compute.box);
  if (annotation.inputs.size() == 1) name += ".one";
  if (annotation.inputs.size() > 1)
    name += fmt::format(".{}{}", p.a_transposed ? 't' : 'n', p.b_transposed ? 't' : 'n');
  if (annotation.inputs.size() > 2) name += ".bias";
  return {name, {as_size(p.batch), as_size(p.m), as_size(p.n), as_size(p.k)}};
}

// Returns the family of a convolution. The name has kernel and stride, ".k3x3s2x2"; the sizes are
// those of the implicit product.
FamilyKey convolution_family(const Compute& compute, const Annotation& annotation,
                             std::string name) {
  int64_t m = 1, n = 1, k = 1;
  std::string kernel, stride;
  for (size_t d = 0; d < annotation.dims.size(); ++d) {
    const int dim = static_cast<int>(d);
    const bool in_first = annotation.inputs[0].contains(dim);
    (annotation.reduces(dim, 0) ? k
     : in_first                 ? m
                                : n) *= windows_of(annotation, dim, compute.box.dims[d]);
    if (const auto& window = annotation.dims[d].window; window) {
      kernel += fmt::format("{}{}", kernel.empty() ? "" : "x", window->kernel);
      stride += fmt::format("{}{}", stride.empty() ? "" : "x", window->stride);
    }
  }
  if (!kernel.empty()) name += fmt::format(".k{}s{}", kernel, stride);
  return {name, {as_size(m), as_size(n), as_size(k)}};
}

// ---- sizes that the kind names
FamilyKey named_family(const Op& op, const Compute& compute, std::string name) {
  const std::optional<QueryKey> dims = query_key_of(op);
  if (dims && dims->skips) {
    const Interval queries = compute.box.dims[static_cast<size_t>(dims->query)],
                   keys = compute.box.dims[static_cast<size_t>(dims->key)];
    // If the op has no order of tokens and no key of the box is later than the first query, every
    // query sees all keys, so the kernel does the work of one without a mask.
    if (!op.text("order").empty() || keys.end() > queries.begin + 1) name += ".causal";
  }
  // An op with optional operands, with a window or with dropped weights runs another kernel.
  const bool plain = op.inputs.size() == info_of(op).min_inputs && op.number("p") == 0;
  if (dims && (dims->window > 0 || !plain)) name += ".general";
  FamilyKey key{std::move(name), {}};
  for (const NamedSize& named : info_of(op).sizes) {
    int64_t size = 1;
    for (const std::string& dim : named.dims) {
      const int d = op.annotation.find(dim);
      if (d >= 0) size *= compute.box.dims[static_cast<size_t>(d)].size;
    }
    key.size.push_back(as_size(size));
  }
  return key;
}

// ---- others
bool is_elementwise(const Annotation& annotation) {
  return std::all_of(annotation.dims.begin(), annotation.dims.end(), [](const OpDim& dim) {
    return dim.mark == Mark::kSpatial && dim.causal_of < 0 && !dim.window;
  });
}

struct Largest {
  const View* view = nullptr;
  const OperandDims* dims = nullptr;
};
Largest largest_operand(const Compute& compute, const Annotation& annotation) {
  Largest result;
  const auto offer = [&](const View& view, const OperandDims& dims) {
    if (result.view == nullptr || volume(view) > volume(*result.view)) result = {&view, &dims};
  };
  for (size_t i = 0; i < compute.inputs.size(); ++i) offer(compute.inputs[i], annotation.inputs[i]);
  for (size_t i = 0; i < compute.outputs.size(); ++i)
    offer(compute.outputs[i].view, annotation.outputs[i]);
  return result;
}

FamilyKey rows_family(const Compute& compute, const Op& op, std::string name) {
  const Annotation& annotation = op.annotation;
  const Largest largest = largest_operand(compute, annotation);
  const Box& box = largest.view->box;
  const int64_t width = box.rank() == 0 ? 1 : box.dims.back().size;
  if (info_of(op).family == FamilyRule::kRows && !largest.dims->dims.empty() &&
      annotation.reduces(largest.dims->dims.back().back(), 0))
    name += ".rows";
  return {name, {as_size(box.volume() / std::max<int64_t>(width, 1)), as_size(width)}};
}

FamilyKey table_family(const Program& program, const Op& op, const Compute& compute,
                       std::string name) {
  // Operands: an update by rows has (table, states, ids, dy, ...); a look-up has (ids, table, ...)
  // -> y; its gradient has (ids, dy, ...) -> dtable.
  if (info_of(op).bytes == ByteRule::kRows) {
    int64_t ids = 0;
    for (size_t i = 0; i < compute.inputs.size(); ++i) {
      if (!is_floating(program.buffer(compute.inputs[i].buffer).dtype))
        ids += compute.inputs[i].box.volume();
    }
    return {name, {as_size(ids), as_size(compute.inputs[0].box.dims.back().size)}};
  }
  const bool forward = info_of(op).bytes != ByteRule::kTableGrad;
  const View& rows = compute.inputs[1];
  const int64_t width = rows.box.rank() == 0 ? 1 : rows.box.dims.back().size;
  const double count = as_size(compute.inputs[0].box.volume());
  if (forward) return {name, {count, as_size(width)}};
  const Box& table = compute.outputs[0].view.box;
  return {name, {count, as_size(width), as_size(table.volume() / std::max<int64_t>(width, 1))}};
}

FamilyKey bytes_family(const Program& program, const Compute& compute, std::string name) {
  int64_t moved = 0;
  for (const View& view : compute.inputs) moved += bytes(program, view);
  for (const Output& output : compute.outputs) moved += bytes(program, output.view);
  return {name, {as_size(moved)}};
}

bool writes_nothing(const Compute& compute) {
  return std::all_of(compute.outputs.begin(), compute.outputs.end(),
                     [](const Output& output) { return output.view.box.empty(); });
}

DType main_dtype(const Program& program, const Compute& compute) {
  for (const View& view : compute.inputs) {
    const DType dtype = program.buffer(view.buffer).dtype;
    if (is_floating(dtype)) return dtype;
  }
  return compute.outputs.empty() ? DType::kFloat32
                                 : program.buffer(compute.outputs[0].view.buffer).dtype;
}

}  // namespace

FamilyKey family_of(const Graph& graph, const Program& program, const Compute& compute) {
  const Op& op = graph.op(compute.op);
  if (writes_nothing(compute) || compute.box.empty()) return {};
  const std::string name =
      fmt::format("{}.{}", compute.kind, dtype_name(main_dtype(program, compute)));
  FamilyKey key;
  switch (info_of(op).family) {
    case FamilyRule::kProduct: key = einsum_family(compute, op.annotation, name); break;
    case FamilyRule::kConvolution: key = convolution_family(compute, op.annotation, name); break;
    case FamilyRule::kNamed: key = named_family(op, compute, name); break;
    case FamilyRule::kTable: key = table_family(program, op, compute, name); break;
    case FamilyRule::kRows:
    case FamilyRule::kByAnnotation:
      if (op.phase == Phase::kUpdate) {
        key = {name, {as_size(volume(*largest_operand(compute, op.annotation).view))}};
      } else if (is_elementwise(op.annotation)) {
        key = bytes_family(program, compute, name);
      } else {
        key = rows_family(compute, op, name);
      }
      break;
  }
  // A gradient that is summed over several micro-batches is set in the first and added to in all
  // others, so it counts as added to.
  const bool adds =
      std::any_of(compute.outputs.begin(), compute.outputs.end(), [&](const Output& output) {
        return output.write == Write::kAdd ||
               (output.write == Write::kAddExceptFirst && program.micro_batches > 1);
      });
  if (adds) key.name += ".add";
  return key;
}

FamilyKey family_of(const Program& program, const Copy& copy) {
  if (copy.to.box.empty()) return {};
  const DType dtype = program.buffer(copy.from.buffer).dtype;
  return {fmt::format("copy.{}{}", dtype_name(dtype), copy.write == Write::kSet ? "" : ".add"),
          {as_size(bytes(program, copy.from) + bytes(program, copy.to))}};
}

std::vector<std::string> size_names(const FamilyKey& key) {
  const KindInfo* kind = find_kind(key.name.substr(0, key.name.find('.')));
  if (kind != nullptr) {
    std::vector<std::string> names;
    switch (kind->family) {
      case FamilyRule::kProduct: return {"batch", "m", "n", "k"};
      case FamilyRule::kConvolution: return {"m", "n", "k"};
      case FamilyRule::kNamed:
        for (const NamedSize& size : kind->sizes) names.push_back(size.name);
        return names;
      case FamilyRule::kTable:
      case FamilyRule::kRows:
      case FamilyRule::kByAnnotation: break;
    }
  }
  switch (key.size.size()) {
    case 1: return {kind != nullptr && kind->optimizer ? "elements" : "size"};
    case 2: return {"rows", "width"};
    default: return {"rows", "width", "vocab"};
  }
}

std::vector<std::string> unmeasured_kinds(const Profile& profile) {
  std::set<std::string, std::less<>> measured;
  for (const auto& [name, family] : profile.families) {
    if (!family.samples.empty()) measured.insert(name.substr(0, name.find('.')));
  }
  std::vector<std::string> out;
  for (const KindInfo* kind : all_kinds()) {
    if (!measured.contains(kind->name)) out.emplace_back(kind->name);
  }
  return out;
}

// ---- look-up
namespace {

constexpr size_t kMost = 5;  // most unknowns of a fit: a constant and four sizes
using Row = std::array<double, kMost + 1>;

double log_work(const std::vector<double>& size) {
  return std::accumulate(size.begin(), size.end(), 0.0,
                         [](double sum, double one) { return sum + std::log(one); });
}

// Solves a system of n linear equations in place. Column n is the right side before and the
// solution after.
void solve(std::array<Row, kMost>& rows, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    size_t pivot = i;
    for (size_t r = i + 1; r < n; ++r)
      if (std::abs(rows[r][i]) > std::abs(rows[pivot][i])) pivot = r;
    std::swap(rows[i], rows[pivot]);
    for (size_t r = 0; r < n; ++r) {
      if (r == i) continue;
      const double factor = rows[r][i] / rows[i][i];
      for (size_t c = i; c <= n; ++c) rows[r][c] -= factor * rows[i][c];
      rows[r][i] = 0;
    }
  }
  for (size_t i = 0; i < n; ++i) rows[i][n] /= rows[i][i];
}

struct Bounds {
  std::vector<double> low, high;  // range of the logarithm of each size
};
Bounds bounds_of(const Family& family, size_t n) {
  Bounds bounds{std::vector<double>(n, 1e300), std::vector<double>(n, -1e300)};
  for (const Sample& sample : family.samples) {
    for (size_t d = 0; d < n; ++d) {
      bounds.low[d] = std::min(bounds.low[d], std::log(sample.size[d]));
      bounds.high[d] = std::max(bounds.high[d], std::log(sample.size[d]));
    }
  }
  return bounds;
}

}  // namespace

Measured interpolate(const Family& family, const std::vector<double>& size) {
  for (const Sample& sample : family.samples)
    if (sample.size == size) return {sample.seconds, true, sample.spread / 2};
  const size_t n = std::min(size.size(), kMost - 1);
  const Bounds bounds = bounds_of(family, n);
  std::vector<double> at(n);
  double outside = 0;
  for (size_t d = 0; d < n; ++d) {
    const double wanted = std::log(std::max(size[d], 1.0));
    at[d] = std::clamp(wanted, bounds.low[d], bounds.high[d]);
    outside += std::abs(wanted - at[d]);
  }
  // Solves log(seconds / work) = c0 + c . (log size - at) by weighted least squares; c0 is the
  // value at `at`. The ridge term makes a slope 0 if the near samples do not determine it.
  double nearest = 1e300;
  std::vector<double> distances;
  for (const Sample& sample : family.samples) {
    double sum = 0;
    for (size_t d = 0; d < n; ++d) {
      const double delta = std::log(sample.size[d]) - at[d];
      sum += delta * delta;
    }
    distances.push_back(sum);
    nearest = std::min(nearest, sum);
  }
  // distance of log sizes (a factor of 1.6) within which samples count fully
  constexpr double kWidth = 0.5;
  constexpr double kRidge = 0.05;  // added to the diagonal for the slopes
  const double width = std::max(kWidth * kWidth, nearest);
  std::array<Row, kMost> rows{};
  for (size_t s = 0; s < family.samples.size(); ++s) {
    const Sample& sample = family.samples[s];
    const double weight =
        std::exp(-(distances[s] - nearest) / (2 * width)) / (1 + distances[s] / width);
    std::array<double, kMost> x{1};
    for (size_t d = 0; d < n; ++d) x[d + 1] = std::log(sample.size[d]) - at[d];
    const double y = std::log(sample.seconds) - log_work(sample.size);
    for (size_t i = 0; i <= n; ++i) {
      for (size_t j = 0; j <= n; ++j) rows[i][j] += weight * x[i] * x[j];
      rows[i][n + 1] += weight * x[i] * y;
    }
  }
  for (size_t i = 1; i <= n; ++i) rows[i][i] += kRidge;
  solve(rows, n + 1);
  Measured result;
  result.seconds = std::exp(rows[0][n + 1] + log_work(size));
  result.uncertainty = 0.05 + 0.1 * std::sqrt(nearest) + 0.3 * outside;
  return result;
}

const Family* find_family(const Profile& profile, std::string_view name, int64_t ranks,
                          const std::vector<double>& size) {
  constexpr size_t kFew = 4;  // a family with fewer samples says little about other sizes
  const auto says_enough = [&](const Family& family) {
    if (family.samples.size() >= kFew) return true;
    return std::any_of(family.samples.begin(), family.samples.end(),
                       [&](const Sample& sample) { return sample.size == size; });
  };
  const Family* poor = nullptr;  // the first family found for which says_enough is false
  const auto at = [&](std::string_view base, int64_t side_by_side) -> const Family* {
    const auto found = profile.families.find(fmt::format("{}@{}", base, side_by_side));
    return found == profile.families.end() || found->second.samples.empty() ? nullptr
                                                                            : &found->second;
  };
  const auto without = [](std::string_view from, std::string_view suffix) {
    std::string result(from);
    if (const size_t place = result.find(suffix); place != std::string::npos)
      result.erase(place, suffix.size());
    return result;
  };
  const std::string plain = without(name, ".add");
  // Tries the number of ranks itself, then larger numbers up to twice as many, then
  // smaller numbers.
  std::vector<int64_t> order{ranks};
  for (int64_t more = ranks + 1; more <= 2 * ranks; ++more) order.push_back(more);
  for (int64_t fewer = ranks - 1; fewer >= 1; --fewer) order.push_back(fewer);
  for (const int64_t count : order) {
    for (const std::string& one :
         {std::string(name), plain, plain + ".add", without(plain, ".bias"), plain + ".bias"}) {
      const Family* found = at(one, count);
      if (found == nullptr) continue;
      if (says_enough(*found)) return found;
      if (poor == nullptr) poor = found;
    }
  }
  return poor;
}

}  // namespace tessera
