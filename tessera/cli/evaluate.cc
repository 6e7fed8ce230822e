// tessera evaluate: defines its options.
#include <memory>

#include "tessera/cli/cli.h"
#include "tessera/cli/libraries/run_commands.h"

namespace tessera::cli {

void add_evaluate(Commands& commands) {
  const auto options = std::make_shared<EvaluateOptions>();
  Command command =
      commands.add("evaluate", "What a model with given weights makes of arrays of samples");
  command
      .option("MODEL", options->model,
              "Model whose loss compares an output with 'targets'; with --tensor any")
      .required();
  command
      .option("--weights", options->weights,
              "Its parameters: a safetensors file, a folder of them, or a checkpoint")
      .required();
  command
      .option(
          "--data", options->data,
          "As the key data of a run file: \"{ arrays = { images = 'x.npy', targets = 'y.npy' } }\" "
          "or \"{ nodes = 'data/graphs/cora', part = 'test' }\"")
      .required();
  command.option("--batch", options->batch, "Samples that are looked at together; default 64")
      .at_least(1);
  command
      .option("--samples", options->samples, "Look at the first so many; default: all, each once")
      .at_least(0);
  command.option("--out", options->out,
                 "Write what is compared with the targets here, .npy [samples, numbers]; with "
                 "--budget the network with the chosen samples, NAME.graph");
  command.option(
      "--tensor", options->tensor,
      "Look at this tensor of the model instead: one that the batch is the first dim of");
  command
      .option("--budget", options->budget,
              "Of a graph network: choose how many edges of a node each layer samples at most, as "
              "few as lose at most this much accuracy, for example 0.01")
      .at_least(0);
  command
      .option("--sampler", options->sampler,
              "With --budget: bucket (default), stride, quadratic or permutation")
      .one_of({"bucket", "stride", "quadratic", "permutation"});
  command
      .option("--widths", options->widths,
              "With --budget: widths that are tried, ascending; default powers of two")
      .delimiter(',')
      .at_least(1);
  command.option("--plan", options->plan, "Plan file or recipe call; default serial");
  add_precision(command, options->precision);
  command.option("--timeout", options->timeout_s, "Seconds that a rank waits for others")
      .at_least(0.001);
  command.flag("--json", options->json, "One JSON object");
  command.footer(
      "Samples come in the order of the arrays; nothing is dropped, and batch norms use running\n"
      "statistics where the model has them. Models that differ in the size of their images take "
      "the\n"
      "same weights.\n\n"
      "Examples:\n"
      "  tessera evaluate resnet:layers=18,width=16,image=48,classes=8,running=0.9 \\\n"
      "      --weights runs/checkpoints --data \"{ arrays = { images = 'x48.npy', targets = "
      "'y.npy' } }\"\n"
      "  tessera evaluate runs/cora.graph --weights runs/checkpoints --budget 0.01 \\\n"
      "      --data \"{ nodes = 'data/graphs/cora', part = 'val' }\" --out runs/narrow.graph\n");
  command.action([options] { return run_evaluate(*options); });
}

}  // namespace tessera::cli
