// tessera probe: defines its options.
#include <memory>

#include "tessera/cli/cli.h"
#include "tessera/cli/libraries/load_library.h"
#include "tessera/cli/libraries/probe_library.h"
#include "tessera/cli/output.h"

namespace tessera::cli {

Result<int> run_probe(const ProbeCommand& options) {
  const Library library{.file = "libtessera_probe.so",
                        .entry = "tessera_probe_command",
                        .linked = nullptr,
                        .what = "probe library",
                        .how_to_get_it = "make build"};
  TESSERA_TRY(void* const entry, load_library(library, "probe"));
  void* const command = reinterpret_cast<decltype(&tessera_probe_command)>(entry)();
  return reinterpret_cast<decltype(&run_probe)>(command)(options);
}

void add_probe(Commands& commands) {
  const auto options = std::make_shared<ProbeCommand>();
  Command command = commands.add(
      "probe",
      "Find the racks and the rates of a network that nobody described, and write a cluster file");
  command.option("-o,--out", options->out, "Cluster file to write, for --cluster and --network");
  command
      .option(
          "--from", options->from,
          "File that describes the network: a cluster file (.toml), a model of topograph (.yaml), "
          "Slurm's topology.conf or addresses, the JSON of EC2 or GCP, or NCCL's XML; several are "
          "put together")
      .one_value_each();
  command.option(
      "--hosts", options->hosts,
      "File of hosts, one a line (as mpirun takes it; a second word is the host's name in the "
      "files of --from): only these, in this order");
  command.option(
      "--like", options->like,
      "Cluster whose nodes these are, as dgx-h100; default: this machine, with a device for "
      "each rank");
  command.option("--seconds", options->seconds, "Most time to measure")
      .at_least(0.5)
      .default_text("30");
  command.option("--bytes", options->bytes, "Most bytes that all hosts send together")
      .default_text("8 GB");
  command
      .option("--timeout", options->timeout_s,
              "Seconds after which a host that does not answer is named")
      .at_least(0.1)
      .default_text("20");
  command.option("--seed", options->seed, "Of the pairs that are drawn").default_text("1");
  command.flag("--json", options->json, "Print JSON");
  command.footer(
      "With ranks on several hosts it measures latencies, then all pairs of random matchings at "
      "once:\n"
      "single transfers cannot see a way up that racks share. One rank of each host measures. "
      "Without\n"
      "mpirun or srun it only reads --from. Racks that --from or Slurm names are not searched, "
      "only their\n"
      "rates are measured. docs/guides/cloud-without-a-map.md\n\n"
      "Examples:\n"
      "  mpirun -n 16 --hostfile hosts.txt tessera probe -o net.toml\n"
      "  srun -N 16 -n 16 tessera probe --like dgx-h100 --seconds 60 -o net.toml\n"
      "  tessera probe --from topology.conf --from nccl.xml --like dgx-h100 -o net.toml\n");
  command.action([options]() -> Result<int> {
    if (options->json) answer_in_json();
    return run_probe(*options);
  });
}

}  // namespace tessera::cli
