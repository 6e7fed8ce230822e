#include "tessera/runtime/measure/profiling.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>
#include <map>
#include <string_view>
#include <thread>

#include "tessera/base/text.h"
#include "tessera/comm/communicator.h"
#include "tessera/runtime/device/device.h"
#include "tessera/runtime/device/open.h"
#include "tessera/runtime/measure/calibration.h"

namespace tessera {
namespace {

constexpr int kSteps = 8, kFewSteps = 3;             // recorded steps of a plan
constexpr std::string_view kCount = "device.count";  // of a profile of accelerators

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm date{};
  gmtime_r(&now, &date);
  return fmt::format("{:%Y-%m-%d}", date);
}

// Writes the highest measured rates of arithmetic (matrix products on one rank) and of memory
// (large copies). The cost model uses them for kernels of families that were not measured.
void write_rates(Profile& profile) {
  std::map<std::string, double> rates;
  const auto raise = [&](const std::string& name, double rate) {
    rates[name] = std::max(rates[name], rate);
  };
  for (const auto& [name, family] : profile.families) {
    const bool alone = name.ends_with("@1");
    const bool copy = name.starts_with("copy.float32@");
    for (const Sample& sample : family.samples) {
      double work = 2;
      for (const double size : sample.size) work *= size;
      if (alone && name.starts_with("einsum.float32."))
        raise("device.peak.fp32", work / sample.seconds);
      if (alone && name.starts_with("einsum.bfloat16."))
        raise("device.peak.bf16", work / sample.seconds);
      if (copy && sample.size[0] > 4e6)
        raise("device.memory_rate", sample.size[0] / sample.seconds);
    }
  }
  for (const auto& [name, rate] : rates) profile.scalars[name] = rate;
}

class Session {
 public:
  Session(const ProfileOptions& options, Profile& profile)
      : options_(options),
        profile_(profile),
        accelerated_(profile.scalars.contains(std::string(kCount))) {
    for (const int64_t ranks : options.ranks) {
      total_ += static_cast<double>(calibration_cases(ranks, options.quick, accelerated_).size()) +
                (ranks > 1 ? kLinkShare : 0);
    }
  }

  Status run() {
    for (const int64_t ranks : options_.ranks) {
      TESSERA_TRY_VOID(kernels(ranks));
      TESSERA_TRY_VOID(interpreter(ranks));
      if (ranks > 1) TESSERA_TRY_VOID(threads(ranks));
    }
    repeats_.write(profile_);
    write_rates(profile_);
    return {};
  }

 private:
  static constexpr double kLinkShare = 6;  // time to measure links, in units of a case's time

  void progress(const std::string& what, double part) {
    if (options_.progress) options_.progress(what, std::min(done_ / total_, 1.0));
    done_ += part;
  }

  Status kernels(int64_t ranks) {
    for (const CalibrationCase& one : calibration_cases(ranks, options_.quick, accelerated_)) {
      progress(fmt::format("{} at a time: {}, {}", ranks, one.model, one.plan), 1);
      TESSERA_TRY_VOID(run_case(one, ranks, options_.quick ? 2 : 4, repeats_,
                                static_cast<int>(options_.threads), options_.device));
    }
    return {};
  }

  // Measures the interpreter's time for one instruction, with a model whose kernels take almost
  // no time.
  Status interpreter(int64_t ranks) {
    Repeats unused;
    TESSERA_TRY(const CaseTimes times,
                run_case({"gpt:layers=4,hidden=16,heads=2,seq=8,vocab=256", 1}, ranks,
                         options_.quick ? 8 : 40, unused, 1, options_.device));
    // Beside an accelerator the host gives out the whole step while others compute.
    const double left = times.step_s - (accelerated_ ? 0 : times.instructions_s);
    profile_.scalars[fmt::format("host.issue_s@{}", ranks)] =
        std::max(left, 0.0) / static_cast<double>(times.instructions);
    return {};
  }

  Status threads(int64_t ranks) {
    progress(fmt::format("collectives of {} threads", ranks), kLinkShare);
    Repeats found;
    TESSERA_TRY_VOID(comm::run_threads(static_cast<int>(ranks), {}, [&](comm::Communicator& world) {
      Repeats mine;
      const Status timed = time_links(world, "threads", options_.quick, options_.device, mine);
      if (!timed) throw comm::CommFault{timed.error().message, timed.error().code};
      if (world.rank() == 0) found = std::move(mine);
    }));
    repeats_.merge(found);
    return {};
  }

  const ProfileOptions& options_;
  Profile& profile_;
  const bool accelerated_;
  Repeats repeats_;
  double done_ = 0, total_ = 0;
};

}  // namespace

std::string machine_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string name = "unknown processor";
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    name = std::string(trim(std::string_view(line).substr(line.find(':') + 1)));
    break;
  }
  const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return fmt::format("{}, {} cores, {} MiB last-level cache", name,
                     std::thread::hardware_concurrency(), std::max(cache, 0L) >> 20);
}

Result<Profile> describe_machine(const ProfileOptions& options) {
  TESSERA_TRY(const auto device, device::open(options.device));
  Profile profile;
  profile.device = machine_name();
  if (device != nullptr && !device->place().is_processor()) {
    const device::Description found = device->describe();
    profile.device = fmt::format("{}, beside {}", found.name, machine_name());
    profile.scalars[std::string(kCount)] = static_cast<double>(found.count);
    profile.scalars["device.memory_bytes"] = static_cast<double>(found.memory_bytes);
  }
  profile.version = fmt::format("libtorch {}", TORCH_VERSION);
  profile.date = today();
  profile.scalars["rank.threads"] = static_cast<double>(options.threads);
  profile.ranks = *std::max_element(options.ranks.begin(), options.ranks.end());
  return profile;
}

Result<Profile> profile_machine(const ProfileOptions& options) {
  TESSERA_TRY(Profile profile, describe_machine(options));
  TESSERA_TRY_VOID(Session(options, profile).run());
  return profile;
}

Result<size_t> profile_step(const ProfileOptions& options, const StepToProfile& step,
                            Profile& profile) {
  Repeats repeats;
  TESSERA_TRY_VOID(run_case({step.model, step.batch, step.plan, step.precision}, 0,
                            options.quick ? kFewSteps : kSteps, repeats,
                            static_cast<int>(options.threads), options.device));
  repeats.write(profile);
  return repeats.sizes();
}

Result<bool> profile_processes(const ProfileOptions& options, Profile& profile) {
  TESSERA_TRY(const auto world, comm::mpi_world({}));
  Repeats repeats;
  try {
    TESSERA_TRY_VOID(time_links(*world, "mpi", options.quick, options.device, repeats));
  } catch (const comm::CommFault& lost) {
    return fault(lost.message);
  }
  repeats.write(profile);
  return world->rank() == 0;
}

}  // namespace tessera
