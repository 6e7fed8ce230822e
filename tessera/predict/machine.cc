#include "tessera/predict/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <vector>

#include "tessera/base/text.h"

namespace tessera {
namespace {

enum Trait : unsigned {
  kFp16Only = 1,  // no bfloat16
  kBf16Only = 2,
  kFp8 = 4,
  kFp4 = 8,
  kEarly = 16,
  kXla = 32,
  kJoined = 64,
  kReplaces = 128,
  kTuned = 256,
  kTpu = kBf16Only | kXla | kJoined,
};

struct Known {
  std::string_view name;   // in lower case without blanks and punctuation
  std::string_view board;  // a word that must follow; "": none
  std::string_view preset;
  int64_t gpus_a_node, memory_gb;
  unsigned traits = 0;
};

// Of one name, the first variant is the usual one.
constexpr std::array<Known, 111> kKnown = {{
    // Pascal, Volta, Turing.
    {"p100", "", "dgx-p100", 8, 16, kFp16Only | kEarly},
    {"v100", "", "dgx-v100", 8, 32, kFp16Only | kEarly},
    {"v100", "", "dgx-v100-16", 8, 16, kFp16Only | kEarly},
    {"v100", "pcie", "v100-pcie", 8, 16, kFp16Only | kEarly},
    {"v100s", "", "v100-pcie", 8, 32, kFp16Only | kEarly | kReplaces},
    {"p3", "", "p3.16xlarge", 8, 16, kFp16Only | kEarly},
    {"p3dn", "", "dgx-v100", 8, 32, kFp16Only | kEarly | kReplaces},
    {"t4", "", "t4", 8, 16, kFp16Only | kEarly},
    {"g4dn", "", "t4", 8, 16, kFp16Only | kEarly},
    {"titanrtx", "", "titan-rtx", 8, 24, kFp16Only | kEarly},
    {"quadrortx6000", "", "titan-rtx", 8, 24, kFp16Only | kEarly | kReplaces},
    {"quadrortx8000", "", "titan-rtx", 8, 48, kFp16Only | kEarly | kReplaces},
    {"rtx8000", "", "titan-rtx", 8, 48, kFp16Only | kEarly | kReplaces},
    {"rtx2080ti", "", "2080ti", 8, 11, kFp16Only | kEarly},
    {"2080ti", "", "2080ti", 8, 11, kFp16Only | kEarly},
    {"rtx5000", "", "rtx5000", 4, 16, kFp16Only | kEarly},
    {"quadrortx5000", "", "rtx5000", 4, 16, kFp16Only | kEarly},
    // Ampere.
    {"a100", "", "dgx-a100", 8, 80, kEarly},
    {"a100", "", "dgx-a100-40", 8, 40, kEarly},
    {"a100", "pcie", "a100-pcie", 8, 80, kEarly},
    {"p4d", "", "p4d", 8, 40, kEarly},
    {"p4de", "", "p4de", 8, 80, kEarly},
    {"a800", "", "a800", 8, 80, kEarly},
    {"a10", "", "a10", 8, 24, kEarly},
    {"a10g", "", "a10g", 8, 24, kEarly},
    {"g5", "", "a10g", 8, 24, kEarly},
    {"a30", "", "a30", 8, 24, kEarly},
    {"a40", "", "a40", 8, 48, kEarly},
    {"a6000", "", "a6000", 8, 48, kEarly},
    {"rtxa6000", "", "a6000", 8, 48, kEarly},
    {"a5000", "", "a5000", 8, 24, kEarly},
    {"rtxa5000", "", "a5000", 8, 24, kEarly},
    {"rtx3090", "", "rtx3090", 8, 24, kEarly},
    {"3090", "", "rtx3090", 8, 24, kEarly},
    {"rtx3090ti", "", "rtx3090", 8, 24, kEarly | kReplaces},
    {"3090ti", "", "rtx3090", 8, 24, kEarly | kReplaces},
    // Ada, Hopper, Blackwell.
    {"l4", "", "l4", 8, 24, kFp8},
    {"g6", "", "l4", 8, 24, kFp8},
    {"l40", "", "l40", 8, 48, kFp8},
    {"l40s", "", "l40s", 8, 48, kFp8},
    {"g6e", "", "l40s", 8, 48, kFp8 | kReplaces},
    {"rtx6000ada", "", "l40s", 8, 48, kFp8 | kReplaces},
    {"rtx4090", "", "rtx4090", 8, 24, kFp8},
    {"4090", "", "rtx4090", 8, 24, kFp8},
    {"rtx4090d", "", "rtx4090", 8, 24, kFp8 | kReplaces},
    {"4090d", "", "rtx4090", 8, 24, kFp8 | kReplaces},
    {"h100", "", "dgx-h100", 8, 80, kFp8 | kTuned},
    {"h100", "pcie", "h100-pcie", 8, 80, kFp8},
    {"h100", "nvl", "h100-nvl", 8, 94, kFp8},
    {"h100", "", "h100-500w", 8, 96, kFp8 | kTuned},
    {"h100", "", "h100-500w", 8, 94, kFp8 | kTuned},
    {"p5", "", "dgx-h100", 8, 80, kFp8 | kTuned},
    {"p5e", "", "dgx-h200", 8, 141, kFp8 | kTuned},
    {"p5en", "", "dgx-h200", 8, 141, kFp8 | kTuned},
    {"h800", "", "h800", 8, 80, kFp8 | kTuned},
    {"h20", "", "h20", 8, 96, kFp8 | kTuned},
    {"h200", "", "dgx-h200", 8, 141, kFp8 | kTuned},
    {"gh200", "", "gh200", 1, 96, kFp8 | kTuned},
    {"gracehopper", "", "gh200", 1, 96, kFp8 | kTuned},
    {"b100", "", "b100", 8, 192, kFp8 | kTuned | kFp4},
    {"b200", "", "dgx-b200", 8, 180, kFp8 | kTuned | kFp4},
    {"b300", "", "dgx-b300", 8, 270, kFp8 | kTuned | kFp4},
    {"gb200", "", "gb200-nvl72", 72, 186, kFp8 | kTuned | kFp4},
    {"gb300", "", "gb300-nvl72", 72, 270, kFp8 | kTuned | kFp4},
    // Of other makers.
    {"mi250x", "", "mi250x", 8, 64},
    {"mi250", "", "mi250x", 8, 64, kReplaces},
    {"mi300x", "", "mi300x", 8, 192, kFp8},
    {"mi300", "", "mi300x", 8, 192, kFp8 | kReplaces},
    {"mi325x", "", "mi325x", 8, 256, kFp8},
    {"mi325", "", "mi325x", 8, 256, kFp8},
    {"mi355x", "", "mi355x", 8, 288, kFp8 | kFp4},
    {"mi355", "", "mi355x", 8, 288, kFp8 | kFp4},
    {"mi350x", "", "mi355x", 8, 288, kFp8 | kFp4 | kReplaces},
    {"mi350", "", "mi355x", 8, 288, kFp8 | kFp4 | kReplaces},
    {"gaudi2", "", "gaudi2", 8, 96, kFp8},
    {"habanagaudi2", "", "gaudi2", 8, 96, kFp8},
    {"gaudi3", "", "gaudi3", 8, 128, kFp8},
    {"habanagaudi3", "", "gaudi3", 8, 128, kFp8},
    {"habana", "", "gaudi2", 8, 96, kFp8 | kReplaces},
    {"trainium", "", "trainium", 16, 32, kXla},
    {"trainium1", "", "trainium", 16, 32, kXla},
    {"trn1", "", "trainium", 16, 32, kXla},
    {"trn1n", "", "trainium", 16, 32, kXla | kReplaces},
    {"trainium2", "", "trainium2", 16, 96, kXla | kFp8},
    {"trn2", "", "trainium2", 16, 96, kXla | kFp8},
    {"ascend910b", "", "ascend910b", 8, 64},
    {"ascend910b3", "", "ascend910b", 8, 64},
    {"910b", "", "ascend910b", 8, 64},
    {"910b3", "", "ascend910b", 8, 64},
    {"ascend910", "", "ascend910b", 8, 64, kReplaces},
    {"ascend910a", "", "ascend910b", 8, 64, kReplaces},
    {"ascend910b1", "", "ascend910b", 8, 64, kReplaces},
    {"ascend910b2", "", "ascend910b", 8, 64, kReplaces},
    {"ascend910b4", "", "ascend910b", 8, 64, kReplaces},
    {"tpuv3", "", "tpu-v3", 64, 32, kTpu},
    {"v3", "", "tpu-v3", 64, 32, kTpu},
    {"tpuv4", "", "tpu-v4", 64, 32, kTpu},
    {"v4", "", "tpu-v4", 64, 32, kTpu},
    {"tpuv5e", "", "tpu-v5e", 256, 16, kTpu},
    {"v5e", "", "tpu-v5e", 256, 16, kTpu},
    {"tpuv5lite", "", "tpu-v5e", 256, 16, kTpu},
    {"tpuv5litepod", "", "tpu-v5e", 256, 16, kTpu},
    {"v5lite", "", "tpu-v5e", 256, 16, kTpu},
    {"v5litepod", "", "tpu-v5e", 256, 16, kTpu},
    {"tpuv5p", "", "tpu-v5p", 64, 95, kTpu},
    {"v5p", "", "tpu-v5p", 64, 95, kTpu},
    {"tpuv5", "", "tpu-v5p", 64, 95, kTpu},
    {"tpuv6e", "", "tpu-v6e", 256, 32, kTpu},
    {"v6e", "", "tpu-v6e", 256, 32, kTpu},
    {"tpuv6", "", "tpu-v6e", 256, 32, kTpu},
    {"trillium", "", "tpu-v6e", 256, 32, kTpu},
}};

// Words that may follow a name at once ("A100SXM4", "H100PCIe").
constexpr std::array<std::string_view, 4> kGlued = {"sxm", "pcie", "nvl", "hbm"};

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// Lower case; a blank for everything that is neither letter nor digit.
std::string plain(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    out += std::isalnum(byte) != 0 ? static_cast<char>(std::tolower(byte)) : ' ';
  }
  return out;
}

size_t after_digits(std::string_view text, size_t at) {
  while (at < text.size() && is_digit(text[at])) ++at;
  return at;
}

// A size of memory at `at` ("80gb", "80 gib", "80g"); nothing if none is there.
std::optional<int64_t> memory_at(std::string_view text, size_t at) {
  size_t end = after_digits(text, at);
  if (end == at || end - at > 4) return std::nullopt;
  const int64_t size = parse_int(text.substr(at, end - at)).value_or(0);
  while (end < text.size() && text[end] == ' ') ++end;
  if (end == text.size() || text[end] != 'g') return std::nullopt;
  ++end;
  if (end < text.size() && text[end] == 'i') ++end;
  if (end < text.size() && text[end] == 'b') ++end;
  if (end < text.size() && std::isalpha(static_cast<unsigned char>(text[end])) != 0 &&
      !text.substr(end).starts_with("pcie"))
    return std::nullopt;
  return size;
}

std::optional<int64_t> memory_in(std::string_view text) {
  for (size_t at = 0; at < text.size(); at = std::max(at + 1, after_digits(text, at))) {
    if (const auto found = memory_at(text, at)) return found;
  }
  return std::nullopt;
}

// Where `name` ends in `text` if it stands at `at`, blanks between its letters or not, and nothing
// follows that makes it another name; 0: it does not.
size_t end_of(std::string_view text, size_t at, std::string_view name) {
  for (const char c : name) {
    while (at < text.size() && text[at] == ' ') ++at;
    if (at == text.size() || text[at] != c) return 0;
    ++at;
  }
  if (at == text.size() || text[at] == ' ') return at;
  const std::string_view rest = text.substr(at);
  const bool glued = std::any_of(kGlued.begin(), kGlued.end(),
                                 [&](std::string_view word) { return rest.starts_with(word); });
  return glued || memory_at(text, at) ? at : 0;
}

// Beginnings of words, also behind a count ("8xa100").
std::vector<size_t> word_starts(std::string_view text) {
  std::vector<size_t> starts;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == ' ' || (at > 0 && text[at - 1] != ' ')) continue;
    starts.push_back(at);
    const size_t count = after_digits(text, at);
    if (count > at && count < text.size() && text[count] == 'x') starts.push_back(count + 1);
  }
  return starts;
}

// Is the variant's board among the words behind the name? ("NVLink" is no NVL.)
bool has_board(const Known& known, std::string_view rest) {
  std::string words;
  for (const char c : rest) {
    if (c != ' ') words += c;
  }
  const size_t at = words.find(known.board);
  return at != std::string::npos && !words.substr(at).starts_with("nvlink");
}

Machine machine_from(const Known& known, std::optional<int64_t> memory_gb) {
  const auto has = [&](unsigned trait) { return (known.traits & trait) != 0; };
  // What is far from the board's memory is another one ("GH200 480GB": the host's).
  const bool fits =
      memory_gb && *memory_gb <= 2 * known.memory_gb && 2 * *memory_gb >= known.memory_gb;
  Machine machine;
  machine.preset = known.preset;
  machine.gpus_a_node = known.gpus_a_node;
  machine.memory_bytes = (fits ? *memory_gb : known.memory_gb) * 1'000'000'000;
  machine.float16 = !has(kBf16Only);
  machine.bfloat16 = !has(kFp16Only);
  machine.fp8 = has(kFp8);
  machine.fp4 = has(kFp4);
  machine.early = has(kEarly);
  machine.tuned = has(kTuned);
  machine.xla = has(kXla);
  machine.joined = has(kJoined);
  machine.replaces = has(kReplaces);
  return machine;
}

}  // namespace

std::optional<Machine> find_machine(std::string_view gpu) {
  const std::string text = plain(gpu);
  for (const size_t start : word_starts(text)) {
    std::string_view name;
    std::string_view rest;
    for (const Known& known : kKnown) {
      if (known.name.size() <= name.size()) continue;
      if (const size_t end = end_of(text, start, known.name); end > 0) {
        name = known.name;
        rest = std::string_view(text).substr(end);
      }
    }
    if (name.empty()) continue;
    const auto memory_gb = memory_in(rest);
    const Known* best = nullptr;
    int best_rank = -1;
    for (const Known& known : kKnown) {
      if (known.name != name || (!known.board.empty() && !has_board(known, rest))) continue;
      const int rank = (known.board.empty() ? 0 : 2) + (memory_gb == known.memory_gb ? 1 : 0);
      if (rank <= best_rank) continue;
      best = &known;
      best_rank = rank;
    }
    return machine_from(*best, memory_gb);
  }
  return std::nullopt;
}

Result<Machine> machine_of(const Row& row, std::string& reason) {
  if (trim(plain(row.gpu)).empty()) return invalid_input("no GPU is stated");
  auto machine = find_machine(row.gpu);
  if (!machine) {
    std::vector<std::string> names;
    for (const Known& known : kKnown) names.emplace_back(known.name);
    return invalid_input(fmt::format("the GPU '{}' is not known, did you mean '{}'?", row.gpu,
                                     nearest(plain(row.gpu), names)));
  }
  if (machine->replaces) reason = fmt::format("{} priced as {}", row.gpu, machine->preset);
  return *std::move(machine);
}

}  // namespace tessera
