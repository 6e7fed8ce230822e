#include "tessera/plan/recipes.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/base/text.h"
#include "tessera/plan/schedule.h"
#include "tessera/plan/selector.h"

namespace tessera {
namespace {

using Axes = std::vector<std::pair<std::string, int64_t>>;
using Row = std::vector<std::pair<std::string, std::string>>;  // key and value text

// ---- writing
// --------------------------------------------------------------------------------------------------

std::string quoted(std::string_view text) { return fmt::format("\"{}\"", text); }

// A list of entries with aligned columns; `rows` of one list have the same keys.
std::string list(std::string_view key, const std::vector<Row>& rows) {
  if (rows.empty()) return "";
  std::vector<size_t> width(rows[0].size(), 0);
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      width[i] = std::max(width[i], row[i].first.size() + row[i].second.size() + 4);
    }
  }
  std::string out = fmt::format("{} = [\n", key);
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      std::string cell = fmt::format("{} = {}", row[i].first, row[i].second);
      if (i + 1 < row.size()) cell += ",";
      line += i + 1 < row.size() ? fmt::format("{:<{}} ", cell, width[i]) : cell;
    }
    out += fmt::format("  {{ {} }},\n", line);
  }
  return out + "]\n";
}

struct Split {
  std::string ops, dim, over;
};

// A plan under construction. Axes of size 1 are left out, and so are the splits over them.
struct Text {
  Axes mesh{};
  int64_t micro_batches = 1;
  std::string schedule{};
  std::vector<Split> splits{};
  std::vector<std::pair<std::string, int64_t>> stages{};
  std::vector<std::pair<std::string, std::string>> stores{};  // tensors, over

  int64_t size(std::string_view axis) const {
    for (const auto& [name, axis_size] : mesh) {
      if (name == axis) return axis_size;
    }
    return 1;
  }
  bool has(std::string_view axis) const { return size(axis) > 1; }
  void split(std::string ops, std::string dim, std::string over) {
    if (over.starts_with("time:") || has(over))
      splits.push_back({std::move(ops), std::move(dim), std::move(over)});
  }
  void store(std::string tensors, std::string over) {
    if (has(over)) stores.emplace_back(std::move(tensors), std::move(over));
  }
  std::string str() const;
};

std::string Text::str() const {
  std::string out;
  for (const auto& [name, size] : mesh) {
    if (size > 1) out += fmt::format("{}{} = {}", out.empty() ? "" : ", ", name, size);
  }
  out = out.empty() ? "mesh = {}\n" : fmt::format("mesh = {{ {} }}\n", out);
  if (micro_batches > 1) out += fmt::format("micro_batches = {}\n", micro_batches);
  if (!schedule.empty()) out += fmt::format("schedule = {}\n", quoted(schedule));
  std::vector<Row> rows;
  for (const Split& s : splits) {
    rows.push_back({{"ops", quoted(s.ops)}, {"dim", quoted(s.dim)}, {"over", quoted(s.over)}});
  }
  out += list("split", rows);
  rows.clear();
  for (const auto& [ops, at] : stages)
    rows.push_back({{"ops", quoted(ops)}, {"at", fmt::format("{}", at)}});
  out += list("stage", rows);
  rows.clear();
  for (const auto& [tensors, over] : stores)
    rows.push_back({{"tensors", quoted(tensors)}, {"over", quoted(over)}});
  return out + list("store", rows);
}

// ---- facts about the graph
// --------------------------------------------------------------------------------------

// Size of `dim` in the forward ops that `pattern` selects; 0 if none has it.
int64_t size_of(const Graph& graph, const std::string& pattern, std::string_view dim) {
  const Glob glob(pattern);
  for (const Op& op : graph.ops()) {
    if (op.phase != Phase::kForward) continue;
    const int d = op.annotation.find(dim);
    if (d < 0) continue;
    for (size_t end = 0; end < op.path.size();) {  // as selectors match: any prefix
      end = std::min(op.path.find_first_of(".@", end + 1), op.path.size());
      if (glob.matches(std::string_view(op.path).substr(0, end))) {
        return op.annotation.dims[static_cast<size_t>(d)].size;
      }
    }
  }
  return 0;
}

bool has_dim(const Graph& graph, const std::string& pattern, std::string_view dim) {
  return size_of(graph, pattern, dim) > 0;
}

int64_t block_count(const Graph& graph) {
  int64_t count = 0;
  for (const Op& op : graph.ops()) {
    if (!op.path.starts_with("blocks.")) continue;
    const auto number = parse_int(std::string_view(op.path).substr(7, op.path.find('.', 7) - 7));
    if (number) count = std::max(count, *number + 1);
  }
  return count;
}

// The first components of the paths of forward ops before the first block and after the last one.
// What stands between blocks belongs to no stage by name: it goes with the op before it.
std::pair<std::vector<std::string>, std::vector<std::string>> around_blocks(const Graph& graph) {
  const auto in_block = [](const Op& op) {
    return op.phase == Phase::kForward && op.path.starts_with("blocks.");
  };
  const auto& ops = graph.ops();
  const auto first = std::find_if(ops.begin(), ops.end(), in_block);
  const auto last = std::find_if(ops.rbegin(), ops.rend(), in_block).base();
  std::vector<std::string> known{"blocks"};
  const auto tops = [&](auto begin, auto end) {
    std::vector<std::string> names;
    for (auto op = begin; op != end; ++op) {
      const std::string top = op->path.substr(0, op->path.find('.'));
      if (op->phase != Phase::kForward || std::find(known.begin(), known.end(), top) != known.end())
        continue;
      known.push_back(top);
      names.push_back(top);
    }
    return names;
  };
  std::vector<std::string> before = tops(ops.begin(), first);
  return {std::move(before), tops(last, ops.end())};
}

// ---- parts of recipes
// ---------------------------------------------------------------------------------------------

Status data_parallel(Text& text, const Graph& graph) {
  if (!text.has("dp")) return {};
  if (!has_dim(graph, "*", "batch"))
    return invalid_input("expected ops with the dim 'batch', found none");
  text.split("*", "batch", "dp");
  return {};
}

void zero(Text& text, int64_t stage) {
  if (stage >= 1) text.store("optimizer.*", "dp");
  if (stage >= 2) text.store("role:gradient", "dp");
  if (stage >= 3) text.store("role:parameter", "dp");
}

// The dim of attention to cut into n pieces: key heads; with fewer key heads than pieces, the query
// heads of each.
Result<std::string> heads_dim(const Graph& graph, std::string_view argument, int64_t n) {
  const std::string attention = "blocks.*.attn";
  const int64_t heads = size_of(graph, attention, "heads");
  const int64_t group = std::max<int64_t>(size_of(graph, attention, "group"), 1);
  if (n > heads * group) {
    return invalid_input(
        fmt::format("{} = {} is more than the {} attention heads (heads = {}, group = {})",
                    argument, n, heads * group, heads, group));
  }
  return std::string(heads < n && group >= n ? "group" : "heads");
}

Status tensor_parallel(Text& text, const Graph& graph) {
  if (!text.has("tp")) return {};
  const size_t before = text.splits.size();
  if (has_dim(graph, "blocks.*.attn", "heads")) {
    const int64_t tp = text.size("tp");
    TESSERA_TRY(const std::string dim, heads_dim(graph, "tp", tp));
    text.split("blocks.*.attn", dim, "tp");
  }
  if (has_dim(graph, "blocks.*.mlp", "ffn")) text.split("blocks.*.mlp", "ffn", "tp");
  std::vector<std::string> with_vocab;
  for (const char* top : {"embed", "head", "loss"}) {
    if (has_dim(graph, top, "vocab")) with_vocab.emplace_back(top);
  }
  if (!with_vocab.empty()) {
    text.split(with_vocab.size() == 1 ? with_vocab[0] : "{" + join(with_vocab, ",") + "}", "vocab",
               "tp");
  }
  if (text.splits.size() > before) return {};
  return invalid_input(
      "tensor parallelism needs ops blocks.*.attn with the dim 'heads', blocks.*.mlp with 'ffn' or "
      "{embed,head,loss} with 'vocab', found none");
}

// Blocks in `pp` runs, the first ones longer by one if they do not divide; what is before them in
// stage 0, what is after them in the last stage.
Status pipeline(Text& text, const Graph& graph, int64_t pp, const std::string& schedule) {
  if (pp == 1 && text.micro_batches == 1) return {};
  text.schedule = schedule;
  if (pp == 1) return {};
  const int64_t layers = block_count(graph);
  if (layers < pp) {
    return invalid_input(
        fmt::format("pp = {} needs at least {} blocks, but the graph has {}", pp, pp, layers));
  }
  const auto [before, after] = around_blocks(graph);
  int64_t first = 0;
  for (int64_t s = 0; s < pp; ++s) {
    const int64_t count = layers / pp + (s < layers % pp ? 1 : 0);
    std::vector<std::string> parts;
    if (s == 0) parts = before;
    parts.push_back(count == 1 ? fmt::format("blocks.{}", first)
                               : fmt::format("blocks.[{}-{}]", first, first + count - 1));
    if (s + 1 == pp) parts.insert(parts.end(), after.begin(), after.end());
    text.stages.emplace_back(parts.size() == 1 ? parts[0] : "{" + join(parts, ",") + "}", s);
    first += count;
  }
  return {};
}

Result<std::string> emit_data_parallel(const RecipeArguments& arguments, const Graph& graph) {
  Text text{.mesh = {{"dp", arguments.number("dp")}}};
  TESSERA_TRY_VOID(data_parallel(text, graph));
  return text.str();
}

Result<std::string> emit_zero(const RecipeArguments& arguments, const Graph& graph) {
  const int64_t stage = arguments.number("stage");
  if (stage > 3) return invalid_input(fmt::format("expected stage = 1, 2 or 3, found {}", stage));
  Text text{.mesh = {{"dp", arguments.number("dp")}}};
  TESSERA_TRY_VOID(data_parallel(text, graph));
  zero(text, stage);
  return text.str();
}

Result<std::string> emit_tensor_parallel(const RecipeArguments& arguments, const Graph& graph) {
  Text text{.mesh = {{"tp", arguments.number("tp")}}};
  TESSERA_TRY_VOID(tensor_parallel(text, graph));
  return text.str();
}

Result<std::string> emit_megatron(const RecipeArguments& arguments, const Graph& graph) {
  const int64_t pp = arguments.number("pp");
  const std::string& schedule = arguments.text("schedule");
  if (arguments.number("zero") > 3) {
    return invalid_input(
        fmt::format("expected zero = 0, 1, 2 or 3, found {}", arguments.number("zero")));
  }
  const auto names = schedule_names();
  if (std::find(names.begin(), names.end(), schedule) == names.end()) {
    return invalid_input(fmt::format("unknown schedule '{}', did you mean '{}'?", schedule,
                                     nearest(schedule, names)));
  }
  Text text{.mesh = {{"pp", pp}, {"dp", arguments.number("dp")}, {"tp", arguments.number("tp")}},
            .micro_batches = arguments.number("micro_batches")};
  TESSERA_TRY_VOID(pipeline(text, graph, pp, schedule));
  TESSERA_TRY_VOID(data_parallel(text, graph));
  TESSERA_TRY_VOID(tensor_parallel(text, graph));
  zero(text, arguments.number("zero"));
  return text.str();
}

Result<std::string> emit_pipeline(const RecipeArguments& arguments, const Graph& graph,
                                  const std::string& schedule) {
  const int64_t pp = arguments.number("pp");
  Text text{.mesh = {{"pp", pp}}, .micro_batches = arguments.number("micro_batches")};
  TESSERA_TRY_VOID(pipeline(text, graph, pp, schedule));
  return text.str();
}

// Optimus 2-D: each matrix product as q aligned steps over its reduction dim, its output features
// over the columns, the batch over the rows; the residual stream is cut over the columns
// (optimus-2d.md sections 3-5).
Result<std::string> emit_summa(const RecipeArguments& arguments, const Graph& graph) {
  const int64_t q = arguments.number("q");
  if (q == 1) return Text{}.str();
  const std::string steps = fmt::format("time:{}", q);
  Text text{.mesh = {{"row", q}, {"col", q}}};
  for (const char* dim : {"batch", "hidden"}) {
    if (!has_dim(graph, "*", dim))
      return invalid_input(fmt::format("expected ops with the dim '{}', found none", dim));
  }
  text.split("*", "batch", "row");
  text.split("*", "hidden", "col");
  const auto split_if = [&](const std::string& ops, const std::string& dim,
                            const std::string& over) {
    if (has_dim(graph, ops, dim)) text.split(ops, dim, over);
  };
  std::string heads = "heads";
  if (has_dim(graph, "blocks.*.attn", "heads")) {
    TESSERA_TRY(heads, heads_dim(graph, "q", q));
    if (size_of(graph, "blocks.*.attn", heads) < q) {
      return invalid_input(fmt::format("q = {} is more than both heads = {} and group = {}", q,
                                       size_of(graph, "blocks.*.attn", "heads"),
                                       size_of(graph, "blocks.*.attn", "group")));
    }
  }
  split_if("blocks.*.attn.{q,k,v}", "hidden", steps);
  split_if("blocks.*.mlp.{up,gate}", "hidden", steps);
  split_if("blocks.*.attn", heads, "col");
  split_if("blocks.*.mlp", "ffn", "col");
  split_if("blocks.*.attn.out", heads, steps);
  split_if("blocks.*.mlp.down", "ffn", steps);
  split_if("{embed.token,head}", "vocab", steps);
  split_if("loss", "vocab", "col");
  text.store("role:parameter", "row");
  return text.str();
}

// ---- the registry
// -----------------------------------------------------------------------------------------------

RecipeArgument number(std::string name, std::optional<std::string> otherwise, std::string meaning,
                      int64_t minimum = 1) {
  return {std::move(name), std::move(otherwise), std::move(meaning), minimum, false};
}

std::vector<Recipe> make_recipes() {
  const RecipeArgument dp =
      number("dp", std::nullopt, "replicas; each works on a piece of the batch");
  const RecipeArgument tp =
      number("tp", std::nullopt, "ranks that share each block: attention heads, ffn and vocab");
  const RecipeArgument pp = number("pp", std::nullopt, "pipeline stages");
  const RecipeArgument micro_batches = number(
      "micro_batches", std::nullopt, "pieces of the batch that go through the stages in turn");
  const auto optional = [](RecipeArgument argument, const std::string& otherwise) {
    argument.otherwise = otherwise;
    return argument;
  };
  const auto pipeline_in = [](const std::string& schedule) {
    return [schedule](const RecipeArguments& a, const Graph& graph) {
      return emit_pipeline(a, graph, schedule);
    };
  };
  std::vector<Recipe> recipes;
  recipes.push_back({"serial", "one rank", {}, [](const RecipeArguments&, const Graph&) {
                       return Text{}.str();
                     }});
  recipes.push_back(
      {"data_parallel", "batch over ranks; gradients are summed", {dp}, emit_data_parallel});
  recipes.push_back(
      {"zero",
       "data parallel; optimizer state (1), gradients (2), parameters (3) sharded at rest",
       {number("stage", std::nullopt, "1, 2 or 3"), dp},
       emit_zero});
  recipes.push_back({"tensor_parallel",
                     "Megatron 1-D: heads, ffn and vocab over ranks",
                     {tp},
                     emit_tensor_parallel});
  recipes.push_back({"gpipe",
                     "pipeline: all forwards, then all backwards",
                     {pp, micro_batches},
                     pipeline_in("gpipe")});
  recipes.push_back({"one_f_one_b",
                     "pipeline: one forward, one backward in turn",
                     {pp, micro_batches},
                     pipeline_in("1f1b")});
  recipes.push_back(
      {"megatron",
       "pipeline of stages, each tensor parallel and data parallel",
       {optional(tp, "1"),
        optional(pp, "1"),
        optional(dp, "1"),
        number("zero", "0", "0, or what is sharded over dp at rest: see zero", 0),
        optional(micro_batches, "1"),
        {"schedule", "1f1b", "order of blocks: " + join(schedule_names(), ", "), 0, true}},
       emit_megatron});
  recipes.push_back(
      {"summa",
       "Optimus 2-D on q x q ranks: batch over rows, features over columns, products in q steps",
       {number("q", std::nullopt, "rows, and columns, of the mesh")},
       emit_summa});
  return recipes;
}

// ---- calls
// ------------------------------------------------------------------------------------------------------

std::string unquoted(std::string_view text) {
  if (text.size() >= 2 && (text.front() == '"' || text.front() == '\'') &&
      text.back() == text.front()) {
    text = text.substr(1, text.size() - 2);
  }
  return std::string(text);
}

// Which argument of the recipe is meant by the call's argument at `position`.
Result<const RecipeArgument*> meant(const Recipe& recipe, const std::string& key, size_t position) {
  if (key.empty()) {
    if (position < recipe.arguments.size()) return &recipe.arguments[position];
    return invalid_input(fmt::format("too many arguments: expected {}", signature(recipe)));
  }
  std::vector<std::string> names;
  for (const RecipeArgument& argument : recipe.arguments) {
    if (argument.name == key) return &argument;
    names.push_back(argument.name);
  }
  const std::string best = nearest(key, names);
  return invalid_input(fmt::format("unknown argument '{}'{}", key,
                                   best.empty() ? ": expected " + signature(recipe)
                                                : fmt::format(", did you mean '{}'?", best)));
}

Status set_argument(RecipeArguments& arguments, const RecipeArgument& argument,
                    const std::string& value) {
  if (argument.is_text) {
    arguments.texts[argument.name] = unquoted(value);
    return {};
  }
  const auto parsed = parse_int(value);
  if (!parsed || *parsed < argument.minimum) {
    return invalid_input(fmt::format("expected {} >= {} (a whole number), found '{}'",
                                     argument.name, argument.minimum, value));
  }
  arguments.numbers[argument.name] = *parsed;
  return {};
}

Result<RecipeArguments> bind(const Recipe& recipe, const Call& call) {
  RecipeArguments arguments;
  std::set<std::string> given;
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    const auto& [key, value] = call.arguments[i];
    TESSERA_TRY(const RecipeArgument* argument, meant(recipe, key, i));
    if (!given.insert(argument->name).second) {
      return invalid_input(fmt::format("argument '{}' is given twice", argument->name));
    }
    TESSERA_TRY_VOID(set_argument(arguments, *argument, value));
  }
  for (const RecipeArgument& argument : recipe.arguments) {
    if (given.contains(argument.name)) continue;
    if (!argument.otherwise) {
      return invalid_input(
          fmt::format("argument '{}' is missing: expected {}", argument.name, signature(recipe)));
    }
    TESSERA_TRY_VOID(set_argument(arguments, argument, *argument.otherwise));
  }
  return arguments;
}

}  // namespace

int64_t RecipeArguments::number(std::string_view name) const {
  const auto it = numbers.find(name);
  TESSERA_CHECK(it != numbers.end(), "the recipe has no number '{}'", name);
  return it->second;
}

const std::string& RecipeArguments::text(std::string_view name) const {
  const auto it = texts.find(name);
  TESSERA_CHECK(it != texts.end(), "the recipe has no text '{}'", name);
  return it->second;
}

const std::vector<Recipe>& all_recipes() {
  static const std::vector<Recipe> recipes = make_recipes();
  return recipes;
}

const Recipe* find_recipe(std::string_view name) {
  for (const Recipe& recipe : all_recipes()) {
    if (recipe.name == name) return &recipe;
  }
  return nullptr;
}

std::string signature(const Recipe& recipe) {
  std::vector<std::string> parts;
  for (const RecipeArgument& argument : recipe.arguments) {
    parts.push_back(argument.otherwise ? fmt::format("{}={}", argument.name, *argument.otherwise)
                                       : argument.name);
  }
  return fmt::format("{}({})", recipe.name, join(parts, ", "));
}

Result<std::string> emit_recipe(std::string_view call_text, const Graph& graph) {
  TESSERA_TRY(const Call call, parse_call(call_text));
  const Recipe* recipe = find_recipe(call.name);
  if (recipe == nullptr) {
    std::vector<std::string> names;
    for (const Recipe& known : all_recipes()) names.push_back(known.name);
    return invalid_input(fmt::format("unknown recipe '{}', did you mean '{}'?", call.name,
                                     nearest(call.name, names)));
  }
  const auto in_recipe = [&](Error error) {
    error.message = fmt::format("recipe {}: {}", recipe->name, error.message);
    return tl::unexpected(std::move(error));
  };
  auto arguments = bind(*recipe, call);
  if (!arguments) return in_recipe(arguments.error());
  auto text = recipe->emit(*arguments, graph);
  if (!text) return in_recipe(text.error());
  return fmt::format("# {}\n{}", trim(call_text), *text);
}

}  // namespace tessera
