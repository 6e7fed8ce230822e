#include "random_case.h"

#include <algorithm>
#include <iterator>

#include "random_graph.h"
#include "random_plan.h"

namespace tessera {

uint32_t Choices::below(uint32_t n) {
  if (n <= 1 || next_ >= stream_.size()) return 0;
  return stream_[next_++] % n;
}

RandomCase random_case(const std::vector<uint32_t>& stream) {
  Choices choices(stream);
  RandomCase out;
  out.graph = random_graph(choices);
  out.plan = random_plan(choices, out.graph, out.features);
  return out;
}

RandomCase random_mesh_case(const std::vector<uint32_t>& stream) {
  Choices choices(stream);
  RandomCase out;
  out.graph = random_graph(choices, true);
  Features drawn;
  out.plan = random_plan(choices, out.graph, drawn, true);
  std::set_intersection(drawn.begin(), drawn.end(), all_mesh_features().begin(),
                        all_mesh_features().end(), std::inserter(out.features, out.features.end()));
  return out;
}

// Features of graphs and splits, which the other cases draw too, are not counted.
const Features& all_mesh_features() {
  static const Features features{"mesh: of the stages' own",
                                 "mesh: nested devices",
                                 "micro-batches",
                                 "schedule: interlaced",
                                 "loop: seq",
                                 "loop: features",
                                 "precision: bfloat16",
                                 "precision: float16",
                                 "precision: float32",
                                 "store: optimizer_state",
                                 "store: gradient",
                                 "store: parameter",
                                 "store: two axes",
                                 "store: dim"};
  return features;
}

const Features& all_features() {
  static const Features features{"pipeline: none",
                                 "pipeline: chain",
                                 "pipeline: several stages a place",
                                 "pipeline: stages at any places",
                                 "mesh: two axes",
                                 "mesh: of the stages' own",
                                 "mesh: nested devices",
                                 "micro-batches",
                                 "micro-batches of two sizes",
                                 "schedule: 1f1b",
                                 "schedule: gpipe",
                                 "schedule: eager_1f1b",
                                 "schedule: interleaved",
                                 "schedule: zb_h1",
                                 "schedule: zb_h2",
                                 "schedule: zb_v",
                                 "schedule: chimera",
                                 "schedule: nf1b",
                                 "schedule: interlaced",
                                 "schedule: token",
                                 "schedule: token_1f1b",
                                 "schedule: table",
                                 "schedule: table with W",
                                 "buckets",
                                 "resharding: direct",
                                 "resharding: gather",
                                 "prefetch",
                                 "expand",
                                 "reorder: zigzag",
                                 "reorder: striped",
                                 "loop: batch, steps are stages",
                                 "loop: seq, steps are stages",
                                 "loop: batch",
                                 "loop: seq",
                                 "loop: heads",
                                 "loop: features",
                                 "loop: sizes",
                                 "loop: recompute",
                                 "loop: split over an axis",
                                 "split: one axis",
                                 "split: two axes",
                                 "split: time",
                                 "split: axis and time",
                                 "split: keys over time",
                                 "split: backward",
                                 "split: frozen dim",
                                 "split: dim read through windows",
                                 "split: rims",
                                 "split: halo computed",
                                 "pin",
                                 "order: rotated",
                                 "order: rotated, falling",
                                 "order: rotated over two axes",
                                 "order: nested",
                                 "order: nested over two axes",
                                 "store: optimizer_state",
                                 "store: gradient",
                                 "store: parameter",
                                 "store: input",
                                 "store: two axes",
                                 "store: dim",
                                 "store: keep micro_batch",
                                 "store: keep over",
                                 "store: keep step",
                                 "store: tier host",
                                 "store: tier disk",
                                 "store: recompute",
                                 "graph: attention",
                                 "graph: causal attention",
                                 "graph: state scan",
                                 "graph: convolution",
                                 "graph: pool",
                                 "graph: batch norm",
                                 "graph: mixture",
                                 "graph: skip connection",
                                 "graph: earlier pass",
                                 "graph: shared parameter"};
  return features;
}

}  // namespace tessera
