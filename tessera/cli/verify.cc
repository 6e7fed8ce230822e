// tessera verify: defines its options.
#include <memory>

#include "tessera/cli/cli.h"
#include "tessera/cli/libraries/run_commands.h"

namespace tessera::cli {

void add_verify(Commands& commands) {
  const auto options = std::make_shared<VerifyOptions>();
  Command command = commands.add("verify", "Run a plan and the serial plan in float64 and compare");
  command.option("MODEL", options->model, "Model, as gpt:layers=2,hidden=64,heads=4").required();
  command.option("--plan", options->plan, "Plan file, recipe call, or auto").required();
  command.option("--ranks", options->ranks, "Number of ranks; must be the plan's").ranks();
  command
      .option("--change", options->changes,
              "Go on under another plan after so many steps, as 1:'data_parallel(2)'")
      .one_value_each();
  command
      .option("--batch", options->batch,
              "Sequences a step over all ranks (default 8, or what a graph file fixes)")
      .at_least(1);
  command.option("--steps", options->steps, "Steps to compare (default 2)").at_least(1);
  command.option("--seed", options->seed, "Of parameters, data and dropout (default 1)")
      .at_least(0);
  command.option("--tolerance", options->tolerance, "Largest relative error (default 1e-9)")
      .at_least(0);
  add_optimizer(command, options->optimizer);
  command.option("--set", options->assignments,
                 "Set a key of the optimizer: --set optimizer.nesterov=1, "
                 "--set 'optimizer.group=[{parameters=\"embed\",rate=0.1}]'");
  command.option("--data", options->data,
                 "What both runs read, as the key data of a run file: "
                 "\"{ nodes = 'data/graphs/cora', part = 'train' }\" (default: random inputs)");
  command.option("--weights", options->weights,
                 "Parameters of both runs: a safetensors file, a folder of them, or a checkpoint "
                 "(default: initial values)");
  command.option(
      "--device", options->device,
      "Device of the plan's run: cpu, cuda, test, which shows missing waits and reads by "
      "the host, or stand-in (docs/reference/devices.md; default: TESSERA_DEVICE, or cpu)");
  command.flag("--no-clip", options->no_clip, "Without clipping of the gradients' norm");
  command.option("--timeout", options->timeout_s, "Seconds that a rank waits for others")
      .at_least(0.001);
  command.flag("--json", options->json, "Print JSON");
  command.footer(
      "Exit code 1 if an error is above the tolerance, or if bytes or memory differ from what "
      "was\n"
      "predicted.\n\nExample:\n"
      "  tessera verify gpt:layers=2,hidden=64,heads=4,seq=32,vocab=128 --plan "
      "'zero(stage=3,dp=4)'\n");
  command.action([options] { return run_verify(*options); });
}

}  // namespace tessera::cli
