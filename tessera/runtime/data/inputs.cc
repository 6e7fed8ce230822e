#include "tessera/runtime/data/inputs.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "tessera/base/check.h"
#include "tessera/base/philox.h"
#include "tessera/graph/kinds.h"
#include "tessera/runtime/kernels/nest.h"

namespace tessera {
namespace {

constexpr const char* kTargets = "targets";

// Returns the number of elements that belong to one sample of a tensor with a leading batch dim.
int64_t sample_size(const Tensor& tensor) {
  int64_t size = 1;
  for (size_t d = 1; d < tensor.dims.size(); ++d) size *= tensor.dims[d].size;
  return size;
}

InputRule rule_of(const Model& model, const Tensor& tensor) {
  for (const InputRule& rule : model.inputs) {
    if (rule.input == tensor.name) return rule;
  }
  // A drawn sequence has one token more than the tensor, so that targets, which are shifted by one,
  // exist for all positions.
  const bool sequences = tensor.dims.size() == 2;
  return {tensor.name, model.vocab, "tokens", sample_size(tensor) + (sequences ? 1 : 0),
          sequences && tensor.name == kTargets ? 1 : 0};
}

// Returns the token that fills the places after the end of a padded document. It is a token that
// ends documents, so each of these places counts as a document of its own; 0 if the model has no
// such token.
int64_t padding_of(const Model& model) {
  for (const InputRule& rule : model.inputs) {
    if (rule.boundary >= 0) return rule.boundary;
  }
  return 0;
}

// Decides which elements of a sample are masked. A sample consists of `masked` runs of elements,
// and one random element of each run is masked.
class Mask {
 public:
  Mask(const InputRule& rule, int64_t size, int64_t seed, int64_t step)
      : rule_(rule),
        size_(size),
        philox_{static_cast<uint64_t>(seed),
                stable_hash(kStream.data(), kStream.size(), static_cast<uint64_t>(step))} {}

  int64_t apply(int64_t sample, int64_t element, int64_t value) const {
    if (rule_.mask == InputRule::Mask::kNone) return value;
    if (rule_.mask == InputRule::Mask::kBag) {
      const auto draw = static_cast<int64_t>(philox_.bits(static_cast<uint64_t>(sample)));
      return element < draw % (size_ + 1) ? value : -1;
    }
    // Run k begins at element size * k / masked.
    const int64_t run = ((element + 1) * rule_.masked - 1) / size_;
    const int64_t begin = size_ * run / rule_.masked, end = size_ * (run + 1) / rule_.masked;
    const auto draw = philox_.bits(static_cast<uint64_t>(sample * rule_.masked + run));
    const bool masked = begin + static_cast<int64_t>(draw) % (end - begin) == element;
    if (rule_.mask == InputRule::Mask::kHide) return masked ? rule_.mask_token : value;
    return masked ? value : -1;
  }

 private:
  static constexpr std::string_view kStream = "mask";
  InputRule rule_;
  int64_t size_;
  Philox philox_;
};

// Finds to which document of a sample an element belongs; of() returns its number, from 0. If the
// caller asks for elements in order, each token is read only once.
template <class Value>
class Documents {
 public:
  Documents(const InputRule& rule, Value value) : rule_(rule), value_(std::move(value)) {}
  int64_t of(int64_t sample, int64_t element) {
    if (sample != sample_ || element < next_) {
      sample_ = sample;
      next_ = ended_ = 0;
    }
    for (; next_ < element; ++next_) ended_ += value_(sample, next_) == rule_.boundary ? 1 : 0;
    return ended_;
  }

 private:
  const InputRule& rule_;
  Value value_;
  int64_t sample_ = -1, next_ = 0, ended_ = 0;
};

}  // namespace

bool holds_bags(const Graph& graph, const Tensor& input) {
  const auto sums_rows_of = [&](const Op& op) {
    if (!looks_up_rows(op) || op.inputs[0] != input.id) return false;
    const auto& dims = op.annotation.inputs[0].dims;
    return std::any_of(dims.begin(), dims.end(), [&](const DimGroup& members) {
      return std::any_of(members.begin(), members.end(),
                         [&](int dim) { return op.annotation.reduces(dim, 0); });
    });
  };
  return std::any_of(graph.ops().begin(), graph.ops().end(), sums_rows_of);
}

bool is_target(std::string_view input) { return input.starts_with(kTargets); }

int64_t values_of_input(const Model& model, const Tensor& tensor) {
  return rule_of(model, tensor).values;
}

Status load_text(const Model& model, const TokenCorpus& data, int64_t seed, int64_t step,
                 const Tensor& tensor, const Box& region, const kernels::Array& to) {
  TESSERA_CHECK(tensor.dtype == DType::kInt64 && region.rank() == 2 && to.strides[1] == 1,
                "text cannot give input {}", tensor.name);
  const InputRule rule = rule_of(model, tensor);
  const Mask mask(rule, sample_size(tensor), seed, step);
  const int64_t padding = is_target(tensor.name) ? kNoToken : padding_of(model);
  auto* out = reinterpret_cast<int64_t*>(to.data);
  const Interval columns = region.dims[1];
  for (int64_t row = 0; row < region.dims[0].size; ++row) {
    int64_t* values = out + row * to.strides[0];
    const int64_t sample = region.dims[0].begin + row;
    if (rule.stream != "tokens") {
      std::fill_n(values, columns.size, 0);
      continue;
    }
    if (rule.boundary >= 0) {
      std::vector<int64_t> tokens(static_cast<size_t>(columns.end()));
      TESSERA_TRY_VOID(data.read(seed, step, sample, rule.shift, columns.end(), tokens.data()));
      std::replace(tokens.begin(), tokens.end(), kNoToken, padding);
      Documents documents(
          rule, [&](int64_t, int64_t element) { return tokens[static_cast<size_t>(element)]; });
      for (int64_t i = 0; i < columns.size; ++i) {
        values[i] = documents.of(sample, columns.begin + i);
      }
      continue;
    }
    TESSERA_TRY_VOID(
        data.read(seed, step, sample, columns.begin + rule.shift, columns.size, values));
    std::replace(values, values + columns.size, kNoToken, padding);
    for (int64_t i = 0; i < columns.size; ++i) {
      values[i] = mask.apply(sample, columns.begin + i, values[i]);
    }
  }
  return {};
}

void load_random(const Model& model, int64_t seed, int64_t step, const Tensor& tensor,
                 const Box& region, const kernels::Array& to) {
  const bool integers = !is_floating(tensor.dtype);
  const InputRule rule = rule_of(model, tensor);
  const std::string_view stream =
      integers ? std::string_view(rule.stream) : std::string_view(tensor.name);
  const Philox philox{static_cast<uint64_t>(seed),
                      stable_hash(stream.data(), stream.size(), static_cast<uint64_t>(step))};
  const int64_t size = sample_size(tensor);
  const Mask mask(rule, size, seed, step);
  const bool leaves_out = rule.mask_token >= 0;
  const auto number = [&](int64_t sample, int64_t element) {
    const int64_t at = sample * rule.row + element + rule.shift;
    const int64_t drawn = static_cast<int64_t>(philox.bits(static_cast<uint64_t>(at))) %
                          (rule.values - (leaves_out ? 1 : 0));
    return leaves_out && drawn >= rule.mask_token ? drawn + 1 : drawn;
  };
  Documents documents(rule, number);
  each_element(tensor, region, to, [&](int64_t offset, int64_t index) {
    std::byte* at = to.data + offset * dtype_bytes(to.dtype);
    if (!integers) {
      kernels::store_element(at, to.dtype, 2 * philox.uniform(static_cast<uint64_t>(index)) - 1);
      return;
    }
    const int64_t sample = index / size, element = index % size;
    *reinterpret_cast<int64_t*>(at) = rule.boundary >= 0
                                          ? documents.of(sample, element)
                                          : mask.apply(sample, element, number(sample, element));
  });
}

void load_scalar(double value, const kernels::Array& to) {
  kernels::store_element(to.data, to.dtype, value);
}

}  // namespace tessera
