// Copies beside the instructions: one thread a rank that runs jobs one after the other, as they
// were submitted (first in, first out).
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
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

  // Returns the job's ticket. The job, and what it works on, live until it has been waited for.
  int64_t submit(const Job* job);
  // Until the job is done. An error is that of the first job that failed; after it none runs.
  Status wait(int64_t ticket);
  // Until all jobs that were submitted are done.
  Status wait_for_all();

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<const Job*> queue_;
  int64_t submitted_ = 0, done_ = 0;
  bool stopping_ = false;
  std::string failure_;  // "": none
  std::thread thread_;
};

}  // namespace tessera
