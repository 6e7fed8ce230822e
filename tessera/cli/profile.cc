// tessera profile: defines its options.
#include <memory>

#include "tessera/cli/cli.h"
#include "tessera/cli/libraries/run_commands.h"

namespace tessera::cli {

void add_profile(Commands& commands) {
  const auto options = std::make_shared<ProfileOptions>();
  Command command = commands.add("profile", "Measure this machine for --cluster local");
  command
      .option("--device", options->device, "What computes: cpu, cuda (docs/reference/devices.md)")
      .default_text("cpu");
  command.option("--out", options->out,
                 "File to write; default TESSERA_PROFILE, else "
                 "~/.local/share/tessera/profile.json");
  command.option("--ranks", options->ranks, "Numbers of ranks that work side by side")
      .delimiter(',')
      .ranks()
      .default_text("1,2,4");
  command
      .option("--threads", options->threads,
              "Threads of a rank inside a kernel, as `threads` of the runs to predict")
      .at_least(1)
      .default_text("1");
  command.flag("--quick", options->quick, "Fewer shapes and repeats, about a fifth of the time");
  command.flag("--no-mpi", options->no_mpi, "Leave out what is measured under mpirun");
  command.option(
      "--model", options->model,
      "Measure only the kernels of this model's step, in the very sizes that they have in "
      "it, and add them to the file");
  command
      .option("--plan", options->plans,
              "Of --model: plan file or recipe call; several times for several plans")
      .default_text("serial");
  command.option("--batch", options->batch, "Of --model: sequences a step over all ranks")
      .at_least(1);
  add_precision(command, options->precision);
  command.footer(
      "Takes a few minutes; nothing else should run meanwhile. Under mpirun it measures what "
      "moves\n"
      "between processes only and adds it to the file; without, it starts mpirun by itself, for "
      "each\n"
      "number of ranks above 1.\n\n"
      "Examples:\n"
      "  tessera profile\n"
      "  tessera profile --ranks 1,2 --out machine.json\n"
      "  tessera profile --device cuda --ranks 1,8\n"
      "  mpirun -n 8 tessera profile --out machine.json\n"
      "  tessera profile --model gpt:layers=2,hidden=128,heads=4 --batch 16 --plan "
      "'data_parallel(2)'\n");
  command.action([options] { return run_profile(*options); });
}

}  // namespace tessera::cli
