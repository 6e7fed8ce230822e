#include "tessera/program/verify/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tessera/graph/kinds.h"
#include "tessera/graph/rows.h"
#include "tessera/program/instructions.h"

namespace tessera::verifying {
namespace {

// Checks that each buffer that the cache holds is on the device and that a buffer in another tier
// has the same rows.
Failure problem_of(const Program& program, const RowCache& cache) {
  const auto exists = [&](BufferId id) {
    return id.valid() && id.index() < program.buffers.size() &&
           program.buffer(id).lifetime == Lifetime::kPersistent;
  };
  const auto wrong = [&](std::string_view expected) {
    return Failure{"instruction", {}, fmt::format("cache: expected {}", expected)};
  };
  if (cache.held.empty() || cache.held.size() != cache.rests.size())
    return wrong("as many tensors at rest as on the device, and one at least");
  if (cache.slots < 1 || cache.slots > cache.rows.size || cache.places < cache.slots)
    return wrong("1 slot or more, no more than rows, and a place for each");
  for (size_t i = 0; i < cache.held.size(); ++i) {
    if (!exists(cache.held[i]) || !exists(cache.rests[i])) return wrong("persistent buffers");
    const Buffer &held = program.buffer(cache.held[i]), &rest = program.buffer(cache.rests[i]);
    if (held.tier != Tier::kDevice || rest.tier == Tier::kDevice || held.tensor != rest.tensor ||
        held.shape != rest.shape || held.dtype != rest.dtype || held.shape.empty() ||
        held.shape[0] != cache.rows.size || held.places != cache.places) {
      return {"instruction", held.tensor,
              fmt::format("cache: expected {} rows in %{} on the device, with {} places, and the "
                          "same rows in %{} in another tier",
                          cache.rows.size, held.id.value, cache.places, rest.id.value)};
    }
  }
  if (!exists(cache.index)) return wrong("a persistent index");
  const Buffer& index = program.buffer(cache.index);
  const int64_t words = cache.rows.size + 2 * cache.slots;
  if (index.tier != Tier::kHost || index.dtype != DType::kInt32 ||
      index.shape != std::vector<int64_t>{words}) {
    return wrong(fmt::format("{} words of int32 on the host in %{}", words, index.id.value));
  }
  return {};
}

}  // namespace

Failure problem_of_caches(const Program& program) {
  std::set<BufferId> held;
  for (const RowCache& cache : program.caches) {
    if (Failure failure = problem_of(program, cache)) return failure;
    for (const BufferId id : cache.held) {
      if (!held.insert(id).second)
        return {"instruction", {}, fmt::format("%{} is held by two caches", id.value)};
    }
  }
  for (const Buffer& buffer : program.buffers) {
    if ((buffer.places > 0) == held.contains(buffer.id)) continue;
    return {"instruction", buffer.tensor,
            fmt::format("%{} has {} places, and {} cache", buffer.id.value, buffer.places,
                        held.contains(buffer.id) ? "a" : "no")};
  }
  return {};
}

Failure problem_of_moves(const Program& program, const Instruction& instruction) {
  Failure failure;
  if (program.caches.empty() || std::holds_alternative<Compute>(instruction.body)) return failure;
  accesses(instruction, [&](const Access& access) {
    const bool known = access.buffer.valid() && access.buffer.index() < program.buffers.size();
    if (failure || !known || program.buffer(access.buffer).places == 0) return;
    failure = {
        "rows", program.buffer(access.buffer).tensor,
        fmt::format("moves all of %{}, of which the device has some rows", access.buffer.value)};
  });
  return failure;
}

Failure find_row_use(const Program& program, const Compute& compute, const Op& op,
                     std::optional<RowUse>& found) {
  if (program.caches.empty()) return {};
  const auto wrong = [&](TensorId tensor, std::string_view what) {
    return Failure{"rows", tensor,
                   fmt::format("{} a table of which the device has some rows", what)};
  };
  RowUse use;
  use.cache = -1;
  for (size_t i = 0; i < compute.inputs.size(); ++i) {
    const View& view = compute.inputs[i];
    const int cache = cache_of(program, view.buffer);
    if (cache < 0 || reads_sizes_alone(op, i)) continue;
    if (!touches_rows(op, i) || view.box != Box::whole(program.buffer(view.buffer).shape))
      return wrong(op.inputs[i], "reads all of");
    if (use.cache >= 0 && use.cache != cache)
      return wrong(op.inputs[i], "reads with another table");
    use.cache = cache;
  }
  for (size_t o = 0; o < compute.outputs.size(); ++o) {
    const View& view = compute.outputs[o].view;
    if (cache_of(program, view.buffer) < 0) continue;
    const auto same = [&](const View& input) { return input == view; };
    if (use.cache < 0 || std::none_of(compute.inputs.begin(), compute.inputs.end(), same))
      return wrong(op.outputs[o], "writes all of");
    use.changes = true;
  }
  if (use.cache < 0) return {};
  use.ids = ids_of_rows(op);
  found = std::move(use);
  return {};
}

Failure problem_of_names(const Program& program, const Graph& graph, const Issue& issue) {
  const NamedRows& named = *issue.named;
  const TensorId tensor = issue.transfers.empty() ? TensorId() : issue.transfers[0].tensor;
  const auto wrong = [&](std::string_view expected) {
    return Failure{"instruction", tensor,
                   fmt::format("exchange of named rows: expected {}", expected)};
  };
  if (issue.kind != CollectiveKind::kExchange || issue.transfers.size() != 1 || issue.codec ||
      issue.combiner.value_or(Combiner::kSum) != Combiner::kSum)
    return wrong("an exchange of one array, a copy or a sum, without a codec");
  if (program.micro_batches != 1) return wrong("a step of one micro-batch");
  const bool known = named.op.valid() && named.op.index() < graph.ops().size();
  const RowNaming* naming = known ? naming_of(graph.op(named.op)) : nullptr;
  if (naming == nullptr) return wrong("an op that names rows");
  const Op& op = graph.op(named.op);
  const int table = issue.combiner ? naming->output : naming->input;
  const std::vector<TensorId>& operands = issue.combiner ? op.outputs : op.inputs;
  if (table < 0 || operands[static_cast<size_t>(table)] != tensor) {
    return wrong(
        fmt::format("the table that {} {}", op.path, issue.combiner ? "adds to" : "reads"));
  }
  const Transfer& transfer = issue.transfers[0];
  const size_t members = transfer.hold.size();
  const int64_t rows = graph.tensor(op.inputs[naming->begin]).dims[0].size;
  const int64_t all = graph.tensor(tensor).dims[0].size;
  if (named.ids.size() != ids_of_naming(op).size() || named.most != most_named(op) ||
      named.rows.size() != members ||
      (!named.counted.empty() && named.counted.size() != members * members))
    return wrong(fmt::format("the ids of {} and rows of it for each member", op.path));
  for (size_t m = 0; m < members; ++m) {
    const Interval& own = named.rows[m];
    if (!own.empty() && intersect(own, {0, rows}) != own)
      return wrong(fmt::format("rows of {} among {}", op.path, rows));
    const Box &whole = issue.combiner ? transfer.hold[m] : transfer.need[m],
              &part = issue.combiner ? transfer.need[m] : transfer.hold[m];
    if (whole.dims[0] != Interval{0, all}) return wrong("all rows where they are named");
    for (size_t d = 1; d < whole.rank(); ++d) {
      if (whole.dims[d] != part.dims[d]) return wrong("rows alone to be cut");
    }
  }
  return {};
}

}  // namespace tessera::verifying
