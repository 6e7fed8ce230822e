// One function for each policy, for the table in table.cc. Each is in the file of its name.
#pragma once

#include <memory>

#include "tessera/orchestrate/share/policy.h"

namespace tessera::share {

std::unique_ptr<Policy> make_fifo(const PolicyOptions& options);
std::unique_ptr<Policy> make_sjf(const PolicyOptions& options);
std::unique_ptr<Policy> make_srtf(const PolicyOptions& options);
std::unique_ptr<Policy> make_tiresias(const PolicyOptions& options);
std::unique_ptr<Policy> make_gittins(const PolicyOptions& options);
std::unique_ptr<Policy> make_optimus(const PolicyOptions& options);
std::unique_ptr<Policy> make_pollux(const PolicyOptions& options);
std::unique_ptr<Policy> make_sia(const PolicyOptions& options);
std::unique_ptr<Policy> make_elasticflow(const PolicyOptions& options);
std::unique_ptr<Policy> make_gavel(const PolicyOptions& options);
std::unique_ptr<Policy> make_ones(const PolicyOptions& options);
std::unique_ptr<Policy> make_default(const PolicyOptions& options);

}  // namespace tessera::share
