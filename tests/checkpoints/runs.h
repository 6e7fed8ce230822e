// Shared by the tests of this folder: a run with checkpoints in a folder of its own.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/runtime/session.h"

namespace tessera {

struct TrainedRun {
  std::map<int64_t, double> losses;  // by step
  Result<TrainingSummary> end;
  std::vector<std::string> notes;
};
TrainedRun train(const RunConfig& config, Storage* storage = nullptr);

// A folder in memory if there is such a file system, since hundreds of checkpoints are synced.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string path(const std::string& name) const;

 private:
  std::string path_;
};

}  // namespace tessera
