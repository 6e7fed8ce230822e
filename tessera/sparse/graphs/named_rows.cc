#include "tessera/sparse/graphs/named_rows.h"

#include <algorithm>
#include <map>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/graph/kinds.h"
#include "tessera/graph/rows.h"
#include "tessera/program/communication.h"

namespace tessera::sparse {
namespace {

size_t as_row(int64_t index) { return static_cast<size_t>(index); }

}  // namespace

Sampling sampling_of(const Op& op, int64_t step) {
  const auto sampler = parse_sampler(op.text("sampler"));
  TESSERA_CHECK(sampler, "op {}: {}", op.path, sampler ? "" : sampler.error().message);
  Sampling sampling{*sampler, op.integer("width"), static_cast<uint64_t>(op.integer("seed"))};
  if (op.integer("each_step") != 0) sampling.seed += static_cast<uint64_t>(step);
  return sampling;
}

std::vector<int64_t> NamedLists::counts() const {
  std::vector<int64_t> out;
  for (const std::vector<int32_t>& list : lists) out.push_back(static_cast<int64_t>(list.size()));
  return out;
}

NamedLists name_rows(const CompressedRows& ids, const Sampling& sampling,
                     const std::vector<Interval>& rows, const std::vector<Interval>& owned) {
  NamedLists out;
  out.members = owned.size();
  out.lists.resize(out.members * out.members);
  const auto edges = ids.table_rows == 0 ? 0 : static_cast<int64_t>(ids.columns.size());
  std::vector<int32_t> positions;
  std::vector<bool> named;
  for (size_t names = 0; names < out.members; ++names) {
    named.assign(as_row(ids.table_rows), false);
    for (int64_t row = rows[names].begin; row < rows[names].end(); ++row) {
      const int64_t begin = std::clamp<int64_t>(ids.begin[as_row(row)], 0, edges);
      const int64_t end = std::clamp<int64_t>(ids.end[as_row(row)], begin, edges);
      positions.resize(as_row(sampled_count(sampling, end - begin)));
      sampled_positions(sampling, row, end - begin, positions.data());
      for (const int32_t position : positions) {
        const int64_t column = ids.columns[as_row(begin + position)];
        named[as_row(std::clamp<int64_t>(column, 0, ids.table_rows - 1))] = true;
      }
    }
    for (size_t member = 0; member < out.members; ++member) {
      std::vector<int32_t>& list = out.lists[names * out.members + member];
      for (int64_t row = owned[member].begin; row < owned[member].end(); ++row) {
        if (member != names && named[as_row(row)])
          list.push_back(static_cast<int32_t>(row - owned[member].begin));
      }
    }
  }
  return out;
}

bool exchanges_named_rows(const Program& program) {
  return std::ranges::any_of(program.blocks, [](const auto& block) {
    return std::ranges::any_of(block.second, [](const Instruction& instruction) {
      const auto* issue = std::get_if<Issue>(&instruction.body);
      return issue != nullptr && issue->named.has_value();
    });
  });
}

void count_named_rows(Program& program, const Graph& graph, const IdsOfStep& ids, int64_t step) {
  std::map<TensorId, std::vector<int64_t>> read;
  const auto values = [&](TensorId input) -> std::span<const int64_t> {
    auto found = read.find(input);
    if (found == read.end()) found = read.emplace(input, ids(input)).first;
    return found->second;
  };
  for (auto& [ref, block] : program.blocks) {
    for (Instruction& instruction : block) {
      auto* issue = std::get_if<Issue>(&instruction.body);
      if (issue == nullptr || !issue->named) continue;
      const Op& op = graph.op(issue->named->op);
      const RowNaming& naming = *naming_of(op);
      const CompressedRows whole{values(op.inputs[naming.begin]), values(op.inputs[naming.end]),
                                 values(op.inputs[naming.columns]),
                                 graph.tensor(issue->transfers[0].tensor).dims[0].size};
      issue->named->counted =
          name_rows(whole, sampling_of(op, step), issue->named->rows, owned_rows(*issue)).counts();
    }
  }
}

}  // namespace tessera::sparse
