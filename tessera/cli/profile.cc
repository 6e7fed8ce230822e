// tessera profile: the options.
#include <memory>

#include "tessera/cli/cli.h"
#include "tessera/cli/run_commands.h"

namespace tessera::cli {

void add_profile(CLI::App& app, Action& action) {
  const auto options = std::make_shared<ProfileOptions>();
  CLI::App* command = app.add_subcommand("profile", "Measure this machine for --cluster local");
  command->add_option("--device", options->device, "What computes")->default_str("cpu");
  command->add_option("--out", options->out,
                      "File to write; default TESSERA_PROFILE, else "
                      "~/.local/share/tessera/profile.json");
  command->add_option("--ranks", options->ranks, "Numbers of ranks that work side by side")
      ->delimiter(',')
      ->check(at_least(1))
      ->default_str("1,2,4");
  command
      ->add_option("--threads", options->threads,
                   "Threads of a rank inside a kernel, as `threads` of the runs to predict")
      ->check(at_least(1))
      ->default_str("1");
  command->add_flag("--quick", options->quick,
                    "Fewer shapes and repeats, about a fifth of the time");
  command->add_flag("--no-mpi", options->no_mpi, "Leave out what is measured under mpirun");
  command->footer(
      "Takes a few minutes; nothing else should run meanwhile. Under mpirun it measures what "
      "moves\n"
      "between processes only and adds it to the file; without, it starts mpirun -n 2 by "
      "itself.\n\n"
      "Examples:\n"
      "  tessera profile\n"
      "  tessera profile --ranks 1,2 --out machine.json\n"
      "  mpirun -n 4 tessera profile --out machine.json\n");
  command->callback([options, &action] { action = [options] { return run_profile(*options); }; });
}

}  // namespace tessera::cli
