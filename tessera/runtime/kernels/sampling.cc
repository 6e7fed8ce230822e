// resize, grid_sample and their gradients. A piece may have only an interval of a dim along which
// values are interpolated. Neighbours outside of this interval belong to other pieces and count as
// 0 here, so the sum over the pieces is right.
#include "tessera/runtime/kernels/sampling.h"

#include <ATen/ops/index_add.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "tessera/base/text.h"
#include "tessera/runtime/kernels/maps.h"
#include "tessera/runtime/kernels/nest.h"
#include "tessera/runtime/kernels/windows/windows.h"

namespace tessera::kernels {
namespace {

// ---- resize
// For each element of y along a dim: the elements of x from which it is interpolated, and their
// weights. These are the two elements of x on both sides of it, or only the nearest one. Places
// count from the first element of the piece of x; an element of x outside of the piece gets place 0
// and weight 0.
struct Neighbours {
  int64_t dim = 0;
  std::vector<at::Tensor> places;   // int64
  std::vector<at::Tensor> weights;  // in the compute type, with size 1 along the other dims
};

struct Sizes {
  Interval piece;
  int64_t whole = 1;
};

Neighbours neighbours_of(const Sizes& y, const Sizes& x, bool linear, bool corners) {
  std::array<std::vector<int64_t>, 2> places;
  std::array<std::vector<double>, 2> weights;
  for (int64_t i = y.piece.begin; i < y.piece.end(); ++i) {
    int64_t low = i * x.whole / y.whole;
    double beyond = 0;  // how far y's element is from `low` to the next one, 0..1
    if (linear) {
      const auto at = static_cast<double>(i), from = static_cast<double>(x.whole),
                 to = static_cast<double>(y.whole);
      double place = (at + 0.5) * from / to - 0.5;
      if (corners) place = y.whole > 1 ? at * (from - 1) / (to - 1) : 0;
      place = std::max(place, 0.0);
      low = std::min(static_cast<int64_t>(place), x.whole - 1);
      beyond = place - static_cast<double>(low);
    }
    const std::array<int64_t, 2> of = {low, std::min(low + 1, x.whole - 1)};
    const std::array<double, 2> by = {1 - beyond, beyond};
    for (size_t k = 0; k < of.size(); ++k) {
      const int64_t place = of[k] - x.piece.begin;
      const bool there = place >= 0 && place < x.piece.size;
      places[k].push_back(there ? place : 0);
      weights[k].push_back(there ? by[k] : 0.0);
    }
  }
  Neighbours out;
  for (size_t k = 0; k < (linear ? 2 : 1); ++k) {
    out.places.push_back(at::tensor(places[k]));
    out.weights.push_back(at::tensor(weights[k]));
  }
  return out;
}

// Returns the neighbours for each dim in which x and y have different sizes.
std::vector<Neighbours> all_neighbours(const KernelCall& call, const OperandDims& x,
                                       const OperandDims& y) {
  const bool linear = call.op->text("mode") == "linear", corners = call.op->integer("corners") != 0;
  const auto type = call.outputs[0].dtype == DType::kFloat64 ? at::kDouble : at::kFloat;
  std::vector<Neighbours> out;
  for (size_t d = 0; d < x.dims.size(); ++d) {
    const Sizes of_x = {interval_of(*call.op, call.box, x, d), extent_of(*call.op, x, d)},
                of_y = {interval_of(*call.op, call.box, y, d), extent_of(*call.op, y, d)};
    if (of_x.whole == of_y.whole) continue;
    Neighbours n = neighbours_of(of_y, of_x, linear, corners);
    n.dim = static_cast<int64_t>(d);
    std::vector<int64_t> shape(x.dims.size(), 1);
    shape[d] = of_y.piece.size;
    for (at::Tensor& weights : n.weights) weights = weights.to(type).reshape(shape);
    out.push_back(std::move(n));
  }
  return out;
}

// Prepares the kernel with input x and output y.
Kernel resize(const KernelCall& call) {
  const Annotation& annotation = call.op->annotation;
  const std::vector<Neighbours> all =
      all_neighbours(call, annotation.inputs[0], annotation.outputs[0]);
  return [all, x = call.inputs[0], y = call.outputs[0], add = call.add[0]] {
    at::Tensor values = at_least_float(x);
    for (const Neighbours& n : all) {
      at::Tensor next;
      for (size_t k = 0; k < n.places.size(); ++k) {
        const at::Tensor part = at::index_select(values, n.dim, n.places[k]).mul(n.weights[k]);
        next = k == 0 ? part : next.add(part);
      }
      values = next;
    }
    put(y, values, add);
  };
}

// Prepares the kernel with input dy and output dx.
Kernel resize_grad(const KernelCall& call) {
  const Annotation& annotation = call.op->annotation;
  const std::vector<Neighbours> all =
      all_neighbours(call, annotation.outputs[0], annotation.inputs[0]);
  return [all, dy = call.inputs[0], dx = call.outputs[0], add = call.add[0]] {
    at::Tensor values = at_least_float(dy);
    for (const Neighbours& n : all) {
      std::vector<int64_t> shape = values.sizes().vec();
      shape[static_cast<size_t>(n.dim)] = dx.shape[static_cast<size_t>(n.dim)];
      at::Tensor sums = at::zeros(shape, values.options());
      for (size_t k = 0; k < n.places.size(); ++k) {
        sums = at::index_add(sums, n.dim, n.places[k], values.mul(n.weights[k]));
      }
      values = sums;
    }
    put(dx, values, add);
  };
}

// ---- grid_sample
constexpr size_t kMostGridDims = 3;

// A corner of the grid cell that contains a point: the corner's offset in bytes from the first
// place of the grid's piece, its weight, and the derivative of the weight by each coordinate.
template <class A>
struct Corner {
  int64_t offset = 0;
  A weight = 1;
  std::array<A, kMostGridDims> slope{1, 1, 1};
};

template <class A>
struct Corners {
  std::array<Corner<A>, 8> all;
  size_t count = 0;
  const Corner<A>* begin() const { return all.data(); }
  const Corner<A>* end() const { return all.data() + count; }
};

// A dim of the grid along which points are interpolated.
struct GridDim {
  int64_t size = 1;  // size of the whole grid
  Interval piece;
  int64_t step = 0;       // bytes
  size_t coordinate = 0;  // the coordinate of a point along this dim
};

std::vector<GridDim> grid_dims(const KernelCall& call, const Array& grid,
                               const OperandDims& operand) {
  std::vector<GridDim> out;
  const Annotation& annotation = call.op->annotation;
  std::vector<int64_t> coordinates = numbers_of(*call.op, "coordinates", 0);
  if (coordinates.empty()) coordinates = {0, 1, 2};
  for (const std::string& name : split_text(call.op->text("dims"), ' ')) {
    if (name.empty()) continue;
    const int dim = annotation.find(name);
    const auto dims = op_dims(operand);
    const auto at = static_cast<size_t>(std::find(dims.begin(), dims.end(), dim) - dims.begin());
    out.push_back(
        {annotation.dims[static_cast<size_t>(dim)].size, call.box.dims[static_cast<size_t>(dim)],
         grid.strides[at] * dtype_bytes(grid.dtype), static_cast<size_t>(coordinates[out.size()])});
  }
  return out;
}

// Returns those corners of the point's cell that the piece of the grid has. A coordinate is -1 at
// the first place of a dim and 1 at the last place.
template <class A>
Corners<A> corners_of(const std::vector<GridDim>& dims, const std::byte* point, int64_t step,
                      DType dtype) {
  Corners<A> out;
  out.count = 1;
  for (size_t d = 0; d < dims.size(); ++d) {
    const GridDim& dim = dims[d];
    const A half = static_cast<A>(dim.size - 1) / 2;
    const A place =
        (load_element<A>(point + static_cast<int64_t>(dim.coordinate) * step, dtype) + 1) * half;
    const Corners<A> before = out;
    out.count = 0;
    if (!(place > -1 && place < static_cast<A>(dim.size))) return out;  // true also for a NaN
    const A low = std::floor(place);
    const A beyond = place - low;
    for (int side = 0; side < 2; ++side) {
      const int64_t at = static_cast<int64_t>(low) + side - dim.piece.begin;
      if (at < 0 || at >= dim.piece.size) continue;
      const A weight = side == 0 ? 1 - beyond : beyond, slope = side == 0 ? -half : half;
      for (const Corner<A>& corner : before) {
        Corner<A>& made = out.all[out.count++];
        made = corner;
        made.offset += at * dim.step;
        made.weight *= weight;
        for (size_t other = 0; other < dims.size(); ++other)
          made.slope[other] *= other == d ? slope : weight;
      }
    }
  }
  return out;
}

// The points of a call, and the channels: the elements at one place of the grid.
struct Points {
  // Reads the call. `sample_array` is y or its gradient, `grid_array` is the grid or its gradient.
  Points(const KernelCall& call, const Array& grid_array, const OperandDims& grid_operand,
         const Array& point_array, const OperandDims& point_operand, const Array& sample_array,
         const OperandDims& sample_operand)
      : dims(grid_dims(call, grid_array, grid_operand)),
        dtype(point_array.dtype),
        step(point_array.strides.back() * dtype_bytes(point_array.dtype)) {
    lead = op_dims(point_operand);
    lead.pop_back();
    std::vector<int> rest = op_dims(sample_operand);
    std::erase_if(rest,
                  [&](int dim) { return std::find(lead.begin(), lead.end(), dim) != lead.end(); });
    points = align(point_array, point_operand, lead, call.box);
    sample = align(sample_array, sample_operand, lead, call.box);
    grid = align(grid_array, grid_operand, lead, call.box);
    const Array of_sample = align(sample_array, sample_operand, rest, call.box),
                of_grid = align(grid_array, grid_operand, rest, call.box);
    std::byte* const from_sample = of_sample.data;
    std::byte* const from_grid = of_grid.data;
    Nest<2>({&of_sample, &of_grid}, rest.size()).each([&](const std::array<std::byte*, 2>& at) {
      channels.push_back({at[0] - from_sample, at[1] - from_grid});
    });
  }

  template <class A>
  Corners<A> corners(const std::byte* point) const {
    return corners_of<A>(dims, point, step, dtype);
  }

  struct Channel {
    int64_t sample = 0, grid = 0;  // bytes
  };
  std::vector<GridDim> dims;
  DType dtype;
  int64_t step;
  std::vector<int> lead;
  Array points, sample, grid;
  std::vector<Channel> channels;
};

// Prepares the kernel with inputs (grid, points) and output y.
Kernel grid_sample(const KernelCall& call) {
  return with_compute_type(call.outputs[0].dtype, [&]<class A>() -> Kernel {
    const Annotation& a = call.op->annotation;
    const Points p(call, call.inputs[0], a.inputs[0], call.inputs[1], a.inputs[1], call.outputs[0],
                   a.outputs[0]);
    const Nest<3> nest({&p.sample, &p.points, &p.grid}, p.lead.size());
    return [p, nest, add = call.add[0], dtype = call.outputs[0].dtype] {
      nest.each([&](const std::array<std::byte*, 3>& at) {
        const Corners<A> corners = p.corners<A>(at[1]);
        for (const Points::Channel& channel : p.channels) {
          std::byte* to = at[0] + channel.sample;
          A sum = add ? load_element<A>(to, dtype) : A{0};
          for (const Corner<A>& corner : corners)
            sum += corner.weight * load_element<A>(at[2] + channel.grid + corner.offset, dtype);
          store_element(to, dtype, sum);
        }
      });
    };
  });
}

// Prepares the kernel with inputs (dy, points), attributes (dims, grid) and output dgrid. Sums in
// float or double; if dgrid has another type, sums in scratch memory.
Kernel grid_sample_grad(const KernelCall& call) {
  return with_compute_type(call.outputs[0].dtype, [&]<class A>() -> Kernel {
    const Annotation& a = call.op->annotation;
    const Array& out = call.outputs[0];
    Array sums = out;
    const bool direct = dtype_bytes(out.dtype) == static_cast<int64_t>(sizeof(A));
    int64_t elements = 1;
    for (const int64_t size : out.shape) elements *= size;
    if (!direct) {
      sums =
          Array::contiguous(call.context->scratch.take(elements * static_cast<int64_t>(sizeof(A))),
                            DType::kFloat32, out.shape);
    }
    const Points p(call, sums, a.outputs[0], call.inputs[1], a.inputs[1], call.inputs[0],
                   a.inputs[0]);
    const Nest<3> nest({&p.sample, &p.points, &p.grid}, p.lead.size());
    const Nest<2> result({&out, &sums}, out.shape.size());
    return [p, nest, result, direct, add = call.add[0], dtype = out.dtype, wide = sums.dtype] {
      if (!direct || !add) {
        result.each([&](const std::array<std::byte*, 2>& at) { store_element(at[1], wide, A{0}); });
      }
      nest.each([&](const std::array<std::byte*, 3>& at) {
        const Corners<A> corners = p.corners<A>(at[1]);
        for (const Points::Channel& channel : p.channels) {
          const A dy = load_element<A>(at[0] + channel.sample, dtype);
          for (const Corner<A>& corner : corners) {
            std::byte* sum = at[2] + channel.grid + corner.offset;
            store_element(sum, wide, load_element<A>(sum, wide) + corner.weight * dy);
          }
        }
      });
      if (direct) return;
      result.each([&](const std::array<std::byte*, 2>& at) {
        const A old = add ? load_element<A>(at[0], dtype) : A{0};
        store_element(at[0], dtype, old + load_element<A>(at[1], wide));
      });
    };
  });
}

// Prepares the kernel with inputs (dy, grid, points), attribute dims and output dpoints.
Kernel grid_sample_points_grad(const KernelCall& call) {
  return with_compute_type(call.outputs[0].dtype, [&]<class A>() -> Kernel {
    const Annotation& a = call.op->annotation;
    const Points p(call, call.inputs[1], a.inputs[1], call.inputs[2], a.inputs[2], call.inputs[0],
                   a.inputs[0]);
    const Array out = align(call.outputs[0], a.outputs[0], p.lead, call.box);
    const int64_t step = call.outputs[0].strides.back() * dtype_bytes(call.outputs[0].dtype),
                  coordinates = call.outputs[0].shape.back();
    const Nest<4> nest({&out, &p.sample, &p.points, &p.grid}, p.lead.size());
    // The copies of the closure share this memory, which is safe because a rank runs one kernel at
    // a time.
    const auto shared = std::make_shared<std::vector<A>>(static_cast<size_t>(coordinates));
    return [p, nest, step, shared, add = call.add[0], dtype = call.outputs[0].dtype] {
      std::vector<A>& sums = *shared;
      nest.each([&](const std::array<std::byte*, 4>& at) {
        std::fill(sums.begin(), sums.end(), A{0});
        for (const Corner<A>& corner : p.corners<A>(at[2])) {
          A product = 0;
          for (const Points::Channel& channel : p.channels) {
            product += load_element<A>(at[1] + channel.sample, dtype) *
                       load_element<A>(at[3] + channel.grid + corner.offset, dtype);
          }
          for (size_t d = 0; d < p.dims.size(); ++d)
            sums[p.dims[d].coordinate] += corner.slope[d] * product;
        }
        for (size_t d = 0; d < sums.size(); ++d) {
          std::byte* to = at[0] + static_cast<int64_t>(d) * step;
          const A old = add ? load_element<A>(to, dtype) : A{0};
          store_element(to, dtype, old + sums[d]);
        }
      });
    };
  });
}

constexpr KernelInfo kSamplingKernels[] = {
    {"resize", resize, 0b1},
    {"resize_grad", resize_grad, 0b1},
    {"grid_sample", grid_sample, 0b1},
    {"grid_sample_grad", grid_sample_grad, 0b1},
    {"grid_sample_points_grad", grid_sample_points_grad, 0b1},
};

}  // namespace

std::span<const KernelInfo> sampling_kernels() { return kSamplingKernels; }

}  // namespace tessera::kernels
