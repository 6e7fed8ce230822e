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
  kInput,      // new in each step (tokens, targets, lr, step)
  kParameter,  // trained, unless Tensor::trained is false; kept from step to step
  // Constant table that Init makes (rotary cos / sin), or running state; kept from step to step.
  kBuffer,
  kActivation,      // made by a forward op
  kGradient,        // made by a backward op
  kOptimizerState,  // kept from step to step
};
enum class Phase : uint8_t { kForward, kBackward, kUpdate };

std::string_view role_name(Role role);
std::string_view phase_name(Phase phase);

struct Dim {
  std::string name;
  int64_t size = 0;
  friend bool operator==(const Dim&, const Dim&) = default;
};

// Says how the values of a parameter, optimizer state or buffer are made. Each value depends on the
// global index of its element, so that a rank can make its shard alone. For a scalar input it says
// which value the trainer gives in each step.
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
    // Integers [queries, keys]: the bucket of the distance as in T5. `sizes`: number of buckets;
    // the distance from which on all distances share a bucket; 1 if keys before and after the query
    // have separate buckets, else 0.
    kDistanceBuckets,
    // Integers [tokens, tokens] of a square window as in Swin: one number for each difference of
    // rows and columns. `sizes`: the side of the window.
    kWindowPairs,
    // Integers [tokens, heads * windows] of shifted windows: tokens of a window that were
    // neighbours before the shift have the same number. `sizes`: the side of the window, the shift,
    // the number of windows in a row.
    kWindowRegions,
    kLearningRate,  // for a scalar input: the learning rate of the step
    kStep           // for a scalar input: the number of the step, from 1
  };
  Kind kind = Kind::kNone;
  // Constant: the value; normal: standard deviation; uniform: half-width; rotary: base (theta).
  double value = 0;
  // Sizes that a table of integers has (see Kind), or the scaling of a rotary table (ops.md).
  std::vector<int64_t> sizes = {};
  friend bool operator==(const Init&, const Init&) = default;
};
std::string_view init_name(Init::Kind kind);
// For each dim of a published tensor: the numbers of the tensor's dims that it joins, outermost
// first. A published dim that joins no dim has the size 1.
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
  OpId producer;  // invalid for inputs, parameters, buffers, states
  // Set on the output of an update op: the parameter or state whose new value this tensor is (the
  // value is written in place). The tensor has the role and the `of` of that parameter or state.
  TensorId update_of;
  bool recompute = false;  // an activation that is made again for the backward pass rather than
                           // kept, unless a plan says otherwise
  bool trained = true;     // false: a parameter that stays as it is (the base of low-rank
                           // fine-tuning) and has neither gradient nor optimizer state
  TensorId of;  // gradient: the tensor that it is the gradient of; optimizer state: its parameter
  // The dims under which a parameter is published (as a tensor of PyTorch or Hugging Face), each as
  // a list of dims of this tensor. Empty: each dim is published by itself. A bias [heads, head_dim]
  // is published as a vector. Optimizers use the published shape: it decides which parameters decay
  // and which moments are kept.
  PublishedDims published;
  std::vector<int64_t> shape() const;
  int64_t elements() const;
  int64_t bytes() const { return elements() * dtype_bytes(dtype); }
  friend bool operator==(const Tensor&, const Tensor&) = default;
};

struct KindInfo;

struct Op {
  OpId id;
  std::string kind;  // a key of the op table (kinds.h)
  // The kind's row in the op table, set by Graph::add_op; null if the kind is unknown.
  const KindInfo* info = nullptr;
  // Unique together with the phase: "blocks.3.attn.q"; backward ops: path of the mirror and a
  // suffix ("blocks.3.attn.q.dx").
  std::string path;
  Phase phase = Phase::kForward;
  std::vector<TensorId> inputs;
  std::vector<TensorId> outputs;
  Annotation annotation;  // with bound sizes
  Attributes attributes;
  // Backward ops: the forward op whose derivative this op is; its splits are inherited by dim name.
  OpId mirror;
  // The number of the repeated block of the model that the path names ("blocks.3...."), set by
  // Graph::add_op; -1: the op is in no such block. Blocks whose names have no number (heads that
  // predict tokens further ahead) count as none, so that recipes that narrow the numbered blocks
  // further keep the other ops in 16 bits (keep_mtp_spec_in_bf16 of Megatron-Bridge).
  int block = -1;
  // For a forward op of a time loop whose steps are stages of their own: the number of the step,
  // from 0; else -1.
  int step = -1;
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

  TensorId add_tensor(Tensor tensor);  // sets its id
  OpId add_op(Op op);  // sets its id, info and block, and the producer of its outputs
  TensorId find_tensor(std::string_view name) const;  // invalid if absent
  // Returns the parameter that the tensor is, or from which it is made by ops with one input (cast,
  // cut, reordered). Returns an invalid id if it is made from anything else.
  TensorId parameter_of(TensorId id) const;
  // Returns whether the tensor is the gradient of a parameter, or of a tensor made from a parameter
  // that has the parameter's dims (its copy in a narrow dtype).
  bool is_parameter_gradient(TensorId id) const;
  // Returns whether the op is a clone of a forward op that the backward pass runs again
  // (recompute_ops). A clone makes activations.
  bool runs_again(const Op& op) const;
  // Returns for each tensor the ops that read it, in order.
  std::vector<std::vector<OpId>> consumers() const;

  TensorId loss;  // scalar; invalid in a graph without a loss
  std::string name;

  // Checks that the graph is well-formed: ids, order, unique names, annotation sizes equal to
  // shapes, known kinds, and every attribute as its kind demands. If `place` is given, an error
  // begins with the text that `place` returns for the op or the tensor at fault (a line of a file).
  // `place` is called with null for the other of the two, and with two nulls if the whole graph is
  // at fault.
  using Place = std::function<std::string(const Op*, const Tensor*)>;
  Status verify(const Place& place = nullptr) const;
  // Checks a graph that was made op by op (GraphBuilder, transforms). The outputs of each op were
  // inferred when the op was added. They are inferred a second time only if the environment
  // variable TESSERA_CHECK_GRAPHS is set, as it is for test programs (cmake/TesseraModule.cmake).
  // All other checks of verify() are made.
  Status verify_made() const;
  friend bool operator==(const Graph&, const Graph&) = default;

 private:
  std::vector<Tensor> tensors_;
  std::vector<Op> ops_;
};

// Returns the published dims of a parameter. If `published` is empty, these are the parameter's own
// dims, one by one.
PublishedDims published_dims(const Tensor& tensor);
// Returns the published dims as text, "(heads head_dim) hidden": names of dims, with joined dims in
// parentheses and "()" for a dim of size 1.
std::string published_text(const Tensor& tensor);
// Reads the text of published_text. The result is empty if the text names the dims one by one in
// their own order. Returns an error if the text does not name each dim once.
Result<PublishedDims> parse_published(std::string_view text, const std::vector<Dim>& dims);

int64_t parameter_count(const Graph& graph);         // number of elements of all parameters
std::string describe(const std::vector<Dim>& dims);  // "[batch=8, in=4]", for messages
std::string describe(const Tensor& tensor);          // "'x' [batch=8, in=4] float32"

// Prints the text form (docs/reference/graph-format.md); print then parse gives an equal graph.
std::string to_text(const Graph& graph);
Result<Graph> parse_graph(std::string_view text, std::string_view file = "<graph>");

}  // namespace tessera
