// The recipe with separate splits for each kind of op in a block, as in Alpa's intra-operator
// plans (docs/planners/alpa.md).
#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/text.h"
#include "tessera/plan/recipes/families.h"
#include "tessera/plan/recipes/parts.h"

namespace tessera::recipes {
namespace {

using Splits = std::vector<std::pair<std::string, std::string>>;  // dim, axes

// Reads the text of a mesh, "a2,b2", which is the names and sizes of its axes.
Result<Axes> parse_mesh(const std::string& mesh) {
  Axes axes;
  for (const std::string& part : split_text(mesh, ',')) {
    const std::string_view axis = trim(part);
    const size_t digit = std::min(axis.find_first_of("0123456789"), axis.size());
    const auto size = parse_int(axis.substr(digit));
    if (digit == 0 || !size || *size < 1) {
      return invalid_input(fmt::format("mesh: expected axes such as 'a2,b2', found '{}'", axis));
    }
    axes.emplace_back(axis.substr(0, digit), *size);
  }
  return axes;
}

// Returns a pattern of the ops that the name of an entry means. For "attention" and "mlp" these are
// the ops with the dim heads or ffn, so no residual sums.
std::string selected_op(const Graph& graph, const std::string& name) {
  const size_t at = name.find('@');
  const std::string part = name.substr(0, at);
  const std::string layers = at == std::string::npos ? "*" : name.substr(at + 1);
  if (part == "attention") return ops_with(graph, "heads", "", layers);
  if (part == "mlp") return ops_with(graph, "ffn", "", layers);
  if (part == "norms") return "blocks." + layers + ".ln_*";
  return name;
}

// Adds the splits of an entry such as "mlp@[0-1]=batch:a,ffn:b". Dims that earlier entries split
// and this entry does not name are made whole in its ops.
Status add_entry(PlanText& text, const Graph& graph, const std::string& entry) {
  const auto wrong = [&](std::string_view expected) {
    return invalid_input(fmt::format("spec: expected {}, found '{}'", expected, entry));
  };
  const size_t equals = entry.find('=');
  if (equals == std::string::npos) return wrong("'attention=heads:a,batch:b'");
  const std::string name(trim(std::string_view(entry).substr(0, equals)));
  const std::string ops = selected_op(graph, name);
  if (ops.empty()) return wrong(fmt::format("ops of the kind '{}' in the model", name));
  Splits splits;
  for (const std::string& part : split_text(std::string_view(entry).substr(equals + 1), ',')) {
    std::vector<std::string> words = split_text(trim(part), ':');
    if (words.size() != 2) return wrong("splits such as 'heads:a' or 'batch:a+b'");
    if (!has_dim(graph, ops, words[0])) return wrong("a dim of the ops");
    splits.emplace_back(words[0], join(split_text(words[1], '+'), ","));
  }
  for (const char* dim : {"batch", "seq", "hidden", "heads", "ffn", "vocab"}) {
    const bool said = std::any_of(splits.begin(), splits.end(),
                                  [&](const auto& split) { return split.first == dim; });
    if (!said && has_dim(graph, ops, dim)) text.split(ops, dim, "");
  }
  for (const auto& [dim, over] : splits) text.split(ops, dim, over);
  return {};
}

Result<PlanText> emit_per_op(const RecipeArguments& arguments, const Graph& graph) {
  TESSERA_TRY(const Axes axes, parse_mesh(arguments.text("mesh")));
  PlanText text{.mesh = axes, .micro_batches = arguments.number("micro_batches")};
  for (const std::string& entry : split_text(arguments.text("spec"), ';'))
    TESSERA_TRY_VOID(add_entry(text, graph, std::string(trim(entry))));
  return text;
}

}  // namespace

std::vector<Recipe> per_op_recipes() {
  return {
      {"per_op",
       "Alpa: splits of its own for attention, mlp, norms and others, also by layer",
       {{"mesh", std::nullopt, "axes and sizes: \"a2,b2\"", 0, true},
        {"spec", std::nullopt,
         "\"*=batch:a+b;attention=heads:a,batch:b;mlp@[0-1]=ffn:a+b;loss=vocab:a\"; mlp, norms and "
         "attention, or any selector; @ layers",
         0, true},
        micro_batches_argument("1")},
       emit_per_op}};
}

}  // namespace tessera::recipes
