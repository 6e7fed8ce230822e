// Kinds that move elements: broadcast, (un)group, transpose, rename, rearrange, roll, slice,
// concat, fill, stop_gradient; and rotary embedding. All of them except rotary embedding are
// strided copies. If an operand has a bracket (several op dims that make one tensor dim), the copy
// is over the op dims.
#include <ATen/ops/fill.h>
#include <ATen/ops/zero.h>

#include <algorithm>

#include "tessera/runtime/kernels/nest.h"
#include "tessera/runtime/kernels/row_loops/rows.h"
#include "tessera/runtime/kernels/tensor.h"

namespace tessera::kernels {
namespace {

// Copies the input to the output along the output's op dims. This is the kernel of every kind that
// only renames, reorders, repeats or regroups dims.
Kernel copy_along(const KernelCall& call) {
  const auto order = op_dims(call.op->annotation.outputs[0]);
  return prepare_copy(input_along(call, 0, order), output_along(call, 0, order));
}

// Returns the position of the dim `name` among the tensor dims of an operand.
size_t position_of(const KernelCall& call, const OperandDims& operand, std::string_view name) {
  for (size_t t = 0; t < operand.dims.size(); ++t) {
    for (const int dim : operand.dims[t]) {
      if (call.op->annotation.dims[static_cast<size_t>(dim)].name == name) return t;
    }
  }
  TESSERA_CHECK(false, "{}: no dim {}", call.op->path, name);
}

Array part_of(Array array, size_t position, int64_t begin, int64_t size) {
  array.data += begin * array.strides[position] * dtype_bytes(array.dtype);
  array.shape[position] = size;
  return array;
}

// Returns the position of the tensor dim that the attribute `dim` names, the only dim in which the
// shapes of input and output may differ. Searches in the output, and then in the input, because
// some kinds give the dim of the output another op dim.
size_t cut_position(const KernelCall& call) {
  const std::string name = call.op->text("dim");
  const Annotation& annotation = call.op->annotation;
  for (const OperandDims* operand : {&annotation.outputs[0], &annotation.inputs[0]}) {
    for (size_t t = 0; t < operand->dims.size(); ++t) {
      for (const int dim : operand->dims[t]) {
        if (annotation.dims[static_cast<size_t>(dim)].name == name) return t;
      }
    }
  }
  return position_of(call, annotation.inputs[0], name);
}

// Returns a view of the array in which the dim at `position` is split into two dims: block, and
// place in the block. A piece has consecutive blocks.
Array in_blocks(const KernelCall& call, Array array, size_t position) {
  const int64_t blocks = call.op->integer("blocks");
  if (blocks == 1) {
    array.shape.insert(array.shape.begin() + static_cast<std::ptrdiff_t>(position), 1);
    array.strides.insert(array.strides.begin() + static_cast<std::ptrdiff_t>(position), 0);
    return array;
  }
  const int op_dim = call.op->annotation.find(call.op->text("dim"));
  const int64_t here = call.box.dims[static_cast<size_t>(op_dim)].size;
  const int64_t size = array.shape[position] / here, stride = array.strides[position];
  array.shape[position] = size;
  array.shape.insert(array.shape.begin() + static_cast<std::ptrdiff_t>(position), here);
  array.strides.insert(array.strides.begin() + static_cast<std::ptrdiff_t>(position),
                       stride * size);
  return array;
}

// Returns a view of block number `block` of an array. The op divides the tensor dim at `position`
// into blocks; the annotation says how many elements of this operand each block has. The array's
// memory begins with the first block of the piece.
Array block_of(const KernelCall& call, const OperandDims& operand, const Array& array,
               size_t position, int64_t block) {
  const Annotation& annotation = call.op->annotation;
  const DimGroup& group = operand.dims[position];
  const int64_t blocks = call.op->integer("blocks");
  const int64_t uneven = uneven_extent(annotation.dims, group);
  const int64_t extent =
      uneven >= 0 ? uneven : blocks * annotation.dims[static_cast<size_t>(group.back())].size;
  const Interval first =
      split_interval({0, extent}, blocks, call.box.dims[static_cast<size_t>(group.front())].begin);
  const Interval own = split_interval({0, extent}, blocks, block);
  return part_of(array, position, own.begin - first.begin, own.size);
}

// Returns whether the op divides the dim at `position` into blocks of different sizes.
bool is_uneven(const KernelCall& call, size_t position) {
  const Annotation& annotation = call.op->annotation;
  const auto uneven = [&](const OperandDims& operand) {
    return uneven_extent(annotation.dims, operand.dims[position]) >= 0;
  };
  return std::any_of(annotation.inputs.begin(), annotation.inputs.end(), uneven) ||
         uneven(annotation.outputs[0]);
}

// Calls make(kernels, block) for each block of the piece. Returns the kernels that these
// calls added.
template <class MakeKernels>
std::vector<Kernel> each_block(const KernelCall& call, const MakeKernels& make) {
  const int op_dim = call.op->annotation.find(call.op->text("dim"));
  const Interval here = call.box.dims[static_cast<size_t>(op_dim)];
  std::vector<Kernel> kernels;
  for (int64_t block = here.begin; block < here.end(); ++block) make(kernels, block);
  std::erase(kernels, nullptr);
  return kernels;
}

// Makes for each block a kernel that moves elements between the block of `part` and an interval of
// the block of `whole`, which begins at the attribute `begin`.
template <class Move>
std::vector<Kernel> parts_of_blocks(const KernelCall& call, const Array& whole,
                                    const OperandDims& whole_dims, const Array& part,
                                    const OperandDims& part_dims, size_t position,
                                    const Move& move) {
  return each_block(call, [&](std::vector<Kernel>& kernels, int64_t block) {
    const Array own = block_of(call, part_dims, part, position, block);
    kernels.push_back(move(part_of(block_of(call, whole_dims, whole, position, block), position,
                                   call.op->integer("begin"), own.shape[position]),
                           own));
  });
}

Kernel in_turn(std::vector<Kernel> kernels) {
  return [kernels = std::move(kernels)] {
    for (const Kernel& kernel : kernels) kernel();
  };
}

// Rolls a dim: the last `shift` elements come first.
Kernel roll(const KernelCall& call) {
  const size_t position = cut_position(call);
  const Array &x = call.inputs[0], &y = call.outputs[0];
  const int64_t size = x.shape[position];
  const int64_t shift = (call.op->integer("shift") % size + size) % size;
  const Kernel head = prepare_copy(part_of(x, position, size - shift, shift),
                                   part_of(y, position, 0, shift)),
               tail = prepare_copy(part_of(x, position, 0, size - shift),
                                   part_of(y, position, shift, size - shift));
  return [head, tail] {
    if (head) head();
    tail();
  };
}

Kernel slice(const KernelCall& call) {
  const size_t position = cut_position(call);
  if (is_uneven(call, position)) {
    const Annotation& dims = call.op->annotation;
    return in_turn(parts_of_blocks(call, call.inputs[0], dims.inputs[0], call.outputs[0],
                                   dims.outputs[0], position, prepare_copy));
  }
  const Array x = in_blocks(call, call.inputs[0], position),
              y = in_blocks(call, call.outputs[0], position);
  return prepare_copy(part_of(x, position + 1, call.op->integer("begin"), call.op->integer("size")),
                      y);
}

// Copies the gradient to the slice of dx. The other elements of dx become 0, or stay as they are if
// the call adds.
Kernel slice_grad(const KernelCall& call) {
  const size_t position = cut_position(call);
  if (is_uneven(call, position)) {
    const auto back = [&](const Array& to, const Array& from) {
      return call.add[0] ? prepare_add(from, to) : prepare_copy(from, to);
    };
    const Annotation& dims = call.op->annotation;
    std::vector<Kernel> kernels = parts_of_blocks(call, call.outputs[0], dims.outputs[0],
                                                  call.inputs[0], dims.inputs[0], position, back);
    if (!call.add[0]) {
      kernels.insert(kernels.begin(), [dx = tensor_of(call.outputs[0])]() mutable { dx.zero_(); });
    }
    return in_turn(std::move(kernels));
  }
  const Array dy = in_blocks(call, call.inputs[0], position);
  const Array part = part_of(in_blocks(call, call.outputs[0], position), position + 1,
                             call.op->integer("begin"), dy.shape[position + 1]);
  if (call.add[0]) return prepare_add(dy, part);
  Kernel copy = prepare_copy(dy, part);
  return [dx = tensor_of(call.outputs[0]), copy]() mutable {
    dx.zero_();
    copy();
  };
}

// Copies x into the output and sets the other elements to the attribute `value`.
Kernel pad(const KernelCall& call) {
  const size_t position = cut_position(call);
  if (is_uneven(call, position)) {
    const Annotation& dims = call.op->annotation;
    std::vector<Kernel> kernels = parts_of_blocks(
        call, call.outputs[0], dims.outputs[0], call.inputs[0], dims.inputs[0], position,
        [](const Array& to, const Array& from) { return prepare_copy(from, to); });
    kernels.insert(kernels.begin(),
                   [y = tensor_of(call.outputs[0]), value = call.op->number("value")]() mutable {
                     y.fill_(value);
                   });
    return in_turn(std::move(kernels));
  }
  const Array x = in_blocks(call, call.inputs[0], position);
  const Array part = part_of(in_blocks(call, call.outputs[0], position), position + 1,
                             call.op->integer("begin"), x.shape[position + 1]);
  return [y = tensor_of(call.outputs[0]), value = call.op->number("value"),
          copy = prepare_copy(x, part)]() mutable {
    y.fill_(value);
    copy();
  };
}

Kernel concat(const KernelCall& call) {
  const size_t position = cut_position(call);
  std::vector<Kernel> copies;
  int64_t begin = 0;
  if (is_uneven(call, position)) {
    const Annotation& dims = call.op->annotation;
    return in_turn(each_block(call, [&](std::vector<Kernel>& kernels, int64_t block) {
      int64_t at = 0;
      for (size_t i = 0; i < call.inputs.size(); ++i) {
        const Array from = block_of(call, dims.inputs[i], call.inputs[i], position, block);
        const int64_t size = from.shape[position];
        kernels.push_back(prepare_copy(
            from, part_of(block_of(call, dims.outputs[0], call.outputs[0], position, block),
                          position, at, size)));
        at += size;
      }
    }));
  }
  const Array y = in_blocks(call, call.outputs[0], position);
  for (const Array& each : call.inputs) {
    const Array input = in_blocks(call, each, position);
    const int64_t size = input.shape[position + 1];
    copies.push_back(prepare_copy(input, part_of(y, position + 1, begin, size)));
    begin += size;
  }
  return [copies] {
    for (const Kernel& copy : copies) copy();
  };
}

Kernel fill(const KernelCall& call) {
  return [y = tensor_of(call.outputs[0]), value = call.op->number("value")]() mutable {
    y.fill_(value);
  };
}

// Prepares the kernel with inputs (x, cos, sin), attributes (inverse, neighbours, first) and output
// y. It rotates the elements of the last dim from `first` on, as many as the tables have pairs for:
// pairs (i, i + half), or neighbours (2 i, 2 i + 1). The other elements are copied.
Kernel rotary(const KernelCall& call) {
  return with_compute_type(call.inputs[0].dtype, [&]<class A>() -> Kernel {
    const auto order = op_dims(call.op->annotation.inputs[0]);
    const std::vector<int> leading(order.begin(), order.end() - 1);
    const int pair_dim = op_dims(call.op->annotation.inputs[1]).back();
    std::vector<int> table_order = leading;
    table_order.push_back(pair_dim);
    const Array x = input_along(call, 0, order), y = output_along(call, 0, order),
                c = input_along(call, 1, table_order), s = input_along(call, 2, table_order);
    const Nest<4> nest({&y, &x, &c, &s}, leading.size());
    const Row<A> xr(x), yr(y), cr(c), sr(s);
    const int64_t first = call.op->integer("first"), half = cr.size(), all = xr.size(),
                  end = first + 2 * half;
    const bool neighbours = call.op->integer("neighbours") != 0;
    const A sign = call.op->integer("inverse") != 0 ? A{-1} : A{1};
    const RowOps<A>& ops = row_ops<A>();
    return [=, &ops] {
      nest.each([&](const std::array<std::byte*, 4>& at) {
        const A *in = xr.read(at[1]), *cosine = cr.read(at[2]), *sine = sr.read(at[3]);
        A* out = yr.write(at[0]);
        std::copy_n(in, first, out);
        std::copy(in + end, in + all, out + end);
        if (neighbours) {
          for (int64_t i = 0; i < half; ++i) {
            const A a = in[first + 2 * i], b = in[first + 2 * i + 1];
            out[first + 2 * i] = a * cosine[i] - sign * (b * sine[i]);
            out[first + 2 * i + 1] = b * cosine[i] + sign * (a * sine[i]);
          }
        } else {
          ops.rotate(out + first, out + first + half, in + first, in + first + half, cosine, sine,
                     sign, half);
        }
        yr.commit(at[0]);
      });
    };
  });
}

constexpr KernelInfo kShapeKernels[] = {
    {"broadcast_to", copy_along},
    {"group", copy_along},
    {"ungroup", copy_along},
    {"transpose", copy_along},
    {"rename", copy_along},
    {"slice", slice},
    {"slice_grad", slice_grad, 1},
    {"pad", pad},
    {"concat", concat},
    {"fill", fill},
    {"rotary", rotary},
    {"rearrange", copy_along},
    {"roll", roll},
    {"stop_gradient", copy_along},
};

}  // namespace

std::span<const KernelInfo> shape_kernels() { return kShapeKernels; }

Kernel prepare_copy(const Array& from, const Array& to) {
  if (to.empty()) return {};
  return [out = tensor_of(to), in = tensor_of(from)]() mutable {
    out.copy_(in, /*non_blocking=*/true);
  };
}

Kernel prepare_add(const Array& from, const Array& to) {
  if (to.empty()) return {};
  if (from.place != to.place) {
    return [out = tensor_of(to), in = tensor_of(from)]() mutable {
      out.add_(in.to(out.device()));  // the host would add what has not arrived
    };
  }
  return [out = tensor_of(to), in = tensor_of(from)]() mutable { out.add_(in); };
}

}  // namespace tessera::kernels
