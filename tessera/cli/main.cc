#include "tessera/cli/cli.h"
#include "tessera/cli/run_commands.h"

int main(int argc, char** argv) {
  tessera::cli::prepare_process(argv);
  return tessera::cli::run(argc, argv);
}
