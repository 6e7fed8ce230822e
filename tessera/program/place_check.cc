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

class Checker {
 public:
  Checker(const std::vector<PlaceText>& texts, PlaceId place, const Graph& graph,
          const ResolvedPlan& plan)
      : texts_(texts),
        place_(place),
        text_(texts[place.index()]),
        graph_(graph),
        plan_(plan),
        shapes_{&graph, plan.plan.micro_batch_dim, plan.plan.micro_batches, false},
        samples_{text_.mesh.coordinates(text_.mesh.first_device),
                 text_.mesh.coordinates(last_rank(text_.mesh))} {}

  Status run() {
    for (const TextBuffer& buffer : text_.buffers) {
      TESSERA_TRY_VOID(known(buffer.tensor));
      TESSERA_TRY_VOID(fits(buffer.tensor, buffer.region, text_.mesh));
    }
    for (const auto* homes : {&text_.homes, &text_.fetches}) {
      for (const TextHome& home : *homes) {
        TESSERA_TRY_VOID(known(home.tensor));
        if (!exists(home.buffer, text_)) return wrong("no buffer %{}", home.buffer);
      }
    }
    for (const auto& [ref, block] : text_.blocks) {
      for (size_t i = 0; i < block.size(); ++i) {
        enter(ref, i);
        TESSERA_TRY_VOID(one(block[i]));
      }
    }
    for (size_t row = 0; row < plan_.rows.size(); ++row) {
      const std::vector<PlaceId>& places = plan_.rows[row];
      if (std::find(places.begin(), places.end(), place_) != places.end())
        TESSERA_TRY_VOID(order(plan_.schedule[row]));
    }
    return {};
  }

 private:
  struct Flight {
    const TextInstruction* what = nullptr;
    BlockRef block;
    int64_t run = 0, micro_batch = 0;
  };

  static int64_t last_rank(const Mesh& mesh) {
    std::vector<int64_t> last;
    for (const MeshAxis& axis : mesh.axes) last.push_back(axis.size - 1);
    return mesh.rank_at(last);
  }

  void enter(BlockRef block, size_t index) {
    block_ = block;
    index_ = index;
    inside_ = true;
  }
  template <class... Args>
  Status wrong(fmt::string_view format, const Args&... args) const {
    std::string where = fmt::format("place {}", place_.value);
    if (inside_) {
      where += fmt::format(
          ", {}[{}] {}", block_name(block_), index_,
          to_text(text_.blocks.at(block_)[index_], texts_, place_, graph_).substr(0, 60));
    }
    return invalid_input(
        fmt::format("{}: {}", where, fmt::vformat(format, fmt::make_format_args(args...))));
  }

  // ---- an instruction alone
  Status known(TensorId tensor) const {
    if (tensor.valid() && tensor.index() < graph_.tensors().size()) return {};
    return wrong("no tensor {}", tensor.value);
  }
  static bool exists(int buffer, const PlaceText& text) {
    return buffer >= 0 && static_cast<size_t>(buffer) < text.buffers.size();
  }

  Status fits(TensorId tensor, const Region& region, const Mesh& mesh) const {
    const Tensor& of = graph_.tensor(tensor);
    const size_t rank = of.dims.size();
    const Layout& layout = region.layout;
    if (layout.shards.size() != rank || layout.grain.size() != rank)
      return wrong("expected a cut for each of the {} dims of '{}'", rank, of.name);
    std::set<AxisId> used;
    const auto use = [&](const Axes& axes) {
      return std::all_of(axes.begin(), axes.end(), [&](AxisId axis) {
        return axis.valid() && axis.index() < mesh.axes.size() && used.insert(axis).second;
      });
    };
    for (const Layout::DimWindow& window : layout.windows) {
      if (window.dim >= rank || window.read.extent != of.dims[window.dim].size)
        return wrong("the halo of '{}' is of no dim of this size", of.name);
      int64_t size = window.read.size;
      for (const WindowRead& read : window.behind) {
        if (read.extent != size)
          return wrong("the windows of '{}' do not lie one behind the other", of.name);
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
        return wrong("'{}' is held at coordinate {} of an axis of {}", of.name, pin.coordinate,
                     mesh.axis(pin.axis).size);
      }
    }
    for (const Axes& axes : layout.shards) once = once && use(axes);
    if (!once)
      return wrong("the layout of '{}' uses an axis twice, or one that is not there", of.name);
    if (!region.piece) return {};
    const StepPiece& piece = *region.piece;
    if (piece.dim >= rank || piece.prefix > layout.shards[piece.dim].size() || piece.step < 0 ||
        piece.step >= piece.steps)
      return wrong("the piece of '{}' is none of its loop's", of.name);
    for (const StepPiece::Rim& rim : piece.rims) {
      const bool fits = rim.dim < rank && rim.cut.position < rim.cut.dims &&
                        piece.steps == rim_steps(rim.cut.dims) &&
                        (rim.read ? rim.read->extent : rim.cut.size) == of.dims[rim.dim].size;
      if (!fits) return wrong("the rims of '{}' are of no dim of this size", of.name);
    }
    if (piece.read && piece.read->extent != of.dims[piece.dim].size)
      return wrong("the halo of a piece of '{}' is of no dim of this size", of.name);
    return {};
  }

  std::vector<Box> boxes(TensorId tensor, const Region& region) const {
    std::vector<Box> out;
    const std::vector<int64_t> shape = shapes_.shape(tensor);
    for (const auto& at : samples_) out.push_back(evaluate(region, text_.mesh, shape, at));
    return out;
  }

  Status view(const TextView& view) const {
    if (!exists(view.buffer, text_)) return wrong("no buffer %{}", view.buffer);
    const TextBuffer& buffer = text_.buffers[static_cast<size_t>(view.buffer)];
    TESSERA_TRY_VOID(fits(buffer.tensor, view.region, text_.mesh));
    if (view.region == buffer.region) return {};
    const std::vector<Box> inner = boxes(buffer.tensor, view.region);
    const std::vector<Box> outer = boxes(buffer.tensor, buffer.region);
    for (size_t s = 0; s < inner.size(); ++s) {
      if (!inner[s].empty() && !outer[s].contains(inner[s])) {
        return wrong("{} lies outside {} of %{} '{}'", inner[s].to_string(), outer[s].to_string(),
                     view.buffer, buffer.name);
      }
    }
    return {};
  }

  Status one(const TextInstruction& instruction) {
    if (instruction.when != When::kAlways && block_.once())
      return wrong("first and last stand only in blocks that run once a micro-batch");
    Status status;
    accesses(instruction, [&](const TextAccess& access) {
      if (status) status = view(*access.view);
    });
    TESSERA_TRY_VOID(std::move(status));
    if (const int handle = handle_of(instruction); handle >= 0 && !handles_.insert(handle).second)
      return wrong("handle #{} is used by another instruction", handle);
    return match(
        instruction, [&](const TextCompute& body) { return compute(body); },
        [&](const TextIssue& body) { return issue(body); },
        [&](const TextCross& body) { return cross(body); },
        [&](const TextWait& body) -> Status {
          const bool here = body.lag == 0 || (body.lag > 0 && !block_.once());
          return here ? Status() : wrong("expected lag 0, or more in a block that runs again");
        },
        [&](const OneOf<TextCopy, TextLoad> auto& body) { return known(body.tensor); });
  }

  Status compute(const TextCompute& compute) const {
    if (!compute.op.valid() || compute.op.index() >= graph_.ops().size())
      return wrong("no op {}", compute.op.value);
    const Op& op = graph_.op(compute.op);
    if (compute.inputs.size() != op.inputs.size() || compute.outputs.size() != op.outputs.size()) {
      return wrong("expected {} operands and {} results, found {} and {}", op.inputs.size(),
                   op.outputs.size(), compute.inputs.size(), compute.outputs.size());
    }
    return {};
  }

  Status issue(const TextIssue& issue) const {
    if (issue.transfers.empty() || issue.axes.empty())
      return wrong("expected arrays to move, and axes to move them along");
    if (issue.classify && issue.transfers.size() > 1)
      return wrong("expected one array, as who needs it decides what the collective is");
    const bool either = issue.kind == CollectiveKind::kExchange;
    if (!issue.classify && !either && reduces(issue.kind) != issue.combiner.has_value())
      return wrong("expected a combiner if and only if parts are reduced");
    for (AxisId axis : issue.axes) {
      if (!axis.valid() || axis.index() >= text_.mesh.axes.size())
        return wrong("no axis {}", axis.value);
    }
    if (issue.named) {
      const bool known_op =
          issue.named->op.valid() && issue.named->op.index() < graph_.ops().size();
      const RowNaming* naming = known_op ? naming_of(graph_.op(issue.named->op)) : nullptr;
      if (naming == nullptr || issue.named->ids.size() != 3 || issue.transfers.size() != 1 ||
          !either || issue.classify || issue.compression) {
        return wrong(
            "expected an exchange of one array without a codec, and an op that names its "
            "rows by three operands");
      }
    }
    for (const TextTransfer& transfer : issue.transfers) {
      TESSERA_TRY_VOID(known(transfer.tensor));
      if (graph_.tensor(transfer.tensor).dtype != graph_.tensor(issue.transfers[0].tensor).dtype)
        return wrong("expected arrays of one dtype");
    }
    return {};
  }

  Status cross(const TextCross& cross) const {
    TESSERA_TRY_VOID(known(cross.tensor));
    const PlaceId mine = cross.sends ? cross.from_place : cross.to_place;
    const PlaceId other = cross.sends ? cross.to_place : cross.from_place;
    if (mine != place_ || other == place_ || !other.valid() || other.index() >= texts_.size())
      return wrong("expected this place on the {} side", cross.sends ? "sending" : "receiving");
    const TextView& there = cross.sends ? cross.to : cross.from;
    if (!exists(there.buffer, texts_[other.index()]))
      return wrong("place {} has no buffer %{}", other.value, there.buffer);
    return fits(cross.tensor, there.region, texts_[other.index()].mesh);
  }

  // ---- the order of a row
  Status order(const std::vector<BlockRun>& runs) {
    flights_.clear();
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
      const auto block = text_.blocks.find(ref);
      if (block == text_.blocks.end()) continue;
      for (size_t i = 0; i < block->second.size(); ++i) {
        const TextInstruction& instruction = block->second[i];
        if ((instruction.when == When::kFirst && run > 0) ||
            (instruction.when == When::kLast && run + 1 < total[ref]))
          continue;
        enter(ref, i);
        if (const auto* awaited = std::get_if<TextWait>(&instruction.body)) {
          TESSERA_TRY_VOID(wait(*awaited, run, micro_batch));
          continue;
        }
        TESSERA_TRY_VOID(meets_nothing_in_flight(instruction, micro_batch));
        if (const int handle = handle_of(instruction); handle >= 0)
          TESSERA_TRY_VOID(start(handle, {&instruction, ref, run, micro_batch}));
      }
    }
    inside_ = false;
    for (const auto& [handle, flights] : flights_) {
      if (!flights.empty())
        return wrong("#{}, issued in {}, is never awaited", handle, block_name(flights[0].block));
    }
    return {};
  }

  Status start(int handle, const Flight& flight) {
    std::vector<Flight>& flights = flights_[handle];
    const bool again = std::any_of(flights.begin(), flights.end(), [&](const Flight& other) {
      return other.micro_batch == flight.micro_batch;
    });
    if (again) return wrong("#{} is issued again before its wait", handle);
    for_buffers(*flight.what, [&](size_t buffer) { ++busy_[buffer]; });
    flights.push_back(flight);
    return {};
  }

  Status wait(const TextWait& wait, int64_t run, int64_t micro_batch) {
    if (wait.lag > run) return {};
    std::vector<Flight>& flights = flights_[wait.handle];
    const auto found = std::find_if(flights.begin(), flights.end(), [&](const Flight& flight) {
      if (flight.block == block_) return flight.run == run - wait.lag;
      return wait.lag == 0 && (block_.once() || flight.block == BlockKind::kPrologue ||
                               flight.micro_batch == micro_batch);
    });
    if (found == flights.end()) return wrong("waits for #{}, which is not in flight", wait.handle);
    for_buffers(*found->what, [&](size_t buffer) { --busy_[buffer]; });
    flights.erase(found);
    // A wait in a block that runs once a step is for all that the step has issued under the handle.
    return block_.once() && !flights.empty() ? this->wait(wait, run, micro_batch) : Status();
  }

  template <class Visit>
  static void for_buffers(const TextInstruction& instruction, const Visit& visit) {
    accesses(instruction,
             [&](const TextAccess& access) { visit(static_cast<size_t>(access.view->buffer)); });
  }

  // Finds the buffers that all micro-batches share, because a micro-batch has no copy of its own.
  void find_shared() {
    busy_.assign(text_.buffers.size(), 0);
    shared_.assign(text_.buffers.size(), false);
    for (size_t b = 0; b < shared_.size(); ++b)
      shared_[b] = text_.buffers[b].persistent || text_.buffers[b].accumulates;
    for (const auto& [ref, block] : text_.blocks) {
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
          const int64_t slots = text_.buffers[buffer].slots;
          const bool same = slots > 1 ? flight.micro_batch % slots == micro_batch % slots
                                      : flight.micro_batch == micro_batch;
          if (!shared_[buffer] && !same) continue;
          accesses(*flight.what, [&](const TextAccess& other) {
            if (other.view->buffer != mine.view->buffer) return;
            if (mine.mode == AccessMode::kRead && other.mode == AccessMode::kRead) return;
            if (!status || !meet(*mine.view, *other.view)) return;
            status =
                wrong("{} %{} '{}' while #{} {} it", writes(mine.mode) ? "writes" : "reads", buffer,
                      text_.buffers[buffer].name, handle, writes(other.mode) ? "writes" : "reads");
          });
        }
      }
    });
    return status;
  }

  bool meet(const TextView& a, const TextView& b) const {
    const TensorId tensor = text_.buffers[static_cast<size_t>(a.buffer)].tensor;
    const std::vector<Box> one = boxes(tensor, a.region), two = boxes(tensor, b.region);
    for (size_t s = 0; s < one.size(); ++s) {
      if (!intersect(one[s], two[s]).empty()) return true;
    }
    return false;
  }

  const std::vector<PlaceText>& texts_;
  const PlaceId place_;
  const PlaceText& text_;
  const Graph& graph_;
  const ResolvedPlan& plan_;
  const ShapeRule shapes_;
  const std::vector<std::vector<int64_t>> samples_;  // coordinates at which regions are compared
  std::set<int> handles_;
  std::map<int, std::vector<Flight>> flights_;  // by handle
  std::vector<int> busy_;                       // by buffer: accesses in flight
  std::vector<bool> shared_;                    // by buffer
  BlockRef block_;
  size_t index_ = 0;
  bool inside_ = false;
};

}  // namespace

Status check(const std::vector<PlaceText>& texts, PlaceId place, const Graph& graph,
             const ResolvedPlan& plan) {
  return Checker(texts, place, graph, plan).run();
}

}  // namespace tessera
