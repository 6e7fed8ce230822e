// Rows (aten.h) of ops that move elements or change the view. Most of these rows only make another
// view and add no ops.
#include <fmt/format.h>

#include <algorithm>

#include "tessera/import/pt2/aten.h"
#include "tessera/import/pt2/names.h"

namespace tessera::pt2 {
namespace {

// ---- views
// -----------------------------------------------------------------------------------------------
Result<std::vector<int64_t>> sizes_of_view(const Call& call, const Value& x,
                                           std::vector<int64_t> sizes) {
  if (std::ssize(sizes) > kMaxRank)
    return invalid_input(fmt::format("expected at most {} dims, found {}", kMaxRank, sizes.size()));
  int64_t whole = call.dims().size(x.flat()), known = 1, unknown = -1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == -1 && unknown < 0) {
      unknown = static_cast<int64_t>(i);
    } else if (sizes[i] < 1 || whole % known != 0 || sizes[i] > whole / known) {
      return invalid_input(fmt::format("expected sizes of {} elements, found {}", whole, sizes[i]));
    } else {
      known *= sizes[i];
    }
  }
  if (whole % known != 0 || (unknown < 0 && known != whole))
    return invalid_input(fmt::format("expected sizes of {} elements, found {}", whole, known));
  if (unknown >= 0) sizes[static_cast<size_t>(unknown)] = whole / known;
  return sizes;
}

// Returns the view of x with these sizes. If the dims cannot be cut at these sizes, all dims from
// the first one whose size differs become new dims, and a step adds ops that join and cut the dims.
Value viewed(const Call& call, Value x, const std::vector<int64_t>& sizes) {
  Lowering& lowering = call.lowering();
  if (const auto lists = call.dims().view(x.dims, sizes)) {
    x.dims = *lists;
    // If the view joins rows and columns of pixels, makes them one variable.
    for (size_t d = 0; d < x.dims.size(); ++d) {
      const Vars leaves = call.dims().leaves(x.dims[d]);
      const bool pixels =
          leaves.size() > 1 && std::all_of(leaves.begin(), leaves.end(),
                                           [&](Var leaf) { return call.dims().spatial(leaf); });
      if (pixels) x = lowering.whole(x, d);
    }
    return x;
  }
  size_t same = 0;
  while (same < sizes.size() && same < x.dims.size() && lowering.size(x, same) == sizes[same])
    ++same;
  Value y = x;
  y.dims.resize(same);
  Vars from, to;
  for (size_t d = same; d < x.dims.size(); ++d)
    from.insert(from.end(), x.dims[d].begin(), x.dims[d].end());
  for (size_t d = same; d < sizes.size(); ++d) {
    y.dims.push_back(call.dims().list(sizes[d]));
    to.insert(to.end(), y.dims.back().begin(), y.dims.back().end());
  }
  y.renamed.emplace_back(from, to);
  call.dims().keep_distinct(y.flat());
  return y;
}

Status set_view(const Call& call, const Value& x, const std::vector<int64_t>& wanted) {
  TESSERA_TRY(const std::vector<int64_t> sizes, sizes_of_view(call, x, wanted));
  call.set(viewed(call, x, sizes));
  return {};
}

Status row_view(const Call& call) {
  TESSERA_TRY(const Value x, call.value("self"));
  TESSERA_TRY(const std::vector<int64_t> sizes, call.integers(call.has("size") ? "size" : "shape"));
  return set_view(call, x, sizes);
}

Status row_flatten(const Call& call) {
  TESSERA_TRY(const Value x, call.value("self"));
  if (x.dims.empty()) return invalid_input("expected a tensor with dims, found a scalar");
  TESSERA_TRY(const size_t first, call.dim("start_dim", x.dims.size(), 0));
  TESSERA_TRY(const size_t last, call.dim("end_dim", x.dims.size(), -1));
  if (first > last) return invalid_input("expected start_dim before end_dim");
  std::vector<int64_t> sizes;
  for (size_t d = 0; d < x.dims.size(); ++d) {
    const int64_t size = call.lowering().size(x, d);
    if (d > first && d <= last) {
      sizes.back() *= size;
    } else {
      sizes.push_back(size);
    }
  }
  return set_view(call, x, sizes);
}

Status row_unflatten(const Call& call) {
  TESSERA_TRY(const Value x, call.value("self"));
  TESSERA_TRY(const size_t dim, call.dim("dim", x.dims.size()));
  TESSERA_TRY(const std::vector<int64_t> parts, call.integers("sizes"));
  std::vector<int64_t> sizes;
  for (size_t d = 0; d < x.dims.size(); ++d) {
    if (d == dim) {
      sizes.insert(sizes.end(), parts.begin(), parts.end());
    } else {
      sizes.push_back(call.lowering().size(x, d));
    }
  }
  return set_view(call, x, sizes);
}

Status row_unsqueeze(const Call& call) {
  TESSERA_TRY(Value x, call.value("self"));
  TESSERA_TRY(const size_t dim, call.dim("dim", x.dims.size() + 1));
  x.dims.insert(x.dims.begin() + static_cast<std::ptrdiff_t>(dim), Vars{});
  call.set(std::move(x));
  return {};
}

Status row_squeeze(const Call& call) {
  TESSERA_TRY(Value x, call.value("self"));
  TESSERA_TRY(const std::vector<size_t> dims, call.dim_list("dim", x.dims.size()));
  std::vector<Vars> kept;
  for (size_t d = 0; d < x.dims.size(); ++d) {
    const bool named = std::find(dims.begin(), dims.end(), d) != dims.end();
    if (!named || call.lowering().size(x, d) != 1) kept.push_back(x.dims[d]);
  }
  x.dims = std::move(kept);
  call.set(std::move(x));
  return {};
}

Status row_permute(const Call& call) {
  TESSERA_TRY(Value x, call.value("self"));
  TESSERA_TRY(const std::vector<size_t> order, call.dim_list("dims", x.dims.size()));
  if (order.size() != x.dims.size())
    return invalid_input(fmt::format("expected {} dims, found {}", x.dims.size(), order.size()));
  std::vector<Vars> dims;
  for (const size_t d : order) dims.push_back(x.dims[d]);
  x.dims = std::move(dims);
  call.set(std::move(x));
  return {};
}

Status row_transpose(const Call& call) {
  TESSERA_TRY(Value x, call.value("self"));
  TESSERA_TRY(const size_t a, call.dim("dim0", x.dims.size()));
  TESSERA_TRY(const size_t b, call.dim("dim1", x.dims.size()));
  std::swap(x.dims[a], x.dims[b]);
  call.set(std::move(x));
  return {};
}

Status row_t(const Call& call) {
  TESSERA_TRY(Value x, call.value("self"));
  std::reverse(x.dims.begin(), x.dims.end());
  call.set(std::move(x));
  return {};
}

// ---- broadcasts
// -----------------------------------------------------------------------------------------------
Result<Value> expanded(const Call& call, Value x, const std::vector<int64_t>& sizes) {
  if (sizes.size() < x.dims.size() || std::ssize(sizes) > kMaxRank) {
    return invalid_input(
        fmt::format("expected sizes of at least {} dims, found {}", x.dims.size(), sizes.size()));
  }
  x.dims.insert(x.dims.begin(), sizes.size() - x.dims.size(), Vars{});
  for (size_t d = 0; d < sizes.size(); ++d) {
    const int64_t size = call.lowering().size(x, d);
    if (sizes[d] == -1 || sizes[d] == size) continue;
    if (size != 1 || sizes[d] < 1) {
      return invalid_input(
          fmt::format("dim {}: expected size {} or 1, found {}", d, sizes[d], size));
    }
    x.dims[d] = call.dims().list(sizes[d]);
  }
  call.dims().keep_distinct(x.flat());
  return x;
}

Status row_expand(const Call& call) {
  TESSERA_TRY(Value x, call.value("self"));
  TESSERA_TRY(const std::vector<int64_t> sizes, call.integers("size"));
  TESSERA_TRY(Value y, expanded(call, std::move(x), sizes));
  call.set(std::move(y));
  return {};
}

Status row_expand_as(const Call& call) {
  TESSERA_TRY(Value x, call.value("self"));
  const TensorMeta* const meta = call.output_meta();
  if (meta == nullptr) return invalid_input("expected an output with a shape, found none");
  TESSERA_TRY(Value y, expanded(call, std::move(x), meta->sizes));
  call.set(std::move(y));
  return {};
}

Status row_broadcast_tensors(const Call& call) {
  TESSERA_TRY(const std::vector<Value> xs, call.values("tensors"));
  for (size_t i = 0; i < xs.size(); ++i) {
    const TensorMeta* const meta = call.output_meta(i);
    if (meta == nullptr) continue;
    TESSERA_TRY(Value y, expanded(call, xs[i], meta->sizes));
    call.set(std::move(y), i);
  }
  return {};
}

// Repeats a dim of x `times` times: element by element if `each`, else as a whole.
void repeat_dim(const Call& call, Value& x, size_t dim, int64_t times, bool each) {
  const Vars again = call.dims().list(times);
  Vars& vars = x.dims[dim];
  vars.insert(each ? vars.end() : vars.begin(), again.begin(), again.end());
  call.dims().keep_distinct(x.flat());
}

Status row_repeat(const Call& call) {
  TESSERA_TRY(Value x, call.value("self"));
  TESSERA_TRY(const std::vector<int64_t> times, call.integers("repeats"));
  if (times.size() < x.dims.size() || std::ssize(times) > kMaxRank)
    return invalid_input(fmt::format("expected {} repeats, found {}", x.dims.size(), times.size()));
  x.dims.insert(x.dims.begin(), times.size() - x.dims.size(), Vars{});
  for (size_t d = 0; d < times.size(); ++d) {
    if (times[d] < 1 || times[d] > (int64_t{1} << 32))
      return invalid_input(fmt::format("expected at least 1 repeat, found {}", times[d]));
    repeat_dim(call, x, d, times[d], false);
  }
  call.set(std::move(x));
  return {};
}

Status row_repeat_interleave(const Call& call) {
  TESSERA_TRY(Value x, call.value("self"));
  TESSERA_TRY(const int64_t times, call.integer("repeats"));
  TESSERA_TRY(const size_t dim, call.dim("dim", x.dims.size()));
  if (times < 1 || times > (int64_t{1} << 32))
    return invalid_input(fmt::format("expected at least 1 repeat, found {}", times));
  repeat_dim(call, x, dim, times, true);
  call.set(std::move(x));
  return {};
}

Status row_upsample_nearest(const Call& call) {
  TESSERA_TRY(Value x, call.value("input"));
  const TensorMeta* const meta = call.output_meta();
  if (meta == nullptr || meta->sizes.size() != x.dims.size())
    return invalid_input("expected an output with the dims of the input, found none");
  for (size_t d = 0; d < x.dims.size(); ++d) {
    const int64_t size = call.lowering().size(x, d);
    if (meta->sizes[d] % size != 0) {
      return invalid_input(
          fmt::format("expected a whole number of times {}, found {}", size, meta->sizes[d]));
    }
    if (meta->sizes[d] != size) repeat_dim(call, x, d, meta->sizes[d] / size, true);
  }
  call.set(std::move(x));
  return {};
}

// ---- parts
// -----------------------------------------------------------------------------------------------
// Takes every `step`-th element of a dim, from `begin` on: of the dim in groups of so many elements
// the element with this place in its group.
Status every_nth(const Call& call, Value x, size_t dim, int64_t begin, int64_t end, int64_t step) {
  Lowering& lowering = call.lowering();
  const int64_t size = lowering.size(x, dim);
  if (step < 1 || size % step != 0 || begin >= step || end <= size - step + begin) {
    return invalid_input(fmt::format(
        "an op without a counterpart: expected a step that divides {} and reaches the end, found "
        "{} from {} to {}",
        size, step, begin, end));
  }
  std::optional<std::pair<Vars, Vars>> parts = call.dims().cut(x.dims[dim], size / step);
  if (!parts) {  // another op needs the dim whole
    parts = {call.dims().list(size / step), call.dims().list(step)};
    Vars both = parts->first;
    both.insert(both.end(), parts->second.begin(), parts->second.end());
    x = lowering.retarget(x, dim, both);
  }
  x.dims[dim] = parts->first;
  x.dims.insert(x.dims.begin() + static_cast<std::ptrdiff_t>(dim) + 1, parts->second);
  TESSERA_TRY(Value y, part_of(call, x, dim + 1, begin, 1, true));
  call.set(std::move(y));
  return {};
}

Status row_slice(const Call& call) {
  TESSERA_TRY(const Value x, call.value("self"));
  TESSERA_TRY(const size_t dim, call.dim("dim", x.dims.size(), 0));
  const int64_t size = call.lowering().size(x, dim);
  TESSERA_TRY(int64_t begin, call.integer("start", 0));
  TESSERA_TRY(int64_t end, call.integer("end", size));
  TESSERA_TRY(const int64_t step, call.integer("step", 1));
  if (begin < 0) begin = std::max<int64_t>(begin, -size) + size;
  if (end < 0) end = std::max<int64_t>(end, -size) + size;
  begin = std::min(begin, size);
  end = std::min(end, size);
  if (begin >= end)
    return invalid_input(fmt::format("expected a part, found {} to {}", begin, end));
  if (step != 1) return every_nth(call, x, dim, begin, end, step);
  TESSERA_TRY(Value y, part_of(call, x, dim, begin, end - begin));
  call.set(std::move(y));
  return {};
}

Status row_select(const Call& call) {
  TESSERA_TRY(const Value x, call.value("self"));
  TESSERA_TRY(const size_t dim, call.dim("dim", x.dims.size()));
  TESSERA_TRY(int64_t index, call.integer("index"));
  const int64_t size = call.lowering().size(x, dim);
  if (index < -size || index >= size)
    return invalid_input(fmt::format("expected an index below {}, found {}", size, index));
  TESSERA_TRY(Value y, part_of(call, x, dim, index < 0 ? index + size : index, 1, true));
  call.set(std::move(y));
  return {};
}

// Cuts dim `dim` of x into parts of these sizes, one for each output of the node. If `drop`, the
// dim of each part, of size 1, is removed.
Status parts(const Call& call, const Value& x, size_t dim, const std::vector<int64_t>& sizes,
             bool drop) {
  int64_t begin = 0;
  const int64_t whole = call.lowering().size(x, dim);
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 1 || sizes[i] > whole - begin) {
      return invalid_input(
          fmt::format("expected parts of {}, found {} from {} on", whole, sizes[i], begin));
    }
    const bool read = i < call.node().outputs.size() && !call.node().outputs[i].empty();
    if (read) {
      TESSERA_TRY(Value part, part_of(call, x, dim, begin, sizes[i], drop));
      call.set(std::move(part), i);
    }
    begin += sizes[i];
  }
  return {};
}

Status row_split(const Call& call) {
  TESSERA_TRY(const Value x, call.value("self"));
  TESSERA_TRY(const size_t dim, call.dim("dim", x.dims.size(), 0));
  const int64_t whole = call.lowering().size(x, dim);
  TESSERA_TRY(std::vector<int64_t> sizes,
              call.integers(call.has("split_sizes") ? "split_sizes" : "split_size"));
  if (!call.has("split_sizes") && sizes.size() == 1) {
    const int64_t each = sizes[0];
    if (each < 1 || whole / each > (1 << 16))
      return invalid_input(fmt::format("expected parts of {}, found {}", whole, each));
    sizes.clear();
    for (int64_t begin = 0; begin < whole; begin += each)
      sizes.push_back(std::min(each, whole - begin));
  }
  return parts(call, x, dim, sizes, false);
}

Status row_chunk(const Call& call) {
  TESSERA_TRY(const Value x, call.value("self"));
  TESSERA_TRY(const size_t dim, call.dim("dim", x.dims.size(), 0));
  TESSERA_TRY(const int64_t count, call.integer("chunks"));
  const int64_t whole = call.lowering().size(x, dim);
  if (count < 1 || count > whole)
    return invalid_input(fmt::format("expected up to {} chunks, found {}", whole, count));
  const int64_t each = (whole + count - 1) / count;
  std::vector<int64_t> sizes;
  for (int64_t begin = 0; begin < whole; begin += each)
    sizes.push_back(std::min(each, whole - begin));
  return parts(call, x, dim, sizes, false);
}

Status row_unbind(const Call& call) {
  TESSERA_TRY(const Value x, call.value("self"));
  TESSERA_TRY(const size_t dim, call.dim("dim", x.dims.size(), 0));
  const int64_t whole = call.lowering().size(x, dim);
  if (whole > (1 << 16))
    return invalid_input(fmt::format("expected up to 65536 parts, found {}", whole));
  return parts(call, x, dim, std::vector<int64_t>(static_cast<size_t>(whole), 1), true);
}

// Pads dim `dim` of x with `begin` elements at its begin and `end` elements at its end, all equal
// to `value`. A negative count cuts elements off.
Result<Value> padded(const Call& call, Value x, size_t dim, int64_t begin, int64_t end,
                     double value) {
  Lowering& lowering = call.lowering();
  const int64_t off_begin = std::max<int64_t>(-begin, 0), off_end = std::max<int64_t>(-end, 0);
  const int64_t size = lowering.size(x, dim);
  constexpr int64_t kMost = int64_t{1} << 31;
  if (off_begin >= size - off_end || begin > kMost || end > kMost) {
    return invalid_input(
        fmt::format("expected elements to be left of {}, and at most {} more on a side, found the "
                    "padding {} and {}",
                    size, kMost, begin, end));
  }
  if (off_begin + off_end > 0) {
    TESSERA_TRY(x, part_of(call, x, dim, off_begin, size - off_begin - off_end));
  }
  const int64_t before = std::max<int64_t>(begin, 0), after = std::max<int64_t>(end, 0);
  if (before + after == 0) return x;
  x = lowering.whole(x, dim);
  std::vector<Vars> dims = x.dims;
  dims[dim] = {call.dims().fresh(lowering.size(x, dim) + before + after)};
  call.dims().make_solid(dims[dim][0]);
  for (const Var var : x.dims[dim]) {
    if (call.dims().spatial(var)) call.dims().make_spatial(dims[dim][0]);
  }
  lowering.hints().add(dims[dim], "padded", Sure::kLast);
  Value y = lowering.make(dims, x.dtype);
  lowering.step(call, "pad", [x, dims, dim, before, value, slot = y.slot](Emitter& e) {
    const Vars own = e.dims().leaves(x.dims[dim]);
    const Var place = e.dims().find(dims[dim][0]);
    std::vector<Emitter::Group> groups;
    Vars out;
    size_t at = 0;
    bool placed = false;
    const auto put = [&] {
      at = groups.size();
      groups.push_back({x.dims[dim], e.name(place)});
      out.push_back(place);
      placed = true;
    };
    for (const Var leaf : e.read(x).dims) {
      if (holds(own, leaf)) {
        put();
      } else if (e.dims().size(leaf) != 1) {
        groups.push_back({{leaf}, e.name(leaf)});
        out.push_back(leaf);
      }
    }
    if (!placed) put();
    const TensorId id = e.grouped(x, groups);
    if (!e.builder().ok()) return;
    const std::string cut = e.builder().tensor(id).dims[at].name;
    e.define(
        slot,
        {e.op("pad", {id},
              {{"dim", cut}, {"begin", before}, {"size", e.dims().size(place)}, {"value", value}}),
         out});
  });
  return y;
}

Status row_pad(const Call& call) {
  TESSERA_TRY(Value x, call.value("self"));
  TESSERA_TRY(const std::vector<int64_t> pad, call.integers("pad"));
  TESSERA_TRY(const double value, call.number("value", 0));
  if (const std::string mode = call.text("mode", "constant"); mode != "constant") {
    return invalid_input(fmt::format(
        "an op without a counterpart: expected padding by a number, found mode '{:.40}'", mode));
  }
  if (pad.size() % 2 != 0 || pad.size() / 2 > x.dims.size())
    return invalid_input(fmt::format("expected two numbers a dim, found {} numbers", pad.size()));
  // A module that shifts its labels pads them with -100, the target that PyTorch's cross entropies
  // leave out by default. So later cross entropies leave it out.
  constexpr int64_t kUsuallyLeftOut = -100;
  if (!is_floating(x.dtype) && value == kUsuallyLeftOut) call.lowering().leave_out(kUsuallyLeftOut);
  // In PyTorch's list the first two numbers are for the last dim, the next two for the dim before
  // it, and so on.
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    const size_t dim = x.dims.size() - 1 - i;
    TESSERA_TRY(x, padded(call, x, dim, pad[2 * i], pad[2 * i + 1], value));
  }
  call.set(std::move(x));
  return {};
}

// ---- joints
// -----------------------------------------------------------------------------------------------
// Makes all dims of the parts, except dim `dim`, the same dims.
Status match(const Call& call, std::vector<Value>& parts, size_t dim) {
  Lowering& lowering = call.lowering();
  for (Value& part : parts) {
    if (part.dims.size() != parts[0].dims.size()) {
      return invalid_input(fmt::format("expected tensors of {} dims, found {}",
                                       parts[0].dims.size(), part.dims.size()));
    }
    for (size_t d = 0; d < part.dims.size(); ++d) {
      if (d == dim || &part == &parts[0]) continue;
      if (!lowering.align(parts[0], d, part, d)) {
        return invalid_input(fmt::format("dim {}: expected {}, found {}", d,
                                         lowering.size(parts[0], d), lowering.size(part, d)));
      }
    }
  }
  return {};
}

Status row_cat(const Call& call) {
  TESSERA_TRY(std::vector<Value> parts, call.values("tensors"));
  TESSERA_TRY(const size_t dim, call.dim("dim", parts[0].dims.size(), 0));
  TESSERA_TRY(Value y, concatenated(call, std::move(parts), dim));
  call.set(std::move(y));
  return {};
}

Status row_stack(const Call& call) {
  TESSERA_TRY(std::vector<Value> parts, call.values("tensors"));
  TESSERA_TRY(const size_t dim, call.dim("dim", parts[0].dims.size() + 1, 0));
  for (Value& part : parts) {
    if (dim > part.dims.size()) return invalid_input("expected tensors of equal dims");
    part.dims.insert(part.dims.begin() + static_cast<std::ptrdiff_t>(dim), Vars{});
  }
  TESSERA_TRY(Value y, concatenated(call, std::move(parts), dim));
  call.set(std::move(y));
  return {};
}

Status row_roll(const Call& call) {
  TESSERA_TRY(Value x, call.value("self"));
  TESSERA_TRY(const std::vector<int64_t> shifts, call.integers("shifts"));
  TESSERA_TRY(const std::vector<size_t> dims, call.dim_list("dims", x.dims.size()));
  if (shifts.size() != dims.size())
    return invalid_input(fmt::format("expected {} shifts, found {}", dims.size(), shifts.size()));
  for (size_t i = 0; i < dims.size(); ++i) {
    x = call.lowering().whole(x, dims[i]);
    const int64_t size = call.lowering().size(x, dims[i]);
    const int64_t shift = (shifts[i] % size + size) % size;
    if (shift == 0) continue;
    Value y = call.lowering().make(x.dims, x.dtype);
    call.lowering().step(call, "roll", [x, d = dims[i], shift, slot = y.slot](Emitter& e) {
      const Emitter::Slot in = e.read(x);
      const Var leaf = e.dims().leaves(x.dims[d])[0];
      e.define(slot, {e.op("roll", {in.id}, {{"dim", e.name(leaf)}, {"shift", shift}}), in.dims});
    });
    x = std::move(y);
  }
  call.set(std::move(x));
  return {};
}

}  // namespace

Result<Value> concatenated(const Call& call, std::vector<Value> parts, size_t dim) {
  TESSERA_TRY_VOID(match(call, parts, dim));
  return parts.size() == 1 ? parts[0] : joined(call, std::move(parts), dim);
}

Value joined(const Call& call, std::vector<Value> parts, size_t dim) {
  Lowering& lowering = call.lowering();
  int64_t size = 0;
  for (Value& part : parts) {
    if (__builtin_add_overflow(size, lowering.size(part, dim), &size)) size = INT64_MAX;
    part = lowering.whole(part, dim);
  }
  std::vector<Vars> dims = parts[0].dims;
  for (const Value& part : parts) {
    for (size_t d = 0; d < dims.size(); ++d) {
      if (d != dim && dims[d].empty()) dims[d] = part.dims[d];
    }
  }
  dims[dim] = {call.dims().fresh(size)};
  call.dims().make_solid(dims[dim][0]);
  lowering.hints().add(dims[dim], "joined", Sure::kLast);
  Value y = lowering.make(dims, parts[0].dtype);
  lowering.step(call, "cat", [parts, dims, dim, slot = y.slot](Emitter& e) {
    const Var place = e.dims().find(dims[dim][0]);
    // The dims other than `dim` are in the order of the first part's tensor, followed by dims that
    // only tensors of later parts have.
    Vars order;
    for (const Value& part : parts) {
      const Vars own = e.dims().leaves(part.dims[dim]);
      for (const Var leaf : e.read(part).dims) {
        const bool other = std::find(own.begin(), own.end(), leaf) == own.end();
        if (other && e.dims().size(leaf) != 1 &&
            std::find(order.begin(), order.end(), leaf) == order.end())
          order.push_back(leaf);
      }
    }
    std::vector<TensorId> inputs;
    for (const Value& part : parts) {
      std::vector<Emitter::Group> groups;
      for (const Var leaf : order) groups.push_back({{leaf}, e.name(leaf)});
      groups.push_back({part.dims[dim], e.name(place)});
      const TensorId id = e.grouped(part, groups);
      const std::string now = e.builder().ok() ? e.builder().tensor(id).dims.back().name : "";
      inputs.push_back(
          now == e.name(place)
              ? id
              : e.op("rename", {id}, {{"from", now}, {"to", e.name(place)}}, "rename"));
    }
    Vars out = order;
    out.push_back(place);
    e.define(slot, {e.op("concat", std::move(inputs), {{"dim", e.name(place)}}), out});
  });
  return y;
}

Result<Value> part_of(const Call& call, const Value& x, size_t dim, int64_t begin, int64_t size,
                      bool drop) {
  Lowering& lowering = call.lowering();
  const int64_t whole = lowering.size(x, dim);
  Value in = x, y;
  Vars cut, rest;
  if (size == whole) {
    y = x;
    if (drop) y.dims.erase(y.dims.begin() + static_cast<std::ptrdiff_t>(dim));
    return y;
  }
  // If the part is one of several of equal size, the dim is cut into two: the number of the part,
  // and the place in it.
  const auto lists = whole % size == 0 && begin % size == 0
                         ? call.dims().cut(x.dims[dim], whole / size)
                         : std::nullopt;
  std::vector<Vars> dims = x.dims;
  int64_t first = begin, count = size;
  if (lists && call.dims().leaves(lists->first).size() == 1) {
    cut = lists->first;
    in.dims[dim] = lists->first;
    in.dims[dim].insert(in.dims[dim].end(), lists->second.begin(), lists->second.end());
    dims[dim] = lists->second;
    first = begin / size;
    count = 1;
    call.dims().make_solid(call.dims().leaves(cut)[0]);
    lowering.hints().add(cut, "part", Sure::kPart);
  } else {
    in = lowering.whole(x, dim);
    cut = in.dims[dim];
    dims[dim] = call.dims().list(size);
    for (const Var leaf : dims[dim]) call.dims().make_solid(leaf);
    lowering.hints().add(dims[dim], "part", Sure::kLast);
    rest = dims[dim];
  }
  y = lowering.make(dims, x.dtype);
  lowering.step(call, "slice", [in, cut, rest, first, count, slot = y.slot](Emitter& e) {
    Emitter::Slot source = e.read(in);
    const Var leaf = e.dims().leaves(cut)[0];
    const auto at = std::find(source.dims.begin(), source.dims.end(), leaf);
    if (at == source.dims.end()) {  // x is repeated along the dim, so all parts are equal
      e.define(slot, source);
      return;
    }
    const TensorId id =
        e.op("slice", {source.id}, {{"dim", e.name(leaf)}, {"begin", first}, {"size", count}});
    std::vector<Vars> after;
    for (const Var other : source.dims) after.push_back(other == leaf ? rest : Vars{other});
    e.define(slot, e.ungrouped(id, after));
  });
  if (drop) y.dims.erase(y.dims.begin() + static_cast<std::ptrdiff_t>(dim));
  return y;
}

Rows shape_rows() {
  return {{"view", row_view},
          {"reshape", row_view},
          {"_unsafe_view", row_view},
          {"flatten", row_flatten},
          {"unflatten", row_unflatten},
          {"unsqueeze", row_unsqueeze},
          {"squeeze", row_squeeze},
          {"permute", row_permute},
          {"transpose", row_transpose},
          {"t", row_t},
          {"numpy_T", row_t},
          {"expand", row_expand},
          {"expand_as", row_expand_as},
          {"broadcast_tensors", row_broadcast_tensors},
          {"repeat", row_repeat},
          {"repeat_interleave", row_repeat_interleave},
          {"upsample_nearest2d", row_upsample_nearest},
          {"slice", row_slice},
          {"select", row_select},
          {"split", row_split},
          {"split_with_sizes", row_split},
          {"chunk", row_chunk},
          {"unbind", row_unbind},
          {"cat", row_cat},
          {"concat", row_cat},
          {"pad", row_pad},
          {"constant_pad_nd", row_pad},
          {"stack", row_stack},
          {"roll", row_roll}};
}

}  // namespace tessera::pt2
