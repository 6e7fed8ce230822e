// Samples of clicks that are generated, with ids as skewed as in practice and labels that can be
// learned, since a logistic model makes them.
//
//   ClickGenerator generator({.features = {{{.name = "C1", .rows = 1000, .bag = 3}, 1.05}}});
//   const ClickGenerator::Sample sample = generator.sample(17);
//
// Sample i is a function of the options and i alone: any part of the data can be made anywhere.
//   dense number k   standard normal
//   bag of feature   `bag` ids, or with `jagged` uniformly 0 to `bag` of them; Zipf's law or a law
//                    of reuse draws the rank of each; a permutation of the table's rows, its own
//                    for each feature, says which row has which rank
//   logit            bias + signal * (v . dense / sqrt(dense) + sum over features of the mean of its
//                    bag's weights w / sqrt(features)); v, w are standard normal, w one a row
//   label            1 with probability 1 / (1 + e^-logit)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/base/zipf.h"
#include "tessera/data/click_file.h"
#include "tessera/data/reuse_law.h"

namespace tessera {

struct GeneratedFeature {
  ClickFeature feature;
  double zipf = 1.05;             // exponent of Zipf's law; unused with `reuse`
  std::optional<ReuseLaw> reuse;  // replaces Zipf's law
  bool jagged = false;
};

struct ClickOptions {
  int64_t dense = 13;
  std::vector<GeneratedFeature> features;
  double bias = -1.2, signal = 1.5;
  int64_t seed = 1;
};

ClickSchema schema_of(const ClickOptions& options);

// Makes samples. The options describe a schema that check_schema() accepts.
class ClickGenerator {
 public:
  explicit ClickGenerator(ClickOptions options);

  struct Sample {
    bool clicked = false;
    double logit = 0;  // of the planted model
    std::vector<float> dense;
    std::vector<std::vector<uint32_t>> bags;
  };
  Sample sample(int64_t index) const;

 private:
  struct Feature {
    std::variant<Zipf, RowDraw> ranks;
    Philox draws, weights;
  };
  ClickOptions options_;
  std::vector<Feature> features_;
  Philox dense_, dense_weights_, labels_;
};

struct GeneratedClicks {
  int64_t samples = 0, clicks = 0;
  double normalized_entropy = 0;  // of the planted model on these labels: no model does much better
};
// Writes samples first .. first + samples - 1.
Result<GeneratedClicks> generate_clicks(const ClickOptions& options, int64_t first, int64_t samples,
                                        const std::string& out);

}  // namespace tessera
