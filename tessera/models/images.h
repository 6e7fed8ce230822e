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

// Images and targets of a classifier. Batch norm takes the statistics of `ghost` images together:
// then images are [batch, sample, channels, height, width], where `batch` counts groups of so many.
// Without batch norm (ghost = 0) there is no dim `sample`.
struct ImageInputs {
  TensorId images, targets;
};
Result<ImageInputs> image_inputs(GraphBuilder& g, std::string_view family, int64_t batch,
                                 int64_t ghost, int64_t channels, int64_t image, DType dtype);
// Keys of classifiers that come in a form for ImageNet and one for CIFAR: what is left open is as of
// the form.
ModelKey form_key(std::string& form, std::string meaning);
ModelKey form_image_key(int64_t& image, std::string meaning);
ModelKey form_classes_key(int64_t& classes);
ModelKey dense_key(std::vector<int64_t>& dense);
// Fills in image and classes (0) of the form: 224 and 1000, of CIFAR 32 and 10.
void complete_form(const std::string& form, int64_t& image, int64_t& classes);
// Fills in the widths of the dense layers before the last ({}), and checks them: {0}: none.
Status complete_dense(std::string_view family, const std::string& form,
                      std::vector<int64_t>& dense);
// The dense layers head.dense_1, .. behind a map, of which the last one has a dropout of its own,
// head.out, and the mean cross entropy of the targets.
void dense_classifier(GraphBuilder& g, TensorId x, std::vector<std::string> from,
                      const std::vector<int64_t>& widths, double dropout_p, double last_dropout_p,
                      int64_t classes, TensorId targets);

// The dims of such images that a batch norm takes statistics over.
inline constexpr std::string_view kNormedImages = "sample height width";

// A square convolution of maps [.., channels, height, width]: op `<name>`, with a bias `<name>.conv`
// and `<name>`; parameters `<name>.weight` [out, in, kernel_height, kernel_width], normal with
// variance 2 / (kernel^2 out / groups), and `<name>.bias` [out], zeros. Depth-wise where groups are
// the channels of both sides.
struct ConvolutionOptions {
  int64_t kernel = 3, stride = 1;
  int64_t padding = -1;  // -1: kernel / 2
  int64_t groups = 1;
  bool bias = false;
};
// `in` names the channels of x in the weight; its size is that of all of them.
TensorId image_convolution(GraphBuilder& g, const std::string& name, TensorId x, const Dim& in,
                           const Dim& out, const ConvolutionOptions& options);
// y with `<name>.bias` added along its channels, by an op `<name>_bias`: beside the op `<name>` that
// makes y, not above it, so that a pattern of a plan can select each of them alone.
TensorId with_bias(GraphBuilder& g, const std::string& name, TensorId y, const Dim& channels);
// Largest elements of square windows of height and width, op `<name>`.
TensorId image_max_pool(GraphBuilder& g, const std::string& name, TensorId x, int64_t kernel,
                        int64_t stride);
// A dense layer, its rectifier and, of probability p, its dropout: ops `<name>`, `<name>.act`,
// `<name>.dropout`.
TensorId dense_layer(GraphBuilder& g, const std::string& name, TensorId x,
                     const std::vector<std::string>& in, const Dim& out, double dropout_p);

// The mean of the elements of x at each place along `dim` that ids name, 0 where none does: ops
// `<name>.sum`, `.ones`, `.count`, `.least` and `<name>`. `dims` are those of the result with sizes, as
// of the op scatter_add.
TensorId scatter_mean(GraphBuilder& g, const std::string& name, TensorId x, TensorId ids,
                      const std::string& dim, const std::string& dims);

// Vector quantisation (van den Oord et al., 2017) of z [.., width] by codes [codes, width]: the nearest
// code of each point, of equally near ones the first. Ops `<name>.{score,place,ids}`, `<name>.code`
// and, for the straight-through estimate, `<name>.difference`, `.constant` and `<name>`.
struct Quantised {
  TensorId ids;       // int64 [..]
  TensorId codes;     // the codes themselves; their gradient goes to the codebook alone
  TensorId straight;  // equal to codes, but for rounding; its gradient goes to z alone
};
Quantised vector_quantised(GraphBuilder& g, const std::string& name, TensorId z, TensorId codebook);

}  // namespace tessera
