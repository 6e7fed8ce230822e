#include "tessera/network/host_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "tessera/base/json_text.h"
#include "tessera/base/text.h"

namespace tessera {
namespace {

constexpr std::array<std::pair<std::string_view, HostFileForm>, 5> kForms = {
    {{"hostfile", HostFileForm::kHostfile},
     {"rankfile", HostFileForm::kRankfile},
     {"slurm", HostFileForm::kSlurm},
     {"torchrun", HostFileForm::kTorchrun},
     {"json", HostFileForm::kJson}}};

// Hosts in the order of their ranks, each with its number of ranks.
using Blocks = std::vector<std::pair<std::string, int64_t>>;

// Returns the blocks; an error if the ranks of a host are not a block in the order of its devices.
Result<Blocks> blocks_of(std::string_view form, const std::vector<PlacedRank>& places) {
  Blocks out;
  for (size_t rank = 0; rank < places.size(); ++rank) {
    const PlacedRank& place = places[rank];
    const bool again = !out.empty() && out.back().first == place.host;
    const auto other = std::ranges::find(out, place.host, &Blocks::value_type::first);
    if ((!again && other != out.end()) || place.device != (again ? out.back().second : 0)) {
      return invalid_input(fmt::format(
          "{}: expected ranks that follow each other on their host, found rank {} on device {} of "
          "{}; the forms rankfile and json can say so",
          form, rank, place.device, place.host));
    }
    if (!again) out.emplace_back(place.host, 0);
    ++out.back().second;
  }
  return out;
}

std::string rankfile_text(const std::vector<PlacedRank>& places) {
  std::string out;
  for (size_t rank = 0; rank < places.size(); ++rank)
    out += fmt::format("rank {}={} slot={}\n", rank, places[rank].host, places[rank].device);
  return out;
}

Result<std::string> torchrun_text(const std::vector<PlacedRank>& places) {
  TESSERA_TRY(const Blocks blocks, blocks_of("torchrun", places));
  std::string out;
  for (size_t node = 0; node < blocks.size(); ++node) {
    if (blocks[node].second != blocks[0].second) {
      return invalid_input(fmt::format(
          "torchrun: expected equally many ranks on each host, found {} on {} and {} on {}",
          blocks[0].second, blocks[0].first, blocks[node].second, blocks[node].first));
    }
    out += fmt::format(
        "ssh {} torchrun --nnodes={} --node_rank={} --nproc_per_node={} --master_addr={} "
        "--master_port=29500 \"$@\" &\n",
        blocks[node].first, blocks.size(), node, blocks[node].second, blocks[0].first);
  }
  return "# sh FILE train.py ...: node ranks are static, so that hosts keep this order.\n" + out +
         "wait\n";
}

// Returns a line for each rank. Slurm numbers the tasks of a host in the order of their lines.
Result<std::string> slurm_text(const std::vector<PlacedRank>& places) {
  std::map<std::string, int64_t> tasks;
  std::string out;
  for (size_t rank = 0; rank < places.size(); ++rank) {
    const PlacedRank& place = places[rank];
    const int64_t task = tasks[place.host]++;
    if (place.device != task) {
      return invalid_input(fmt::format(
          "slurm: expected the ranks of a host in the order of its devices, found rank {}, the "
          "{}th of {}, on device {}; the forms rankfile and json can say so",
          rank, task, place.host, place.device));
    }
    out += place.host + "\n";
  }
  return out;
}

std::string json_text(const std::vector<PlacedRank>& places) {
  using Json = nlohmann::ordered_json;
  Json ranks = Json::array();
  std::vector<std::string> hosts;
  for (size_t rank = 0; rank < places.size(); ++rank) {
    const PlacedRank& place = places[rank];
    auto known = std::ranges::find(hosts, place.host);
    if (known == hosts.end()) known = hosts.insert(hosts.end(), place.host);
    ranks.push_back({{"rank", rank},
                     {"host", place.host},
                     {"local_rank", place.device},
                     {"node_rank", known - hosts.begin()}});
  }
  return dumped(Json{{"world_size", places.size()}, {"hosts", hosts}, {"ranks", std::move(ranks)}},
                1) +
         "\n";
}

}  // namespace

std::vector<std::string> host_file_forms() {
  std::vector<std::string> out;
  for (const auto& [name, form] : kForms) out.emplace_back(name);
  return out;
}

Result<HostFile> parse_host_file(std::string_view text) {
  const size_t sign = text.find('=');
  for (const auto& [name, form] : kForms) {
    if (sign != text.npos && name == text.substr(0, sign) && sign + 1 < text.size())
      return HostFile{form, std::string(text.substr(sign + 1))};
  }
  return invalid_input(fmt::format("expected FORM=FILE with a form of {}, found '{}'",
                                   join(host_file_forms(), ", "), text));
}

Result<std::string> host_file_text(HostFileForm form, const std::vector<PlacedRank>& places) {
  switch (form) {
    case HostFileForm::kHostfile: {
      TESSERA_TRY(const Blocks blocks, blocks_of("hostfile", places));
      std::string out;
      for (const auto& [host, slots] : blocks) out += fmt::format("{} slots={}\n", host, slots);
      return out;
    }
    case HostFileForm::kRankfile: return rankfile_text(places);
    case HostFileForm::kSlurm: return slurm_text(places);
    case HostFileForm::kTorchrun: return torchrun_text(places);
    case HostFileForm::kJson: return json_text(places);
  }
  return std::string();
}

}  // namespace tessera
