#include <algorithm>
#include <optional>

#include "tessera/graph/rows.h"
#include "tessera/program/instructions.h"
#include "tessera/program/verify/prepare.h"
#include "tessera/program/verify/rows.h"

namespace tessera::verifying {
namespace {

bool new_handle(Preparing& p, int handle) {
  return p.handles.insert({p.program.smaller(p.block), handle}).second ||
         p.reject("instruction", {}, "handle #{} is used by another instruction", handle);
}

// Checks that a view of communication or a load is in device memory.
bool on_device(Preparing& p, const View& view, TensorId tensor) {
  return p.tier_of(view) == Tier::kDevice ||
         p.reject("tier", tensor, "expected %{} in device memory, found it in the {} tier",
                  view.buffer.value, tier_name(p.tier_of(view)));
}

bool prepare_region(Preparing& p, TensorId tensor, const Box& region, const View& view,
                    Prepared& out) {
  if (!p.known(tensor)) return p.reject("instruction", {}, "unknown tensor {}", tensor.value);
  out.regions = {p.region_of(tensor, region)};
  return p.check_inside(out.regions[0], p.graph.tensor(tensor).shape(), tensor) &&
         p.check_view(view, tensor, region);
}

// Checks the residual of error feedback. It must be a persistent float32 buffer with one element
// for each element that the rank encodes.
bool check_residual(Preparing& p, const std::optional<View>& view, bool coded, int64_t elements,
                    TensorId tensor) {
  if (!view) return true;
  if (p.known(view->buffer) && coded) {
    const Buffer& buffer = p.program.buffer(view->buffer);
    if (buffer.lifetime == Lifetime::kPersistent && buffer.dtype == DType::kFloat32 &&
        buffer.shape == std::vector<int64_t>{elements} && view->box == Box::whole(buffer.shape)) {
      return p.residuals.insert(view->buffer).second ||
             p.reject("instruction", tensor, "the residual %{} is kept by another message",
                      view->buffer.value);
    }
  }
  return p.reject("instruction", tensor,
                  "expected a codec and a persistent float32 residual of {} elements, found %{}",
                  elements, view->buffer.value);
}

bool prepare_message(Preparing& p, const MessageEnd& end, Prepared& out) {
  if (!new_handle(p, end.handle)) return false;
  if (end.peer < 0 || end.peer >= static_cast<int>(p.ranks) ||
      end.peer == static_cast<int>(p.rank)) {
    return p.reject("message", end.tensor, "expected another rank below {} as peer, found {}",
                    p.ranks, end.peer);
  }
  return prepare_region(p, end.tensor, *end.region, *end.view, out) &&
         on_device(p, *end.view, end.tensor);
}

bool prepare(Preparing& p, const Copy& copy, Prepared& out) {
  if (!prepare_region(p, copy.tensor, copy.region, copy.from, out) ||
      !p.check_view(copy.to, copy.tensor, copy.region)) {
    return false;
  }
  if (copy.handle >= 0 && !new_handle(p, copy.handle)) return false;
  const Tier from = p.tier_of(copy.from), to = p.tier_of(copy.to);
  if (copy.handle < 0 && (from == Tier::kDisk || to == Tier::kDisk)) {
    return p.reject("tier", copy.tensor,
                    "copies %{} -> %{} between disk and memory at once: expected a handle and a "
                    "wait",
                    copy.from.buffer.value, copy.to.buffer.value);
  }
  if (copy.from.buffer == copy.to.buffer && overlaps(copy.from.box, copy.to.box)) {
    return p.reject("lifetime", copy.tensor, "copies %{} onto itself", copy.to.buffer.value);
  }
  return true;
}

bool prepare(Preparing& p, const FetchRows& fetch, Prepared& out) {
  if (!new_handle(p, fetch.handle)) return false;
  if (fetch.cache < 0 || static_cast<size_t>(fetch.cache) >= p.program.caches.size())
    return p.reject("instruction", {}, "no cache {}", fetch.cache);
  if (fetch.ids.empty()) return p.reject("instruction", {}, "expected ids");
  for (const RowIds& ids : fetch.ids) {
    if (!p.known(ids.tensor))
      return p.reject("instruction", {}, "unknown tensor {}", ids.tensor.value);
    const Tensor& tensor = p.graph.tensor(ids.tensor);
    if (is_floating(tensor.dtype))
      return p.reject("instruction", tensor.id, "expected ids, found {}", dtype_name(tensor.dtype));
    out.regions.push_back(p.region_of(ids.tensor, ids.region));
    if (!p.check_inside(out.regions.back(), tensor.shape(), ids.tensor)) return false;
    if (ids.view.has_value() == fetch.ahead) {
      return p.reject("instruction", tensor.id,
                      "expected a view of ids of this step, and none of the next step's");
    }
    if (fetch.ahead && tensor.role != Role::kInput)
      return p.reject("instruction", tensor.id, "expected ids that the data gives");
    if (ids.view && !p.check_view(*ids.view, ids.tensor, ids.region)) return false;
  }
  return true;
}

// ---- collectives

bool prepare_named(Preparing& p, const Issue& issue, Prepared& out) {
  if (Failure failure = problem_of_names(p.program, p.graph, issue)) return p.check(failure);
  const Op& op = p.graph.op(issue.named->op);
  const std::vector<size_t> ids = ids_of_naming(op);
  for (size_t i = 0; i < ids.size(); ++i) {
    const TensorId tensor = op.inputs[ids[i]];
    const Box whole = Box::whole(p.graph.tensor(tensor).shape());
    out.regions.push_back(p.region_of(tensor, whole));
    if (!p.check_view(issue.named->ids[i], tensor, whole)) return false;
  }
  return true;
}

bool check_kind(Preparing& p, const Issue& issue, const Transfer& transfer) {
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
    return p.reject("instruction", transfer.tensor, "weighted parts are not merged by collectives");
  }
  // Moments are triples along the last dim of their tensor, which must be whole.
  const auto whole = [&](const Box& box) {
    return box.empty() || (box.rank() > 0 && box.dims.back().size ==
                                                 p.graph.tensor(transfer.tensor).dims.back().size);
  };
  if (issue.combiner == Combiner::kMoments &&
      !(std::all_of(transfer.hold.begin(), transfer.hold.end(), whole) &&
        std::all_of(transfer.need.begin(), transfer.need.end(), whole))) {
    return p.reject("instruction", transfer.tensor, "merges moments whose last dim is cut");
  }
  if ((must_combine && !issue.combiner) || (!may_combine && issue.combiner) || !fits) {
    return p.reject(
        "instruction", transfer.tensor, "hold, need and combiner ({}) are not those of {}",
        issue.combiner ? combiner_name(*issue.combiner) : "none", collective_name(issue.kind));
  }
  return true;
}

bool prepare_transfer(Preparing& p, const Issue& issue, const Transfer& transfer, Prepared& out) {
  const Group& group = p.program.groups[static_cast<size_t>(issue.group)];
  const TensorId id = transfer.tensor;
  if (!p.known(id)) return p.reject("instruction", {}, "unknown tensor {}", id.value);
  const Tensor& tensor = p.graph.tensor(id);
  if (transfer.hold.size() != group.members.size() ||
      transfer.need.size() != group.members.size()) {
    return p.reject("message", id, "expected {} members, found {} holds and {} needs",
                    group.members.size(), transfer.hold.size(), transfer.need.size());
  }
  if (issue.dtype != tensor.dtype) {
    return p.reject("message", id, "expected {}, found {}", dtype_name(tensor.dtype),
                    dtype_name(issue.dtype));
  }
  for (const SharedBoxes* boxes : {&transfer.hold, &transfer.need}) {
    for (const Box& box : *boxes) {
      if (box.rank() != tensor.dims.size()) {
        return p.reject("message", id, "box {} has another rank than the tensor", box.to_string());
      }
      out.regions.push_back(p.region_of(id, box));
      if (!box.empty() && !p.check_inside(out.regions.back(), tensor.shape(), id)) return false;
    }
  }
  const size_t me = static_cast<size_t>(group.index);
  if (transfer.in.has_value() == transfer.hold[me].empty() ||
      transfer.out.has_value() == transfer.need[me].empty()) {
    return p.reject("message", id, "views must be there exactly for boxes that are not empty");
  }
  return (!transfer.in || p.check_view(*transfer.in, id, transfer.hold[me])) &&
         (!transfer.out || p.check_view(*transfer.out, id, transfer.need[me])) &&
         (!transfer.in || on_device(p, *transfer.in, id)) &&
         (!transfer.out || on_device(p, *transfer.out, id)) && check_kind(p, issue, transfer);
}

bool check_coding(Preparing& p, const Issue& issue) {
  if (!issue.codec && !issue.residual) return true;
  const auto me = static_cast<size_t>(p.program.groups[static_cast<size_t>(issue.group)].index);
  int64_t elements = 0;
  for (const Transfer& transfer : issue.transfers) {
    const Redistribution what{issue.kind, issue.combiner, issue.dtype, transfer.hold,
                              transfer.need};
    if (!can_code(what)) {
      return p.reject("instruction", transfer.tensor,
                      "a codec needs floating copies or sums whose pieces do not overlap");
    }
    elements += coded_elements(what, me);
  }
  return issue.transfers.empty() || check_residual(p, issue.residual, issue.codec.has_value(),
                                                   elements, issue.transfers[0].tensor);
}

// Returns whether the transfer works in place. This is an all-reduce whose result replaces its
// operand, or a copy whose operand already lies at its position in the result (such as a gather
// into the buffer that holds the rank's own shard).
bool lies_in_place(const Program& program, const Issue& issue, const Transfer& transfer) {
  if (issue.kind == CollectiveKind::kAllReduce) return *transfer.in == *transfer.out;
  if (issue.combiner || transfer.in->buffer != transfer.out->buffer) return false;
  const size_t me = static_cast<size_t>(program.groups[static_cast<size_t>(issue.group)].index);
  return moved(transfer.hold[me], transfer.need[me], transfer.out->box) == transfer.in->box;
}

// Checks that the outputs of a bucket do not overlap each other or the inputs. Only a transfer that
// works in place may overlap its own input.
bool check_bucket(Preparing& p, const Issue& issue) {
  for (size_t t = 0; t < issue.transfers.size(); ++t) {
    if (!issue.transfers[t].out) continue;
    const View& to = *issue.transfers[t].out;
    for (size_t other = 0; other < issue.transfers.size(); ++other) {
      const Transfer& transfer = issue.transfers[other];
      const auto hits = [&](const std::optional<View>& view) {
        return view && view->buffer == to.buffer && overlaps(view->box, to.box);
      };
      const bool in_place = other == t && transfer.in && lies_in_place(p.program, issue, transfer);
      if ((other != t && hits(transfer.out)) || (hits(transfer.in) && !in_place)) {
        return p.reject("lifetime", transfer.tensor, "overwrites its own operand in %{}",
                        to.buffer.value);
      }
    }
  }
  return true;
}

bool prepare(Preparing& p, const Issue& issue, Prepared& out) {
  if (!new_handle(p, issue.handle)) return false;
  if (issue.group < 0 || static_cast<size_t>(issue.group) >= p.program.groups.size()) {
    return p.reject("message", {}, "no group {}", issue.group);
  }
  for (const Transfer& transfer : issue.transfers) {
    if (!prepare_transfer(p, issue, transfer, out)) return false;
  }
  if (issue.named && !prepare_named(p, issue, out)) return false;
  if (!check_coding(p, issue)) return false;
  return check_bucket(p, issue);
}

}  // namespace

bool prepare_instruction(Preparing& p, const Instruction& instruction, Prepared& out) {
  if (!p.check(problem_of_moves(p.program, instruction))) return false;
  return match(
      instruction, [&](const Compute& compute) { return prepare_compute(p, compute, out); },
      [&](const Issue& issue) { return prepare(p, issue, out); },
      [&](const Send& send) {
        return check_residual(p, send.residual, send.codec.has_value(), send.region.volume(),
                              send.tensor) &&
               prepare_message(p, *message_of(instruction), out);
      },
      [&](const Recv&) { return prepare_message(p, *message_of(instruction), out); },
      [&](const Copy& copy) { return prepare(p, copy, out); },
      [&](const FetchRows& fetch) { return prepare(p, fetch, out); },
      [](const ReleaseRows&) { return true; },
      [&](const Load& load) {
        if (!prepare_region(p, load.tensor, load.region, load.to, out) ||
            !on_device(p, load.to, load.tensor)) {
          return false;
        }
        const Role role = p.graph.tensor(load.tensor).role;
        return role == Role::kInput ||
               p.reject("instruction", load.tensor,
                        "expected a graph input, found a tensor of role {}", role_name(role));
      },
      [&](const Free& free) {
        return p.known(free.buffer) ||
               p.reject("instruction", {}, "no buffer %{}", free.buffer.value);
      },
      [&](const Wait& wait) {
        return wait.lag >= 0 ||
               p.reject("instruction", {}, "expected a lag of 0 or more, found {}", wait.lag);
      });
}

}  // namespace tessera::verifying
