// Models by text: a spec becomes a forward graph with a scalar loss. The forms:
//
//   gpt:layers=24,hidden=1024,heads=16,seq=1024   a family (families.h) with keys; a key that is
//                                                 left out has its default
//   path/to/config.json                           a Hugging Face configuration (huggingface.h)
//   path/to/config.json:seq=2048                  the same, with keys of its family set anew
//   path/to/my.graph                              a graph in text form (graph_file.h)
//
//   TESSERA_TRY(Model model, build_model("gpt:layers=2,hidden=64,heads=4", /*batch=*/8));
//   TESSERA_TRY(Graph training, differentiate(model.graph, OptimizerSpec{}));
//
// Every tensor has named dims (batch, seq, hidden, heads, group, head_dim, ffn, vocab) and every op
// a path ("blocks.3.attn.q"); plans select by both. What recipes rely on is the contract
// (contract.h, docs/reference/models.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/graph/graph.h"

namespace tessera {

// What the elements of an integer input are, where they are not simply tokens or targets of a
// causal model. Inputs that name the same stream see the same numbers: `row` of them a sample, and
// element i of a sample is number i + shift.
struct InputRule {
  enum class Mask : uint8_t {
    kNone,
    kHide,  // masked elements are the mask token
    kKeep,  // the others are -1, which a loss ignores
    kBag,   // behind a number of elements that is drawn for each sample, none and all among them,
            // the rest are -1: bags of ids
  };
  std::string input;
  int64_t values = 1;  // elements are in [0, values)
  std::string stream;  // "tokens": of the text, where a model trains on text
  int64_t row = 1;
  int64_t shift = 0;
  Mask mask = Mask::kNone;
  int64_t masked = 0;  // elements of a sample that are masked, one of each `masked`-th of it
  // A number of the stream; elements are then not its numbers, but count those equal to `boundary`
  // that stand before: documents of a sample. -1: none.
  int64_t boundary = -1;
  // The token that stands for masked elements; it is never drawn at random, and is a token like any
  // other where data have it. -1: none.
  int64_t mask_token = -1;
};

struct Model {
  Graph graph;         // forward, with graph.loss; verified; keeps the contract if of a family
  std::string family;  // "gpt", "bert", ...; "graph" of a graph file
  // The spec with every key: it builds the same model again, also when the given spec was a file.
  std::string spec;
  int64_t batch = 0;  // sequences (mlp: rows, images, alignments) of a step
  int64_t seq = 0;    // tokens of a sequence (patches, residues); 1 for the mlp
  int64_t vocab = 0;  // classes of the cross entropy: targets and tokens are in [0, vocab)
  std::vector<InputRule> inputs = {};  // by input; one without rule is tokens or shifted targets
  int64_t text = 0;                    // tokens of a text that a sample takes; 0: it reads no text
};

// `dtype` is that of parameters and activations; if given it goes before the `dtype` key of the
// spec. Errors are one line and name the model and the key.
Result<Model> build_model(std::string_view spec, int64_t batch,
                          std::optional<DType> dtype = std::nullopt);

// The same for a batch that the user may have left open, 0: it is what a graph file fixes, and
// `otherwise` of any other model. The file is read once.
Result<Model> build_model_of(std::string_view spec, int64_t given, int64_t otherwise,
                             std::optional<DType> dtype = std::nullopt);

// What ops compare with the input `targets` (logits, of most models): their other inputs. Empty: no op
// reads it.
std::vector<TensorId> compared_with_targets(const Graph& graph);

// The path of the config.json that a spec names, with or without keys behind it; "": it names none.
std::string_view config_file_of(std::string_view spec);

// Is the spec a path to a graph in text form? Such a file fixes the batch.
bool names_graph_file(std::string_view spec);
// The batch of a run, as of build_model_of. Who needs the model, too, takes that: this reads the whole
// of a graph file.
Result<int64_t> batch_of(std::string_view spec, int64_t given, int64_t otherwise);

// The families with their keys, defaults and meanings, as `tessera inspect --models` prints them.
std::string model_help();

}  // namespace tessera
