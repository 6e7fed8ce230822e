// A graph says what is computed, on one device, with static shapes: tensors in single-assignment
// form, and ops in a topological order. Forward ops come from builders (nn.h, models/);
// `differentiate` (differentiate.h) appends backward and update ops. A plan never changes what a
// graph means.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tessera/base/ids.h"
#include "tessera/graph/annotation.h"
#include "tessera/graph/attributes.h"

namespace tessera {

enum class Role : uint8_t {
  kInput,           // new in each step (tokens, targets, lr, step)
  kParameter,       // trained, unless Tensor::trained says otherwise; lives across steps
  kBuffer,          // constant table made by its Init (rotary cos / sin); lives across steps
  kActivation,      // made by a forward op
  kGradient,        // made by a backward op
  kOptimizerState,  // lives across steps
};
enum class Phase : uint8_t { kForward, kBackward, kUpdate };

std::string_view role_name(Role role);
std::string_view phase_name(Phase phase);

struct Dim {
  std::string name;
  int64_t size = 0;
  friend bool operator==(const Dim&, const Dim&) = default;
};

// Says how a parameter, optimizer state or buffer is made, by global element index (so shard by
// shard), or, for a scalar input, which value the trainer gives it in each step.
struct Init {
  enum class Kind : uint8_t {
    kNone,
    kZeros,
    kOnes,
    kConstant,
    kNormal,
    kUniform,
    kRotaryCos,
    kRotarySin,
    kDistanceBuckets,  // integers [queries, keys]: the bucket of the distance, as T5's; `sizes`:
                       // buckets, the distance from which on all share one, 1 if of both sides
    kWindowPairs,      // integers [tokens, tokens] of a square window: one number for each
                       // difference of rows and columns, as Swin's; `sizes`: the window's side
    kWindowRegions,    // integers [tokens, heads * windows]: tokens of a shifted window that were
                       // neighbours before the shift have one number; `sizes`: the window's side,
                       // the shift, windows in a row
    kLearningRate,     // for an input: the learning rate of the step
    kStep              // for an input: the number of the step, from 1
  };
  Kind kind = Kind::kNone;
  double value =
      0;  // constant; standard deviation of normal; half-width of uniform; base (theta) of rotary
  std::vector<int64_t> sizes = {};  // for tables of integers; scaling of rotary (ops.md)
  friend bool operator==(const Init&, const Init&) = default;
};
std::string_view init_name(Init::Kind kind);
// For each dim of a published tensor the numbers of the dims that it joins, outermost first. A
// published dim that joins none has the size 1.
using PublishedDims = std::vector<std::vector<int>>;
int size_count(Init::Kind kind);  // number of `sizes` of the kind

struct Tensor {
  TensorId id;
  std::string name;  // unique: "blocks.0.attn.q.weight", "blocks.0.mlp.act", "grad.blocks.0...",
                     // "optimizer.m.blocks.0..."
  std::vector<Dim> dims;
  DType dtype = DType::kFloat32;
  Role role = Role::kActivation;
  Init init;
  OpId producer;           // invalid for inputs, parameters, buffers, states
  TensorId update_of;      // set on the output of an update op: the new value of that parameter or
                           // state (written in place); such a tensor has the role (and `of`) of the
                           // tensor that it updates
  bool recompute = false;  // an activation that is made again for the backward pass rather than
                           // kept, unless a plan says otherwise
  bool trained = true;     // false: a parameter that stays as it is (the base of low-rank
                           // fine-tuning) and has neither gradient nor optimizer state
  TensorId of;  // gradient: the tensor it is the gradient of; optimizer state: its parameter
  // The dims of a parameter where it is published (as a tensor of PyTorch or Hugging Face), each
  // made of the dims of this tensor; empty: the same dims, one by one. A bias [heads, head_dim] is
  // published as a vector. Optimizers use this shape: it decides what decays and which moments are
  // kept.
  PublishedDims published;
  std::vector<int64_t> shape() const;
  int64_t elements() const;
  int64_t bytes() const { return elements() * dtype_bytes(dtype); }
  friend bool operator==(const Tensor&, const Tensor&) = default;
};

struct KindInfo;

struct Op {
  OpId id;
  std::string kind;                // a key of the op table (kinds.h)
  const KindInfo* info = nullptr;  // its row there; set by Graph::add_op, null if unknown
  std::string path;  // unique with phase: "blocks.3.attn.q"; backward ops: path of the mirror +
                     // suffix ("blocks.3.attn.q.dx")
  Phase phase = Phase::kForward;
  std::vector<TensorId> inputs;
  std::vector<TensorId> outputs;
  Annotation annotation;  // bound
  Attributes attributes;
  OpId mirror;  // backward ops: the forward op whose derivative this is; splits are inherited from
                // it by dim name
  // The number of the repeated block of the model that the path names ("blocks.3....");
  // Graph::add_op sets it. -1: none. Blocks with other names (heads that predict tokens further
  // ahead) have none: recipes that narrow the rest keep them in 16 bits (keep_mtp_spec_in_bf16 of
  // Megatron-Bridge).
  int block = -1;
  int step = -1;  // forward ops of a time loop whose steps are stages of their own: the step (0..);
                  // -1: no such loop
  friend bool operator==(const Op&, const Op&) = default;
  int64_t integer(std::string_view name, int64_t otherwise = 0) const;
  double number(std::string_view name, double otherwise = 0) const;
  std::string text(std::string_view name, std::string otherwise = "") const;
};

class Graph {
 public:
  const std::vector<Tensor>& tensors() const { return tensors_; }
  const std::vector<Op>& ops() const { return ops_; }
  const Tensor& tensor(TensorId id) const { return tensors_[id.index()]; }
  Tensor& tensor(TensorId id) { return tensors_[id.index()]; }
  const Op& op(OpId id) const { return ops_[id.index()]; }
  Op& op(OpId id) { return ops_[id.index()]; }

  TensorId add_tensor(Tensor tensor);  // sets id
  OpId add_op(Op op);                  // sets id, info, block and the outputs' producer
  TensorId find_tensor(std::string_view name) const;  // invalid if absent
  // Returns the parameter that a tensor is or is made from, by ops with one input only (cast, cut,
  // reordered); invalid if it is made from anything else.
  TensorId parameter_of(TensorId id) const;
  // Returns whether the tensor is the gradient of a parameter, or of a form of the parameter with
  // the same dims (its narrow copy).
  bool is_parameter_gradient(TensorId id) const;
  // Returns whether the op is a clone of a forward op that the backward pass runs again
  // (recompute_ops). A clone makes activations.
  bool runs_again(const Op& op) const;
  // Returns the ops that read each tensor, in order.
  std::vector<std::vector<OpId>> consumers() const;

  TensorId loss;  // scalar; invalid in a graph without one
  std::string name;

  // Checks that the graph is well-formed: ids, order, unique names, annotation sizes = shapes,
  // known kinds, every attribute as its kind demands. With `place`, the error begins with its text
  // for the op or tensor at fault (a line of a file); one of the two is null, or both for a fault
  // of the whole.
  using Place = std::function<std::string(const Op*, const Tensor*)>;
  Status verify(const Place& place = nullptr) const;
  // Checks a graph made op by op (GraphBuilder, transforms), in which the outputs of an op were
  // inferred when it was added. They are inferred a second time only where the environment has
  // TESSERA_CHECK_GRAPHS, as test programs have (cmake/TesseraModule.cmake); all else is checked.
  Status verify_made() const;
  friend bool operator==(const Graph&, const Graph&) = default;

 private:
  std::vector<Tensor> tensors_;
  std::vector<Op> ops_;
};

// Returns the published dims of a parameter, also where they are its own.
PublishedDims published_dims(const Tensor& tensor);
// Returns "(heads head_dim) hidden": names of dims, joined ones in parentheses; "()" for a dim of
// size 1.
std::string published_text(const Tensor& tensor);
// Reads the text of published_text. The result is empty if the text names the dims one by one in
// their own order. Returns an error if the text does not name each dim once.
Result<PublishedDims> parse_published(std::string_view text, const std::vector<Dim>& dims);

int64_t parameter_count(const Graph& graph);         // elements of all parameters
std::string describe(const std::vector<Dim>& dims);  // "[batch=8, in=4]", for messages
std::string describe(const Tensor& tensor);          // "'x' [batch=8, in=4] float32"

// Prints the text form (docs/reference/graph-format.md); print then parse gives an equal graph.
std::string to_text(const Graph& graph);
Result<Graph> parse_graph(std::string_view text, std::string_view file = "<graph>");

}  // namespace tessera
