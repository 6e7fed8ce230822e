#include "tessera/program/verify/interpretation.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/check.h"
#include "tessera/base/text.h"
#include "tessera/graph/rows.h"
#include "tessera/program/text/text.h"

namespace tessera::verifying {
namespace {

bool runs_now(When when, int64_t run, int64_t runs) {
  switch (when) {
    case When::kAlways: return true;
    case When::kFirst: return run == 0;
    case When::kLast: return run == runs - 1;
  }
  return true;
}

Box relative(const Box& box, const Box& origin) {
  Box out = box;
  for (size_t i = 0; i < out.rank(); ++i) out.dims[i].begin -= origin.dims[i].begin;
  return out;
}

// Refines `cells`, disjoint pieces of a linear op's output, by the pieces of one more input. After
// all inputs, every input has a single value in each cell, so the output has a single value there
// too. `terms`: by cell, the parts of each input so far.
void refine(std::vector<Piece>& cells, std::vector<std::vector<std::optional<PartsRef>>>& terms,
            const std::vector<Piece>& input) {
  std::vector<Piece> next;
  std::vector<std::vector<std::optional<PartsRef>>> next_terms;
  for (size_t c = 0; c < cells.size(); ++c) {
    for (const Piece& piece : input) {
      if (!overlaps(cells[c].local, piece.local)) continue;
      next.push_back(clip(cells[c], intersect(cells[c].local, piece.local)));
      next_terms.push_back(terms[c]);
      next_terms.back().emplace_back(piece.parts);
    }
  }
  cells = std::move(next);
  terms = std::move(next_terms);
}

}  // namespace

Interpretation::Interpretation(const Graph& graph, const std::vector<PreparedProgram>& programs,
                               bool blocking)
    : graph_(graph),
      blocking_(blocking),
      executed_(graph.ops().size()),
      updated_(graph.tensors().size()),
      fused_(graph.ops().size(), false) {
  for (const Tensor& tensor : graph.tensors()) {
    if (tensor.update_of.valid()) updated_[tensor.update_of.index()] = tensor.id;
  }
  ranks_.reserve(programs.size());
  for (const PreparedProgram& program : programs) ranks_.emplace_back(graph, program);
}

bool Interpretation::run(std::vector<Rejection>& rejections) {
  rejections_ = &rejections;
  for (Rank& rank : ranks_) {
    if (Failure failure = rank.state.begin_step()) {
      return reject(&rank, failure.rule, failure.tensor, failure.message);
    }
  }
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      const auto before = std::make_pair(ranks_[r].position, ranks_[r].index);
      if (!advance(r)) return false;
      moved = moved || before != std::make_pair(ranks_[r].position, ranks_[r].index);
    }
  }
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.done(); })
             ? finish_step()
             : stuck();
}

bool Interpretation::advance(size_t r) {
  Rank& rank = ranks_[r];
  while (!rank.done()) {
    if (rank.waits_for >= 0) {
      if (!communications_[static_cast<size_t>(rank.waits_for)]->complete()) return true;
      rank.waits_for = -1;
      // The communication at which the rank was blocked is complete. If the rank was blocked at an
      // issue, the issue is done; if at a wait, the wait is executed now.
      if (!std::holds_alternative<Wait>(rank.program().block(rank.step().block)[rank.index].body)) {
        ++rank.index;
      }
    }
    const BlockRef ref = rank.step().block;
    const std::vector<Instruction>& block = rank.program().block(ref);
    while (rank.index < block.size()) {
      const Instruction& instruction = block[rank.index];
      if (runs_now(instruction.when, rank.runs_before(), rank.prepared->runs.at(rank.family()))) {
        if (!execute(rank, instruction, rank.prepared->blocks.at(ref)[rank.index])) return false;
        if (rank.waits_for >= 0) return true;
      }
      ++rank.index;
    }
    if (!next_block(rank)) return false;
  }
  return true;
}

bool Interpretation::next_block(Rank& rank) {
  if (Failure failure = rank.state.end_block()) {
    rank.index = rank.index == 0 ? 0 : rank.index - 1;
    return check(rank, failure);
  }
  ++rank.run[rank.family()];
  ++rank.position;
  rank.index = 0;
  rank.state.begin_block();
  return true;
}

bool Interpretation::sets(Rank& rank, Write write) {
  return write == Write::kSet || (write == Write::kAddExceptFirst && rank.runs_before() == 0);
}

bool Interpretation::execute(Rank& rank, const Instruction& instruction, const Prepared& prepared) {
  const int64_t mb = rank.step().micro_batch;
  return match(
      instruction, [&](const Compute& what) { return compute(rank, what, prepared); },
      [&](const Issue& what) { return issue(rank, instruction, what, prepared); },
      [&](const Wait& what) { return wait(rank, what); },
      [&](const Free& what) {
        return check(rank, rank.step().block.once() ? rank.state.free_slots(what.buffer)
                                                    : rank.state.free(what.buffer, mb));
      },
      [&](const Load& what) {
        const Box region = prepared.regions[0].at(mb);
        const std::vector<Piece> pieces{{relative(region, region), region, what.tensor, nullptr}};
        return check(rank, rank.state.write(what.to, mb, pieces, nullptr));
      },
      [&](const Copy& what) { return copy(rank, instruction, what, prepared); },
      [&](const FetchRows& what) { return fetch_rows(rank, instruction, what, prepared); },
      [&](const ReleaseRows& what) { return release_rows(rank, what); },
      [&](const OneOf<Send, Recv> auto&) {
        return message(rank, instruction, *message_of(instruction), prepared);
      });
}

// Executes a copy. A copy with a handle is treated as a message of the rank to itself that arrives
// at once and is put into its target at the wait.
bool Interpretation::copy(Rank& rank, const Instruction& instruction, const Copy& copy,
                          const Prepared& prepared) {
  const int64_t mb = rank.step().micro_batch;
  const bool set = sets(rank, copy.write);
  std::vector<Piece> pieces;
  if (!check(rank, rank.state.read(copy.from, mb, copy.tensor, prepared.regions[0].at(mb), false,
                                   &pieces))) {
    return false;
  }
  if (copy.handle < 0) {
    return check(rank, set ? rank.state.write(copy.to, mb, pieces, nullptr)
                           : rank.state.add(copy.to, mb, pieces));
  }
  const size_t id = communications_.size();
  auto created = std::make_unique<Communication>();
  created->members = {rank.program().rank};
  created->arrivals.resize(1);
  created->arrivals[0] = {true, {std::move(pieces)}};
  created->arrived = 1;
  communications_.push_back(std::move(created));
  if (!check(rank, rank.state.start(copy.from, mb, false, id, copy.handle)) ||
      !check(rank, rank.state.start(copy.to, mb, true, id, copy.handle, !set))) {
    return false;
  }
  block_at(rank, id, instruction, copy.handle);
  rank.pending[copy.handle].back().sets = set;
  return true;
}

bool Interpretation::finish_copy(Rank& rank, const Pending& pending, const Copy& copy) {
  const size_t id = pending.communication;
  const int64_t mb = pending.micro_batch;
  const std::vector<Piece>& pieces = communications_[id]->arrivals[0].values[0];
  if (!check(rank, rank.state.finish(copy.from, mb, false, id, nullptr)) ||
      !check(rank, rank.state.finish(copy.to, mb, true, id, pending.sets ? &pieces : nullptr))) {
    return false;
  }
  return pending.sets || check(rank, rank.state.add(copy.to, mb, pieces));
}

// Executes a fetch of rows. The ids are read now, and the rows are there from the wait on.
bool Interpretation::fetch_rows(Rank& rank, const Instruction& instruction, const FetchRows& fetch,
                                const Prepared& prepared) {
  const int64_t mb = rank.step().micro_batch;
  Fetched fetched{fetch.handle, fetch.cache, {}, false, false};
  for (size_t i = 0; i < fetch.ids.size(); ++i) {
    const RowIds& ids = fetch.ids[i];
    const Box region = prepared.regions[i].at(mb);
    if (ids.view &&
        !check(rank, rank.state.read(*ids.view, mb, ids.tensor, region, true, nullptr))) {
      return false;
    }
    fetched.ids.emplace_back(ids.tensor, region);
  }
  if (!fetch.ahead) rank.fetched.push_back(std::move(fetched));
  const size_t id = communications_.size();
  auto created = std::make_unique<Communication>();
  created->members = {rank.program().rank};
  created->arrivals.resize(1);
  created->arrivals[0].here = true;
  created->arrived = 1;
  communications_.push_back(std::move(created));
  block_at(rank, id, instruction, fetch.handle);
  return true;
}

bool Interpretation::finish_rows(Rank& rank, const FetchRows& fetch) {
  for (Fetched& fetched : rank.fetched) {
    if (fetched.handle == fetch.handle) fetched.there = true;
  }
  return true;
}

bool Interpretation::release_rows(Rank& rank, const ReleaseRows& release) {
  const auto found = std::find_if(rank.fetched.begin(), rank.fetched.end(),
                                  [&](const Fetched& f) { return f.handle == release.fetch; });
  const auto wrong = [&](const std::string& what) {
    return reject(&rank, "rows", {},
                  fmt::format("releases rows of fetch #{} {}", release.fetch, what));
  };
  if (found == rank.fetched.end()) return wrong("that was not made, or is released");
  if (!found->there) return wrong("before they are there: expected its wait before");
  if (found->changed && !release.changed) return wrong("as unchanged, which an op has changed");
  rank.fetched.erase(found);
  return true;
}

bool Interpretation::touch_rows(Rank& rank, const Compute& compute, const Prepared& prepared) {
  if (!prepared.rows) return true;
  const int64_t mb = rank.step().micro_batch;
  for (const size_t input : prepared.rows->ids) {
    const TensorId tensor = prepared.op->inputs[input];
    const Box region = prepared.regions[input].at(mb);
    if (region.empty()) continue;
    bool there = false;
    for (Fetched& fetched : rank.fetched) {
      if (fetched.cache != prepared.rows->cache || !fetched.there) continue;
      const bool names = std::any_of(fetched.ids.begin(), fetched.ids.end(), [&](const auto& ids) {
        return ids.first == tensor && ids.second.contains(region);
      });
      if (!names) continue;
      there = true;
      fetched.changed = fetched.changed || prepared.rows->changes;
    }
    if (there) continue;
    return reject(&rank, "rows", tensor,
                  fmt::format("touches rows of %{} that the ids {} name: expected a fetch of them, "
                              "and its wait, before",
                              compute.inputs[input].buffer.value, region.to_string()));
  }
  return true;
}

bool Interpretation::compute(Rank& rank, const Compute& compute, const Prepared& prepared) {
  if (!touch_rows(rank, compute, prepared)) return false;
  const int64_t mb = rank.step().micro_batch;
  const Op& op = *prepared.op;
  std::vector<std::vector<Piece>> inputs;
  bool incomplete = false;
  if (prepared.linear) inputs.resize(op.inputs.size());
  const RowNaming* naming = naming_of(op);
  RowsThere named;
  if (naming != nullptr) named = {op.id, prepared.regions[naming->begin].at(mb).dims[0]};
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const bool by_name = naming != nullptr && naming->input == static_cast<int>(i);
    const Failure failure = rank.state.read(
        compute.inputs[i], mb, op.inputs[i], prepared.regions[i].at(mb), !prepared.linear,
        prepared.linear ? &inputs[i] : nullptr, by_name ? &named : nullptr);
    if (failure) return check(rank, failure);
    if (!prepared.linear) continue;
    for (const Piece& piece : inputs[i]) incomplete = incomplete || piece.parts != nullptr;
  }
  if (!incomplete) inputs.clear();
  add_union(executed_[op.id.index()], prepared.box.at(mb));
  for (size_t o = 0; o < compute.outputs.size(); ++o) {
    const Output& output = compute.outputs[o];
    const std::vector<Piece> pieces = results(compute, prepared, o, inputs, mb);
    const int alias = prepared.outputs[o].alias;
    const Failure failure =
        sets(rank, output.write)
            ? rank.state.write(output.view, mb, pieces,
                               alias < 0 ? nullptr : &compute.inputs[static_cast<size_t>(alias)])
            : rank.state.add(output.view, mb, pieces, op.annotation.outputs[o].combiner);
    if (failure) return check(rank, failure);
  }
  return true;
}

std::vector<Piece> Interpretation::results(const Compute& compute, const Prepared& prepared,
                                           size_t o, const std::vector<std::vector<Piece>>& inputs,
                                           int64_t micro_batch) {
  const Op& op = *prepared.op;
  const Output& output = compute.outputs[o];
  const Box region = prepared.outputs[o].region.at(micro_batch);
  std::vector<Piece> pieces{{relative(region, region), region, output.tensor, nullptr}};
  if (inputs.empty() && !prepared.outputs[o].stretches.empty()) {
    pieces.clear();
    for (const PreparedOutput::Stretch& stretch : prepared.outputs[o].stretches) {
      const Box here = stretch.region.at(micro_batch);
      pieces.push_back(
          {relative(here, region), here, output.tensor,
           make_leaf(op, o, prepared.outputs[o].reduced, stretch.box.at(micro_batch))});
    }
  } else if (inputs.empty()) {
    pieces[0].parts =
        make_leaf(op, o, prepared.outputs[o].reduced, prepared.outputs[o].box.at(micro_batch));
  } else {
    std::vector<std::vector<std::optional<PartsRef>>> terms(1);
    for (const std::vector<Piece>& input : inputs) refine(pieces, terms, input);
    for (size_t c = 0; c < pieces.size(); ++c) {
      pieces[c].parts = make_node(op, std::move(terms[c]));
    }
  }
  if (output.terms == 1) return pieces;
  const Op& sum = graph_.op(graph_.tensor(output.tensor).producer);
  fused_[sum.id.index()] = true;
  for (Piece& piece : pieces) {
    std::vector<std::optional<PartsRef>> terms(static_cast<size_t>(output.terms));
    terms[static_cast<size_t>(output.term)] = piece.parts;
    piece.parts = make_node(sum, std::move(terms));
  }
  return pieces;
}

void Interpretation::block_at(Rank& rank, size_t communication, const Instruction& instruction,
                              int handle) {
  rank.pending[handle].push_back({communication, rank.family(), rank.runs_before(),
                                  rank.step().micro_batch, &instruction, true});
  if (blocking_ && !communications_[communication]->complete()) {
    rank.waits_for = static_cast<int>(communication);
  }
}

bool Interpretation::issue(Rank& rank, const Instruction& instruction, const Issue& issue,
                           const Prepared& prepared) {
  const int64_t mb = rank.step().micro_batch;
  const Group& group = rank.program().groups[static_cast<size_t>(issue.group)];
  const size_t members = group.members.size(), me = static_cast<size_t>(group.index);
  std::vector<size_t>& sequence = collectives_[group.members];
  const size_t position = issued_[{rank.program().rank, group.members}]++;
  if (position == sequence.size()) {
    sequence.push_back(communications_.size());
    communications_.push_back(std::make_unique<Communication>());
    communications_.back()->members = group.members;
    communications_.back()->arrivals.resize(members);
  }
  const size_t id = sequence[position];
  Communication& communication = *communications_[id];
  if (!agree(rank, communication, issue, prepared)) return false;
  Arrival& arrival = communication.arrivals[me];
  arrival.values.resize(issue.transfers.size());
  for (size_t t = 0; t < issue.transfers.size(); ++t) {
    const Transfer& transfer = issue.transfers[t];
    if (!transfer.in) continue;
    if (!check(rank, rank.state.read(*transfer.in, mb, transfer.tensor, communication.hold[t][me],
                                     false, &arrival.values[t]))) {
      return false;
    }
  }
  if (issue.named && !read_names(rank, issue, prepared, me, arrival.values[0])) return false;
  for (const Transfer& transfer : issue.transfers) {
    const bool started =
        (!transfer.in ||
         check(rank, rank.state.start(*transfer.in, mb, false, id, issue.handle))) &&
        (!transfer.out || check(rank, rank.state.start(*transfer.out, mb, true, id, issue.handle)));
    if (!started) return false;
  }
  arrival.here = true;
  ++communication.arrived;
  block_at(rank, id, instruction, issue.handle);
  return true;
}

// Reads the ids of an exchange of named rows. If the exchange sums, checks that the values to be
// summed are what the op itself has added to the named rows, because only then are the rows that do
// not move zeros.
bool Interpretation::read_names(Rank& rank, const Issue& issue, const Prepared& prepared, size_t me,
                                const std::vector<Piece>& values) {
  const int64_t mb = rank.step().micro_batch;
  const NamedRows& named = *issue.named;
  const Op& op = graph_.op(named.op);
  const size_t first = 2 * named.rows.size();  // the regions of hold and need come before
  for (size_t i = 0; i < named.ids.size(); ++i) {
    const Failure failure = rank.state.read(named.ids[i], mb, op.inputs[ids_of_naming(op)[i]],
                                            prepared.regions[first + i].at(mb), true, nullptr);
    if (failure) return check(rank, failure);
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
  return reject(
      &rank, "rows", tensor,
      fmt::format("expected what rows [{}:{}] of {} add to {}, found something else",
                  named.rows[me].begin, named.rows[me].end(), op.path, graph_.tensor(tensor).name));
}

bool Interpretation::agree(Rank& rank, Communication& communication, const Issue& issue,
                           const Prepared& prepared) {
  const int64_t mb = rank.step().micro_batch;
  const size_t members = communication.members.size();
  const bool first = communication.issue == nullptr;
  if (first) {
    communication.issue = &issue;
    communication.first_rank = rank.program().rank;
    communication.first_where = where(rank);
    communication.cached.resize(issue.transfers.size());
  }
  const Issue& other = *communication.issue;
  const auto differ = [&](TensorId tensor, const std::string& what) {
    return reject(&rank, "message", tensor,
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
      return differ(
          tensor, fmt::format("expected tensor {}", graph_.tensor(other.transfers[t].tensor).name));
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

bool Interpretation::message(Rank& rank, const Instruction& instruction, const MessageEnd& message,
                             const Prepared& prepared) {
  const int64_t mb = rank.step().micro_batch;
  const int me = rank.program().rank;
  const int source = message.sends ? me : message.peer, target = message.sends ? message.peer : me;
  const TensorId tensor = message.tensor;
  const View& view = *message.view;
  const std::optional<Codec>& codec = *message.codec;
  const size_t end = message.sends ? 0 : 1;
  Channel& channel = channels_[{source, target, message.tag, mb}];
  const size_t position = channel.ends[end]++;
  const Box region = prepared.regions[0].at(mb);
  if (position == channel.messages.size()) {
    channel.messages.push_back(communications_.size());
    auto created = std::make_unique<Communication>();
    created->members = {source, target};
    created->arrivals.resize(2);
    created->first_rank = me;
    created->first_where = where(rank);
    created->tensor = tensor;
    created->region = region;
    created->codec = codec;
    communications_.push_back(std::move(created));
  }
  const size_t id = channel.messages[position];
  Communication& communication = *communications_[id];
  if (communication.tensor != tensor || communication.region != region) {
    return reject(
        &rank, "message", tensor,
        fmt::format("expected {}{} as rank {} has it at {}, found {}{}",
                    graph_.tensor(communication.tensor).name, communication.region.to_string(),
                    communication.first_rank, communication.first_where, graph_.tensor(tensor).name,
                    region.to_string()));
  }
  if (communication.codec != codec) {
    const auto name = [](const std::optional<Codec>& one) {
      return one ? codec_text(*one) : std::string("none");
    };
    return reject(&rank, "message", tensor,
                  fmt::format("expected the codec {} as rank {} has it at {}, found {}",
                              name(communication.codec), communication.first_rank,
                              communication.first_where, name(codec)));
  }
  Arrival& arrival = communication.arrivals[end];
  arrival.values.resize(1);
  if (message.sends &&
      !check(rank, rank.state.read(view, mb, tensor, region, false, &arrival.values[0]))) {
    return false;
  }
  if (!check(rank, rank.state.start(view, mb, !message.sends, id, message.handle))) return false;
  arrival.here = true;
  ++communication.arrived;
  block_at(rank, id, instruction, message.handle);
  return true;
}

// Returns whether the run to which the wait's lag points was of the other size of micro-batches,
// whose blocks issued nothing under the handle.
bool Interpretation::other_size(const Rank& rank, const Wait& wait) const {
  if (wait.lag == 0 || rank.program().larger == 0) return false;
  int64_t left = wait.lag;
  for (size_t i = rank.position; i-- > 0;) {
    const BlockRunStep& step = rank.program().schedule[i];
    if (rank.program().family(step.block) != rank.family() || --left > 0) continue;
    return std::ranges::none_of(rank.program().block(step.block), [&](const Instruction& one) {
      return handle_of(one) == wait.handle;
    });
  }
  return false;
}

Interpretation::Pending* Interpretation::find_pending(Rank& rank, const Wait& wait) {
  const auto found = rank.pending.find(wait.handle);
  if (found == rank.pending.end()) return nullptr;
  std::vector<Pending>& pendings = found->second;
  const BlockRunStep& step = rank.step();
  const BlockRef family = rank.family();
  const int64_t run = rank.runs_before() - wait.lag;
  const auto first = [&](auto&& fits) -> Pending* {
    const auto it = std::find_if(pendings.begin(), pendings.end(), fits);
    return it == pendings.end() ? nullptr : &*it;
  };
  const bool here = !pendings.empty() && pendings[0].block == family;
  if (here || wait.lag > 0) {
    return first([&](const Pending& p) { return p.block == family && p.run == run; });
  }
  if (step.block.once()) {
    return first([](const Pending&) { return true; });
  }
  return first([&](const Pending& p) {
    return p.block == BlockKind::kPrologue || p.micro_batch == step.micro_batch;
  });
}

bool Interpretation::wait(Rank& rank, const Wait& wait) {
  Pending* pending = find_pending(rank, wait);
  if (pending == nullptr) {
    if (wait.lag > rank.runs_before() || other_size(rank, wait)) return true;
    // If micro-batches have two sizes, those of one size may have sent nothing under the handle,
    // and all messages of the other size may be awaited already. A wait at the end of the step then
    // finds nothing, which is no error.
    if (rank.step().block.once() && rank.program().larger > 0 && rank.pending.contains(wait.handle))
      return true;
    return reject(&rank, "lifetime", {}, "waits for a handle that was not issued");
  }
  if (!communications_[pending->communication]->complete()) {
    rank.waits_for = static_cast<int>(pending->communication);
    return true;
  }
  const Pending done = *pending;
  std::vector<Pending>& pendings = rank.pending[wait.handle];
  pendings.erase(pendings.begin() + (pending - pendings.data()));
  if (!finish(rank, done)) return false;
  // A wait in a block that runs once a step is for all that the step has issued under the handle.
  return !rank.step().block.once() || pendings.empty() || this->wait(rank, wait);
}

bool Interpretation::finish(Rank& rank, const Pending& done) {
  return match(
      *done.instruction, [&](const Issue& issue) { return finish_collective(rank, done, issue); },
      [&](const Copy& copied) { return finish_copy(rank, done, copied); },
      [&](const OneOf<Send, Recv> auto& body) {
        const bool sends = std::is_same_v<std::remove_cvref_t<decltype(body)>, Send>;
        Communication& communication = *communications_[done.communication];
        return check(rank,
                     rank.state.finish(body.view, done.micro_batch, !sends, done.communication,
                                       sends ? nullptr : &communication.arrivals[0].values[0]));
      },
      [&](const FetchRows& fetch) { return finish_rows(rank, fetch); },
      [](const OneOf<Compute, Wait, Load, Free, ReleaseRows> auto&) {
        TESSERA_CHECK(false, "expected an instruction that has a handle");
        return false;
      });
}

bool Interpretation::finish_collective(Rank& rank, const Pending& pending, const Issue& issue) {
  Communication& communication = *communications_[pending.communication];
  const size_t me =
      static_cast<size_t>(rank.program().groups[static_cast<size_t>(issue.group)].index);
  for (size_t t = 0; t < issue.transfers.size(); ++t) {
    const Transfer& transfer = issue.transfers[t];
    if (transfer.in && !check(rank, rank.state.finish(*transfer.in, pending.micro_batch, false,
                                                      pending.communication, nullptr))) {
      return false;
    }
    if (!transfer.out) continue;
    const std::vector<Piece>* pieces = collected(rank, communication, t, me);
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
    if (!check(rank, rank.state.finish(*transfer.out, pending.micro_batch, true,
                                       pending.communication, pieces))) {
      return false;
    }
  }
  return true;
}

// Returns the pieces that member `m` gets of transfer `t`, relative to its need. Null: rejected.
const std::vector<Piece>* Interpretation::collected(Rank& rank, Communication& communication,
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
        std::string error = merge_piece(graph_, pieces, clipped(piece, need), *issue.combiner);
        if (error.empty()) continue;
        reject(&rank, "coverage", tensor, std::move(error));
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
    reject(&rank, "message", tensor,
           fmt::format("no member holds all of {}: expected {} elements, found {}",
                       need.to_string(), need.volume(), volume));
    return nullptr;
  }
  cached_need = need;
  cached = std::move(pieces);
  return &cached;
}

std::string Interpretation::where(const Rank& rank) const {
  if (rank.done()) return "end of step";
  const BlockRef block = rank.step().block;
  if (rank.index >= rank.program().block(block).size()) return block_name(block);
  return verifying::where(rank.program(), block, rank.index, graph_);
}

bool Interpretation::reject(const Rank* rank, std::string rule, TensorId tensor,
                            std::string message) {
  if (rejections_->size() < kMaxRejections) {
    if (rank != nullptr && !rank->done() && rank->program().micro_batches > 1) {
      message += fmt::format(" (micro-batch {})", rank->step().micro_batch);
    }
    rejections_->push_back({std::move(rule), rank != nullptr ? rank->program().rank : -1,
                            rank != nullptr ? where(*rank) : "",
                            tensor.valid() ? graph_.tensor(tensor).name : "", std::move(message)});
  }
  return false;
}

bool Interpretation::check(const Rank& rank, const Failure& failure) {
  return failure ? reject(&rank, failure.rule, failure.tensor, failure.message) : true;
}

}  // namespace tessera::verifying
