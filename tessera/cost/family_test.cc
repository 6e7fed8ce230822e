// Families of measured kernels: names and sizes of instructions, interpolation, fall-backs.
#include "tessera/cost/family.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "tessera/program/test_programs.h"

namespace tessera {
namespace {

std::set<std::string> names_of(const TestPrograms& lowered) {
  std::set<std::string> names;
  for (const auto& [ref, block] : lowered.programs[0].blocks) {
    for (const Instruction& instruction : block) {
      if (const auto* compute = std::get_if<Compute>(&instruction.body))
        names.insert(family_of(lowered.graph, lowered.programs[0], *compute).name);
    }
  }
  return names;
}

// The forward product x W, its data gradient and its weight gradient have three different layouts.
TEST(Family, tells_the_transposes_of_a_layer_apart) {
  TestModel model;
  const std::set<std::string> names =
      names_of(lower_all(trained(test_transformer(model)), "serial"));
  int forward = 0, data = 0, weight = 0;
  for (const std::string& name : names) {
    if (name.find(".nn") != std::string::npos) ++forward;
    if (name.find(".nt") != std::string::npos) ++data;
    if (name.find(".tn") != std::string::npos) ++weight;
  }
  EXPECT_GT(forward, 0);
  EXPECT_GT(data, 0);
  EXPECT_GT(weight, 0);
}

TEST(Family, convolutions_are_told_apart_by_their_windows) {
  GraphBuilder g("conv");
  const auto x = g.input("x", {{"batch", 2}, {"c", 8}, {"y", 9}, {"x", 9}}, DType::kFloat32);
  const auto w = g.parameter("w", {{"o", 16}, {"c", 8}, {"kh", 3}, {"kw", 3}}, {});
  const auto one = g.parameter("one", {{"p", 4}, {"o", 16}, {"kh", 1}, {"kw", 1}}, {});
  const auto y = g.op1("three", "conv", {x, w}, {{"stride", "2"}, {"padding", "1"}});
  g.graph().loss =
      g.op1("loss", "reduce_sum", {g.op1("single", "conv", {y, one})}, {{"dims", "batch p y x"}});
  const TestPrograms lowered = lower_all(trained(*g.finish()), "serial");
  std::map<std::string, std::vector<double>> sizes;
  for (const auto& [ref, block] : lowered.programs[0].blocks) {
    for (const Instruction& instruction : block) {
      if (const auto* compute = std::get_if<Compute>(&instruction.body)) {
        const FamilyKey key = family_of(lowered.graph, lowered.programs[0], *compute);
        sizes[key.name] = key.size;
      }
    }
  }
  using Sizes = std::vector<double>;
  EXPECT_EQ(sizes["conv.float32.k3x3s2x2"], (Sizes{50, 16, 72}));
  EXPECT_EQ(sizes["conv.float32"], (Sizes{50, 4, 16}));
  EXPECT_EQ(sizes["conv_weight_grad.float32.k3x3s2x2"], (Sizes{16, 72, 50}));
  EXPECT_EQ(size_names({"conv.float32", {1, 1, 1}}), (std::vector<std::string>{"m", "n", "k"}));
}

Family grid(double (*seconds)(double, double)) {
  Family family{{"rows", "width"}, {}};
  for (double rows = 16; rows <= 4096; rows *= 4) {
    for (double width = 32; width <= 2048; width *= 4)
      family.samples.push_back({{rows, width}, seconds(rows, width), 0.1});
  }
  return family;
}

TEST(Family, a_measured_size_is_found_as_it_is) {
  const Family family = grid([](double r, double w) { return 1e-9 * r * w; });
  const Measured found = interpolate(family, {64, 128});
  EXPECT_TRUE(found.exact);
  EXPECT_DOUBLE_EQ(found.seconds, 64 * 128 * 1e-9);
}

TEST(Family, between_samples_a_power_law_comes_out) {
  const Family family = grid([](double r, double w) { return 1e-9 * r * std::pow(w, 0.8); });
  for (const std::vector<double>& size : {std::vector<double>{100, 100}, {1000, 300}, {40, 1500}}) {
    const Measured found = interpolate(family, size);
    const double truth = 1e-9 * size[0] * std::pow(size[1], 0.8);
    EXPECT_FALSE(found.exact);
    EXPECT_NEAR(found.seconds, truth, 0.03 * truth);
  }
}

TEST(Family, beyond_the_samples_the_rate_is_held_and_doubt_grows) {
  const Family family = grid([](double r, double w) { return 1e-9 * r * w; });
  const Measured inside = interpolate(family, {3000, 1000});
  const Measured outside = interpolate(family, {64 * 4096, 1000});
  EXPECT_NEAR(outside.seconds, 1e-9 * 64 * 4096 * 1000, 0.05 * outside.seconds);
  EXPECT_GT(outside.uncertainty, inside.uncertainty + 0.3);
}

TEST(Family, a_suffix_that_was_not_measured_falls_back) {
  Profile profile;
  profile.families["einsum.float32.nn@2"].samples.push_back({{1, 1, 1, 1}, 1, 0});
  profile.families["einsum.float32.nn@1"].samples.push_back({{1, 1, 1, 1}, 2, 0});
  const auto seconds = [&](std::string_view name, int64_t ranks) {
    const Family* family = find_family(profile, name, ranks);
    return family == nullptr ? 0.0 : family->samples[0].seconds;
  };
  EXPECT_EQ(seconds("einsum.float32.nn", 2), 1);
  EXPECT_EQ(seconds("einsum.float32.nn.bias.add", 2), 1);
  EXPECT_EQ(seconds("einsum.float32.nn", 1), 2);
  EXPECT_EQ(seconds("einsum.float32.nn", 4), 1);  // the most that was measured
  EXPECT_EQ(seconds("einsum.float32.tt", 2), 0);
}

TEST(Family, a_family_of_few_samples_stands_back_but_for_its_own_sizes) {
  Profile profile;
  profile.families["gelu.float32.add@2"].samples.push_back({{64}, 1, 0});
  for (const double bytes : {8., 16., 32., 64.})
    profile.families["gelu.float32@2"].samples.push_back({{bytes}, 2, 0});
  const auto seconds = [&](double bytes) {
    return find_family(profile, "gelu.float32.add", 2, {bytes})->samples[0].seconds;
  };
  EXPECT_EQ(seconds(64), 1);
  EXPECT_EQ(seconds(4096), 2);
  profile.families.erase("gelu.float32@2");
  EXPECT_EQ(seconds(4096), 1);  // better than nothing
}

TEST(Family, kinds_without_samples_are_listed) {
  Profile profile;
  const std::vector<std::string> all = unmeasured_kinds(profile);
  profile.families["softmax.float32@2"].samples.push_back({{4, 4}, 1, 0});
  profile.families["gelu.float32@2"];  // of no sample
  const std::vector<std::string> left = unmeasured_kinds(profile);
  EXPECT_EQ(left.size() + 1, all.size());
  EXPECT_EQ(std::count(left.begin(), left.end(), "softmax"), 0);
  EXPECT_EQ(std::count(left.begin(), left.end(), "gelu"), 1);
}

}  // namespace
}  // namespace tessera
