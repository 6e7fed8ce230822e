// Layers of networks over images and volumes, in addition to those of nn.h: convolutions with every
// option, norms of groups of channels, means by index, and the inputs of classifiers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/models/config.h"
#include "tessera/models/nn.h"

namespace tessera {

// Adds the inputs of a classifier: images and targets. If `ghost` is above 0, batch norm takes
// statistics over `ghost` images together, and images are [batch, sample, channels, height,
// width], where `batch` counts groups of `ghost` images. Without batch norm (ghost = 0) there is
// no dim `sample`.
struct ImageInputs {
  TensorId images, targets;
};
Result<ImageInputs> image_inputs(GraphBuilder& g, std::string_view family, int64_t batch,
                                 int64_t ghost, int64_t channels, int64_t image, DType dtype);
// Returns a key of classifiers that have a form for ImageNet and one for CIFAR. If a spec does not
// give the key, the form sets its value.
ModelKey form_key(std::string& form, std::string meaning);
ModelKey form_image_key(int64_t& image, std::string meaning);
ModelKey form_classes_key(int64_t& classes);
ModelKey dense_key(std::vector<int64_t>& dense);
// Sets `image` and `classes`, where they are 0, by the form: 224 and 1000 for ImageNet, 32 and 10
// for CIFAR.
void complete_form(const std::string& form, int64_t& image, int64_t& classes);
// Sets the widths of the dense layers before the last layer, if `dense` is empty, and checks them.
// {0} means that there are no such layers.
Status complete_dense(std::string_view family, const std::string& form,
                      std::vector<int64_t>& dense);
// Adds the end of a classifier after a map x: the dense layers head.dense_1, .. (the last of which
// has a dropout probability of its own), head.out, and the mean cross entropy of the targets.
// `from` are the dims of x that the first layer contracts.
void dense_classifier(GraphBuilder& g, TensorId x, std::vector<std::string> from,
                      const std::vector<int64_t>& widths, double dropout_p, double last_dropout_p,
                      int64_t classes, TensorId targets);

// The dims of the images of image_inputs over which a batch norm takes statistics.
inline constexpr std::string_view kNormedImages = "sample height width";

// Options of a square convolution of maps [.., channels, height, width]. Its op is `<name>`, or
// with a bias the ops `<name>.conv` and `<name>`. Its parameters are `<name>.weight` [out, in,
// kernel_height, kernel_width], normal with variance 2 / (kernel^2 out / groups), and `<name>.bias`
// [out], zeros. It is depth-wise if `groups` equals both numbers of channels.
struct ConvolutionOptions {
  int64_t kernel = 3, stride = 1;
  int64_t padding = -1;  // -1: kernel / 2
  int64_t groups = 1;
  bool bias = false;
};
// Adds a convolution. `in` is the name of the weight's dim for the channels of x, and the number of
// all channels of x.
TensorId image_convolution(GraphBuilder& g, const std::string& name, TensorId x, const Dim& in,
                           const Dim& out, const ConvolutionOptions& options);
// Adds the parameter `<name>.bias` to y along its channels, by an op `<name>_bias`. The op's path
// does not begin with `<name>.`, so that a pattern of a plan can select this op or the op `<name>`,
// which makes y, alone.
TensorId with_bias(GraphBuilder& g, const std::string& name, TensorId y, const Dim& channels);
// Takes the maximum over square windows of height and width, by an op `<name>`.
TensorId image_max_pool(GraphBuilder& g, const std::string& name, TensorId x, int64_t kernel,
                        int64_t stride);
// Adds a linear layer, its rectifier and its dropout with probability `dropout_p`: ops `<name>`,
// `<name>.act`, `<name>.dropout`.
TensorId dense_layer(GraphBuilder& g, const std::string& name, TensorId x,
                     const std::vector<std::string>& in, const Dim& out, double dropout_p);

// Makes, for each index of the result's dim `dim`, the mean of the elements of x whose id is that
// index, or 0 if there are none: ops `<name>.sum`, `.ones`, `.count`, `.least` and `<name>`. `dims`
// are the dims of the result with sizes, as for the op scatter_add.
TensorId scatter_mean(GraphBuilder& g, const std::string& name, TensorId x, TensorId ids,
                      const std::string& dim, const std::string& dims);

// Makes a vector quantisation (van den Oord et al., 2017) of z [.., width] by the rows of
// `codebook` [codes, width]. Each point takes its nearest code, and among equally near codes the
// first. The ops are `<name>.{score,place,ids}`, `<name>.code` and, for the straight-through
// estimate, `<name>.difference`, `.constant` and `<name>`.
struct Quantised {
  TensorId ids;       // int64 [..]
  TensorId codes;     // the chosen codes; their gradient goes only to the codebook
  TensorId straight;  // equal to codes up to rounding; its gradient goes only to z
};
Quantised vector_quantised(GraphBuilder& g, const std::string& name, TensorId z, TensorId codebook);

}  // namespace tessera
