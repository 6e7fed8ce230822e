// Generated samples of clicks. Their ids are as skewed as in practice. Their labels are drawn from
// a logistic model of the features, so that a model can learn them.
//
//   ClickGenerator generator({.features = {{{.name = "C1", .rows = 1000, .bag = 3}, 1.05}}});
//   const ClickGenerator::Sample sample = generator.sample(17);
//
// Sample i is a function of the options and of i alone, so any part of the data can be made on any
// machine.
//   dense number k   standard normal
//   bag of feature   `bag` ids, or with `jagged` a uniformly drawn number of them, 0 to `bag`. For
//                    each id, Zipf's law or a law of reuse draws a rank (0 is the most frequent
//                    row), and a permutation of the table's rows says which row has this rank.
//                    Each feature has its own permutation.
//   logit            bias + signal * (v . dense / sqrt(dense) + sum over features of the mean of its
//                    bag's weights w / sqrt(features)); v and w are standard normal; w has one
//                    number for each row of a table
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
  double zipf = 1.05;             // exponent of Zipf's law; not used if `reuse` is set
  std::optional<ReuseLaw> reuse;  // if set, draws the ranks in place of Zipf's law
  bool jagged = false;
};

struct ClickOptions {
  int64_t dense = 13;
  std::vector<GeneratedFeature> features;
  double bias = -1.2, signal = 1.5;
  int64_t seed = 1;
};

ClickSchema schema_of(const ClickOptions& options);

// Makes samples. The options must describe a schema that check_schema() accepts.
class ClickGenerator {
 public:
  explicit ClickGenerator(ClickOptions options);

  struct Sample {
    bool clicked = false;
    double logit = 0;  // of the logistic model that draws the label
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
  // The normalised entropy that the logistic model itself reaches on the labels that it drew. No
  // other model can do much better.
  double normalized_entropy = 0;
};
// Writes samples first .. first + samples - 1 to the file of clicks `out`.
Result<GeneratedClicks> generate_clicks(const ClickOptions& options, int64_t first, int64_t samples,
                                        const std::string& out);

}  // namespace tessera
