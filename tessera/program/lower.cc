#include "tessera/program/lower.h"

#include <algorithm>
#include <optional>
#include <string>

#include "tessera/base/check.h"
#include "tessera/program/copies/copied_stages.h"
#include "tessera/program/copies/equal_stages.h"
#include "tessera/program/instantiate/member_boxes.h"
#include "tessera/program/needs.h"
#include "tessera/program/passes/send_waits.h"
#include "tessera/program/place_check.h"
#include "tessera/program/place_text.h"
#include "tessera/program/roles/roles.h"
#include "tessera/program/walk.h"

namespace tessera {

struct Lowering::Impl {
  std::shared_ptr<const Graph> graph, whole;
  ResolvedPlan plan;
  std::optional<CopiedPlaces> copied;  // places whose ops `graph` lacks
  Analysis analysis;
  std::vector<PlaceText> texts;              // by place
  int64_t micro_batch_size = 0, larger = 0;  // as in Program
  std::vector<InstantiateInput::Sizes> micro_batch_sizes;
  mutable MemberBoxes boxes;

  const ShapeRule& rule() const { return analysis.shapes; }
  std::shared_ptr<PathCache> paths;  // may be null
  Status write_texts(std::vector<TensorId> fetch);
  void find_micro_batch_sizes();

  InstantiateInput input() const {
    return {graph.get(),      &plan,  &analysis.ops, &texts, &micro_batch_sizes,
            micro_batch_size, larger, &boxes};
  }
};

Lowering::Lowering() : impl_(std::make_unique<Impl>()) {}
Lowering::~Lowering() = default;
Lowering::Lowering(Lowering&&) noexcept = default;
Lowering& Lowering::operator=(Lowering&&) noexcept = default;

Result<Lowering> Lowering::create(std::shared_ptr<const Graph> graph, ResolvedPlan plan,
                                  LowerOptions options) {
  if (options.equal_stages_once && options.fetch.empty()) {
    if (auto shorter = without_copies(*graph, plan)) {
      Lowering lowering;
      Impl& impl = *lowering.impl_;
      impl.graph = std::move(shorter->graph);
      impl.whole = graph;
      impl.plan = std::move(shorter->plan);
      impl.copied = shorter->copied;
      impl.paths = options.paths;
      if (impl.write_texts({})) return lowering;
      // It failed because some stage is not equal after all, or because the plan is wrong. All
      // stages are lowered below, so that an error names what the user wrote.
    }
  }
  Lowering lowering;
  Impl& impl = *lowering.impl_;
  impl.graph = impl.whole = std::move(graph);
  impl.plan = std::move(plan);
  impl.paths = std::move(options.paths);
  TESSERA_TRY_VOID(impl.write_texts(std::move(options.fetch)));
  return lowering;
}

Status Lowering::Impl::write_texts(std::vector<TensorId> fetch) {
  TESSERA_TRY(analysis, analyse(*graph, plan));
  analysis.shapes.graph = graph.get();
  texts = write_place_texts({graph, &plan, std::move(fetch), paths.get()}, analysis);
  std::vector<BlockOrder> orders;
  for (size_t place = 0; place < texts.size(); ++place) orders.emplace_back(plan, PlaceId(place));
  for (size_t place = 0; place < texts.size(); ++place) {
    PlaceText& text = texts[place];
    // If ranks are at several places, instructions must stay in the order of writing, because the
    // texts of a rank's places are merged in this order. So these two passes are left out then.
    if (!several_places(plan)) {
      if (text.blocks.contains(BlockKind::kUpdate)) issue_together(text, BlockKind::kUpdate);
      gather_second_steps(text, rule(), plan.plan.bucket_bytes);
    }
    if (plan.plan.prefetch) prefetch_at_rest(text, *graph, orders[place], *plan.plan.prefetch);
    bucket_collectives(text, rule(), orders[place], plan.plan.bucket_bytes);
  }
  find_micro_batch_sizes();
  int next_handle = 0;
  for (const PlaceText& text : texts) next_handle = std::max(next_handle, end_of_handles(text));
  for (size_t place = 0; place < texts.size(); ++place)
    stage_tiers(texts[place], rule(), plan, orders[place], next_handle);
  if (copied) {
    for (size_t place = 0; place < texts.size(); ++place) await_needs(texts[place], orders[place]);
    if (!copy_places({graph.get(), &plan, &orders, &texts}, *copied, next_handle))
      return invalid_input("places are not alike");
    place_send_waits(texts, plan);
  } else {
    place_waits(texts, plan, orders);
  }
#ifndef NDEBUG
  for (size_t place = 0; place < texts.size(); ++place) {
    const Status sound = check(texts, PlaceId(place), *graph, plan);
    TESSERA_CHECK(sound.has_value(), "{}", sound.error().message);
  }
#endif
  return {};
}

void Lowering::Impl::find_micro_batch_sizes() {
  for (const Tensor& tensor : graph->tensors()) {
    for (const Dim& dim : tensor.dims) {
      if (dim.name != plan.plan.micro_batch_dim) continue;
      micro_batch_size = rule().micro_batch(dim.size);
      larger = dim.size % plan.plan.micro_batches;
    }
  }
  micro_batch_sizes.push_back({rule(), analysis.tensor_shapes});
  if (larger == 0) return;
  ShapeRule smaller = rule();
  smaller.smaller = true;
  micro_batch_sizes.push_back({smaller, {}});
  for (const Tensor& tensor : graph->tensors())
    micro_batch_sizes.back().shapes.push_back(smaller.shape(tensor.id));
}

Result<Program> Lowering::lower(int rank, bool offsets) const {
  if (rank < 0 || rank >= impl_->plan.ranks || impl_->plan.places_of(rank).empty()) {
    return invalid_input("rank " + std::to_string(rank) + " is in no stage's mesh (ranks: " +
                         std::to_string(impl_->plan.ranks) + ")");
  }
  return instantiate(impl_->input(), rank, offsets);
}

std::vector<RankClass> Lowering::roles(std::vector<int32_t>* of_rank) const {
  std::vector<int32_t> unused;
  const CopiedPlaces* copied = impl_->copied ? &*impl_->copied : nullptr;
  return find_roles(impl_->input(), copied, of_rank == nullptr ? unused : *of_rank);
}

const std::vector<PlaceText>& Lowering::texts() const { return impl_->texts; }
const Graph& Lowering::graph() const { return *impl_->graph; }
const Graph& Lowering::whole_graph() const { return *impl_->whole; }
const ResolvedPlan& Lowering::plan() const { return impl_->plan; }

}  // namespace tessera
