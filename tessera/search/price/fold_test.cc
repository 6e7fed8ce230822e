#include "tessera/search/price/fold.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <numeric>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "tessera/models/model.h"
#include "tessera/search/test_questions.h"

namespace tessera {
namespace {

Graph forward_of_spec(const std::string& spec) { return build_model(spec, 4).value().graph; }

// Checks that every forward op of the model is in one unit, in order.
void expect_units_cover(const Graph& forward, const Fold& fold) {
  int32_t next = 0;
  for (const FoldUnit& unit : fold.units) {
    for (const OpId op : unit.ops) EXPECT_EQ(op.value, next++);
    EXPECT_LT(unit.stand_in, fold.folded_units);
  }
  EXPECT_EQ(static_cast<size_t>(next), forward.ops().size());
  EXPECT_EQ(fold.unit_of.size(), fold.graph.ops().size());
  const auto counts = fold.counts();
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), int64_t{0}),
            static_cast<int64_t>(fold.units.size()));
}

TEST(Fold, EqualLayersLeaveTwoOfThem) {
  const Graph deep = forward_of_spec("gpt:layers=24,hidden=64,heads=4,seq=16,vocab=96");
  const Fold fold = fold_layers(deep).value();
  const Graph shallow = forward_of_spec("gpt:layers=2,hidden=64,heads=4,seq=16,vocab=96");
  EXPECT_EQ(fold.graph.ops().size(), shallow.ops().size());
  EXPECT_EQ(parameter_count(fold.graph), parameter_count(shallow));
  expect_units_cover(deep, fold);
  const auto counts = fold.counts();
  EXPECT_EQ(*std::max_element(counts.begin(), counts.end()), 23);  // all but the first layer
}

TEST(Fold, EncoderAndDecoderAreRunsOfTheirOwn) {
  const Graph deep = forward_of_spec("t5:layers=5");
  const Fold fold = fold_layers(deep).value();
  expect_units_cover(deep, fold);
  auto counts = fold.counts();
  std::sort(counts.rbegin(), counts.rend());
  EXPECT_EQ(counts[0], 4);
  EXPECT_EQ(counts[1], 4);
  EXPECT_EQ(counts[2], 1);
}

TEST(Fold, NothingThatRepeatsIsItsOwnFold) {
  const Graph forward = forward_of_spec("mlp:layers=2");
  const Fold fold = fold_layers(forward).value();
  EXPECT_EQ(fold.graph.ops().size(), forward.ops().size());
  expect_units_cover(forward, fold);
}

// The fold of every family is a graph, and its layers have the parameters of the model's.
TEST(Fold, EveryFamilyFolds) {
  for (const char* spec :
       {"gpt:layers=4", "llama:layers=4", "mixtral:layers=4", "bert:layers=4", "t5:layers=4",
        "vit:layers=4", "swin:", "resnet:", "evoformer:layers=4", "nemotron_h:"}) {
    const Graph forward = forward_of_spec(spec);
    const auto fold = fold_layers(forward);
    ASSERT_TRUE(fold.has_value()) << spec << ": " << fold.error().message;
    expect_units_cover(forward, *fold);
    EXPECT_EQ(fold->unequal_run, -1) << spec;
    EXPECT_FALSE(sample_layers(*fold)) << spec;
    for (const FoldUnit& unit : fold->units) {
      const auto& of = fold->unit_of;
      const auto size = std::count(of.begin(), of.end(), unit.stand_in);
      EXPECT_EQ(static_cast<size_t>(size), unit.ops.size()) << spec;
    }
  }
}

// There are 16 blocks of unequal MLPs: each is a unit, and the sampled graph has the first, the
// smallest, the largest and some between them.
TEST(Fold, UnequalLayersAreUnitsOfWhichAFewAreSampled) {
  const std::string path = unequal_gpt("hidden=64,heads=4,seq=16,vocab=96", 16, 4);
  const Graph forward = Compiler().model(path, 4).value()->graph;
  const Fold fold = fold_layers(forward).value();
  EXPECT_EQ(fold.graph.ops().size(), forward.ops().size());
  expect_units_cover(forward, fold);
  ASSERT_GE(fold.unequal_run, 0);
  const auto layers =
      std::count_if(fold.units.begin(), fold.units.end(),
                    [&](const FoldUnit& unit) { return unit.run == fold.unequal_run; });
  EXPECT_EQ(layers, 16);

  const Samples samples = sample_layers(fold).value();
  EXPECT_LT(samples.fold.graph.ops().size(), forward.ops().size() / 2);
  EXPECT_EQ(static_cast<int>(samples.between.size()), fold.folded_units);
  EXPECT_EQ(static_cast<int>(samples.sampled.size()), samples.fold.folded_units);
  const auto counts = samples.fold.counts();
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), int64_t{0}), std::ssize(fold.units));
  // The parameters of a unit by the samples are those that it has: they grow in proportion to the
  // size.
  const auto parameters = [](const Graph& graph, const std::vector<int>& unit_of, int unit) {
    std::set<TensorId> found;
    for (const Op& op : graph.ops()) {
      for (const TensorId input : op.inputs) {
        if (unit_of[op.id.index()] == unit && graph.tensor(input).role == Role::kParameter)
          found.insert(input);
      }
    }
    int64_t out = 0;
    for (const TensorId id : found) out += graph.tensor(id).elements();
    return static_cast<double>(out);
  };
  for (int unit = 0; unit < fold.folded_units; ++unit) {
    const Samples::Between& at = samples.between[static_cast<size_t>(unit)];
    const auto of_sample = [&](int sample) {
      return parameters(samples.fold.graph, samples.fold.unit_of, sample);
    };
    const double own = parameters(fold.graph, fold.unit_of, unit);
    EXPECT_NEAR(std::lerp(of_sample(at.smaller), of_sample(at.larger), at.share), own, 1e-6 * own)
        << unit;
  }
}

// Blocks 0 to 12 have unequal sizes, 13 to 25 repeat them, and so on: equal blocks are 13 apart.
TEST(Fold, SizesThatRepeatWithALongPeriodAreSampled) {
  const std::string path = unequal_gpt("hidden=64,heads=4,seq=16,vocab=96", 39, 4, 13);
  const Fold fold = fold_layers(Compiler().model(path, 4).value()->graph).value();
  const auto layers = std::count_if(
      fold.units.begin(), fold.units.end(),
      [&](const FoldUnit& unit) { return unit.run >= 0 && unit.run == fold.unequal_run; });
  EXPECT_EQ(layers, 39);
  // Sizes that alternate are folded as pairs of blocks: two pairs are fewer blocks than five
  // samples.
  const std::string pairs = unequal_gpt("hidden=64,heads=4,seq=16,vocab=96", 40, 4, 2);
  const Fold in_pairs = fold_layers(Compiler().model(pairs, 4).value()->graph).value();
  EXPECT_EQ(in_pairs.unequal_run, -1);
}

// The decoder's blocks are unequal, and there are more ops in them than in the encoder's, which are
// equal.
TEST(Fold, EqualLayersBesideUnequalOnesAreFolded) {
  const std::string model = "t5:layers=14,hidden=64,heads=4,seq=16,vocab=96";
  std::istringstream text(to_text(Compiler().model(model, 4).value()->graph));
  const std::string path = testing::TempDir() + "/unequal_decoder.graph";
  std::ofstream out(path);
  const std::regex block("blocks\\.([0-9]+)\\.");
  for (std::string line; std::getline(text, line);) {
    std::smatch found;
    if (std::regex_search(line, found, block) && std::stol(found[1]) >= 14)
      line = std::regex_replace(line, std::regex("ffn=256"),
                                "ffn=" + std::to_string(8 * std::stol(found[1])));
    out << line << '\n';
  }
  out.close();
  const Fold fold = fold_layers(Compiler().model(path, 4).value()->graph).value();
  ASSERT_GE(fold.unequal_run, 0);
  std::map<int, int> layers;
  for (const FoldUnit& unit : fold.units) ++layers[unit.run];
  EXPECT_GE(layers[fold.unequal_run], 13);
  EXPECT_TRUE(std::any_of(layers.begin(), layers.end(), [&](const auto& run) {
    return run.first >= 0 && run.first != fold.unequal_run && run.second >= 12;
  }));
}

}  // namespace
}  // namespace tessera
