// Finds, from the instructions of the programs, which parts of embedding tables ranks keep and what
// look-ups read.
#include <algorithm>

#include "tessera/graph/kinds.h"
#include "tessera/graph/pieces.h"
#include "tessera/program/instructions.h"
#include "tessera/report/report.h"

namespace tessera {
namespace {

// Adds the rows that the op reads in this computation: one for each id in its box.
void add_look_ups(const Program& program, const Op& op, const Compute& compute, int64_t times,
                  TableLoad& load) {
  const Box ids = project(op.annotation, op.annotation.inputs[0], compute.box);
  const Box table = project(op.annotation, op.annotation.inputs[1], compute.box);
  const int64_t rows = ids.volume() * times;
  const DType dtype = program.buffer(compute.inputs[1].buffer).dtype;
  load.rows_read += rows;
  load.bytes_read += rows * table.dims.back().size * dtype_bytes(dtype);
}

TableLoad load_of(const Program& program, const Graph& graph,
                  const std::vector<std::string>& tables) {
  TableLoad load;
  load.rank = program.rank;
  load.shares = table_shares(program, tables, graph);
  const Origins origins(graph);
  const auto is_table = [&](TensorId id) {
    return std::find(tables.begin(), tables.end(), origins.of(id).name) != tables.end();
  };
  for (const auto& [ref, block] : program.blocks) {
    const int64_t runs = program.runs(ref);
    for (const Instruction& instruction : block) {
      const auto* compute = std::get_if<Compute>(&instruction.body);
      if (compute == nullptr) continue;
      const Op& op = graph.op(compute->op);
      if (op.phase != Phase::kForward || !looks_up_rows(op) || !is_table(op.inputs[1])) continue;
      const int64_t times = instruction.when == When::kAlways ? runs : std::min<int64_t>(runs, 1);
      add_look_ups(program, op, *compute, times, load);
    }
  }
  return load;
}

}  // namespace

Result<std::vector<TableLoad>> table_loads(const Lowering& lowering,
                                           const std::vector<std::string>& tables,
                                           int64_t most_ranks) {
  std::vector<TableLoad> loads;
  if (tables.empty()) return loads;
  const auto add = [&](int rank, int64_t ranks) -> Status {
    TESSERA_TRY(const Program program, lowering.lower(rank));
    loads.push_back(load_of(program, lowering.graph(), tables));
    loads.back().ranks = ranks;
    return {};
  };
  if (lowering.plan().ranks <= most_ranks) {
    for (int rank = 0; rank < static_cast<int>(lowering.plan().ranks); ++rank)
      TESSERA_TRY_VOID(add(rank, 1));
    return loads;
  }
  for (const RankClass& role : lowering.roles())
    TESSERA_TRY_VOID(add(role.representative, role.ranks));
  return loads;
}

}  // namespace tessera
