#include "tessera/program/verify/prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tessera/base/text.h"
#include "tessera/graph/kinds.h"
#include "tessera/graph/rows.h"
#include "tessera/program/instructions.h"
#include "tessera/program/text/text.h"
#include "tessera/program/verify/points.h"
#include "tessera/program/verify/rows.h"

namespace tessera::verifying {
namespace {

std::string shape_text(const std::vector<int64_t>& shape) {
  std::vector<std::string> parts;
  for (int64_t size : shape) parts.push_back(std::to_string(size));
  return "[" + join(parts, ", ") + "]";
}

// Returns a region that moves with the micro-batch, from its boxes for micro-batches 0 and 1.
// `box`: the instruction's box from which the region follows.
Moving moving(Box at_zero, const Box& at_one, const Moving& box) {
  Moving out{std::move(at_zero), -1, 0, box.larger};
  for (size_t i = 0; i < out.box.rank(); ++i) {
    const int64_t step = at_one.dims[i].begin - out.box.dims[i].begin;
    if (step == 0) continue;
    out.dim = static_cast<int>(i);
    out.step = step;
  }
  return out;
}

class Preparer {
 public:
  Preparer(const Graph& graph, const std::vector<Program>& programs, size_t rank,
           const VerifyOptions& options, std::vector<Rejection>& rejections)
      : graph_(graph),
        ranks_(programs.size()),
        rank_(rank),
        program_(programs[rank]),
        options_(options),
        rejections_(rejections) {}

  PreparedProgram run();

 private:
  template <class... Args>
  bool reject(std::string rule, TensorId tensor, fmt::format_string<Args...> format,
              Args&&... args) {
    if (rejections_.size() < kMaxRejections) {
      rejections_.push_back({std::move(rule), static_cast<int>(rank_),
                             located_ ? where(program_, block_, index_, graph_) : "",
                             known(tensor) ? graph_.tensor(tensor).name : "",
                             fmt::format(format, std::forward<Args>(args)...)});
    }
    return false;
  }
  bool known(TensorId id) const { return id.valid() && id.index() < graph_.tensors().size(); }
  bool known(OpId id) const { return id.valid() && id.index() < graph_.ops().size(); }

  bool check_program();
  bool check_schedule();
  bool check_buffers();
  bool check(const Failure& failure) {
    return !failure || reject(failure.rule, failure.tensor, "{}", failure.message);
  }
  bool check_memory();
  bool check_groups();
  bool check_homes(const std::vector<Home>& homes, bool persistent);
  bool check_view(const View& view, TensorId tensor, const Box& region);
  bool check_inside(const Moving& region, const std::vector<int64_t>& shape, TensorId tensor);

  bool prepare(const Instruction& instruction, Prepared& out);
  bool prepare(const Compute& compute, Prepared& out);
  bool prepare_outputs(const Compute& compute, Prepared& out);
  bool check_box(const Compute& compute, const Op& op, Prepared& out);
  bool check_result(const Compute& compute, const Op& op, size_t index);
  bool check_overwrites(const Compute& compute, const Op& op, Prepared& out);
  bool check_coding(const Issue& issue);
  bool check_residual(const std::optional<View>& view, bool coded, int64_t elements,
                      TensorId tensor);
  bool prepare(const Issue& issue, Prepared& out);
  bool prepare(const Copy& copy, Prepared& out);
  bool prepare(const FetchRows& fetch, Prepared& out);
  bool prepare_message(const MessageEnd& end, Prepared& out);
  bool prepare_named(const Issue& issue, Prepared& out);
  bool prepare_transfer(const Issue& issue, const Transfer& transfer, Prepared& out);
  bool check_kind(const Issue& issue, const Transfer& transfer);
  bool check_bucket(const Issue& issue);
  bool prepare_region(TensorId tensor, const Box& region, const View& view, Prepared& out);
  bool new_handle(int handle);
  Tier tier_of(const View& view) const { return program_.buffer(view.buffer).tier; }
  bool on_device(const View& view, TensorId tensor);
  bool check_tiers(const Compute& compute, const Op& op);
  bool uses_micro_batch() const { return !block_.once() && program_.micro_batches > 1; }
  // Returns the last of the micro-batches that run the block.
  int64_t last_micro_batch() const {
    const bool all = program_.larger == 0 || program_.smaller(block_);
    return (all ? program_.micro_batches : program_.larger) - 1;
  }
  void move_along(int dim, Moving& region) const {
    region.dim = dim;
    region.step = dim >= 0 ? program_.micro_batch_size : 0;
    if (program_.larger > 0) region.larger = program_.larger;
  }
  Moving region_of(TensorId tensor, const Box& region) const;

  const Graph& graph_;
  size_t ranks_;
  size_t rank_;
  const Program& program_;
  const VerifyOptions& options_;
  std::vector<Rejection>& rejections_;
  bool located_ = false;
  BlockRef block_;
  size_t index_ = 0;
  // The handles that were seen, with whether in a block of the smaller micro-batches.
  std::set<std::pair<bool, int>> handles_;
  std::set<BufferId> residuals_;
};

PreparedProgram Preparer::run() {
  PreparedProgram out;
  out.program = &program_;
  if (!check_program() || !check_schedule() || !check_buffers() || !check_groups() ||
      !check(problem_of_caches(program_))) {
    return out;
  }
  check_memory();
  check_homes(program_.homes, true);
  check_homes(program_.fetches, false);
  for (const BlockRunStep& step : program_.schedule) ++out.runs[program_.family(step.block)];
  for (const Buffer& buffer : program_.buffers) out.planned = out.planned || buffer.offset >= 0;
  located_ = true;
  for (const auto& [ref, block] : program_.blocks) {
    block_ = ref;
    std::vector<Prepared>& prepared = out.blocks[ref];
    prepared.resize(block.size());
    for (index_ = 0; index_ < block.size(); ++index_) {
      prepare(block[index_], prepared[index_]);
      if (rejections_.size() >= kMaxRejections) return out;
    }
  }
  return out;
}

bool Preparer::check_program() {
  if (program_.rank != static_cast<int>(rank_) || program_.ranks != static_cast<int64_t>(ranks_)) {
    return reject("message", {}, "expected the program of rank {} of {}, found rank {} of {}",
                  rank_, ranks_, program_.rank, program_.ranks);
  }
  if (program_.micro_batches < 1) {
    return reject("lifetime", {}, "expected at least one micro-batch, found {}",
                  program_.micro_batches);
  }
  if (program_.larger < 0 || program_.larger >= program_.micro_batches) {
    return reject("coverage", {}, "expected fewer than {} larger micro-batches, found {}",
                  program_.micro_batches, program_.larger);
  }
  return true;
}

bool Preparer::check_schedule() {
  std::set<std::pair<BlockRef, int64_t>> seen;
  for (const BlockRunStep& step : program_.schedule) {
    const int64_t end = step.block.once() ? 1 : program_.micro_batches;
    if (step.micro_batch < 0 || step.micro_batch >= end) {
      return reject("coverage", {}, "schedule: {} of micro-batch {}, expected one below {}",
                    block_name(step.block), step.micro_batch, end);
    }
    if (!step.block.once() && program_.smaller(step.block) != program_.smaller(step.micro_batch)) {
      return reject("coverage", {}, "schedule: {} of micro-batch {} is of another size",
                    block_name(step.block), step.micro_batch);
    }
    if (!seen.insert({step.block, step.micro_batch}).second) {
      return reject("coverage", {}, "schedule: {} of micro-batch {} runs twice",
                    block_name(step.block), step.micro_batch);
    }
  }
  return true;
}

bool Preparer::check_buffers() {
  for (size_t i = 0; i < program_.buffers.size(); ++i) {
    const Buffer& buffer = program_.buffers[i];
    if (buffer.id.index() != i || !buffer.id.valid()) {
      return reject("instruction", {}, "buffer {} has the id {}", i, buffer.id.value);
    }
    if (buffer.slots < 1) {
      return reject("lifetime", {}, "buffer %{}: expected at least one slot, found {}", i,
                    buffer.slots);
    }
    for (int64_t size : buffer.shape) {
      if (size < 0) return reject("instruction", {}, "buffer %{} has a negative size", i);
    }
  }
  return true;
}

bool Preparer::check_memory() {
  const int64_t device = program_.arena_bytes[static_cast<size_t>(Tier::kDevice)];
  if (options_.memory_limit_bytes > 0 && device > options_.memory_limit_bytes) {
    return reject("memory", {}, "the device arena has {}, the limit is {}", format_bytes(device),
                  format_bytes(options_.memory_limit_bytes));
  }
  bool planned = false;
  for (const Buffer& buffer : program_.buffers) planned = planned || buffer.offset >= 0;
  if (!planned) return true;
  for (const Buffer& buffer : program_.buffers) {
    if (buffer.bytes() == 0) continue;
    const int64_t end = buffer.offset + (buffer.slots - 1) * buffer.slot_bytes + buffer.bytes();
    const int64_t arena = program_.arena_bytes[static_cast<size_t>(buffer.tier)];
    if (buffer.offset < 0 || end > arena) {
      return reject("memory", buffer.tensor,
                    "buffer %{} \"{}\" at offset {} ends at {}, the {} arena has {} bytes",
                    buffer.id.value, buffer.name, buffer.offset, end, tier_name(buffer.tier),
                    arena);
    }
  }
  return true;
}

bool Preparer::check_groups() {
  for (size_t g = 0; g < program_.groups.size(); ++g) {
    const Group& group = program_.groups[g];
    const std::set<int> distinct(group.members.begin(), group.members.end());
    const bool inside = !distinct.empty() && *distinct.begin() >= 0 &&
                        *distinct.rbegin() < static_cast<int>(ranks_);
    if (distinct.size() != group.members.size() || !inside || group.index < 0 ||
        static_cast<size_t>(group.index) >= group.members.size() ||
        group.members[static_cast<size_t>(group.index)] != static_cast<int>(rank_)) {
      return reject("message", {}, "group {}: expected distinct ranks with rank {} at index {}", g,
                    rank_, group.index);
    }
  }
  return true;
}

bool Preparer::check_homes(const std::vector<Home>& homes, bool persistent) {
  for (const Home& home : homes) {
    if (!known(home.tensor)) return reject("instruction", {}, "a home of an unknown tensor");
    if (!check_view({home.buffer, Box::whole(home.region.shape())}, home.tensor, home.region)) {
      return false;
    }
    const Tensor& tensor = graph_.tensor(home.tensor);
    const Buffer& buffer = program_.buffer(home.buffer);
    if (buffer.shape != home.region.shape() || !Box::whole(tensor.shape()).contains(home.region)) {
      return reject("instruction", home.tensor, "home region {} of {} does not fit its buffer {}",
                    home.region.to_string(), shape_text(tensor.shape()), shape_text(buffer.shape));
    }
    if (!persistent) continue;
    const bool role = tensor.role == Role::kParameter || tensor.role == Role::kBuffer ||
                      tensor.role == Role::kOptimizerState;
    if (!role || buffer.lifetime != Lifetime::kPersistent) {
      return reject(
          "instruction", home.tensor,
          "a home is of a parameter, state or table in a persistent buffer, found {} in a "
          "{} buffer",
          role_name(tensor.role), lifetime_name(buffer.lifetime));
    }
  }
  return true;
}

bool Preparer::check_view(const View& view, TensorId tensor, const Box& region) {
  if (!view.buffer.valid() || view.buffer.index() >= program_.buffers.size()) {
    return reject("instruction", tensor, "no buffer %{}", view.buffer.value);
  }
  const Buffer& buffer = program_.buffer(view.buffer);
  if (view.box.rank() != buffer.shape.size() || !Box::whole(buffer.shape).contains(view.box)) {
    return reject("instruction", tensor, "view {} does not lie in buffer %{} of shape {}",
                  view.box.to_string(), buffer.id.value, shape_text(buffer.shape));
  }
  if (view.box.shape() != region.shape()) {
    return reject(
        "instruction", tensor, "expected a view of shape {} for the region {}, found %{}{}",
        shape_text(region.shape()), region.to_string(), buffer.id.value, view.box.to_string());
  }
  if (buffer.dtype != graph_.tensor(tensor).dtype) {
    return reject("instruction", tensor, "expected {}, found buffer %{} of {}",
                  dtype_name(graph_.tensor(tensor).dtype), buffer.id.value,
                  dtype_name(buffer.dtype));
  }
  return true;
}

// Checks the residual of error feedback. It must be a persistent float32 buffer with one element
// for each element that the rank encodes.
bool Preparer::check_residual(const std::optional<View>& view, bool coded, int64_t elements,
                              TensorId tensor) {
  if (!view) return true;
  const bool known = view->buffer.valid() && view->buffer.index() < program_.buffers.size();
  if (known && coded) {
    const Buffer& buffer = program_.buffer(view->buffer);
    if (buffer.lifetime == Lifetime::kPersistent && buffer.dtype == DType::kFloat32 &&
        buffer.shape == std::vector<int64_t>{elements} && view->box == Box::whole(buffer.shape)) {
      return residuals_.insert(view->buffer).second ||
             reject("instruction", tensor, "the residual %{} is kept by another message",
                    view->buffer.value);
    }
  }
  return reject("instruction", tensor,
                "expected a codec and a persistent float32 residual of {} elements, found %{}",
                elements, view->buffer.value);
}

bool Preparer::check_inside(const Moving& region, const std::vector<int64_t>& shape,
                            TensorId tensor) {
  const Box whole = Box::whole(shape);
  const int64_t last = uses_micro_batch() ? last_micro_batch() : 0;
  if (region.box.rank() != whole.rank() || !whole.contains(region.box) ||
      !whole.contains(region.at(last))) {
    return reject("instruction", tensor, "region {} (last micro-batch {}) does not lie in {}",
                  region.box.to_string(),
                  region.box.rank() == whole.rank() ? region.at(last).to_string() : "?",
                  shape_text(shape));
  }
  return true;
}

Moving Preparer::region_of(TensorId tensor, const Box& region) const {
  Moving out{region};
  if (uses_micro_batch()) move_along(micro_batch_dim_of(program_, graph_.tensor(tensor)), out);
  return out;
}

bool Preparer::prepare(const FetchRows& fetch, Prepared& out) {
  if (!new_handle(fetch.handle)) return false;
  if (fetch.cache < 0 || static_cast<size_t>(fetch.cache) >= program_.caches.size())
    return reject("instruction", {}, "no cache {}", fetch.cache);
  if (fetch.ids.empty()) return reject("instruction", {}, "expected ids");
  for (const RowIds& ids : fetch.ids) {
    if (!known(ids.tensor)) return reject("instruction", {}, "unknown tensor {}", ids.tensor.value);
    const Tensor& tensor = graph_.tensor(ids.tensor);
    if (is_floating(tensor.dtype))
      return reject("instruction", tensor.id, "expected ids, found {}", dtype_name(tensor.dtype));
    out.regions.push_back(region_of(ids.tensor, ids.region));
    if (!check_inside(out.regions.back(), tensor.shape(), ids.tensor)) return false;
    if (ids.view.has_value() == fetch.ahead) {
      return reject("instruction", tensor.id,
                    "expected a view of ids of this step, and none of the next step's");
    }
    if (fetch.ahead && tensor.role != Role::kInput)
      return reject("instruction", tensor.id, "expected ids that the data gives");
    if (ids.view && !check_view(*ids.view, ids.tensor, ids.region)) return false;
  }
  return true;
}

bool Preparer::prepare(const Instruction& instruction, Prepared& out) {
  if (!check(problem_of_moves(program_, instruction))) return false;
  return match(
      instruction, [&](const Compute& compute) { return prepare(compute, out); },
      [&](const Issue& issue) { return prepare(issue, out); },
      [&](const Send& send) {
        return check_residual(send.residual, send.codec.has_value(), send.region.volume(),
                              send.tensor) &&
               prepare_message(*message_of(instruction), out);
      },
      [&](const Recv&) { return prepare_message(*message_of(instruction), out); },
      [&](const Copy& copy) { return prepare(copy, out); },
      [&](const FetchRows& fetch) { return prepare(fetch, out); },
      [](const ReleaseRows&) { return true; },
      [&](const Load& load) {
        if (!prepare_region(load.tensor, load.region, load.to, out) ||
            !on_device(load.to, load.tensor)) {
          return false;
        }
        const Role role = graph_.tensor(load.tensor).role;
        return role == Role::kInput ||
               reject("instruction", load.tensor,
                      "expected a graph input, found a tensor of role {}", role_name(role));
      },
      [&](const Free& free) {
        return (free.buffer.valid() && free.buffer.index() < program_.buffers.size()) ||
               reject("instruction", {}, "no buffer %{}", free.buffer.value);
      },
      [&](const Wait& wait) {
        return wait.lag >= 0 ||
               reject("instruction", {}, "expected a lag of 0 or more, found {}", wait.lag);
      });
}

bool Preparer::prepare_message(const MessageEnd& end, Prepared& out) {
  if (!new_handle(end.handle)) return false;
  if (end.peer < 0 || end.peer >= static_cast<int>(ranks_) || end.peer == static_cast<int>(rank_)) {
    return reject("message", end.tensor, "expected another rank below {} as peer, found {}", ranks_,
                  end.peer);
  }
  return prepare_region(end.tensor, *end.region, *end.view, out) &&
         on_device(*end.view, end.tensor);
}

bool Preparer::prepare(const Copy& copy, Prepared& out) {
  if (!prepare_region(copy.tensor, copy.region, copy.from, out) ||
      !check_view(copy.to, copy.tensor, copy.region)) {
    return false;
  }
  if (copy.handle >= 0 && !new_handle(copy.handle)) return false;
  const Tier from = tier_of(copy.from), to = tier_of(copy.to);
  if (copy.handle < 0 && (from == Tier::kDisk || to == Tier::kDisk)) {
    return reject("tier", copy.tensor,
                  "copies %{} -> %{} between disk and memory at once: expected a handle and a "
                  "wait",
                  copy.from.buffer.value, copy.to.buffer.value);
  }
  if (copy.from.buffer == copy.to.buffer && overlaps(copy.from.box, copy.to.box)) {
    return reject("lifetime", copy.tensor, "copies %{} onto itself", copy.to.buffer.value);
  }
  return true;
}

bool Preparer::new_handle(int handle) {
  return handles_.insert({program_.smaller(block_), handle}).second ||
         reject("instruction", {}, "handle #{} is used by another instruction", handle);
}

// Checks that a view of communication or a load is in device memory.
bool Preparer::on_device(const View& view, TensorId tensor) {
  return tier_of(view) == Tier::kDevice ||
         reject("tier", tensor, "expected %{} in device memory, found it in the {} tier",
                view.buffer.value, tier_name(tier_of(view)));
}

// Checks that all operands of a kernel are in the same tier, which must be device or host memory.
bool Preparer::check_tiers(const Compute& compute, const Op& op) {
  std::vector<std::pair<const View*, TensorId>> views;
  for (size_t o = 0; o < compute.outputs.size(); ++o) {
    views.emplace_back(&compute.outputs[o].view, op.outputs[o]);
  }
  for (size_t i = 0; i < compute.inputs.size(); ++i) {
    views.emplace_back(&compute.inputs[i], op.inputs[i]);
  }
  for (const auto& [view, tensor] : views) {
    const Tier tier = tier_of(*view), first = tier_of(*views.front().first);
    if (tier == first && tier != Tier::kDisk) continue;
    return reject(
        "tier", tensor, "expected %{} in the {} tier as the op's other operands, found {}",
        view->buffer.value, tier_name(first == Tier::kDisk ? Tier::kHost : first), tier_name(tier));
  }
  return true;
}

bool Preparer::prepare_region(TensorId tensor, const Box& region, const View& view, Prepared& out) {
  if (!known(tensor)) return reject("instruction", {}, "unknown tensor {}", tensor.value);
  out.regions = {region_of(tensor, region)};
  return check_inside(out.regions[0], graph_.tensor(tensor).shape(), tensor) &&
         check_view(view, tensor, region);
}

bool Preparer::prepare(const Compute& compute, Prepared& out) {
  if (!known(compute.op)) return reject("instruction", {}, "unknown op {}", compute.op.value);
  const Op& op = graph_.op(compute.op);
  if (compute.kind != op.kind) {
    return reject("instruction", {}, "expected kind {}, found {}", op.kind, compute.kind);
  }
  if (compute.attributes != op.attributes) {
    return reject("instruction", {}, "attributes differ from those of op {}", op.path);
  }
  if (compute.inputs.size() != op.inputs.size() || compute.outputs.size() != op.outputs.size()) {
    return reject("instruction", {}, "expected {} inputs and {} outputs, found {} and {}",
                  op.inputs.size(), op.outputs.size(), compute.inputs.size(),
                  compute.outputs.size());
  }
  out.op = &op;
  out.kind = op.info;
  if (out.kind == nullptr) return reject("instruction", {}, "unknown kind {}", op.kind);
  if (!check_box(compute, op, out)) return false;
  const Annotation& annotation = op.annotation;
  const Box next = Moving{compute.box, out.box.dim, out.box.step, out.box.larger}.at(1);
  out.linear = out.kind->linear;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const OperandDims& dims = annotation.inputs[i];
    out.regions.push_back(
        moving(project(annotation, dims, compute.box), project(annotation, dims, next), out.box));
    if (!check_view(compute.inputs[i], op.inputs[i], out.regions.back().box)) return false;
    out.linear = out.linear && dims.dims == annotation.outputs[0].dims && dims.windowed.empty();
  }
  return prepare_outputs(compute, out) && check_tiers(compute, op) &&
         check_overwrites(compute, op, out) && check(find_row_use(program_, compute, op, out.rows));
}

// Checks the box of a compute: it must have frozen dims whole, unless it is empty, as it is on a
// rank at another coordinate than the op's pin. Sets out.box to the points that the box stands for
// (counted_by_queries).
bool Preparer::check_box(const Compute& compute, const Op& op, Prepared& out) {
  const Annotation& annotation = op.annotation;
  std::vector<int64_t> sizes;
  for (const OpDim& dim : annotation.dims) sizes.push_back(dim.size);
  out.box = {compute.box};
  if (compute.box.rank() != sizes.size()) {
    return reject("instruction", {}, "expected a box of {} dims, found {}", sizes.size(),
                  compute.box.to_string());
  }
  if (uses_micro_batch()) {
    move_along(micro_batch_dim_of(program_, annotation), out.box);
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    const OpDim& dim = annotation.dims[i];
    Interval& own = out.box.box.dims[i];
    if (dim.mark == Mark::kFrozen && own != Interval{0, dim.size} && !compute.box.empty()) {
      return reject("instruction", {}, "frozen dim {} is split: expected [0:{}], found [{}:{}]",
                    dim.name, dim.size, own.begin, own.end());
    }
  }
  if (!check_inside(out.box, sizes, op.outputs.empty() ? TensorId() : op.outputs[0])) return false;
  out.box.box = counted_by_queries(op, std::move(out.box.box));
  return true;
}

bool Preparer::prepare_outputs(const Compute& compute, Prepared& out) {
  const Op& op = *out.op;
  const Annotation& annotation = op.annotation;
  const Box next = Moving{compute.box, out.box.dim, out.box.step, out.box.larger}.at(1);
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    const OperandDims& dims = annotation.outputs[i];
    PreparedOutput output;
    output.region =
        moving(project(annotation, dims, compute.box), project(annotation, dims, next), out.box);
    output.box = {counted(op, dims, compute.box), out.box.dim, out.box.step, out.box.larger};
    for (KeyStretch& stretch : stretches_of(op, dims, compute.box)) {
      Moving region = output.region;
      region.box.dims[stretch.tensor_dim] = stretch.keys;
      output.stretches.push_back(
          {std::move(region), {std::move(stretch.box), out.box.dim, out.box.step, out.box.larger}});
    }
    for (size_t d = 0; d < annotation.dims.size(); ++d) {
      if (!dims.contains(static_cast<int>(d))) output.reduced.push_back(static_cast<int>(d));
    }
    if (!check_view(compute.outputs[i].view, op.outputs[i], output.region.box)) return false;
    if (!check_result(compute, op, i)) return false;
    if (dims.combiner == Combiner::kWeighted &&
        compute.outputs[i].write != compute.outputs[i + 1].write) {
      return reject("instruction", op.outputs[i],
                    "is set where its weight is added, or the reverse");
    }
    out.outputs.push_back(std::move(output));
  }
  return true;
}

bool Preparer::check_result(const Compute& compute, const Op& op, size_t index) {
  const Output& output = compute.outputs[index];
  if (output.terms == 1) {
    return (output.tensor == op.outputs[index] && output.term == 0) ||
           reject("instruction", op.outputs[index], "expected this output, found {}",
                  known(output.tensor) ? graph_.tensor(output.tensor).name : "none");
  }
  const bool made = known(output.tensor) && known(graph_.tensor(output.tensor).producer);
  const Op* sum = made ? &graph_.op(graph_.tensor(output.tensor).producer) : nullptr;
  if (sum == nullptr || !is_sum_of_terms(*sum) ||
      sum->inputs.size() != static_cast<size_t>(std::max(0, output.terms)) || output.term < 0 ||
      output.term >= output.terms ||
      sum->inputs[static_cast<size_t>(output.term)] != op.outputs[index]) {
    return reject("instruction", op.outputs[index], "is not term {} of {} of {}", output.term,
                  output.terms, known(output.tensor) ? graph_.tensor(output.tensor).name : "none");
  }
  return true;
}

// Checks that an output shares memory with an input only if the op may overwrite the input element
// by element. This may be output 0 with input 0 of an in-place kind, or the new value of a
// parameter or state with the old value.
bool Preparer::check_overwrites(const Compute& compute, const Op& op, Prepared& out) {
  for (size_t o = 0; o < compute.outputs.size(); ++o) {
    const View& to = compute.outputs[o].view;
    for (size_t i = 0; i < compute.inputs.size(); ++i) {
      const View& from = compute.inputs[i];
      const bool updates = graph_.tensor(op.outputs[o]).update_of == op.inputs[i];
      const bool may = updates || (out.kind->in_place && o == 0 && i == 0);
      if (may && compute.outputs[o].write == Write::kSet && out.outputs[o].alias < 0) {
        out.outputs[o].alias = static_cast<int>(i);
      }
      if (from.buffer != to.buffer || !overlaps(from.box, to.box)) continue;
      if (!may || !(from == to) || compute.outputs[o].write != Write::kSet) {
        return reject("lifetime", op.outputs[o], "output {} overwrites input {} in %{}", o, i,
                      to.buffer.value);
      }
    }
    for (size_t other = 0; other < o; ++other) {
      const View& before = compute.outputs[other].view;
      if (before.buffer == to.buffer && overlaps(before.box, to.box)) {
        return reject("lifetime", op.outputs[o], "outputs {} and {} overlap in %{}", other, o,
                      to.buffer.value);
      }
    }
  }
  return true;
}

bool Preparer::prepare(const Issue& issue, Prepared& out) {
  if (!new_handle(issue.handle)) return false;
  if (issue.group < 0 || static_cast<size_t>(issue.group) >= program_.groups.size()) {
    return reject("message", {}, "no group {}", issue.group);
  }
  for (const Transfer& transfer : issue.transfers) {
    if (!prepare_transfer(issue, transfer, out)) return false;
  }
  if (issue.named && !prepare_named(issue, out)) return false;
  if (!check_coding(issue)) return false;
  return check_bucket(issue);
}

bool Preparer::prepare_named(const Issue& issue, Prepared& out) {
  if (Failure failure = problem_of_names(program_, graph_, issue)) return check(failure);
  const Op& op = graph_.op(issue.named->op);
  const std::vector<size_t> ids = ids_of_naming(op);
  for (size_t i = 0; i < ids.size(); ++i) {
    const TensorId tensor = op.inputs[ids[i]];
    const Box whole = Box::whole(graph_.tensor(tensor).shape());
    out.regions.push_back(region_of(tensor, whole));
    if (!check_view(issue.named->ids[i], tensor, whole)) return false;
  }
  return true;
}

bool Preparer::prepare_transfer(const Issue& issue, const Transfer& transfer, Prepared& out) {
  const Group& group = program_.groups[static_cast<size_t>(issue.group)];
  const TensorId id = transfer.tensor;
  if (!known(id)) return reject("instruction", {}, "unknown tensor {}", id.value);
  const Tensor& tensor = graph_.tensor(id);
  if (transfer.hold.size() != group.members.size() ||
      transfer.need.size() != group.members.size()) {
    return reject("message", id, "expected {} members, found {} holds and {} needs",
                  group.members.size(), transfer.hold.size(), transfer.need.size());
  }
  if (issue.dtype != tensor.dtype) {
    return reject("message", id, "expected {}, found {}", dtype_name(tensor.dtype),
                  dtype_name(issue.dtype));
  }
  for (const SharedBoxes* boxes : {&transfer.hold, &transfer.need}) {
    for (const Box& box : *boxes) {
      if (box.rank() != tensor.dims.size()) {
        return reject("message", id, "box {} has another rank than the tensor", box.to_string());
      }
      out.regions.push_back(region_of(id, box));
      if (!box.empty() && !check_inside(out.regions.back(), tensor.shape(), id)) return false;
    }
  }
  const size_t me = static_cast<size_t>(group.index);
  if (transfer.in.has_value() == transfer.hold[me].empty() ||
      transfer.out.has_value() == transfer.need[me].empty()) {
    return reject("message", id, "views must be there exactly for boxes that are not empty");
  }
  return (!transfer.in || check_view(*transfer.in, id, transfer.hold[me])) &&
         (!transfer.out || check_view(*transfer.out, id, transfer.need[me])) &&
         (!transfer.in || on_device(*transfer.in, id)) &&
         (!transfer.out || on_device(*transfer.out, id)) && check_kind(issue, transfer);
}

bool Preparer::check_coding(const Issue& issue) {
  if (!issue.codec && !issue.residual) return true;
  const auto me = static_cast<size_t>(program_.groups[static_cast<size_t>(issue.group)].index);
  int64_t elements = 0;
  for (const Transfer& transfer : issue.transfers) {
    const Redistribution what{issue.kind, issue.combiner, issue.dtype, transfer.hold,
                              transfer.need};
    if (!can_code(what)) {
      return reject("instruction", transfer.tensor,
                    "a codec needs floating copies or sums whose pieces do not overlap");
    }
    elements += coded_elements(what, me);
  }
  return issue.transfers.empty() || check_residual(issue.residual, issue.codec.has_value(),
                                                   elements, issue.transfers[0].tensor);
}

bool Preparer::check_kind(const Issue& issue, const Transfer& transfer) {
  bool must_combine = false, may_combine = false, fits = true;
  const auto same = [](const std::vector<Box>& boxes) {
    return std::all_of(boxes.begin(), boxes.end(), [&](const Box& b) { return b == boxes[0]; });
  };
  switch (issue.kind) {
    case CollectiveKind::kAllReduce:
      must_combine = may_combine = true;
      fits = same(transfer.hold) && transfer.hold == transfer.need;
      break;
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kReduce: must_combine = may_combine = true; break;
    case CollectiveKind::kAllGather: fits = same(transfer.need); break;
    case CollectiveKind::kAllToAll:
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kPermute: break;
    case CollectiveKind::kExchange: may_combine = true; break;
  }
  if (issue.combiner == Combiner::kWeighted) {
    return reject("instruction", transfer.tensor, "weighted parts are not merged by collectives");
  }
  // Moments are triples along the last dim of their tensor, which must be whole.
  const auto whole = [&](const Box& box) {
    return box.empty() || (box.rank() > 0 &&
                           box.dims.back().size == graph_.tensor(transfer.tensor).dims.back().size);
  };
  if (issue.combiner == Combiner::kMoments &&
      !(std::all_of(transfer.hold.begin(), transfer.hold.end(), whole) &&
        std::all_of(transfer.need.begin(), transfer.need.end(), whole))) {
    return reject("instruction", transfer.tensor, "merges moments whose last dim is cut");
  }
  if ((must_combine && !issue.combiner) || (!may_combine && issue.combiner) || !fits) {
    return reject(
        "instruction", transfer.tensor, "hold, need and combiner ({}) are not those of {}",
        issue.combiner ? combiner_name(*issue.combiner) : "none", collective_name(issue.kind));
  }
  return true;
}

namespace {

// Returns whether the transfer works in place. This is an all-reduce whose result replaces its
// operand, or a copy whose operand already lies at its position in the result (such as a gather
// into the buffer that holds the rank's own shard).
bool lies_in_place(const Program& program, const Issue& issue, const Transfer& transfer) {
  if (issue.kind == CollectiveKind::kAllReduce) return *transfer.in == *transfer.out;
  if (issue.combiner || transfer.in->buffer != transfer.out->buffer) return false;
  const size_t me = static_cast<size_t>(program.groups[static_cast<size_t>(issue.group)].index);
  return moved(transfer.hold[me], transfer.need[me], transfer.out->box) == transfer.in->box;
}

}  // namespace

// Checks that the outputs of a bucket do not overlap each other or the inputs. Only a transfer that
// works in place may overlap its own input.
bool Preparer::check_bucket(const Issue& issue) {
  for (size_t t = 0; t < issue.transfers.size(); ++t) {
    if (!issue.transfers[t].out) continue;
    const View& to = *issue.transfers[t].out;
    for (size_t other = 0; other < issue.transfers.size(); ++other) {
      const Transfer& transfer = issue.transfers[other];
      const auto hits = [&](const std::optional<View>& view) {
        return view && view->buffer == to.buffer && overlaps(view->box, to.box);
      };
      const bool in_place = other == t && transfer.in && lies_in_place(program_, issue, transfer);
      if ((other != t && hits(transfer.out)) || (hits(transfer.in) && !in_place)) {
        return reject("lifetime", transfer.tensor, "overwrites its own operand in %{}",
                      to.buffer.value);
      }
    }
  }
  return true;
}

}  // namespace

Box Moving::at(int64_t micro_batch) const {
  Box out = box;
  if (dim >= 0) {
    out.dims[static_cast<size_t>(dim)].begin +=
        micro_batch * step - std::max<int64_t>(0, micro_batch - larger);
  }
  return out;
}

std::string where(const Program& program, BlockRef block, size_t index, const Graph& graph) {
  return fmt::format("{}[{}] {}", block_name(block), index,
                     label(program.block(block)[index], graph));
}

PreparedProgram prepare(const Graph& graph, const std::vector<Program>& programs, size_t rank,
                        const VerifyOptions& options, std::vector<Rejection>& rejections) {
  return Preparer(graph, programs, rank, options, rejections).run();
}

}  // namespace tessera::verifying
