// Models of NVIDIA's topograph: YAML with `switches`, each with the switches below it, and `blocks`,
// each with a leaf switch, its nodes and annotations, among which the accelerator domain.
#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include "tessera/base/one_line.h"
#include "tessera/network/readers.h"
#include "tessera/network/readers_build.h"

namespace tessera::network {
namespace {

int line_of(const YAML::Node& node) { return node.Mark().line + 1; }

// Returns the texts of a list of scalars, or of one scalar.
Result<std::vector<std::string>> texts(const NetworkBuilder& builder, const YAML::Node& node,
                                       std::string_view what) {
  std::vector<std::string> out;
  if (node.IsScalar()) return std::vector<std::string>{node.Scalar()};
  if (!node.IsSequence()) {
    return builder.error(line_of(node),
                         fmt::format("expected a list of {}, found another value", what));
  }
  for (const YAML::Node& item : node) {
    if (!item.IsScalar()) {
      return builder.error(
          line_of(item),
          fmt::format("expected a name in the list of {}, found another value", what));
    }
    out.push_back(item.Scalar());
  }
  return out;
}

Status add_switches(NetworkBuilder& builder, const YAML::Node& switches) {
  if (!switches.IsMap())
    return builder.error(line_of(switches), "expected switches by name, found another value");
  for (const auto& entry : switches) {
    if (!entry.first.IsScalar()) {
      return builder.error(line_of(entry.first),
                           "expected the name of a switch, found another value");
    }
    const std::string name = entry.first.Scalar();
    TESSERA_TRY_VOID(builder.add_switch(name, "", line_of(entry.first)));
    if (!entry.second.IsMap()) continue;
    if (const YAML::Node below = entry.second["switches"]; below && !below.IsNull()) {
      TESSERA_TRY(const auto names, texts(builder, below, "switches"));
      for (const std::string& one : names) {
        TESSERA_TRY(const auto expanded,
                    expand_names(one, fmt::format("{}:{}", builder.file(), line_of(below))));
        for (const std::string& child : expanded)
          TESSERA_TRY_VOID(builder.add_switch(child, name, line_of(below)));
      }
    }
  }
  return {};
}

// Returns the value of the annotation that names the accelerator domain, whose key ends in "/domain".
std::string domain_of(const YAML::Node& block) {
  const YAML::Node annotations = block["annotations"];
  if (!annotations || !annotations.IsMap()) return "";
  for (const auto& entry : annotations) {
    if (entry.first.IsScalar() && entry.second.IsScalar() &&
        entry.first.Scalar().ends_with("/domain"))
      return entry.second.Scalar();
  }
  return "";
}

Status add_block(NetworkBuilder& builder, const YAML::Node& block) {
  if (!block.IsMap() || !block["switch"] || !block["switch"].IsScalar() || !block["nodes"]) {
    return builder.error(line_of(block),
                         "expected a block with 'switch' and 'nodes', found another value");
  }
  const std::string below = block["switch"].Scalar();
  const std::string domain = domain_of(block);
  const int line = line_of(block["nodes"]);
  TESSERA_TRY(const auto nodes, texts(builder, block["nodes"], "nodes"));
  for (const std::string& text : nodes) {
    TESSERA_TRY(const auto names, expand_names(text, fmt::format("{}:{}", builder.file(), line)));
    for (const std::string& name : names) {
      TESSERA_TRY_VOID(builder.add_node(name, below, line));
      if (!domain.empty()) TESSERA_TRY_VOID(builder.set_domain(name, domain, line));
    }
  }
  return {};
}

Result<Network> read_model(const YAML::Node& model, const std::string& file) {
  NetworkBuilder builder(file);
  if (!model.IsMap() || !model["blocks"] || !model["blocks"].IsSequence()) {
    return builder.error(
        0, "expected a topograph model with 'switches' and 'blocks', found another document");
  }
  if (const YAML::Node switches = model["switches"]; switches && !switches.IsNull())
    TESSERA_TRY_VOID(add_switches(builder, switches));
  for (const YAML::Node& block : model["blocks"]) TESSERA_TRY_VOID(add_block(builder, block));
  return builder.finish();
}

}  // namespace

Result<Network> read_topograph(std::string_view yaml, const std::string& file) {
  try {
    return read_model(YAML::Load(std::string(yaml)), file);
  } catch (const YAML::Exception& error) {
    return invalid_input(fmt::format("{}:{}: expected YAML, found: {}", file, error.mark.line + 1,
                                     short_line(error.msg)));
  }
}

}  // namespace tessera::network
