// The cases of test_kernel_cases.h for images, volumes and grids: windows with dilation and groups,
// exact divisors of means, other sizes, grids at points, scattered maxima.
#include <string>

#include "tessera/models/vision/images.h"
#include "tessera/runtime/kernels/test_kernel_cases.h"

namespace tessera::testing {
namespace {

TensorId add_parameter(GraphBuilder& g, const char* name, std::vector<Dim> dims, DType dtype) {
  return g.parameter(name, std::move(dims), {Init::Kind::kNormal, 1.0}, dtype);
}

// Makes a convolution of maps [b, c, rest..] with a weight [o, i, kernel..].
TensorId conv(GraphBuilder& g, DType t, std::vector<Dim> x, std::vector<Dim> w,
              const Attributes& attributes) {
  return g.op1("op", "conv",
               {add_parameter(g, "x", std::move(x), t), add_parameter(g, "w", std::move(w), t)},
               attributes);
}

TensorId mean(GraphBuilder& g, DType t, std::vector<Dim> x, const char* kernel, const char* stride,
              const char* padding) {
  return g.op1("op", "avg_pool", {add_parameter(g, "x", std::move(x), t)},
               {{"kernel", std::string(kernel)},
                {"stride", std::string(stride)},
                {"padding", std::string(padding)},
                {"count_padding", int64_t{0}}});
}

TensorId resized(GraphBuilder& g, DType t, std::vector<Dim> x, const char* dims, const char* mode,
                 int64_t corners = 0) {
  return g.op1("op", "resize", {add_parameter(g, "x", std::move(x), t)},
               {{"dims", std::string(dims)}, {"mode", std::string(mode)}, {"corners", corners}});
}

TensorId sampled(GraphBuilder& g, DType t, std::vector<Dim> grid, std::vector<Dim> points,
                 const char* dims) {
  return g.op1("op", "grid_sample",
               {add_parameter(g, "grid", std::move(grid), t),
                add_parameter(g, "points", std::move(points), t)},
               {{"dims", std::string(dims)}});
}

}  // namespace

std::vector<Case> image_cases() {
  return {
      {"conv_1d",
       [](auto& g, DType t) {
         return conv(g, t, {{"b", 3}, {"c", 4}, {"x", 9}}, {{"o", 3}, {"c", 4}, {"k", 3}},
                     {{"stride", "2"}, {"padding", "1"}});
       }},
      {"conv_of_many_single_elements",
       [](auto& g, DType t) {
         return conv(g, t, {{"b", 2}, {"c", 3}, {"y", 6}, {"x", 7}},
                     {{"o", 4}, {"c", 3}, {"ky", 1}, {"kx", 1}}, {});
       }},
      {"conv_of_single_elements_with_stride",
       [](auto& g, DType t) {
         return conv(g, t, {{"b", 2}, {"c", 3}, {"y", 5}, {"x", 4}},
                     {{"o", 4}, {"c", 3}, {"ky", 1}, {"kx", 1}}, {{"stride", "2 3"}});
       }},
      {"conv_dilated",
       [](auto& g, DType t) {
         return conv(g, t, {{"b", 2}, {"c", 3}, {"y", 9}, {"x", 7}},
                     {{"o", 4}, {"c", 3}, {"ky", 3}, {"kx", 2}},
                     {{"stride", "2 1"}, {"padding", "2 1"}, {"dilation", "2 3"}});
       }},
      {"conv_dilated_3d",
       [](auto& g, DType t) {
         return conv(g, t, {{"b", 2}, {"c", 2}, {"z", 5}, {"y", 4}, {"x", 5}},
                     {{"o", 2}, {"c", 2}, {"kz", 3}, {"ky", 1}, {"kx", 2}},
                     {{"padding", "2 0 1"}, {"dilation", "2 1 2"}});
       }},
      {"conv_groups",
       [](auto& g, DType t) {
         return conv(g, t, {{"b", 2}, {"c", 6}, {"y", 5}, {"x", 4}},
                     {{"o", 9}, {"i", 2}, {"ky", 3}, {"kx", 2}},
                     {{"padding", "1 0"}, {"groups", int64_t{3}}});
       }},
      {"conv_depth_wise",
       [](auto& g, DType t) {
         return conv(g, t, {{"b", 2}, {"s", 2}, {"c", 4}, {"y", 6}, {"x", 5}},
                     {{"o", 4}, {"i", 1}, {"ky", 3}, {"kx", 3}},
                     {{"stride", "2"}, {"padding", "1"}, {"groups", int64_t{4}}});
       }},
      {"conv_depth_wise_with_a_multiplier",
       [](auto& g, DType t) {
         return conv(g, t, {{"b", 2}, {"c", 3}, {"x", 7}}, {{"o", 6}, {"i", 1}, {"k", 3}},
                     {{"dilation", "2"}, {"groups", int64_t{3}}});
       }},
      {"conv_transpose_of_groups",
       [](auto& g, DType t) {
         return g.op1("op", "conv_transpose",
                      {add_parameter(g, "x", {{"b", 2}, {"c", 4}, {"y", 5}, {"x", 4}}, t),
                       add_parameter(g, "w", {{"c", 4}, {"i", 3}, {"ky", 3}, {"kx", 2}}, t)},
                      {{"dims", std::string("y=11 x=6")},
                       {"channels", std::string("o")},
                       {"stride", std::string("2 1")},
                       {"padding", std::string("1 0")},
                       {"dilation", std::string("2 2")},
                       {"groups", int64_t{2}}});
       }},
      {"avg_pool_without_padding",
       [](auto& g, DType t) {
         return mean(g, t, {{"b", 2}, {"c", 2}, {"y", 7}, {"x", 6}}, "3 4", "2 1", "1 2");
       }},
      {"avg_pool_3d_without_padding",
       [](auto& g, DType t) {
         return mean(g, t, {{"b", 2}, {"z", 4}, {"y", 5}, {"x", 3}}, "3 3 2", "2 1 1", "1 1 0");
       }},
      {"resize_nearest_up",
       [](auto& g, DType t) {
         return resized(g, t, {{"b", 2}, {"y", 4}, {"x", 3}}, "y=8 x=9", "nearest");
       }},
      {"resize_nearest_down",
       [](auto& g, DType t) {
         return resized(g, t, {{"b", 2}, {"y", 8}, {"x", 9}}, "y=4 x=3", "nearest");
       }},
      {"resize_bilinear_up",
       [](auto& g, DType t) {
         return resized(g, t, {{"b", 2}, {"y", 4}, {"x", 3}}, "y=8 x=9", "linear");
       }},
      {"resize_bilinear_down",
       [](auto& g, DType t) {
         return resized(g, t, {{"b", 2}, {"y", 8}, {"x", 9}}, "y=4 x=3", "linear");
       }},
      {"resize_bilinear_at_odd_ratios",
       [](auto& g, DType t) {
         return resized(g, t, {{"b", 2}, {"y", 5}, {"x", 7}}, "y=7 x=3", "linear");
       }},
      {"resize_nearest_at_odd_ratios",
       [](auto& g, DType t) {
         return resized(g, t, {{"b", 2}, {"y", 5}, {"x", 7}}, "y=7 x=3", "nearest");
       }},
      {"resize_bilinear_with_corners",
       [](auto& g, DType t) {
         return resized(g, t, {{"b", 2}, {"y", 4}, {"x", 3}}, "y=8 x=1", "linear", 1);
       }},
      {"resize_trilinear",
       [](auto& g, DType t) {
         return resized(g, t, {{"c", 2}, {"z", 3}, {"y", 4}, {"x", 2}}, "z=6 y=2 x=5", "linear");
       }},
      {"grid_sample_of_a_line",
       [](auto& g, DType t) {
         return sampled(g, t, {{"c", 3}, {"x", 5}}, {{"b", 2}, {"n", 4}, {"coordinates", 1}}, "x");
       },
       1.2},
      {"grid_sample_of_a_plane_in_each_sample",
       [](auto& g, DType t) {
         return sampled(g, t, {{"b", 2}, {"c", 3}, {"y", 4}, {"x", 3}},
                        {{"b", 2}, {"n", 5}, {"coordinates", 2}}, "y x");
       },
       1.2},
      {"grid_sample_of_a_volume",
       [](auto& g, DType t) {
         return sampled(g, t, {{"c", 2}, {"z", 3}, {"y", 4}, {"x", 2}},
                        {{"n", 6}, {"coordinates", 3}}, "x y z");
       },
       1.2},
      {"grid_sample_by_some_coordinates",
       [](auto& g, DType t) {
         return g.op1("op", "grid_sample",
                      {add_parameter(g, "grid", {{"c", 2}, {"y", 4}, {"x", 3}}, t),
                       add_parameter(g, "points", {{"n", 5}, {"coordinates", 3}}, t)},
                      {{"dims", std::string("y x")}, {"coordinates", std::string("2 0")}});
       }},
      // The nearest of some codes, which are trained.
      {"nearest_code",
       [](auto& g, DType t) {
         const TensorId x = g.input("x", {{"b", 2}, {"n", 4}, {"w", 3}}, t),
                        codes = add_parameter(g, "codes", {{"k", 7}, {"w", 3}}, t);
         return vector_quantised(g, "op", x, codes).codes;
       }},
      {"scatter_max",
       [](auto& g, DType t) {
         return g.op1("op", "scatter_max",
                      {add_parameter(g, "x", {{"b", 2}, {"k", 13}, {"h", 3}}, t),
                       g.input("ids", {{"k", 13}}, DType::kInt64)},
                      {{"dim", std::string("v")}, {"dims", std::string("b=2 v=11 h=3")}});
       }},
  };
}

}  // namespace tessera::testing
