#include "tessera/predict/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <utility>
#include <vector>

#include "tessera/base/check.h"
#include "tessera/base/text.h"
#include "tessera/cluster/cluster.h"
#include "tessera/predict/framework.h"

namespace tessera {
namespace {

struct Known {
  std::string name;   // in lower case without blanks and punctuation
  std::string board;  // a word that must follow the name; "": none
  Machine machine;
  int64_t memory_gb = 0;
};

struct MachineData {
  std::vector<std::string> glued;
  std::vector<Known> known;  // if a name has several variants, the first is the usual one
};

// Pairs of a trait's name and the member that it sets to true.
constexpr std::array<std::pair<std::string_view, bool Machine::*>, 7> kTraits = {
    {{"fp8", &Machine::fp8},
     {"fp4", &Machine::fp4},
     {"early", &Machine::early},
     {"tuned", &Machine::tuned},
     {"xla", &Machine::xla},
     {"joined", &Machine::joined},
     {"replaces", &Machine::replaces}}};

Status set_trait(const DataTable& table, const std::string& name, Machine& machine) {
  if (name == "fp16_only") {
    machine.bfloat16 = false;
  } else if (name == "bf16_only") {
    machine.float16 = false;
  } else if (name == "no_flash_attention") {
    machine.flash_attention = false;
  } else {
    const auto* found = std::find_if(kTraits.begin(), kTraits.end(),
                                     [&](const auto& trait) { return trait.first == name; });
    if (found == kTraits.end())
      return table.error("traits", fmt::format("'{}' is no trait of a machine", name));
    machine.*found->second = true;
  }
  return {};
}

Status read_machine(const DataTable& table, MachineData& out) {
  std::vector<std::string> names, traits;
  Known known;
  for (const char* key : {"names", "preset", "gpus_a_node", "memory_gb"})
    TESSERA_TRY_VOID(table.require(key));
  TESSERA_TRY_VOID(table.texts("names", names));
  TESSERA_TRY_VOID(table.text("board", known.board));
  TESSERA_TRY_VOID(table.text("preset", known.machine.preset));
  TESSERA_TRY_VOID(table.whole("gpus_a_node", known.machine.gpus_a_node));
  TESSERA_TRY_VOID(table.whole("memory_gb", known.memory_gb));
  TESSERA_TRY_VOID(table.texts("traits", traits));
  for (const std::string& trait : traits) TESSERA_TRY_VOID(set_trait(table, trait, known.machine));
  TESSERA_TRY(const Origin origin, table.origin());
  static_cast<void>(origin);
  TESSERA_TRY_VOID(table.done());
  if (!names_preset(known.machine.preset)) {
    return table.error("preset",
                       fmt::format("'{}' is no preset of a cluster", known.machine.preset));
  }
  for (const std::string& name : names) {
    known.name = name;
    out.known.push_back(known);
  }
  return {};
}

Result<MachineData> read_machines(std::string_view toml, std::string_view file) {
  TESSERA_TRY(const DataTable root, parse_data(toml, file));
  MachineData out;
  TESSERA_TRY(const auto glued, root.tables("glued"));
  for (const DataTable& table : glued) {
    TESSERA_TRY_VOID(table.texts("words", out.glued));
    TESSERA_TRY(const Origin origin, table.origin());
    static_cast<void>(origin);
    TESSERA_TRY_VOID(table.done());
  }
  TESSERA_TRY(const auto machines, root.tables("machine"));
  for (const DataTable& table : machines) TESSERA_TRY_VOID(read_machine(table, out));
  TESSERA_TRY_VOID(root.done());
  return out;
}

const MachineData& machine_data() {
  static const MachineData known = [] {
    auto parsed = read_machines(text_of(predict_data(), "machines"), "machines.toml");
    TESSERA_CHECK(parsed.has_value(), "{}", parsed.error().message);
    return *std::move(parsed);
  }();
  return known;
}

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// Returns the text in lower case, with a blank for everything that is neither letter nor digit.
std::string plain_text(std::string_view text) {
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

// Returns the size of memory (in GB) that the text has at `at`, such as "80gb", "80 gib" or "80g";
// nothing if there is none.
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

// Returns the position after `name` if the text has it at `at`, with or without blanks between its
// letters. Returns 0 if the text does not have it, or if other letters or digits follow than a word
// of `glued` or a size of memory, which would make it another name.
size_t end_of(std::string_view text, size_t at, std::string_view name) {
  for (const char c : name) {
    while (at < text.size() && text[at] == ' ') ++at;
    if (at == text.size() || text[at] != c) return 0;
    ++at;
  }
  if (at == text.size() || text[at] == ' ') return at;
  const std::string_view rest = text.substr(at);
  const auto& glued = machine_data().glued;
  const bool board = std::any_of(glued.begin(), glued.end(),
                                 [&](const std::string& word) { return rest.starts_with(word); });
  return board || memory_at(text, at) ? at : 0;
}

// Returns the positions where words begin. After a count and "x" ("8xa100") a word begins, too.
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

// Returns whether the words that follow the name contain the variant's board. "NVLink" does not
// count as the board "NVL".
bool has_board(const Known& known, std::string_view rest) {
  std::string words;
  for (const char c : rest) {
    if (c != ' ') words += c;
  }
  const size_t at = words.find(known.board);
  return at != std::string::npos && !words.substr(at).starts_with("nvlink");
}

Machine machine_from(const Known& known, std::optional<int64_t> memory_gb) {
  // A stated size that differs from the board's memory by more than a factor of 2 is ignored,
  // because it is the size of another memory ("GH200 480GB" states the host's).
  const bool fits =
      memory_gb && *memory_gb <= 2 * known.memory_gb && 2 * *memory_gb >= known.memory_gb;
  Machine machine = known.machine;
  machine.memory_bytes = (fits ? *memory_gb : known.memory_gb) * 1'000'000'000;
  return machine;
}

}  // namespace

Status check_machines(std::string_view toml, std::string_view file) {
  TESSERA_TRY(const MachineData parsed, read_machines(toml, file));
  static_cast<void>(parsed);
  return {};
}

std::optional<Machine> find_machine(std::string_view gpu) {
  const std::string text = plain_text(gpu);
  for (const size_t start : word_starts(text)) {
    std::string_view name;
    std::string_view rest;
    for (const Known& known : machine_data().known) {
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
    for (const Known& known : machine_data().known) {
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
  if (trim(plain_text(row.gpu)).empty()) return invalid_input("no GPU is stated");
  auto machine = find_machine(row.gpu);
  if (!machine) {
    std::vector<std::string> names;
    for (const Known& known : machine_data().known) names.emplace_back(known.name);
    return invalid_input(fmt::format("the GPU '{}' is not known, did you mean '{}'?", row.gpu,
                                     nearest(plain_text(row.gpu), names)));
  }
  if (row.dtype.arithmetic == Arithmetic::kTf32) {
    TESSERA_TRY(const Cluster preset, load_cluster(machine->preset));
    machine->tf32 = preset.parts.front().type.device.peak.contains("tf32");
  }
  if (machine->replaces) reason = fmt::format("{} priced as {}", row.gpu, machine->preset);
  return *std::move(machine);
}

}  // namespace tessera
