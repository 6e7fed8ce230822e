#include "support/mutate.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>

#include "support/mutator.h"
#include "tessera/program/instructions.h"
#include "tessera/program/text/text.h"

namespace tessera {
namespace mutating {
namespace {

// Returns what the instruction reads. A residual of error feedback is left out, since only its
// message uses it.
std::vector<View> reads(const Instruction& instruction) {
  std::vector<View> out;
  accesses(instruction, [&](const Access& access) {
    if (access.mode == AccessMode::kRead || access.mode == AccessMode::kAdd)
      out.push_back(*access.view);
  });
  return out;
}

// Returns what the instruction writes at once, or by a copy with a handle; the data of a message or
// a collective arrives at its wait.
std::vector<View> writes(const Instruction& instruction) {
  std::vector<View> out;
  if (message_of(instruction) || std::holds_alternative<Issue>(instruction.body)) return out;
  accesses(instruction, [&](const Access& access) {
    if (writes(access.mode)) out.push_back(*access.view);
  });
  return out;
}

// Returns whether the instruction adds to the view. Two additions to one place may change order.
bool adds_to(const Instruction& instruction, const View& view) {
  const auto* compute = std::get_if<Compute>(&instruction.body);
  return compute != nullptr &&
         std::any_of(compute->outputs.begin(), compute->outputs.end(), [&](const Output& output) {
           return output.write == Write::kAdd && output.view == view;
         });
}

bool meet(const View& a, const View& b) {
  return a.buffer == b.buffer && !intersect(a.box, b.box).empty();
}

// Moves a box by one inside `shape`; false if there is no room.
bool shift(Box& box, const std::vector<int64_t>& shape) {
  for (size_t i = 0; i < box.rank(); ++i) {
    if (box.dims[i].end() < shape[i]) {
      ++box.dims[i].begin;
      return true;
    }
    if (box.dims[i].begin > 0) {
      --box.dims[i].begin;
      return true;
    }
  }
  return false;
}

double other_number(double value) { return value == 0 ? 1 : 2 * value; }

void erase(Programs& programs, const Place& place) {
  auto& block = programs[place.rank].block(place.block);
  block.erase(block.begin() + static_cast<std::ptrdiff_t>(place.index));
}

void erase_with_waits(Programs& programs, const Place& place) {
  const int handle = handle_of(at(programs, place));
  erase(programs, place);
  for (auto& [ref, block] : programs[place.rank].blocks) {
    std::erase_if(block, [&](const Instruction& instruction) {
      const auto* wait = std::get_if<Wait>(&instruction.body);
      return wait != nullptr && wait->handle == handle;
    });
  }
}

}  // namespace

Instruction& at(Programs& programs, const Place& place) {
  return programs[place.rank].block(place.block)[place.index];
}

Mutator::Mutator(const Graph& graph, const Programs& programs, size_t per_kind)
    : graph_(graph), programs_(programs), per_kind_(per_kind) {
  for (const Program& program : programs) used_.push_back(used_buffers(program));
}

std::vector<Mutation> Mutator::run(const std::set<std::string>& only) {
  const std::vector<void (Mutator::*)(const Place&)> kinds = {
      &Mutator::computes,  &Mutator::operands,    &Mutator::outputs,  &Mutator::attributes,
      &Mutator::transport, &Mutator::collectives, &Mutator::waits,    &Mutator::order,
      &Mutator::memory,    &Mutator::fetches,     &Mutator::releases, &Mutator::names,
      &Mutator::factors,   &Mutator::addends,     &Mutator::sums,     &Mutator::reductions};
  for (auto kind : kinds) {
    for (size_t r = 0; r < programs_.size(); ++r) {
      for (const auto& [ref, block] : programs_[r].blocks) {
        if (runs(r, ref) == 0) continue;
        for (size_t i = 0; i < block.size(); ++i) (this->*kind)({r, ref, i});
      }
    }
  }
  for (size_t r = 0; r < programs_.size(); ++r) {
    schedules(r);
    arenas(r);
  }
  return apply(only);
}

std::set<BufferId> Mutator::used_buffers(const Program& program) {
  std::set<BufferId> out;
  for (const auto& [ref, block] : program.blocks) {
    for (const Instruction& instruction : block) {
      for (const View& view : reads(instruction)) out.insert(view.buffer);
    }
  }
  for (const Home& home : program.homes) out.insert(home.buffer);
  for (const Home& home : program.fetches) out.insert(home.buffer);
  return out;
}

bool Mutator::matters(const Place& place) const {
  const std::vector<View> views = writes(get(place));
  return std::any_of(views.begin(), views.end(),
                     [&](const View& view) { return used_[place.rank].count(view.buffer) > 0; });
}

void Mutator::add(const std::string& kind, const Place& place, Change change,
                  const std::string& of) {
  candidates(kind).push_back(
      {fmt::format("{}: rank {} {}[{}] {}{}{}", kind, place.rank, block_name(place.block),
                   place.index, label(get(place), graph_), of.empty() ? "" : " of ", of),
       std::move(change)});
}

std::vector<Candidate>& Mutator::candidates(const std::string& kind) {
  for (auto& [name, list] : kinds_) {
    if (name == kind) return list;
  }
  kinds_.emplace_back(kind, std::vector<Candidate>());
  return kinds_.back().second;
}

// To drop or move the instruction that makes a value leaves the value's reader without it (a buffer
// is not written twice with one value, and where it is, all runs of the block lose it).
void Mutator::computes(const Place& place) {
  const Instruction& instruction = get(place);
  const bool load = std::holds_alternative<Load>(instruction.body);
  const bool copy = std::holds_alternative<Copy>(instruction.body) && handle_of(instruction) < 0;
  const auto* compute = std::get_if<Compute>(&instruction.body);
  if ((compute == nullptr && !load && !copy) || !matters(place)) return;
  add(compute != nullptr ? "drop_compute"
      : load             ? "drop_load"
                         : "drop_copy",
      place, [place](Programs& p) { erase(p, place); });
  if (compute == nullptr) return;
  std::vector<int64_t> sizes;
  for (const OpDim& dim : graph_.op(compute->op).annotation.dims) sizes.push_back(dim.size);
  Box box = compute->box;
  if (shift(box, sizes)) {
    add("wrong_box", place,
        [place, box](Programs& p) { std::get<Compute>(at(p, place).body).box = box; });
  }
  // A second run would count the part, or apply the update, twice. Setting a value twice is
  // harmless, and so is adding "except first" where the block runs only once, or adding nothing.
  const bool twice =
      !compute->box.empty() &&
      std::any_of(compute->outputs.begin(), compute->outputs.end(), [&](const Output& output) {
        return output.write == Write::kAdd ||
               (output.write == Write::kAddExceptFirst && runs(place.rank, place.block) > 1) ||
               graph_.tensor(output.tensor).update_of.valid();
      });
  if (twice) {
    add("duplicate_compute", place, [place](Programs& p) {
      auto& block = p[place.rank].block(place.block);
      const Instruction again = block[place.index];
      block.insert(block.begin() + static_cast<std::ptrdiff_t>(place.index), again);
    });
  }
}

// Another buffer of that shape holds another tensor, unless nothing is read of it. Commutative
// kinds get no swap of two operands.
void Mutator::operands(const Place& place) {
  const auto* compute = std::get_if<Compute>(&get(place).body);
  if (compute == nullptr || !matters(place)) return;
  const Program& program = programs_[place.rank];
  const Op& op = graph_.op(compute->op);
  for (size_t i = 0; i < compute->inputs.size(); ++i) {
    const Buffer& own = program.buffer(compute->inputs[i].buffer);
    for (const Buffer& other : program.buffers) {
      if (compute->inputs[i].box.empty() || other.id == own.id || other.tensor == own.tensor ||
          other.shape != own.shape || other.dtype != own.dtype ||
          used_[place.rank].count(other.id) == 0) {
        continue;
      }
      const BufferId id = other.id;
      const bool gradient = graph_.tensor(op.inputs[i]).role == Role::kGradient;
      add(gradient && op.phase == Phase::kUpdate ? "swap_gradient" : "wrong_operand", place,
          [place, i, id](Programs& p) {
            std::get<Compute>(at(p, place).body).inputs[i].buffer = id;
          });
      break;
    }
  }
  if (op.kind == "add" || op.kind == "mul" || op.kind == "add_n" || op.inputs.size() < 2) return;
  const View &a = compute->inputs[0], &b = compute->inputs[1];
  if (op.inputs[0] != op.inputs[1] && a.box.shape() == b.box.shape()) {
    add("swap_operands", place, [place](Programs& p) {
      auto& inputs = std::get<Compute>(at(p, place).body).inputs;
      std::swap(inputs[0], inputs[1]);
    });
  }
}

// Adding where there is nothing yet, or setting over earlier parts, loses or invents a value.
void Mutator::outputs(const Place& place) {
  const auto* compute = std::get_if<Compute>(&get(place).body);
  if (compute == nullptr || !matters(place)) return;
  for (size_t o = 0; o < compute->outputs.size(); ++o) {
    const Write write = compute->outputs[o].write;
    const auto change = [&](const std::string& kind, Write to) {
      add(kind, place, [place, o, to](Programs& p) {
        std::get<Compute>(at(p, place).body).outputs[o].write = to;
      });
    };
    const bool used = used_[place.rank].count(compute->outputs[o].view.buffer) > 0;
    if (!used) continue;
    if (write == Write::kSet) change("set_to_add", Write::kAdd);
    if (write == Write::kAdd) change("add_to_set", Write::kSet);
    if (write == Write::kAddExceptFirst) change("first_add", Write::kAdd);
    if (write == Write::kAddExceptFirst && runs(place.rank, place.block) > 1) {
      change("forget_accumulation", Write::kSet);
    }
  }
}

// Changes a constant on one rank (a wrong scale of the loss, an exponent), or the kind.
void Mutator::attributes(const Place& place) {
  const auto* compute = std::get_if<Compute>(&get(place).body);
  if (compute == nullptr) return;
  for (const auto& [name, value] : compute->attributes) {
    if (!std::holds_alternative<double>(value)) continue;
    const std::string key = name;
    add("wrong_constant", place, [place, key](Programs& p) {
      auto& number = std::get<Compute>(at(p, place).body).attributes[key];
      number = other_number(std::get<double>(number));
    });
    const OpId op = compute->op;
    add("wrong_constant_everywhere", place, [op, key](Programs& p) {
      for (Program& program : p) {
        for (auto& [ref, block] : program.blocks) {
          for (Instruction& instruction : block) {
            auto* same = std::get_if<Compute>(&instruction.body);
            if (same == nullptr || same->op != op) continue;
            same->attributes[key] = other_number(std::get<double>(same->attributes[key]));
          }
        }
      }
    });
  }
  add("wrong_kind", place, [place](Programs& p) {
    auto& kind = std::get<Compute>(at(p, place).body).kind;
    kind = kind == "relu" ? "gelu" : "relu";
  });
}

// If one end is missing, or differs from the other, the partner waits or gets wrong data.
void Mutator::transport(const Place& place) {
  const Instruction& instruction = get(place);
  if (handle_of(instruction) < 0) return;
  if (std::holds_alternative<Copy>(instruction.body) && !matters(place)) return;
  if (std::holds_alternative<FetchRows>(instruction.body)) return;  // fetches()
  add("drop_one_side", place, [place](Programs& p) { erase_with_waits(p, place); });
  add("duplicate_one_side", place, [place](Programs& p) {
    auto& block = p[place.rank].block(place.block);
    const Instruction again = block[place.index];
    block.insert(block.begin() + static_cast<std::ptrdiff_t>(place.index), again);
  });
  coding(place);
  if (message_of(instruction)) messages(place);
}

// One end has another codec than the other, or none; or two messages share their feedback.
void Mutator::coding(const Place& place) {
  std::optional<Codec> codec;
  std::optional<View> residual;
  match(
      get(place),
      [&](const OneOf<Issue, Send> auto& moves) {
        codec = moves.codec;
        residual = moves.residual;
      },
      [&](const Recv& recv) { codec = recv.codec; },
      [](const OneOf<Compute, Wait, Copy, Load, Free, FetchRows, ReleaseRows> auto&) {});
  if (!codec) return;
  const auto edit = [&](const std::string& kind, auto change) {
    add(kind, place, [place, change](Programs& p) {
      match(
          at(p, place), [&](OneOf<Issue, Send, Recv> auto& moves) { change(moves); },
          [](OneOf<Compute, Wait, Copy, Load, Free, FetchRows, ReleaseRows> auto&) {});
    });
  };
  const Codec other =
      codec->kind == Codec::Kind::kInt8 ? *parse_codec("bfloat16") : *parse_codec("int8");
  edit("wrong_codec", [other](auto& moves) { moves.codec = other; });
  edit("drop_codec", [](auto& moves) { moves.codec.reset(); });
  if (!residual) return;
  for (const auto& [ref, block] : programs_[place.rank].blocks) {
    for (const Instruction& instruction : block) {
      std::optional<View> others;
      accesses(instruction, [&](const Access& access) {
        const bool same = access.view != nullptr && access.view->box == residual->box &&
                          access.buffer != residual->buffer;
        if (same && access.mode == AccessMode::kUpdate) others = *access.view;
      });
      if (!others) continue;
      return edit("shared_residual", [others](auto& moves) {
        if constexpr (requires { moves.residual; }) moves.residual = others;
      });
    }
  }
}

void Mutator::messages(const Place& place) {
  const MessageEnd end = *message_of(get(place));
  const int peer = end.peer;
  const int ranks = static_cast<int>(programs_.size());
  int wrong = (peer + 1) % ranks;
  if (wrong == static_cast<int>(place.rank)) wrong = (wrong + 1) % ranks;
  const auto edit = [&](const std::string& kind, auto change) {
    add(kind, place, [place, change](Programs& p) {
      match(
          at(p, place), [&](OneOf<Send, Recv> auto& one) { change(one); },
          [](OneOf<Compute, Issue, Wait, Copy, Load, Free, FetchRows, ReleaseRows> auto&) {});
    });
  };
  if (wrong != peer) edit("wrong_peer", [wrong](auto& one) { one.peer = wrong; });
  edit("wrong_tag", [](auto& one) { one.tag += 1000003; });
  Box region = *end.region;
  if (shift(region, graph_.tensor(end.tensor).shape())) {
    edit("wrong_region", [region](auto& one) { one.region = region; });
  }
}

// Returns the places of this collective on all members: equal positions among the issues of that
// group in that block.
std::vector<Place> Mutator::partners(const Place& place) const {
  const auto members_at = [&](size_t r, const Issue& issue) -> const std::vector<int>& {
    return programs_[r].groups[static_cast<size_t>(issue.group)].members;
  };
  const std::vector<int>& members = members_at(place.rank, std::get<Issue>(get(place).body));
  size_t position = 0;
  for (size_t i = 0; i < place.index; ++i) {
    const auto* issue = std::get_if<Issue>(&programs_[place.rank].block(place.block)[i].body);
    if (issue != nullptr && members_at(place.rank, *issue) == members) ++position;
  }
  std::vector<Place> out;
  for (int member : members) {
    const size_t r = static_cast<size_t>(member);
    const auto& block = programs_[r].block(place.block);
    size_t seen = 0;
    for (size_t i = 0; i < block.size(); ++i) {
      const auto* issue = std::get_if<Issue>(&block[i].body);
      if (issue == nullptr || members_at(r, *issue) != members) continue;
      if (seen++ == position) out.push_back({r, place.block, i});
    }
  }
  return out;
}

// Changes all members at once: they agree with each other, but not with the graph. The result of a
// collective is always read later (or is at rest), or the collective would not exist.
void Mutator::collectives(const Place& place) {
  const auto* issue = std::get_if<Issue>(&get(place).body);
  if (issue == nullptr) return;
  const std::vector<Place> all = partners(place);
  const auto edit = [&](const std::string& kind, auto change) {
    add(kind, place, [all, change](Programs& p) {
      for (const Place& one : all) change(p, one);
    });
  };
  edit("drop_collective", [](Programs& p, const Place& one) { erase_with_waits(p, one); });
  if (issue->kind == CollectiveKind::kAllReduce) {
    edit("all_reduce_to_all_gather", [](Programs& p, const Place& one) {
      auto& changed = std::get<Issue>(at(p, one).body);
      changed.kind = CollectiveKind::kAllGather;
      changed.combiner.reset();
    });
  }
  if (issue->kind == CollectiveKind::kAllGather) {
    edit("all_gather_to_all_reduce", [](Programs& p, const Place& one) {
      auto& changed = std::get<Issue>(at(p, one).body);
      changed.kind = CollectiveKind::kAllReduce;
      changed.combiner = Combiner::kSum;
    });
  }
  if (issue->combiner) {
    edit("wrong_combiner", [](Programs& p, const Place& one) {
      auto& combiner = std::get<Issue>(at(p, one).body).combiner;
      combiner = combiner == Combiner::kSum ? Combiner::kMax : Combiner::kSum;
    });
    // Before the last micro-batch its part is missing, and the rest is added to the reduced value.
    if (get(place).when == When::kLast && runs(place.rank, place.block) > 1) {
      edit("reduce_before_last_micro_batch",
           [](Programs& p, const Place& one) { at(p, one).when = When::kFirst; });
    }
  }
  if (!issue->transfers.empty()) {
    const TensorId tensor = issue->transfers[0].tensor;
    Box hold = issue->transfers[0].hold[0];
    if (!hold.empty() && shift(hold, graph_.tensor(tensor).shape())) {
      add("wrong_hold", place, [place, hold](Programs& p) {
        std::get<Issue>(at(p, place).body).transfers[0].hold.set(0, hold);
      });
    }
  }
  const auto& groups = programs_[place.rank].groups;
  const auto& own = groups[static_cast<size_t>(issue->group)];
  for (size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].members.size() != own.members.size() || groups[g].members == own.members)
      continue;
    add("wrong_group", place, [place, g](Programs& p) {
      std::get<Issue>(at(p, place).body).group = static_cast<int>(g);
    });
    break;
  }
}

// For rows that ids name: all members name fewer rows, or name them by other ids, or one member
// names all rows.
void Mutator::names(const Place& place) {
  const auto* issue = std::get_if<Issue>(&get(place).body);
  if (issue == nullptr || !issue->named) return;
  if (!issue->named->rows[0].empty()) {
    add("name_fewer_rows", place, [all = partners(place)](Programs& p) {
      for (const Place& one : all) --std::get<Issue>(at(p, one).body).named->rows[0].size;
    });
  }
  add("name_by_other_ids", place, [place](Programs& p) {
    std::vector<View>& ids = std::get<Issue>(at(p, place).body).named->ids;
    std::swap(ids[0], ids[1]);
  });
  add("forget_names", place,
      [place](Programs& p) { std::get<Issue>(at(p, place).body).named.reset(); });
}

// Without a right wait, data in flight may be read or overwritten too early. A wait for a run
// before the first waits for nothing.
void Mutator::waits(const Place& place) {
  const auto* wait = std::get_if<Wait>(&get(place).body);
  if (wait == nullptr || wait->lag >= runs(place.rank, place.block)) return;
  add("drop_wait", place, [place](Programs& p) { erase(p, place); });
  add("wrong_wait", place,
      [place](Programs& p) { std::get<Wait>(at(p, place).body).handle += 1000003; });
}

// The rows that a step needs of a table are not fetched, or not all, or another table's are.
void Mutator::fetches(const Place& place) {
  const auto* fetch = std::get_if<FetchRows>(&get(place).body);
  if (fetch == nullptr || fetch->ahead) return;  // a step is right without rows that come ahead
  add("drop_fetch", place, [place](Programs& p) { erase_with_waits(p, place); });
  if (!fetch->ids.empty() && fetch->ids[0].view && fetch->ids[0].region.rank() > 0 &&
      fetch->ids[0].region.dims.back().size > 1) {
    add("fetch_fewer_rows", place, [place](Programs& p) {
      RowIds& ids = std::get<FetchRows>(at(p, place).body).ids[0];
      --ids.region.dims.back().size;
      --ids.view->box.dims.back().size;
    });
  }
  const auto caches = static_cast<int>(programs_[place.rank].caches.size());
  if (caches < 2) return;
  add("fetch_of_other_table", place, [place, caches](Programs& p) {
    int& cache = std::get<FetchRows>(at(p, place).body).cache;
    cache = (cache + 1) % caches;
  });
}

bool Mutator::touches_rows(const Place& place) const {
  const auto* compute = std::get_if<Compute>(&get(place).body);
  return compute != nullptr &&
         std::any_of(compute->outputs.begin(), compute->outputs.end(), [&](const Output& output) {
           return programs_[place.rank].buffer(output.view.buffer).places > 0;
         });
}

// Rows may leave while an op changes them, or stay for ever, or their change is forgotten.
void Mutator::releases(const Place& place) {
  const auto* release = std::get_if<ReleaseRows>(&get(place).body);
  if (release == nullptr) return;
  add("drop_release", place, [place](Programs& p) { erase(p, place); });
  add("release_of_another", place,
      [place](Programs& p) { std::get<ReleaseRows>(at(p, place).body).fetch += 1000003; });
  if (!release->changed) return;
  add("release_unchanged", place,
      [place](Programs& p) { std::get<ReleaseRows>(at(p, place).body).changed = false; });
  for (size_t i = place.index; i-- > 0;) {
    if (!touches_rows({place.rank, place.block, i})) continue;
    const auto& block = programs_[place.rank].block(place.block);
    const auto between = [&](const Instruction& one) {
      return std::holds_alternative<ReleaseRows>(one.body) ||
             std::holds_alternative<Compute>(one.body);
    };
    // The update whose rows it releases stands right before it.
    const bool next =
        std::none_of(block.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                     block.begin() + static_cast<std::ptrdiff_t>(place.index), between);
    if (next) {
      add("release_too_early", place, [place, i](Programs& p) {
        auto& instructions = p[place.rank].block(place.block);
        std::swap(instructions[i], instructions[place.index]);
      });
    }
    break;
  }
}

// Swaps a writer with the reader behind it, and the issues of two different collectives of one
// group on one rank.
void Mutator::order(const Place& place) {
  const auto& block = programs_[place.rank].block(place.block);
  const Instruction& first = block[place.index];
  const auto exchange = [&](const std::string& kind, size_t other) {
    add(kind, place, [place, other](Programs& p) {
      auto& instructions = p[place.rank].block(place.block);
      std::swap(instructions[place.index], instructions[other]);
    });
  };
  if (place.index + 1 < block.size()) {
    bool depends = false;
    for (const View& written : writes(first)) {
      for (const View& read : reads(block[place.index + 1])) {
        const bool both_add = adds_to(first, written) && adds_to(block[place.index + 1], read);
        depends = depends || (meet(written, read) && !both_add);
      }
    }
    if (depends) exchange("read_before_write", place.index + 1);
  }
  const auto* issue = std::get_if<Issue>(&first.body);
  if (issue == nullptr) return;
  for (size_t i = place.index + 1; i < block.size(); ++i) {
    const auto* next = std::get_if<Issue>(&block[i].body);
    if (next == nullptr || next->group != issue->group || block[i].when != first.when) continue;
    if (!next->transfers.empty() && !issue->transfers.empty() &&
        next->transfers[0].tensor != issue->transfers[0].tensor) {
      exchange("swap_collectives", i);
    }
    break;
  }
}

// A buffer is freed before it is read; or two operands of one compute lie at one place.
void Mutator::memory(const Place& place) {
  const Instruction& instruction = get(place);
  const std::vector<View> views = reads(instruction);
  if (views.empty()) return;
  const BufferId freed = views[0].buffer;
  add("free_too_early", place, [place, freed](Programs& p) {
    auto& block = p[place.rank].block(place.block);
    block.insert(block.begin() + static_cast<std::ptrdiff_t>(place.index),
                 Instruction{Free{freed}, block[place.index].when, {}});
  });
  const Program& program = programs_[place.rank];
  for (size_t i = 1; i < views.size(); ++i) {
    const Buffer &a = program.buffer(views[0].buffer), &b = program.buffer(views[i].buffer);
    if (a.id == b.id || a.tier != b.tier || a.offset < 0 || a.bytes() == 0 || b.bytes() == 0)
      continue;
    const BufferId moved = a.bytes() < b.bytes() ? a.id : b.id;  // stays inside the arena
    const int64_t offset = a.bytes() < b.bytes() ? b.offset : a.offset;
    add("overlapping_offset", place, [place, moved, offset](Programs& p) {
      p[place.rank].buffers[moved.index()].offset = offset;
    });
    break;
  }
}

// An arena ends a byte before its last buffer does; or a load fills a buffer in another tier than
// the device's, with room for it there.
void Mutator::arenas(size_t rank) {
  const Program& program = programs_[rank];
  for (size_t tier = 0; tier < program.arena_bytes.size(); ++tier) {
    if (program.arena_bytes[tier] == 0) continue;
    candidates("small_arena")
        .push_back({fmt::format("small_arena: rank {} {}", rank, tier_name(Tier(tier))),
                    [rank, tier](Programs& p) { --p[rank].arena_bytes[tier]; }});
  }
  for (const auto& [ref, block] : program.blocks) {
    for (const Instruction& instruction : block) {
      const auto* load = std::get_if<Load>(&instruction.body);
      if (load == nullptr || runs(rank, ref) == 0) continue;
      const size_t buffer = load->to.buffer.index();
      candidates("wrong_tier")
          .push_back(
              {fmt::format("wrong_tier: rank {} %{}", rank, buffer), [rank, buffer](Programs& p) {
                 p[rank].buffers[buffer].tier = Tier::kHost;
                 p[rank].arena_bytes[1] += p[rank].arena_bytes[0];
               }});
    }
  }
}

// A micro-batch is missing, or its backward pass comes before its forward pass.
void Mutator::schedules(size_t rank) {
  const auto& schedule = programs_[rank].schedule;
  for (size_t s = 0; s < schedule.size(); ++s) {
    if (programs_[rank].block(schedule[s].block).empty()) continue;
    const auto describe = [&](const std::string& kind) {
      return fmt::format("{}: rank {} {} {}", kind, rank, block_name(schedule[s].block),
                         schedule[s].micro_batch);
    };
    candidates("drop_run").push_back({describe("drop_run"), [rank, s](Programs& p) {
                                        auto& steps = p[rank].schedule;
                                        steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(s));
                                      }});
    if (schedule[s].block.kind != BlockKind::kForward) continue;
    for (size_t t = s + 1; t < schedule.size(); ++t) {
      if (schedule[t].block != BlockRef(BlockKind::kBackward, schedule[s].block.chunk)) continue;
      if (schedule[t].micro_batch != schedule[s].micro_batch) continue;
      candidates("backward_before_forward")
          .push_back({describe("backward_before_forward"), [rank, s, t](Programs& p) {
                        std::swap(p[rank].schedule[s], p[rank].schedule[t]);
                      }});
      break;
    }
  }
}

std::vector<Mutation> Mutator::apply(const std::set<std::string>& only) const {
  std::vector<Mutation> out;
  for (const auto& [kind, list] : kinds_) {
    if (!only.empty() && !only.contains(kind)) continue;
    const size_t count = std::min(per_kind_, list.size());
    for (size_t i = 0; i < count; ++i) {
      const Candidate& candidate = list[i * list.size() / count];
      Mutation mutation{kind, candidate.description, programs_};
      candidate.change(mutation.programs);
      out.push_back(std::move(mutation));
    }
  }
  return out;
}

}  // namespace mutating

std::vector<Mutation> mutations(const Graph& graph, const std::vector<Program>& programs,
                                size_t per_kind, const std::set<std::string>& only) {
  return mutating::Mutator(graph, programs, per_kind).run(only);
}

}  // namespace tessera
