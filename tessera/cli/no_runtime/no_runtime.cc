// The stub of a build without libtorch.
#include <fmt/format.h>

#include "tessera/cli/run_commands.h"

namespace tessera::cli {
namespace {

tl::unexpected<Error> no_runtime(const char* command) {
  return invalid_input(
      fmt::format("{}: this build has no runtime, because libtorch was not found; to get it: "
                  "scripts/setup, then make build",
                  command));
}

}  // namespace

void prepare_process(char**) {}

Result<int> run_train(const TrainOptions&) { return no_runtime("train"); }
Result<int> run_verify(const VerifyOptions&) { return no_runtime("verify"); }
Result<int> run_profile(const ProfileOptions&) { return no_runtime("profile"); }

}  // namespace tessera::cli
