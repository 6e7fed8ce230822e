// Rows (aten.h) of the ops of convolutions and pools.
#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/text.h"
#include "tessera/import/pt2/aten.h"

namespace tessera::pt2 {
namespace {

constexpr const char* kSpatial[] = {"depth", "height", "width"};

constexpr const char* kConvolution = "conv";
constexpr const char* kTransposed = "conv_transpose";  // its weight is [channels, filters, kernel]
constexpr int64_t kMaxWindow = int64_t{1} << 31;       // the largest stride, kernel or padding

std::string number_text(const std::vector<int64_t>& numbers) {
  std::vector<std::string> out;
  for (const int64_t number : numbers) out.push_back(std::to_string(number));
  return join(out, " ");
}

bool all_are(const std::vector<int64_t>& numbers, int64_t value) {
  return std::all_of(numbers.begin(), numbers.end(), [&](int64_t n) { return n == value; });
}

// Marks the last `spatial` dims of x as dims of pixels: gives them names, and later ops cannot
// refine them.
Value pixels(const Call& call, Value x, size_t spatial) {
  for (size_t i = 0; i < spatial; ++i) {
    const size_t d = x.dims.size() - spatial + i;
    x = call.lowering().whole(x, d);
    for (const Var var : x.dims[d]) call.dims().make_spatial(var);
    call.lowering().hints().add(x.dims[d], kSpatial[i + 3 - spatial], Sure::kWidth);
  }
  return x;
}

// Returns new dims of pixels with these sizes, for a result.
std::vector<Vars> fresh_pixels(const Call& call, const std::vector<int64_t>& sizes) {
  std::vector<Vars> out;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const Var var = call.dims().fresh(sizes[i]);
    call.dims().make_solid(var);
    call.dims().make_spatial(var);
    call.lowering().hints().add({var}, kSpatial[i + 3 - sizes.size()], Sure::kWidth);
    out.push_back({var});
  }
  return out;
}

// The attributes of a convolution or pool.
struct Window {
  std::vector<int64_t> stride, padding, dilation;
  int64_t groups = 1;
  Attributes attributes() const {
    return {{"stride", number_text(stride)},
            {"padding", number_text(padding)},
            {"dilation", number_text(dilation)},
            {"groups", groups}};
  }
};

// Returns the attributes of a transposed convolution with the sizes of the result's pixels and the
// name of its channels added.
Attributes of_transposed(Emitter& e, const std::vector<TensorId>& inputs,
                         const std::vector<Vars>& result, size_t spatial, Attributes attributes) {
  if (!e.builder().ok()) return attributes;
  const std::vector<Dim>& x = e.builder().tensor(inputs[0]).dims;
  std::vector<std::string> places;
  for (size_t i = 0; i < spatial; ++i) {
    places.push_back(fmt::format("{}={}", x[x.size() - spatial + i].name,
                                 e.dims().size(result[result.size() - spatial + i])));
  }
  attributes["dims"] = join(places, " ");
  attributes["channels"] = e.builder().tensor(inputs[1]).dims[1].name;
  return attributes;
}

// Adds an op over maps [lead, channels, pixels]. The op's operand has one dim for each variable of
// the lead dims, one dim for the channels, and one dim for each dim of pixels.
void emit_map(Emitter& e, const std::string& kind, const Value& x, const Value* weight,
              const std::vector<Vars>& result, size_t spatial, Attributes attributes, int slot) {
  std::vector<Emitter::Group> groups;
  std::vector<Vars> lists;
  const size_t lead = x.dims.size() - spatial - 1;
  for (size_t d = 0; d < lead; ++d) {
    for (const Var leaf : e.dims().leaves(x.dims[d])) {
      groups.push_back({{leaf}, e.name(leaf)});
      lists.push_back({leaf});
    }
  }
  groups.push_back({x.dims[lead], "channels"});
  lists.push_back(result[lead]);
  for (size_t i = 0; i < spatial; ++i) {
    groups.push_back({x.dims[lead + 1 + i], kSpatial[i + 3 - spatial]});
    lists.push_back(result[lead + 1 + i]);
  }
  std::vector<TensorId> inputs = {e.grouped(x, groups)};
  if (weight != nullptr) {
    const bool transposed = kind == kTransposed;
    const bool in_groups = std::get<int64_t>(attributes.at("groups")) > 1;
    const char* const names[] = {transposed ? "channels" : "filters",
                                 transposed  ? "filters"
                                 : in_groups ? "group_channels"
                                             : "channels",
                                 "kernel_1", "kernel_2", "kernel_3"};
    std::vector<Emitter::Group> of_weight;
    for (size_t d = 0; d < weight->dims.size(); ++d)
      of_weight.push_back({weight->dims[d], names[d]});
    inputs.push_back(e.grouped(*weight, of_weight));
    if (transposed) attributes = of_transposed(e, inputs, result, spatial, std::move(attributes));
  }
  e.define(slot, e.ungrouped(e.op(kind, std::move(inputs), attributes), lists));
}

// Returns the paddings of a convolution. For the word 'same' these are the paddings that keep the
// sizes, and an error if a kernel reads an even number of places, because there is no such padding.
Result<std::vector<int64_t>> conv_padding(const Call& call, const Value& weight, size_t spatial,
                                          const std::vector<int64_t>& dilation) {
  const std::string word = call.text("padding", "");
  if (word.empty()) return window_numbers(call, "padding", {0}, spatial, 0);
  std::vector<int64_t> padding(spatial, 0);
  for (size_t i = 0; word == "same" && i < spatial; ++i) {
    const int64_t reach = (call.lowering().size(weight, 2 + i) - 1) * dilation[i];
    if (reach % 2 != 0) {
      return invalid_input(fmt::format(
          "an op without a counterpart: expected padding='same' of a kernel that reads an odd "
          "number of places, found {}",
          reach + 1));
    }
    padding[i] = reach / 2;
  }
  return padding;
}

// Makes the convolution of x [batch, channels, pixels] with a weight, [filters, channels, kernel] or
// transposed [channels, filters, kernel], plus the bias. With groups, the second dim of the weight is
// that of one group.
Result<Value> convolved(const Call& call, const std::string& kind, Value x, Value weight,
                        std::optional<Value> bias, Window window) {
  TESSERA_TRY(window.groups, call.integer("groups", 1));
  Lowering& lowering = call.lowering();
  const size_t spatial = weight.dims.size() - 2;
  const int64_t channels = lowering.size(x, 1), rows = lowering.size(weight, 0);
  if (window.groups < 1 || channels % window.groups != 0 || rows % window.groups != 0) {
    return invalid_input(
        fmt::format("expected groups that divide {} channels and {} rows of the weight, found {}",
                    channels, rows, window.groups));
  }
  const TensorMeta* const meta = call.output_meta();
  if (meta == nullptr || meta->sizes.size() != x.dims.size())
    return invalid_input("expected an output with a shape, found none");
  x = lowering.whole(pixels(call, std::move(x), spatial), 1);
  for (size_t d = 0; d < weight.dims.size(); ++d) {
    weight = lowering.whole(weight, d);
    for (const Var var : weight.dims[d]) {
      if (call.dims().size(var) == 1) call.dims().keep_unit(var);
    }
  }
  for (const Var var : x.dims[1]) {
    if (call.dims().size(var) == 1) call.dims().keep_unit(var);
  }
  // The channels of x are a dim of the weight if the weight has all of them.
  const size_t in = kind == kTransposed ? 0 : 1, out = 1 - in;
  const bool whole = lowering.size(weight, in) == channels;
  if ((window.groups == 1 || kind == kTransposed) &&
      (!whole || !lowering.align(x, 1, weight, in))) {
    return invalid_input(fmt::format("expected a weight for {} channels, found {}", channels,
                                     lowering.size(weight, in)));
  }
  if (window.groups > 1 && kind != kTransposed) {
    // If each channel is a group with one filter, channels and filters are one dim.
    if (window.groups == channels && rows == channels) lowering.align(x, 1, weight, out);
    Vars both = x.dims[1];
    both.insert(both.end(), weight.dims[in].begin(), weight.dims[in].end());
    call.dims().keep_distinct(both);
  }
  Hints& hints = lowering.hints();
  hints.add(x.dims[1], "channels", Sure::kPart);
  hints.add(weight.dims[in], "channels", Sure::kPart);
  hints.add(weight.dims[out], "filters", Sure::kPart);
  for (size_t i = 0; i < spatial; ++i)
    hints.add(weight.dims[2 + i], std::string("kernel_") + kSpatial[i + 3 - spatial], Sure::kRole);
  std::vector<Vars> dims = {x.dims[0], weight.dims[out]};
  if (kind == kTransposed && window.groups > 1) {  // the filters of all groups
    const Var filters = call.dims().fresh(meta->sizes[1]);
    call.dims().make_solid(filters);
    hints.add({filters}, "filters", Sure::kPart);
    dims[1] = {filters};
  }
  for (Vars& place : fresh_pixels(call, {meta->sizes.begin() + 2, meta->sizes.end()}))
    dims.push_back(std::move(place));
  Value y = lowering.make(dims, x.dtype);
  lowering.step(call, kind, [kind, x, weight, dims, spatial, window, slot = y.slot](Emitter& e) {
    emit_map(e, kind, x, &weight, dims, spatial, window.attributes(), slot);
  });
  if (!bias) return y;
  bias->dims.insert(bias->dims.end(), spatial, Vars{});
  return pointwise(call, "add_bias", "add", {std::move(y), std::move(*bias)});
}

// Checks that the operands of a convolution have 1 to 3 spatial dims.
Status check_maps(const Value& x, const Value& weight) {
  if (weight.dims.size() >= 3 && weight.dims.size() <= 5 && x.dims.size() == weight.dims.size())
    return {};
  return invalid_input(
      fmt::format("expected maps of 1 to 3 spatial dims, found {} dims", x.dims.size()));
}

Status row_conv(const Call& call) {
  TESSERA_TRY(Value x, call.value("input"));
  TESSERA_TRY(const Value weight, call.value("weight"));
  TESSERA_TRY(std::optional<Value> bias, call.optional_value("bias"));
  TESSERA_TRY_VOID(check_maps(x, weight));
  const size_t spatial = weight.dims.size() - 2;
  Window window;
  TESSERA_TRY(window.stride, window_numbers(call, "stride", {1}, spatial, 1));
  TESSERA_TRY(window.dilation, window_numbers(call, "dilation", {1}, spatial, 1));
  TESSERA_TRY(window.padding, conv_padding(call, weight, spatial, window.dilation));
  TESSERA_TRY(Value y,
              convolved(call, kConvolution, std::move(x), weight, std::move(bias), window));
  call.set(std::move(y));
  return {};
}

// Lowers a transposed convolution whose windows touch but do not overlap. Each pixel then makes a
// separate square of the result, so the op is a matrix product.
Result<Value> squares(const Call& call, const Value& x, const Value& weight,
                      std::optional<Value> bias) {
  const size_t spatial = weight.dims.size() - 2;
  std::vector<std::pair<int, size_t>> out = {{0, 0}, {1, 1}};
  for (size_t i = 0; i < spatial; ++i) {
    out.emplace_back(0, 2 + i);
    out.emplace_back(1, 2 + i);
  }
  call.lowering().hints().add(weight.dims[1], "filters", Sure::kPart);
  TESSERA_TRY(Value y, contract(call, "conv_transpose", {x, weight, {{1, 0}}, {}, {}}, out));
  std::vector<Vars> dims = {y.dims[0], y.dims[1]};
  for (size_t i = 0; i < spatial; ++i) {
    Vars both = y.dims[2 + 2 * i];
    both.insert(both.end(), y.dims[3 + 2 * i].begin(), y.dims[3 + 2 * i].end());
    for (const Var var : both) call.dims().make_spatial(var);
    call.lowering().hints().add(y.dims[2 + 2 * i], kSpatial[i + 3 - spatial], Sure::kWidth);
    dims.push_back(std::move(both));
  }
  y.dims = std::move(dims);
  if (!bias) return y;
  bias->dims.insert(bias->dims.end(), spatial, Vars{});
  return pointwise(call, "add_bias", "add", {std::move(y), std::move(*bias)});
}

Status row_conv_transpose(const Call& call) {
  TESSERA_TRY(Value x, call.value("input"));
  TESSERA_TRY(const Value weight, call.value("weight"));
  TESSERA_TRY(std::optional<Value> bias, call.optional_value("bias"));
  TESSERA_TRY(const int64_t groups, call.integer("groups", 1));
  TESSERA_TRY_VOID(check_maps(x, weight));
  const size_t spatial = weight.dims.size() - 2;
  Window window;
  TESSERA_TRY(window.stride, window_numbers(call, "stride", {1}, spatial, 1));
  TESSERA_TRY(window.dilation, window_numbers(call, "dilation", {1}, spatial, 1));
  TESSERA_TRY(window.padding, window_numbers(call, "padding", {0}, spatial, 0));
  // The output padding needs no attribute, because it is contained in the sizes of the result.
  TESSERA_TRY(const std::vector<int64_t> beyond,
              window_numbers(call, "output_padding", {0}, spatial, 0));
  bool touching = groups == 1 && all_are(window.padding, 0) && all_are(beyond, 0) &&
                  all_are(window.dilation, 1);
  for (size_t i = 0; i < spatial; ++i)
    touching = touching && call.lowering().size(weight, 2 + i) == window.stride[i];
  Result<Value> y =
      touching ? squares(call, x, weight, std::move(bias))
               : convolved(call, kTransposed, std::move(x), weight, std::move(bias), window);
  if (!y) return tl::unexpected(y.error());
  call.set(std::move(*y));
  return {};
}

// Makes the pool of maps [batch, channels, height, width]. The result has `sizes` rows and columns.
Value pool(const Call& call, const std::string& kind, Value x, const std::vector<int64_t>& sizes,
           const std::vector<int64_t>& kernel, const std::vector<int64_t>& stride,
           const std::vector<int64_t>& padding) {
  x = pixels(call, std::move(x), 2);
  std::vector<Vars> dims(x.dims.begin(), x.dims.begin() + 2);
  for (Vars& vars : fresh_pixels(call, sizes)) dims.push_back(std::move(vars));
  Value y = call.lowering().make(dims, x.dtype);
  const Attributes attributes = {{"kernel", number_text(kernel)},
                                 {"stride", number_text(stride)},
                                 {"padding", number_text(padding)}};
  call.lowering().step(call, kind, [x, kind, dims, attributes, slot = y.slot](Emitter& e) {
    emit_map(e, kind, x, nullptr, dims, 2, attributes, slot);
  });
  return y;
}

Status pooled(const Call& call, const std::string& kind) {
  TESSERA_TRY(Value x, call.value("self"));
  TESSERA_TRY(const std::vector<int64_t> kernel, window_numbers(call, "kernel_size", {}, 2, 1));
  TESSERA_TRY(const std::vector<int64_t> stride, window_numbers(call, "stride", kernel, 2, 1));
  TESSERA_TRY(const std::vector<int64_t> padding, window_numbers(call, "padding", {0}, 2, 0));
  TESSERA_TRY(const std::vector<int64_t> dilation, window_numbers(call, "dilation", {1}, 2, 1));
  TESSERA_TRY(const bool ceil_mode, call.flag("ceil_mode", false));
  TESSERA_TRY(const bool counts_padding, call.flag("count_include_pad", true));
  const TensorMeta* const meta = call.output_meta();
  if (x.dims.size() != 4 || !all_are(dilation, 1) || ceil_mode || meta == nullptr ||
      meta->sizes.size() != 4 || (!counts_padding && !all_are(padding, 0)) ||
      call.has("divisor_override")) {
    return invalid_input(
        "an op without a counterpart: expected a pool over maps [batch, channels, height, width] "
        "without dilation and ceil_mode, padding counted");
  }
  call.set(pool(call, kind, std::move(x), {meta->sizes.begin() + 2, meta->sizes.end()}, kernel,
                stride, padding));
  return {};
}
Status row_max_pool(const Call& call) { return pooled(call, "max_pool"); }
Status row_avg_pool(const Call& call) { return pooled(call, "avg_pool"); }

// Lowers an adaptive pool. The last `spatial` dims are cut into equal pieces, one for each place of
// the result, and the result is the mean (if `mean`) or the maximum of each piece.
Status adaptive_pool(const Call& call, size_t spatial, bool mean) {
  TESSERA_TRY(Value x, call.value("self"));
  const TensorMeta* const meta = call.output_meta();
  if (x.dims.size() <= spatial || meta == nullptr || meta->sizes.size() != x.dims.size())
    return invalid_input("expected an output with the dims of the input, found none");
  std::vector<int64_t> sizes, kernel;
  std::vector<size_t> over;
  double count = 1;
  for (size_t d = 0; d < x.dims.size(); ++d) {
    const int64_t size = call.lowering().size(x, d), now = meta->sizes[d];
    if (now < 1 || size % now != 0) {
      return invalid_input(
          fmt::format("an op without a counterpart: expected an adaptive pool whose result's size "
                      "divides {}, found {}",
                      size, now));
    }
    sizes.push_back(now);
    if (d + spatial < x.dims.size()) continue;
    const int64_t width = size / now;
    sizes.push_back(width);
    kernel.push_back(width);
    over.push_back(sizes.size() - 1);
    count *= static_cast<double>(width);
  }
  const auto lists = call.dims().view(x.dims, sizes);
  if (lists) {
    x.dims = *lists;
    call.set(mean ? reduced(call, "pool", x, over, false, 1 / count)
                  : largest(call, "pool", x, over, false));
    return {};
  }
  // The dims of pixels cannot be cut into pieces, so the pool uses windows that touch each other:
  // its stride is the kernel.
  if (spatial != 2 || x.dims.size() != 4) {
    return invalid_input(
        "an op without a counterpart: expected an adaptive pool that makes one pixel, or one of "
        "maps [batch, channels, height, width]");
  }
  call.set(pool(call, mean ? "avg_pool" : "max_pool", std::move(x),
                {meta->sizes.begin() + 2, meta->sizes.end()}, kernel, kernel, {0, 0}));
  return {};
}
template <size_t kSpatialDims>
Status row_adaptive_avg_pool(const Call& call) {
  return adaptive_pool(call, kSpatialDims, true);
}
template <size_t kSpatialDims>
Status row_adaptive_max_pool(const Call& call) {
  return adaptive_pool(call, kSpatialDims, false);
}

}  // namespace

Result<std::vector<int64_t>> window_numbers(const Call& call, std::string_view name,
                                            std::vector<int64_t> otherwise, size_t spatial,
                                            int64_t least) {
  std::vector<int64_t> numbers = otherwise;
  if (call.has(name)) {
    TESSERA_TRY(numbers, call.integers(name));
    if (numbers.empty()) numbers = std::move(otherwise);
  }
  if (numbers.size() == 1) numbers.resize(spatial, numbers[0]);
  const bool fit = std::all_of(numbers.begin(), numbers.end(),
                               [&](int64_t n) { return n >= least && n <= kMaxWindow; });
  if (numbers.size() == spatial && fit) return numbers;
  return invalid_input(fmt::format("argument '{}': expected {} numbers from {} to {}, found ({})",
                                   name, spatial, least, kMaxWindow, number_text(numbers)));
}

Rows convolution_rows() {
  return {{"conv1d", row_conv},
          {"conv2d", row_conv},
          {"conv3d", row_conv},
          {"conv_transpose2d", row_conv_transpose},
          {"conv_transpose3d", row_conv_transpose},
          {"max_pool2d", row_max_pool},
          {"avg_pool2d", row_avg_pool},
          {"adaptive_avg_pool1d", row_adaptive_avg_pool<1>},
          {"adaptive_avg_pool2d", row_adaptive_avg_pool<2>},
          {"adaptive_avg_pool3d", row_adaptive_avg_pool<3>},
          {"adaptive_max_pool1d", row_adaptive_max_pool<1>},
          {"adaptive_max_pool2d", row_adaptive_max_pool<2>},
          {"adaptive_max_pool3d", row_adaptive_max_pool<3>}};
}

}  // namespace tessera::pt2
