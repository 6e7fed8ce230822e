// Faults of counting that make no rank fail and no value differ between ranks, so that a run shows
// nothing but a model that learns worse: a factor that depends on the number of ranks, an addend
// that is taken twice, a sum over a group on which the value was whole. Every rank makes the same
// fault, as a framework's would.
#include <algorithm>
#include <iterator>
#include <optional>

#include "support/mutator.h"
#include "tessera/graph/kinds.h"
#include "tessera/program/instructions.h"

namespace tessera::mutating {
namespace {

// No program of the tests has so many handles.
constexpr int kNewHandle = 2000003;

// Calls change(compute) for every compute of the op, on all ranks.
template <class ChangeOfCompute>
void on_all_ranks(Programs& programs, OpId op, const ChangeOfCompute& change) {
  for (Program& program : programs) {
    for (auto& [ref, block] : program.blocks) {
      for (Instruction& instruction : block) {
        auto* compute = std::get_if<Compute>(&instruction.body);
        if (compute != nullptr && compute->op == op) change(*compute);
      }
    }
  }
}

// Inserts change(instruction), if it makes one, behind every compute of the op, on all ranks.
template <class Make>
void insert_behind(Programs& programs, OpId op, const Make& make) {
  for (Program& program : programs) {
    for (auto& [ref, block] : program.blocks) {
      for (size_t i = 0; i < block.size(); ++i) {
        const auto* compute = std::get_if<Compute>(&block[i].body);
        if (compute == nullptr || compute->op != op) continue;
        Instruction again = block[i];
        if (!make(std::get<Compute>(again.body))) continue;
        ++i;
        block.insert(block.begin() + static_cast<std::ptrdiff_t>(i), std::move(again));
      }
    }
  }
}

// Inserts behind a place a collective that sums the views in place, and the wait for it.
void insert_sum(Programs& programs, const Place& behind, Issue issue) {
  auto& block = programs[behind.rank].block(behind.block);
  const When when = block[behind.index].when;
  const OpId cause = block[behind.index].cause;
  issue.handle = kNewHandle;
  const auto next = block.begin() + static_cast<std::ptrdiff_t>(behind.index) + 1;
  block.insert(next, {Instruction{std::move(issue), when, cause},
                      Instruction{Wait{kNewHandle, 0}, when, cause}});
}

// Returns the input on which the op can be run once more with its own result, so that the outcome
// is another: a factor other than 1 is applied twice, or an addend is added twice.
std::optional<size_t> repeats_on(const Compute& compute, const Op& op) {
  if (!is_linear(op) || compute.box.empty() || compute.outputs[0].write != Write::kSet) return {};
  const bool factor = std::any_of(op.attributes.begin(), op.attributes.end(), [](const auto& one) {
    const auto* number = std::get_if<double>(&one.second);
    return number != nullptr && *number != 1 && *number != 0;
  });
  if (!factor && op.inputs.size() < 2) return {};
  for (size_t i = 0; i < compute.inputs.size(); ++i) {
    if (compute.inputs[i].box.shape() == compute.outputs[0].view.box.shape()) return i;
  }
  return {};
}

}  // namespace

// A constant is multiplied by, or divided by, the number of ranks of a group: a loss, or a loss of
// the router, that every member scales, or a mean that is divided by too many.
void Mutator::factors(const Place& place) {
  const auto* compute = std::get_if<Compute>(&get(place).body);
  if (compute == nullptr) return;
  std::set<size_t> sizes;
  for (const Group& group : programs_[place.rank].groups) sizes.insert(group.members.size());
  for (const auto& [name, value] : compute->attributes) {
    const auto* number = std::get_if<double>(&value);
    if (number == nullptr || *number == 0) continue;
    for (const size_t size : sizes) {
      if (size < 2) continue;
      for (const bool times : {true, false}) {
        const double wrong =
            times ? *number * static_cast<double>(size) : *number / static_cast<double>(size);
        add("factor_of_group", place, [op = compute->op, key = name, wrong](Programs& p) {
          on_all_ranks(p, op, [&](Compute& one) { one.attributes[key] = wrong; });
        });
      }
    }
  }
}

// An addend of a sum stands for another one too, or is added once more, or a factor is applied once
// more: a tied table's gradient of which one part counts twice, a loss that is scaled twice.
void Mutator::addends(const Place& place) {
  const auto* compute = std::get_if<Compute>(&get(place).body);
  if (compute == nullptr || !matters(place)) return;
  const Op& op = graph_.op(compute->op);
  if (const auto input = repeats_on(*compute, op)) {
    add("apply_again", place, [op = compute->op, i = *input](Programs& p) {
      insert_behind(p, op, [&](Compute& again) {
        if (again.outputs[0].write != Write::kSet) return false;
        again.inputs[i] = again.outputs[0].view;
        return true;
      });
    });
  }
  if (is_linear(op) && op.inputs.size() > 1 && compute->inputs.size() == op.inputs.size() &&
      op.inputs[0] != op.inputs[1] && !compute->box.empty()) {
    for (const size_t kept : {0, 1}) {
      add("addend_twice", place, [op = compute->op, kept](Programs& p) {
        on_all_ranks(p, op, [&](Compute& one) { one.inputs[1 - kept] = one.inputs[kept]; });
      });
    }
  }
  if (compute->outputs[0].write == Write::kAdd && !compute->box.empty()) {
    add("add_again", place, [op = compute->op](Programs& p) {
      insert_behind(p, op, [](Compute& again) { return again.outputs[0].write == Write::kAdd; });
    });
  }
}

// The members of a group that all make the same value sum it over the group, as if each had a part.
void Mutator::sums(const Place& place) {
  const auto* compute = std::get_if<Compute>(&get(place).body);
  if (compute == nullptr || !matters(place) || compute->box.empty()) return;
  const Op& op = graph_.op(compute->op);
  for (size_t o = 0; o < compute->outputs.size(); ++o) {
    const Output& output = compute->outputs[o];
    const Buffer& buffer = programs_[place.rank].buffer(output.view.buffer);
    if (output.view.box.empty() || buffer.tier != Tier::kDevice || buffer.places > 0 ||
        op.annotation.outputs[o].combiner != Combiner::kSum ||
        used_[place.rank].count(buffer.id) == 0) {
      continue;
    }
    for (const Group& group : programs_[place.rank].groups) {
      if (group.members.size() < 2 || group.index != 0) continue;
      std::vector<Place> all;
      for (const int member : group.members) {
        const auto r = static_cast<size_t>(member);
        const auto& block = programs_[r].block(place.block);
        const auto same = std::find_if(block.begin(), block.end(), [&](const Instruction& one) {
          const auto* other = std::get_if<Compute>(&one.body);
          return other != nullptr && other->op == op.id && other->box == compute->box &&
                 one.when == get(place).when;
        });
        if (same != block.end())
          all.push_back({r, place.block, static_cast<size_t>(same - block.begin())});
      }
      if (all.size() < group.members.size()) continue;
      const Box region = project(op.annotation, op.annotation.outputs[o], compute->box);
      const std::vector<Box> everywhere(group.members.size(), region);
      add("sum_of_whole", place,
          [all, o, everywhere, members = group.members, tensor = output.tensor,
           dtype = buffer.dtype](Programs& p) {
            for (const Place& one : all) {
              const Program& program = p[one.rank];
              const View view = std::get<Compute>(at(p, one).body).outputs[o].view;
              const auto own =
                  std::find_if(program.groups.begin(), program.groups.end(),
                               [&](const Group& any) { return any.members == members; });
              Issue issue;
              issue.group = static_cast<int>(own - program.groups.begin());
              issue.kind = CollectiveKind::kAllReduce;
              issue.combiner = Combiner::kSum;
              issue.dtype = dtype;
              issue.transfers = {{tensor, everywhere, everywhere, view, view}};
              insert_sum(p, one, std::move(issue));
            }
          });
    }
  }
}

// Returns the place of the wait for the collective, if it is in the same block, or if both run once
// a step.
std::optional<Place> Mutator::awaited(const Place& issue) const {
  const Instruction& instruction = get(issue);
  const bool runs_once = instruction.when == When::kLast || runs(issue.rank, issue.block) == 1;
  for (const auto& [ref, block] : programs_[issue.rank].blocks) {
    if (ref != issue.block && !(ref.once() && runs_once)) continue;
    for (size_t i = 0; i < block.size(); ++i) {
      const auto* wait = std::get_if<Wait>(&block[i].body);
      if (wait == nullptr || wait->handle != handle_of(instruction) || wait->lag != 0) continue;
      return Place{issue.rank, ref, i};
    }
  }
  return {};
}

// The result of a sum over a group is summed over the group once more.
void Mutator::reductions(const Place& place) {
  const auto* issue = std::get_if<Issue>(&get(place).body);
  if (issue == nullptr || issue->kind != CollectiveKind::kAllReduce ||
      issue->combiner != Combiner::kSum) {
    return;
  }
  std::vector<std::pair<Place, Place>> all;  // the issue and where its result is there, by member
  for (const Place& one : partners(place)) {
    const auto there = awaited(one);
    if (!there) return;
    all.emplace_back(one, *there);
  }
  for (size_t t = 0; t < issue->transfers.size(); ++t) {
    add(
        "reduce_again", place,
        [all, t](Programs& p) {
          std::vector<Issue> again;
          for (const auto& [one, there] : all) {
            again.push_back(std::get<Issue>(at(p, one).body));
            Transfer transfer = again.back().transfers[t];
            transfer.hold = transfer.need;
            transfer.in = transfer.out;
            again.back().transfers = {std::move(transfer)};
            again.back().codec.reset();
            again.back().residual.reset();
          }
          for (size_t m = 0; m < all.size(); ++m) insert_sum(p, all[m].second, std::move(again[m]));
        },
        graph_.tensor(issue->transfers[t].tensor).name);
  }
}

}  // namespace tessera::mutating
