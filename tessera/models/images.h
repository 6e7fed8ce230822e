// Layers of networks over images and volumes, beside those of nn.h: convolutions with every option,
// norms of groups of channels, means at scattered places, and the inputs of classifiers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/models/config.h"
#include "tessera/models/nn.h"

namespace tessera {

// Images and targets of a classifier. Batch norm takes statistics over `ghost` images together:
// then images are [batch, sample, channels, height, width], where `batch` counts groups of `ghost`
// images. Without batch norm (ghost = 0) there is no dim `sample`.
struct ImageInputs {
  TensorId images, targets;
};
Result<ImageInputs> image_inputs(GraphBuilder& g, std::string_view family, int64_t batch,
                                 int64_t ghost, int64_t channels, int64_t image, DType dtype);
// Returns a key of classifiers that come in a form for ImageNet and one for CIFAR: a key that is
// left open is set by the form.
ModelKey form_key(std::string& form, std::string meaning);
ModelKey form_image_key(int64_t& image, std::string meaning);
ModelKey form_classes_key(int64_t& classes);
ModelKey dense_key(std::vector<int64_t>& dense);
// Sets image and classes, where they are 0, by the form: 224 and 1000; for CIFAR 32 and 10.
void complete_form(const std::string& form, int64_t& image, int64_t& classes);
// Sets the widths of the dense layers before the last, if empty, and checks them. {0}: no layers.
Status complete_dense(std::string_view family, const std::string& form,
                      std::vector<int64_t>& dense);
// Adds the dense layers head.dense_1, .. behind a map, the last of which has a dropout of its own,
// head.out, and the mean cross entropy of the targets.
void dense_classifier(GraphBuilder& g, TensorId x, std::vector<std::string> from,
                      const std::vector<int64_t>& widths, double dropout_p, double last_dropout_p,
                      int64_t classes, TensorId targets);

// The dims of such images over which a batch norm takes statistics.
inline constexpr std::string_view kNormedImages = "sample height width";

// A square convolution of maps [.., channels, height, width]: op `<name>`, or with a bias
// `<name>.conv` and `<name>`; parameters `<name>.weight` [out, in, kernel_height, kernel_width],
// normal with variance 2 / (kernel^2 out / groups), and `<name>.bias` [out], zeros. It is
// depth-wise if groups equals the channels of both sides.
struct ConvolutionOptions {
  int64_t kernel = 3, stride = 1;
  int64_t padding = -1;  // -1: kernel / 2
  int64_t groups = 1;
  bool bias = false;
};
// Adds a convolution. `in` names the channels of x in the weight; its size is that of all channels.
TensorId image_convolution(GraphBuilder& g, const std::string& name, TensorId x, const Dim& in,
                           const Dim& out, const ConvolutionOptions& options);
// Adds `<name>.bias` to y along its channels, by an op `<name>_bias`: beside the op `<name>` that
// makes y, not above it, so that a pattern of a plan can select each op alone.
TensorId with_bias(GraphBuilder& g, const std::string& name, TensorId y, const Dim& channels);
// Takes the largest elements of square windows of height and width, op `<name>`.
TensorId image_max_pool(GraphBuilder& g, const std::string& name, TensorId x, int64_t kernel,
                        int64_t stride);
// Adds a dense layer, its rectifier and its dropout with probability p: ops `<name>`, `<name>.act`,
// `<name>.dropout`.
TensorId dense_layer(GraphBuilder& g, const std::string& name, TensorId x,
                     const std::vector<std::string>& in, const Dim& out, double dropout_p);

// Makes the mean of the elements of x at each place along `dim` that ids name, 0 where none does:
// ops `<name>.sum`, `.ones`, `.count`, `.least` and `<name>`. `dims` are the dims of the result
// with sizes, as for the op scatter_add.
TensorId scatter_mean(GraphBuilder& g, const std::string& name, TensorId x, TensorId ids,
                      const std::string& dim, const std::string& dims);

// Vector quantisation (van den Oord et al., 2017) of z [.., width] by codes [codes, width]: the
// nearest code of each point, and among equally near codes the first. Ops
// `<name>.{score,place,ids}`, `<name>.code` and, for the straight-through estimate,
// `<name>.difference`, `.constant` and `<name>`.
struct Quantised {
  TensorId ids;       // int64 [..]
  TensorId codes;     // the codes; their gradient goes only to the codebook
  TensorId straight;  // equal to codes up to rounding; its gradient goes only to z
};
Quantised vector_quantised(GraphBuilder& g, const std::string& name, TensorId z, TensorId codebook);

}  // namespace tessera
