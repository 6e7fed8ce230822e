#include "measure.h"

#include <algorithm>
#include <memory>

#include "tessera/graph/builder.h"
#include "tessera/models/model.h"
#include "tessera/plan/prepare.h"
#include "tessera/plan/recipes.h"
#include "tessera/program/lower.h"
#include "tessera/program/text/place_form.h"
#include "tessera/program/text/test_place_parse.h"

namespace tessera {
namespace {

template <class T>
T taken(Result<T> result, const std::string& what) {
  EXPECT_TRUE(result.has_value()) << what << ": " << (result ? "" : result.error().message);
  return result ? std::move(*result) : T();
}

Volume sum(const std::vector<Program>& programs, const Graph& graph, MeasuredPlan::Keep keep,
           std::optional<BlockKind> only = std::nullopt) {
  Volume out;
  for (const Program& program : programs) {
    Program part = program;
    if (only) std::erase_if(part.blocks, [&](const auto& b) { return b.first.kind != *only; });
    for (const auto& [kind, traffic] : volume(part, graph, keep).by_kind) {
      out.by_kind[kind] += traffic;
    }
  }
  return out;
}

constexpr int64_t kBytes = 8;

Prepared prepared_by(const std::string& model, const std::string& plan, int64_t batch,
                     const std::string& more) {
  const Model built = taken(build_model(model, batch, DType::kFloat64), model);
  const std::string text =
      (plan.starts_with("mesh") ? plan : taken(emit_recipe(plan, built.graph), plan)) + more;
  const Plan parsed = taken(parse_plan(text, plan), plan);
  EXPECT_EQ(taken(parse_plan(to_toml(parsed), plan), plan), parsed) << plan;
  const Graph graph =
      taken(training_graph(built.graph, parsed, parsed.precision, OptimizerSpec{}), model);
  return taken(prepare(graph, parsed), plan);
}

}  // namespace

int64_t MeasuredPlan::sent(Keep keep) const { return sum(programs, graph, keep).bytes() / kBytes; }

int64_t MeasuredPlan::sent_in(BlockKind block, Keep keep) const {
  return sum(programs, graph, keep, block).bytes() / kBytes;
}

int64_t MeasuredPlan::sent_by(const std::string& kind, Keep keep) const {
  const Volume found = sum(programs, graph, keep);
  const auto it = found.by_kind.find(kind);
  return it == found.by_kind.end() ? 0 : it->second.bytes / kBytes;
}

int64_t MeasuredPlan::calls(int rank, CollectiveKind kind, Keep keep) const {
  const Program& program = programs[static_cast<size_t>(rank)];
  int64_t count = 0;
  for (const BlockRunStep& run : program.schedule) {
    for (const Instruction& instruction : program.block(run.block)) {
      const auto* issue = std::get_if<Issue>(&instruction.body);
      if (issue == nullptr || issue->kind != kind || instruction.when != When::kAlways) continue;
      count += std::any_of(issue->transfers.begin(), issue->transfers.end(),
                           [&](const Transfer& t) { return keep(graph.tensor(t.tensor)); });
    }
  }
  return count;
}

int64_t MeasuredPlan::parameters(Keep keep) const {
  int64_t elements = 0;
  for (const Tensor& tensor : graph.tensors()) {
    const bool counts = tensor.role == Role::kParameter && !tensor.update_of.valid();
    if (counts && keep(tensor)) elements += tensor.elements();
  }
  return elements;
}

int64_t MeasuredPlan::sent_along(const std::vector<std::string>& axes, Keep keep) const {
  std::vector<Program> parts = programs;
  for (Program& program : parts) {
    const auto elsewhere = [&](const Instruction& instruction) {
      const auto* issue = std::get_if<Issue>(&instruction.body);
      if (issue == nullptr) return std::holds_alternative<Send>(instruction.body);
      return program.groups[static_cast<size_t>(issue->group)].axes != axes;
    };
    for (auto& [key, block] : program.blocks) std::erase_if(block, elsewhere);
  }
  return sum(parts, graph, keep).bytes() / kBytes;
}

int64_t MeasuredPlan::at_rest(size_t rank, Keep keep) const {
  int64_t elements = 0;
  for (const Home& home : programs[rank].homes) {
    if (keep(graph.tensor(home.tensor))) elements += home.region.volume();
  }
  return elements;
}

int64_t MeasuredPlan::stored(size_t rank, Keep keep) const {
  int64_t bytes = 0;
  for (const Buffer& buffer : programs[rank].buffers) {
    const Tensor& tensor = graph.tensor(buffer.tensor);
    if (buffer.lifetime == Lifetime::kMicroBatch && tensor.role == Role::kActivation &&
        keep(tensor))
      bytes += buffer.bytes();
  }
  return bytes / kBytes;
}

int64_t MeasuredPlan::of_the_step(size_t rank, Keep keep) const {
  int64_t bytes = 0;
  for (const Buffer& buffer : programs[rank].buffers) {
    if (buffer.lifetime == Lifetime::kStep && keep(graph.tensor(buffer.tensor)))
      bytes += buffer.bytes();
  }
  return bytes / kBytes;
}

MeasuredPlan measure(const std::string& model, const std::string& plan, int64_t batch,
                     const std::string& more) {
  MeasuredPlan out;
  const Prepared prepared = prepared_by(model, plan, batch, more);
  out.graph = prepared.graph;
  out.mesh = prepared.plan.stages.front().mesh;
  out.micro_batches = prepared.plan.plan.micro_batches;
  auto lowering = Lowering::create(std::make_shared<const Graph>(out.graph), prepared.plan);
  EXPECT_TRUE(lowering.has_value()) << plan << ": " << (lowering ? "" : lowering.error().message);
  if (!lowering) return out;
  for (int rank = 0; rank < static_cast<int>(prepared.plan.ranks); ++rank) {
    out.programs.push_back(taken(lowering->lower(rank), plan));
  }
  return out;
}

std::string text_of_place(const std::string& model, const std::string& plan, int64_t batch) {
  const Prepared prepared = prepared_by(model, plan, batch, "");
  const auto lowering =
      Lowering::create(std::make_shared<const Graph>(prepared.graph), prepared.plan);
  EXPECT_TRUE(lowering.has_value()) << plan << ": " << (lowering ? "" : lowering.error().message);
  if (!lowering) return "";
  const std::string written = to_text(lowering->texts(), PlaceId(0), lowering->graph());
  std::vector<PlaceText> again = lowering->texts();
  again[0] = taken(parse_place_text(written, lowering->graph(), "text"), plan);
  EXPECT_EQ(to_text(again, PlaceId(0), lowering->graph()), written);
  return written;
}

}  // namespace tessera
