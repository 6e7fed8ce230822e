// max_pool, avg_pool, sum_pool and their gradients. Their windows are over the last dims.
#include <fmt/format.h>

#include "tessera/graph/kinds/window.h"

namespace tessera::kinds {
namespace {

struct Pool {
  std::vector<Dim> lead;
  Windows windows;

  std::vector<Dim> x_dims() const { return join_dims(lead, windows.spatial); }
  std::vector<Dim> y_dims() const { return join_dims(lead, windows.positions()); }
  std::string through(WindowUse use) const {
    return spell(names_of(lead), windows.spell_through(use));
  }
  std::string plain() const { return spell(names_of(lead), windows.spell_plain()); }
};

// Reads the pool of a tensor that is read through windows. It covers as many of the last dims as
// `kernel` has numbers, or 2 dims if `kernel` has one number.
Result<Pool> read_pool(const Operands& x, const std::vector<Dim>& dims) {
  const size_t spatial = std::max<size_t>(2, words(x.text("kernel")).size());
  if (dims.size() < spatial) {
    return invalid_input(
        fmt::format("expected at least {} dims, found {}", spatial, describe(dims)));
  }
  const auto split = dims.end() - static_cast<std::ptrdiff_t>(spatial);
  TESSERA_TRY(const std::vector<int64_t> kernel, window_numbers(x, "kernel", spatial, 1));
  Pool pool;
  pool.lead = {dims.begin(), split};
  TESSERA_TRY(pool.windows, read_windows(x, {split, dims.end()}, kernel));
  return pool;
}

// (x; kernel, stride, padding) -> y
Result<Inferred> infer_pool(const Operands& x) {
  TESSERA_TRY_VOID(expect_floating(x));
  TESSERA_TRY(const Pool pool, read_pool(x, x[0].dims));
  return conclude(x, fmt::format("{} -> {}", pool.through(WindowUse::kUnder), pool.plain()),
                  {pool.y_dims()}, {x[0].dtype});
}

// (dy, x; kernel, stride, padding) -> dx
Result<Inferred> infer_max_pool_grad(const Operands& x) {
  TESSERA_TRY_VOID(expect_equal_dtypes(x));
  TESSERA_TRY(const Pool pool, read_pool(x, x[1].dims));
  TESSERA_TRY_VOID(expect_dims(x[0], "dy", pool.y_dims()));
  return conclude(x,
                  fmt::format("{}, {} -> {}", pool.through(WindowUse::kOver),
                              pool.through(WindowUse::kBeside), pool.plain()),
                  {x[1].dims}, {x[1].dtype});
}

// (dy; dims, kernel, stride, padding) -> dx
Result<Inferred> infer_avg_pool_grad(const Operands& x) {
  TESSERA_TRY_VOID(expect_floating(x));
  TESSERA_TRY(const std::vector<Dim> under, parse_dims(x.text("dims")));
  if (x[0].dims.size() < under.size()) {
    return invalid_input(
        fmt::format("expected dy with at least {} dims, found {}", under.size(), describe(x[0])));
  }
  const std::vector<Dim> lead = {x[0].dims.begin(),
                                 x[0].dims.end() - static_cast<std::ptrdiff_t>(under.size())};
  TESSERA_TRY(const Pool pool, read_pool(x, join_dims(lead, under)));
  TESSERA_TRY_VOID(expect_dims(x[0], "dy", pool.y_dims()));
  return conclude(x, fmt::format("{} -> {}", pool.through(WindowUse::kOver), pool.plain()),
                  {pool.x_dims()}, {x[0].dtype});
}

InputGradients differentiate_max_pool(GraphBuilder& builder, const Op& op,
                                      const OutputGradients& dy, const std::vector<bool>&) {
  return {builder.op1(op.path + ".dx", "max_pool_grad", {dy[0], op.inputs[0]}, op.attributes)};
}

InputGradients differentiate_avg_pool(GraphBuilder& builder, const Op& op,
                                      const OutputGradients& dy, const std::vector<bool>&) {
  const std::vector<Dim> dims = builder.tensor(op.inputs[0]).dims;
  Attributes attributes = op.attributes;
  const auto spatial =
      static_cast<std::ptrdiff_t>(std::max<size_t>(2, words(op.text("kernel")).size()));
  attributes["dims"] = dims_text({dims.end() - spatial, dims.end()});
  return {builder.op1(op.path + ".dx", "avg_pool_grad", {dy[0]}, attributes)};
}

int64_t window_volume(const Op& op) {
  int64_t volume = 1;
  for (const OpDim& dim : op.annotation.dims) {
    if (dim.window) volume *= dim.window->kernel;
  }
  return volume;
}

// Makes dx as the derivative of the mean times the number of elements of a window.
InputGradients differentiate_sum_pool(GraphBuilder& builder, const Op& op,
                                      const OutputGradients& dy, const std::vector<bool>&) {
  Op mean = op;
  mean.path += ".mean";
  mean.attributes["count_padding"] = int64_t{1};
  const TensorId dx = differentiate_avg_pool(builder, mean, dy, {})[0];
  return {builder.op1(op.path + ".dx", "scale", {dx},
                      {{"factor", static_cast<double>(window_volume(op))}})};
}

// Counts one operation for each element of each window.
int64_t pool_flops(const Op& op) { return window_volume(op) * window_points(op); }

KindInfo pool(std::string name, std::string summary, size_t inputs, InferFunction infer) {
  return {.name = std::move(name),
          .summary = std::move(summary),
          .min_inputs = inputs,
          .max_inputs = inputs,
          .attributes = {text_attribute("kernel"), text_attribute("stride", "1"),
                         text_attribute("padding", "0")},
          .infer = infer_by(infer),
          .flops = pool_flops,
          .work = WorkClass::kElementwise,
          .position = position_free};
}

}  // namespace

std::vector<KindInfo> pooling_kinds() {
  KindInfo largest = pool("max_pool", "largest element of each window", 1, infer_pool);
  largest.differentiate = differentiate_max_pool;
  KindInfo mean = pool("avg_pool", "mean of each window, padding counted or not", 1, infer_pool);
  mean.attributes.push_back(integer_attribute("count_padding", 1));
  mean.differentiate = differentiate_avg_pool;
  mean.linear = true;
  KindInfo mean_grad = pool("avg_pool_grad", "dy -> dx of avg_pool", 1, infer_avg_pool_grad);
  mean_grad.attributes.push_back(text_attribute("dims"));
  mean_grad.attributes.push_back(integer_attribute("count_padding", 1));
  mean_grad.linear = true;
  KindInfo sum = pool("sum_pool", "sum of each window, padding is 0", 1, infer_pool);
  sum.differentiate = differentiate_sum_pool;
  sum.linear = true;
  return {largest, mean, sum,
          pool("max_pool_grad", "(dy, x) -> dx of max_pool", 2, infer_max_pool_grad), mean_grad};
}

}  // namespace tessera::kinds
