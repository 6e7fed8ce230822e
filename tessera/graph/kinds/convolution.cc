// conv and its gradients. All three iterate over dims of the same names: those in front of the
// channels (batch), channels of x and of y, places and elements of the kernel; so splits of the
// forward op carry over by name. conv and the gradient of the weight count the places of y and read
// x under their windows; the gradient of x counts the places of x and reads dy over them, so that
// each piece of it is complete.
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

// What the three kinds share: names and sizes of the iteration space, x [lead.., in, spatial..],
// w [out, in, kernel..], y [lead.., out, positions..].
struct Convolution {
  std::vector<Dim> lead;
  std::string in, out;  // op dims: the names that the weight has
  Windows windows;

  std::string x(bool plain = false) const {
    return fmt::format("{} {} {}", spell(lead), in,
                       plain ? windows.spell_plain() : windows.spell_through(WindowUse::kUnder));
  }
  std::string w() const {
    std::string text = fmt::format("{} {}", out, in);
    for (const Window& window : windows.windows) text += fmt::format(" {}", window.kernel);
    return text;
  }
  std::string y(bool plain = true) const {
    return fmt::format("{} {} {}", spell(lead), out,
                       plain ? windows.spell_plain() : windows.spell_through(WindowUse::kOver));
  }
};

Status check_weight(const Tensor& w, std::string_view what) {
  if (w.dims.size() == 4 || w.dims.size() == 5) return {};
  return invalid_input(fmt::format(
      "expected {} with the dims out, in and 2 or 3 of the kernel, found {}", what, describe(w)));
}

// A batch dim, the channels and the spatial dims.
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

std::vector<int64_t> sizes_of(const std::vector<Dim>& dims) {
  std::vector<int64_t> sizes;
  for (const Dim& dim : dims) sizes.push_back(dim.size);
  return sizes;
}

// y of the windows is what was given?
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
  TESSERA_TRY_VOID(check_map(x[0], "x", spatial));
  TESSERA_TRY_VOID(check_channels(x[0], "x", spatial, x[1].dims[1].size));
  Convolution c;
  c.lead = first(x[0].dims, x[0].dims.size() - spatial - 1);
  c.out = x[1].dims[0].name;
  c.in = x[1].dims[1].name;
  TESSERA_TRY(c.windows,
              read_windows(x, last(x[0].dims, spatial), sizes_of(last(x[1].dims, spatial))));
  std::vector<Dim> y = c.lead;
  y.push_back(x[1].dims[0]);
  return conclude(x, fmt::format("{}, {} -> {}", c.x(), c.w(), c.y()),
                  {join_dims(std::move(y), c.windows.positions())}, {x[0].dtype});
}

InputGradients differentiate_conv(GraphBuilder& builder, const Op& op, const OutputGradients& dy,
                                  const std::vector<bool>& wanted) {
  InputGradients out(2);
  const std::vector<Dim> x = builder.tensor(op.inputs[0]).dims,
                         w = builder.tensor(op.inputs[1]).dims;
  const size_t spatial = w.size() - 2;
  Attributes attributes = {{"stride", op.text("stride")}, {"padding", op.text("padding")}};
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
  TESSERA_TRY_VOID(check_map(x[0], "dy", spatial));
  TESSERA_TRY_VOID(check_channels(x[0], "dy", spatial, x[1].dims[0].size));
  TESSERA_TRY(std::vector<Dim> under, parse_dims(x.text("dims")));
  if (under.size() != spatial) {
    return invalid_input(
        fmt::format("expected {} spatial dims in 'dims', found \"{}\"", spatial, x.text("dims")));
  }
  Convolution c;
  c.lead = first(x[0].dims, x[0].dims.size() - spatial - 1);
  c.out = x[1].dims[0].name;
  c.in = x[1].dims[1].name;
  TESSERA_TRY(c.windows, read_windows(x, std::move(under), sizes_of(last(x[1].dims, spatial))));
  TESSERA_TRY_VOID(check_positions(x[0], c.windows));
  std::vector<Dim> dx = c.lead;
  dx.push_back({x.text("channels"), x[1].dims[1].size});
  return conclude(x, fmt::format("{}, {} -> {}", c.y(false), c.w(), c.x(true)),
                  {join_dims(std::move(dx), c.windows.spatial)}, {x[0].dtype});
}

// (x, w; dims, channels, stride, padding) -> y: conv's derivative as a forward op. Its own derivative
// is a convolution, whose result has the channels' name in the weight.
Result<Inferred> infer_conv_transpose(const Operands& x) {
  TESSERA_TRY(Inferred out, infer_input_grad(x));
  const Dim& channels = x[0].dims[x[0].dims.size() - (x[1].dims.size() - 2) - 1];
  if (channels.name == x[1].dims[0].name) return out;
  return invalid_input(fmt::format("expected x with the channels '{}' of the weight, found {}",
                                   x[1].dims[0].name, describe(x[0])));
}

// A convolution and, with the roles of x and dy exchanged, the gradient of a weight.
InputGradients differentiate_conv_transpose(GraphBuilder& builder, const Op& op,
                                            const OutputGradients& dy,
                                            const std::vector<bool>& wanted) {
  InputGradients out(2);
  const std::vector<Dim> w = builder.tensor(op.inputs[1]).dims;
  Attributes attributes = {{"stride", op.text("stride")}, {"padding", op.text("padding")}};
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
Result<Inferred> infer_weight_grad(const Operands& x) {
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
  c.out = x.text("filters");
  c.in = x.text("channels");
  TESSERA_TRY(c.windows, read_windows(x, last(x[1].dims, spatial), sizes_of(kernel)));
  TESSERA_TRY_VOID(check_positions(x[0], c.windows));
  const std::vector<Dim> dw = {{c.out, x[0].dims[lead].size}, {c.in, x[1].dims[lead].size}};
  return conclude(x, fmt::format("{}, {} -> {}", c.y(), c.x(), c.w()), {join_dims(dw, kernel)},
                  {x[0].dtype});
}

int64_t conv_flops(const Op& op) { return 2 * window_points(op); }

}  // namespace

std::vector<KindInfo> convolution_kinds() {
  const std::vector<AttributeInfo> windows = {text_attribute("stride", "1"),
                                              text_attribute("padding", "0")};
  std::vector<AttributeInfo> of_input = windows, of_weight = windows;
  for (const char* name : {"dims", "channels"}) of_input.push_back(text_attribute(name));
  for (const char* name : {"kernel", "filters", "channels"})
    of_weight.push_back(text_attribute(name));
  return {
      {.name = "conv",
       .summary = "convolution (cross-correlation) over the last 2 or 3 dims",
       .min_inputs = 2,
       .max_inputs = 2,
       .attributes = windows,
       .infer = infer_by(infer_conv),
       .differentiate = differentiate_conv,
       .flops = conv_flops,
       .work = WorkClass::kConvolution,
       .family = FamilyRule::kConvolution,
       .position = position_free,
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
       .position = position_free,
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
       .position = position_free,
       .accumulates = true},
      {.name = "conv_weight_grad",
       .summary = "(dy, x) -> dw of conv",
       .min_inputs = 2,
       .max_inputs = 2,
       .attributes = of_weight,
       .infer = infer_by(infer_weight_grad),
       .flops = conv_flops,
       .work = WorkClass::kConvolution,
       .family = FamilyRule::kConvolution,
       .gradient = true,
       .position = position_free,
       .accumulates = true},
  };
}

}  // namespace tessera::kinds
