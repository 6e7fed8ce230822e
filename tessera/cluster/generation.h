// A generation of devices: the figures that all boards of one architecture share. The values are in
// the data file tessera/cluster/generations.toml, which also says what each key means.
//
//   const Generation ampere = Generation::named("ampere");
//   if (ampere->switch_sum) ...
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/data_file.h"

namespace tessera {

struct GenerationData {
  std::string name, summary;
  bool processor = false;
  // How the times of collectives are computed (cost/collective_cost.h).
  enum class Collectives : uint8_t { kTuner, kSteps, kHierarchy };
  Collectives collectives = Collectives::kTuner;
  int64_t tuner_row = 0;  // index in kTunerRows
  std::string curves;     // the machine whose measured collectives are used; "": none
  bool low_latency_128 = true;
  bool switch_sum = false;
  double channel_rate = 24e9;  // bytes/s
  int64_t rings_in_node = 2;
  double ring_share = .8;       // share of the nominal rate of direct links that rings use
  double collective_units = 0;  // 0: unknown, or the device has separate engines for collectives
  double message_share = .88;   // share of NVLink's rate that one message reaches
  double nic_share = .96;
  int64_t library_workspace_bytes = 0;
};
inline constexpr std::string_view kTunerRows[] = {"volta", "ampere", "hopper", "blackwell"};

// One row of the data. Two generations are equal if they are the same row.
class Generation {
 public:
  Generation();                                    // "cpu"
  static Generation named(std::string_view name);  // the name must exist
  static std::optional<Generation> find(std::string_view name);
  const GenerationData* operator->() const { return data_; }
  friend bool operator==(const Generation&, const Generation&) = default;

 private:
  explicit Generation(const GenerationData& data) : data_(&data) {}
  const GenerationData* data_;
};
std::string_view generation_name(Generation generation);
std::vector<std::string> generation_names();  // in the order of the file

// Reads the rows. Returns an error with file:line for an unknown key, an invalid value, or a value
// without kind and source.
Result<std::vector<GenerationData>> parse_generations(std::string_view toml, std::string_view file);

const TextFiles& cluster_data();  // data files of this module, put into the program by CMake

}  // namespace tessera
