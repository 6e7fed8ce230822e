// Readers of files in which others describe networks: what a file says need not be measured.
// Each reader takes the file's text; `file` names it in messages, which are one line. Nothing that a
// file says is trusted: sizes are bounded and names are checked.
//
// | kind       | what it is                                     | how read_network() knows it        |
// |------------|------------------------------------------------|------------------------------------|
// | cluster    | a cluster file of ours                         | name ends in .toml                 |
// | topograph  | a model of NVIDIA's topograph (YAML)           | name ends in .yaml or .yml         |
// | slurm      | topology.conf of Slurm, tree or block          | SwitchName= or BlockName=          |
// | slurm_addr | lines of SLURM_TOPOLOGY_ADDR, one a node       | names joined by dots, nothing else |
// | ec2        | the answer of DescribeInstanceTopology         | JSON with NetworkNodes             |
// | gcp        | `gcloud compute instances list --format=json`  | JSON with physicalHostTopology     |
// | nccl       | NCCL_TOPO_DUMP_FILE, the inside of a node      | begins with <                      |
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/network/network.h"

namespace tessera::network {

Result<Network> read_network(const std::string& path);

Result<Network> read_topograph(std::string_view yaml, const std::string& file);
// Reads nodes below switches, or in blocks. Blocks that BlockSizes puts together are below one
// switch, called after its first and last block.
Result<Network> read_slurm(std::string_view conf, const std::string& file);
// Reads lines as "core.rack1.node7": switches from the top, and the node. `#` begins a comment.
Result<Network> read_slurm_addresses(std::string_view text, const std::string& file);
Result<Network> read_ec2(std::string_view json, const std::string& file);
Result<Network> read_gcp(std::string_view json, const std::string& file);
Result<Network> read_nccl(std::string_view xml, const std::string& file);

// A file of hosts, one a line, as mpirun takes it. `#` begins a comment.
struct HostLine {
  std::string name;
  std::string known_as;  // the second word of the line, "i-0abc": its name in other sources
  int64_t slots = 0;     // "slots=8"; 0: not given
};
Result<std::vector<HostLine>> read_hosts(std::string_view text, const std::string& file);

// Returns the names that a list with ranges stands for: "I[21-22],n[08-10,12]" is I21, I22, n08, n09,
// n10, n12. A name may have several ranges. `where` begins the message of an error.
Result<std::vector<std::string>> expand_names(std::string_view text, const std::string& where);

}  // namespace tessera::network
