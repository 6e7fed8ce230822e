// tessera train: the options.
#include <memory>

#include "tessera/cli/cli.h"
#include "tessera/cli/run_commands.h"

namespace tessera::cli {

void add_train(CLI::App& app, Action& action) {
  const auto options = std::make_shared<TrainOptions>();
  CLI::App* command = app.add_subcommand("train", "Train a model as a run file says");
  command->add_option("RUN.toml", options->run_file, "Run file (docs/reference/run-config.md)")
      ->required();
  command->add_option("--plan", options->plan, "Plan file or recipe call, instead of the run's");
  command->add_option("--ranks", options->ranks, "Number of ranks; must be the plan's")
      ->check(at_least(1));
  command->add_option("--steps", options->steps, "Number of steps, instead of the run's")
      ->check(at_least(1));
  command
      ->add_option("--set", options->assignments, "Set a key of the run: --set optimizer.lr=3e-4")
      ->allow_extra_args(false);
  command
      ->add_option("--timeout", options->timeout_s,
                   "Seconds that a rank waits for others before it gives up")
      ->check(at_least(0.001));
  command->add_flag("--json", options->json, "One JSON object a line: steps, then a summary");
  command->add_option("--trace", options->trace,
                      "Record a step and write it as a Chrome trace (docs/reference/traces.md)");
  command->add_option("--trace-step", options->trace_step, "Which step; default 3")
      ->check(at_least(1));
  command->footer(
      "Ranks are threads of this process, or the processes of mpirun.\n\n"
      "Examples:\n"
      "  tessera train examples/gpt_small.toml --plan 'megatron(tp=2,dp=2)' --steps 100\n"
      "  mpirun -n 4 tessera train examples/gpt_small.toml --plan examples/plans/tp2_dp2.toml\n");
  command->callback([options, &action] { action = [options] { return run_train(*options); }; });
}

}  // namespace tessera::cli
