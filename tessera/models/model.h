// Builds models from text: a spec becomes a forward graph with a scalar loss. The forms are:
//
//   gpt:layers=24,hidden=1024,heads=16,seq=1024   a family (families.h) with keys; a key that is
//                                                 left out has its default
//   path/to/config.json                           a Hugging Face configuration (huggingface.h)
//   path/to/config.json:seq=2048                  that file, with keys of its family set anew
//   path/to/my.graph                              a graph in text form (graph_file.h)
//
//   TESSERA_TRY(Model model, build_model("gpt:layers=2,hidden=64,heads=4", /*batch=*/8));
//   TESSERA_TRY(Graph training, differentiate(model.graph, OptimizerSpec{}));
//
// Every tensor has named dims (batch, seq, hidden, heads, group, head_dim, ffn, vocab) and every op
// a path ("blocks.3.attn.q"); plans select by both. The names and paths on which recipes rely are
// the contract (contract.h, docs/reference/models.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/graph/graph.h"

namespace tessera {

// A rule for the elements of an integer input that are not simply tokens or targets of a causal
// model. Inputs that name the same stream see the same numbers: a sample takes `row` numbers, and
// element i of a sample is number i + shift.
struct InputRule {
  enum class Mask : uint8_t {
    kNone,
    kHide,  // masked elements are the mask token
    kKeep,  // other elements are -1, which a loss ignores
    kBag,   // a number of elements, from none to all, is drawn for each sample;
            // the rest are -1: bags of ids
  };
  std::string input;
  int64_t values = 1;  // elements are in [0, values)
  std::string stream;  // "tokens": the text, if a model trains on text
  int64_t row = 1;
  int64_t shift = 0;
  Mask mask = Mask::kNone;
  int64_t masked = 0;  // masked elements of a sample, one in each `masked`-th of it
  // A number of the stream. If it is set, an element is not a number of the stream, but counts the
  // numbers before it that equal `boundary`: the documents of a sample. -1: none.
  int64_t boundary = -1;
  // The token in place of masked elements; it is never drawn at random, and is a token like any
  // other where data have it. -1: none.
  int64_t mask_token = -1;
};

struct Model {
  Graph graph;         // forward, with graph.loss; verified; keeps the contract if of a family
  std::string family;  // "gpt", "bert", ...; "graph" of a graph file
  // The spec with every key: it builds an equal model, also if the given spec was a file.
  std::string spec;
  int64_t batch = 0;  // sequences (mlp: rows, images, alignments) of a step
  int64_t seq = 0;    // tokens of a sequence (patches, residues); 1 for the mlp
  int64_t vocab = 0;  // classes of the cross entropy: targets and tokens are in [0, vocab)
  std::vector<InputRule> inputs = {};  // by input; without rule: tokens or shifted targets
  int64_t text = 0;                    // tokens of a text that a sample takes; 0: it reads no text
};

// Builds a model. `dtype` is that of parameters and activations; if given, it overrides the `dtype`
// key of the spec. Errors are one line and name the model and the key.
Result<Model> build_model(std::string_view spec, int64_t batch,
                          std::optional<DType> dtype = std::nullopt);

// Builds a model with the batch `given`, or if that is 0, with the batch that a graph file fixes,
// or `otherwise` for any other model. The file is read once.
Result<Model> build_model_of(std::string_view spec, int64_t given, int64_t otherwise,
                             std::optional<DType> dtype = std::nullopt);

// Returns the other inputs of the ops that read the input `targets` (logits, in most models).
// Empty: no op reads it.
std::vector<TensorId> compared_with_targets(const Graph& graph);

// Returns the path of the config.json that a spec names, with or without keys behind it, or "".
std::string_view config_file_of(std::string_view spec);

// Returns whether the spec is a path to a graph in text form. Such a file fixes the batch.
bool names_graph_file(std::string_view spec);
// Returns the batch of a run, as in build_model_of. Callers that need the model too should call
// that function: this one reads the whole graph file.
Result<int64_t> batch_of(std::string_view spec, int64_t given, int64_t otherwise);

// Returns the families with keys, defaults and meanings, as `tessera inspect --models` prints them.
std::string model_help();

}  // namespace tessera
