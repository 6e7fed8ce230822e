// The functions behind the table that run_commands.h describes: the commands that execute models.
#pragma once

#include "tessera/cli/libraries/run_commands.h"

namespace tessera::cli::with_runtime {

Result<int> train(const TrainOptions& options);
Result<int> verify(const VerifyOptions& options);
Result<int> launch(const LaunchOptions& options);
Result<int> profile(const ProfileOptions& options);
Result<int> sample(const SampleOptions& options);
Result<int> evaluate(const EvaluateOptions& options);

}  // namespace tessera::cli::with_runtime
