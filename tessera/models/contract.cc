#include "tessera/models/contract.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "tessera/base/text.h"

namespace tessera {
namespace {

constexpr std::string_view kBlocks = "blocks.";

bool is_forward(const Op& op) { return op.phase == Phase::kForward; }

// Returns the block that a path names, "3" for "blocks.3.attn.q", or nothing if the path is in
// no block.
std::optional<std::string_view> block_of(std::string_view path) {
  if (!path.starts_with(kBlocks)) return std::nullopt;
  path.remove_prefix(kBlocks.size());
  return path.substr(0, path.find('.'));
}

// Returns the first component of a path after its block, if it has one: "attn" for
// "blocks.3.attn.q", "embed" for "embed.token".
std::string_view scope_of(std::string_view path) {
  if (const auto block = block_of(path)) path.remove_prefix(kBlocks.size() + block->size() + 1);
  return path.substr(0, path.find('.'));
}

bool in_block(const Op& op) { return block_of(op.path).has_value(); }

std::string dims_text(const Op& op) {
  std::vector<std::string> names;
  for (const OpDim& dim : op.annotation.dims) {
    if (!dim.literal()) names.push_back(dim.name);
  }
  return fmt::format("op '{}' with the dims {}", op.path, join(names, " "));
}

// Describes the first op that has the dim `dim` and whose scope is not in `scopes`. Only ops in
// blocks are searched if `inside`, else only ops in no block. Returns "" if there is none.
template <size_t N>
std::string strays(const Graph& graph, bool inside, std::string_view dim,
                   const std::array<std::string_view, N>& scopes) {
  for (const Op& op : graph.ops()) {
    if (!is_forward(op) || in_block(op) != inside || op.annotation.find(dim) < 0) continue;
    if (std::find(scopes.begin(), scopes.end(), scope_of(op.path)) == scopes.end())
      return dims_text(op);
  }
  return "";
}

// Describes the first op of the scope in blocks, if no op of the scope there has the dim. Returns
// "" otherwise.
std::string lacks(const Graph& graph, std::string_view scope, std::string_view dim) {
  const Op* first = nullptr;
  for (const Op& op : graph.ops()) {
    if (!is_forward(op) || !in_block(op) || scope_of(op.path) != scope) continue;
    if (op.annotation.find(dim) >= 0) return "";
    if (first == nullptr) first = &op;
  }
  return first == nullptr ? "" : dims_text(*first);
}

std::string either(std::string first, std::string second) {
  return first.empty() ? std::move(second) : std::move(first);
}

std::string input_without_batch(const Graph& graph) {
  for (const Tensor& tensor : graph.tensors()) {
    const bool has = std::any_of(tensor.dims.begin(), tensor.dims.end(),
                                 [](const Dim& dim) { return dim.name == "batch"; });
    // The trainer sets it (the number of the step).
    const bool made = tensor.init.kind != Init::Kind::kNone;
    if (tensor.role == Role::kInput && !has && !made)
      return fmt::format("input '{}' {}", tensor.name, describe(tensor.dims));
  }
  return "";
}

std::string block_out_of_order(const Graph& graph) {
  int64_t last = -1;
  for (const Op& op : graph.ops()) {
    const auto block = is_forward(op) ? block_of(op.path) : std::nullopt;
    const auto number = block ? parse_int(*block) : Result<int64_t>(last);
    // Blocks without a number are assigned to no stage by number.
    if (!number || *number == last) continue;
    if (*number != last + 1) {
      return last < 0 ? fmt::format("op '{}' before block 0", op.path)
                      : fmt::format("op '{}' after block {}", op.path, last);
    }
    last = *number;
  }
  return "";
}

std::string oddly_named_parameter(const Graph& graph) {
  for (const Tensor& tensor : graph.tensors()) {
    const std::string_view name = tensor.name;
    if (tensor.role == Role::kParameter && !name.ends_with("weight") && !name.ends_with("bias"))
      return fmt::format("parameter '{}'", name);
  }
  return "";
}

std::string loss_elsewhere(const Graph& graph) {
  const Op& op = graph.op(graph.tensor(graph.loss).producer);
  return scope_of(op.path) == "loss" ? "" : fmt::format("op '{}'", op.path);
}

std::vector<ContractClause> make_contract() {
  return {
      {"batch",
       "every input with the dim 'batch'",
       {"data_parallel", "zero", "fsdp", "megatron", "offload", "compressed", "dap"},
       input_without_batch},
      {"blocks",
       "blocks with the paths blocks.0.<...>, blocks.1.<...> and so on, without a gap, in the "
       "order of the ops",
       {"gpipe", "one_f_one_b", "pipeline", "megatron", "token_pipeline", "chimera", "per_layer",
        "recompute"},
       block_out_of_order},
      {"attention",
       "the dim 'heads' in ops blocks.<i>.{attn,ssm} and in no other op of a block",
       {"tensor_parallel", "megatron", "ulysses", "summa", "tensor_parallel_3d", "co_shard"},
       [](const Graph& graph) {
         using namespace std::string_view_literals;
         return either(strays(graph, true, "heads", std::array{"attn"sv, "ssm"sv}),
                       either(lacks(graph, "attn", "heads"), lacks(graph, "ssm", "heads")));
       }},
      {"keys",
       "the dim 'kv' in no op of a block but blocks.<i>.attn",
       {"ring_attention", "rsa", "ulysses", "ring_ulysses", "megatron", "per_layer"},
       [](const Graph& graph) {
         return strays(graph, true, "kv", std::array{std::string_view("attn")});
       }},
      {"mlp",
       "the dim 'ffn' in ops blocks.<i>.{mlp,moe} and in no other op of a block",
       {"tensor_parallel", "megatron", "summa", "tensor_parallel_3d", "co_shard"},
       [](const Graph& graph) {
         using namespace std::string_view_literals;
         return either(strays(graph, true, "ffn", std::array{"mlp"sv, "moe"sv}),
                       either(lacks(graph, "mlp", "ffn"), lacks(graph, "moe", "ffn")));
       }},
      {"experts",
       "the dim 'experts' in ops blocks.<i>.moe and in no other op of a block",
       {"expert_parallel"},
       [](const Graph& graph) {
         return either(strays(graph, true, "experts", std::array{std::string_view("moe")}),
                       lacks(graph, "moe", "experts"));
       }},
      {"vocab",
       "the dim 'vocab' in no op outside blocks but {embed,head,loss}",
       {"tensor_parallel", "megatron", "summa", "tensor_parallel_3d", "per_layer"},
       [](const Graph& graph) {
         using namespace std::string_view_literals;
         return strays(graph, false, "vocab", std::array{"embed"sv, "head"sv, "loss"sv});
       }},
      {"loss",
       "a loss that one of the ops loss makes",
       {"tensor_parallel", "summa"},
       loss_elsewhere},
      {"parameters",
       "parameters with names that end in 'weight' or 'bias'",
       {"per_layer"},
       oddly_named_parameter},
  };
}

}  // namespace

const std::vector<ContractClause>& contract() {
  static const std::vector<ContractClause> clauses = make_contract();
  return clauses;
}

Status check_contract(const Graph& graph) {
  for (const ContractClause& clause : contract()) {
    const std::string found = clause.breach(graph);
    if (found.empty()) continue;
    return invalid_input(fmt::format("expected {}, found {} (needed by {} {})", clause.expected,
                                     found, clause.recipes.size() == 1 ? "recipe" : "recipes",
                                     join(clause.recipes, ", ")));
  }
  return {};
}

}  // namespace tessera
