// Makes copies while the rank's instructions run: each rank has one thread that runs jobs one after
// the other, in the order in which they were submitted.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "tessera/base/result.h"
#include "tessera/runtime/kernels.h"

namespace tessera {

class Copier {
 public:
  using Job = std::function<Status()>;

  Copier();   // no thread before the first job
  ~Copier();  // jobs that nobody waits for are dropped
  Copier(const Copier&) = delete;
  Copier& operator=(const Copier&) = delete;

  // Submits a job and returns its ticket. The caller keeps the job and the memory that the job uses
  // alive until wait(ticket) has returned.
  int64_t submit(const Job* job);
  // Submits a job that is done when it is waited for and not before, whatever other jobs are waited
  // for meanwhile. So a reader that does not wait for the copy finds the bytes from before it.
  int64_t submit_late(const Job* job);
  // Waits until the job with this ticket is done. Errors: the error of the first job that failed;
  // after a failure no later job runs.
  Status wait(int64_t ticket);
  // Waits until all jobs of submit() are done.
  Status wait_for_all();

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<const Job*> queue_;
  std::map<int64_t, const Job*> late_;  // by ticket; these tickets are negative
  int64_t submitted_ = 0, done_ = 0;
  bool stopping_ = false;
  std::string failure_;  // "": none
  std::thread thread_;
};

}  // namespace tessera
