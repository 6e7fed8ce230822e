#include "tessera/program/verify/prepare.h"

#include <algorithm>
#include <set>

#include "tessera/base/text.h"
#include "tessera/program/instructions.h"
#include "tessera/program/text/text.h"
#include "tessera/program/verify/rows.h"

namespace tessera::verifying {
namespace {

std::string shape_text(const std::vector<int64_t>& shape) {
  std::vector<std::string> parts;
  for (int64_t size : shape) parts.push_back(std::to_string(size));
  return "[" + join(parts, ", ") + "]";
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

void Preparing::move_along(int dim, Moving& region) const {
  region.dim = dim;
  region.step = dim >= 0 ? program.micro_batch_size : 0;
  if (program.larger > 0) region.larger = program.larger;
}

Moving Preparing::region_of(TensorId tensor, const Box& region) const {
  Moving out{region};
  if (uses_micro_batch()) move_along(micro_batch_dim_of(program, graph.tensor(tensor)), out);
  return out;
}

bool Preparing::check_view(const View& view, TensorId tensor, const Box& region) {
  if (!known(view.buffer)) {
    return reject("instruction", tensor, "no buffer %{}", view.buffer.value);
  }
  const Buffer& buffer = program.buffer(view.buffer);
  if (view.box.rank() != buffer.shape.size() || !Box::whole(buffer.shape).contains(view.box)) {
    return reject("instruction", tensor, "view {} does not lie in buffer %{} of shape {}",
                  view.box.to_string(), buffer.id.value, shape_text(buffer.shape));
  }
  if (view.box.shape() != region.shape()) {
    return reject(
        "instruction", tensor, "expected a view of shape {} for the region {}, found %{}{}",
        shape_text(region.shape()), region.to_string(), buffer.id.value, view.box.to_string());
  }
  if (buffer.dtype != graph.tensor(tensor).dtype) {
    return reject("instruction", tensor, "expected {}, found buffer %{} of {}",
                  dtype_name(graph.tensor(tensor).dtype), buffer.id.value,
                  dtype_name(buffer.dtype));
  }
  return true;
}

bool Preparing::check_inside(const Moving& region, const std::vector<int64_t>& shape,
                             TensorId tensor) {
  const Box whole = Box::whole(shape);
  const bool all = program.larger == 0 || program.smaller(block);
  const int64_t last = uses_micro_batch() ? (all ? program.micro_batches : program.larger) - 1 : 0;
  if (region.box.rank() != whole.rank() || !whole.contains(region.box) ||
      !whole.contains(region.at(last))) {
    return reject("instruction", tensor, "region {} (last micro-batch {}) does not lie in {}",
                  region.box.to_string(),
                  region.box.rank() == whole.rank() ? region.at(last).to_string() : "?",
                  shape_text(shape));
  }
  return true;
}

namespace {

bool check_program(Preparing& p) {
  if (p.program.rank != static_cast<int>(p.rank) ||
      p.program.ranks != static_cast<int64_t>(p.ranks)) {
    return p.reject("message", {}, "expected the program of rank {} of {}, found rank {} of {}",
                    p.rank, p.ranks, p.program.rank, p.program.ranks);
  }
  if (p.program.micro_batches < 1) {
    return p.reject("lifetime", {}, "expected at least one micro-batch, found {}",
                    p.program.micro_batches);
  }
  if (p.program.larger < 0 || p.program.larger >= p.program.micro_batches) {
    return p.reject("coverage", {}, "expected fewer than {} larger micro-batches, found {}",
                    p.program.micro_batches, p.program.larger);
  }
  return true;
}

bool check_schedule(Preparing& p) {
  std::set<std::pair<BlockRef, int64_t>> seen;
  for (const BlockRunStep& step : p.program.schedule) {
    const int64_t end = step.block.once() ? 1 : p.program.micro_batches;
    if (step.micro_batch < 0 || step.micro_batch >= end) {
      return p.reject("coverage", {}, "schedule: {} of micro-batch {}, expected one below {}",
                      block_name(step.block), step.micro_batch, end);
    }
    if (!step.block.once() &&
        p.program.smaller(step.block) != p.program.smaller(step.micro_batch)) {
      return p.reject("coverage", {}, "schedule: {} of micro-batch {} is of another size",
                      block_name(step.block), step.micro_batch);
    }
    if (!seen.insert({step.block, step.micro_batch}).second) {
      return p.reject("coverage", {}, "schedule: {} of micro-batch {} runs twice",
                      block_name(step.block), step.micro_batch);
    }
  }
  return true;
}

bool check_buffers(Preparing& p) {
  for (size_t i = 0; i < p.program.buffers.size(); ++i) {
    const Buffer& buffer = p.program.buffers[i];
    if (buffer.id.index() != i || !buffer.id.valid()) {
      return p.reject("instruction", {}, "buffer {} has the id {}", i, buffer.id.value);
    }
    if (buffer.slots < 1) {
      return p.reject("lifetime", {}, "buffer %{}: expected at least one slot, found {}", i,
                      buffer.slots);
    }
    for (int64_t size : buffer.shape) {
      if (size < 0) return p.reject("instruction", {}, "buffer %{} has a negative size", i);
    }
  }
  return true;
}

bool check_memory(Preparing& p) {
  const int64_t device = p.program.arena_bytes[static_cast<size_t>(Tier::kDevice)];
  if (p.options.memory_limit_bytes > 0 && device > p.options.memory_limit_bytes) {
    return p.reject("memory", {}, "the device arena has {}, the limit is {}", format_bytes(device),
                    format_bytes(p.options.memory_limit_bytes));
  }
  bool planned = false;
  for (const Buffer& buffer : p.program.buffers) planned = planned || buffer.offset >= 0;
  if (!planned) return true;
  for (const Buffer& buffer : p.program.buffers) {
    if (buffer.bytes() == 0) continue;
    const int64_t end = buffer.offset + (buffer.slots - 1) * buffer.slot_bytes + buffer.bytes();
    const int64_t arena = p.program.arena_bytes[static_cast<size_t>(buffer.tier)];
    if (buffer.offset < 0 || end > arena) {
      return p.reject("memory", buffer.tensor,
                      "buffer %{} \"{}\" at offset {} ends at {}, the {} arena has {} bytes",
                      buffer.id.value, buffer.name, buffer.offset, end, tier_name(buffer.tier),
                      arena);
    }
  }
  return true;
}

bool check_groups(Preparing& p) {
  for (size_t g = 0; g < p.program.groups.size(); ++g) {
    const Group& group = p.program.groups[g];
    const std::set<int> distinct(group.members.begin(), group.members.end());
    const bool inside = !distinct.empty() && *distinct.begin() >= 0 &&
                        *distinct.rbegin() < static_cast<int>(p.ranks);
    if (distinct.size() != group.members.size() || !inside || group.index < 0 ||
        static_cast<size_t>(group.index) >= group.members.size() ||
        group.members[static_cast<size_t>(group.index)] != static_cast<int>(p.rank)) {
      return p.reject("message", {}, "group {}: expected distinct ranks with rank {} at index {}",
                      g, p.rank, group.index);
    }
  }
  return true;
}

bool check_homes(Preparing& p, const std::vector<Home>& homes, bool persistent) {
  for (const Home& home : homes) {
    if (!p.known(home.tensor)) return p.reject("instruction", {}, "a home of an unknown tensor");
    if (!p.check_view({home.buffer, Box::whole(home.region.shape())}, home.tensor, home.region)) {
      return false;
    }
    const Tensor& tensor = p.graph.tensor(home.tensor);
    const Buffer& buffer = p.program.buffer(home.buffer);
    if (buffer.shape != home.region.shape() || !Box::whole(tensor.shape()).contains(home.region)) {
      return p.reject("instruction", home.tensor, "home region {} of {} does not fit its buffer {}",
                      home.region.to_string(), shape_text(tensor.shape()),
                      shape_text(buffer.shape));
    }
    if (!persistent) continue;
    const bool role = tensor.role == Role::kParameter || tensor.role == Role::kBuffer ||
                      tensor.role == Role::kOptimizerState;
    if (!role || buffer.lifetime != Lifetime::kPersistent) {
      return p.reject(
          "instruction", home.tensor,
          "a home is of a parameter, state or table in a persistent buffer, found {} in a "
          "{} buffer",
          role_name(tensor.role), lifetime_name(buffer.lifetime));
    }
  }
  return true;
}

}  // namespace

PreparedProgram prepare(const Graph& graph, const std::vector<Program>& programs, size_t rank,
                        const VerifyOptions& options, std::vector<Rejection>& rejections) {
  Preparing p{graph, programs[rank], programs.size(), rank, options, rejections};
  PreparedProgram out;
  out.program = &p.program;
  if (!check_program(p) || !check_schedule(p) || !check_buffers(p) || !check_groups(p) ||
      !p.check(problem_of_caches(p.program))) {
    return out;
  }
  check_memory(p);
  check_homes(p, p.program.homes, true);
  check_homes(p, p.program.fetches, false);
  for (const BlockRunStep& step : p.program.schedule) ++out.runs[p.program.family(step.block)];
  for (const Buffer& buffer : p.program.buffers) out.planned = out.planned || buffer.offset >= 0;
  p.located = true;
  for (const auto& [ref, block] : p.program.blocks) {
    p.block = ref;
    std::vector<Prepared>& prepared = out.blocks[ref];
    prepared.resize(block.size());
    for (p.index = 0; p.index < block.size(); ++p.index) {
      prepare_instruction(p, block[p.index], prepared[p.index]);
      if (p.rejections.size() >= kMaxRejections) return out;
    }
  }
  return out;
}

}  // namespace tessera::verifying
