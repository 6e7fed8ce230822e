#include "tessera/models/science/ga_planes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tessera/base/text.h"
#include "tessera/models/nn.h"

namespace tessera {
namespace {

constexpr std::array<const char*, 3> kAxes = {"x", "y", "z"};

// An element of the representation (a line, a plane or the volume), with the axes along which its
// grid extends.
struct Element {
  std::string name;        // "e13"
  std::vector<int> axes;   // 0 and 2
  int64_t channels, size;  // `size`: grid points along each axis
};

std::vector<Element> elements_of(const GaPlanesConfig& config) {
  std::vector<Element> out;
  const auto add = [&](std::vector<int> axes, int64_t channels, int64_t size) {
    if (channels == 0) return;
    std::string name = "e";
    for (const int axis : axes) name += std::to_string(axis + 1);
    out.push_back({std::move(name), std::move(axes), channels, size});
  };
  const int space = static_cast<int>(config.space);
  for (int a = 0; a < space; ++a) add({a}, config.lines, config.line_size);
  for (int a = 0; a < space; ++a) {
    for (int b = a + 1; b < space; ++b) add({a, b}, config.planes, config.plane_size);
  }
  if (space == 3) add({0, 1, 2}, config.volume, config.volume_size);
  return out;
}

class Field {
 public:
  Field(GraphBuilder& g, const GaPlanesConfig& config, TensorId points)
      : g_(g), config_(config), points_(points) {
    for (const Dim& dim : g.tensor(points).dims) {
      if (dim.name == "coordinate") continue;
      lead_ += (lead_.empty() ? "" : " ") + dim.name;
    }
  }

  // Makes the values of the field at the points.
  TensorId make() {
    std::vector<std::vector<TensorId>> by_grade(static_cast<size_t>(config_.space) + 1);
    for (const Element& element : elements_of(config_))
      by_grade[element.axes.size()].push_back(feature(element));
    std::vector<TensorId> features;
    for (size_t grade = 0; grade < by_grade.size(); ++grade) {
      const std::vector<TensorId>& same = by_grade[grade];
      if (same.empty()) continue;
      if (config_.combine == "product") {
        TensorId product = same.front();
        for (size_t i = 1; i < same.size(); ++i)
          product = g_.op1(fmt::format("grids.product_{}_{}", grade, i), "mul", {product, same[i]});
        features.push_back(product);
      } else {
        features.insert(features.end(), same.begin(), same.end());
      }
    }
    if (config_.combine == "sum" && features.size() > 1)
      features = {g_.op1("grids.sum", "add_n", features)};
    if (config_.training == "nonconvex") return decoded(features);
    if (config_.training == "semiconvex") return gated(features);
    std::vector<TensorId> sums;
    for (size_t i = 0; i < features.size(); ++i) {
      sums.push_back(g_.op1(fmt::format("decoder.sum_{}", i), "reduce_sum", {features[i]},
                            {{"dims", "channels"}}));
    }
    return total("decoder.total", sums);
  }

 private:
  // Makes 1 where x >= 0, else 0.
  TensorId is_positive(const std::string& name, TensorId x) {
    const TensorId kept = g_.op1(name + ".kept", "relu", {x});
    return g_.op1(name, "equal", {kept, x});
  }
  TensorId total(const std::string& name, const std::vector<TensorId>& terms) {
    return terms.size() == 1 ? terms.front() : g_.op1(name, "add_n", terms);
  }

  TensorId sample(const std::string& name, const Element& element, TensorId grid) {
    std::string dims, coordinates;
    for (const int axis : element.axes) {
      dims += fmt::format("{}{}", dims.empty() ? "" : " ", kAxes[static_cast<size_t>(axis)]);
      coordinates += fmt::format("{}{}", coordinates.empty() ? "" : " ", axis);
    }
    return g_.op1(name, "grid_sample", {grid, points_},
                  {{"dims", dims}, {"coordinates", coordinates}});
  }

  // Makes the element's features at the points. With training=convex they are set to 0 where the
  // gate (a fixed random grid) is below 0.
  TensorId feature(const Element& element) {
    const std::string path = "grids." + element.name;
    std::vector<Dim> dims = {{"channels", element.channels}};
    for (const int axis : element.axes) {
      dims.push_back({kAxes[static_cast<size_t>(axis)], element.size});
    }
    const TensorId grid = g_.parameter(path + ".weight", dims, normal(config_.init), config_.dtype);
    const TensorId f = sample(path, element, grid);
    if (config_.training != "convex") return f;
    const TensorId gate = g_.buffer(path + ".gate", dims, normal(1), config_.dtype);
    const TensorId open = is_positive(path + ".open", sample(path + ".gate_sample", element, gate));
    return g_.op1(path + ".gated", "mul", {f, open});
  }

  // Makes the sum, over all elements, of the features times a weight, plus a bias. The weights of
  // the elements are parts of one matrix, which is applied to the concatenated features.
  TensorId products(const std::string& name, const std::vector<TensorId>& features, bool fixed) {
    int64_t width = 0;
    for (const TensorId f : features) width += size_of(g_, f, "channels");
    const Init init = normal(1 / std::sqrt(static_cast<double>(width)));
    std::vector<TensorId> terms;
    for (size_t i = 0; i < features.size(); ++i) {
      const std::string path = fmt::format("decoder.{}_{}", name, i);
      const std::vector<Dim> dims = {{"channels", size_of(g_, features[i], "channels")},
                                     {"units", config_.hidden}};
      const TensorId w = fixed ? g_.buffer(path + ".weight", dims, init, config_.dtype)
                               : g_.parameter(path + ".weight", dims, init, config_.dtype);
      if (!fixed) g_.publish(w, "units channels");
      terms.push_back(
          g_.op1(path, "einsum", {features[i], w},
                 {{"spec", fmt::format("{0} channels+, channels units -> {0} units", lead_)}}));
    }
    const std::string path = "decoder." + name;
    const Dim units{"units", config_.hidden};
    const TensorId bias =
        fixed ? g_.buffer(path + ".bias", {units}, init, config_.dtype)
              : g_.parameter(path + ".bias", {units}, {Init::Kind::kZeros}, config_.dtype);
    return g_.op1(path + ".biased", "add", {total(path, terms), bias});
  }

  TensorId decoded(const std::vector<TensorId>& features) {
    const TensorId h = g_.op1("decoder.act", "relu", {products("in", features, false)});
    return linear(g_, "decoder.out", h, {"units"}, {},
                  {normal(1 / std::sqrt(static_cast<double>(config_.hidden)))});
  }

  TensorId gated(const std::vector<TensorId>& features) {
    std::vector<TensorId> constants;
    for (size_t i = 0; i < features.size(); ++i) {
      constants.push_back(
          g_.op1(fmt::format("decoder.constant_{}", i), "stop_gradient", {features[i]}));
    }
    const TensorId open = is_positive("decoder.open", products("gate", constants, true));
    const TensorId values = products("in", features, false);
    return g_.op1("decoder.sum", "reduce_sum", {g_.op1("decoder.gated", "mul", {values, open})},
                  {{"dims", "units"}});
  }

  GraphBuilder& g_;
  const GaPlanesConfig& config_;
  TensorId points_;
  std::string lead_;
};

// Returns points [batch, samples, coordinate] that are evenly spaced from near to far along
// each ray.
TensorId points_of_rays(GraphBuilder& g, const GaPlanesConfig& config, TensorId origins,
                        TensorId directions) {
  const double step =
      config.samples > 1 ? (config.far - config.near) / static_cast<double>(config.samples - 1) : 0;
  const auto constant = [&](const char* name, double value) {
    return g.op1(name, "fill", {},
                 {{"value", value},
                  {"dims", fmt::format("samples={}", config.samples)},
                  {"dtype", std::string(dtype_name(config.dtype))}});
  };
  const TensorId walked =
      g.op1("rays.walked", "cumsum", {constant("rays.step", step)}, {{"dim", "samples"}});
  const TensorId distance =
      g.op1("rays.distance", "add", {walked, constant("rays.first", config.near - step)});
  const TensorId way = g.op1("rays.way", "einsum", {directions, distance},
                             {{"spec", "batch coordinate, samples -> batch samples coordinate"}});
  return g.op1("rays.points", "add", {way, origins});
}

}  // namespace

std::vector<ModelKey> model_keys(GaPlanesConfig& config) {
  return {
      {"space", &config.space, "2 or 3 dimensions"},
      {"training",
       &config.training,
       "how features become the field",
       "",
       {"convex", "semiconvex", "nonconvex", "linear"}},
      {"combine", &config.combine, "how elements are joined", "", {"concat", "sum", "product"}},
      {"lines", &config.lines, "channels of each line; 0: none", "", {}, 0},
      {"planes", &config.planes, "channels of each plane; 0: none", "", {}, 0},
      {"volume", &config.volume, "channels of the volume; 0: none", "2 (space=2: 0)", {}, 0},
      {"line_size", &config.line_size, "places of a line"},
      {"plane_size", &config.plane_size, "places of a plane in each direction"},
      {"volume_size", &config.volume_size, "places of the volume in each direction"},
      {"hidden", &config.hidden, "units of the decoder (semiconvex, nonconvex)"},
      {"samples", &config.samples, "of a ray, whose mean is trained; 0: points", "", {}, 0},
      {"near", &config.near, "distance of the first sample from a ray's origin"},
      {"far", &config.far, "distance of the last one"},
      {"init", &config.init, "standard deviation of the grids at the beginning"},
      {"dtype", &config.dtype, "of parameters and activations"},
  };
}

Status complete(GaPlanesConfig& config) {
  const auto error = [](std::string message) { return model_error("ga_planes", message); };
  if (config.space != 2 && config.space != 3)
    return error(fmt::format("space={} must be 2 or 3", config.space));
  constexpr int64_t kVolume = 2;
  if (config.volume < 0) config.volume = config.space == 3 ? kVolume : 0;
  if (config.space == 2 && config.volume > 0)
    return error(fmt::format("volume={} needs space=3", config.volume));
  if (config.lines + config.planes + config.volume == 0)
    return error("expected channels of lines, planes or the volume, found none");
  if (config.training == "convex" && config.combine == "product") {
    return error(
        "training=convex needs combine=concat or sum: a product is not linear in the grids");
  }
  if (config.combine == "sum") {
    int64_t channels = 0;
    for (const Element& element : elements_of(config)) {
      if (channels > 0 && element.channels != channels) {
        return error(fmt::format("combine=sum needs equally many channels, found {} and {}",
                                 channels, element.channels));
      }
      channels = element.channels;
    }
  }
  if (config.far < config.near)
    return error(fmt::format("far={} must be at least near={}", config.far, config.near));
  return {};
}

Result<Graph> build_ga_planes(const GaPlanesConfig& config, int64_t batch) {
  GraphBuilder g("ga_planes");
  const Dim rays{"batch", batch}, coordinate{"coordinate", config.space};
  const bool narrow = dtype_bytes(config.dtype) < dtype_bytes(DType::kFloat32);
  const DType wide = narrow ? DType::kFloat32 : config.dtype;  // dtype of the loss
  TensorId points;
  if (config.samples == 0) {
    points = g.input("points", {rays, coordinate}, config.dtype);
  } else {
    const TensorId origins = g.input("origins", {rays, coordinate}, config.dtype),
                   directions = g.input("directions", {rays, coordinate}, config.dtype);
    points = points_of_rays(g, config, origins, directions);
  }
  const TensorId targets = g.input("targets", {rays}, wide);
  if (!g.ok()) return g.finish();
  TensorId y = Field(g, config, points).make();
  if (config.samples > 0) {
    y = g.op1("head.mean", "reduce_sum", {y},
              {{"dims", "samples"}, {"factor", 1 / static_cast<double>(config.samples)}});
  }
  if (narrow) y = g.op1("loss.cast", "cast", {y}, {{"dtype", std::string(dtype_name(wide))}});
  g.graph().loss = mean_square_error(g, "loss", y, targets);
  return g.finish();
}

}  // namespace tessera
