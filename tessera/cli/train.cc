// tessera train: defines its options.
#include <memory>

#include "tessera/cli/cli.h"
#include "tessera/cli/libraries/run_commands.h"

namespace tessera::cli {

void add_train(Commands& commands) {
  const auto options = std::make_shared<TrainOptions>();
  Command command = commands.add("train", "Train a model as a run file says");
  command.option("RUN.toml", options->run_file, "Run file (docs/reference/run-config.md)")
      .required();
  command.option("--plan", options->plan,
                 "Plan file, recipe call, or auto, instead of the run's plan and its changes");
  command
      .option("--change", options->changes,
              "Go on under another plan after so many steps, as 50:'data_parallel(2)'")
      .one_value_each();
  command.option("--steer", options->steer,
                 "File that another program writes: {\"plan\": P} or {\"stop\": true}");
  command
      .option("--ranks", options->ranks,
              "Number of ranks; must be the plan's, or with --steer the most of any plan")
      .ranks();
  command.option("--steps", options->steps, "Number of steps, instead of the run's").at_least(1);
  command.option("--set", options->assignments, "Set a key of the run: --set optimizer.lr=3e-4")
      .one_value_each();
  command
      .option("--timeout", options->timeout_s,
              "Seconds that a rank waits for others before it gives up")
      .at_least(0.001);
  command.flag(
      "--resume", options->resume,
      "Continue from the newest whole checkpoint of checkpoint.dir; begin if there is none");
  command.option("--device", options->device,
                 "Device of the ranks, instead of the run's: cpu, cuda, test or "
                 "stand-in (docs/reference/devices.md)");
  command.option("--network", options->network,
                 "Cluster file of the network: ranks get the processes with which the plan's "
                 "traffic is fastest (tessera order)");
  command.option("--hosts", options->hosts,
                 "With --network: file with the hosts in the launcher's order, one a line, where "
                 "processes do not see their names");
  command.flag("--json", options->json, "One JSON object a line: steps, then a summary");
  command.option("--trace", options->trace,
                 "Record a step and write it as a Chrome trace (docs/reference/traces.md)");
  command.option("--trace-step", options->trace_step, "Which step; default 3").at_least(1);
  command.footer(
      "Ranks are threads of this process, or the processes of mpirun.\n"
      "With --steer the file is looked at before each step. A plan in it takes effect after that\n"
      "step, without a restart; to stop, the run writes a checkpoint and ends.\n\n"
      "Examples:\n"
      "  tessera train examples/gpt_small.toml --plan 'megatron(tp=2,dp=2)' --steps 100\n"
      "  mpirun -n 4 tessera train examples/gpt_small.toml --plan examples/plans/tp2_dp2.toml\n");
  command.action([options] { return run_train(*options); });
}

}  // namespace tessera::cli
