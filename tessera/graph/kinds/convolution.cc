// conv and its gradients. All three have op dims of the same names: the dims before the channels
// (batch), the channels of x and of y, the spatial positions, and the elements of the kernel. So
// splits of the forward op are inherited by name. conv and the gradient of the weight count the
// positions of y and read x under their windows. The gradient of x counts the positions of x and
// reads dy at all windows over them, so that each piece of the gradient is complete.
#include <fmt/format.h>

#include "tessera/graph/kinds/window.h"

namespace tessera::kinds {
namespace {

std::vector<Dim> first(const std::vector<Dim>& dims, size_t count) {
  return {dims.begin(), dims.begin() + static_cast<std::ptrdiff_t>(count)};
}
std::vector<Dim> last(const std::vector<Dim>& dims, size_t count) {
  return {dims.end() - static_cast<std::ptrdiff_t>(count), dims.end()};
}

// The channels of x, of the weight and of y, spelled with op dims. Without groups they are `in` and
// `out`, the names that the weight has. With groups a channel of y reads only the channels of its
// own group, so the op dim that counts groups is in all three operands. If each group has one
// channel in x and one in y (depth-wise), there is a single dim with the name of the channels of y.
struct Channels {
  std::string of_x, of_weight, of_y;
};

Channels name_channels(const Dim& out, const Dim& in, int64_t groups) {
  if (groups == 1) return {in.name, fmt::format("{} {}", out.name, in.name), out.name};
  if (out.size == groups && in.size == 1)
    return {out.name, fmt::format("{} 1", out.name), out.name};
  const std::string group = out.name + ".group", inside = in.name + ".in", made = out.name + ".out";
  return {fmt::format("({} {})", group, inside), fmt::format("({} {}) {}", group, made, inside),
          fmt::format("({} {})", group, made)};
}

// The iteration space that the three kinds share, with names and sizes, for x [lead.., in,
// spatial..], w [out, in, kernel..] and y [lead.., out, positions..].
struct Convolution {
  std::vector<Dim> lead;
  Channels channels;
  // Number of elements of the weight along each dim; a dilated window spans more.
  std::vector<int64_t> kernel;
  Windows windows;

  std::string x(bool plain = false) const {
    return fmt::format("{} {} {}", spell(lead), channels.of_x,
                       plain ? windows.spell_plain() : windows.spell_through(WindowUse::kUnder));
  }
  std::string w() const {
    std::string text = channels.of_weight;
    for (const int64_t elements : kernel) text += fmt::format(" {}", elements);
    return text;
  }
  std::string y(bool plain = true) const {
    return fmt::format("{} {} {}", spell(lead), channels.of_y,
                       plain ? windows.spell_plain() : windows.spell_through(WindowUse::kOver));
  }
};

constexpr size_t kMostSpatial = 3;

Status check_weight(const Tensor& w, std::string_view what) {
  if (w.dims.size() > 2 && w.dims.size() <= 2 + kMostSpatial) return {};
  return invalid_input(fmt::format(
      "expected {} with the dims out, in and 1 to 3 of the kernel, found {}", what, describe(w)));
}

// Returns the number of groups, which must divide the channels of y. A weight has the input
// channels of one group.
Result<int64_t> read_groups(const Operands& x, const Dim& out) {
  const int64_t groups = x.integer("groups");
  if (groups >= 1 && out.size % groups == 0) return groups;
  return invalid_input(fmt::format("expected groups that divide the {} channels '{}', found {}",
                                   out.size, out.name, groups));
}

// Checks that x has a batch dim, the channels and the spatial dims.
Status check_map(const Tensor& x, std::string_view what, size_t spatial) {
  if (x.dims.size() >= spatial + 2) return {};
  return invalid_input(fmt::format("expected {} with batch, channels and {} spatial dims, found {}",
                                   what, spatial, describe(x)));
}

Status check_channels(const Tensor& x, std::string_view what, size_t spatial, int64_t wanted) {
  const int64_t found = x.dims[x.dims.size() - spatial - 1].size;
  if (found == wanted) return {};
  return invalid_input(
      fmt::format("expected {} with {} channels, found {}", what, wanted, describe(x)));
}

// Sets the windows that a kernel reads. Neighbouring elements of the kernel read places of x that
// are `dilation` apart.
Status set_windows(Convolution& c, const Operands& x, std::vector<Dim> spatial,
                   const std::vector<Dim>& kernel) {
  TESSERA_TRY(const std::vector<int64_t> dilation, window_numbers(x, "dilation", kernel.size(), 1));
  std::vector<int64_t> spans;
  for (size_t d = 0; d < kernel.size(); ++d) {
    c.kernel.push_back(kernel[d].size);
    spans.push_back((kernel[d].size - 1) * dilation[d] + 1);
  }
  TESSERA_TRY(c.windows, read_windows(x, std::move(spatial), spans));
  return {};
}

// Checks that dy has the dims that count the windows.
Status check_positions(const Tensor& dy, const Windows& windows) {
  const std::vector<Dim> positions = windows.positions();
  if (last(dy.dims, positions.size()) == positions) return {};
  return invalid_input(fmt::format("expected dy with the positions {}, found {}",
                                   describe(positions), describe(dy)));
}

// (x, w; stride, padding) -> y
Result<Inferred> infer_conv(const Operands& x) {
  TESSERA_TRY_VOID(expect_equal_dtypes(x));
  TESSERA_TRY_VOID(check_weight(x[1], "a weight"));
  const size_t spatial = x[1].dims.size() - 2;
  TESSERA_TRY(const int64_t groups, read_groups(x, x[1].dims[0]));
  TESSERA_TRY_VOID(check_map(x[0], "x", spatial));
  TESSERA_TRY_VOID(check_channels(x[0], "x", spatial, x[1].dims[1].size * groups));
  Convolution c;
  c.lead = first(x[0].dims, x[0].dims.size() - spatial - 1);
  c.channels = name_channels(x[1].dims[0], x[1].dims[1], groups);
  TESSERA_TRY_VOID(set_windows(c, x, last(x[0].dims, spatial), last(x[1].dims, spatial)));
  std::vector<Dim> y = c.lead;
  y.push_back(x[1].dims[0]);
  return conclude(x, fmt::format("{}, {} -> {}", c.x(), c.w(), c.y()),
                  {join_dims(std::move(y), c.windows.positions())}, {x[0].dtype});
}

// Returns the attributes that the three kinds have in common.
Attributes window_attributes(const Op& op) {
  return {{"stride", op.text("stride")},
          {"padding", op.text("padding")},
          {"dilation", op.text("dilation")},
          {"groups", op.integer("groups")}};
}

InputGradients differentiate_conv(GraphBuilder& builder, const Op& op, const OutputGradients& dy,
                                  const std::vector<bool>& wanted) {
  InputGradients out(2);
  const std::vector<Dim> x = builder.tensor(op.inputs[0]).dims,
                         w = builder.tensor(op.inputs[1]).dims;
  const size_t spatial = w.size() - 2;
  Attributes attributes = window_attributes(op);
  if (wanted[0]) {
    Attributes of_input = attributes;
    of_input["dims"] = dims_text(last(x, spatial));
    of_input["channels"] = x[x.size() - spatial - 1].name;
    out[0] = builder.op1(op.path + ".dx", "conv_input_grad", {dy[0], op.inputs[1]}, of_input);
  }
  if (wanted[1]) {
    attributes["kernel"] = dims_text(last(w, spatial));
    attributes["channels"] = w[1].name;
    attributes["filters"] = w[0].name;
    out[1] = builder.op1(op.path + ".dw", "conv_weight_grad", {dy[0], op.inputs[0]}, attributes);
  }
  return out;
}

// (dy, w; dims, channels, stride, padding) -> dx
Result<Inferred> infer_input_grad(const Operands& x) {
  TESSERA_TRY_VOID(expect_equal_dtypes(x));
  TESSERA_TRY_VOID(check_weight(x[1], "a weight"));
  const size_t spatial = x[1].dims.size() - 2;
  TESSERA_TRY(const int64_t groups, read_groups(x, x[1].dims[0]));
  TESSERA_TRY_VOID(check_map(x[0], "dy", spatial));
  TESSERA_TRY_VOID(check_channels(x[0], "dy", spatial, x[1].dims[0].size));
  TESSERA_TRY(std::vector<Dim> under, parse_dims(x.text("dims")));
  if (under.size() != spatial) {
    return invalid_input(
        fmt::format("expected {} spatial dims in 'dims', found \"{}\"", spatial, x.text("dims")));
  }
  Convolution c;
  c.lead = first(x[0].dims, x[0].dims.size() - spatial - 1);
  c.channels = name_channels(x[1].dims[0], x[1].dims[1], groups);
  TESSERA_TRY_VOID(set_windows(c, x, std::move(under), last(x[1].dims, spatial)));
  TESSERA_TRY_VOID(check_positions(x[0], c.windows));
  std::vector<Dim> dx = c.lead;
  dx.push_back({x.text("channels"), x[1].dims[1].size * groups});
  return conclude(x, fmt::format("{}, {} -> {}", c.y(false), c.w(), c.x(true)),
                  {join_dims(std::move(dx), c.windows.spatial)}, {x[0].dtype});
}

// (x, w; dims, channels, stride, padding) -> y: the derivative of conv as a forward op. Its own
// derivative is a convolution, whose result names its channels as the weight does. So x must do
// so too.
Result<Inferred> infer_conv_transpose(const Operands& x) {
  TESSERA_TRY(Inferred out, infer_input_grad(x));
  const Dim& channels = x[0].dims[x[0].dims.size() - (x[1].dims.size() - 2) - 1];
  if (channels.name == x[1].dims[0].name) return out;
  return invalid_input(fmt::format("expected x with the channels '{}' of the weight, found {}",
                                   x[1].dims[0].name, describe(x[0])));
}

// Makes dx by a convolution and dw by the gradient of a weight, in which x and dy have
// exchanged roles.
InputGradients differentiate_conv_transpose(GraphBuilder& builder, const Op& op,
                                            const OutputGradients& dy,
                                            const std::vector<bool>& wanted) {
  InputGradients out(2);
  const std::vector<Dim> w = builder.tensor(op.inputs[1]).dims;
  Attributes attributes = window_attributes(op);
  if (wanted[0]) {
    out[0] = builder.op1(op.path + ".dx", "conv", {dy[0], op.inputs[1]}, attributes);
  }
  if (wanted[1]) {
    attributes["kernel"] = dims_text(last(w, w.size() - 2));
    attributes["channels"] = w[1].name;
    attributes["filters"] = w[0].name;
    out[1] = builder.op1(op.path + ".dw", "conv_weight_grad", {op.inputs[0], dy[0]}, attributes);
  }
  return out;
}

// (dy, x; kernel, filters, channels, stride, padding) -> dw
Result<Inferred> infer_filter_grad(const Operands& x) {
  TESSERA_TRY_VOID(expect_equal_dtypes(x));
  TESSERA_TRY(const std::vector<Dim> kernel, parse_dims(x.text("kernel")));
  const size_t spatial = kernel.size();
  TESSERA_TRY_VOID(check_map(x[0], "dy", spatial));
  TESSERA_TRY_VOID(check_map(x[1], "x", spatial));
  const size_t lead = x[1].dims.size() - spatial - 1;
  Convolution c;
  c.lead = first(x[1].dims, lead);
  if (x[0].dims.size() != x[1].dims.size() || first(x[0].dims, lead) != c.lead) {
    return invalid_input(fmt::format("expected dy with the batch dims of x, found {} for {}",
                                     describe(x[0]), describe(x[1])));
  }
  const Dim out{x.text("filters"), x[0].dims[lead].size};
  TESSERA_TRY(const int64_t groups, read_groups(x, out));
  const Dim& channels = x[1].dims[lead];
  if (channels.size % groups != 0) {
    return invalid_input(fmt::format("expected x with channels that {} groups divide, found {}",
                                     groups, describe(x[1])));
  }
  const std::vector<Dim> dw = {out, {x.text("channels"), channels.size / groups}};
  c.channels = name_channels(dw[0], dw[1], groups);
  TESSERA_TRY_VOID(set_windows(c, x, last(x[1].dims, spatial), kernel));
  TESSERA_TRY_VOID(check_positions(x[0], c.windows));
  return conclude(x, fmt::format("{}, {} -> {}", c.y(), c.x(), c.w()), {join_dims(dw, kernel)},
                  {x[0].dtype});
}

// Returns kSize for the dim that all three operands have, because attribute `groups` holds its
// size, else kFree.
PositionRule place_in_groups(const Op& op, int dim) {
  const Annotation& a = op.annotation;
  const bool shared =
      a.inputs[0].contains(dim) && a.inputs[1].contains(dim) && a.outputs[0].contains(dim);
  return shared && op.integer("groups") > 1 ? PositionRule::kSize : PositionRule::kFree;
}

int64_t conv_flops(const Op& op) { return 2 * window_points(op); }

}  // namespace

std::vector<KindInfo> convolution_kinds() {
  const std::vector<AttributeInfo> windows = {
      text_attribute("stride", "1"), text_attribute("padding", "0"),
      text_attribute("dilation", "1"), integer_attribute("groups", 1)};
  std::vector<AttributeInfo> of_input = windows, of_weight = windows;
  for (const char* name : {"dims", "channels"}) of_input.push_back(text_attribute(name));
  for (const char* name : {"kernel", "filters", "channels"})
    of_weight.push_back(text_attribute(name));
  return {
      {.name = "conv",
       .summary = "convolution (cross-correlation) over the last 1 to 3 dims",
       .min_inputs = 2,
       .max_inputs = 2,
       .attributes = windows,
       .infer = infer_by(infer_conv),
       .differentiate = differentiate_conv,
       .flops = conv_flops,
       .work = WorkClass::kConvolution,
       .family = FamilyRule::kConvolution,
       .position = place_in_groups,
       .accumulates = true},
      {.name = "conv_transpose",
       .summary = "transposed convolution: each element adds its window to the result",
       .min_inputs = 2,
       .max_inputs = 2,
       .attributes = of_input,
       .infer = infer_by(infer_conv_transpose),
       .differentiate = differentiate_conv_transpose,
       .flops = conv_flops,
       .work = WorkClass::kConvolution,
       .family = FamilyRule::kConvolution,
       .position = place_in_groups,
       .accumulates = true},
      {.name = "conv_input_grad",
       .summary = "(dy, w) -> dx of conv",
       .min_inputs = 2,
       .max_inputs = 2,
       .attributes = of_input,
       .infer = infer_by(infer_input_grad),
       .flops = conv_flops,
       .work = WorkClass::kConvolution,
       .family = FamilyRule::kConvolution,
       .gradient = true,
       .position = place_in_groups,
       .accumulates = true},
      {.name = "conv_weight_grad",
       .summary = "(dy, x) -> dw of conv",
       .min_inputs = 2,
       .max_inputs = 2,
       .attributes = of_weight,
       .infer = infer_by(infer_filter_grad),
       .flops = conv_flops,
       .work = WorkClass::kConvolution,
       .family = FamilyRule::kConvolution,
       .gradient = true,
       .position = place_in_groups,
       .accumulates = true},
  };
}

}  // namespace tessera::kinds
