#include "tessera/runtime/data/data.h"

#include <fmt/format.h>

#include <utility>

#include "tessera/data/corpus.h"
#include "tessera/data/match_files.h"
#include "tessera/runtime/arrays/arrays.h"
#include "tessera/runtime/data/clicks.h"
#include "tessera/runtime/data/inputs.h"
#include "tessera/runtime/step/nodes.h"

namespace tessera {
namespace {

class TokenSource : public DataSource {
 public:
  TokenSource(TokenCorpus corpus, const DataWants& wants)
      : corpus_(std::move(corpus)), model_(*wants.model), seed_(wants.seed) {}
  Status load(int64_t step, const Tensor& tensor, const Box& region,
              const kernels::Array& to) const override {
    return load_text(model_, corpus_, seed_, step, tensor, region, to);
  }
  int64_t files() const override { return corpus_.files(); }
  int64_t bytes() const override { return corpus_.bytes(); }

 private:
  TokenCorpus corpus_;
  const Model& model_;
  int64_t seed_;
};

class RandomSource : public DataSource {
 public:
  explicit RandomSource(const DataWants& wants)
      : model_(*wants.model),
        // The training stream uses the seed itself; other streams use its complement, to draw
        // other numbers.
        seed_(wants.stream == DataWants().stream ? wants.seed : ~wants.seed) {}
  Status load(int64_t step, const Tensor& tensor, const Box& region,
              const kernels::Array& to) const override {
    load_random(model_, seed_, step, tensor, region, to);
    return {};
  }
  int64_t files() const override { return 0; }
  int64_t bytes() const override { return 0; }

 private:
  const Model& model_;
  int64_t seed_;
};

Result<std::unique_ptr<DataSource>> open_tokens(const DataConfig& config, const DataWants& wants) {
  constexpr int64_t kBytes = 256;
  const Model& model = *wants.model;
  if (model.text == 0) {
    return data_error(
        fmt::format("expected a model that reads tokens, or data = \"random\", or arrays of the "
                    "model's inputs, or clicks, or nodes of a graph, found '{}'",
                    model.spec));
  }
  std::vector<TokenCorpus::Source> sources;
  for (const TokenFilesConfig& files : config.tokens) {
    TokenCorpus::Source source;
    if (!files.format.empty()) source.format = token_format_of_name(files.format);
    if (source.format == TokenFormat::kBytes && model.vocab < kBytes) {
      return data_error(
          fmt::format("bytes are the tokens, so the model needs vocab >= {}, found vocab = {}",
                      kBytes, model.vocab));
    }
    auto paths = files_of(files.files, wants.beside);
    if (!paths) return data_error(paths.error().message);
    source.paths = std::move(*paths);
    source.weight = files.weight;
    source.padded = files.padded;
    source.end_of_document = files.end_of_document;
    sources.push_back(std::move(source));
  }
  TESSERA_TRY(TokenCorpus corpus,
              TokenCorpus::open(sources, {wants.stream, model.text, model.vocab}));
  return std::make_unique<TokenSource>(std::move(corpus), wants);
}

}  // namespace

tl::unexpected<Error> data_error(std::string_view message) {
  return invalid_input(fmt::format("data: {}", message));
}

Result<std::unique_ptr<DataSource>> open_data(const DataConfig& config, const DataWants& wants) {
  if (config.random) return std::make_unique<RandomSource>(wants);
  if (!config.clicks.empty()) return open_clicks(config.clicks, wants);
  if (!config.nodes.empty()) return open_nodes(config.nodes, config.part, wants);
  if (!config.arrays.empty()) return open_arrays(config, wants);
  if (config.hdf5.given()) {
    DataConfig datasets = config;
    TESSERA_TRY(datasets.arrays, arrays_of_hdf5(config.hdf5, *wants.model));
    return open_arrays(datasets, wants);
  }
  return open_tokens(config, wants);
}

}  // namespace tessera
