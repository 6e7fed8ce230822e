// Facts are what the PyTorch of a plan must say. They are found in the plan's layouts of ops and tensors and not by the
// names of recipes, axes or models: what each axis of the mesh is for, which dim of which parameter
// is cut, where activations change their layout, which modules are made again, where stages begin.
//
//   TESSERA_TRY(const Facts facts, find_facts({model, plan, compute, compiler}));
//
// What PyTorch cannot run is an error of one line with the plan's entry and the nearest plan that it
// can run. Small ops (norms, sums, views) follow the layouts around them in PyTorch, whatever the
// plan says about them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/export/pytorch/module_paths.h"
#include "tessera/export/recognize.h"

namespace tessera::pytorch {

enum class AxisUse : uint8_t { kStages, kReplicas, kShards, kTensor };

struct UsedAxis {
  std::string name;
  int64_t size = 1;
  AxisUse use = AxisUse::kReplicas;
  int entry = -1;  // index of a split entry that decides the use; -1: none
};

// A parameter of the module, and the dim of its own shape that the tensor axis cuts.
struct CutParameter {
  std::string name;
  int64_t dim = 0;
};
// A module whose input or output changes its layout over the tensor axis.
struct Border {
  std::string module;
  std::optional<int64_t> dim;  // the dim that is cut from there on; unset: the tensor is whole
};

struct Facts {
  std::shared_ptr<const Model> model;
  Plan plan;
  std::shared_ptr<const Graph> graph;  // that is trained
  ResolvedPlan resolved;
  std::vector<UsedAxis> axes;  // those of more than one rank, in the order of the mesh
  // 0: whole; 1: optimizer state rests in shards; 2: gradients too; 3: parameters too.
  int64_t zero = 0;
  bool sums_each = false;          // gradients are summed over ranks after each micro-batch
  int zero_entry = -1;             // index of the deciding store entry
  bool kept = false;               // gathered parameters stay from the forward to the backward pass
  int64_t kept_pieces = 0;         // in how many pieces of neighbouring ranks they stay; 0: whole
  bool offload = false;            // parameters, gradients and optimizer state rest on the host
  std::vector<std::string> units;  // modules that are gathered each at once
  std::vector<std::string> remade;  // modules that are made again in the backward pass
  int remade_entry = -1;
  std::vector<CutParameter> cut;
  std::vector<Border> enter, leave;
  bool parallel_loss = false;             // the cross entropy reads classes in pieces
  std::vector<std::string> stage_starts;  // the module with which stage 1, 2, ... begins
  std::vector<std::string> notes;

  int64_t size_of(AxisUse use) const;  // product over the axes of the use
  const UsedAxis* tensor_axis() const;
};

Result<Facts> find_facts(const ExportQuestion& question);

// ---- parts, each of which completes some of the facts

// Returns the error "plan.toml:3 (...): PyTorch cannot run this: why; nearest: ...".
tl::unexpected<Error> cannot_run(const std::string& where, const std::string& why,
                                 const std::string& nearest);
// Returns where a split or store entry stands; the plan's name if there is no entry.
std::string split_place(const Facts& facts, int entry);
std::string store_place(const Facts& facts, int entry);

Status check_entries(const Facts& facts);  // what no PyTorch has: loops over time, pins and so on
Status find_axes(Facts& facts);
Status find_rest(Facts& facts);  // sharding, tiers
Status find_layouts(Facts& facts, const ModulePaths& modules);
Status find_remade(Facts& facts, const ModulePaths& modules);
Status find_stages(Facts& facts, const ModulePaths& modules);

// Returns the axes, of more than one rank, that cut a dim of the op, by name.
std::vector<std::string> axes_of(const Facts& facts, const Op& op, size_t dim);

}  // namespace tessera::pytorch
