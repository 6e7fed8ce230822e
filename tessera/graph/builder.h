// GraphBuilder appends ops to a graph. It knows the current path prefix, phase and mirror, and
// infers annotation, shapes and dtypes from the op table. If a call is wrong (an unknown kind,
// shapes that do not fit), the builder keeps the first error, ignores all later calls and returns
// the error from finish(). So code that builds a graph needs no checks between its calls.
//
//   GraphBuilder g("mlp");
//   auto x = g.input("x", {{"batch", 8}, {"in", 4}}, DType::kFloat32);
//   auto w = g.parameter("up.weight", {{"in", 4}, {"ffn", 16}}, Init{Init::Kind::kNormal, 0.02});
//   auto y = g.op("up", "einsum", {x, w}, {{"spec", "batch in+, in+ ffn -> batch ffn"}})[0];
//   Result<Graph> graph = g.finish();
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/graph/graph.h"
#include "tessera/graph/precision.h"

namespace tessera {

class GraphBuilder {
 public:
  explicit GraphBuilder(std::string graph_name);
  // Continues the given graph (for differentiate, expand and transforms)
  explicit GraphBuilder(Graph graph);

  // Opens a scope. Names given to op() / parameter() are prefixed by the open scopes, joined by
  // '.'.
  void push(std::string_view scope);
  // Opens a scope that is only part of op paths: the names of parameters are formed without it, and
  // a parameter that already exists under such a name is used again. It is meant for several passes
  // that share parameters. The pass whose ops have no prefix opens an empty scope.
  void push_shared(std::string_view scope);
  void pop();

  TensorId input(std::string_view name, std::vector<Dim> dims, DType dtype);
  TensorId parameter(std::string_view name, std::vector<Dim> dims, Init init,
                     DType dtype = DType::kFloat32);
  // Sets the dims with which a parameter is published (published_text of graph.h). Without a call
  // the published dims are the parameter's own.
  void publish(TensorId parameter, std::string_view dims);
  TensorId buffer(std::string_view name, std::vector<Dim> dims, Init init,
                  DType dtype = DType::kFloat32);
  // Adds optimizer state with the parameter's dims.
  TensorId state(std::string_view name, TensorId parameter, Init init);
  // Adds optimizer state that belongs to no parameter: a scalar.
  TensorId scalar_state(std::string_view name, DType dtype, Init init);
  // Adds an op. A single output tensor is named as the op's path, several are named "<path>.<output
  // name of the kind>".
  std::vector<TensorId> op(std::string_view name, std::string_view kind,
                           std::vector<TensorId> inputs, Attributes attributes = {});
  TensorId op1(std::string_view name, std::string_view kind, std::vector<TensorId> inputs,
               Attributes attributes = {});

  // Sets whether parameters added from here on are trained (default) or left as they are.
  void set_trains(bool trains) { trains_ = trains; }
  bool trains() const { return trains_; }

  // Sets the phase (first function) and the mirror (second function) of the ops added from here on.
  void set_phase(Phase phase) { phase_ = phase; }
  void set_mirror(OpId mirror) { mirror_ = mirror; }
  void set_role(Role role) { role_ = role; }  // sets the role of op outputs; default kActivation
  void set_step(int step) { step_ = step; }   // sets Op::step; default -1

  Graph& graph() { return graph_; }
  // Returns the tensor, or an empty tensor if the id is invalid (after an error).
  const Tensor& tensor(TensorId id) const;
  bool ok() const { return error_.message.empty(); }
  void fail(std::string message);  // keeps the message, if it is the first error
  Result<Graph> finish();          // verifies the graph

 private:
  TensorId add(std::string_view name, std::vector<Dim> dims, DType dtype, Role role, Init init);
  std::string full_path(std::string_view name, bool with_shared = true) const;
  struct Scope {
    std::string name;
    bool shared = false;
  };
  Graph graph_;
  std::vector<Scope> scopes_;
  Phase phase_ = Phase::kForward;
  OpId mirror_;
  Role role_ = Role::kActivation;
  int step_ = -1;
  bool trains_ = true;
  Error error_;
};

// A group of parameters that are trained with other settings than the rest. The group contains each
// parameter whose name matches the pattern (a glob), and each whose name has a prefix before a '.'
// or a '#' that matches. A later group overrides an earlier one.
struct OptimizerGroup {
  std::string parameters;                             // "blocks.*.ln_1", "embed"
  double rate = 1;                                    // factor of the learning rate
  std::optional<double> weight_decay = std::nullopt;  // none: as for the rest
  std::string kind = {};      // another optimizer; "": the optimizer of the rest
  std::string rounding = {};  // as OptimizerSpec::rounding; "": as for the rest
  friend bool operator==(const OptimizerGroup&, const OptimizerGroup&) = default;
};

// The kind that makes `differentiate` append only backward ops for the loss, and no optimizer.
inline constexpr std::string_view kNoOptimizer = "none";
struct OptimizerSpec {
  std::string kind = "adamw";  // a name of optimizers.h ("adamw", "sgd"), or kNoOptimizer
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double weight_decay = 0.1;  // only on parameters published with two dims or more
  double momentum = 0.9;      // for sgd, lars and muon
  double nesterov = 0;        // 1: sgd and muon use Nesterov momentum; 0: they do not
  // How 16-bit tables that are updated by rows are rounded: "nearest", or "stochastic". Stochastic
  // rounding takes one of the two neighbours of a number, with probabilities that keep the mean, so
  // that steps smaller than the distance of the neighbours are not lost. The rounding of an element
  // depends only on its index, the step and the seed.
  std::string rounding = "nearest";
  double clip_norm = 1.0;  // 0: no clipping
  Precision precision;     // dtypes of gradients and optimizer state, and the loss scale
  std::vector<OptimizerGroup> groups = {};
  // The tables that are updated by rows (tables_by_rows of optimizers.h, computed for the model as
  // written). Without a value they are found in the graph itself.
  std::optional<std::vector<std::string>> by_rows = std::nullopt;
  // The dim that the plan cuts into several micro-batches. If it is given, the tensors of all
  // micro-batches that an update reads are collected before the update (op kind collect). "": the
  // plan has one micro-batch.
  std::string micro_batch_dim = {};
  // Returns the value of an attribute of the update kind ("beta1"), or nothing if the kind's
  // default is to be used.
  std::optional<double> value(std::string_view attribute) const;
};
Result<Graph> differentiate(const Graph& forward, const OptimizerSpec& optimizer);

}  // namespace tessera
