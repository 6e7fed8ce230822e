// Checks the rules of place texts. First each instruction is checked alone, then each order in
// which the blocks run.
#include "tessera/program/place_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "tessera/graph/kinds.h"
#include "tessera/graph/rows.h"
#include "tessera/program/memory/touches.h"
#include "tessera/program/text/place_form.h"

namespace tessera {
namespace {

bool reduces(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduceScatter ||
         kind == CollectiveKind::kReduce;
}

int64_t last_rank(const Mesh& mesh) {
  std::vector<int64_t> last;
  for (const MeshAxis& axis : mesh.axes) last.push_back(axis.size - 1);
  return mesh.rank_at(last);
}

struct Checking {
  const std::vector<PlaceText>& texts;
  const PlaceId place;
  const PlaceText& text;
  const Graph& graph;
  const ShapeRule shapes;
  const std::vector<std::vector<int64_t>> samples;  // coordinates at which regions are compared
  std::set<int> handles{};                          // of the instructions that were checked
  // The instruction that is being checked, if `inside`.
  BlockRef block{};
  size_t index = 0;
  bool inside = false;

  void enter(BlockRef ref, size_t at) {
    block = ref;
    index = at;
    inside = true;
  }
  template <class... Args>
  Status wrong(fmt::string_view format, const Args&... args) const {
    std::string where = fmt::format("place {}", place.value);
    if (inside) {
      where +=
          fmt::format(", {}[{}] {}", block_name(block), index,
                      to_text(text.blocks.at(block)[index], texts, place, graph).substr(0, 60));
    }
    return invalid_input(
        fmt::format("{}: {}", where, fmt::vformat(format, fmt::make_format_args(args...))));
  }

  Status known(TensorId tensor) const {
    if (tensor.valid() && tensor.index() < graph.tensors().size()) return {};
    return wrong("no tensor {}", tensor.value);
  }
  static bool exists(int buffer, const PlaceText& text) {
    return buffer >= 0 && static_cast<size_t>(buffer) < text.buffers.size();
  }

  std::vector<Box> boxes(TensorId tensor, const Region& region) const {
    std::vector<Box> out;
    const std::vector<int64_t> shape = shapes.shape(tensor);
    for (const auto& at : samples) out.push_back(evaluate(region, text.mesh, shape, at));
    return out;
  }
};

Status fits(const Checking& c, TensorId tensor, const Region& region, const Mesh& mesh) {
  const Tensor& of = c.graph.tensor(tensor);
  const size_t rank = of.dims.size();
  const Layout& layout = region.layout;
  if (layout.shards.size() != rank || layout.grain.size() != rank)
    return c.wrong("expected a cut for each of the {} dims of '{}'", rank, of.name);
  std::set<AxisId> used;
  const auto use = [&](const Axes& axes) {
    return std::all_of(axes.begin(), axes.end(), [&](AxisId axis) {
      return axis.valid() && axis.index() < mesh.axes.size() && used.insert(axis).second;
    });
  };
  for (const Layout::DimWindow& window : layout.windows) {
    if (window.dim >= rank || window.read.extent != of.dims[window.dim].size)
      return c.wrong("the halo of '{}' is of no dim of this size", of.name);
    int64_t size = window.read.size;
    for (const WindowRead& read : window.behind) {
      if (read.extent != size)
        return c.wrong("the windows of '{}' do not lie one behind the other", of.name);
      size = read.size;
    }
  }
  Axes whole = layout.partial;  // partial axes, without those of windows, which also cut a dim
  for (const Layout::DimWindow& window : layout.windows) {
    for (const AxisId axis : layout.shards[window.dim]) erase_value(whole, axis);
  }
  bool once = use(whole);
  for (const AxisPin& pin : layout.at) {
    once = once && use({pin.axis});
    if (once && (pin.coordinate < 0 || pin.coordinate >= mesh.axis(pin.axis).size)) {
      return c.wrong("'{}' is held at coordinate {} of an axis of {}", of.name, pin.coordinate,
                     mesh.axis(pin.axis).size);
    }
  }
  for (const Axes& axes : layout.shards) once = once && use(axes);
  if (!once)
    return c.wrong("the layout of '{}' uses an axis twice, or one that is not there", of.name);
  if (!region.piece) return {};
  const StepPiece& piece = *region.piece;
  if (piece.dim >= rank || piece.prefix > layout.shards[piece.dim].size() || piece.step < 0 ||
      piece.step >= piece.steps)
    return c.wrong("the piece of '{}' is none of its loop's", of.name);
  for (const StepPiece::Rim& rim : piece.rims) {
    const bool fits = rim.dim < rank && rim.cut.position < rim.cut.dims &&
                      piece.steps == rim_steps(rim.cut.dims) &&
                      (rim.read ? rim.read->extent : rim.cut.size) == of.dims[rim.dim].size;
    if (!fits) return c.wrong("the rims of '{}' are of no dim of this size", of.name);
  }
  if (piece.read && piece.read->extent != of.dims[piece.dim].size)
    return c.wrong("the halo of a piece of '{}' is of no dim of this size", of.name);
  return {};
}

Status view(const Checking& c, const TextView& view) {
  if (!c.exists(view.buffer, c.text)) return c.wrong("no buffer %{}", view.buffer);
  const TextBuffer& buffer = c.text.buffers[static_cast<size_t>(view.buffer)];
  TESSERA_TRY_VOID(fits(c, buffer.tensor, view.region, c.text.mesh));
  if (view.region == buffer.region) return {};
  const std::vector<Box> inner = c.boxes(buffer.tensor, view.region);
  const std::vector<Box> outer = c.boxes(buffer.tensor, buffer.region);
  for (size_t s = 0; s < inner.size(); ++s) {
    if (!inner[s].empty() && !outer[s].contains(inner[s])) {
      return c.wrong("{} lies outside {} of %{} '{}'", inner[s].to_string(), outer[s].to_string(),
                     view.buffer, buffer.name);
    }
  }
  return {};
}

Status compute(const Checking& c, const TextCompute& compute) {
  if (!compute.op.valid() || compute.op.index() >= c.graph.ops().size())
    return c.wrong("no op {}", compute.op.value);
  const Op& op = c.graph.op(compute.op);
  if (compute.inputs.size() != op.inputs.size() || compute.outputs.size() != op.outputs.size()) {
    return c.wrong("expected {} operands and {} results, found {} and {}", op.inputs.size(),
                   op.outputs.size(), compute.inputs.size(), compute.outputs.size());
  }
  return {};
}

Status issue(const Checking& c, const TextIssue& issue) {
  if (issue.transfers.empty() || issue.axes.empty())
    return c.wrong("expected arrays to move, and axes to move them along");
  if (issue.classify && issue.transfers.size() > 1)
    return c.wrong("expected one array, as who needs it decides what the collective is");
  const bool either = issue.kind == CollectiveKind::kExchange;
  if (!issue.classify && !either && reduces(issue.kind) != issue.combiner.has_value())
    return c.wrong("expected a combiner if and only if parts are reduced");
  for (AxisId axis : issue.axes) {
    if (!axis.valid() || axis.index() >= c.text.mesh.axes.size())
      return c.wrong("no axis {}", axis.value);
  }
  if (issue.named) {
    const bool known_op = issue.named->op.valid() && issue.named->op.index() < c.graph.ops().size();
    const RowNaming* naming = known_op ? naming_of(c.graph.op(issue.named->op)) : nullptr;
    if (naming == nullptr || issue.named->ids.size() != 3 || issue.transfers.size() != 1 ||
        !either || issue.classify || issue.compression) {
      return c.wrong(
          "expected an exchange of one array without a codec, and an op that names its "
          "rows by three operands");
    }
  }
  for (const TextTransfer& transfer : issue.transfers) {
    TESSERA_TRY_VOID(c.known(transfer.tensor));
    if (c.graph.tensor(transfer.tensor).dtype != c.graph.tensor(issue.transfers[0].tensor).dtype)
      return c.wrong("expected arrays of one dtype");
  }
  return {};
}

Status cross(const Checking& c, const TextCross& cross) {
  TESSERA_TRY_VOID(c.known(cross.tensor));
  const PlaceId mine = cross.sends ? cross.from_place : cross.to_place;
  const PlaceId other = cross.sends ? cross.to_place : cross.from_place;
  if (mine != c.place || other == c.place || !other.valid() || other.index() >= c.texts.size())
    return c.wrong("expected this place on the {} side", cross.sends ? "sending" : "receiving");
  const TextView& there = cross.sends ? cross.to : cross.from;
  if (!c.exists(there.buffer, c.texts[other.index()]))
    return c.wrong("place {} has no buffer %{}", other.value, there.buffer);
  return fits(c, cross.tensor, there.region, c.texts[other.index()].mesh);
}

Status one(Checking& c, const TextInstruction& instruction) {
  if (instruction.when != When::kAlways && c.block.once())
    return c.wrong("first and last stand only in blocks that run once a micro-batch");
  Status status;
  accesses(instruction, [&](const TextAccess& access) {
    if (status) status = view(c, *access.view);
  });
  TESSERA_TRY_VOID(std::move(status));
  if (const int handle = handle_of(instruction); handle >= 0 && !c.handles.insert(handle).second)
    return c.wrong("handle #{} is used by another instruction", handle);
  return match(
      instruction, [&](const TextCompute& body) { return compute(c, body); },
      [&](const TextIssue& body) { return issue(c, body); },
      [&](const TextCross& body) { return cross(c, body); },
      [&](const TextWait& body) -> Status {
        const bool here = body.lag == 0 || (body.lag > 0 && !c.block.once());
        return here ? Status() : c.wrong("expected lag 0, or more in a block that runs again");
      },
      [&](const OneOf<TextCopy, TextLoad> auto& body) { return c.known(body.tensor); });
}

// Checks the order in which the blocks of a row run.
class RowCheck {
 public:
  explicit RowCheck(Checking& c) : c_(c) {}

  Status run(const std::vector<BlockRun>& runs) {
    std::vector<std::pair<BlockRef, int64_t>> order{{BlockKind::kPrologue, 0}};
    // Blocks of all places of the row count, because this place may wait in a block of another
    // place for what that place copies.
    for (const BlockRun& run : runs) order.emplace_back(block_of(run), run.micro_batch);
    order.emplace_back(BlockKind::kUpdate, 0);
    find_shared();
    std::map<BlockRef, int64_t> total, done;
    for (const auto& [ref, micro_batch] : order) ++total[ref];
    for (const auto& [ref, micro_batch] : order) {
      const int64_t run = done[ref]++;
      const auto block = c_.text.blocks.find(ref);
      if (block == c_.text.blocks.end()) continue;
      for (size_t i = 0; i < block->second.size(); ++i) {
        const TextInstruction& instruction = block->second[i];
        if ((instruction.when == When::kFirst && run > 0) ||
            (instruction.when == When::kLast && run + 1 < total[ref]))
          continue;
        c_.enter(ref, i);
        if (const auto* awaited = std::get_if<TextWait>(&instruction.body)) {
          TESSERA_TRY_VOID(wait(*awaited, run, micro_batch));
          continue;
        }
        TESSERA_TRY_VOID(meets_nothing_in_flight(instruction, micro_batch));
        if (const int handle = handle_of(instruction); handle >= 0)
          TESSERA_TRY_VOID(start(handle, {&instruction, ref, run, micro_batch}));
      }
    }
    c_.inside = false;
    for (const auto& [handle, flights] : flights_) {
      if (flights.empty()) continue;
      return c_.wrong("#{}, issued in {}, is never awaited", handle, block_name(flights[0].block));
    }
    return {};
  }

 private:
  struct Flight {
    const TextInstruction* what = nullptr;
    BlockRef block;
    int64_t run = 0, micro_batch = 0;
  };

  Status start(int handle, const Flight& flight) {
    std::vector<Flight>& flights = flights_[handle];
    const bool again = std::any_of(flights.begin(), flights.end(), [&](const Flight& other) {
      return other.micro_batch == flight.micro_batch;
    });
    if (again) return c_.wrong("#{} is issued again before its wait", handle);
    for_buffers(*flight.what, [&](size_t buffer) { ++busy_[buffer]; });
    flights.push_back(flight);
    return {};
  }

  Status wait(const TextWait& wait, int64_t run, int64_t micro_batch) {
    if (wait.lag > run) return {};
    std::vector<Flight>& flights = flights_[wait.handle];
    const auto found = std::find_if(flights.begin(), flights.end(), [&](const Flight& flight) {
      if (flight.block == c_.block) return flight.run == run - wait.lag;
      return wait.lag == 0 && (c_.block.once() || flight.block == BlockKind::kPrologue ||
                               flight.micro_batch == micro_batch);
    });
    if (found == flights.end())
      return c_.wrong("waits for #{}, which is not in flight", wait.handle);
    for_buffers(*found->what, [&](size_t buffer) { --busy_[buffer]; });
    flights.erase(found);
    // A wait in a block that runs once a step is for all that the step has issued under the handle.
    return c_.block.once() && !flights.empty() ? this->wait(wait, run, micro_batch) : Status();
  }

  template <class Visit>
  static void for_buffers(const TextInstruction& instruction, const Visit& visit) {
    accesses(instruction,
             [&](const TextAccess& access) { visit(static_cast<size_t>(access.view->buffer)); });
  }

  // Finds the buffers that all micro-batches share, because a micro-batch has no copy of its own.
  void find_shared() {
    busy_.assign(c_.text.buffers.size(), 0);
    shared_.assign(c_.text.buffers.size(), false);
    for (size_t b = 0; b < shared_.size(); ++b)
      shared_[b] = c_.text.buffers[b].persistent || c_.text.buffers[b].accumulates;
    for (const auto& [ref, block] : c_.text.blocks) {
      if (!ref.once()) continue;
      for (const TextInstruction& instruction : block)
        for_buffers(instruction, [&](size_t buffer) { shared_[buffer] = true; });
    }
  }

  Status meets_nothing_in_flight(const TextInstruction& instruction, int64_t micro_batch) const {
    Status status;
    accesses(instruction, [&](const TextAccess& mine) {
      const auto buffer = static_cast<size_t>(mine.view->buffer);
      if (!status || busy_[buffer] == 0) return;
      for (const auto& [handle, flights] : flights_) {
        for (const Flight& flight : flights) {
          const int64_t slots = c_.text.buffers[buffer].slots;
          const bool same = slots > 1 ? flight.micro_batch % slots == micro_batch % slots
                                      : flight.micro_batch == micro_batch;
          if (!shared_[buffer] && !same) continue;
          accesses(*flight.what, [&](const TextAccess& other) {
            if (other.view->buffer != mine.view->buffer) return;
            if (mine.mode == AccessMode::kRead && other.mode == AccessMode::kRead) return;
            if (!status || !meet(*mine.view, *other.view)) return;
            status = c_.wrong("{} %{} '{}' while #{} {} it", writes(mine.mode) ? "writes" : "reads",
                              buffer, c_.text.buffers[buffer].name, handle,
                              writes(other.mode) ? "writes" : "reads");
          });
        }
      }
    });
    return status;
  }

  bool meet(const TextView& a, const TextView& b) const {
    const TensorId tensor = c_.text.buffers[static_cast<size_t>(a.buffer)].tensor;
    const std::vector<Box> one = c_.boxes(tensor, a.region), two = c_.boxes(tensor, b.region);
    for (size_t s = 0; s < one.size(); ++s) {
      if (!intersect(one[s], two[s]).empty()) return true;
    }
    return false;
  }

  Checking& c_;
  std::map<int, std::vector<Flight>> flights_;  // by handle
  std::vector<int> busy_;                       // by buffer: accesses in flight
  std::vector<bool> shared_;                    // by buffer
};

}  // namespace

Status check(const std::vector<PlaceText>& texts, PlaceId place, const Graph& graph,
             const ResolvedPlan& plan) {
  const PlaceText& text = texts[place.index()];
  const Mesh& mesh = text.mesh;
  Checking c{texts,
             place,
             text,
             graph,
             {&graph, plan.plan.micro_batch_dim, plan.plan.micro_batches, false},
             {mesh.coordinates(mesh.first_device), mesh.coordinates(last_rank(mesh))}};
  for (const TextBuffer& buffer : text.buffers) {
    TESSERA_TRY_VOID(c.known(buffer.tensor));
    TESSERA_TRY_VOID(fits(c, buffer.tensor, buffer.region, mesh));
  }
  for (const auto* homes : {&text.homes, &text.fetches}) {
    for (const TextHome& home : *homes) {
      TESSERA_TRY_VOID(c.known(home.tensor));
      if (!c.exists(home.buffer, text)) return c.wrong("no buffer %{}", home.buffer);
    }
  }
  for (const auto& [ref, block] : text.blocks) {
    for (size_t i = 0; i < block.size(); ++i) {
      c.enter(ref, i);
      TESSERA_TRY_VOID(one(c, block[i]));
    }
  }
  for (size_t row = 0; row < plan.rows.size(); ++row) {
    if (std::ranges::find(plan.rows[row], place) != plan.rows[row].end())
      TESSERA_TRY_VOID(RowCheck(c).run(plan.schedule[row]));
  }
  return {};
}

}  // namespace tessera
