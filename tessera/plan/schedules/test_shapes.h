// The pipelines for which the named schedules are made, for tests.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/plan/schedules/schedule.h"

namespace tessera::schedules {

inline PipelineShape chunks(int64_t places, int64_t per_place, int64_t micro_batches) {
  PipelineShape shape{.places = places, .micro_batches = micro_batches};
  for (int64_t s = 0; s < places * per_place; ++s) shape.at.push_back({s % places});
  return shape;
}
inline PipelineShape v_shape(int64_t places, int64_t micro_batches) {
  PipelineShape shape{.places = places, .micro_batches = micro_batches};
  for (int64_t s = 0; s < 2 * places; ++s) shape.at.push_back({std::min(s, 2 * places - 1 - s)});
  return shape;
}
inline PipelineShape two_chains(int64_t places, int64_t micro_batches) {
  PipelineShape shape = v_shape(places, micro_batches);
  for (int64_t s = 0; s < 2 * places; ++s) {
    shape.after.push_back(s % places == 0 ? std::vector<int64_t>{} : std::vector<int64_t>{s - 1});
  }
  return shape;
}
// Returns the shape of `passes` passes through the places, the last of them with backward.
inline PipelineShape recycling(int64_t places, int64_t passes, int64_t micro_batches) {
  PipelineShape shape = chunks(places, passes, micro_batches);
  for (int64_t s = 0; s < shape.stages(); ++s) {
    shape.backward.push_back(s >= (passes - 1) * places);
  }
  return shape;
}
// Returns a shape where slice i at place k waits for the slice at the place before and for the keys
// and values of slice i-1 at its own place.
inline PipelineShape sliced(int64_t places, int64_t slices, int64_t micro_batches) {
  PipelineShape shape = chunks(places, slices, micro_batches);
  for (int64_t s = 0; s < shape.stages(); ++s) {
    auto& after = shape.after.emplace_back();
    if (s % places > 0) after.push_back(s - 1);
    if (s >= places) after.push_back(s - places);
  }
  return shape;
}
// Returns a chain of one stage at each place. Before each stage of `spanned_before` stands a stage
// that all places run; `places` in that list: after the last.
inline PipelineShape embedded(int64_t places, const std::vector<int64_t>& spanned_before,
                              int64_t micro_batches) {
  PipelineShape shape{.places = places, .micro_batches = micro_batches};
  std::vector<int64_t> all;
  for (int64_t p = 0; p < places; ++p) all.push_back(p);
  for (int64_t p = 0; p <= places; ++p) {
    for (const int64_t before : spanned_before) {
      if (before == p) shape.at.push_back(all);
    }
    if (p < places) shape.at.push_back({p});
  }
  return shape;
}

// Returns an embedding of all places, half the stages (encoder), a second embedding that waits for
// nothing, and the other half (decoder).
inline PipelineShape encoder_decoder(int64_t places, int64_t micro_batches) {
  PipelineShape shape = embedded(places, {0, places / 2}, micro_batches);
  for (int64_t s = 0; s < shape.stages(); ++s) {
    shape.after.push_back(s == 0 ? std::vector<int64_t>{} : std::vector<int64_t>{s - 1});
  }
  const auto embedding = static_cast<size_t>(places / 2 + 1);
  shape.after[embedding].clear();
  shape.after[embedding + 1].push_back(places / 2);
  return shape;
}

// Returns every shape of the named schedule with these numbers; empty if it is not defined.
inline std::vector<PipelineShape> shapes_of(std::string_view name, int64_t n, int64_t m) {
  if (name == "zb_v") return {v_shape(n, m)};
  if (name == "chimera") {
    return n % 2 == 0 ? std::vector{two_chains(n, m)} : std::vector<PipelineShape>{};
  }
  if (name == "nf1b") {
    return {recycling(n, 1, m), recycling(n, 2, m), recycling(n, 3, m), recycling(n, 4, m)};
  }
  if (name == "token" || name == "token_1f1b") {
    return {sliced(n, 1, m), sliced(n, 2, m), sliced(n, 5, m)};
  }
  if (name == "interlaced") {
    if (n == 1) return {embedded(1, {}, m)};  // otherwise it cannot be told which stage spans
    return {embedded(n, {}, m),
            embedded(n, {0}, m),
            embedded(n, {0, n}, m),
            embedded(n, {0, n / 2}, m),
            embedded(n, {n / 2, n / 2}, m),
            encoder_decoder(n, m)};
  }
  if (name == "interleaved") {
    if (m % n != 0) return {};
    return {chunks(n, 1, m), chunks(n, 2, m), chunks(n, 3, m)};
  }
  return {chunks(n, 1, m)};
}

inline std::string text(const std::vector<BlockRun>& runs) {
  std::string out;
  for (const BlockRun& run : runs) out += (out.empty() ? "" : " ") + to_string(run);
  return out;
}

}  // namespace tessera::schedules
