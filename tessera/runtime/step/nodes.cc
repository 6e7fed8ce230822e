#include "tessera/runtime/step/nodes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <utility>
#include <vector>

#include "tessera/base/text.h"
#include "tessera/data/match_files.h"
#include "tessera/runtime/data/inputs.h"
#include "tessera/runtime/kernels/nest.h"
#include "tessera/sparse/graphs/node_inputs.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
constexpr const char* kLabels = "_labels.tsv";

class NodeSource : public DataSource {
 public:
  NodeSource(std::string prefix, const DataWants& wants)
      : prefix_(std::move(prefix)), wants_(wants) {}

  Status read(const std::string& part) {
    const fs::path path(prefix_);
    auto read = sparse::read_node_data(
        path.parent_path().empty() ? "." : path.parent_path().string(), path.filename().string());
    if (!read) return invalid_input("data: " + read.error().message);
    const sparse::NodeData& data = *read;
    for (const char* file : {"_labels.tsv", "_edges.tsv", "_features.tsv", "_split.tsv"}) {
      std::error_code ignored;
      bytes_ += static_cast<int64_t>(fs::file_size(prefix_ + file, ignored));
    }
    const std::vector<int32_t>& known = part == "train" ? data.train
                                        : part == "val" ? data.validation
                                                        : data.test;
    if (known.empty()) {
      return error(fmt::format("expected nodes of the part '{}', found none", part));
    }
    classes_ = data.classes;
    features_ = data.features.column_count;
    std::vector<int64_t> targets(static_cast<size_t>(data.nodes()), -1);
    for (const int32_t node : known)
      targets[static_cast<size_t>(node)] = data.labels[static_cast<size_t>(node)];
    const bool weighted = wants_.model->graph.find_tensor("edges.values").valid();
    sparse::NodeInputs inputs = sparse::node_inputs(data, weighted);
    integers_ = std::move(inputs.integers);
    numbers_ = std::move(inputs.numbers);
    integers_["targets"] = std::move(targets);
    return fits();
  }

  Status load(int64_t, const Tensor& tensor, const Box& region,
              const kernels::Array& to) const override {
    if (is_floating(tensor.dtype)) {
      const std::vector<float>& values = numbers_.at(tensor.name);
      each_element(tensor, region, to, [&](int64_t offset, int64_t index) {
        kernels::store_element(to.data + offset * dtype_bytes(to.dtype), to.dtype,
                               static_cast<double>(values[static_cast<size_t>(index)]));
      });
      return {};
    }
    const std::vector<int64_t>& values = integers_.at(tensor.name);
    each_element(tensor, region, to, [&](int64_t offset, int64_t index) {
      std::memcpy(to.data + offset * dtype_bytes(to.dtype), &values[static_cast<size_t>(index)],
                  sizeof(int64_t));
    });
    return {};
  }
  int64_t files() const override { return 4; }
  int64_t bytes() const override { return bytes_; }

 private:
  tl::unexpected<Error> error(const std::string& message) const {
    return invalid_input(fmt::format("data: '{}': {}", prefix_, message));
  }

  // Checks that the model has inputs with the names and sizes of the data, and as many features and
  // classes as the data.
  Status fits() const {
    const Graph& graph = wants_.model->graph;
    std::vector<std::string> names;
    for (const auto& [name, values] : integers_) names.push_back(name);
    for (const auto& [name, values] : numbers_) names.push_back(name);
    for (const Tensor& tensor : graph.tensors()) {
      if (tensor.role != Role::kInput) continue;
      const auto whole = integers_.find(tensor.name);
      const auto real = numbers_.find(tensor.name);
      const bool floating = is_floating(tensor.dtype);
      if (floating ? real == numbers_.end() : whole == integers_.end()) {
        return error(
            fmt::format("expected a network of nodes with the inputs {} ('tessera data graph' "
                        "writes one), found the input '{}' of {}",
                        join(names, ", "), tensor.name, dtype_name(tensor.dtype)));
      }
      const size_t size = floating ? real->second.size() : whole->second.size();
      if (tensor.shape() != std::vector<int64_t>{static_cast<int64_t>(size)}) {
        return error(fmt::format("expected the model's input '{}' to be [{}], found [{}]",
                                 tensor.name, size, fmt::join(tensor.shape(), ", ")));
      }
    }
    for (const std::string& name : names) {
      if (graph.find_tensor(name).valid()) continue;
      return error(fmt::format("expected a model with the input '{}', found none", name));
    }
    return dims_fit();
  }

  Status dims_fit() const {
    for (const auto& [dim, size] : {std::pair{"features", features_}, {"classes", classes_}}) {
      for (const Tensor& tensor : wants_.model->graph.tensors()) {
        for (const Dim& found : tensor.dims) {
          if (found.name != dim || found.size == size) continue;
          return error(fmt::format("expected {} {} in the model, found {} ('{}')", size, dim,
                                   found.size, tensor.name));
        }
      }
    }
    return {};
  }

  std::string prefix_;
  DataWants wants_;
  std::map<std::string, std::vector<int64_t>> integers_;
  std::map<std::string, std::vector<float>> numbers_;
  int64_t features_ = 0, classes_ = 0, bytes_ = 0;
};

}  // namespace

Result<std::unique_ptr<DataSource>> open_nodes(const std::string& prefix, const std::string& part,
                                               const DataWants& wants) {
  std::string found = found_file(prefix + kLabels, wants.beside);
  found.resize(found.size() - std::strlen(kLabels));
  auto source = std::make_unique<NodeSource>(found, wants);
  TESSERA_TRY_VOID(source->read(part));
  return std::unique_ptr<DataSource>(std::move(source));
}

}  // namespace tessera
