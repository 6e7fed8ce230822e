// Formulas of kinds that move elements to other places, and of what depends on a place.
#include <ATen/ATen.h>

#include <algorithm>
#include <functional>

#include "tessera/base/check.h"
#include "tessera/graph/order.h"
#include "tessera/graph/within.h"
#include "tessera/runtime/formulas/call.h"
#include "tessera/runtime/kernels/family.h"

namespace tessera::kernels {
namespace {

Values regrouped(const Call& c) { return {c.regrouped(c.aligned(0))}; }

// Returns pads for constant_pad_nd of one dim of a tensor.
std::vector<int64_t> pads_of(const at::Tensor& x, int64_t dim, int64_t before, int64_t behind) {
  std::vector<int64_t> pads(static_cast<size_t>(2 * (x.dim() - dim)), 0);
  pads[pads.size() - 2] = before;
  pads[pads.size() - 1] = behind;
  return pads;
}

// ---- parts of blocks
// The blocks of the dim that an op cuts or joins, in a piece. Blocks may differ in size, the first
// ones being longer by one; so a piece has one or two runs of equal blocks.
class Blocks {
 public:
  struct Run {
    int64_t begin = 0, count = 1;  // numbers of blocks
  };

  explicit Blocks(const Call& c) : c_(c) {
    const Annotation& annotation = c.op().annotation;
    position_ = position();
    if (blocks() == 1) {
      runs_ = {{}};
      return;
    }
    const int dim = annotation.find(c.op().text("dim"));
    Interval here = c.box().dims[static_cast<size_t>(dim)];
    int64_t longer = 0;  // how many blocks are longer
    const auto look = [&](const OperandDims& operand) {
      const int64_t extent = uneven_extent(annotation.dims, operand.dims[position_]);
      if (extent >= 0) longer = extent % blocks();
    };
    for (const OperandDims& operand : annotation.inputs) look(operand);
    look(annotation.outputs[0]);
    for (const Interval part : {Interval{0, longer}, Interval{longer, blocks() - longer}}) {
      const Interval run = intersect(here, part);
      if (!run.empty()) runs_.push_back({run.begin, run.size});
    }
  }

  const std::vector<Run>& runs() const { return runs_; }
  // Returns the dim of the places in each block.
  int64_t places() const { return static_cast<int64_t>(position_) + 1; }
  // Returns the elements of a run of an input, with a dim for blocks and one for places in them.
  at::Tensor input(size_t i, const Run& run) const {
    const OperandDims& operand = c_.op().annotation.inputs[i];
    const at::Tensor x = c_.stored(i);
    const auto dim = static_cast<int64_t>(position_);
    const int64_t size = size_of(operand, x.size(dim), run);
    return x.narrow(dim, before(operand, run), run.count * size).unflatten(dim, {run.count, size});
  }
  // Returns the size of the blocks of a run of the output.
  int64_t output_size(const Run& run) const {
    return size_of(c_.op().annotation.outputs[0], c_.output_size(0, position_), run);
  }
  // Returns what make(run) gives for each run as one tensor.
  Values joined(const std::function<at::Tensor(const Run&)>& make) const {
    std::vector<at::Tensor> parts;
    for (const Run& run : runs_)
      parts.push_back(make(run).flatten(static_cast<int64_t>(position_), places()));
    return {parts.size() == 1 ? parts[0] : at::cat(parts, static_cast<int64_t>(position_))};
  }

 private:
  int64_t blocks() const { return c_.op().integer("blocks"); }
  // Returns the place of the dim that the op cuts or joins. The output may call it otherwise.
  size_t position() const {
    const int dim = c_.op().annotation.find(c_.op().text("dim"));
    for (const OperandDims* operand :
         {&c_.op().annotation.outputs[0], &c_.op().annotation.inputs[0]}) {
      for (size_t t = 0; t < operand->dims.size(); ++t) {
        const DimGroup& group = operand->dims[t];
        if (std::find(group.begin(), group.end(), dim) != group.end()) return t;
      }
    }
    TESSERA_CHECK(false, "{}: no dim {}", c_.op().path, c_.op().text("dim"));
  }
  // Returns block number `block` of an operand in its whole dim.
  Interval block_of(const OperandDims& operand, int64_t block) const {
    const auto& dims = c_.op().annotation.dims;
    const DimGroup& group = operand.dims[position_];
    const int64_t uneven = uneven_extent(dims, group);
    const int64_t extent =
        uneven >= 0 ? uneven : blocks() * dims[static_cast<size_t>(group.back())].size;
    return split_interval({0, extent}, blocks(), block);
  }
  int64_t size_of(const OperandDims& operand, int64_t whole, const Run& run) const {
    return blocks() == 1 ? whole : block_of(operand, run.begin).size;
  }
  // Returns how many elements the blocks of the piece in front of the run have.
  int64_t before(const OperandDims& operand, const Run& run) const {
    if (blocks() == 1) return 0;
    return block_of(operand, run.begin).begin - block_of(operand, runs_.front().begin).begin;
  }

  const Call& c_;
  size_t position_ = 0;
  std::vector<Run> runs_;
};

Values slice(const Call& c) {
  const Blocks blocks(c);
  return blocks.joined([&](const Blocks::Run& run) {
    return blocks.input(0, run).narrow(blocks.places(), c.op().integer("begin"),
                                       blocks.output_size(run));
  });
}

Values padded_with(const Call& c, double value) {
  const Blocks blocks(c);
  return blocks.joined([&](const Blocks::Run& run) {
    const at::Tensor part = blocks.input(0, run);
    const int64_t begin = c.op().integer("begin"),
                  behind = blocks.output_size(run) - begin - part.size(blocks.places());
    return at::constant_pad_nd(part, pads_of(part, blocks.places(), begin, behind), value);
  });
}

Values concat(const Call& c) {
  const Blocks blocks(c);
  return blocks.joined([&](const Blocks::Run& run) {
    std::vector<at::Tensor> parts;
    for (size_t i = 0; i < c.inputs(); ++i) parts.push_back(blocks.input(i, run));
    return at::cat(parts, blocks.places());
  });
}

// ---- orders and places
Values roll(const Call& c) {
  return {at::roll(c.stored(0), c.op().integer("shift"), c.dim(0, c.op().text("dim")))};
}

Values reorder(const Call& c) {
  const at::Tensor x = c.stored(0);
  const int64_t dim = c.dim(0, c.op().text("dim")), size = x.size(dim);
  const auto order = parse_order(c.op().text("order"));
  TESSERA_CHECK(order.has_value(), "{}: order {}", c.op().path, c.op().text("order"));
  const at::Tensor made = at::empty_like(x);
  for (const OpRun& run : runs_of(*order, size, {0, size})) {
    const auto natural = [&](const at::Tensor& of) {
      return of.slice(dim, run.first, run.first + (run.size - 1) * run.stride + 1, run.stride);
    };
    const auto ordered = [&](const at::Tensor& of) { return of.narrow(dim, run.index, run.size); };
    if (c.op().integer("inverse") != 0) {
      natural(made).copy_(ordered(x));
    } else {
      ordered(made).copy_(natural(x));
    }
  }
  return {made};
}

Values collect(const Call& c) {
  const at::Tensor x = c.stored(0);
  const std::string dim = c.op().text("dim");
  const int64_t place = c.dim(0, dim);
  const Interval own = c.box().dims[static_cast<size_t>(c.op().annotation.find(dim))];
  const int64_t behind = c.output_size(0, static_cast<size_t>(place)) - own.end();
  return {at::constant_pad_nd(x, pads_of(x, place, own.begin, behind))};
}

// Returns the index of each element of a piece in the larger dim in which `place` puts the op's.
at::Tensor indices_of(const Within& place, int64_t size, Interval piece, const at::Tensor& like) {
  const at::Tensor i = at::arange(piece.begin, piece.end(), like.options().dtype(at::kLong));
  const auto block_of = [](const at::Tensor& at, int64_t whole, int64_t blocks) {
    const int64_t shortest = whole / blocks, longer = whole % blocks;
    const int64_t of_longer = longer * (shortest + 1);
    return at::where(at < of_longer, at::floor_divide(at, shortest + 1),
                     longer + at::floor_divide(at - of_longer, std::max<int64_t>(shortest, 1)));
  };
  const auto begin_of = [](const at::Tensor& block, int64_t whole, int64_t blocks) {
    return block * (whole / blocks) + at::clamp_max(block, whole % blocks);
  };
  const at::Tensor block = block_of(i, size, place.blocks);
  return begin_of(block, place.whole, place.blocks) + place.begin + i -
         begin_of(block, size, place.blocks);
}

Values sinusoid_add(const Call& c) {
  const Op& op = c.op();
  const at::Tensor x = c.aligned(0);
  const std::vector<int> order = c.dims_of_output(0);
  const int row = op.annotation.find(op.text("dim"));
  const OpDim& row_dim = op.annotation.dims[static_cast<size_t>(row)];
  const auto within = parse_within(op.text("within"));
  TESSERA_CHECK(within.has_value(), "{}", op.path);
  Within place{row_dim.name, 0, row_dim.size, 1};
  for (const Within& one : *within) {
    if (one.dim == row_dim.name) place = one;
  }
  const auto at_dim = [&](int dim, const at::Tensor& values) {
    std::vector<int64_t> shape(order.size(), 1);
    shape[static_cast<size_t>(std::find(order.begin(), order.end(), dim) - order.begin())] = -1;
    return values.reshape(shape);
  };
  const auto box = [&](int dim) { return c.box().dims[static_cast<size_t>(dim)]; };
  const at::Tensor positions = at_dim(row, indices_of(place, row_dim.size, box(row), x)),
                   columns = at_dim(order.back(),
                                    at::arange(box(order.back()).begin, box(order.back()).end(),
                                               positions.options()));
  const auto features =
      static_cast<double>(op.annotation.dims[static_cast<size_t>(order.back())].size);
  const at::Tensor odd = at::remainder(columns, 2);
  const at::Tensor exponents = (columns - odd).to(at::kDouble) / features;
  const at::Tensor angles =
      positions.to(at::kDouble) /
      at::pow(at::full({}, op.number("base"), exponents.options()), exponents);
  const at::Tensor waves = at::where(odd == 0, at::sin(angles), at::cos(angles));
  return {x + waves.to(x.scalar_type())};
}

}  // namespace

std::span<const Formula> moving_formulas() {
  static const std::vector<Formula> formulas = {
      {"group", regrouped},
      {"ungroup", regrouped},
      {"rearrange", regrouped},
      {"slice", slice},
      {"slice_grad", [](const Call& c) -> Values { return padded_with(c, 0); }},
      {"pad", [](const Call& c) -> Values { return padded_with(c, c.number("value")); }},
      {"concat", concat},
      {"collect", collect},
      {"roll", roll},
      {"reorder", reorder},
      {"sinusoid_add", sinusoid_add},
  };
  return formulas;
}

}  // namespace tessera::kernels
