// tessera launch: defines its options.
#include <memory>

#include "tessera/cli/cli.h"
#include "tessera/cli/libraries/run_commands.h"

namespace tessera::cli {

void add_launch(Commands& commands) {
  const auto options = std::make_shared<LaunchOptions>();
  Command command = commands.add(
      "launch", "Train as a run file says, and go on after a loss from its checkpoint");
  command.option("RUN.toml", options->run_file, "Run file with checkpoint.dir").required();
  command
      .option("-n,--ranks", options->ranks,
              "Processes that may be started; default: none, ranks are threads of one process")
      .ranks();
  command
      .option("--plan", options->plans,
              "A plan, in order of preference: the first one that needs no more ranks than there "
              "are is taken; default: the run's")
      .one_value_each();
  command
      .option("--host", options->hosts,
              "A host and its ranks, as node3:8; hosts that do not answer are left out")
      .one_value_each();
  command
      .option("--tries", options->tries,
              "Losses in a row without a new checkpoint after which a plan is given up; default 3")
      .at_least(1);
  command.option("--log", options->log,
                 "JSON lines of what happened; default: launch.jsonl in checkpoint.dir");
  command.option("--network", options->network,
                 "Cluster file of the network: ranks get the processes with which the plan's "
                 "traffic is fastest (tessera order)");
  command.option("--set", options->assignments, "Set a key of the run: --set optimizer.lr=3e-4")
      .one_value_each();
  command.footer(
      "Starts the processes by mpirun, or by srun where Slurm has given the job its nodes. A try "
      "that\nends with exit code 1 or 2 is not repeated. What is tried when: docs/guides/survive.md"
      "\n\nExamples:\n"
      "  tessera launch run.toml\n"
      "  tessera launch run.toml --host a:4 --host b:4 --network net.toml\n"
      "  tessera launch run.toml -n 4 --plan 'megatron(tp=2,dp=2)' --plan 'tensor_parallel(2)'\n");
  command.action([options] { return run_launch(*options); });
}

}  // namespace tessera::cli
