#include "tessera/import/dcp/saved.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "tessera/base/array_bytes.h"
#include "tessera/base/box.h"
#include "tessera/base/convert.h"
#include "tessera/base/one_line.h"
#include "tessera/base/text.h"
#include "tessera/import/dcp/pickle.h"

namespace tessera::dcp {
namespace {

using Kind = PickleValue::Kind;

constexpr std::array<std::pair<const char*, DType>, 8> kStorages{{
    {"DoubleStorage", DType::kFloat64},
    {"FloatStorage", DType::kFloat32},
    {"BFloat16Storage", DType::kBFloat16},
    {"HalfStorage", DType::kFloat16},
    {"LongStorage", DType::kInt64},
    {"IntStorage", DType::kInt32},
    {"ByteStorage", DType::kUInt8},
    {"BoolStorage", DType::kBool},
}};

const std::set<std::string>& tensor_classes() {
  static const std::set<std::string> names = [] {
    std::set<std::string> out{"torch._utils _rebuild_tensor_v2", "collections OrderedDict",
                              "torch Size"};
    for (const auto& [name, dtype] : kStorages) out.insert(fmt::format("torch {}", name));
    return out;
  }();
  return names;
}

// Returns the classes that settings may have: those of tensors, and those that Megatron Core itself
// allows in a common.pt (megatron/core/safe_globals.py of megatron-core 0.19.2).
const std::set<std::string>& value_classes() {
  static const std::set<std::string> names = [] {
    std::set<std::string> out = tensor_classes();
    for (const char* name : {"argparse Namespace",
                             "types SimpleNamespace",
                             "pathlib PosixPath",
                             "signal Signals",
                             "pathlib._local PosixPath",
                             "torch Tensor",
                             "torch device",
                             "torch float32",
                             "torch float16",
                             "torch bfloat16",
                             "torch float64",
                             "torch uint8",
                             "torch int64",
                             "torch int32",
                             "torch bool",
                             "builtins set",
                             "_codecs encode",
                             "numpy ndarray",
                             "numpy dtype",
                             "numpy.core.multiarray _reconstruct",
                             "numpy.core.multiarray scalar",
                             "numpy._core.multiarray _reconstruct",
                             "numpy._core.multiarray scalar",
                             "megatron.core.enums ModelType",
                             "megatron.core.optimizer.optimizer_config OptimizerConfig",
                             "megatron.core.transformer.enums AttnBackend",
                             "megatron.core.transformer.enums CudaGraphScope",
                             "megatron.core.transformer.enums CudaGraphModule",
                             "megatron.core.transformer.enums InferenceCudaGraphScope",
                             "megatron.core.rerun_state_machine RerunDiagnostic",
                             "megatron.core.rerun_state_machine RerunMode",
                             "megatron.core.rerun_state_machine RerunState"})
      out.insert(name);
    return out;
  }();
  return names;
}

struct Saved {
  std::map<std::string, Range> entries;
  Pickle pickle;
};

Result<Saved> open_saved(const File& file, int64_t offset, int64_t length,
                         const std::set<std::string>& known) {
  TESSERA_TRY(auto entries, entries_of(file, offset, length));
  const auto data = entries.find("data.pkl");
  if (data == entries.end() || data->second.bytes > kMostPickleBytes) {
    return invalid_input(fmt::format(
        "{}: bytes {} to {}: expected an archive of torch.save, found none with a data.pkl",
        file.path(), offset, offset + length));
  }
  TESSERA_TRY(const std::string bytes, file.text(data->second.begin, data->second.bytes));
  TESSERA_TRY(Pickle pickle, Pickle::parse(bytes, known, file.path()));
  return Saved{std::move(entries), std::move(pickle)};
}

// Returns where the elements of a tensor lie. `root` is the tensor's value in the pickle.
Result<SavedTensor> tensor_of(const Saved& saved, const PickleValue& root, const File& file,
                              int64_t offset, int64_t length) {
  const auto error = [&](const std::string& expected, const std::string& found) {
    return invalid_input(fmt::format("{}: bytes {} to {}: expected {}, found {}", file.path(),
                                     offset, offset + length, expected, short_line(found)));
  };
  // _rebuild_tensor_v2(storage, first element, sizes, strides, ...)
  const PickleValue* storage = saved.pickle.item(root, 0);
  const PickleValue* first = saved.pickle.item(root, 1);
  const PickleValue* sizes = saved.pickle.item(root, 2);
  const PickleValue* strides = saved.pickle.item(root, 3);
  if (root.text != "torch._utils _rebuild_tensor_v2" || strides == nullptr ||
      storage->kind != Kind::kPersistent || first->kind != Kind::kInt)
    return error("a tensor", "something else");
  // ("storage", class, key, device, elements)
  const PickleValue* named = saved.pickle.item(*storage, 0);
  const PickleValue* type = saved.pickle.item(*named, 1);
  const PickleValue* key = saved.pickle.item(*named, 2);
  if (key == nullptr || key->kind != Kind::kText || type->kind != Kind::kClass)
    return error("a storage of the tensor", "something else");
  SavedTensor tensor;
  bool known_type = false;
  for (const auto& [name, dtype] : kStorages) {
    if (type->text != fmt::format("torch {}", name)) continue;
    tensor.dtype = dtype;
    known_type = true;
  }
  const auto shape = saved.pickle.integers(*sizes), steps = saved.pickle.integers(*strides);
  if (!known_type || !shape || !steps || shape->size() != steps->size())
    return error("sizes and strides of the tensor", "something else");
  tensor.shape = *shape;
  tensor.strides = *steps;
  const auto data = saved.entries.find("data/" + key->text);
  if (data == saved.entries.end())
    return error(fmt::format("an entry data/{}", short_line(key->text)), "none");
  const int64_t width = dtype_bytes(tensor.dtype);
  // The byte behind the last element, checked for overflow.
  int64_t last = first->integer, begin = 0;
  bool good = last >= 0 && !__builtin_mul_overflow(last, width, &begin) &&
              array_bytes(tensor.dtype, tensor.shape).has_value();
  bool empty = false;
  for (size_t d = 0; good && d < tensor.shape.size(); ++d) {
    int64_t more = 0;
    empty = empty || tensor.shape[d] == 0;
    good = tensor.strides[d] >= 0 && tensor.shape[d] >= 0 &&
           !__builtin_mul_overflow(std::max<int64_t>(tensor.shape[d] - 1, 0), tensor.strides[d],
                                   &more) &&
           !__builtin_add_overflow(last, more, &last);
  }
  if (!good || (!empty && last >= data->second.bytes / width)) {
    return error(fmt::format("elements inside the {} bytes of data/{}", data->second.bytes,
                             short_line(key->text)),
                 "some outside");
  }
  tensor.begin = data->second.begin + begin;
  return tensor;
}

}  // namespace

bool SavedTensor::in_order() const {
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    if (shape[d] != 1 && strides[d] != stride) return false;
    stride *= shape[d];
  }
  return true;
}

struct SavedValue::Archive {
  File file;
  int64_t offset, length;
  Saved saved;

  // Returns the value under these keys; null: there is none.
  const PickleValue* find(const std::vector<std::string>& keys) const {
    const PickleValue* value = &saved.pickle.root();
    for (const std::string& key : keys) {
      const auto index = parse_int(key);
      value = index && *index >= 0 && value->kind != Kind::kDict
                  ? saved.pickle.item(*value, static_cast<size_t>(*index))
                  : saved.pickle.find(*value, key);
      if (value == nullptr) return nullptr;
    }
    return value;
  }

  void add_numbers(const PickleValue& value, std::vector<double>& out) const {
    if (value.kind == Kind::kFloat) out.push_back(value.number);
    if (value.kind == Kind::kInt || value.kind == Kind::kBool)
      out.push_back(static_cast<double>(value.integer));
    if (value.kind != Kind::kObject) return;
    const auto tensor = tensor_of(saved, value, file, offset, length);
    if (!tensor || Box::whole(tensor->shape).volume() != 1) return;
    std::array<std::byte, 8> element{};
    if (!file.read(tensor->begin, dtype_bytes(tensor->dtype), element.data())) return;
    double number = 0;
    convert(tensor->dtype, element.data(), DType::kFloat64, reinterpret_cast<std::byte*>(&number),
            1);
    out.push_back(number);
  }
};

Result<SavedTensor> find_saved(const File& file, int64_t offset, int64_t length) {
  TESSERA_TRY(const Saved saved, open_saved(file, offset, length, tensor_classes()));
  return tensor_of(saved, saved.pickle.root(), file, offset, length);
}

Result<SavedValue> SavedValue::open(const File& file, int64_t offset, int64_t length) {
  TESSERA_TRY(Saved saved, open_saved(file, offset, length, value_classes()));
  return SavedValue(
      std::make_shared<const Archive>(Archive{file, offset, length, std::move(saved)}));
}

std::vector<double> SavedValue::numbers(const std::vector<std::string>& keys) const {
  std::vector<double> out;
  const PickleValue* value = archive_->find(keys);
  if (value == nullptr) return out;
  archive_->add_numbers(*value, out);
  if (value->kind == Kind::kTuple || value->kind == Kind::kList) {
    for (const uint32_t item : value->items)
      archive_->add_numbers(archive_->saved.pickle.at(item), out);
  }
  return out;
}

std::string SavedValue::text(const std::vector<std::string>& keys) const {
  const PickleValue* value = archive_->find(keys);
  return value != nullptr && value->kind == Kind::kText ? value->text : "";
}

}  // namespace tessera::dcp
