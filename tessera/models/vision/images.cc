#include "tessera/models/vision/images.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tessera/models/config.h"

namespace tessera {
namespace {

std::string spell(const std::vector<Dim>& dims) {
  std::string out;
  for (const Dim& dim : dims)
    out += fmt::format("{}{}={}", out.empty() ? "" : " ", dim.name, dim.size);
  return out;
}

TensorId constant(GraphBuilder& g, const std::string& name, const std::vector<Dim>& dims,
                  double value, DType dtype) {
  return g.op1(
      name, "fill", {},
      {{"value", value}, {"dims", spell(dims)}, {"dtype", std::string(dtype_name(dtype))}});
}

}  // namespace

Result<ImageInputs> image_inputs(GraphBuilder& g, std::string_view family, int64_t batch,
                                 int64_t ghost, int64_t channels, int64_t image, DType dtype) {
  std::vector<Dim> lead = {{"batch", batch}};
  if (ghost > 0) {
    const int64_t together = std::min(ghost, batch);
    if (batch % together != 0) {
      return model_error(family, fmt::format("batch={} must be a multiple of ghost={}, or below it",
                                             batch, ghost));
    }
    lead = {{"batch", batch / together}, {"sample", together}};
  }
  std::vector<Dim> dims = lead;
  for (const Dim& dim : {Dim{"channels", channels}, Dim{"height", image}, Dim{"width", image}})
    dims.push_back(dim);
  ImageInputs out;
  out.images = g.input("images", dims, dtype);
  out.targets = g.input("targets", lead, DType::kInt64);
  return out;
}

ModelKey form_key(std::string& form, std::string meaning) {
  return {"form", &form, std::move(meaning), "", {"imagenet", "cifar"}};
}
ModelKey form_image_key(int64_t& image, std::string meaning) {
  return {"image", &image, std::move(meaning), "224 (cifar: 32)", {}, 0};
}
ModelKey form_classes_key(int64_t& classes) {
  return {"classes", &classes, "classes", "1000 (cifar: 10)", {}, 0};
}
ModelKey dense_key(std::vector<int64_t>& dense) {
  return {"dense",
          &dense,
          "widths of the dense layers before the last; 0: none",
          "4096-4096 (cifar: 0)",
          {},
          0};
}

void complete_form(const std::string& form, int64_t& image, int64_t& classes) {
  const bool cifar = form == "cifar";
  if (image == 0) image = cifar ? 32 : 224;
  if (classes == 0) classes = cifar ? 10 : 1000;
}

Status complete_dense(std::string_view family, const std::string& form,
                      std::vector<int64_t>& dense) {
  const std::vector<int64_t> none = {0};
  if (dense.empty()) dense = form == "cifar" ? none : std::vector<int64_t>{4096, 4096};
  if (dense != none && std::count(dense.begin(), dense.end(), 0) > 0)
    return model_error(family, "dense must be 0 or a list of widths of at least 1");
  return {};
}

void dense_classifier(GraphBuilder& g, TensorId x, std::vector<std::string> from,
                      const std::vector<int64_t>& widths, double dropout_p, double last_dropout_p,
                      int64_t classes, TensorId targets) {
  for (size_t i = 0; widths.front() != 0 && i < widths.size(); ++i) {
    const Dim out{i % 2 == 0 ? "features" : "units", widths[i]};
    x = dense_layer(g, fmt::format("head.dense_{}", i + 1), x, from, out,
                    i + 1 == widths.size() ? last_dropout_p : dropout_p);
    from = {out.name};
  }
  double fan_in = 1;
  for (const std::string& dim : from) fan_in *= static_cast<double>(size_of(g, x, dim));
  x = linear(g, "head.out", x, from, {{"classes", classes}}, {normal(1 / std::sqrt(fan_in))});
  cross_entropy_loss(g, x, targets);
}

TensorId image_convolution(GraphBuilder& g, const std::string& name, TensorId x, const Dim& in,
                           const Dim& out, const ConvolutionOptions& options) {
  if (!g.ok()) return {};
  const DType dtype = g.tensor(x).dtype;
  const int64_t kernel = options.kernel;
  const auto fan_out =
      static_cast<double>(kernel * kernel * out.size) / static_cast<double>(options.groups);
  const TensorId w = g.parameter(name + ".weight",
                                 {out,
                                  {in.name, in.size / options.groups},
                                  {"kernel_height", kernel},
                                  {"kernel_width", kernel}},
                                 normal(std::sqrt(2 / fan_out)), dtype);
  const int64_t padding = options.padding < 0 ? kernel / 2 : options.padding;
  const Attributes attributes = {{"stride", fmt::format("{}", options.stride)},
                                 {"padding", fmt::format("{}", padding)},
                                 {"groups", options.groups}};
  const TensorId y = g.op1(name, "conv", {x, w}, attributes);
  return options.bias ? with_bias(g, name, y, out) : y;
}

TensorId with_bias(GraphBuilder& g, const std::string& name, TensorId y, const Dim& channels) {
  if (!g.ok()) return {};
  const TensorId bias =
      g.parameter(name + ".bias", {channels}, {Init::Kind::kZeros}, g.tensor(y).dtype);
  return g.op1(name + "_bias", "add", {y, bias});
}

TensorId image_max_pool(GraphBuilder& g, const std::string& name, TensorId x, int64_t kernel,
                        int64_t stride) {
  return g.op1(name, "max_pool", {x},
               {{"kernel", fmt::format("{0} {0}", kernel)}, {"stride", fmt::format("{}", stride)}});
}

TensorId dense_layer(GraphBuilder& g, const std::string& name, TensorId x,
                     const std::vector<std::string>& in, const Dim& out, double dropout_p) {
  double fan_in = 1;
  for (const std::string& dim : in) fan_in *= static_cast<double>(size_of(g, x, dim));
  x = linear(g, name, x, in, {out}, {normal(std::sqrt(2 / fan_in))});
  x = g.op1(name + ".act", "relu", {x});
  return dropout(g, name + ".dropout", x, dropout_p, name);
}

TensorId scatter_mean(GraphBuilder& g, const std::string& name, TensorId x, TensorId ids,
                      const std::string& dim, const std::string& dims) {
  if (!g.ok()) return {};
  const Attributes onto = {{"dim", dim}, {"dims", dims}};
  const TensorId sum = g.op1(name + ".sum", "scatter_add", {x, ids}, onto);
  const Tensor like = g.tensor(x);
  const TensorId ones = constant(g, name + ".ones", like.dims, 1, like.dtype);
  const TensorId count = g.op1(name + ".count", "scatter_add", {ones, ids}, onto);
  const TensorId least = g.op1(name + ".least", "clamp", {count}, {{"min", 1.0}});
  return g.op1(name, "div", {sum, least});
}

Quantised vector_quantised(GraphBuilder& g, const std::string& name, TensorId z,
                           TensorId codebook) {
  const TensorId point = g.op1(name + ".point", "stop_gradient", {z}),
                 codes = g.op1(name + ".codes", "stop_gradient", {codebook});
  const TensorId score = g.op1(name + ".score", "code_score", {point, codes});
  const TensorId place = g.op1(name + ".place", "code_place", {point, codes, score});
  Quantised out;
  out.ids = g.op1(name + ".ids", "code_ids", {place});
  out.codes = g.op1(name + ".code", "embedding", {out.ids, codebook});
  const TensorId difference = g.op1(name + ".difference", "sub", {out.codes, z});
  const TensorId constant = g.op1(name + ".constant", "stop_gradient", {difference});
  out.straight = g.op1(name, "add", {z, constant});
  return out;
}

}  // namespace tessera
