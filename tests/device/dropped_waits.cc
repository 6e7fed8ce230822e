#include "dropped_waits.h"

#include <fmt/format.h>

#include <chrono>
#include <map>

#include "support/compiled.h"
#include "tessera/comm/communicator.h"
#include "tessera/models/model.h"
#include "tessera/runtime/inputs.h"
#include "tessera/runtime/interpreter.h"

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

}  // namespace

Status drop_waits(const std::string& model_text, int64_t batch, const std::string& plan, int ranks,
                  int seeds, DroppedWaits& into) {
  TESSERA_TRY(const Model model, build_model(model_text, batch));
  OptimizerSpec optimizer;
  optimizer.kind = "adamw";
  TESSERA_TRY(CompiledPlan compiled, compile_graph(model.graph, plan, optimizer));
  std::vector<Program>& programs = compiled.programs;
  const Graph& graph = compiled.graph();
  TESSERA_TRY(const State expected, state_after(model, graph, programs, "cpu"));
  TESSERA_TRY(const State whole, state_after(model, graph, programs, "test"));
  if (whole != expected) return fault("the device computes something else than the processor");
  for (size_t rank = 0; rank < programs.size() && static_cast<int>(rank) < ranks; ++rank) {
    const int64_t before = into.dropped;
    for (auto& [ref, block] : programs[rank].blocks) {
      for (size_t i = 0; i < block.size(); ++i) {
        if (!std::holds_alternative<Wait>(block[i].body)) continue;
        const Instruction wait = block[i];
        block.erase(block.begin() + static_cast<std::ptrdiff_t>(i));
        bool seen = false;
        for (int seed = 1; seed <= seeds && !seen; ++seed) {
          const auto found =
              state_after(model, graph, programs, fmt::format("test(seed={})", seed));
          seen = !found || *found != expected;
        }
        block.insert(block.begin() + static_cast<std::ptrdiff_t>(i), wait);
        ++into.dropped;
        into.seen += seen ? 1 : 0;
        if (!seen) {
          into.unseen.push_back(fmt::format("{} under {}: rank {}, {}, wait #{} (instruction {})",
                                            model_text, plan, rank, block_name(ref),
                                            std::get<Wait>(wait.body).handle, i));
        }
      }
    }
    into.programs += into.dropped > before ? 1 : 0;
  }
  return {};
}

}  // namespace tessera
