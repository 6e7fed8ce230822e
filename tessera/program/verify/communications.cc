#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

#include "tessera/base/check.h"
#include "tessera/graph/rows.h"
#include "tessera/program/verify/interpretation.h"

namespace tessera::verifying {

bool start_copy(Interpreting& v, Rank& rank, const Instruction& instruction, const Copy& copy,
                const Prepared& prepared) {
  const int64_t mb = rank.step().micro_batch;
  const bool set = sets(rank, copy.write);
  std::vector<Piece> pieces;
  if (!v.check(rank, rank.state.read(copy.from, mb, copy.tensor, prepared.regions[0].at(mb), false,
                                     &pieces))) {
    return false;
  }
  if (copy.handle < 0) {
    return v.check(rank, set ? rank.state.write(copy.to, mb, pieces, nullptr)
                             : rank.state.add(copy.to, mb, pieces));
  }
  const size_t id = v.add_communication({rank.program().rank});
  v.communications[id]->arrivals[0].values.push_back(std::move(pieces));
  v.communications[id]->arrive(0);
  if (!v.check(rank, rank.state.start(copy.from, mb, false, id, copy.handle)) ||
      !v.check(rank, rank.state.start(copy.to, mb, true, id, copy.handle, !set))) {
    return false;
  }
  v.block_at(rank, id, instruction, copy.handle);
  rank.pending[copy.handle].back().sets = set;
  return true;
}

bool start_message(Interpreting& v, Rank& rank, const Instruction& instruction,
                   const MessageEnd& message, const Prepared& prepared) {
  const int64_t mb = rank.step().micro_batch;
  const int me = rank.program().rank;
  const int source = message.sends ? me : message.peer, target = message.sends ? message.peer : me;
  const TensorId tensor = message.tensor;
  const View& view = *message.view;
  const std::optional<Codec>& codec = *message.codec;
  const size_t end = message.sends ? 0 : 1;
  Channel& channel = v.channels[{source, target, message.tag, mb}];
  const size_t position = channel.ends[end]++;
  const Box region = prepared.regions[0].at(mb);
  if (position == channel.messages.size()) {
    channel.messages.push_back(v.add_communication({source, target}));
    Communication& created = *v.communications.back();
    created.first_rank = me;
    created.first_where = v.where(rank);
    created.tensor = tensor;
    created.region = region;
    created.codec = codec;
  }
  const size_t id = channel.messages[position];
  Communication& communication = *v.communications[id];
  if (communication.tensor != tensor || communication.region != region) {
    return v.reject(
        &rank, "message", tensor,
        fmt::format("expected {}{} as rank {} has it at {}, found {}{}",
                    v.graph.tensor(communication.tensor).name, communication.region.to_string(),
                    communication.first_rank, communication.first_where,
                    v.graph.tensor(tensor).name, region.to_string()));
  }
  if (communication.codec != codec) {
    const auto name = [](const std::optional<Codec>& one) {
      return one ? codec_text(*one) : std::string("none");
    };
    return v.reject(&rank, "message", tensor,
                    fmt::format("expected the codec {} as rank {} has it at {}, found {}",
                                name(communication.codec), communication.first_rank,
                                communication.first_where, name(codec)));
  }
  Arrival& arrival = communication.arrivals[end];
  arrival.values.resize(1);
  if (message.sends &&
      !v.check(rank, rank.state.read(view, mb, tensor, region, false, &arrival.values[0]))) {
    return false;
  }
  if (!v.check(rank, rank.state.start(view, mb, !message.sends, id, message.handle))) return false;
  communication.arrive(end);
  v.block_at(rank, id, instruction, message.handle);
  return true;
}

namespace {

// Reads the ids of an exchange of named rows. If the exchange sums, checks that the values to be
// summed are what the op itself has added to the named rows, because only then are the rows that do
// not move zeros.
bool read_names(Interpreting& v, Rank& rank, const Issue& issue, const Prepared& prepared,
                size_t me, const std::vector<Piece>& values) {
  const int64_t mb = rank.step().micro_batch;
  const NamedRows& named = *issue.named;
  const Op& op = v.graph.op(named.op);
  const size_t first = 2 * named.rows.size();  // the regions of hold and need come before
  for (size_t i = 0; i < named.ids.size(); ++i) {
    const Failure failure = rank.state.read(named.ids[i], mb, op.inputs[ids_of_naming(op)[i]],
                                            prepared.regions[first + i].at(mb), true, nullptr);
    if (failure) return v.check(rank, failure);
  }
  if (!issue.combiner) return true;
  const int rows = row_dim(op, naming_of(op)->begin);
  const OperandDims& made = op.annotation.outputs[static_cast<size_t>(naming_of(op)->output)];
  // Parts are boxes of the dims that the output lacks; this is the position of the rows among them.
  size_t at = 0;
  for (int dim = 0; dim < rows; ++dim) at += made.contains(dim) ? 0 : 1;
  const auto added = [&](const Piece& piece) {
    if (piece.parts == nullptr || piece.parts->is_node() || piece.parts->op != op.id) return false;
    return std::ranges::all_of(piece.parts->boxes, [&](const Box& box) {
      return intersect(box.dims[at], named.rows[me]) == box.dims[at];
    });
  };
  if (std::ranges::all_of(values, added)) return true;
  const TensorId tensor = issue.transfers[0].tensor;
  return v.reject(&rank, "rows", tensor,
                  fmt::format("expected what rows [{}:{}] of {} add to {}, found something else",
                              named.rows[me].begin, named.rows[me].end(), op.path,
                              v.graph.tensor(tensor).name));
}

bool agree(Interpreting& v, Rank& rank, Communication& communication, const Issue& issue,
           const Prepared& prepared) {
  const int64_t mb = rank.step().micro_batch;
  const size_t members = communication.members.size();
  const bool first = communication.issue == nullptr;
  if (first) {
    communication.issue = &issue;
    communication.first_rank = rank.program().rank;
    communication.first_where = v.where(rank);
    communication.cached.resize(issue.transfers.size());
  }
  const Issue& other = *communication.issue;
  const auto differ = [&](TensorId tensor, const std::string& what) {
    return v.reject(&rank, "message", tensor,
                    fmt::format("rank {} issues {} for the same collective of ranks {}: {}",
                                communication.first_rank, communication.first_where,
                                fmt::join(communication.members, " "), what));
  };
  if (issue.kind != other.kind || issue.combiner != other.combiner || issue.dtype != other.dtype ||
      issue.codec != other.codec) {
    return differ({}, "kind, combiner, dtype or codec differ");
  }
  const bool named_alike = issue.named.has_value() == other.named.has_value() &&
                           (!issue.named || (issue.named->op == other.named->op &&
                                             issue.named->rows == other.named->rows));
  if (!named_alike) return differ({}, "the rows that are named differ");
  if (issue.transfers.size() != other.transfers.size()) {
    return differ({}, fmt::format("expected {} arrays, found {}", other.transfers.size(),
                                  issue.transfers.size()));
  }
  for (size_t t = 0; t < issue.transfers.size(); ++t) {
    const TensorId tensor = issue.transfers[t].tensor;
    if (tensor != other.transfers[t].tensor) {
      return differ(tensor, fmt::format("expected tensor {}",
                                        v.graph.tensor(other.transfers[t].tensor).name));
    }
    if (first) {
      communication.hold.emplace_back();
      communication.need.emplace_back();
    }
    for (size_t m = 0; m < members; ++m) {
      Box hold = prepared.regions[t * 2 * members + m].at(mb);
      Box need = prepared.regions[t * 2 * members + members + m].at(mb);
      if (first) {
        communication.hold[t].push_back(std::move(hold));
        communication.need[t].push_back(std::move(need));
      } else if (hold != communication.hold[t][m] || need != communication.need[t][m]) {
        return differ(tensor, fmt::format("member {}: expected {} -> {}, found {} -> {}", m,
                                          communication.hold[t][m].to_string(),
                                          communication.need[t][m].to_string(), hold.to_string(),
                                          need.to_string()));
      }
    }
  }
  return true;
}

// Returns the pieces that member `m` gets of transfer `t`, relative to its need. Null: rejected.
const std::vector<Piece>* collected(Interpreting& v, Rank& rank, Communication& communication,
                                    size_t t, size_t m) {
  const Box& need = communication.need[t][m];
  auto& [cached_need, cached] = communication.cached[t];
  if (!cached.empty() && cached_need == need) return &cached;
  const Issue& issue = *communication.issue;
  const TensorId tensor = issue.transfers[t].tensor;
  std::vector<Piece> pieces;
  const auto clipped = [&](const Piece& piece, const Box& box) {
    Piece out = piece;
    out.global = intersect(piece.global, box);
    out.local = relative(out.global, need);
    return out;
  };
  if (issue.combiner) {
    for (const Arrival& arrival : communication.arrivals) {
      for (const Piece& piece : arrival.values[t]) {
        if (!overlaps(piece.global, need)) continue;
        std::string error = merge_piece(v.graph, pieces, clipped(piece, need), *issue.combiner);
        if (error.empty()) continue;
        v.reject(&rank, "coverage", tensor, std::move(error));
        return nullptr;
      }
    }
  } else {
    const Redistribution what{issue.kind, issue.combiner, issue.dtype, communication.hold[t],
                              communication.need[t]};
    for (const Take& take : takes(what, m)) {
      for (const Piece& piece : communication.arrivals[take.source].values[t]) {
        if (overlaps(piece.global, take.box)) pieces.push_back(clipped(piece, take.box));
      }
    }
  }
  int64_t volume = 0;
  for (const Piece& piece : pieces) volume += piece.local.volume();
  if (volume != need.volume()) {
    v.reject(&rank, "message", tensor,
             fmt::format("no member holds all of {}: expected {} elements, found {}",
                         need.to_string(), need.volume(), volume));
    return nullptr;
  }
  cached_need = need;
  cached = std::move(pieces);
  return &cached;
}

bool finish_copy(Interpreting& v, Rank& rank, const Pending& pending, const Copy& copy) {
  const size_t id = pending.communication;
  const int64_t mb = pending.micro_batch;
  const std::vector<Piece>& pieces = v.communications[id]->arrivals[0].values[0];
  if (!v.check(rank, rank.state.finish(copy.from, mb, false, id, nullptr)) ||
      !v.check(rank, rank.state.finish(copy.to, mb, true, id, pending.sets ? &pieces : nullptr))) {
    return false;
  }
  return pending.sets || v.check(rank, rank.state.add(copy.to, mb, pieces));
}

bool finish_collective(Interpreting& v, Rank& rank, const Pending& pending, const Issue& issue) {
  Communication& communication = *v.communications[pending.communication];
  const size_t me =
      static_cast<size_t>(rank.program().groups[static_cast<size_t>(issue.group)].index);
  for (size_t t = 0; t < issue.transfers.size(); ++t) {
    const Transfer& transfer = issue.transfers[t];
    if (transfer.in && !v.check(rank, rank.state.finish(*transfer.in, pending.micro_batch, false,
                                                        pending.communication, nullptr))) {
      return false;
    }
    if (!transfer.out) continue;
    const std::vector<Piece>* pieces = collected(v, rank, communication, t, me);
    if (pieces == nullptr) return false;
    std::vector<Piece> named;
    if (issue.named && !issue.combiner) {
      named = *pieces;
      for (Piece& piece : named) {
        if (!communication.hold[t][me].contains(piece.global))
          piece.named = RowsThere{issue.named->op, issue.named->rows[me]};
      }
      pieces = &named;
    }
    if (!v.check(rank, rank.state.finish(*transfer.out, pending.micro_batch, true,
                                         pending.communication, pieces))) {
      return false;
    }
  }
  return true;
}

}  // namespace

bool start_collective(Interpreting& v, Rank& rank, const Instruction& instruction,
                      const Issue& issue, const Prepared& prepared) {
  const int64_t mb = rank.step().micro_batch;
  const Group& group = rank.program().groups[static_cast<size_t>(issue.group)];
  const auto me = static_cast<size_t>(group.index);
  std::vector<size_t>& sequence = v.collectives[group.members];
  const size_t position = v.issued[{rank.program().rank, group.members}]++;
  if (position == sequence.size()) sequence.push_back(v.add_communication(group.members));
  const size_t id = sequence[position];
  Communication& communication = *v.communications[id];
  if (!agree(v, rank, communication, issue, prepared)) return false;
  Arrival& arrival = communication.arrivals[me];
  arrival.values.resize(issue.transfers.size());
  for (size_t t = 0; t < issue.transfers.size(); ++t) {
    const Transfer& transfer = issue.transfers[t];
    if (!transfer.in) continue;
    if (!v.check(rank, rank.state.read(*transfer.in, mb, transfer.tensor, communication.hold[t][me],
                                       false, &arrival.values[t]))) {
      return false;
    }
  }
  if (issue.named && !read_names(v, rank, issue, prepared, me, arrival.values[0])) return false;
  for (const Transfer& transfer : issue.transfers) {
    const bool started =
        (!transfer.in ||
         v.check(rank, rank.state.start(*transfer.in, mb, false, id, issue.handle))) &&
        (!transfer.out ||
         v.check(rank, rank.state.start(*transfer.out, mb, true, id, issue.handle)));
    if (!started) return false;
  }
  communication.arrive(me);
  v.block_at(rank, id, instruction, issue.handle);
  return true;
}

bool finish(Interpreting& v, Rank& rank, const Pending& done) {
  return match(
      *done.instruction,
      [&](const Issue& issue) { return finish_collective(v, rank, done, issue); },
      [&](const Copy& copied) { return finish_copy(v, rank, done, copied); },
      [&](const OneOf<Send, Recv> auto& body) {
        const bool sends = std::is_same_v<std::remove_cvref_t<decltype(body)>, Send>;
        Communication& communication = *v.communications[done.communication];
        return v.check(rank,
                       rank.state.finish(body.view, done.micro_batch, !sends, done.communication,
                                         sends ? nullptr : &communication.arrivals[0].values[0]));
      },
      [&](const FetchRows& fetch) {
        for (Fetched& fetched : rank.fetched) {
          if (fetched.handle == fetch.handle) fetched.there = true;
        }
        return true;
      },
      [](const OneOf<Compute, Wait, Load, Free, ReleaseRows> auto&) {
        TESSERA_CHECK(false, "expected an instruction that has a handle");
        return false;
      });
}

}  // namespace tessera::verifying
