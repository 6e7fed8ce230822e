// Measures the time of planning, step by step: model text -> graph -> resolved plan -> programs of
// all roles.
//
//   lowering_benchmark [repetitions] [MODEL PLAN BATCH]
#include <fmt/format.h>

#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "tessera/models/model.h"
#include "tessera/plan/load.h"
#include "tessera/plan/prepare.h"
#include "tessera/program/lower.h"

namespace {

using tessera::Result;

struct Case {
  std::string model, plan;
  int64_t batch;
};

struct Clock {  // of the processor: other programs beside do not count
  std::clock_t last = std::clock();
  double lap() {
    const std::clock_t now = std::clock();
    const double ms = 1e3 * static_cast<double>(now - last) / CLOCKS_PER_SEC;
    last = now;
    return ms;
  }
};

// Returns the milliseconds of each step: build, load, training graph, prepare, lowering, programs.
Result<std::vector<double>> plan_once(const Case& what, size_t& instructions) {
  std::vector<double> ms;
  Clock clock;
  TESSERA_TRY(const tessera::Model model, tessera::build_model(what.model, what.batch));
  ms.push_back(clock.lap());
  TESSERA_TRY(const tessera::Plan plan, tessera::load_plan(what.plan, model.graph));
  ms.push_back(clock.lap());
  TESSERA_TRY(tessera::Graph graph,
              tessera::training_graph(model.graph, plan, plan.precision, tessera::OptimizerSpec{}));
  ms.push_back(clock.lap());
  TESSERA_TRY(tessera::Prepared prepared, tessera::prepare(std::move(graph), plan));
  ms.push_back(clock.lap());
  auto shared = std::make_shared<const tessera::Graph>(std::move(prepared.graph));
  TESSERA_TRY(const tessera::Lowering lowering,
              tessera::Lowering::create(std::move(shared), std::move(prepared.plan)));
  ms.push_back(clock.lap());
  for (const tessera::RankClass& role : lowering.roles()) {
    TESSERA_TRY(const tessera::Program program, lowering.lower(role.representative));
    for (const auto& [block, list] : program.blocks) instructions += list.size();
  }
  ms.push_back(clock.lap());
  return ms;
}

}  // namespace

int main(int argc, char** argv) {
  const int repetitions = argc > 1 ? std::atoi(argv[1]) : 1;
  std::vector<Case> cases = {
      {"gpt:layers=96,hidden=12288,heads=96,seq=2048,vocab=51200",
       "megatron(tp=8,pp=16,dp=8,micro_batches=64)", 512},
      {"gpt:layers=24,hidden=2048,heads=16,seq=2048,vocab=51200", "fsdp(64)", 64},
  };
  if (argc > 4) cases = {{argv[2], argv[3], std::atoll(argv[4])}};
  fmt::print("build load train prepare lower programs | total ms, instructions\n");
  for (const Case& what : cases) {
    for (int r = 0; r < repetitions; ++r) {
      size_t instructions = 0;
      const auto ms = plan_once(what, instructions);
      if (!ms) {
        fmt::print(stderr, "error: {}\n", ms.error().message);
        return 2;
      }
      double total = 0;
      for (const double step : *ms) {
        fmt::print("{:7.2f} ", step);
        total += step;
      }
      fmt::print("| {:8.2f} {} {}\n", total, instructions, what.plan);
    }
  }
  return 0;
}
