// A generation of devices: the figures that all boards of one architecture share. The generations
// are data, tessera/cluster/generations.toml, which also says what each key means.
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
  // The way in which collectives are priced (cost/collective_cost.h).
  enum class Collectives : uint8_t { kTuner, kSteps, kHierarchy };
  Collectives collectives = Collectives::kTuner;
  int64_t tuner_row = 0;  // of kTunerRows
  std::string curves;     // the machine whose measured collectives hold; "": none
  bool low_latency_128 = true;
  bool switch_sum = false;
  double channel_rate = 24e9;  // bytes/s
  int64_t rings_in_node = 2;
  double ring_share = .8;       // of the nominal rate of direct links, that rings use
  double collective_units = 0;  // 0: not known, or the device has engines of its own for it
  double message_share = .88;   // of NVLink's rate
  double nic_share = .96;
  int64_t library_workspace_bytes = 0;
};
inline constexpr std::string_view kTunerRows[] = {"volta", "ampere", "hopper", "blackwell"};

// A generation is a value: one row of the data. Two generations are equal if they are the same row.
class Generation {
 public:
  Generation();                                    // "cpu"
  static Generation named(std::string_view name);  // the name must be there
  static std::optional<Generation> find(std::string_view name);
  const GenerationData* operator->() const { return data_; }
  friend bool operator==(const Generation&, const Generation&) = default;

 private:
  explicit Generation(const GenerationData& data) : data_(&data) {}
  const GenerationData* data_;
};
std::string_view generation_name(Generation generation);
std::vector<std::string> generation_names();  // in the order of the file

// Reads the rows. Errors: file:line of an unknown key, of an invalid value, of a value without kind
// and source.
Result<std::vector<GenerationData>> parse_generations(std::string_view toml, std::string_view file);

const TextFiles& cluster_data();  // the files of data of this module, made by CMake

}  // namespace tessera
