#include "arrays.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "raise.h"
#include "tessera/base/dtype.h"
#include "tessera/base/result.h"
#include "tessera/models/model.h"
#include "tessera/state/safetensors.h"

namespace nb = nanobind;

namespace tessera {
namespace {

using Shape = std::vector<int64_t>;

struct DTypeRow {
  DType dtype;
  nb::dlpack::dtype of_dlpack;
  const char* of_numpy;  // "": NumPy has none
};
constexpr auto code(nb::dlpack::dtype_code of) { return static_cast<uint8_t>(of); }
constexpr std::array<DTypeRow, 8> kDTypes{{
    {DType::kFloat64, {code(nb::dlpack::dtype_code::Float), 64, 1}, "<f8"},
    {DType::kFloat32, {code(nb::dlpack::dtype_code::Float), 32, 1}, "<f4"},
    {DType::kFloat16, {code(nb::dlpack::dtype_code::Float), 16, 1}, "<f2"},
    {DType::kBFloat16, {code(nb::dlpack::dtype_code::Bfloat), 16, 1}, ""},
    {DType::kInt64, {code(nb::dlpack::dtype_code::Int), 64, 1}, "<i8"},
    {DType::kInt32, {code(nb::dlpack::dtype_code::Int), 32, 1}, "<i4"},
    {DType::kUInt8, {code(nb::dlpack::dtype_code::UInt), 8, 1}, "|u1"},
    {DType::kBool, {code(nb::dlpack::dtype_code::Bool), 8, 1}, "|b1"},
}};

Error file_error(const std::string& what, const std::string& path) {
  return {ErrorCode::kFault, fmt::format("cannot {} '{}': {}", what, path, std::strerror(errno))};
}

// A tensor of another library. It keeps the tensor's memory alive and reads it where it lies.
class View {
 public:
  explicit View(const nb::object& tensor) {
    if (!nb::try_cast(tensor, array_, false)) {
      raise({ErrorCode::kInvalidInput, fmt::format("expected a tensor with __dlpack__, found {}",
                                                   nb::type_name(tensor.type()).c_str())});
    }
    if (array_.device_type() != nb::device::cpu::value) {
      raise(
          {ErrorCode::kInvalidInput,
           "expected a tensor in the memory of the host, found one on a device; .cpu() copies it"});
    }
    const auto same = [&](const DTypeRow& row) { return row.of_dlpack == array_.dtype(); };
    row_ = std::ranges::find_if(kDTypes, same);
    if (row_ == kDTypes.end()) {
      const nb::dlpack::dtype found = array_.dtype();
      raise(
          {ErrorCode::kInvalidInput,
           fmt::format("expected elements of a dtype that models have, found DLPack's code {} with "
                       "{} bits",
                       found.code, found.bits)});
    }
  }

  DType dtype() const { return row_->dtype; }
  const char* numpy_dtype() const { return row_->of_numpy; }
  std::string dtype_text() const { return std::string(dtype_name(dtype())); }
  Shape shape() const {
    Shape out;
    for (size_t i = 0; i < array_.ndim(); ++i) out.push_back(static_cast<int64_t>(array_.shape(i)));
    return out;
  }

  // Writes the elements in row-major order. Runs of elements that lie one after the other are
  // written at once, so that a contiguous tensor is one write.
  bool write(std::FILE* file) const {
    if (array_.size() == 0) return true;
    int64_t run = 1;  // elements that lie one after the other
    size_t outer = array_.ndim();
    while (outer > 0 && (array_.shape(outer - 1) == 1 || array_.stride(outer - 1) == run))
      run *= static_cast<int64_t>(array_.shape(--outer));
    const auto width = static_cast<int64_t>(array_.itemsize());
    const auto* const begin = static_cast<const std::byte*>(array_.data());
    Shape at(outer, 0);
    for (;;) {
      int64_t offset = 0;
      for (size_t i = 0; i < outer; ++i) offset += at[i] * array_.stride(i);
      const auto elements = static_cast<size_t>(run);
      if (std::fwrite(begin + offset * width, array_.itemsize(), elements, file) != elements)
        return false;
      size_t i = outer;
      while (i > 0 && ++at[i - 1] == static_cast<int64_t>(array_.shape(i - 1))) at[--i] = 0;
      if (i == 0) return true;
    }
  }

 private:
  nb::ndarray<nb::ro> array_;
  std::array<DTypeRow, 8>::const_iterator row_ = kDTypes.end();
};

// Writes a file: a head, then the elements of tensors. A file that cannot be written is removed.
void write_file(const std::string& path, const std::string& head,
                const std::vector<const View*>& views) {
  std::FILE* const file = std::fopen(path.c_str(), "wbe");
  if (file == nullptr) raise(file_error("write", path));
  bool is_written = std::fwrite(head.data(), 1, head.size(), file) == head.size();
  for (size_t i = 0; i < views.size() && is_written; ++i) is_written = views[i]->write(file);
  const int why = errno;
  if (std::fclose(file) == 0 && is_written) return;
  if (!is_written) errno = why;
  const Error error = file_error("write", path);
  (void)std::remove(path.c_str());
  raise(error);
}

// Writes tensors as a safetensors file, each by a name and with a shape of as many elements.
void write_arrays(const std::string& path,
                  const std::vector<std::tuple<std::string, Shape, const View*>>& arrays) {
  std::vector<ArrayEntry> entries;
  std::vector<const View*> views;
  for (const auto& [name, shape, view] : arrays) {
    entries.push_back({.name = name, .dtype = view->dtype(), .shape = shape});
    views.push_back(view);
  }
  write_file(path, layout_safetensors(std::move(entries), {{"format", "pt"}}).head, views);
}

// Writes a tensor as a file of NumPy (format 1.0).
void write_npy(const std::string& path, const View& view) {
  if (*view.numpy_dtype() == '\0')
    raise({ErrorCode::kInvalidInput, "expected a dtype that NumPy has, found bfloat16"});
  const Shape shape = view.shape();
  std::string head =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}",
                  view.numpy_dtype(), fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  constexpr size_t kBefore = 10, kAlignment = 64;  // the magic text with version and length
  head.append(kAlignment - (kBefore + head.size() + 1) % kAlignment, ' ');
  head += '\n';
  const std::string before{'\x93',
                           'N',
                           'U',
                           'M',
                           'P',
                           'Y',
                           1,
                           0,
                           static_cast<char>(head.size() & 0xFF),
                           static_cast<char>(head.size() >> 8)};
  write_file(path, before + head, {&view});
}

// A file in memory. Whoever writes to it changes his copy of a page, and not the file.
class Mapping {
 public:
  explicit Mapping(const std::string& path) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) raise(file_error("read", path));
    size_ = static_cast<size_t>(::lseek(file, 0, SEEK_END));
    memory_ = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    ::close(file);
    if (memory_ == MAP_FAILED) raise(file_error("map", path));
  }
  ~Mapping() {
    if (memory_ != MAP_FAILED) ::munmap(memory_, size_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* at(int64_t offset) const { return static_cast<std::byte*>(memory_) + offset; }

 private:
  void* memory_ = MAP_FAILED;
  size_t size_ = 0;
};

// Maps a safetensors file and returns arrays in it: (the key of the answer, the name in the file,
// the shape of the answer, which has as many elements).
nb::dict map_arrays(const std::string& path,
                    const std::vector<std::tuple<std::string, std::string, Shape>>& wanted) {
  const auto file = SafetensorsFile::open(path);
  if (!file) raise(file.error());
  auto mapping = std::make_unique<Mapping>(path);
  const Mapping& mapped = *mapping;
  const nb::capsule owner(mapping.release(),
                          [](void* of) noexcept { delete static_cast<Mapping*>(of); });
  nb::dict out;
  for (const auto& [key, name, shape] : wanted) {
    const ArrayEntry* const entry = file->find(name);
    int64_t elements = 1;
    for (const int64_t size : shape) elements *= size;
    if (entry == nullptr || entry->bytes != elements * dtype_bytes(entry->dtype)) {
      raise({ErrorCode::kFault, fmt::format("{}: expected '{}' with {} elements, found {}", path,
                                            name, elements, entry == nullptr ? "none" : "others")});
    }
    const auto row = std::ranges::find(kDTypes, entry->dtype, &DTypeRow::dtype);
    const std::vector<size_t> sizes(shape.begin(), shape.end());
    out[key.c_str()] = nb::cast(nb::ndarray<nb::array_api>(mapped.at(entry->begin), sizes.size(),
                                                           sizes.data(), owner, nullptr,
                                                           row->of_dlpack, nb::device::cpu::value));
  }
  return out;
}

// Returns the parameters of a model, in the order of its graph: names and shapes.
std::vector<std::pair<std::string, Shape>> parameters_of(const std::string& model) {
  constexpr int64_t kAnyBatch = 8;  // parameters do not depend on it
  const auto built = build_model_of(model, 0, kAnyBatch);
  if (!built) raise(built.error());
  std::vector<std::pair<std::string, Shape>> out;
  for (const Tensor& tensor : built->graph.tensors())
    if (tensor.role == Role::kParameter) out.emplace_back(tensor.name, tensor.shape());
  return out;
}

}  // namespace

void add_arrays(nb::module_& module) {
  nb::class_<View>(module, "View")
      .def(nb::init<const nb::object&>(), nb::arg("tensor"))
      .def_prop_ro("dtype", &View::dtype_text)
      .def_prop_ro("shape", &View::shape);
  module.def("write_arrays", &write_arrays, nb::arg("path"), nb::arg("arrays"));
  module.def("write_npy", &write_npy, nb::arg("path"), nb::arg("view"));
  module.def("map_arrays", &map_arrays, nb::arg("path"), nb::arg("wanted"));
  module.def("parameters_of", &parameters_of, nb::arg("model"));
}

}  // namespace tessera
