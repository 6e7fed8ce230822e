// tessera sample: defines its options.
#include <memory>

#include "tessera/cli/cli.h"
#include "tessera/cli/libraries/run_commands.h"

namespace tessera::cli {

void add_sample(Commands& commands) {
  const auto options = std::make_shared<SampleOptions>();
  Command command = commands.add("sample", "Text from a language model's weights");
  command.option("MODEL", options->model, "Model that predicts the next token").required();
  command
      .option("--weights", options->weights,
              "Its parameters: a safetensors file, a folder of them, or a checkpoint")
      .required();
  command.option("--prompt", options->prompt,
                 "Text to go on with, of a model of bytes (default: a line's end)");
  command.option("--tokens", options->tokens, "Tokens to go on with, in place of a text: 5,17,3")
      .delimiter(',');
  command.option("--count", options->count, "Tokens to make; default 200").at_least(1);
  command
      .option("--temperature", options->temperature,
              "Logits are divided by it; default 1; 0: the likeliest token each time")
      .at_least(0);
  command.option("--top-k", options->top_k, "Draw from so many of the likeliest; default 0: all")
      .at_least(0);
  command.option("--seed", options->seed, "Of the draws; default 1").at_least(0);
  command.option("--plan", options->plan, "Plan file or recipe call; default serial");
  add_precision(command, options->precision);
  command.option("--timeout", options->timeout_s, "Seconds that a rank waits for others")
      .at_least(0.001);
  command.flag("--ids", options->ids, "Print tokens as numbers (models of bytes print text)");
  command.flag("--json", options->json, "One JSON object");
  command.footer(
      "Every token takes a forward pass of the whole model; ranks are threads.\n\n"
      "Examples:\n"
      "  tessera sample gpt:layers=4,hidden=128,heads=4,seq=128,vocab=256 --weights model "
      "--prompt 'To be'\n"
      "  tessera sample my.graph --weights model.safetensors --tokens 0,17 --temperature 0 "
      "--plan 'tensor_parallel(2)'\n");
  command.action([options] { return run_sample(*options); });
}

}  // namespace tessera::cli
