// Compares halos, interior and rims, and halos that are computed twice (tessera/plan/resolve/halos.h) with
// closed forms: the elements that plans compute, keep and send, summed over ranks (as
// volumes_test.cc).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <variant>
#include <vector>

// Behind all others: its names are short.
#include "models_and_tensors.h"

namespace tessera::volumes::halos_test {
namespace {

constexpr int64_t kBatch = 4;
// Layers 1 and 2 convolve volumes of 8^3 and 4^3.
const std::string kVolumes = "cosmoflow:width=16,channels=2,filters=4,outputs=3,dropout=0";
// Layers 2 and 3 are convolutions of maps of 32 x 32 behind one another.
const std::string kMaps = "vgg:layers=13,form=cifar,image=64,width=2,classes=5,dropout=0";

// ---- what lies around a piece
// One dim that is read through windows: elements of the map, places of the reader, and its window.
struct Read {
  int64_t elements = 0, places = 0, kernel = 3, stride = 1, padding = 1;
  Interval own(int64_t parts, int64_t at) const { return split_interval({0, elements}, parts, at); }
  // Returns the elements under the windows at the places of piece `at`.
  Interval under(int64_t parts, int64_t at) const {
    const Interval made = split_interval({0, places}, parts, at);
    const int64_t begin = std::max<int64_t>(0, made.begin * stride - padding);
    return {begin, std::min(elements, (made.end() - 1) * stride - padding + kernel) - begin};
  }
};
using Parts = std::array<int64_t, 3>;  // of depth, height and width
// The elements of a map that a rank reads, and those among them that it holds.
struct Halo {
  int64_t read = 1, own = 1;
};
Halo halo_of(const Read& read, const Parts& parts, int64_t rank, int64_t channels) {
  Halo out{kBatch * channels, kBatch * channels};
  for (size_t d = parts.size(); d-- > 0; rank /= parts[d]) {
    const int64_t at = rank % parts[d];
    const Interval under = read.under(parts[d], at);
    out.read *= under.size;
    out.own *= intersect(under, read.own(parts[d], at)).size;
  }
  return out;
}

// Windows also read corners and edges, more of them for each further dim that is cut. The first
// convolution's halo is loaded with the volume.
TEST(Halos, are_what_windows_read_beyond_each_piece_with_its_corners) {
  static const auto by_pool_0 = [](const Tensor& t) { return t.name == "blocks.0.act"; };
  static const auto by_conv_1 = [](const Tensor& t) { return t.name == "blocks.0.pool"; };
  const Read pool_0{16, 8, 3, 2, 1}, conv_1{8, 8};
  for (const Parts& parts : std::vector<Parts>{
           {2, 1, 1}, {3, 1, 1}, {1, 4, 1}, {2, 2, 1}, {2, 1, 3}, {3, 2, 1}, {2, 2, 2}}) {
    const std::string plan =
        fmt::format("spatial(d={}, h={}, w={}, until=\"blocks.2\")", parts[0], parts[1], parts[2]);
    const MeasuredPlan found = measure(kVolumes, plan, kBatch);
    int64_t of_pool = 0, of_conv = 0;
    for (int64_t rank = 0; rank < parts[0] * parts[1] * parts[2]; ++rank) {
      const Halo pool = halo_of(pool_0, parts, rank, 4), conv = halo_of(conv_1, parts, rank, 4);
      of_pool += pool.read - pool.own;
      of_conv += conv.read - conv.own;
      // The rank keeps the activations of a piece and their halo for the weight's gradient.
      EXPECT_EQ(found.stored(static_cast<size_t>(rank), by_conv_1), conv.read) << plan << rank;
    }
    EXPECT_EQ(found.sent_in(BlockKind::kForward, by_pool_0), of_pool) << plan;
    EXPECT_EQ(found.sent_in(BlockKind::kForward, by_conv_1), of_conv) << plan;
    static const auto is_input = [](const Tensor& t) { return t.name == "volume"; };
    EXPECT_EQ(found.sent(is_input), 0) << plan;
  }
}

// ---- interior and rims
TEST(Rims, send_what_the_whole_piece_sends) {
  for (const char* call : {"spatial(d=2{})", "spatial(h=4{})", "spatial(d=2, w=2{})",
                           "spatial(d=2, h=2, w=2{})", "spatial(h=2, filters=2{})"}) {
    const MeasuredPlan whole = measure(kVolumes, fmt::format(fmt::runtime(call), ""), kBatch);
    const MeasuredPlan rims =
        measure(kVolumes, fmt::format(fmt::runtime(call), ", rims=true"), kBatch);
    EXPECT_EQ(rims.sent(), whole.sent()) << call;
    EXPECT_EQ(rims.calls(0, CollectiveKind::kExchange, MeasuredPlan::any),
              whole.calls(0, CollectiveKind::kExchange, MeasuredPlan::any))
        << call;
  }
}

// The boxes that a rank computes of an op in the forward pass, and how many of them before the
// first wait of the block after the first box.
struct Computed {
  std::vector<Box> boxes;
  size_t before_wait = 0;
};
Computed computed(const MeasuredPlan& measured, size_t rank, std::string_view op) {
  Computed out;
  bool waited = false;
  for (const auto& [ref, block] : measured.programs[rank].blocks) {
    if (ref.kind != BlockKind::kForward) continue;
    for (const Instruction& instruction : block) {
      const auto* compute = std::get_if<Compute>(&instruction.body);
      waited = waited || (!out.boxes.empty() && std::holds_alternative<Wait>(instruction.body));
      if (compute == nullptr || measured.graph.op(compute->op).path != op) continue;
      out.boxes.push_back(compute->box);
      if (!waited) ++out.before_wait;
    }
  }
  return out;
}

// One step is the interior, which starts before the wait; slabs make up the rest, each place once.
TEST(Rims, are_what_the_interior_leaves_of_the_piece) {
  const std::string op = "blocks.1.conv";
  for (const auto& [plan, slabs] : std::vector<std::pair<std::string, size_t>>{
           {"spatial(d=3{})", 2}, {"spatial(d=3, h=3{})", 4}, {"spatial(d=3, h=3, w=3{})", 6}}) {
    const MeasuredPlan whole = measure(kVolumes, fmt::format(fmt::runtime(plan), ""), kBatch);
    const MeasuredPlan rims =
        measure(kVolumes, fmt::format(fmt::runtime(plan), ", rims=true"), kBatch);
    for (size_t rank = 0; rank < whole.programs.size(); ++rank) {
      const Computed piece = computed(whole, rank, op), steps = computed(rims, rank, op);
      ASSERT_EQ(piece.boxes.size(), 1U);
      EXPECT_EQ(steps.before_wait, 1U) << plan << rank;
      EXPECT_LE(steps.boxes.size(), 1 + slabs) << plan << rank;
      int64_t volume = 0;
      for (size_t i = 0; i < steps.boxes.size(); ++i) {
        EXPECT_TRUE(piece.boxes[0].contains(steps.boxes[i]));
        volume += steps.boxes[i].volume();
        for (size_t j = 0; j < i; ++j)
          EXPECT_TRUE(intersect(steps.boxes[i], steps.boxes[j]).empty()) << plan << rank;
      }
      EXPECT_EQ(volume, piece.boxes[0].volume()) << plan << rank;
    }
    // Pieces of 3, 3 and 2 of 8: the rank in the middle has one place inside along each dim.
    const size_t middle = whole.programs.size() / 2;
    const Computed steps = computed(rims, middle, op);
    EXPECT_EQ(steps.boxes.size(), 1 + slabs) << plan;
    int64_t inside = kBatch * 8 * 4 * 27;  // batch, filters, channels, kernel
    for (size_t d = 0; d < 3; ++d) inside *= d < slabs / 2 ? 1 : 8;
    EXPECT_EQ(steps.boxes[0].volume(), inside) << plan;
  }
}

// ---- halos that are computed: two convolutions in sequence, on maps of n x n, with c channels
// before, e between and f after them.

bool read_by_2(const Tensor& t) { return t.name == "blocks.1.pool"; }
bool read_by_3(const Tensor& t) { return t.name == "blocks.2.act"; }
bool gradient_behind_3(const Tensor& t) { return t.name.starts_with("grad.blocks.3.conv"); }
bool gradient_behind_2(const Tensor& t) { return t.name.starts_with("grad.blocks.2.conv"); }
// Picks maps, not weights and biases.
bool is_map(const Tensor& t) { return t.dims.size() == 4 && t.dims[0].name == "batch"; }

TEST(Layers, exchange_one_halo_of_both_widths) {
  constexpr int64_t n = 32, c = 2, e = 4, f = 4;
  for (const int64_t g : {2, 4}) {
    const int64_t rows = 2 * (g - 1) * kBatch * n;  // a row on both sides of each border
    const auto of = [&](int64_t layers) {
      return measure(kMaps, fmt::format("spatial(h={}, layers={})", g, layers), kBatch);
    };
    const MeasuredPlan one = of(1), two = of(2);
    const auto sent = [](const MeasuredPlan& found, BlockKind block, MeasuredPlan::Keep keep) {
      return found.sent_in(block, keep);
    };
    static const auto behind_3 = [](const Tensor& t) { return is_map(t) && gradient_behind_3(t); };
    static const auto behind_2 = [](const Tensor& t) { return is_map(t) && gradient_behind_2(t); };
    EXPECT_EQ(sent(one, BlockKind::kForward, read_by_2), rows * c) << g;
    EXPECT_EQ(sent(two, BlockKind::kForward, read_by_2), rows * c * 2) << g;
    EXPECT_EQ(sent(one, BlockKind::kForward, read_by_3), rows * e) << g;
    EXPECT_EQ(sent(two, BlockKind::kForward, read_by_3), 0) << g;
    EXPECT_EQ(sent(one, BlockKind::kBackward, behind_3), rows * f) << g;
    EXPECT_EQ(sent(two, BlockKind::kBackward, behind_3), rows * f * 2) << g;
    EXPECT_EQ(sent(one, BlockKind::kBackward, behind_2), rows * e) << g;
    EXPECT_EQ(sent(two, BlockKind::kBackward, behind_2), 0) << g;
    // Copies from the forward pass serve the gradients of the weights.
    EXPECT_EQ(sent(two, BlockKind::kBackward, read_by_2), 0) << g;
    EXPECT_EQ(sent(two, BlockKind::kBackward, read_by_3), 0) << g;
    const auto calls = [](const MeasuredPlan& found, MeasuredPlan::Keep keep) {
      return found.calls(0, CollectiveKind::kExchange, keep);
    };
    for (const auto& pair : std::vector<std::pair<MeasuredPlan::Keep, MeasuredPlan::Keep>>{
             {read_by_2, read_by_3}, {behind_3, behind_2}}) {
      EXPECT_EQ(calls(one, pair.first) + calls(one, pair.second), 2) << g;
      EXPECT_EQ(calls(two, pair.first) + calls(two, pair.second), 1) << g;
    }
    // Each rank computes a row of its neighbours' maps.
    const auto work = [&](const MeasuredPlan& found) {
      int64_t volume = 0;
      for (size_t rank = 0; rank < found.programs.size(); ++rank)
        volume += computed(found, rank, "blocks.2.conv").boxes.at(0).volume();
      return volume;
    };
    EXPECT_EQ(work(two) * n, work(one) * (n + 2 * (g - 1))) << g;
    const auto last = [&](const MeasuredPlan& found) {
      return computed(found, 0, "blocks.3.conv").boxes.at(0);
    };
    EXPECT_EQ(last(two), last(one)) << g;
  }
}

// The text of a place shows rims and reads through several windows, and parses back.
TEST(Rims, stand_in_texts_of_places) {
  const std::string written =
      text_of_place(kMaps, "spatial(h=2, w=2, rims=true, layers=2)", kBatch);
  EXPECT_NE(written.find("rims {"), std::string::npos);
  EXPECT_NE(written.find("~3/1/1 32 of 32 of ~3/1/1 32 of 32"), std::string::npos);
}

}  // namespace
}  // namespace tessera::volumes::halos_test
