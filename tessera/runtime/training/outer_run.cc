#include "tessera/runtime/training/outer_run.h"

#include <algorithm>
#include <set>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/program/communication.h"
#include "tessera/program/verify/verify.h"
#include "tessera/runtime/checkpoint/rescale.h"
#include "tessera/runtime/data/inputs.h"
#include "tessera/runtime/kernels/nest.h"

namespace tessera {
namespace {

// Returns those of the resting tensors that have these names.
std::vector<RestingTensor> only(std::vector<RestingTensor> state,
                                const std::vector<std::string>& names) {
  std::erase_if(state, [&](const RestingTensor& tensor) {
    return std::find(names.begin(), names.end(), tensor.name) == names.end();
  });
  return state;
}

// Returns the traffic that the rank sends in a step of the program.
Traffic sent_in_a_step(const Program& program, const Graph& graph) {
  Traffic sent;
  for (const auto& [kind, traffic] : volume(program, graph).by_kind) sent += traffic;
  return sent;
}

// Makes and verifies the programs of a fragment. A rank whose stage has no parameters of the fragment
// has an idle program.
Result<std::vector<Program>> fragment_programs(const Lowering& lowering, int64_t ranks) {
  std::vector<int32_t> role;
  lowering.roles(&role);
  std::vector<Program> programs;
  for (int rank = 0; rank < static_cast<int>(ranks); ++rank) {
    const auto r = static_cast<size_t>(rank);
    if (r >= role.size() || role[r] < 0) {
      programs.push_back(idle_program(rank, ranks));
      continue;
    }
    TESSERA_TRY(Program program, lowering.lower(rank));
    program.ranks = ranks;  // the lowering knows none behind the last that has a stage
    programs.push_back(std::move(program));
  }
  const std::vector<Rejection> rejections = verify(lowering.graph(), programs);
  if (!rejections.empty()) return check_failed(rejections.front().to_string());
  return programs;
}

}  // namespace

Result<OuterPrograms> make_outer_programs(const Compiled& compiled, std::vector<Program> inner) {
  OuterPrograms out;
  out.compiled = compiled.outer;
  const auto a_island = static_cast<std::ptrdiff_t>(inner.size());
  TESSERA_TRY(const auto inner_state, resting_state(compiled.graph(), inner));
  for (const OuterFragment& fragment : compiled.outer->fragments) {
    OuterPrograms::Fragment& made = out.fragments.emplace_back();
    TESSERA_TRY(made.programs, fragment_programs(*fragment.lowering, compiled.ranks()));
    // The islands are alike, so the moves of the first are those of each.
    const std::vector<Program> first(made.programs.begin(), made.programs.begin() + a_island);
    TESSERA_TRY(const auto outer_state, resting_state(fragment.lowering->graph(), first));
    const auto mine = only(inner_state, fragment.parameters);
    const auto theirs = only(outer_state, fragment.parameters);
    TESSERA_TRY(made.there, plan_move(mine, theirs));
    TESSERA_TRY(made.back, plan_move(theirs, mine));
  }
  out.inner = std::move(inner);
  return out;
}

OuterRun::OuterRun(const OuterPrograms& programs, const Graph& inner_graph,
                   comm::Communicator& world, comm::Communicator* island, const Program& own)
    : programs_(programs),
      inner_graph_(inner_graph),
      world_(world),
      island_(island),
      own_(own),
      steps_(programs.fragments.size(), 0) {
  for (const Home& home : own_.homes) {
    const Tensor& tensor = inner_graph.tensor(home.tensor);
    if (tensor.role == Role::kParameter) homes_[tensor.name].push_back(home);
  }
}

Result<std::unique_ptr<OuterRun>> OuterRun::create(const OuterPrograms& programs,
                                                   const Graph& inner_graph,
                                                   comm::Communicator& world,
                                                   comm::Communicator* island, const Program& own,
                                                   const ExecutorOptions& options) {
  std::unique_ptr<OuterRun> out(new OuterRun(programs, inner_graph, world, island, own));
  ExecutorOptions plain = options;
  plain.ahead = {};
  for (size_t f = 0; f < programs.fragments.size(); ++f) {
    const Graph& graph = programs.compiled->fragments[f].lowering->graph();
    const Program& program = programs.fragments[f].programs[static_cast<size_t>(world.rank())];
    TESSERA_TRY(auto executor, RankExecutor::create(graph, program, world, plain));
    executor->initialise();
    out->executors_.push_back(std::move(executor));
  }
  return out;
}

void OuterRun::resume(int64_t step, const RankExecutor& inner) {
  taken_.clear();
  const int64_t turns = step / rule().interval();  // outer steps of all fragments so far
  for (size_t f = 0; f < executors_.size(); ++f) {
    const auto before = static_cast<int64_t>(f);
    steps_[f] = turns > before ? (turns - before - 1) / rule().fragments + 1 : 0;
    if (step == 0 && island_ != nullptr) {
      move_state(*island_, programs_.fragments[f].there, inner, own_, *executors_[f], program(f));
    }
  }
}

// Keeps what the island has now of the fragment's parameters.
void OuterRun::take(size_t fragment, const RankExecutor& inner) {
  for (const std::string& name : programs_.compiled->fragments[fragment].parameters) {
    if (const auto home = homes_.find(name); home != homes_.end())
      taken_[name] = inner.read(home->second.front());
  }
}

// Writes the region of `local.w`, whose first dim is the island, from what was taken.
void OuterRun::load(size_t fragment, const Tensor& tensor, const Box& region,
                    const kernels::Array& to) const {
  if (tensor.init.kind == Init::Kind::kLearningRate) return load_scalar(rule().lr, to);
  if (tensor.init.kind == Init::Kind::kStep) {
    return load_scalar(static_cast<double>(steps_[fragment]), to);
  }
  if (region.empty()) return;
  const HostArray& taken = taken_.at(tensor.name.substr(kLocalPrefix.size()));
  Box box = region;
  box.dims.erase(box.dims.begin());
  TESSERA_CHECK(region.dims.front().size == 1, "a rank loads {} islands", region.to_string());
  // This cast is safe: the data is only read.
  auto* data = const_cast<std::byte*>(taken.data.data());  // NOLINT
  std::vector<int64_t> strides = to.strides;
  strides.erase(strides.begin());
  comm::copy_region(taken.dtype, {data, taken.region, row_major_strides(taken.region.shape())},
                    {to.data, box, std::move(strides)}, box);
}

void OuterRun::step(size_t fragment, RankExecutor& inner) {
  const OuterPrograms::Fragment& made = programs_.fragments[fragment];
  const OuterFragment& compiled = programs_.compiled->fragments[fragment];
  const Program& own = program(fragment);
  RankExecutor& outer = *executors_[fragment];
  ++steps_[fragment];
  outer.run_step(steps_[fragment],
                 [&](const Tensor& tensor, const Box& region, const kernels::Array& to) {
                   load(fragment, tensor, region, to);
                 });
  predicted_ += sent_in_a_step(own, compiled.lowering->graph());
  // The island's own parameters, which are mixed with the new ones.
  std::map<std::string, HostArray> kept;
  if (rule().mix > 0) {
    for (const std::string& name : compiled.parameters) {
      if (const auto home = homes_.find(name); home != homes_.end())
        kept[name] = inner.read(home->second.front());
    }
  }
  move_state(*island_, made.back, outer, own, inner, own_);
  predicted_ += made.back.sent[static_cast<size_t>(island_->rank())];
  for (auto& [name, mine] : kept) {
    HostArray both = inner.read(homes_.at(name).front());
    for (int64_t i = 0; i < mine.region.volume(); ++i) {
      const int64_t at = i * dtype_bytes(mine.dtype);
      const auto local = kernels::load_element<double>(mine.data.data() + at, mine.dtype);
      const auto common = kernels::load_element<double>(both.data.data() + at, both.dtype);
      kernels::store_element(both.data.data() + at, both.dtype,
                             rule().mix * local + (1 - rule().mix) * common);
    }
    for (const Home& home : homes_.at(name)) inner.write(home, both);
  }
}

void OuterRun::after_step(int64_t step, RankExecutor& inner) {
  if (island_ == nullptr) return;
  const int64_t interval = rule().interval();
  const auto turn = [&](int64_t at) {
    return static_cast<size_t>((at / interval - 1) % rule().fragments);
  };
  if ((step + rule().delay) % interval == 0) take(turn(step + rule().delay), inner);
  if (step % interval != 0) return;
  const size_t fragment = turn(step);
  OuterRun::step(fragment, inner);
  for (const std::string& name : programs_.compiled->fragments[fragment].parameters)
    taken_.erase(name);
}

HostArray OuterRun::common(const std::string& parameter) const {
  for (size_t f = 0; f < executors_.size(); ++f) {
    const Graph& graph = programs_.compiled->fragments[f].lowering->graph();
    for (const Home& home : program(f).homes) {
      if (graph.tensor(home.tensor).name == parameter) return executors_[f]->read(home);
    }
  }
  return {};
}

bool OuterRun::lossy() const {
  return std::any_of(programs_.fragments.begin(), programs_.fragments.end(),
                     [&](const OuterPrograms::Fragment& fragment) {
                       return is_lossy(fragment.programs[static_cast<size_t>(world_.rank())]);
                     });
}

std::array<int64_t, 3> OuterRun::arena_bytes() const {
  std::array<int64_t, 3> out{};
  for (const OuterPrograms::Fragment& fragment : programs_.fragments) {
    const Program& program = fragment.programs[static_cast<size_t>(world_.rank())];
    for (size_t tier = 0; tier < out.size(); ++tier) out[tier] += program.arena_bytes[tier];
  }
  return out;
}

}  // namespace tessera
