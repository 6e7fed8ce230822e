// Internal to the runtime: implements `tessera profile`. Kernels are timed inside training
// programs: small ones are executed instruction by instruction, so that processor caches, memory
// rate and the interpreter are as in a real step. Every compute instruction that runs is a
// sample of its family of kernels (cost/family.h). Collectives and messages are timed through
// the communicator.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tessera/cluster/profile.h"
#include "tessera/comm/communicator.h"
#include "tessera/cost/family.h"

namespace tessera {

// Repeated measurements of equal work, in seconds, by family (the name ends in "@" and the number
// of ranks that ran at the same time) and sizes.
class Repeats {
 public:
  void add(const std::string& family, const std::vector<std::string>& names,
           const std::vector<double>& size, double seconds);
  // Adds a measurement. `by_clock` says that the time was taken by a wall clock, so that other
  // programs may have used the core meanwhile. As this only adds time, the lower quartile counts
  // instead of the median.
  void add(const FamilyKey& key, int64_t ranks, double seconds, bool by_clock);
  void merge(const Repeats& other);
  // Writes, for each size, the time that counts (the median or the lower quartile, see add()) and
  // the spread of the repeats into the profile. Sizes that the profile already has are replaced.
  void write(Profile& profile) const;
  size_t sizes() const;  // number of sizes of all families

 private:
  struct One {
    std::vector<std::string> names;
    double share = 0.5;  // where the repeat that counts is in the sorted repeats, 0..1
    std::map<std::vector<double>, std::vector<double>> seconds;  // by size
  };
  std::map<std::string, One> families_;
};

// A program to time. If the plan has one rank, every rank runs the whole program by itself; any
// other program runs on all ranks together.
struct CalibrationCase {
  std::string model;
  int64_t batch = 8;
  std::string plan = "serial";
  std::string precision = "float32";
};
// Returns the programs that are timed with `ranks` ranks side by side, on processors or, if
// `accelerated`, on accelerators, whose kernels are larger and also compute in bfloat16.
std::vector<CalibrationCase> calibration_cases(int64_t ranks, bool quick, bool accelerated);

struct CaseTimes {
  double step_s = 0;          // median time of a rank's step, without recording
  double instructions_s = 0;  // median sum of the instructions of a recorded step
  int64_t instructions = 0;   // instructions of a step
  double seconds() const { return step_s; }
};
// Runs the case on `ranks` ranks at the same time (0: on as many as its plan has), for `steps`
// recorded steps, with `threads` threads inside a kernel, on the device of that name
// (device/open.h).
Result<CaseTimes> run_case(const CalibrationCase& one, int64_t ranks, int steps, Repeats& repeats,
                           int threads, const std::string& device);

// Times collectives of every kind among all ranks of the world, and messages between two ranks, for
// several numbers of bytes (cost/collective_cost.h says which bytes are counted). Every rank calls
// this function and gets all results. Families: "all_reduce.<transport>" over (ranks, bytes) and
// "message.<transport>" over (bytes). The arrays are in the memory of the device of that name, and
// the device's communicator moves them. Errors: there is no such device.
Status time_links(comm::Communicator& world, const std::string& transport, bool quick,
                  const std::string& device, Repeats& repeats);

}  // namespace tessera
