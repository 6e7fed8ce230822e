// resize and grid_sample with their gradients. They make values between the elements of a grid, by
// interpolation along each dim between the two neighbours, or by taking the nearest element.
//
// If the sizes of a dim are multiples of one another, resize reads the dim through windows, so that
// a plan may cut the dim in space, with the halo that the interpolation needs. At other ratios each
// element of y is a weighted sum of elements of x, and a piece of x makes a part of the sum.
// grid_sample reads the grid at its points. As with a table that is looked up, pieces of the grid
// make parts of a sum.
#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/text.h"
#include "tessera/graph/kinds/window.h"

namespace tessera::kinds {
namespace {

// ---- resize
constexpr std::string_view kNearest = "nearest", kLinear = "linear";

// The dims of x and y, and their text in the annotation.
struct Resized {
  std::vector<Dim> x_dims, y_dims;
  std::string x, y;
};

struct ResizedDim {
  std::string name;
  int64_t from = 1, to = 1;  // sizes of the dim of x and of y

  // Returns the window, of elements of the larger side, that belongs to an element of the smaller
  // side: the elements that the smaller side's element reads (when the dim shrinks), or that read
  // the smaller side's element (when the dim grows).
  std::string window(int64_t factor, bool linear) const {
    const bool up = to > from;
    if (!up) return fmt::format("{}/{}/0", linear ? factor : 1, factor);
    if (!linear) return fmt::format("{0}/{0}/0", factor);
    const int64_t odd = factor % 2;
    return fmt::format("{}/{}/{}", 2 * factor - odd, factor, (factor - odd) / 2);
  }
};

void spell_dim(const ResizedDim& dim, bool linear, bool corners, bool gradient, Names& x,
               Names& y) {
  const int64_t low = std::min(dim.from, dim.to), high = std::max(dim.from, dim.to);
  if (low == high) {
    x.push_back(dim.name);
    y.push_back(dim.name);
  } else if (high % low == 0 && !(linear && corners)) {
    // The op counts elements of its result, which is y or the gradient of x.
    const std::string window = dim.window(high / low, linear);
    const bool makes_larger = (dim.to > dim.from) != gradient;
    const std::string read = dim.name + (makes_larger ? "~-" : "~") + window;
    x.push_back(gradient ? dim.name : read);
    y.push_back(gradient ? read : dim.name);
  } else {
    x.push_back(dim.name);
    y.push_back(dim.name + ".out");
  }
}

// Returns the spelled dims. `x` and `y` are the dims of the input and the output of resize; they
// have the same names.
Result<Resized> read_resized(const Operands& operands, std::vector<Dim> x, std::vector<Dim> y,
                             bool gradient) {
  const std::string& mode = operands.text("mode");
  if (mode != kNearest && mode != kLinear) {
    return invalid_input(fmt::format("expected mode nearest or linear, found \"{}\"", mode));
  }
  const int64_t corners = operands.integer("corners");
  if (corners != 0 && corners != 1) {
    return invalid_input(fmt::format("expected corners of 0 or 1, found {}", corners));
  }
  Names of_x, of_y;
  for (size_t d = 0; d < x.size(); ++d) {
    spell_dim({x[d].name, x[d].size, y[d].size}, mode == kLinear, corners != 0, gradient, of_x,
              of_y);
  }
  return Resized{std::move(x), std::move(y), spell(of_x), spell(of_y)};
}

// Returns `known` with new sizes for the dims that attribute `dims` lists.
Result<std::vector<Dim>> with_sizes(const Operands& operands, std::vector<Dim> known) {
  TESSERA_TRY(const std::vector<Dim> given, parse_dims(operands.text("dims")));
  for (const Dim& dim : given) {
    const int at = find_dim(known, dim.name);
    if (at < 0 || dim.size < 1) {
      return invalid_input(fmt::format("expected dims of {} with sizes of at least 1, found \"{}\"",
                                       describe(known), operands.text("dims")));
    }
    known[static_cast<size_t>(at)].size = dim.size;
  }
  return known;
}

// (x; dims, mode, corners) -> y
Result<Inferred> infer_resize(const Operands& x) {
  TESSERA_TRY_VOID(expect_floating(x));
  TESSERA_TRY(std::vector<Dim> y, with_sizes(x, x[0].dims));
  TESSERA_TRY(Resized r, read_resized(x, x[0].dims, std::move(y), /*gradient=*/false));
  return conclude(x, fmt::format("{} -> {}", r.x, r.y), {r.y_dims}, {x[0].dtype});
}

// (dy; dims, mode, corners) -> dx
Result<Inferred> infer_resize_grad(const Operands& x) {
  TESSERA_TRY_VOID(expect_floating(x));
  TESSERA_TRY(std::vector<Dim> dx, with_sizes(x, x[0].dims));
  TESSERA_TRY(Resized r, read_resized(x, std::move(dx), x[0].dims, /*gradient=*/true));
  return conclude(x, fmt::format("{} -> {}", r.y, r.x), {r.x_dims}, {x[0].dtype});
}

InputGradients differentiate_resize(GraphBuilder& builder, const Op& op, const OutputGradients& dy,
                                    const std::vector<bool>&) {
  Attributes attributes = op.attributes;
  std::vector<Dim> resized;
  auto given = parse_dims(op.text("dims"));
  for (const Dim& dim : builder.tensor(op.inputs[0]).dims) {
    if (given && find_dim(*given, dim.name) >= 0) resized.push_back(dim);
  }
  attributes["dims"] = dims_text(resized);
  return {builder.op1(op.path + ".dx", "resize_grad", {dy[0]}, attributes)};
}

// Counts the elements of the operand. A dim that is read through windows counts with its
// whole size.
int64_t operand_points(const Annotation& annotation, const OperandDims& operand) {
  int64_t points = 1;
  for (size_t d = 0; d < operand.dims.size(); ++d) {
    const auto read = annotation.window_read(operand, d);
    points *= read ? read->extent : annotation.dims[static_cast<size_t>(operand.dims[d][0])].size;
  }
  return points;
}

// Counts, for each element of the larger side, a multiplication and an addition for each neighbour
// (2 in mode linear, else 1).
int64_t resize_flops(const Op& op) {
  const OperandDims& larger =
      info_of(op).gradient ? op.annotation.inputs[0] : op.annotation.outputs[0];
  const int64_t neighbours = op.text("mode") == kLinear ? 2 : 1;
  return 2 * neighbours * operand_points(op.annotation, larger);
}

// Returns kIndex for the dims whose size changes (those that attribute `dims` names) in x and in y,
// else kFree.
PositionRule place_in_resized(const Op& op, int dim) {
  const OpDim& asked = op.annotation.dims[static_cast<size_t>(dim)];
  const bool changes =
      asked.window || asked.name.ends_with(".out") || op.annotation.find(asked.name + ".out") >= 0;
  return changes ? PositionRule::kIndex : PositionRule::kFree;
}

// ---- grid_sample
constexpr size_t kMostGridDims = 3;

// A grid, the points at which it is read, and the result.
struct Sampling {
  std::vector<Dim> grid;  // all dims of the grid
  std::vector<Dim> lead;  // dims of the points without the dim of their coordinates
  // Dims of y: those of the points, then those of the grid that are not sampled.
  std::vector<Dim> sample;
  std::string points;  // annotation of the points, in which the dim of the coordinates is frozen
};

// Checks that the last dim of the points has one coordinate for each sampled dim, or that attribute
// `coordinates` says which coordinate belongs to which sampled dim.
Status check_coordinates(const Operands& x, size_t count, const Tensor& points) {
  const Names places = words(x.text("coordinates"));
  const int64_t there = points.dims.empty() ? 0 : points.dims.back().size;
  if (places.empty() && there == static_cast<int64_t>(count)) return {};
  if (places.empty()) {
    return invalid_input(
        fmt::format("expected points with {} coordinates in their last dim, found {}", count,
                    describe(points)));
  }
  std::vector<int64_t> seen;
  for (const std::string& word : places) {
    const auto place = parse_int(word);
    const bool known = place && *place >= 0 && *place < there;
    if (known && std::find(seen.begin(), seen.end(), *place) == seen.end()) seen.push_back(*place);
  }
  if (places.size() == count && seen.size() == count) return {};
  return invalid_input(
      fmt::format("expected coordinates with {} different numbers below {}, found \"{}\"", count,
                  there, x.text("coordinates")));
}

Result<Sampling> read_sampling(const Operands& x, const std::vector<Dim>& grid,
                               const Tensor& points) {
  const Names names = words(x.text("dims"));
  const bool known = std::all_of(names.begin(), names.end(), [&](const std::string& name) {
    return find_dim(grid, name) >= 0 && std::count(names.begin(), names.end(), name) == 1;
  });
  if (names.empty() || names.size() > kMostGridDims || !known) {
    return invalid_input(fmt::format("expected 1 to 3 dims of the grid {}, each once, found \"{}\"",
                                     describe(grid), x.text("dims")));
  }
  TESSERA_TRY_VOID(check_coordinates(x, names.size(), points));
  Sampling s;
  s.grid = grid;
  s.lead = without_last(points.dims);
  for (const Dim& dim : points.dims) {
    const int there = find_dim(grid, dim.name);
    const bool sampled = std::find(names.begin(), names.end(), dim.name) != names.end();
    const bool coordinates = &dim == &points.dims.back();
    if (there < 0 || (!sampled && !coordinates && grid[static_cast<size_t>(there)] == dim))
      continue;
    return invalid_input(fmt::format(
        "expected points with dims of the grid {} that are not sampled, of the same sizes, or with "
        "new ones, found {}",
        describe(grid), describe(points)));
  }
  s.sample = s.lead;
  for (const Dim& dim : grid) {
    const bool sampled = std::find(names.begin(), names.end(), dim.name) != names.end();
    if (!sampled && find_dim(s.lead, dim.name) < 0) s.sample.push_back(dim);
  }
  s.points = spell(names_of(s.lead), points.dims.back().name + "^");
  return s;
}

// (grid, points; dims) -> y
Result<Inferred> infer_grid_sample(const Operands& x) {
  TESSERA_TRY_VOID(expect_equal_dtypes(x));
  TESSERA_TRY(Sampling s, read_sampling(x, x[0].dims, x[1]));
  return conclude(x, fmt::format("{}, {} -> {}", spell(s.grid), s.points, spell(s.sample)),
                  {s.sample}, {x[0].dtype});
}

// (dy, points; dims, grid) -> dgrid
Result<Inferred> infer_grid_sample_grad(const Operands& x) {
  TESSERA_TRY_VOID(expect_equal_dtypes(x));
  TESSERA_TRY(const std::vector<Dim> grid, parse_dims(x.text("grid")));
  TESSERA_TRY(Sampling s, read_sampling(x, grid, x[1]));
  TESSERA_TRY_VOID(expect_dims(x[0], "dy", s.sample));
  return conclude(x, fmt::format("{}, {} -> {}", spell(s.sample), s.points, spell(grid)), {grid},
                  {x[0].dtype});
}

// (dy, grid, points; dims) -> dpoints
Result<Inferred> infer_grid_sample_points_grad(const Operands& x) {
  TESSERA_TRY_VOID(expect_equal_dtypes(x));
  TESSERA_TRY(Sampling s, read_sampling(x, x[1].dims, x[2]));
  TESSERA_TRY_VOID(expect_dims(x[0], "dy", s.sample));
  return conclude(
      x,
      fmt::format("{}, {}, {} -> {}", spell(s.sample), spell(s.grid), s.points, spell(x[2].dims)),
      {x[2].dims}, {x[2].dtype});
}

InputGradients differentiate_grid_sample(GraphBuilder& builder, const Op& op,
                                         const OutputGradients& dy,
                                         const std::vector<bool>& wanted) {
  InputGradients out(2);
  if (wanted[0]) {
    out[0] = builder.op1(op.path + ".dx", "grid_sample_grad", {dy[0], op.inputs[1]},
                         {{"dims", op.text("dims")},
                          {"coordinates", op.text("coordinates")},
                          {"grid", dims_text(builder.tensor(op.inputs[0]).dims)}});
  }
  if (wanted[1]) {
    out[1] = builder.op1(op.path + ".dpoints", "grid_sample_points_grad",
                         {dy[0], op.inputs[0], op.inputs[1]}, op.attributes);
  }
  return out;
}

bool is_sampled(const Op& op, const std::string& name) {
  const Names names = words(op.text("dims"));
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Counts a multiplication and an addition for each corner of the grid cell that contains a point.
int64_t sample_flops(const Op& op) {
  int64_t flops = 2;
  for (const OpDim& dim : op.annotation.dims) {
    if (is_sampled(op, dim.name)) {
      flops *= 2;
    } else if (dim.mark != Mark::kFrozen) {
      flops *= dim.size;
    }
  }
  return flops;
}

// Returns kIndex for sampled dims, because coordinates name positions in the whole dim, else kFree.
PositionRule place_in_grid(const Op& op, int dim) {
  return is_sampled(op, op.annotation.dims[static_cast<size_t>(dim)].name) ? PositionRule::kIndex
                                                                           : PositionRule::kFree;
}

KindInfo resizing(std::string name, std::string summary, InferFunction infer) {
  return {.name = std::move(name),
          .summary = std::move(summary),
          .attributes = {text_attribute("dims"), text_attribute("mode", std::string(kLinear)),
                         integer_attribute("corners", 0)},
          .infer = infer_by(infer),
          .flops = resize_flops,
          .work = WorkClass::kElementwise,
          .position = place_in_resized,
          .size_attributes = {"dims"},
          .accumulates = true};
}

KindInfo sampling(std::string name, std::string summary, size_t inputs, InferFunction infer) {
  return {.name = std::move(name),
          .summary = std::move(summary),
          .min_inputs = inputs,
          .max_inputs = inputs,
          .attributes = {text_attribute("dims"), text_attribute("coordinates", "")},
          .infer = infer_by(infer),
          .flops = sample_flops,
          .work = WorkClass::kLookup,
          .position = place_in_grid,
          .accumulates = true};
}

}  // namespace

std::vector<KindInfo> sampling_kinds() {
  KindInfo resize = resizing("resize", "x at other sizes of some dims, interpolated", infer_resize);
  resize.differentiate = differentiate_resize;
  KindInfo resize_grad = resizing("resize_grad", "dy -> dx of resize", infer_resize_grad);
  resize_grad.gradient = true;
  KindInfo sample = sampling("grid_sample", "a grid at points between its places, interpolated", 2,
                             infer_grid_sample);
  sample.differentiate = differentiate_grid_sample;
  sample.bytes = ByteRule::kPart;
  KindInfo grid_grad = sampling("grid_sample_grad", "(dy, points) -> the gradient of the grid", 2,
                                infer_grid_sample_grad);
  grid_grad.attributes.push_back(text_attribute("grid"));
  grid_grad.size_attributes = {"grid"};
  grid_grad.gradient = true;
  KindInfo points_grad =
      sampling("grid_sample_points_grad", "(dy, grid, points) -> the gradient of the points", 3,
               infer_grid_sample_points_grad);
  points_grad.gradient = true;
  return {resize, resize_grad, sample, grid_grad, points_grad};
}

}  // namespace tessera::kinds
