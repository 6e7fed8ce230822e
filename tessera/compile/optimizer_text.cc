#include "tessera/compile/optimizer_text.h"

#include <fmt/format.h>

#include "tessera/base/text.h"
#include "tessera/graph/optimizers.h"

namespace tessera {
namespace {

Result<std::string> known_optimizer(const std::string& name) {
  if (find_optimizer(name) != nullptr) return name;
  const std::vector<std::string> names = optimizer_names();
  return invalid_input(fmt::format("optimizer: unknown '{}', did you mean '{}'? ({})", name,
                                   nearest(name, names), join(names, ", ")));
}

}  // namespace

Result<OptimizerSpec> parse_optimizer_text(std::string_view text) {
  OptimizerSpec spec;
  if (text.empty()) return spec;
  const std::vector<std::string> parts = split_text(text, ',');
  TESSERA_TRY(spec.kind, known_optimizer(parts.front()));
  for (size_t i = 1; i < parts.size(); ++i) {
    const size_t equals = parts[i].rfind('=');
    if (equals == std::string::npos || equals == 0) {
      return invalid_input(fmt::format(
          "optimizer: expected PATTERN=OPTIMIZER behind the first, as tables.*=rowwise_adagrad, "
          "found '{}'",
          parts[i]));
    }
    OptimizerGroup group;
    group.parameters = parts[i].substr(0, equals);
    TESSERA_TRY(group.kind, known_optimizer(parts[i].substr(equals + 1)));
    spec.groups.push_back(std::move(group));
  }
  return spec;
}

std::string optimizer_text(const OptimizerSpec& optimizer) {
  std::string text = optimizer.kind;
  for (const OptimizerGroup& group : optimizer.groups) {
    if (!group.kind.empty()) text += fmt::format(",{}={}", group.parameters, group.kind);
  }
  return text;
}

}  // namespace tessera
