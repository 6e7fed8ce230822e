#include "tessera/cluster/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "tessera/base/check.h"
#include "tessera/base/text.h"
#include "tessera/base/units.h"

namespace tessera {
namespace {

constexpr std::string_view kCollectives[] = {"tuner", "steps", "hierarchy"};

// Reads the text under `key` and sets the target to the index of this text in `names`. If the key
// is absent, the target keeps its value.
template <class Names, class Target>
Status read_choice_of(const DataTable& table, std::string_view key, const Names& names,
                      Target& target) {
  if (!table.has(key)) return {};
  std::string text;
  TESSERA_TRY_VOID(table.text(key, text));
  const auto found = std::find(std::begin(names), std::end(names), text);
  if (found == std::end(names)) {
    return table.error(key, fmt::format("expected one of {}, found '{}'",
                                        join({std::begin(names), std::end(names)}, ", "), text));
  }
  target = static_cast<Target>(found - std::begin(names));
  return {};
}

Status read_quantity(const DataTable& table, std::string_view key, Quantity what, double& target) {
  if (!table.has(key)) return {};
  std::string text;
  TESSERA_TRY_VOID(table.text(key, text));
  const auto value = parse_quantity(text, what);
  if (!value) return table.error(key, value.error().message);
  target = *value;
  return {};
}

// Reads `ring_links`, a list of three numbers: the links of a device, the rate of one link as rings
// use it, and the nominal rate of all links. Sets the target to the share of the nominal rate that
// rings use.
Status read_ring_share(const DataTable& table, double& target) {
  std::vector<double> links;
  TESSERA_TRY_VOID(table.reals("ring_links", links));
  if (links.empty()) return {};
  if (links.size() != 3 || links[2] <= 0)
    return table.error("ring_links", "expected a number of links, GB/s of one, GB/s of all");
  target = links[0] * links[1] / links[2];
  return {};
}

Status read_set(const DataTable& table, GenerationData& out) {
  TESSERA_TRY(const Origin origin, table.origin());
  static_cast<void>(origin);
  TESSERA_TRY_VOID(table.flag("processor", out.processor));
  TESSERA_TRY_VOID(read_choice_of(table, "collectives", kCollectives, out.collectives));
  TESSERA_TRY_VOID(read_choice_of(table, "tuner", kTunerRows, out.tuner_row));
  TESSERA_TRY_VOID(table.text("curves", out.curves));
  TESSERA_TRY_VOID(table.flag("low_latency_128", out.low_latency_128));
  TESSERA_TRY_VOID(table.flag("switch_sum", out.switch_sum));
  TESSERA_TRY_VOID(
      read_quantity(table, "channel_rate", Quantity::kBytesPerSecond, out.channel_rate));
  TESSERA_TRY_VOID(table.whole("rings_in_node", out.rings_in_node));
  TESSERA_TRY_VOID(read_ring_share(table, out.ring_share));
  TESSERA_TRY_VOID(table.real("collective_units", out.collective_units));
  TESSERA_TRY_VOID(table.real("message_share", out.message_share));
  TESSERA_TRY_VOID(table.real("nic_share", out.nic_share));
  double workspace = static_cast<double>(out.library_workspace_bytes);
  TESSERA_TRY_VOID(read_quantity(table, "library_workspace", Quantity::kBytes, workspace));
  out.library_workspace_bytes = static_cast<int64_t>(workspace);
  return table.done();
}

const std::vector<GenerationData>& all_generations() {
  static const std::vector<GenerationData> all = [] {
    auto parsed = parse_generations(text_of(cluster_data(), "generations"), "generations.toml");
    TESSERA_CHECK(parsed.has_value(), "{}", parsed.error().message);
    return *std::move(parsed);
  }();
  return all;
}

}  // namespace

Result<std::vector<GenerationData>> parse_generations(std::string_view toml,
                                                      std::string_view file) {
  TESSERA_TRY(const DataTable root, parse_data(toml, file));
  TESSERA_TRY(const auto tables, root.tables("generation"));
  std::vector<GenerationData> all;
  for (const DataTable& table : tables) {
    GenerationData& one = all.emplace_back();
    TESSERA_TRY_VOID(table.require("name"));
    TESSERA_TRY_VOID(table.text("name", one.name));
    TESSERA_TRY_VOID(table.text("summary", one.summary));
    TESSERA_TRY(const auto blocks, table.tables("set"));
    for (const DataTable& block : blocks) TESSERA_TRY_VOID(read_set(block, one));
    TESSERA_TRY_VOID(table.done());
  }
  TESSERA_TRY_VOID(root.done());
  return all;
}

Generation::Generation() : Generation(named("cpu")) {}

std::optional<Generation> Generation::find(std::string_view name) {
  for (const GenerationData& data : all_generations()) {
    if (data.name == name) return Generation(data);
  }
  return std::nullopt;
}

Generation Generation::named(std::string_view name) {
  const auto found = find(name);
  TESSERA_CHECK(found.has_value(), "no generation '{}'", name);
  return *found;
}

std::string_view generation_name(Generation generation) { return generation->name; }

std::vector<std::string> generation_names() {
  std::vector<std::string> names;
  for (const GenerationData& data : all_generations()) names.push_back(data.name);
  return names;
}

}  // namespace tessera
