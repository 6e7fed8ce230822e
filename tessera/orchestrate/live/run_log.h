// Follows the log of a job: the lines of JSON that `tessera train --json` appends while it runs. The
// processes of one job, one after the other, append to one log.
//
//   RunLog log("jobs/a.log");
//   log.begin_process();          // what an earlier process has reported of its end does not count
//   log.read();                   // what was appended since the last call
//   if (log.changes() > before) ...
#pragma once

#include <cstdint>
#include <string>

namespace tessera::share {

class RunLog {
 public:
  explicit RunLog(std::string path) : path_(std::move(path)) {}

  void read();
  void begin_process();

  int64_t step() const { return step_; }               // the last step that is done; 0: none yet
  double steps_per_s() const { return steps_per_s_; }  // of the last step; 0: not known yet
  int64_t changes() const { return changes_; }         // how often the plan has changed
  bool has_begun() const { return has_begun_; }        // whether this process has done a step
  bool has_stopped() const { return has_stopped_; }    // whether it has ended as it was told

 private:
  void take(const std::string& line);

  std::string path_;
  int64_t offset_ = -1;  // of the first byte that was not read; -1: nothing was read yet
  int64_t step_ = 0, changes_ = 0;
  double steps_per_s_ = 0;
  bool has_begun_ = false, has_stopped_ = false;
};

}  // namespace tessera::share
