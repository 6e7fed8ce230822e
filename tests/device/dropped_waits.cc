#include "dropped_waits.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <set>
#include <variant>

#include "support/compiled.h"
#include "tessera/comm/communicator.h"
#include "tessera/models/model.h"
#include "tessera/runtime/data/inputs.h"
#include "tessera/runtime/step/interpreter.h"

namespace tessera {
namespace {

constexpr int64_t kSteps = 2;

// The bytes of all homes and fetches of all ranks after the last step.
using State = std::vector<std::vector<std::vector<std::byte>>>;

Result<State> state_after(const Model& model, const Graph& graph,
                          const std::vector<Program>& programs, const std::string& device) {
  State state(programs.size());
  comm::Options options;
  options.timeout = std::chrono::seconds(20);
  TESSERA_TRY_VOID(
      comm::run_threads(static_cast<int>(programs.size()), options, [&](comm::Communicator& world) {
        const auto rank = static_cast<size_t>(world.rank());
        const Program& program = programs[rank];
        ExecutorOptions executed{.seed = 1, .device = device};
        const auto input = [&](int64_t step, const Tensor& tensor, const Box& region,
                               const kernels::Array& to) {
          if (tensor.init.kind == Init::Kind::kLearningRate) return load_scalar(1e-2, to);
          if (tensor.init.kind == Init::Kind::kStep)
            return load_scalar(static_cast<double>(step), to);
          load_random(model, 1, step, tensor, region, to);
        };
        executed.ahead = input;
        auto executor = RankExecutor::create(graph, program, world, executed);
        if (!executor) throw comm::CommFault{executor.error().message};
        (*executor)->initialise();
        for (int64_t step = 1; step <= kSteps; ++step) {
          (*executor)->run_step(
              step, [&](const Tensor& tensor, const Box& region, const kernels::Array& to) {
                input(step, tensor, region, to);
              });
        }
        for (const auto* homes : {&program.homes, &program.fetches}) {
          for (const Home& home : *homes) {
            if (!home.region.empty()) state[rank].push_back((*executor)->read(home).data);
          }
        }
      }));
  return state;
}

std::set<int> handles_of_sends(const Program& program) {
  std::set<int> handles;
  for (const auto& [ref, block] : program.blocks) {
    for (const Instruction& instruction : block) {
      if (const auto* send = std::get_if<Send>(&instruction.body)) handles.insert(send->handle);
    }
  }
  return handles;
}

}  // namespace

Status drop_waits(const std::string& model_text, int64_t batch, const std::string& plan,
                  int64_t most, int seeds, DroppedWaits& into) {
  TESSERA_TRY(const Model model, build_model(model_text, batch));
  OptimizerSpec optimizer;
  optimizer.kind = "adamw";
  TESSERA_TRY(CompiledPlan compiled, compile_graph(model.graph, plan, optimizer));
  std::vector<Program>& programs = compiled.programs;
  const Graph& graph = compiled.graph();
  TESSERA_TRY(const State expected, state_after(model, graph, programs, "cpu"));
  TESSERA_TRY(const State whole, state_after(model, graph, programs, "test"));
  if (whole != expected) return fault("the device computes something else than the processor");
  Program& program = programs[0];
  const std::set<int> sends = handles_of_sends(program);
  std::vector<std::pair<BlockRef, size_t>> waits;
  for (const auto& [ref, block] : program.blocks) {
    for (size_t i = 0; i < block.size(); ++i) {
      if (std::holds_alternative<Wait>(block[i].body)) waits.emplace_back(ref, i);
    }
  }
  const auto all = std::ssize(waits), chosen = std::min<int64_t>(all, most);
  for (int64_t n = 0; n < chosen; ++n) {
    const auto& [ref, i] = waits[static_cast<size_t>(n * all / chosen)];
    std::vector<Instruction>& block = program.block(ref);
    const auto at = block.begin() + static_cast<std::ptrdiff_t>(i);
    const Instruction wait = *at;
    block.erase(at);
    bool seen = false;
    for (int seed = 1; seed <= seeds && !seen; ++seed) {
      const auto found = state_after(model, graph, programs, fmt::format("test(seed={})", seed));
      seen = !found || *found != expected;
    }
    block.insert(block.begin() + static_cast<std::ptrdiff_t>(i), wait);
    const int handle = std::get<Wait>(wait.body).handle;
    const bool of_send = sends.contains(handle);
    ++(of_send ? into.of_sends : into.dropped);
    if (seen) {
      ++(of_send ? into.of_sends_seen : into.seen);
    } else {
      into.unseen.push_back(fmt::format("{} under {}: {}, wait #{} (instruction {})", model_text,
                                        plan, block_name(ref), handle, i));
    }
  }
  into.programs += chosen > 0 ? 1 : 0;
  return {};
}

}  // namespace tessera
