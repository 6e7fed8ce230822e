#include "tessera/program/lower.h"

#include <algorithm>
#include <map>

#include "tessera/program/stage_text.h"
#include "tessera/program/walk.h"

namespace tessera {

struct Lowering::Impl {
  std::shared_ptr<const Graph> graph;
  ResolvedPlan plan;
  Analysis analysis;
  std::vector<StageText> texts;

  InstantiateInput input() const {
    return {graph.get(), &plan, &analysis.ops, &texts, {graph.get(), plan.plan.micro_batch_dim, plan.plan.micro_batches}};
  }
};

Lowering::Lowering() : impl_(std::make_unique<Impl>()) {}
Lowering::~Lowering() = default;
Lowering::Lowering(Lowering&&) noexcept = default;
Lowering& Lowering::operator=(Lowering&&) noexcept = default;

Result<Lowering> Lowering::create(std::shared_ptr<const Graph> graph, ResolvedPlan plan, LowerOptions options) {
  Lowering lowering;
  Impl& impl = *lowering.impl_;
  impl.graph = std::move(graph);
  impl.plan = std::move(plan);
  TESSERA_TRY(impl.analysis, analyse(*impl.graph, impl.plan));
  impl.analysis.shapes.graph = impl.graph.get();
  WalkInput input{impl.graph, &impl.plan, std::move(options.fetch)};
  TESSERA_TRY(impl.texts, write_stage_texts(input, impl.analysis));
  for (StageText& text : impl.texts) {
    bucket_collectives(text, impl.input().shapes, impl.plan.plan.bucket_bytes);
  }
  return lowering;
}

Result<Program> Lowering::lower(int rank) const {
  for (size_t s = 0; s < impl_->plan.stages.size(); ++s) {
    if (impl_->plan.stages[s].mesh.contains(rank)) return instantiate(impl_->input(), StageId(s), rank);
  }
  return invalid_input("rank " + std::to_string(rank) + " is in no stage's mesh (ranks: " +
                       std::to_string(impl_->plan.ranks) + ")");
}

// Ranks of a stage differ in text only where a dim is cut unevenly. Along each axis, coordinates with the same piece sizes
// everywhere are alike; classes are products of these.
std::vector<RankClass> Lowering::roles() const {
  std::vector<RankClass> out;
  const ShapeRule shapes = impl_->input().shapes;
  for (size_t s = 0; s < impl_->texts.size(); ++s) {
    const StageText& text = impl_->texts[s];
    const Mesh& mesh = text.mesh;
    std::vector<std::vector<std::pair<int64_t, int64_t>>> classes;  // by axis: (representative coordinate, how many)
    // Which buffers are cut unevenly at all (most plans: none).
    std::vector<const TextBuffer*> uneven;
    for (const TextBuffer& buffer : text.buffers) {
      const std::vector<int64_t> shape = shapes.shape(buffer.tensor);
      for (size_t d = 0; d < shape.size(); ++d) {
        int64_t pieces = buffer.region.piece && buffer.region.piece->dim == d ? buffer.region.piece->steps : 1;
        for (AxisId axis : buffer.region.layout.shards[d]) pieces *= mesh.axis(axis).size;
        if ((shape[d] / buffer.region.layout.grain[d]) % pieces != 0) {
          uneven.push_back(&buffer);
          break;
        }
      }
    }
    for (size_t a = 0; a < mesh.axes.size(); ++a) {
      std::map<std::vector<std::vector<int64_t>>, std::pair<int64_t, int64_t>> seen;
      for (int64_t c = 0; c < mesh.axes[a].size; ++c) {
        std::vector<int64_t> coordinates(mesh.axes.size(), 0);
        coordinates[a] = c;
        std::vector<std::vector<int64_t>> signature;
        for (const TextBuffer* buffer : uneven) {
          signature.push_back(evaluate(buffer->region, mesh, shapes.shape(buffer->tensor), coordinates).shape());
        }
        auto [it, fresh] = seen.try_emplace(std::move(signature), c, 0);
        ++it->second.second;
      }
      std::vector<std::pair<int64_t, int64_t>> found;
      for (const auto& [signature, value] : seen) found.push_back(value);
      std::sort(found.begin(), found.end());
      classes.push_back(std::move(found));
    }
    std::vector<std::pair<std::vector<int64_t>, int64_t>> products = {{{}, 1}};
    for (const auto& axis : classes) {
      std::vector<std::pair<std::vector<int64_t>, int64_t>> next;
      for (const auto& [coordinates, count] : products) {
        for (const auto& [coordinate, n] : axis) {
          next.push_back({coordinates, count * n});
          next.back().first.push_back(coordinate);
        }
      }
      products = std::move(next);
    }
    for (const auto& [coordinates, count] : products) {
      out.push_back({StageId(s), static_cast<int>(mesh.rank_at(coordinates)), count});
    }
  }
  return out;
}

const Graph& Lowering::graph() const { return *impl_->graph; }
const ResolvedPlan& Lowering::plan() const { return impl_->plan; }

}  // namespace tessera
