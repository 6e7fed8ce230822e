// Attention with a sliding window, whose queries are cut over ranks and whose keys are not: a rank
// reads its own keys and the keys in the window before them, and the parts of their gradients go
// back. Closed forms of docs/strategies/sliding-window.md, in elements summed over ranks.
#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/box.h"

// Behind all others: its names are short.
#include "models_and_tensors.h"

namespace tessera::volumes::window_test {
namespace {

constexpr int64_t kBatch = 4, kLayers = 2, kKeyHeads = 2, kHeadSize = 4;

struct Case {
  int64_t cp = 2, seq = 12, window = 5;
  std::string more_mesh, more_splits;
  std::string steps;  // of the keys, beside the cut of the queries

  std::string text() const {
    return fmt::format("cp {} seq {} window {}{} {}", cp, seq, window, more_mesh, steps);
  }
  MeasuredPlan measured() const {
    const std::string loop =
        steps.empty()
            ? ""
            : fmt::format(
                  "  {{ ops = \"blocks.*.attn.core\", dim = \"kv\", over = \"time:{}\" }},\n",
                  steps);
    return measure(
        fmt::format(
            "llama:layers={},hidden=32,heads=8,kv_heads={},seq={},vocab=30,ffn=40,window={}",
            kLayers, kKeyHeads, seq, window),
        fmt::format("mesh = {{ cp = {}{} }}\nsplit = [\n"
                    "  {{ ops = \"*\", dim = \"seq\", over = \"cp\" }},\n{}{}]\n",
                    cp, more_mesh, more_splits, loop),
        kBatch);
  }
  // Returns the keys of the window that lie before a rank's own.
  int64_t halo(int64_t rank) const {
    return std::min(window - 1, split_interval({0, seq}, cp, rank).begin);
  }
  int64_t halos() const {
    int64_t sum = 0;
    for (int64_t rank = 0; rank < cp; ++rank) sum += halo(rank);
    return sum;
  }
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {2, 12, 5, "", "", ""},
      {3, 12, 5, "", "", ""},
      {4, 12, 5, "", "", ""},  // the window is larger than a piece
      {4, 13, 9, "", "", ""},  // three neighbours, uneven pieces
      {4, 16, 2, "", "", ""},
      {5, 7, 4, "", "", ""},
      {4, 12, 11, "", "", ""},  // nearly all keys
      {3, 12, 5, "", "", "4"},
      {2, 12, 5, ", tp = 2", "  { ops = \"blocks.*.attn.*\", dim = \"heads\", over = \"tp\" },\n",
       ""},
      {2, 12, 5, ", dp = 2", "  { ops = \"*\", dim = \"batch\", over = \"dp\" },\n", ""},
  };
  return all;
}

// Sends k and v forward, and the parts of their gradients backward. Fetched keys are kept between.
TEST(Window, keys_before_a_piece_are_fetched_once_and_their_gradients_sent_once) {
  for (const Case& one : cases()) {
    SCOPED_TRACE(one.text());
    const MeasuredPlan found = one.measured();
    const int64_t once = kLayers * 2 * kBatch * kKeyHeads * kHeadSize * one.halos();
    static const auto has_kv = [](const Tensor& t) {
      return t.dims.size() == 4 && t.dims[2].size == kKeyHeads;
    };
    EXPECT_EQ(found.sent_in(BlockKind::kForward, has_kv), once);
    EXPECT_EQ(found.sent_in(BlockKind::kBackward, has_kv), once);
    EXPECT_EQ(found.sent_by("exchange"), 2 * once);
    EXPECT_EQ(found.sent_by("all_gather", has_kv), 0);
  }
}

TEST(Window, a_rank_stores_its_keys_and_those_before_them) {
  for (const Case& one : cases()) {
    if (!one.more_mesh.empty()) continue;
    SCOPED_TRACE(one.text());
    const MeasuredPlan found = one.measured();
    static const auto fetched = [](const Tensor& t) {
      return t.dims.size() == 4 && t.dims[2].size == kKeyHeads && t.role == Role::kActivation;
    };
    for (int64_t rank = 0; rank < one.cp; ++rank) {
      int64_t largest = 0;
      for (const Buffer& buffer : found.programs[static_cast<size_t>(rank)].buffers) {
        if (fetched(found.graph.tensor(buffer.tensor)))
          largest = std::max(largest, buffer.shape[1]);
      }
      EXPECT_EQ(largest, split_interval({0, one.seq}, one.cp, rank).size + one.halo(rank)) << rank;
    }
  }
}

// A step is not computed if no query of the rank sees its keys.
TEST(Window, steps_outside_of_it_are_left_out) {
  const Case one{3, 12, 3, "", "", "6"};
  const MeasuredPlan found = one.measured();
  for (const Program& program : found.programs) {
    int64_t steps = 0;
    for (const Instruction& instruction : program.blocks.at(BlockKind::kForward)) {
      const auto* compute = std::get_if<Compute>(&instruction.body);
      steps += compute != nullptr && compute->kind == "attention" ? 1 : 0;
    }
    // Pieces of two keys: two of the rank's own and one of the window, and the first sets the sum.
    EXPECT_EQ(steps, kLayers * (program.rank == 0 ? 2 : 4)) << program.rank;
  }
}

}  // namespace
}  // namespace tessera::volumes::window_test
