#include "tessera/cli/with_runtime/commands.h"

extern "C" const tessera::cli::RunCommands* tessera_run_commands() {
  namespace commands = tessera::cli::with_runtime;
  static constexpr tessera::cli::RunCommands kCommands{.train = commands::train,
                                                       .verify = commands::verify,
                                                       .profile = commands::profile,
                                                       .sample = commands::sample,
                                                       .evaluate = commands::evaluate,
                                                       .launch = commands::launch};
  return &kCommands;
}
