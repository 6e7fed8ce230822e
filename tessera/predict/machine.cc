#include "tessera/predict/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace tessera {
namespace {

constexpr int64_t kGb = 1'000'000'000;

struct Known {
  const char* name;  // beginning of the GPU's name in lower case without blanks and hyphens
  Machine machine;
};

// The longest beginning counts; names alone mean the usual board.
const std::array<Known, 40>& known() {
  static const std::array<Known, 40> all = {{
      {"p100", {"dgx-p100", 8, 16 * kGb, false}},
      {"v10016gb", {"dgx-v100-16", 8, 16 * kGb, false}},
      {"v10032gb", {"dgx-v100", 8, 32 * kGb, false}},
      {"v100sxm216gb", {"dgx-v100-16", 8, 16 * kGb, false}},
      {"v100pcie", {"v100-pcie", 8, 16 * kGb, false}},
      {"v100", {"dgx-v100", 8, 32 * kGb, false}},
      {"t4", {"t4", 8, 16 * kGb, false}},
      {"titanrtx", {"titan-rtx", 8, 24 * kGb, false}},
      {"rtx2080ti", {"2080ti", 8, 11 * kGb, false}},
      {"2080ti", {"2080ti", 8, 11 * kGb, false}},
      {"rtx5000", {"rtx5000", 4, 16 * kGb, false}},
      {"quadrortx5000", {"rtx5000", 4, 16 * kGb, false}},
      {"a10040gb", {"dgx-a100-40", 8, 40 * kGb}},
      {"a10080gb", {"dgx-a100", 8, 80 * kGb}},
      {"a100sxm40gb", {"dgx-a100-40", 8, 40 * kGb}},
      {"a100sxm440gb", {"dgx-a100-40", 8, 40 * kGb}},
      {"a100pcie", {"a100-pcie", 8, 80 * kGb}},
      {"a10080gbpcie", {"a100-pcie", 8, 80 * kGb}},
      {"a100", {"dgx-a100", 8, 80 * kGb}},
      {"a800", {"a800", 8, 80 * kGb}},
      {"l40", {"l40s", 8, 48 * kGb, true, true}},
      {"h10080gbpcie", {"h100-pcie", 8, 80 * kGb, true, true}},
      {"h100pcie", {"h100-pcie", 8, 80 * kGb, true, true}},
      {"h10096gb", {"h100-500w", 8, 96 * kGb, true, true}},
      {"h10094gb", {"h100-500w", 8, 96 * kGb, true, true}},
      {"h100", {"dgx-h100", 8, 80 * kGb, true, true}},
      {"h800", {"h800", 8, 80 * kGb, true, true}},
      {"h20", {"h800", 8, 96 * kGb, true, true}},
      {"h200", {"dgx-h200", 8, 141 * kGb, true, true}},
      {"gh200", {"dgx-h200", 8, 96 * kGb, true, true}},
      {"b100", {"dgx-b200", 8, 180 * kGb, true, true, true}},
      {"b200", {"dgx-b200", 8, 180 * kGb, true, true, true}},
      {"b300", {"dgx-b300", 8, 270 * kGb, true, true, true}},
      {"gb200", {"gb200-nvl72", 72, 186 * kGb, true, true, true}},
      {"gb300", {"gb300-nvl72", 72, 270 * kGb, true, true, true}},
      {"a40", {"l40s", 8, 48 * kGb}},
      {"a6000", {"l40s", 8, 48 * kGb}},
      {"rtxa6000", {"l40s", 8, 48 * kGb}},
      {"rtx4090", {"l40s", 8, 24 * kGb, true, true}},
      {"4090", {"l40s", 8, 24 * kGb, true, true}},
  }};
  return all;
}

std::string plain(const std::string& name) {
  std::string out;
  for (const char c : name) {
    if (c != '-' && c != '_' && c != ' ')
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  if (out.starts_with("nvidia")) out = out.substr(6);
  if (out.starts_with("tesla")) out = out.substr(5);
  return out;
}

}  // namespace

Result<Machine> machine_of(const Row& row, std::string& reason) {
  const std::string gpu = plain(row.gpu);
  if (gpu.empty()) return invalid_input("no GPU is stated");
  const Known* best = nullptr;
  for (const Known& candidate : known()) {
    if (gpu.starts_with(candidate.name) &&
        (best == nullptr || std::string(candidate.name).size() > std::string(best->name).size()))
      best = &candidate;
  }
  if (best == nullptr) return invalid_input(fmt::format("the GPU '{}' is not known", row.gpu));
  Machine machine = best->machine;
  for (const char* other :
       {"a40", "a6000", "rtxa6000", "rtx4090", "4090", "h20", "gh200", "b100"}) {
    if (best->name == std::string(other))
      reason = fmt::format("{} priced as {}", row.gpu, machine.preset);
  }
  return machine;
}

}  // namespace tessera
