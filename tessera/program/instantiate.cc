#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/graph/kinds.h"
#include "tessera/graph/rows.h"
#include "tessera/plan/schedules/schedule.h"
#include "tessera/program/crossing.h"
#include "tessera/program/instantiate.h"
#include "tessera/program/instructions.h"
#include "tessera/program/member_boxes.h"
#include "tessera/program/place_text.h"
#include "tessera/program/rows/row_caches.h"
#include "tessera/program/walk.h"

namespace tessera {

Interval step_interval(Interval whole, int64_t steps, int64_t step, StepOrder order,
                       const std::vector<SkewAxis>& skew, const Mesh& mesh,
                       const std::vector<int64_t>& coordinates) {
  const auto modulo = [](int64_t value, int64_t n) { return (value % n + n) % n; };
  if (order == StepOrder::kNested) {
    int64_t inside = steps;
    for (const SkewAxis& s : skew) {
      const int64_t n = mesh.axis(s.axis).size;
      inside /= n;
      const int64_t digit = step / inside % n;
      const int64_t at = coordinates[s.axis.index()] + (s.falls ? -digit : digit);
      whole = split_interval(whole, n, modulo(at, n));
    }
    return whole;
  }
  int64_t index = order == StepOrder::kRotated && !skew.empty() && skew[0].falls ? -step : step;
  if (order == StepOrder::kRotated) {
    for (const SkewAxis& s : skew) index += coordinates[s.axis.index()];
  }
  return split_interval(whole, steps, modulo(index, steps));
}

Box evaluate(const Region& region, const Mesh& mesh, const std::vector<int64_t>& shape,
             const std::vector<int64_t>& coordinates) {
  Box box = region_of(region.layout, mesh, shape, coordinates);
  if (!region.piece) return box;
  const StepPiece& piece = *region.piece;
  for (const StepPiece::Rim& rim : piece.rims) {
    const Interval made = rim_interval(rim.cut, piece.step, mesh, coordinates);
    box.dims[rim.dim] = intersect(box.dims[rim.dim], rim.read ? rim.read->of(made) : made);
  }
  if (!piece.rims.empty()) return box;
  const Axes& axes = region.layout->shards[piece.dim];
  const Axes outer(axes.begin(), axes.begin() + static_cast<std::ptrdiff_t>(piece.prefix));
  const Interval whole = cut_interval(piece.read ? piece.read->size : shape[piece.dim], piece.grain,
                                      outer, mesh, coordinates);
  const Interval cut =
      step_interval({whole.begin / piece.grain, whole.size / piece.grain}, piece.steps, piece.step,
                    piece.order, piece.skew, mesh, coordinates);
  Interval step{cut.begin * piece.grain, cut.size * piece.grain};
  if (piece.read) step = piece.read->of(step);
  if (piece.queries > 0) {
    const Interval queries = cut_interval(piece.queries, 1, piece.query_axes, mesh, coordinates);
    const bool too_early = piece.reach > 0 && step.end() <= queries.begin - piece.reach;
    if (queries.end() <= step.begin || too_early) step.size = 0;
  }
  box.dims[piece.dim] = intersect(box.dims[piece.dim], step);
  return box;
}

Box compute_box(const Op& op, const OpPlan& plan, const ShapeRule& shapes, const Mesh& mesh,
                const std::vector<int64_t>& coordinates, int64_t step) {
  const std::vector<int64_t> space = shapes.space(op);
  Box box;
  if (!plan.computes_at(coordinates)) {
    box.dims.assign(space.size(), Interval{});
    return box;
  }
  for (size_t d = 0; d < space.size(); ++d) {
    const DimSplit& split = plan.dims[d];
    if (split.rims) {
      const RimCut cut = rim_cut(op, plan, static_cast<int>(d), *shapes.graph);
      box.dims.push_back(rim_interval(cut, step, mesh, coordinates));
      continue;
    }
    Interval interval = grown_interval(split.grown, space[d], split.axes, mesh, coordinates);
    if (split.steps > 1) {
      interval =
          step_interval(interval, split.steps, step, split.order, split.skew, mesh, coordinates);
    }
    box.dims.push_back(interval);
  }
  if (const auto band = narrowing_band(op, plan)) {  // has all queries of the rank, in every step
    const auto query = static_cast<size_t>(band->query);
    Interval& keys = box.dims[static_cast<size_t>(band->key)];
    keys = intersect(keys, band->keys_seen(cut_interval(space[query], 1, plan.dims[query].axes,
                                                        mesh, coordinates)));
  }
  return box;
}

void write_schedule(Program& program, const ResolvedPlan& plan) {
  const auto stages = program.stages.size();
  const std::vector<BlockRun>& row = plan.schedule[plan.row_of(program.rank)];
  program.schedule.reserve(row.size() + 2);
  program.schedule.push_back({BlockKind::kPrologue, 0});
  for (const BlockRun& run : row) {
    BlockRef block = block_of(run);
    const auto at = std::ranges::find(program.stages, StageId(block.chunk));
    const size_t smaller = program.smaller(run.micro_batch) ? stages : 0;
    block.chunk = static_cast<int32_t>(static_cast<size_t>(at - program.stages.begin()) + smaller);
    program.schedule.push_back({block, run.micro_batch});
  }
  program.schedule.push_back({BlockKind::kUpdate, 0});
}

namespace {

class Instantiation {
 public:
  Instantiation(const InstantiateInput& in, int rank) : in_(in), graph_(*in.graph) {
    out_.rank = rank;
    out_.ranks = in.plan->ranks;
    size_t buffers = 0;
    for (PlaceId place : in.plan->places_of(rank)) {
      const PlaceText& text = (*in.texts)[place.index()];
      here_.push_back({place, &text, text.mesh.coordinates(rank), buffers});
      buffers += text.buffers.size();
      const auto& stages = in.plan->places[place.index()].stages;
      out_.stages.insert(out_.stages.end(), stages.begin(), stages.end());
    }
    std::sort(out_.stages.begin(), out_.stages.end());
    out_.coordinates = here_[0].coordinates;
    out_.micro_batches = in.plan->plan.micro_batches;
    out_.micro_batch_dim = in.plan->plan.micro_batch_dim;
    out_.micro_batch_size = in.micro_batch_size;
    out_.larger = in.larger;
    boxes_.resize(in.sizes->size());
  }

  Result<Program> run(bool offsets) {
    for (const Here& here : here_) {
      at_ = &here;
      for (const TextBuffer& buffer : here.text->buffers) add_buffer(buffer);
    }
    std::set<BlockRef> blocks;
    for (const Here& here : here_) {
      for (const auto& [ref, block] : here.text->blocks) blocks.insert(ref);
    }
    for (BlockRef ref : blocks) {
      for (size_ = 0; size_ < (ref.once() ? 1 : in_.sizes->size()); ++size_) write_block(ref);
    }
    size_ = 0;
    for (const Here& here : here_) {
      at_ = &here;
      for (const TextHome& home : here.text->homes) out_.homes.push_back(home_of(home));
      for (const TextHome& fetch : here.text->fetches) out_.fetches.push_back(home_of(fetch));
    }
    fill_in_waits();
    write_schedule(out_, *in_.plan);
    set_once();
    TESSERA_TRY_VOID(hold_by_rows(out_, graph_, *in_.plan, ordinals_, next_handle_));
    std::erase_if(out_.blocks, [](const auto& block) { return block.second.empty(); });
    if (in_.sizes->size() == 1) {
      plan_memory(out_, offsets);
    } else {
      plan_memory_of_both(out_, ordinals_, offsets);
    }
    return std::move(out_);
  }

 private:
  // A `Here` is a place that this rank belongs to.
  struct Here {
    PlaceId place;
    const PlaceText* text = nullptr;
    std::vector<int64_t> coordinates;
    size_t first_buffer = 0;
  };

  const Mesh& mesh() const { return at_->text->mesh; }
  const InstantiateInput::Sizes& sizes() const { return (*in_.sizes)[size_]; }
  const std::vector<int64_t>& shape(TensorId tensor) const {
    return sizes().shapes[tensor.index()];
  }
  Box evaluate_here(TensorId tensor, const Region& region) const {
    return evaluate(region, mesh(), shape(tensor), at_->coordinates);
  }

  // Adds a buffer that is large enough for the rank's region in the larger and in the smaller
  // micro-batches. Both must be looked at, because a rank's region may be empty in the larger
  // micro-batches and not empty in the smaller ones if it is cut by a step's piece too.
  void add_buffer(const TextBuffer& buffer) {
    Buffer b;
    b.id = BufferId(out_.buffers.size());
    b.name = buffer.name;
    b.tensor = buffer.tensor;
    for (size_ = 0; size_ < in_.sizes->size(); ++size_) {
      boxes_[size_].push_back(evaluate_here(buffer.tensor, buffer.region));
      const std::vector<int64_t> shape = boxes_[size_].back().shape();
      b.shape.resize(shape.size());
      for (size_t i = 0; i < shape.size(); ++i) b.shape[i] = std::max(b.shape[i], shape[i]);
    }
    size_ = 0;
    b.dtype = buffer.dtype;
    b.tier = buffer.tier;
    b.lifetime = buffer.persistent ? Lifetime::kPersistent
                                   : (buffer.accumulates ? Lifetime::kStep : Lifetime::kBlock);
    b.slots = buffer.slots;
    out_.buffers.push_back(std::move(b));
  }

  // Returns the block of the program for a block of a text. The chunk of a text's block is the
  // number of the stage in the plan; the chunk of a program's block is an index into
  // Program::stages.
  BlockRef chunk_of(BlockRef ref) const {
    if (ref.once()) return ref;
    const auto it = std::find(out_.stages.begin(), out_.stages.end(), StageId(ref.chunk));
    const auto behind = static_cast<std::ptrdiff_t>(size_ * out_.stages.size());
    return {ref.kind, static_cast<int32_t>(it - out_.stages.begin() + behind)};
  }

  // Makes a block of the program from the texts that all places of this rank have for the block.
  // Instructions of several places are merged in the order in which the walk wrote them.
  void write_block(BlockRef ref) {
    block_ = chunk_of(ref);
    size_t longest = 0;
    for (const Here& here : here_) {
      const auto text = here.text->blocks.find(ref);
      longest += text == here.text->blocks.end() ? 0 : text->second.size();
    }
    out_.block(block_).reserve(longest);
    std::vector<size_t> next(here_.size(), 0);
    const auto text = [&](size_t h) -> const std::vector<TextInstruction>* {
      const auto it = here_[h].text->blocks.find(ref);
      return it == here_[h].text->blocks.end() || next[h] == it->second.size() ? nullptr
                                                                               : &it->second;
    };
    for (;;) {
      std::optional<size_t> first;
      for (size_t h = 0; h < here_.size(); ++h) {
        if (text(h) == nullptr) continue;
        if (!first || (*text(h))[next[h]].order < (*text(*first))[next[*first]].order) first = h;
      }
      if (!first) return;
      at_ = &here_[*first];
      const TextInstruction& instruction = (*text(*first))[next[*first]];
      ++next[*first];
      ordinal_ = std::accumulate(next.begin(), next.end(), size_t{0});
      std::visit([&](const auto& body) { add(instruction, body); }, instruction.body);
    }
  }

  View local(const TextView& view, TensorId tensor) const {
    return local(view.buffer, evaluate_here(tensor, view.region));
  }
  View local(int buffer, Box region) const { return local(*at_, buffer, std::move(region)); }
  View local(const Here& here, int text_buffer, Box region) const {
    const size_t buffer = here.first_buffer + static_cast<size_t>(text_buffer);
    const Box& whole = boxes_[size_][buffer];
    if (region.empty()) {  // an empty view keeps its shape and begins at 0
      for (size_t d = 0; d < region.rank(); ++d) {
        region.dims[d].begin = 0;
        region.dims[d].size = std::min(region.dims[d].size, whole.dims[d].size);
      }
      return {BufferId(buffer), region};
    }
    TESSERA_CHECK(whole.contains(region), "{} outside {} ('{}')", region.to_string(),
                  whole.to_string(), out_.buffers[buffer].name);
    for (size_t d = 0; d < region.rank(); ++d) region.dims[d].begin -= whole.dims[d].begin;
    return {BufferId(buffer), std::move(region)};
  }

  void push(const TextInstruction& text, Instruction instruction) {
    instruction.when = text.when;
    instruction.cause = text.cause;
    out_.block(block_).push_back(std::move(instruction));
    ordinals_[block_].push_back(ordinal_);
  }

  // Returns the program's handle for the next message or collective that is made under a handle of
  // the text. The blocks for both sizes of micro-batches get the same handles.
  int concrete_handle(int handle) {
    std::vector<Piece>& pieces = handles_[handle];
    const auto size = static_cast<unsigned>(size_);
    const auto known = std::find_if(pieces.begin(), pieces.end(), [&](const Piece& piece) {
      return !block_.once() && (piece.sizes >> size) == 0;
    });
    if (known == pieces.end()) {
      pieces.push_back({next_handle_++, block_.once() ? 3U : 1U << size});
      return pieces.back().handle;
    }
    known->sizes |= 1U << size;
    return known->handle;
  }

  void add(const TextInstruction& text, const TextCompute& body) {
    const Op& op = graph_.op(body.op);
    Compute compute;
    compute.op = body.op;
    compute.kind = op.kind;
    compute.attributes = op.attributes;
    compute.box = compute_box(op, (*in_.ops)[op.id.index()], sizes().rule, mesh(), at_->coordinates,
                              body.step);
    compute.inputs.reserve(body.inputs.size());
    compute.outputs.reserve(body.outputs.size());
    for (size_t i = 0; i < body.inputs.size(); ++i) {
      // The op may need less than the region that the text reads (not the keys after the last query
      // of a causal pair), so the view is only what it needs.
      const Box held = evaluate_here(op.inputs[i], body.inputs[i].region);
      const Box need = project(op.annotation, op.annotation.inputs[i], compute.box);
      compute.inputs.push_back(
          local(body.inputs[i].buffer, held.empty() ? held : intersect(held, need)));
    }
    // If pieces are uneven, a rank may have an empty piece. A compute without output is left out.
    bool any = !compute.box.empty(), sets = false;
    for (const TextOutput& output : body.outputs) {
      Output o{local(output.view, output.tensor), output.tensor, output.write, output.term,
               output.terms};
      any = any || !o.view.box.empty();
      sets = sets || (!o.view.box.empty() && o.write != Write::kAdd);
      compute.outputs.push_back(std::move(o));
    }
    // A compute is also left out if no query of its box sees a key of it and it only adds to its
    // outputs.
    const auto band = band_of(op);
    const bool nothing = masked(op.annotation, compute.box) || (band && band->misses(compute.box));
    if (any && (sets || !nothing)) push(text, {std::move(compute), {}, {}});
  }

  int group_of(const Axes& axes) {
    const auto [known, fresh] =
        groups_.try_emplace({at_->place, axes}, static_cast<int>(out_.groups.size()));
    if (!fresh) return known->second;
    Group group;
    group.place = at_->place;
    for (const AxisId axis : axes) group.axes.push_back(mesh().axis(axis).name);
    group.members = mesh().group(at_->coordinates, axes);
    group.index = static_cast<int>(
        std::find(group.members.begin(), group.members.end(), out_.rank) - group.members.begin());
    out_.groups.push_back(std::move(group));
    member_boxes_.push_back(&in_.boxes->group(mesh(), at_->coordinates, axes));
    return known->second;
  }

  void add(const TextInstruction& text, const TextIssue& body) {
    Issue issue;
    issue.group = group_of(body.axes);
    issue.kind = body.kind;
    issue.combiner = body.combiner;
    issue.dtype = graph_.tensor(body.transfers[0].tensor).dtype;
    const Group& group = out_.groups[static_cast<size_t>(issue.group)];
    MemberBoxes::Group& boxes = *member_boxes_[static_cast<size_t>(issue.group)];
    bool moves = false;
    for (const TextTransfer& transfer : body.transfers) {
      Transfer t;
      t.tensor = transfer.tensor;
      t.hold = in_.boxes->of(boxes, transfer.from.region, shape(transfer.tensor));
      t.need = in_.boxes->of(boxes, transfer.to.region, shape(transfer.tensor));
      moves = moves || std::any_of(t.need.begin(), t.need.end(),
                                   [](const Box& need) { return !need.empty(); });
      const size_t me = static_cast<size_t>(group.index);
      if (!t.hold[me].empty()) t.in = local(transfer.from.buffer, t.hold[me]);
      if (!t.need[me].empty()) t.out = local(transfer.to.buffer, t.need[me]);
      issue.transfers.push_back(std::move(t));
    }
    if (!moves) return;  // no member has anything to move
    if (body.named) issue.named = named_rows(*body.named, group);
    if (body.classify) {
      const Transfer& first = issue.transfers[0];
      issue.kind =
          in_.boxes->class_of({issue.kind, issue.combiner, issue.dtype, first.hold, first.need});
    }
    const TensorId first = issue.transfers[0].tensor;
    compress(issue, body.classify
                        ? in_.plan->tensors[first.index()].compress[static_cast<size_t>(issue.kind)]
                        : body.compression);
    issue.handle = concrete_handle(body.handle);
    push(text, {std::move(issue), {}, {}});
  }

  NamedRows named_rows(const TextNamedRows& text, const Group& group) const {
    const Op& op = graph_.op(text.op);
    const OpPlan& plan = (*in_.ops)[op.id.index()];
    NamedRows out;
    out.op = text.op;
    out.most = most_named(op);
    const std::vector<size_t> ids = ids_of_naming(op);
    for (size_t i = 0; i < ids.size(); ++i)
      out.ids.push_back(local(text.ids[i], op.inputs[ids[i]]));
    const OperandDims& begin = op.annotation.inputs[naming_of(op)->begin];
    for (const int member : group.members) {
      const Box box = compute_box(op, plan, sizes().rule, mesh(), mesh().coordinates(member), 0);
      out.rows.push_back(project(op.annotation, begin, box).dims[0]);
    }
    return out;
  }

  // ---- compression
  // Gives the issue the plan's codec, if there is one, and a residual if the plan asks for error
  // feedback. The codec applies to all arrays of the issue.
  void compress(Issue& issue, const std::optional<Compression>& compression) {
    if (!compression) return;
    const auto me = static_cast<size_t>(out_.groups[static_cast<size_t>(issue.group)].index);
    int64_t elements = 0;
    for (const Transfer& transfer : issue.transfers) {
      const Redistribution what{issue.kind, issue.combiner, issue.dtype, transfer.hold,
                                transfer.need};
      if (!can_code(what)) return;
      elements += coded_elements(what, me);
    }
    issue.codec = compression->codec;
    if (compression->error_feedback && elements > 0)
      issue.residual = residual(issue.transfers[0].tensor, elements);
  }

  const std::optional<Compression>& crossing_compression(TensorId tensor) const {
    return in_.plan->tensors[tensor.index()].compress[kSendEdge];
  }

  // Adds a persistent buffer for error feedback, which keeps what encoding has lost from one
  // message to the next. Returns the view of the whole buffer.
  View residual(TensorId tensor, int64_t elements) {
    Buffer buffer;
    buffer.id = BufferId(out_.buffers.size());
    buffer.name = graph_.tensor(tensor).name + "@residual";
    buffer.tensor = tensor;
    buffer.shape = {elements};
    buffer.dtype = DType::kFloat32;
    buffer.lifetime = Lifetime::kPersistent;
    out_.buffers.push_back(buffer);
    return {buffer.id, Box::whole(buffer.shape)};
  }

  // ---- crossings
  void add(const TextInstruction& text, const TextCross& cross) {
    const TextCross body = of_size(cross, size_ > 0);
    const Mesh& from_mesh = in_.plan->places[body.from_place.index()].mesh;
    const Mesh& to_mesh = in_.plan->places[body.to_place.index()].mesh;
    if (!body.sends) {
      for (const CrossPiece& piece :
           cross_sources(body, from_mesh, to_mesh, shape(body.tensor), at_->coordinates)) {
        const int peer = static_cast<int>(from_mesh.rank_at(piece.source));
        if (peer == out_.rank) {
          add_from_itself(text, body, piece);
          continue;
        }
        Recv recv;
        recv.handle = concrete_handle(body.handle);
        recv.peer = peer;
        recv.tag = body.tag;
        recv.tensor = body.tensor;
        recv.region = piece.region;
        recv.view = local(body.to.buffer, piece.region);
        if (const auto& compression = crossing_compression(body.tensor))
          recv.codec = compression->codec;
        push(text, {std::move(recv), {}, {}});
      }
      return;
    }
    for (const std::vector<int64_t>& to :
         cross_receivers(body, from_mesh, to_mesh, at_->coordinates)) {
      const int peer = static_cast<int>(to_mesh.rank_at(to));
      if (peer == out_.rank) continue;
      for (const CrossPiece& piece :
           cross_sources(body, from_mesh, to_mesh, shape(body.tensor), to)) {
        if (piece.source != at_->coordinates) continue;
        Send send;
        send.handle = concrete_handle(body.handle);
        send.peer = peer;
        send.tag = body.tag;
        send.tensor = body.tensor;
        send.region = piece.region;
        send.view = local(body.from.buffer, piece.region);
        if (const auto& compression = crossing_compression(body.tensor)) {
          send.codec = compression->codec;
          if (compression->error_feedback)
            send.residual = residual(body.tensor, piece.region.volume());
        }
        push(text, {std::move(send), {}, {}});
      }
    }
  }

  // Adds a crossing between two places of this rank as a copy where the value would be received. A
  // copy from the disk tier gets a handle and is waited for as a message is, so that it runs at the
  // same time as compute.
  void add_from_itself(const TextInstruction& text, const TextCross& body,
                       const CrossPiece& piece) {
    const auto from = std::find_if(here_.begin(), here_.end(),
                                   [&](const Here& here) { return here.place == body.from_place; });
    Copy copy{body.tensor,
              piece.region,
              local(*from, body.from.buffer, piece.region),
              local(body.to.buffer, piece.region),
              Write::kSet,
              -1};
    const auto on_disk = [&](const View& view) {
      return out_.buffer(view.buffer).tier == Tier::kDisk;
    };
    if (on_disk(copy.from) || on_disk(copy.to)) copy.handle = concrete_handle(body.handle);
    push(text, {std::move(copy), {}, {}});
  }

  void add(const TextInstruction& text, const TextWait& body) {
    waits_.push_back({body.handle, body.lag});
    // A wait may be written before its issue is seen (lag 1, other blocks). Handles are known once
    // all issues are instantiated, so the position is noted here and filled in later.
    Instruction placeholder{Wait{-1 - static_cast<int>(waits_.size() - 1), body.lag}, {}, {}};
    push(text, std::move(placeholder));
  }

  void add(const TextInstruction& text, const TextCopy& body) {
    Copy copy{body.tensor,
              evaluate_here(body.tensor, body.to.region),
              local(body.from, body.tensor),
              local(body.to, body.tensor),
              body.write,
              -1};
    if (copy.region.empty()) return;
    if (body.handle >= 0) copy.handle = concrete_handle(body.handle);
    push(text, {std::move(copy), {}, {}});
  }

  void add(const TextInstruction& text, const TextLoad& body) {
    Load load{body.tensor, evaluate_here(body.tensor, body.to.region), local(body.to, body.tensor)};
    if (!load.region.empty()) push(text, {std::move(load), {}, {}});
  }

  Home home_of(const TextHome& home) const {
    const size_t buffer = at_->first_buffer + static_cast<size_t>(home.buffer);
    return {home.tensor, BufferId(buffer), boxes_[0][buffer]};
  }

  // Replaces each wait placeholder by one wait for each handle of the program that stands for the
  // text's handle. A wait with lag 0 is only for what blocks of the same size of micro-batches
  // issue. A wait for an earlier run is for what blocks of either size issue, because that run may
  // be of the other size.
  void fill_in_waits() {
    for (auto& [ref, block] : out_.blocks) {
      const unsigned sizes = ref.once() ? 3U : out_.smaller(ref) ? 2U : 1U;
      std::vector<Instruction> filled;
      std::vector<size_t> ordinals;
      filled.reserve(block.size());
      for (size_t i = 0; i < block.size(); ++i) {
        Instruction& instruction = block[i];
        const size_t ordinal = ordinals_[ref][i];
        const Wait* wait = std::get_if<Wait>(&instruction.body);
        if (wait == nullptr) {
          filled.push_back(std::move(instruction));
          ordinals.push_back(ordinal);
          continue;
        }
        const PendingWait& pending = waits_[static_cast<size_t>(-1 - wait->handle)];
        for (const Piece& piece : handles_[pending.handle]) {
          if (pending.lag == 0 && (piece.sizes & sizes) == 0) continue;
          filled.push_back({Wait{piece.handle, pending.lag}, instruction.when, instruction.cause});
          ordinals.push_back(ordinal);
        }
      }
      block = std::move(filled);
      ordinals_[ref] = std::move(ordinals);
    }
  }

  // Changes write modes where several blocks accumulate into the same buffer: only the block that
  // runs first sets the buffer in its first run, and all other blocks always add.
  void set_once() {
    std::map<BufferId, BlockRef> first;
    std::set<BlockRef> seen;
    for (const BlockRunStep& run : out_.schedule) {
      if (!seen.insert(run.block).second) continue;
      for_each_accumulation(run.block,
                            [&](BufferId buffer, Write&) { first.try_emplace(buffer, run.block); });
    }
    for (auto& [ref, block] : out_.blocks) {
      for_each_accumulation(ref, [&, here = ref](BufferId buffer, Write& write) {
        const auto it = first.find(buffer);
        if (it != first.end() && it->second != here) write = Write::kAdd;
      });
    }
  }

  template <class Visit>
  void for_each_accumulation(BlockRef ref, const Visit& visit) {
    const auto it = out_.blocks.find(ref);
    if (it == out_.blocks.end()) return;
    for (Instruction& instruction : it->second) {
      match(
          instruction,
          [&](Compute& compute) {
            for (Output& output : compute.outputs) {
              if (output.write == Write::kAddExceptFirst) visit(output.view.buffer, output.write);
            }
          },
          [&](Copy& copy) {
            if (copy.write == Write::kAddExceptFirst) visit(copy.to.buffer, copy.write);
          },
          [](OneOf<Issue, Send, Recv, Wait, Load, Free, FetchRows, ReleaseRows> auto&) {});
    }
  }

  struct PendingWait {
    int handle;
    int lag;
  };
  struct Piece {
    int handle;
    // Bit 0, 1: blocks of the larger, smaller micro-batches issue it. Both bits if it is issued
    // once a step.
    unsigned sizes;
  };

  const InstantiateInput& in_;
  const Graph& graph_;
  std::vector<Here> here_;
  const Here* at_ = nullptr;  // the place whose text is being written
  Program out_;
  size_t size_ = 0;                        // of the micro-batches whose block is being written
  std::vector<std::vector<Box>> boxes_;    // by size: global region of each buffer
  ByBlock<std::vector<size_t>> ordinals_;  // by instruction: its number in the text
  size_t ordinal_ = 0;
  std::map<std::pair<PlaceId, Axes>, int> groups_;
  std::vector<MemberBoxes::Group*> member_boxes_;  // by group
  std::map<int, std::vector<Piece>> handles_;
  std::vector<PendingWait> waits_;
  BlockRef block_;
  int next_handle_ = 0;
};

}  // namespace

Result<Program> instantiate(const InstantiateInput& input, int rank, bool offsets) {
  return Instantiation(input, rank).run(offsets);
}

}  // namespace tessera
