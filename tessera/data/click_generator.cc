#include "tessera/data/click_generator.h"

#include <cmath>
#include <utility>

#include "tessera/base/permutation.h"
#include "tessera/data/click_metrics.h"

namespace tessera {
namespace {

Philox stream(int64_t seed, const std::string& name) {
  return {static_cast<uint64_t>(seed), stable_hash(name.data(), name.size())};
}

}  // namespace

ClickSchema schema_of(const ClickOptions& options) {
  ClickSchema schema{options.dense, {}};
  for (const GeneratedFeature& one : options.features) schema.features.push_back(one.feature);
  return schema;
}

ClickGenerator::ClickGenerator(ClickOptions options)
    : options_(std::move(options)),
      dense_(stream(options_.seed, "dense")),
      dense_weights_(stream(options_.seed, "dense.weights")),
      labels_(stream(options_.seed, "labels")) {
  for (const GeneratedFeature& one : options_.features) {
    const ClickFeature& feature = one.feature;
    Feature made{Zipf(feature.rows, one.zipf), stream(options_.seed, "ids." + feature.name),
                 stream(options_.seed, "weights." + feature.name)};
    if (one.reuse) made.ranks = RowDraw(*one.reuse, feature.rows);
    features_.push_back(std::move(made));
  }
}

ClickGenerator::Sample ClickGenerator::sample(int64_t index) const {
  Sample sample;
  const auto i = static_cast<uint64_t>(index);
  double of_dense = 0, of_bags = 0;
  for (int64_t k = 0; k < options_.dense; ++k) {
    const auto at = static_cast<uint64_t>(k);
    const auto number =
        static_cast<float>(dense_.normal(i * static_cast<uint64_t>(options_.dense) + at));
    sample.dense.push_back(number);
    of_dense += dense_weights_.normal(at) * static_cast<double>(number);
  }
  for (size_t f = 0; f < features_.size(); ++f) {
    const Feature& law = features_[f];
    const GeneratedFeature& one = options_.features[f];
    const auto bag = static_cast<uint64_t>(one.feature.bag);
    const uint64_t first = i * (bag + 1);  // the counter of the bag's first draw
    const uint64_t length = one.jagged ? law.draws.block(~first)[0] % (bag + 1) : bag;
    std::vector<uint32_t>& ids = sample.bags.emplace_back();
    double weights = 0;
    for (uint64_t k = 0; k < length; ++k) {
      const int64_t rank =
          std::visit([&](const auto& ranks) { return ranks(law.draws, first + 1 + k); }, law.ranks);
      const int64_t row = permuted(rank, one.feature.rows, options_.seed, one.feature.name, 0);
      ids.push_back(static_cast<uint32_t>(row));
      weights += law.weights.normal(static_cast<uint64_t>(row));
    }
    if (length > 0) of_bags += weights / static_cast<double>(length);
  }
  const auto scaled = [](double sum, size_t count) {
    return count == 0 ? 0 : sum / std::sqrt(static_cast<double>(count));
  };
  sample.logit = options_.bias + options_.signal * (scaled(of_dense, sample.dense.size()) +
                                                    scaled(of_bags, features_.size()));
  sample.clicked = labels_.uniform(i) < 1 / (1 + std::exp(-sample.logit));
  return sample;
}

Result<GeneratedClicks> generate_clicks(const ClickOptions& options, int64_t first, int64_t samples,
                                        const std::string& out) {
  TESSERA_TRY(ClickWriter writer, ClickWriter::create(out, schema_of(options)));
  const ClickGenerator generator(options);
  std::vector<float> labels;
  std::vector<double> logits;
  for (int64_t i = first; i < first + samples; ++i) {
    const ClickGenerator::Sample sample = generator.sample(i);
    TESSERA_TRY_VOID(writer.add(sample.clicked, sample.dense, sample.bags));
    labels.push_back(sample.clicked ? 1.0F : 0.0F);
    logits.push_back(sample.logit);
  }
  TESSERA_TRY_VOID(writer.close());
  GeneratedClicks made{samples, 0, normalized_entropy(labels, logits)};
  for (const float label : labels) made.clicks += label > 0 ? 1 : 0;
  return made;
}

}  // namespace tessera
