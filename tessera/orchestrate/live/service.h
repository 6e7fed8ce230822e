// The live controller: the rounds of the scheduler (share/controller.h) with the clock of this machine,
// jobs on a back end (backend.h), requests from a socket, and a journal.
//
// Every request that changes something, and every round with what was seen and decided in it, is in the
// journal before it takes effect. A controller that starts with a journal first replays it: the same
// loop decides again with the recorded observations, so that the policy is where it was, and then starts
// the jobs that have GPUs, which go on from their checkpoints. If a decision differs from the recorded
// one, it says so (check_failed) and starts nothing.
//
//   TESSERA_TRY(Service service, Service::open(options));
//   while (!service.is_idle()) { server.serve_until(next, handler); TESSERA_TRY_VOID(service.round()); }
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "tessera/base/result.h"

namespace tessera::share {

struct ServiceOptions {
  std::string folder;  // for the journal and the logs of jobs
  std::string backend = "processes";
  std::string cluster;  // as parse_machines reads it; "": the nodes of the back end
  std::string policy = "fifo";
  uint64_t seed = 1;
  std::string program;            // the file of this program
  std::function<double()> now_s;  // seconds since 1970
};

class Service {
 public:
  // Opens the folder, and replays its journal if there is one. Errors: those of the journal and of the
  // back end; a back end, cluster, policy or seed that is not the journal's (invalid input).
  static Result<Service> open(const ServiceOptions& options);
  Service(Service&&) noexcept;
  Service& operator=(Service&&) noexcept;
  ~Service();  // ends the jobs, unless those of the back end outlive a controller

  // Answers a request ({"do": "submit", ...}); errors are in the answer. Faults of the journal are
  // returned, since nothing can go on without it.
  Result<nlohmann::json> answer(const nlohmann::json& request);
  // Looks at the jobs, asks the policy, and starts and stops jobs.
  Status round();
  // Returns whether all jobs that were submitted have ended, and at least one was.
  // Returns whether jobs are on the way to what was decided, and after how many seconds to call
  // settle() again, which carries on with it.
  bool is_settling() const;
  double patience_s() const;
  Status settle();
  bool is_idle() const;
  // Returns the nodes and GPUs in words, as "16 nodes with 64 GPUs of slurm" or "1x4".
  const std::string& cluster() const;

 private:
  struct Impl;
  explicit Service(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

struct Replayed {
  size_t jobs = 0, rounds = 0, decisions = 0;
};
// Replays a journal without processes. Errors: the first decision that differs (check_failed).
Result<Replayed> replay_journal(const std::string& path);

}  // namespace tessera::share
