// Models by text: a spec becomes a forward graph with a scalar loss. The forms:
//
//   gpt:layers=24,hidden=1024,heads=16,seq=1024,vocab=50304   a family with keys; what is left out
//   has a default path/to/config.json                                       a Hugging Face
//   configuration (gpt2, llama, mistral) path/to/config.json:seq=2048 the same with keys of the
//   family set anew
//
//   TESSERA_TRY(Model model, build_model("gpt:layers=2,hidden=64,heads=4", /*batch=*/8));
//   TESSERA_TRY(Graph training, differentiate(model.graph, OptimizerSpec{}));
//
// Every tensor has named dims (batch, seq, hidden, heads, group, head_dim, ffn, vocab) and every op
// a path
// ("blocks.3.attn.q"); plans select by both, see docs/reference/models.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/base/result.h"
#include "tessera/graph/graph.h"

namespace tessera {

struct Model {
  Graph graph;         // forward, with graph.loss; verified
  std::string family;  // "gpt", "llama", "mlp"
  std::string
      spec;  // with every key: builds the same model again, also when the given spec was a file
  int64_t batch = 0;  // sequences (mlp: rows) of a step
  int64_t seq = 0;    // tokens of a sequence; 1 for the mlp
  int64_t vocab = 0;  // classes of the cross entropy: targets and tokens are in [0, vocab)
};

// `dtype` is that of parameters and activations; if given it goes before the `dtype` key of the
// spec. Errors are one line and name the model and the key.
Result<Model> build_model(std::string_view spec, int64_t batch,
                          std::optional<DType> dtype = std::nullopt);

// The families with their keys, defaults and meanings, as `--help` shows them.
std::string model_help();

}  // namespace tessera
