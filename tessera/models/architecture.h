// Public architectures, by name. Their sizes are published facts (from papers and configuration
// files), never measurements. The data file is tessera/models/data/architectures.toml.
//
//   const auto model = find_architecture("Llama3-70B-12L");  // 12 of its 80 layers
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// The builder (models/model.h) that makes a model, and the distinctions that prediction needs.
enum class Form : uint8_t {
  kGpt,      // norms, biases, ungated MLP
  kLlama,    // a model with RMS norms, rotary positions, gated MLP
  kMixture,  // like kLlama, but with experts
  kHybrid,   // blocks of state space, attention and experts in a pattern (nemotron_h)
  kBert,
  kT5,
  kVit,
  kSwin,  // attention in windows of an image; `hidden` and `heads` are those of the first stage
  kConvolution,  // ResNet
  kUnbuilt,      // no builder; listed so that the reason can say why a row is not predicted
};

struct Architecture {
  std::string name;   // name in the data file without hyphens, or else the name in the row
  std::string title;  // name in the data file, "llama-3-8b"; "" for other names
  Form form = Form::kGpt;
  int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, ffn = 0, vocab = 0, seq = 0;
  int64_t head_dim = 0;  // 0: hidden / heads
  bool tied = false;     // true: head and embedding share their table
  // For mixtures: `ffn` is the width of an expert.
  int64_t experts = 0, top_k = 0;
  // Width of the shared MLP, which every token passes in addition to its experts.
  int64_t shared_ffn = 0;
  int64_t latent = 0;  // width of a token's vector in the experts; 0: hidden
  // The first blocks, which have an MLP and no experts: their number and the MLP's width.
  int64_t dense_layers = 0, dense_ffn = 0;
  // For hybrids: a letter for each block (models/language/nemotron_h.h). `ffn` is the width of an expert,
  // and an expert has two matrices. `ssm_heads` is the number of heads of a state space block,
  // `mtp` the number of further tokens that are predicted (multi-token prediction).
  std::string pattern;
  int64_t ssm_heads = 0, mtp = 0;
  // For latent attention: the width of the narrow vector from which queries are made, and of the
  // one from which keys and values are made. 0: they are made directly from the hidden vector.
  int64_t q_rank = 0, kv_rank = 0;
  // For networks of images other than ViT: a sample is an image, `layers` is the number of blocks,
  // and `seq` is the height and the width of an image.
  int64_t depth = 0;         // of a ResNet: the number of layers in its name (ResNet-50)
  std::string stages;        // of a Swin: the blocks of each stage, "2-2-6-2"
  double parameters = 0;     // number of parameters if there is no formula for it; else 0
  double forward_flops = 0;  // FLOP of the forward pass of an image of kImageSize x kImageSize
  // How the model differs from its form, if it does. For kUnbuilt: what sort of model it is.
  std::string remark;
};

inline constexpr int64_t kImageSize = 224;
// Sizes of the state space blocks of all known hybrids: the width of a head, the number of groups
// of heads, the size of the state.
inline constexpr int64_t kStateHeadDim = 64, kStateGroups = 8, kState = 128;
// Returns whether some blocks of the model have experts.
bool has_experts(const Architecture& model);
// Returns whether a sample is an image and not a sequence of tokens (kSwin, kConvolution).
bool takes_images(const Architecture& model);

// Returns the number of parameters of a model of these sizes, with all layers; 0 if sizes are
// unknown.
double parameter_count(const Architecture& model);
// Returns the number of parameters that one token uses: of each block's experts only top_k count.
double active_parameter_count(const Architecture& model);

// Reduces the model to so many layers. The share of dense layers remains the same, rounded up to a
// whole layer.
void cut_to_layers(Architecture& model, int64_t layers);

// Finds the model with the longest known name with which `name` begins. Case, blanks and hyphens do
// not matter. The rest of `name` must begin a new word, and must not begin with a word that makes
// it another model's name ("Phi-4-mini"). A number of layers at the end reduces the model:
// "Llama3-70B-12L" and "Grok-1-proxy7L" have 12 and 7 layers. Words that publishers put before a
// name do not matter ("Meta-Llama-3-8B"). Returns nothing if no known name fits.
std::optional<Architecture> find_architecture(std::string_view name);

// Returns the names of all models that have a builder, as the data file writes them ("llama-3-8b").
std::vector<std::string> architecture_titles();

// Returns the known name that is most similar to `name`, as the data file writes it
// ("llama-3-8b").
std::string nearest_architecture(std::string_view name);

// Returns the form of the series with which a name begins, for names of unknown members
// ("Llama9-3B"). In the name the series must be a whole word or be followed by a number, so
// "Bloomberg" is not of the series "Bloom". Returns nothing if there is no such series.
std::optional<Form> form_of_series(std::string_view name);

// Returns the number of parameters that is part of a name, such as "13B", "760M" or "8x7B"; 0 if
// there is none.
double parameters_in_name(std::string_view name);

// Returns the number of parameters that one token uses, if it is part of the name ("30B-A3B" has
// 3e9); else 0.
double active_parameters_in_name(std::string_view name);

// Sets layers, hidden size and heads as a usual dense model with so many parameters (without the
// vocabulary's) has them. As in the published series, the hidden size is about 100 times the layers
// below 1e10 parameters, and 128 times from there on.
void usual_shape(double parameters, Architecture& model);

}  // namespace tessera
