// tessera verify: the options.
#include <memory>

#include "tessera/cli/cli.h"
#include "tessera/cli/run_commands.h"
#include "tessera/graph/kinds.h"

namespace tessera::cli {

void add_verify(CLI::App& app, Action& action) {
  const auto options = std::make_shared<VerifyOptions>();
  CLI::App* command =
      app.add_subcommand("verify", "Run a plan and the serial plan in float64 and compare");
  command->add_option("MODEL", options->model, "Model, as gpt:layers=2,hidden=64,heads=4")
      ->required();
  command->add_option("--plan", options->plan, "Plan file or recipe call")->required();
  command->add_option("--ranks", options->ranks, "Number of ranks; must be the plan's")
      ->check(at_least(1));
  command->add_option("--batch", options->batch, "Sequences a step over all ranks (default 8)")
      ->check(at_least(1));
  command->add_option("--steps", options->steps, "Steps to compare (default 2)")
      ->check(at_least(1));
  command->add_option("--seed", options->seed, "Of parameters, data and dropout (default 1)")
      ->check(at_least(0));
  command->add_option("--tolerance", options->tolerance, "Largest relative error (default 1e-9)")
      ->check(at_least(0));
  command->add_option("--optimizer", options->optimizer, "adamw (default) or sgd")
      ->check(CLI::IsMember(optimizer_names()));
  command->add_flag("--no-clip", options->no_clip, "Without clipping of the gradients' norm");
  command->add_option("--timeout", options->timeout_s, "Seconds that a rank waits for others")
      ->check(at_least(0.001));
  command->add_flag("--json", options->json, "Print JSON");
  command->footer(
      "Exit code 1 if an error is above the tolerance, or if bytes or memory differ from what "
      "was\n"
      "predicted.\n\nExample:\n"
      "  tessera verify gpt:layers=2,hidden=64,heads=4,seq=32,vocab=128 --plan "
      "'zero(stage=3,dp=4)'\n");
  command->callback([options, &action] { action = [options] { return run_verify(*options); }; });
}

}  // namespace tessera::cli
