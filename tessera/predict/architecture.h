// Public architectures, by name. Sizes are published facts of the models (their papers and
// configuration files), never measurements; they are data, tessera/predict/data/architectures.toml.
//
//   const auto model = find_architecture("Llama3-70B-12L");  // 12 of its 80 layers
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// The builder (models/model.h) whose blocks a model has, and the differences in it.
enum class Form : uint8_t {
  kGpt,      // norms, biases, ungated MLP
  kLlama,    // RMS norms, rotary positions, gated MLP
  kMixture,  // a Llama with experts
  kHybrid,   // blocks of state space, attention and experts in a pattern (nemotron_h)
  kBert,
  kT5,
  kVit,
  kSwin,         // windows of an image; the sizes are those of the first stage
  kConvolution,  // ResNet
  kUnbuilt,      // no builder: known so that a row can say why it is not predicted
};

struct Architecture {
  std::string name;  // as in the table, or the row's own
  Form form = Form::kGpt;
  int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, ffn = 0, vocab = 0, seq = 0;
  int64_t head_dim = 0;  // 0: hidden / heads
  bool tied = false;     // head and embedding share their table
  // Mixtures. `ffn` is the width of an expert.
  int64_t experts = 0, top_k = 0;
  int64_t shared_ffn = 0;                   // width of what every token passes beside the experts
  int64_t latent = 0;                       // width of tokens at the experts; 0: hidden
  int64_t dense_layers = 0, dense_ffn = 0;  // blocks with an MLP in place of the experts, the first
  // Hybrids: a letter for each block, as models/nemotron_h.h has them; `ffn` is the width of an
  // expert, experts have two matrices. Heads of state space, and depths of multi-token prediction.
  std::string pattern;
  int64_t ssm_heads = 0, mtp = 0;
  // Width through which queries, and keys and values, are made (latent attention); 0: at once.
  int64_t q_rank = 0, kv_rank = 0;
  // Networks of images beside ViT. A sample is an image; `layers` counts blocks, `seq` is the
  // height and width.
  int64_t depth = 0;         // of a ResNet: the layers of its name
  std::string stages;        // of a Swin: blocks of each stage, "2-2-6-2"
  double parameters = 0;     // where no closed form follows from the sizes
  double forward_flops = 0;  // of an image of kImageSize
  // Remark on the differences where the form is only near to the model; of kUnbuilt: what it is.
  std::string remark;
};

inline constexpr int64_t kImageSize = 224;
// Sizes of the state space blocks of known hybrids: numbers of a head, groups of heads, numbers of
// the state.
inline constexpr int64_t kStateHeadDim = 64, kStateGroups = 8, kState = 128;
// Returns whether some of its blocks have experts.
bool has_experts(const Architecture& model);
// Returns whether a batch counts images, without a length of sequences (kSwin, kConvolution).
bool takes_images(const Architecture& model);

// Returns the parameters of a model of these sizes, all layers; 0 where sizes are unknown.
double parameter_count(const Architecture& model);
// Returns the parameters that one token passes (experts: top_k of them).
double active_parameter_count(const Architecture& model);

// Cuts the model to so many layers, with the same share of dense ones, rounded up.
void cut_to_layers(Architecture& model, int64_t layers);

// Finds the longest known name with which `name` begins, whatever case and punctuation; nothing if
// none is. The rest must begin a new word ("Llama3-70B-12L" and "Grok-1-proxy7L", which have 12 and
// 7 of the models' layers), and not one that makes it another model ("Phi-4-mini").
std::optional<Architecture> find_architecture(std::string_view name);

// Returns the form of a series whose member is not known ("Llama9-3B"). The series is a whole word
// of the name, or a number follows it: "Bloomberg" is no "Bloom".
std::optional<Form> form_of_series(std::string_view name);

// Returns the number of parameters that a name tells, as "13B", "760M", "8x7B" do; 0 if it tells
// none.
double parameters_in_name(std::string_view name);

// Returns the number that one token passes, as "30B-A3B" tells; 0 if the name does not.
double active_parameters_in_name(std::string_view name);

// Sets layers, hidden size and heads of a usual dense model with so many parameters (vocabulary not
// counted): hidden is about 100 times the layers up to 1e10 parameters and 128 times beyond, as in
// the published series.
void usual_shape(double parameters, Architecture& model);

}  // namespace tessera
