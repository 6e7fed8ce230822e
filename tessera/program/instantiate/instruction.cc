#include <algorithm>
#include <optional>

#include "tessera/base/check.h"
#include "tessera/graph/band.h"
#include "tessera/graph/kinds.h"
#include "tessera/graph/rows.h"
#include "tessera/program/crossing.h"
#include "tessera/program/instantiate/parts.h"
#include "tessera/program/instructions.h"

namespace tessera {

View Writing::local(const RankPlace& of, int text_buffer, Box region) const {
  const size_t buffer = of.first_buffer + static_cast<size_t>(text_buffer);
  const Box& whole = r.boxes[size][buffer];
  if (region.empty()) {  // an empty view keeps its shape and begins at 0
    for (size_t d = 0; d < region.rank(); ++d) {
      region.dims[d].begin = 0;
      region.dims[d].size = std::min(region.dims[d].size, whole.dims[d].size);
    }
    return {BufferId(buffer), region};
  }
  TESSERA_CHECK(whole.contains(region), "{} outside {} ('{}')", region.to_string(),
                whole.to_string(), r.out.buffers[buffer].name);
  for (size_t d = 0; d < region.rank(); ++d) region.dims[d].begin -= whole.dims[d].begin;
  return {BufferId(buffer), std::move(region)};
}

namespace {

void write(const Writing& w, const TextCompute& body) {
  const Op& op = w.r.graph.op(body.op);
  Compute compute;
  compute.op = body.op;
  compute.kind = op.kind;
  compute.attributes = op.attributes;
  compute.box = compute_box(op, (*w.r.in.ops)[op.id.index()], w.rule(), w.mesh(),
                            w.place->coordinates, body.step);
  compute.inputs.reserve(body.inputs.size());
  compute.outputs.reserve(body.outputs.size());
  for (size_t i = 0; i < body.inputs.size(); ++i) {
    // The op may need less than the region that the text reads (not the keys after the last query
    // of a causal pair), so the view is only what it needs.
    const Box held = w.evaluate(op.inputs[i], body.inputs[i].region);
    const Box need = project(op.annotation, op.annotation.inputs[i], compute.box);
    compute.inputs.push_back(
        w.local(body.inputs[i].buffer, held.empty() ? held : intersect(held, need)));
  }
  // If pieces are uneven, a rank may have an empty piece. A compute without output is left out.
  bool any = !compute.box.empty(), sets = false;
  for (const TextOutput& output : body.outputs) {
    Output o{w.local(output.view, output.tensor), output.tensor, output.write, output.term,
             output.terms};
    any = any || !o.view.box.empty();
    sets = sets || (!o.view.box.empty() && o.write != Write::kAdd);
    compute.outputs.push_back(std::move(o));
  }
  // A compute is also left out if no query of its box sees a key of it and it only adds to its
  // outputs.
  const auto band = band_of(op);
  const bool nothing = masked(op.annotation, compute.box) || (band && band->misses(compute.box));
  if (any && (sets || !nothing)) w.push(std::move(compute));
}

// ---- collectives

int group_of(const Writing& w, const Axes& axes) {
  Program& out = w.r.out;
  const auto [known, fresh] =
      w.r.groups.try_emplace({w.place->id, axes}, static_cast<int>(out.groups.size()));
  if (!fresh) return known->second;
  Group group;
  group.place = w.place->id;
  for (const AxisId axis : axes) group.axes.push_back(w.mesh().axis(axis).name);
  group.members = w.mesh().group(w.place->coordinates, axes);
  group.index = static_cast<int>(std::find(group.members.begin(), group.members.end(), out.rank) -
                                 group.members.begin());
  out.groups.push_back(std::move(group));
  w.r.members.push_back(&w.r.in.boxes->group(w.mesh(), w.place->coordinates, axes));
  return known->second;
}

NamedRows named_rows(const Writing& w, const TextNamedRows& text, const Group& group) {
  const Op& op = w.r.graph.op(text.op);
  const OpPlan& plan = (*w.r.in.ops)[op.id.index()];
  NamedRows out;
  out.op = text.op;
  out.most = most_named(op);
  const std::vector<size_t> ids = ids_of_naming(op);
  for (size_t i = 0; i < ids.size(); ++i)
    out.ids.push_back(w.local(text.ids[i], op.inputs[ids[i]]));
  const OperandDims& begin = op.annotation.inputs[naming_of(op)->begin];
  for (const int member : group.members) {
    const Box box = compute_box(op, plan, w.rule(), w.mesh(), w.mesh().coordinates(member), 0);
    out.rows.push_back(project(op.annotation, begin, box).dims[0]);
  }
  return out;
}

// Adds a persistent buffer for error feedback, which keeps what encoding has lost from one message
// to the next. Returns the view of the whole buffer.
View residual(const Writing& w, TensorId tensor, int64_t elements) {
  Buffer buffer;
  buffer.id = BufferId(w.r.out.buffers.size());
  buffer.name = w.r.graph.tensor(tensor).name + "@residual";
  buffer.tensor = tensor;
  buffer.shape = {elements};
  buffer.dtype = DType::kFloat32;
  buffer.lifetime = Lifetime::kPersistent;
  w.r.out.buffers.push_back(buffer);
  return {buffer.id, Box::whole(buffer.shape)};
}

// Gives the issue the plan's codec, if there is one, and a residual if the plan asks for error
// feedback. The codec applies to all arrays of the issue.
void compress(const Writing& w, Issue& issue, const std::optional<Compression>& compression) {
  if (!compression) return;
  const auto me = static_cast<size_t>(w.r.out.groups[static_cast<size_t>(issue.group)].index);
  int64_t elements = 0;
  for (const Transfer& transfer : issue.transfers) {
    const Redistribution what{issue.kind, issue.combiner, issue.dtype, transfer.hold,
                              transfer.need};
    if (!can_code(what)) return;
    elements += coded_elements(what, me);
  }
  issue.codec = compression->codec;
  if (compression->error_feedback && elements > 0)
    issue.residual = residual(w, issue.transfers[0].tensor, elements);
}

void write(const Writing& w, const TextIssue& body) {
  MemberBoxes& boxes = *w.r.in.boxes;
  Issue issue;
  issue.group = group_of(w, body.axes);
  issue.kind = body.kind;
  issue.combiner = body.combiner;
  issue.dtype = w.r.graph.tensor(body.transfers[0].tensor).dtype;
  const Group& group = w.r.out.groups[static_cast<size_t>(issue.group)];
  MemberBoxes::Group& members = *w.r.members[static_cast<size_t>(issue.group)];
  const auto me = static_cast<size_t>(group.index);
  bool moves = false;
  for (const TextTransfer& transfer : body.transfers) {
    Transfer t;
    t.tensor = transfer.tensor;
    t.hold = boxes.of(members, transfer.from.region, w.shape(transfer.tensor));
    t.need = boxes.of(members, transfer.to.region, w.shape(transfer.tensor));
    moves = moves || std::any_of(t.need.begin(), t.need.end(),
                                 [](const Box& need) { return !need.empty(); });
    if (!t.hold[me].empty()) t.in = w.local(transfer.from.buffer, t.hold[me]);
    if (!t.need[me].empty()) t.out = w.local(transfer.to.buffer, t.need[me]);
    issue.transfers.push_back(std::move(t));
  }
  if (!moves) return;  // no member has anything to move
  if (body.named) issue.named = named_rows(w, *body.named, group);
  const Transfer& first = issue.transfers[0];
  if (body.classify)
    issue.kind = boxes.class_of({issue.kind, issue.combiner, issue.dtype, first.hold, first.need});
  const TensorPlan& plan = w.r.in.plan->tensors[first.tensor.index()];
  compress(w, issue,
           body.classify ? plan.compress[static_cast<size_t>(issue.kind)] : body.compression);
  issue.handle = w.handle(body.handle);
  w.push(std::move(issue));
}

// ---- crossings

// Writes a crossing between two places of this rank as a copy where the value would be received. A
// copy from or to the disk tier gets a handle and is waited for as a message is, so that it runs at
// the same time as compute.
void copy_from_itself(const Writing& w, const TextCross& body, const CrossPiece& piece) {
  const auto from = std::find_if(w.r.places.begin(), w.r.places.end(), [&](const RankPlace& place) {
    return place.id == body.from_place;
  });
  Copy copy{body.tensor,
            piece.region,
            w.local(*from, body.from.buffer, piece.region),
            w.local(body.to.buffer, piece.region),
            Write::kSet,
            -1};
  const auto on_disk = [&](const View& view) {
    return w.r.out.buffer(view.buffer).tier == Tier::kDisk;
  };
  if (on_disk(copy.from) || on_disk(copy.to)) copy.handle = w.handle(body.handle);
  w.push(std::move(copy));
}

void write(const Writing& w, const TextCross& cross) {
  const TextCross body = of_size(cross, w.size > 0);
  const Mesh& from_mesh = w.r.in.plan->places[body.from_place.index()].mesh;
  const Mesh& to_mesh = w.r.in.plan->places[body.to_place.index()].mesh;
  const std::vector<int64_t>& shape = w.shape(body.tensor);
  const auto& compression = w.r.in.plan->tensors[body.tensor.index()].compress[kSendEdge];
  const auto codec = compression ? std::optional(compression->codec) : std::nullopt;
  if (!body.sends) {
    for (CrossPiece& piece : cross_sources(body, from_mesh, to_mesh, shape, w.place->coordinates)) {
      const int peer = static_cast<int>(from_mesh.rank_at(piece.source));
      if (peer == w.r.out.rank) {
        copy_from_itself(w, body, piece);
        continue;
      }
      View view = w.local(body.to.buffer, piece.region);
      w.push(Recv{w.handle(body.handle), peer, body.tag, body.tensor, std::move(piece.region),
                  std::move(view), codec});
    }
    return;
  }
  for (const std::vector<int64_t>& to :
       cross_receivers(body, from_mesh, to_mesh, w.place->coordinates)) {
    const int peer = static_cast<int>(to_mesh.rank_at(to));
    if (peer == w.r.out.rank) continue;
    for (CrossPiece& piece : cross_sources(body, from_mesh, to_mesh, shape, to)) {
      if (piece.source != w.place->coordinates) continue;
      const int64_t elements = piece.region.volume();
      View view = w.local(body.from.buffer, piece.region);
      Send send{w.handle(body.handle), peer,  body.tag, body.tensor, std::move(piece.region),
                std::move(view),       codec, {}};
      if (compression && compression->error_feedback)
        send.residual = residual(w, body.tensor, elements);
      w.push(std::move(send));
    }
  }
}

// ---- the others

// Writes a wait for the handle of the text (RankHandles::fill_in_waits).
void write(const Writing& w, const TextWait& body) { w.push(Wait{body.handle, body.lag}); }

void write(const Writing& w, const TextCopy& body) {
  Copy copy{body.tensor,
            w.evaluate(body.tensor, body.to.region),
            w.local(body.from, body.tensor),
            w.local(body.to, body.tensor),
            body.write,
            -1};
  if (copy.region.empty()) return;
  if (body.handle >= 0) copy.handle = w.handle(body.handle);
  w.push(std::move(copy));
}

void write(const Writing& w, const TextLoad& body) {
  Load load{body.tensor, w.evaluate(body.tensor, body.to.region), w.local(body.to, body.tensor)};
  if (!load.region.empty()) w.push(std::move(load));
}

}  // namespace

void write_instruction(const Writing& w) {
  std::visit([&](const auto& body) { write(w, body); }, w.text->body);
}

}  // namespace tessera
