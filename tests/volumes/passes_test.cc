// Compares the elements that every recipe sends in its forward and in its backward pass, summed
// over ranks, with the closed form of its page (docs/theory, docs/strategies). Gradients count as
// backward wherever they are summed; `gathered` are parameters after their update.
#include <fmt/format.h>

#include <set>

#include "models_and_tensors.h"
#include "tessera/plan/recipes.h"

namespace tessera::volumes::passes_test {
namespace {

constexpr int64_t hh = h * h;
// For kGpt: all parameters, and those that backward ops read: no biases, no positions.
constexpr int64_t kAll = V * h + s * h + layers * (12 * hh + 13 * h) + 2 * h;
constexpr int64_t kRead = V * h + layers * (12 * hh + 2 * h) + h;

bool has_size(const Tensor& tensor) { return !is_scalar(tensor); }
bool is_slots(const Tensor& tensor) {
  return has_dims(tensor, {"experts", "batch", "capacity", "hidden"});
}

const std::string kDeep = "gpt:layers=4,hidden=16,heads=4,seq=8,vocab=24,tied=0";
const std::string kUntied = kGpt + ",tied=0";
const std::string kAttends = kGpt + ",causal=0";
const std::string kGrouped = "llama:layers=2,hidden=16,heads=4,kv_heads=2,seq=8,vocab=24,ffn=64";
const std::string kExperts =
    "mixtral:layers=2,hidden=16,heads=4,kv_heads=2,seq=8,vocab=24,ffn=12,experts=4,top_k=2,"
    "capacity_factor=1";

// Picks the alignment and the pair map of kAxial, and tensors made of them.
bool is_map(const Tensor& tensor) { return tensor.dims.size() >= 4; }
const std::string kAxial =
    "evoformer:layers=2,hidden=16,heads=4,pair=8,pair_heads=2,sequences=8,residues=4,outer=6,"
    "vocab=7,bins=5";

// Picks volumes of kVolumes: [batch, channels, depth, height, width].
bool is_volume(const Tensor& tensor) {
  return tensor.dims.size() == 5 && tensor.dims.front().name == "batch";
}
const std::string kVolumes = "cosmoflow:width=16,channels=2,filters=2,outputs=3";

// Picks pooled vectors of kTables and their gradients: four tables of 8 columns.
bool is_pooled(const Tensor& tensor) {
  return tensor.dims.size() == 3 && tensor.name.find("tables.") != std::string::npos;
}
const std::string kTables = "dlrm:dense=4,rows=12-8-16-4,bags=2,width=8,bottom=8,top=4-1";

struct Sends {
  std::string plan;  // a recipe call
  std::string model;
  MeasuredPlan::Keep what;  // the tensors that the closed form counts
  int64_t forward, backward, gathered = 0;
};

std::vector<Sends> closed_forms() {
  // Tensor parallel: two sums of the activation a layer, and the sums of the vocabulary.
  constexpr int64_t sums = (2 * layers + 1) * 2 * bsh;
  // A block's products under summa: 7bsh of inputs along rows, 12hh of weights along columns.
  constexpr int64_t products = 7 * bsh + 12 * hh;
  constexpr int64_t pooled = 4 * b * 8;
  // Once around a ring: keys and values, which are 2bsh in kGpt and bsh in kGrouped.
  constexpr int64_t round = layers * 2 * bsh;
  // Ulysses: q, k, v and o of all heads; with grouped heads, k and v are half as large.
  constexpr int64_t heads = layers * 4 * bsh, grouped = layers * 3 * bsh;
  // An Evoformer block changes the axis of the alignment twice, and that of the pair map four
  // times; the first block saves one change of each. Gathered: the biases of row, start and end
  // attention, one factor of the outer product and one of each triangle product.
  constexpr int64_t S = 8, R = 4, pairs = b * R * R;
  constexpr int64_t turns = (2 * layers - 1) * b * S * R * 16 + (4 * layers - 1) * pairs * 8;
  constexpr int64_t biases = layers * pairs * (4 + 2 + 2);
  constexpr int64_t factors = layers * (b * S * R * 6 + 2 * pairs * 8);
  return {
      {"serial", kGpt, has_size, 0, 0},
      {"recompute(full)", kGpt, has_size, 0, 0},
      {"co_shard(2)", kGpt, has_size, 0, 0},
      // ---- over the batch
      {"data_parallel(4)", kGpt, has_size, 0, 2 * 3 * kAll},
      {"zero(1, 4)", kGpt, has_size, 0, 3 * kAll, 3 * kAll},
      {"zero(2, 4)", kGpt, has_size, 0, 3 * kAll, 3 * kAll},
      {"zero(3, 4)", kGpt, has_size, 3 * kAll, 3 * (kRead + kAll)},
      {"fsdp(4, prefetch=0)", kGpt, has_size, 3 * kAll, 3 * (kRead + kAll)},
      {"fsdp(2, replicas=3, prefetch=0)", kGpt, has_size, 3 * kAll,
       3 * (kRead + kAll) + 2 * 2 * kAll},
      // Gathered from all; then, for the backward pass, only in the group.
      {"fsdp(4, reshard_after_forward=2, prefetch=0)", kGpt, has_size, 3 * kAll,
       2 * kRead + 3 * kAll},
      {"fsdp(6, reshard_after_forward=2, prefetch=0)", kGpt, has_size, 5 * kAll,
       3 * kRead + 5 * kAll},
      {"fsdp(6, reshard_after_forward=3, prefetch=0)", kGpt, has_size, 5 * kAll,
       4 * kRead + 5 * kAll},
      {"zero(3, 4, reshard_after_forward=2)", kGpt, has_size, 3 * kAll, 2 * kRead + 3 * kAll},
      {"fsdp(4, reshard=false, prefetch=0)", kGpt, has_size, 0, 3 * kAll, 3 * kAll},
      {"offload(2)", kGpt, has_size, kAll, kAll},  // gathered from the shards ahead of the step
      // ---- over features
      {"tensor_parallel(2)", kGpt, is_hidden, sums, sums},
      {"tensor_parallel(4)", kGpt, is_hidden, 3 * sums, 3 * sums},
      {"tensor_parallel(4, sequence_shard=true)", kGpt, is_hidden, 3 * sums, 3 * sums * 3 / 2},
      {"co_shard(2, tp=2)", kGpt, is_hidden, sums, sums},
      {"megatron(tp=2, recompute=full)", kGpt, is_hidden, sums, sums + layers * 2 * bsh},
      {"megatron(tp=2, pp=2, dp=2, micro_batches=2)", kGpt, is_hidden, sums + 2 * bsh,
       sums + 2 * bsh},
      {"summa(2)", kGpt, is_matrix, products, 2 * products},
      {"summa(4)", kGpt, is_matrix, 3 * products, 2 * 3 * products},
      // Shifted as often as summa broadcasts, after half of each operand has been aligned. The sum
      // of q's, k's and v's terms of a gradient is not aligned.
      {"cannon(2)", kGpt, is_matrix, products * 3 / 2, 2 * products * 3 / 2 - bsh / 2},
      {"tesseract(2, 2)", kGpt, is_matrix, products + 12 * hh,
       2 * products + 2 * 12 * hh + 24 * hh},
      {"tensor_parallel_3d(2, 2, 2)", kGpt, is_matrix, 16 * bsh + 12 * hh,
       16 * bsh + 12 * hh + products},
      {"expert_parallel(4)", kExperts, is_slots, layers * 2 * 3 * 2 * bsh / 4,
       layers * 2 * 3 * 2 * bsh / 4},
      // ---- over layers
      {"gpipe(2, 4)", kUntied, has_size, bsh, bsh},
      {"one_f_one_b(4, 8)", kDeep, has_size, 3 * bsh, 3 * bsh},
      {"pipeline(2, 4, zb_h1)", kUntied, has_size, bsh, bsh},
      {"pipeline(2, 4, interleaved, 2)", kDeep, has_size, 3 * bsh, 3 * bsh},
      {"pipeline(2, 4, zb_v)", kDeep, has_size, 2 * bsh, 2 * bsh},
      {"chimera(2)", kGpt, is_hidden, bsh, bsh},
      {"token_pipeline(2, 2)", kUntied, has_size, bsh, bsh},
      {"token_pipeline(2, 2, recompute=full)", kUntied, has_size, bsh, bsh},
      // From two ranks that hold it whole to four: each takes a slice; the gradient is gathered.
      {"per_layer(\"0:tp2,dp2;1:dp4\")", kGpt, is_hidden, 3 * 2 * bsh, 2 * 2 * bsh + bsh},
      {"per_layer(\"0-1:ulysses2,dp2\")", kGpt, has_heads, heads / 2, heads / 2},
      {"per_layer(\"0-1:cp4\")", kAttends, has_heads, 3 * round, (3 + 4) * round},
      // ---- over tokens
      {"ring_attention(4, order=none)", kAttends, has_heads, 3 * round, (3 + 4) * round},
      {"ring_attention(4)", kGrouped, has_heads, 3 * round / 2, (3 + 4) * round / 2},
      {"rsa(4)", kAttends, has_heads, 3 * round, (3 + 4) * round},
      {"ulysses(2)", kGpt, has_heads, heads / 2, heads / 2},
      {"ulysses(4)", kGpt, has_heads, heads * 3 / 4, heads * 3 / 4},
      {"ulysses(2)", kGrouped, has_heads, grouped / 2, grouped / 2},
      {"ring_ulysses(2, 2)", kGpt, has_heads, heads / 2 + round, heads / 2 + (1 + 2) * round},
      {"ring_ulysses(4, 2)", kGrouped, has_heads, grouped / 2 + 3 * round / 2,
       grouped / 2 + (3 + 4) * round / 2},
      // ---- over rows and columns. Gradients go back the same way; factors are gathered again.
      {"dap(2)", kAxial, is_map, turns / 2 + biases + factors, turns / 2 + biases + 2 * factors},
      {"dap(4)", kAxial, is_map, turns * 3 / 4 + 3 * (biases + factors),
       turns * 3 / 4 + 3 * (biases + 2 * factors)},
      // ---- in space. Rows of 16^3, 8^3 and 4^3 maps: windows of 3 take one row on either side of
      // the border, with stride 2 one in all; these are the rows that rank 0 and rank 1 read of
      // each other. Then maps go to samples. The input has its halo from the start, and no
      // gradient. Gradients that go back from samples to rows bring their halo, half of which was
      // there.
      {"spatial(h=2, until=\"blocks.2\")", kVolumes, is_volume,
       b * (256 * 2 + 2 * 64 * 2 + 64 * 4 + 64 * 4 / 2),
       b * (64 * 4 / 2 + 16 * 4 / 2 + 2 * 64 * 4 + 64 * 2)},
      // ---- by channels, of these maps. The outputs of two convolutions are scattered and their
      // gradients gathered; or the input of the second is gathered, and again for its weight's
      // gradient, and its gradient scattered. Then maps go to samples.
      {"channel_parallel(2, until=\"blocks.2\")", kVolumes, is_volume,
       b * (2 * 4096 + 4 * 512 + 4 * 64 / 2), b * (2 * 4096 + 4 * 512 + 4 * 64 / 2)},
      {"filter_parallel(2, until=\"blocks.2\")", kVolumes, is_volume, b * (2 * 512 + 4 * 64 / 2),
       b * (2 * 2 * 512 + 4 * 64 / 2)},
      // ---- dense layers in groups: 256 features of each sample.
      {"split_brain(2, scheme=a)", kVolumes, is_volume, b * 256, 2 * b * 256},
      {"split_brain(2, scheme=b)", kVolumes, is_volume, b * 256, 2 * b * 256},
      {"split_brain(2)", kVolumes, is_volume, b * 256, 2 * b * 256},
      // ---- tables (docs/theory/zionex-dlrm.md section 4). Whole or by columns: each vector goes
      // to the rank of its sample. By rows: sums are scattered, gradients gathered. If nodes hold
      // tables or columns, and their ranks hold rows: both, one after the other.
      {"tables(4)", kTables, is_pooled, pooled * 3 / 4, pooled * 3 / 4},
      {"tables(4, by=column)", kTables, is_pooled, pooled * 3 / 4, pooled * 3 / 4},
      {"tables(4, by=row)", kTables, is_pooled, pooled * 3, pooled * 3},
      {"tables(2, by=table_row, nodes=2)", kTables, is_pooled, pooled + pooled / 2,
       pooled + pooled / 2},
      {"tables(2, by=grid, nodes=2)", kTables, is_pooled, pooled + pooled / 2, pooled + pooled / 2},
      {"tables(4, by=replica)", kTables, is_pooled, 0, 0},
      // ---- op by op. Norms by tokens: an all-to-all before and one after, and so for gradients.
      {"per_op(\"a4\", \"*=batch:a;norms=seq:a\")", kGpt, is_hidden, 2 * layers * 2 * bsh * 3 / 4,
       2 * layers * 2 * bsh * 3 / 4},
      // The MLP by features: its input is gathered, again for its weight's gradient, its output
      // scattered.
      {"per_op(\"a4\", \"*=batch:a;mlp=batch:,ffn:a\")", kGpt, is_hidden, layers * 2 * 3 * bsh,
       layers * 3 * 3 * bsh},
      // Two bytes an element, not eight.
      {"compressed(2, with=bfloat16)", kGpt, has_size, 0, 2 * kAll / 4},
      {"compressed(1, pp=2, micro_batches=2, borders=bfloat16)", kUntied, has_size, bsh / 4,
       bsh / 4},
      {"compressed(2, tp=2, with=bfloat16)", kGpt, is_hidden, sums, sums},
  };
}

TEST(Passes, send_their_closed_forms_apart) {
  for (const Sends& form : closed_forms()) {
    const MeasuredPlan found = measure(form.model, form.plan, b);
    const auto sent = [&](std::initializer_list<BlockKind> blocks) {
      int64_t all = 0;
      for (const BlockKind block : blocks) all += found.sent_in(block, form.what);
      return all;
    };
    const int64_t gathered = found.sent(is_updated);
    EXPECT_EQ(sent({BlockKind::kPrologue, BlockKind::kForward}), form.forward) << form.plan;
    EXPECT_EQ(sent({BlockKind::kBackward, BlockKind::kWeight, BlockKind::kUpdate}) - gathered,
              form.backward)
        << form.plan;
    EXPECT_EQ(gathered, form.gathered) << form.plan;
  }
}

TEST(Passes, every_recipe_has_a_closed_form) {
  std::set<std::string> named;
  for (const Sends& form : closed_forms()) named.insert(form.plan.substr(0, form.plan.find('(')));
  for (const Recipe& recipe : all_recipes())
    EXPECT_TRUE(named.contains(recipe.name)) << recipe.name;
}

// The elements sent of activations depend on the batch, those of parameters and gradients on the
// number of micro-batches, whatever their sizes.
TEST(MicroBatches, of_two_sizes_send_what_the_batch_and_their_number_say) {
  const int64_t batch = 10, tokens = batch * s * h;
  for (const char* schedule : {"gpipe", "1f1b", "zb_h1"}) {
    const MeasuredPlan stages =
        measure(kUntied, fmt::format("pipeline(2, 3, {})", schedule), batch);
    EXPECT_EQ(stages.sent_in(BlockKind::kForward, has_size), tokens) << schedule;
    EXPECT_EQ(stages.sent_in(BlockKind::kBackward, has_size), tokens) << schedule;
  }
  const MeasuredPlan features = measure(kGpt, "megatron(tp=2, micro_batches=3)", batch);
  EXPECT_EQ(features.sent_in(BlockKind::kForward, is_hidden), (2 * layers + 1) * 2 * tokens);
  for (const char* plan : {"zero(1, 4, 3)", "zero(3, 4, 3)", "fsdp(4, micro_batches=3, prefetch=0)",
                           "fsdp(4, micro_batches=3, reshard_after_forward=2, prefetch=0)"}) {
    EXPECT_EQ(measure(kGpt, plan, batch).sent(has_size), measure(kGpt, plan, 12).sent(has_size))
        << plan;
  }
}

// Both choices of `keep` (docs/reference/plan-language.md): to send q, k, v and o again in the
// backward pass is half as much again, and saves the second copy of o.
TEST(Keep, prices_both_ends_of_a_layout_change) {
  const int64_t n = 2, all_to_alls = layers * 4 * bsh * (n - 1) / n;
  const std::string again = "\n[[store]]\ntensors = \"blocks.*\"\nkeep = \"block\"\n";
  const MeasuredPlan kept = measure(kGpt, "ulysses(2)", b),
                     sent = measure(kGpt, "ulysses(2)", b, again);
  EXPECT_EQ(kept.sent_by("all_to_all"), 2 * all_to_alls);
  EXPECT_EQ(sent.sent_by("all_to_all"), 3 * all_to_alls);
  EXPECT_EQ(kept.stored(0, has_heads) - sent.stored(0, has_heads), layers * bsh / n);
}

// A rank keeps its group's share of each parameter that the backward pass reads.
TEST(Keep, a_kept_copy_may_be_cut_over_fewer_axes_than_the_tensor) {
  const MeasuredPlan all = measure(kGpt, "fsdp(4, prefetch=0)", b),
                     group = measure(kGpt, "fsdp(4, reshard_after_forward=2, prefetch=0)", b);
  const auto kept = [](const MeasuredPlan& found) {
    int64_t elements = 0;
    for (const Buffer& buffer : found.programs[0].buffers) {
      if (buffer.lifetime == Lifetime::kMicroBatch &&
          is_parameter(found.graph.tensor(buffer.tensor)))
        elements += buffer.bytes() / 8;
    }
    return elements;
  };
  EXPECT_EQ(kept(all), 0);
  EXPECT_EQ(kept(group), kRead / 2);
  EXPECT_EQ(group.at_rest(0, is_parameter), all.at_rest(0, is_parameter));
}

// With keep = "step" the coarser copy is made once a step, whatever the micro-batches.
TEST(Keep, a_coarser_copy_may_be_kept_for_the_step) {
  const std::string over = "\n[[store]]\ntensors = \"role:parameter\"\nover = [\"d\", \"g\"]\n",
                    keep = over + "keep_over = \"d\"\n";
  const auto sent = [](const std::string& stores, const std::vector<std::string>& axes) {
    return measure(kGpt, "per_op(\"g2,d2\", \"*=batch:g+d\", micro_batches=2)", b, stores)
        .sent_along(axes, is_parameter);
  };
  EXPECT_EQ(sent(keep, {"g"}), 2 * kRead);
  EXPECT_EQ(sent(keep, {"d"}), 2 * 2 * 2 * kRead);
  EXPECT_EQ(sent(keep, {"d", "g"}), 2 * 3 * (kAll - kRead)) << "not read in the backward pass";
  EXPECT_EQ(sent(keep + "keep = \"step\"\n", {"g"}), kAll);
  EXPECT_EQ(sent(keep + "keep = \"step\"\n", {"d"}), 2 * 2 * (kAll + kRead));
}

// A copy on the device of a tensor that rests elsewhere would defeat the purpose.
TEST(Keep, what_rests_on_the_host_is_sent_again) {
  const std::string host = "\n[[store]]\ntensors = \"role:activation\"\ntier = \"host\"\n";
  EXPECT_EQ(measure(kGpt, "ulysses(2)", b, host).sent_by("all_to_all"), 3 * layers * 4 * bsh / 2);
}

// A gathered tensor is larger than the shard at rest: it is gathered again, however small it is.
TEST(Keep, what_a_gather_has_made_larger_is_gathered_again) {
  const std::string more = "\n[[store]]\ntensors = \"blocks.*\"\nkeep = \"micro_batch\"\n";
  const std::string plan = "tensor_parallel(2, sequence_shard=true)";
  const MeasuredPlan again = measure(kGpt, plan, b), kept = measure(kGpt, plan, b, more);
  EXPECT_EQ(again.sent_in(BlockKind::kBackward, is_hidden) -
                kept.sent_in(BlockKind::kBackward, is_hidden),
            2 * layers * bsh);
  EXPECT_GT(kept.stored(0, is_hidden), again.stored(0, is_hidden));
}

}  // namespace
}  // namespace tessera::volumes::passes_test
