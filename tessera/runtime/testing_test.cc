#include "tessera/runtime/testing.h"

#include <cmath>
#include <cstring>

#include "tessera/base/half.h"
#include "tessera/base/philox.h"
#include "tessera/program/program.h"
#include "tessera/runtime/formulas/formula.h"
#include "tessera/runtime/initialise.h"

namespace tessera::testing {
namespace {

void store(std::byte* at, DType dtype, double value) {
  switch (dtype) {
    case DType::kFloat64: std::memcpy(at, &value, 8); return;
    case DType::kFloat32: {
      const auto v = static_cast<float>(value);
      std::memcpy(at, &v, 4);
      return;
    }
    case DType::kBFloat16: {
      const auto v = static_cast<float>(value);
      uint32_t bits;
      std::memcpy(&bits, &v, 4);
      const auto rounded = static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
      std::memcpy(at, &rounded, 2);
      return;
    }
    case DType::kFloat16: {
      const uint16_t bits = half::to_float16(static_cast<float>(value));
      std::memcpy(at, &bits, 2);
      return;
    }
    default: {
      const auto v = static_cast<int64_t>(value);
      std::memcpy(at, &v, 8);
    }
  }
}

double load(const std::byte* at, DType dtype) {
  if (dtype == DType::kFloat64) {
    double v;
    std::memcpy(&v, at, 8);
    return v;
  }
  if (dtype == DType::kFloat32) {
    float v;
    std::memcpy(&v, at, 4);
    return static_cast<double>(v);
  }
  if (dtype == DType::kBFloat16) {
    uint16_t half;
    std::memcpy(&half, at, 2);
    const uint32_t bits = static_cast<uint32_t>(half) << 16;
    float v;
    std::memcpy(&v, &bits, 4);
    return static_cast<double>(v);
  }
  if (dtype == DType::kFloat16) {
    uint16_t bits;
    std::memcpy(&bits, at, 2);
    return static_cast<double>(half::from_float16(bits));
  }
  int64_t v;
  std::memcpy(&v, at, 8);
  return static_cast<double>(v);
}

}  // namespace

Workspace::Workspace(const Graph& graph, uint64_t seed) : graph_(graph) {
  context_.seed = seed;
  context_.step = 1;
  for (const Tensor& tensor : graph.tensors()) {
    // An update op writes its parameter or state in place.
    if (tensor.update_of.valid()) continue;
    memory_[tensor.id.value].resize(static_cast<size_t>(tensor.bytes()) + 64);
  }
}

kernels::Array Workspace::view(TensorId id, const Box& region) {
  const Tensor& tensor = graph_.tensor(id);
  std::byte* data = memory_.at(tensor.update_of.valid() ? tensor.update_of.value : id.value).data();
  kernels::Array whole = kernels::Array::contiguous(data, tensor.dtype, tensor.shape());
  for (size_t d = 0; d < region.rank(); ++d) {
    whole.data += region.dims[d].begin * whole.strides[d] * dtype_bytes(tensor.dtype);
    whole.shape[d] = region.dims[d].size;
  }
  return whole;
}

void Workspace::initialise() {
  for (const Tensor& tensor : graph_.tensors()) {
    if (tensor.producer.valid() || tensor.init.kind == Init::Kind::kNone) continue;
    const Box whole = Box::whole(tensor.shape());
    tessera::initialise(tensor, whole, context_.seed, view(tensor.id, whole));
  }
}

void Workspace::randomise(TensorId id, double low, double high) {
  const Tensor& tensor = graph_.tensor(id);
  const Philox philox{7, stable_hash(tensor.name.data(), tensor.name.size())};
  std::vector<double> values(static_cast<size_t>(tensor.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = low + (high - low) * philox.uniform(i);
  set(id, values);
}

void Workspace::set(TensorId id, const std::vector<double>& values) {
  const Tensor& tensor = graph_.tensor(id);
  std::byte* data = memory_.at(id.value).data();
  for (size_t i = 0; i < values.size(); ++i) {
    store(data + i * static_cast<size_t>(dtype_bytes(tensor.dtype)), tensor.dtype, values[i]);
  }
}

std::vector<double> Workspace::get(TensorId id) const {
  const Tensor& tensor = graph_.tensor(id);
  const std::byte* data =
      memory_.at(tensor.update_of.valid() ? tensor.update_of.value : id.value).data();
  std::vector<double> values(static_cast<size_t>(tensor.elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = load(data + i * static_cast<size_t>(dtype_bytes(tensor.dtype)), tensor.dtype);
  }
  return values;
}

void Workspace::run() {
  for (const Op& op : graph_.ops()) run(op);
}

namespace {
Box whole_box(const Op& op) {
  Box box;
  for (const OpDim& dim : op.annotation.dims) box.dims.push_back({0, dim.size});
  return box;
}
}  // namespace

void Workspace::run(const Op& op) {
  run_box(op, whole_box(op), std::vector<bool>(op.outputs.size(), false));
}

void Workspace::run_in_pieces(const Op& op, int dim, int64_t pieces) {
  for (int64_t piece = 0; piece < pieces; ++piece) {
    Box box = whole_box(op);
    Interval& interval = box.dims[static_cast<size_t>(dim)];
    interval = split_interval(interval, pieces, piece);
    std::vector<bool> add;
    for (size_t i = 0; i < op.outputs.size(); ++i)
      add.push_back(piece > 0 && op.annotation.reduces(dim, i));
    run_box(op, box, add);
  }
}

void Workspace::run_box(const Op& op, const Box& box, const std::vector<bool>& add) {
  kernels::KernelCall call{&op, box, {}, {}, add, &context_};
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    call.inputs.push_back(view(op.inputs[i], project(op.annotation, op.annotation.inputs[i], box)));
  }
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    call.outputs.push_back(
        view(op.outputs[i], project(op.annotation, op.annotation.outputs[i], box)));
  }
  if (device_ != nullptr) return run_on_device(op, std::move(call));
  run_call(call);
}

void Workspace::run_call(const kernels::KernelCall& call) {
  const kernels::ThreadScope scope(1);
  const kernels::Kernel kernel = kernels::prepare_chosen(call);
  if (kernel) kernel();
}

std::vector<std::byte>& Workspace::memory_of(TensorId id) {
  const Tensor& tensor = graph_.tensor(id);
  return memory_.at(tensor.update_of.valid() ? tensor.update_of.value : id.value);
}

void Workspace::run_on_device(const Op& op, kernels::KernelCall call) {
  const kernels::ThreadScope scope(1);
  const auto stream = device_->stream({});
  std::map<std::vector<std::byte>*, std::unique_ptr<device::Memory>> copies;  // of whole tensors
  const auto place = [&](TensorId id, kernels::Array& array) {
    if (array.data == nullptr) return;
    std::vector<std::byte>& host = memory_of(id);
    auto& copy = copies[&host];
    const auto bytes = static_cast<int64_t>(host.size());
    if (copy == nullptr) {
      copy = device_->allocate(bytes).value();
      device_->upload(*stream, *copy, 0, host.data(), bytes);
    }
    array.data = copy->data() + (array.data - host.data());
    array.place = device_->place();
  };
  for (size_t i = 0; i < op.inputs.size(); ++i) place(op.inputs[i], call.inputs[i]);
  for (size_t i = 0; i < op.outputs.size(); ++i) place(op.outputs[i], call.outputs[i]);
  stream->launch([&] { run_call(call); });
  stream->finish();
  for (const auto& [host, copy] : copies)
    device_->download(*stream, *copy, 0, host->data(), copy->bytes());
}

double relative_error(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, largest = 1e-30;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    if (std::isinf(a[i]) && a[i] == b[i]) continue;
    difference = std::max(difference, std::isnan(a[i] - b[i]) ? 1e30 : std::abs(a[i] - b[i]));
    largest = std::max(largest, std::abs(b[i]));
  }
  return a.size() == b.size() ? difference / largest : 1e30;
}

}  // namespace tessera::testing
