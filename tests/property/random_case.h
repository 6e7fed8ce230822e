// Random graphs with random plans, decoded from a stream of choices. A shorter stream, or smaller
// numbers in it, gives a simpler case, so RapidCheck's shrinking of a plain vector shrinks graph
// and plan.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tessera/graph/graph.h"

namespace tessera {

class Choices {
 public:
  explicit Choices(std::vector<uint32_t> stream) : stream_(std::move(stream)) {}
  // A number in [0, n); 0 when the stream is used up.
  uint32_t below(uint32_t n);
  bool one_in(uint32_t n) { return below(n) == n - 1; }
  template <class T>
  const T& of(const std::vector<T>& options) {
    return options[below(static_cast<uint32_t>(options.size()))];
  }
  bool empty() const { return next_ >= stream_.size(); }

 private:
  std::vector<uint32_t> stream_;
  size_t next_ = 0;
};

// The parts of the plan language that a case uses, for example "order: nested".
using Features = std::set<std::string>;

struct RandomCase {
  Graph graph;       // forward, float64, with a loss
  std::string plan;  // TOML
  Features features;
};
// The plan is valid by construction, as far as the plan language can tell before resolution.
RandomCase random_case(const std::vector<uint32_t>& stream);

// Returns all features that random_case may draw.
const Features& all_features();

// Returns a case in which an axis of one stage does not exist in another, or has another number
// there: stages on meshes of their own, some of which share devices, with shards at rest over any
// of the axes, narrow precision, loops, and ops and casts that no entry of the plan names.
RandomCase random_mesh_case(const std::vector<uint32_t>& stream);
const Features& all_mesh_features();

}  // namespace tessera
