#include <algorithm>

#include "tessera/base/doing.h"
#include "tessera/cli/cli.h"
#include "tessera/cli/libraries/caller.h"

int main(int argc, char** argv) {
  tessera::tell_when_memory_is_exhausted();
  return tessera::cli::run({argv + std::min(argc, 1), argv + argc}, tessera::cli::terminal());
}
