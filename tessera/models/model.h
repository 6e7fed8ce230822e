// Builds models from text: a spec becomes a forward graph with a scalar loss. A spec is one of
//
//   gpt:layers=24,hidden=1024,heads=16,seq=1024   a family (families.h) with keys; a key that is
//                                                 left out has its default
//   path/to/config.json, path/to                  a Hugging Face configuration (huggingface.h), or
//                                                 the folder that holds it
//   Llama-3-8B                                    a published name (architecture.h)
//   path/to/config.json:seq=2048                  with other values for some keys of the family
//   path/to/my.graph                              a graph in text form (graph_file.h)
//   path/to/my.pt2                                an archive of torch.export.save
//
// model_name.h says how a spec is resolved.
//
//   TESSERA_TRY(Model model, build_model("gpt:layers=2,hidden=64,heads=4", /*batch=*/8));
//   TESSERA_TRY(Graph training, differentiate(model.graph, OptimizerSpec{}));
//
// Every tensor has named dims (batch, seq, hidden, heads, group, head_dim, ffn, vocab) and every op
// a path ("blocks.3.attn.q"). Plans select by dims and paths. The contract lists the names and
// paths that recipes rely on (contract.h, docs/reference/models.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/graph/graph.h"
#include "tessera/models/model_name.h"

namespace tessera {

// A rule for the elements of an integer input, if they are not simply the tokens or targets of a
// causal model. Inputs that name the same stream see the same numbers. Each sample takes `row`
// numbers of the stream, and element i of the sample is number i + shift.
struct InputRule {
  enum class Mask : uint8_t {
    kNone,
    kHide,  // masked elements are replaced by the mask token
    kKeep,  // all elements that are not masked are -1, which a loss ignores
    // A bag of ids: a number of elements, from none to all, is drawn for each sample; the rest
    // are -1.
    kBag,
  };
  std::string input;
  int64_t values = 1;  // elements are in [0, values)
  std::string stream;  // "tokens" is the text, if the model trains on text
  int64_t row = 1;
  int64_t shift = 0;
  Mask mask = Mask::kNone;
  // The sample is cut into this many parts, and one element of each part is masked.
  int64_t masked = 0;
  // A number of the stream that ends documents. If it is set, an element is not a number of the
  // stream but the count of `boundary` among the numbers before it, that is the number of its
  // document in the sample. -1: elements are numbers of the stream.
  int64_t boundary = -1;
  // The token that replaces masked elements; -1: none. It is never drawn at random. If data contain
  // it, it is a token like any other there.
  int64_t mask_token = -1;
};

struct Model {
  Graph graph;  // forward graph with graph.loss, verified; keeps the contract if it is of a family
  std::string family;  // "gpt", "bert", ...; "graph" for a graph file
  // The spec with every key, from which an equal model can be built, also if the given spec was
  // a file.
  std::string spec;
  int64_t batch = 0;  // sequences (mlp: rows; others: images, alignments) of a step
  int64_t seq = 0;    // tokens of a sequence (patches, residues); 1 for the mlp
  int64_t vocab = 0;  // classes of the cross entropy: targets and tokens are in [0, vocab)
  // Rules by input; inputs without a rule are tokens or shifted targets.
  std::vector<InputRule> inputs = {};
  // The published name by which the spec named the model, "Llama-3-8B"; else "".
  std::string title = {};
  // The model_type of the Hugging Face configuration that the spec named; else "".
  std::string huggingface_type = {};
  std::string remark = {};  // how it differs from the published model, if it does
  int64_t text = 0;  // number of tokens that a sample takes from a text; 0: the model reads no text
};

// Builds a model. `dtype`, if given, is the dtype of parameters and activations and overrides the
// key `dtype` of the spec. Errors are one line and name the model and the key.
Result<Model> build_model(std::string_view spec, int64_t batch,
                          std::optional<DType> dtype = std::nullopt);

// Builds a model with the batch `given`. If that is 0, a graph file has the batch that it fixes,
// and any other model the batch `otherwise`. The file is read once.
Result<Model> build_model_of(std::string_view spec, int64_t given, int64_t otherwise,
                             std::optional<DType> dtype = std::nullopt);

// Returns the other inputs of those ops that read the input `targets` (logits, in most models).
// Empty if no op reads it.
std::vector<TensorId> compared_with_targets(const Graph& graph);

// Returns the batch with which build_model_of builds the model. It reads the whole graph file, so
// callers that need the model too should call build_model_of instead.
Result<int64_t> batch_of(std::string_view spec, int64_t given, int64_t otherwise);

// Returns the families with keys, defaults and meanings, as `tessera inspect --models` prints them.
std::string model_help();

}  // namespace tessera
