// Parts of the writer and the reader of TorchTitan's configurations.
#pragma once

#include <array>
#include <string>

#include "tessera/export/target.h"

namespace tessera {

inline constexpr std::string_view kTorchTitan = "torchtitan";

struct TitanSchedule {
  const char* ours;
  const char* theirs;
  bool loops;  // whether a rank has several stages
};
inline constexpr std::array kTitanSchedules = {
    TitanSchedule{"1f1b", "1F1B", false}, TitanSchedule{"gpipe", "GPipe", false},
    TitanSchedule{"interleaved", "Interleaved1F1B", true},
    TitanSchedule{"zb_v", "ZBVZeroBubble", true}};

// Returns all keys of a configuration: Python of 0.3, TOML of 0.2, or a command line with options.
Result<SaidKeys> scan_torchtitan(const std::string& text);
Result<ExportSettings> settings_of_torchtitan(const SettingsRequest& request);

// A module that tensor ranks may leave whole: the dim that they do not cut then, and the name of the
// function that says so in the module `planned` of the writer.
struct TitanWhole {
  const char* dim;
  const char* function;
};
inline constexpr std::array<TitanWhole, 2> kTitanWhole{
    {{"heads", "planned.whole_attention"}, {"ffn", "planned.whole_mlp"}}};

}  // namespace tessera
