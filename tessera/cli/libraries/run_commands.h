// The commands that execute models (train, launch, verify, profile, sample, evaluate), from the
// point where their options have been read. They need the runtime, which needs libtorch, and
// loading libtorch takes longer than most planning commands run. So the runtime is in a library of
// its own, libtessera_runtime.so in the program's folder, which is loaded at the first call of one
// of the functions below. A build without libtorch has no such library; the functions then return
// an Error that says what to build.
//
// The library contains the modules `comm` and `runtime` and the folder with_runtime/. For all other
// modules it uses the program's copies, so that each module exists only once. Its only entry is
// `tessera_run_commands`, which returns a table of the functions that with_runtime/ defines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/result.h"

namespace tessera::cli {

struct TrainOptions {
  std::string run_file;
  std::optional<std::string> plan;
  std::vector<std::string> changes;  // changes of the plan, as "50:data_parallel(2)"
  std::optional<int64_t> ranks, steps;
  std::optional<double> timeout_s;
  std::vector<std::string> assignments;  // values of --set, in order
  bool json = false;
  std::string steer;    // file that another program writes to change the plan or stop; empty: none
  bool resume = false;  // start from the newest checkpoint of the run
  std::string trace;    // file to write the trace of a step to; empty: none
  std::optional<int64_t> trace_step;  // default: the third step, or the last if there are fewer
  std::optional<std::string> device;
  std::string network, hosts;  // files by which ranks are ordered (network/apply_order.h)
};
Result<int> run_train(const TrainOptions& options);

struct VerifyOptions {
  std::string model, plan;
  std::vector<std::string> changes;  // changes of the plan, as "1:data_parallel(2)"
  int64_t batch = 0, steps = 2, seed = 1, ranks = 0;
  double tolerance = 1e-9, timeout_s = 60;
  std::string optimizer = "adamw";
  std::vector<std::string> assignments;  // settings of keys optimizer.*
  bool no_clip = false, json = false;
  std::string data;     // written as the key `data` of a run file; empty: random inputs
  std::string weights;  // the parameters of both runs; empty: initial values
  std::string device;   // of the plan's run; empty: TESSERA_DEVICE, else cpu
};
Result<int> run_verify(const VerifyOptions& options);

struct ProfileOptions {
  std::string device = "cpu", out;
  std::vector<int64_t> ranks{1, 2, 4};
  int64_t threads = 1;
  bool quick = false, no_mpi = false;
  // If a model is given, only the kernels that a step under each of these plans needs are measured,
  // and they are added to the file. If not, the whole machine is measured.
  std::string model, precision = "float32";
  std::vector<std::string> plans{"serial"};
  int64_t batch = 0;
};
Result<int> run_profile(const ProfileOptions& options);

struct SampleOptions {
  std::string model, weights, plan = "serial", precision = "float32";
  std::optional<std::string> prompt;
  std::vector<int64_t> tokens;
  int64_t count = 200, top_k = 0, seed = 1;
  double temperature = 1, timeout_s = 60;
  bool ids = false, json = false;
};
Result<int> run_sample(const SampleOptions& options);

struct EvaluateOptions {
  std::string model, weights, data, plan = "serial", precision = "float32", out, tensor;
  int64_t batch = 64, samples = 0;
  double timeout_s = 60;
  // For a graph network: how much accuracy may be lost to narrower samples. If unset, no widths are
  // chosen.
  std::optional<double> budget;
  std::string sampler = "bucket";
  std::vector<int64_t> widths;
  bool json = false;
};
Result<int> run_evaluate(const EvaluateOptions& options);

struct LaunchOptions {
  std::string run_file;
  std::optional<int64_t> ranks;
  std::vector<std::string> plans, hosts, assignments;
  int64_t tries = 3;
  std::string log;
  std::string network;  // as TrainOptions::network
};
Result<int> run_launch(const LaunchOptions& options);

struct RunCommands {
  Result<int> (*train)(const TrainOptions& options);
  Result<int> (*verify)(const VerifyOptions& options);
  Result<int> (*profile)(const ProfileOptions& options);
  Result<int> (*sample)(const SampleOptions& options);
  Result<int> (*evaluate)(const EvaluateOptions& options);
  Result<int> (*launch)(const LaunchOptions& options);
};

}  // namespace tessera::cli

// Defined only in the library, not in the program.
extern "C" const tessera::cli::RunCommands* tessera_run_commands();
