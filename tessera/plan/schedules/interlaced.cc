// Interlaced schedules, for models with large embeddings. Each place has one ordinary stage; in
// between, all places together run spanning stages such as the embedding.
#include <fmt/format.h>

#include <algorithm>

#include "tessera/plan/schedules/generators.h"
#include "tessera/plan/schedules/slots.h"

namespace tessera::schedules {
namespace {

struct Interlaced {
  std::vector<int64_t> ordinary;  // ascending; the i-th one is at place i
  std::vector<int64_t> spanning;  // ascending
};

Result<Interlaced> split_stages(const PipelineShape& shape) {
  Interlaced out;
  for (int64_t s = 0; s < shape.stages(); ++s) {
    const auto size = static_cast<int64_t>(shape.at[static_cast<size_t>(s)].size());
    if (size == shape.places && size > 1) {
      out.spanning.push_back(s);
    } else {
      const auto place = static_cast<int64_t>(out.ordinary.size());
      if (place == shape.places) {
        return wrong_shape("interlaced", fmt::format("{} stages of one place each", shape.places),
                           fmt::format("one more, stage {}", s));
      }
      TESSERA_TRY_VOID(stage_at("interlaced", shape, s, place));
      out.ordinary.push_back(s);
    }
  }
  if (static_cast<int64_t>(out.ordinary.size()) != shape.places) {
    return wrong_shape(
        "interlaced",
        fmt::format("{} stages of one place each, the others of all places", shape.places),
        fmt::format("{}", out.ordinary.size()));
  }
  return out;
}

// Returns whether the shape has the encoder-decoder form: an embedding, the first half of the
// ordinary stages, a second embedding, the second half. If a half has an odd number of stages, the
// second embedding must not wait for the encoder. In that case the last stage of the encoder and
// the first stage of the decoder run in one step, and the second embedding runs before both.
bool encoder_decoder(const PipelineShape& shape, const Interlaced& stages) {
  const int64_t n = shape.places;
  const int64_t half = n / 2;
  return n >= 4 && n % 2 == 0 && stages.spanning == std::vector<int64_t>{0, half + 1} &&
         (half % 2 == 0 || shape.before(half + 1).empty());
}

// Returns the order for the encoder-decoder form (docs/theory/superscaler.md section 8). In each
// step run first the forward blocks of the embeddings, then the ordinary stages, then the backward
// blocks of the embeddings. Stages 2j and 2j+1 run the same micro-batch within a step. With h
// stages in a half, the backward block of the decoder's embedding runs in step m + 2h - floor(h/2)
// - 1 for micro-batch m. The published lag floor(1.5h) - 1 is equal for even h, but for odd h that
// block would run one step before the gradient that it needs.
Schedule encoder_decoder_order(const PipelineShape& shape, const Interlaced& stages) {
  const int64_t n = shape.places;
  const int64_t half = n / 2;
  constexpr int64_t kEntries = 6;
  Slots slots(n);
  const auto put = [&](int64_t place, int64_t step, int64_t entry, const BlockRun& run) {
    slots.put(place, step * kEntries + entry, run);
  };
  for (int64_t m = 0; m < shape.micro_batches; ++m) {
    for (int64_t place = 0; place < n; ++place) {
      const int64_t lag = place / 2;
      const int64_t stage = stages.ordinary[static_cast<size_t>(place)];
      const bool forward_first = place % 2 == 0;
      put(place, m, 0, {BlockRun::kForward, m, stages.spanning[0]});
      put(place, m + half / 2, 1, {BlockRun::kForward, m, stages.spanning[1]});
      put(place, m + lag, forward_first ? 2 : 3, {BlockRun::kForward, m, stage});
      put(place, m + n - 1 - lag, forward_first ? 3 : 2, {BlockRun::kBackward, m, stage});
      put(place, m + n - half / 2 - 1, 4, {BlockRun::kBackward, m, stages.spanning[1]});
      put(place, m + n - 1, 5, {BlockRun::kBackward, m, stages.spanning[0]});
    }
  }
  return slots.schedule();
}

// `Plus` makes the schedule 1F1B-plus. The ordinary stages run in the steps of 1F1B: for
// micro-batch m, stage i runs its forward block in step 2m + i and its backward block in step 2m +
// 2n-1-i. A spanning stage runs between two steps. Its forward block runs just before the first
// stage that reads its output, or after the last ordinary stage if none does. Its backward block
// has the mirrored position.
class Plus {
 public:
  Plus(const PipelineShape& shape, const Interlaced& stages)
      : shape_(shape), stages_(stages), depth_(shape.at.size(), -1) {
    for (size_t i = 0; i < stages.ordinary.size(); ++i) {
      depth_[static_cast<size_t>(stages.ordinary[i])] = static_cast<int64_t>(i);
    }
  }

  Schedule order() {
    Slots slots(shape_.places);
    const int64_t n = shape_.places;
    // Between two steps come the forward blocks of spanning stages by rising number, then the
    // backward blocks by falling number. So each block comes after those that it needs, because a
    // stage only needs stages of smaller numbers.
    const int64_t entries = 2 * shape_.stages() + 1;
    for (int64_t s = 0; s < shape_.stages(); ++s) {
      const int64_t depth = depth_[static_cast<size_t>(s)];
      const int64_t gap = depth >= 0 ? depth : gap_before(s);
      for (const int64_t place : shape_.at[static_cast<size_t>(s)]) {
        for (int64_t m = 0; m < shape_.micro_batches; ++m) {
          const int64_t forward = (2 * m + gap) * entries;
          const int64_t backward = (2 * m + 2 * n - 1 - gap) * entries;
          if (depth >= 0) {
            slots.put(place, forward, {BlockRun::kForward, m, s});
            slots.put(place, backward, {BlockRun::kBackward, m, s});
          } else {
            slots.put(place, forward - entries + 1 + s, {BlockRun::kForward, m, s});
            slots.put(place, backward + 2 * shape_.stages() - s, {BlockRun::kBackward, m, s});
          }
        }
      }
    }
    return slots.schedule();
  }

 private:
  // Returns the depth of the ordinary stage just before which the spanning stage runs; the number
  // of places if it runs after the last one.
  int64_t gap_before(int64_t stage) const {
    int64_t gap = shape_.places;
    for (int64_t s = stage + 1; s < shape_.stages(); ++s) {
      const auto before = shape_.before(s);
      if (std::find(before.begin(), before.end(), stage) == before.end()) continue;
      const int64_t depth = depth_[static_cast<size_t>(s)];
      gap = std::min(gap, depth >= 0 ? depth : gap_before(s));
    }
    return gap;
  }

  const PipelineShape& shape_;
  const Interlaced& stages_;
  std::vector<int64_t> depth_;  // by stage: its index among the ordinary stages; -1: spanning
};

}  // namespace

Result<Schedule> interlaced(const PipelineShape& shape) {
  TESSERA_TRY(const Interlaced stages, split_stages(shape));
  if (encoder_decoder(shape, stages)) return encoder_decoder_order(shape, stages);
  return Plus(shape, stages).order();
}

}  // namespace tessera::schedules
