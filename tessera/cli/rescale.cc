// tessera rescale: simulates a run whose plan changes between two steps.
#include <fmt/format.h>

#include <memory>

#include "tessera/cli/cli.h"
#include "tessera/cli/libraries/run_commands.h"

namespace tessera::cli {
namespace {

struct RescaleOptions {
  TrainOptions train;
  int64_t at = 0;
  std::string to;
};

}  // namespace

void add_rescale(Commands& commands) {
  const auto options = std::make_shared<RescaleOptions>();
  Command command = commands.add(
      "rescale", "Train, and go on under another plan or on other ranks between two steps");
  command.option("RUN.toml", options->train.run_file, "Run file").required();
  command.option("--at", options->at, "The step after which the plan changes")
      .required()
      .at_least(1);
  command.option("--to", options->to, "Plan file, recipe call, or auto, of the further steps")
      .required();
  command.option("--plan", options->train.plan, "Plan of the first steps, instead of the run's");
  command.option("--steps", options->train.steps, "Number of steps, instead of the run's")
      .at_least(1);
  command
      .option("--set", options->train.assignments, "Set a key of the run: --set optimizer.lr=3e-4")
      .one_value_each();
  command.flag("--json", options->train.json, "One JSON object a line");
  command.footer(
      "The state moves over the communicator, without a file. Under mpirun there are as many\n"
      "processes as the larger plan has ranks; the others are idle under the smaller one. The same "
      "as\n'tessera train RUN.toml --change STEP:PLAN'; 'tessera verify --change' proves it equal "
      "to the\nserial run.\n\n"
      "Example:\n"
      "  tessera rescale examples/gpt_small.toml --at 50 --to 'megatron(tp=2,dp=2)'\n");
  command.action([options] {
    TrainOptions train = options->train;
    train.changes.push_back(fmt::format("{}:{}", options->at, options->to));
    return run_train(train);
  });
}

}  // namespace tessera::cli
