#include "tessera/runtime/outer_run.h"

#include <algorithm>
#include <set>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/program/communication.h"
#include "tessera/program/verify.h"
#include "tessera/runtime/inputs.h"
#include "tessera/runtime/kernels/nest.h"
#include "tessera/runtime/rescale.h"

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

}  // namespace

Result<OuterPrograms> make_outer_programs(const Compiled& compiled, std::vector<Program> inner) {
  OuterPrograms out;
  out.compiled = compiled.outer;
  const auto a_island = static_cast<std::ptrdiff_t>(inner.size());
  TESSERA_TRY(const auto inner_state, resting_state(compiled.graph(), inner));
  for (const OuterFragment& fragment : compiled.outer->fragments) {
    OuterPrograms::Fragment& made = out.fragments.emplace_back();
    TESSERA_TRY(made.programs, lower_and_verify(*fragment.lowering));
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
                   comm::Communicator& world, comm::Communicator& island)
    : programs_(programs),
      inner_graph_(inner_graph),
      world_(world),
      island_(island),
      steps_(programs.fragments.size(), 0) {
  for (const Home& home : inner_program().homes) {
    const Tensor& tensor = inner_graph.tensor(home.tensor);
    if (tensor.role == Role::kParameter) homes_[tensor.name].push_back(home);
  }
}

Result<std::unique_ptr<OuterRun>> OuterRun::create(const OuterPrograms& programs,
                                                   const Graph& inner_graph,
                                                   comm::Communicator& world,
                                                   comm::Communicator& island,
                                                   const ExecutorOptions& options) {
  std::unique_ptr<OuterRun> out(new OuterRun(programs, inner_graph, world, island));
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

void OuterRun::begin(const RankExecutor& inner) {
  for (size_t f = 0; f < executors_.size(); ++f) {
    const OuterPrograms::Fragment& fragment = programs_.fragments[f];
    move_state(island_, fragment.there, inner, inner_program(), *executors_[f],
               fragment.programs[static_cast<size_t>(world_.rank())]);
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
  const Program& program = made.programs[static_cast<size_t>(world_.rank())];
  RankExecutor& outer = *executors_[fragment];
  ++steps_[fragment];
  outer.run_step(steps_[fragment],
                 [&](const Tensor& tensor, const Box& region, const kernels::Array& to) {
                   load(fragment, tensor, region, to);
                 });
  predicted_ += sent_in_a_step(program, compiled.lowering->graph());
  // The island's own parameters, which are mixed with the new ones.
  std::map<std::string, HostArray> own;
  if (rule().mix > 0) {
    for (const std::string& name : compiled.parameters) {
      if (const auto home = homes_.find(name); home != homes_.end())
        own[name] = inner.read(home->second.front());
    }
  }
  move_state(island_, made.back, outer, program, inner, inner_program());
  predicted_ += made.back.sent[static_cast<size_t>(island_.rank())];
  for (auto& [name, mine] : own) {
    HostArray both = inner.read(homes_.at(name).front());
    for (int64_t i = 0; i < mine.region.volume(); ++i) {
      const int64_t at = i * dtype_bytes(mine.dtype);
      const auto kept = kernels::load_element<double>(mine.data.data() + at, mine.dtype);
      const auto common = kernels::load_element<double>(both.data.data() + at, both.dtype);
      kernels::store_element(both.data.data() + at, both.dtype,
                             rule().mix * kept + (1 - rule().mix) * common);
    }
    for (const Home& home : homes_.at(name)) inner.write(home, both);
  }
}

void OuterRun::after_step(int64_t step, RankExecutor& inner) {
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
