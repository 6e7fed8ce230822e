// Reads datasets of HDF5 files by hyperslabs (the library's word for boxes).
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hdf5.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "tessera/base/one_line.h"
#include "tessera/base/text.h"
#include "tessera/base/text_file.h"
#include "tessera/data/array_file.h"
#include "tessera/data/hdf5/trial.h"

namespace tessera {
namespace {

// Returns the lock of the library. As Debian builds the library, only one thread at a time may call
// it.
std::mutex& library() {
  static std::mutex mutex;
  // We close everything that we open, so the library need not do so at exit. If a file could not be
  // written, the library (1.10.8) would try again at exit and end the process by a signal.
  [[maybe_unused]] static const herr_t at_exit = H5dont_atexit();
  return mutex;
}

// Holds the lock of the library for as long as the object lives. Also turns off the library's own
// error messages, a setting that the library keeps for each thread.
class Calls {
 public:
  Calls() : lock_(library()) { H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr); }
  void unlock() { lock_.unlock(); }
  void lock() { lock_.lock(); }

 private:
  std::unique_lock<std::mutex> lock_;
};

// Closes what the library has opened when the object is destroyed. The lock must be held then.
class Handle {
 public:
  using Close = herr_t (*)(hid_t);
  Handle() = default;
  Handle(hid_t id, Close close) : id_(id), close_(close) {}
  ~Handle() {
    if (valid()) close_(id_);
  }
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  bool valid() const { return id_ >= 0; }
  hid_t id() const { return id_; }

 private:
  hid_t id_ = -1;
  Close close_ = nullptr;
};

// Returns the narrowest float type of ours that holds every value of the file's float type. For
// example, float16 and bfloat16 are read as float32. Returns nothing for types of more than 64
// bits, which none of ours holds.
std::optional<Number> float_that_holds(hid_t type) {
  size_t sign = 0, exponent_at = 0, exponent_bits = 0, fraction_at = 0, fraction_bits = 0;
  if (H5Tget_fields(type, &sign, &exponent_at, &exponent_bits, &fraction_at, &fraction_bits) < 0)
    return std::nullopt;
  if (exponent_bits <= 8 && fraction_bits <= 23) return Number::kFloat32;
  if (exponent_bits <= 11 && fraction_bits <= 52) return Number::kFloat64;
  return std::nullopt;
}

// Returns how messages describe elements that are not numbers or are too wide.
std::string kind_of_elements(hid_t type) {
  switch (H5Tget_class(type)) {
    case H5T_INTEGER: return fmt::format("integers of {} bits", 8 * H5Tget_size(type));
    case H5T_FLOAT: return fmt::format("floats of {} bits", H5Tget_precision(type));
    case H5T_STRING: return "texts";
    case H5T_COMPOUND: return "records of several fields (as complex numbers are)";
    case H5T_ENUM: return "values of an enumeration (as truth values are)";
    case H5T_VLEN: return "lists of several lengths";
    case H5T_ARRAY: return "an array in each element";
    case H5T_REFERENCE: return "references";
    case H5T_BITFIELD: return "fields of bits";
    case H5T_TIME: return "times";
    default: return "opaque bytes";
  }
}

std::optional<Number> number_of(hid_t type) {
  const size_t bytes = H5Tget_size(type);
  const H5T_class_t kind = H5Tget_class(type);
  if (kind == H5T_FLOAT) return float_that_holds(type);
  if (kind != H5T_INTEGER) return std::nullopt;
  const bool is_signed = H5Tget_sign(type) == H5T_SGN_2;
  switch (bytes) {
    case 1: return is_signed ? Number::kInt8 : Number::kUint8;
    case 2: return is_signed ? Number::kInt16 : Number::kUint16;
    case 4: return is_signed ? Number::kInt32 : Number::kUint32;
    case 8: return is_signed ? Number::kInt64 : Number::kUint64;
    default: return std::nullopt;
  }
}

// Returns the library's type of a number in memory. It is little-endian, whatever the file has.
hid_t type_in_memory(Number number) {
  switch (number) {
    case Number::kUint8: return H5T_STD_U8LE;
    case Number::kInt8: return H5T_STD_I8LE;
    case Number::kUint16: return H5T_STD_U16LE;
    case Number::kInt16: return H5T_STD_I16LE;
    case Number::kUint32: return H5T_STD_U32LE;
    case Number::kInt32: return H5T_STD_I32LE;
    case Number::kUint64: return H5T_STD_U64LE;
    case Number::kInt64: return H5T_STD_I64LE;
    case Number::kFloat32: return H5T_IEEE_F32LE;
    case Number::kFloat64: return H5T_IEEE_F64LE;
  }
  return H5T_STD_U8LE;
}

// Returns the names in the file's root as text, at most kMost of them.
std::string members_of(hid_t file) {
  constexpr hsize_t kMost = 8;
  H5G_info_t info;
  if (H5Gget_info(file, &info) < 0 || info.nlinks == 0) return "none";
  std::vector<std::string> names;
  for (hsize_t i = 0; i < std::min(info.nlinks, kMost); ++i) {
    const ssize_t size =
        H5Lget_name_by_idx(file, ".", H5_INDEX_NAME, H5_ITER_INC, i, nullptr, 0, H5P_DEFAULT);
    if (size < 0) continue;
    std::string name(static_cast<size_t>(size) + 1, '\0');
    H5Lget_name_by_idx(file, ".", H5_INDEX_NAME, H5_ITER_INC, i, name.data(), name.size(),
                       H5P_DEFAULT);
    name.pop_back();
    names.push_back(one_line(name));
  }
  return join(names, ", ") + (info.nlinks > kMost ? " and more" : "");
}

// Returns the text of a member of a virtual dataset's list of sources; "" if it cannot be read.
std::string text_of(hid_t list, size_t index, ssize_t (*get)(hid_t, size_t, char*, size_t)) {
  const ssize_t size = get(list, index, nullptr, 0);
  if (size < 0) return "";
  std::string out(static_cast<size_t>(size) + 1, '\0');
  get(list, index, out.data(), out.size());
  out.pop_back();
  return out;
}

// Returns "file:dataset" of the first source of a virtual dataset that is missing, else "". The
// library would read the elements of a missing source as zeros, without an error. Sources are sought
// in the folder of `path` and in the working folder. Names with '%', which stand for as many files
// as there are, are not checked.
std::string missing_source(const std::string& path, hid_t file, hid_t data) {
  const Handle list(H5Dget_create_plist(data), H5Pclose);
  size_t sources = 0;
  if (!list.valid() || H5Pget_layout(list.id()) != H5D_VIRTUAL ||
      H5Pget_virtual_count(list.id(), &sources) < 0)
    return "";
  for (size_t i = 0; i < sources; ++i) {
    const std::string name = text_of(list.id(), i, H5Pget_virtual_filename),
                      dataset = text_of(list.id(), i, H5Pget_virtual_dsetname);
    if (name.find('%') != std::string::npos || dataset.find('%') != std::string::npos) continue;
    const std::string beside = (std::filesystem::path(path).parent_path() / name).string();
    const auto has_dataset = [&](const std::string& where) {
      const Handle source(H5Fopen(where.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose);
      return source.valid() &&
             Handle(H5Dopen2(source.id(), dataset.c_str(), H5P_DEFAULT), H5Dclose).valid();
    };
    const bool is_there =
        name == "." ? Handle(H5Dopen2(file, dataset.c_str(), H5P_DEFAULT), H5Dclose).valid()
                    : has_dataset(beside) || has_dataset(name);
    if (!is_there) return fmt::format("{}:{}", name, dataset);
  }
  return "";
}

// Opens the file and the dataset, and reads its first and its last number. So the library looks at
// everything that the heads say.
void touch(const ArrayName& name) {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  const Handle file(H5Fopen(name.path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose);
  if (!file.valid()) return;
  members_of(file.id());
  const Handle data(H5Dopen2(file.id(), name.dataset.c_str(), H5P_DEFAULT), H5Dclose);
  if (!data.valid()) return;
  missing_source(name.path, file.id(), data.id());
  const Handle type(H5Dget_type(data.id()), H5Tclose), space(H5Dget_space(data.id()), H5Sclose);
  const auto number = number_of(type.id());
  const int rank = H5Sget_simple_extent_ndims(space.id());
  if (!number || rank < 1) return;
  std::vector<hsize_t> at(static_cast<size_t>(rank), 0), sizes(at), one(at.size(), 1);
  H5Sget_simple_extent_dims(space.id(), sizes.data(), nullptr);
  const hsize_t volume = 1;
  const Handle memory(H5Screate_simple(1, &volume, nullptr), H5Sclose);
  std::array<std::byte, 8> to{};
  for (const bool last : {false, true}) {
    for (size_t d = 0; last && d < at.size(); ++d) at[d] = sizes[d] > 0 ? sizes[d] - 1 : 0;
    if (H5Sselect_hyperslab(space.id(), H5S_SELECT_SET, at.data(), nullptr, one.data(), nullptr) >=
        0)
      H5Dread(data.id(), type_in_memory(*number), memory.id(), space.id(), H5P_DEFAULT, to.data());
  }
}

// The time limit of a trial (trial.h). A trial is needed because libhdf5 1.10.8 crashes or hangs on
// some damaged files.
constexpr std::chrono::seconds kLongestTrial{60};

// Returns whether the last call of the library failed because the file has a version of the format
// that the library does not know. Only the text of the library's error says so, not its code.
bool met_unknown_version() {
  bool met = false;
  const auto look = [](unsigned, const H5E_error2_t* one, void* found) -> herr_t {
    if (one->desc != nullptr &&
        std::string_view(one->desc).find("version number") != std::string_view::npos)
      *static_cast<bool*>(found) = true;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, look, &met);
  return met;
}

std::string newer_than_this_library() {
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return fmt::format("written by a newer HDF5 than this library ({}.{}.{}) reads", major, minor,
                     release);
}

class Hdf5File : public ArrayFile {
 public:
  explicit Hdf5File(ArrayName name) : name_(std::move(name)) {}
  ~Hdf5File() override {
    const Calls calls;
    data_ = Handle();
    file_ = Handle();
  }

  Status open() {
    std::error_code failed;
    bytes_ = static_cast<int64_t>(std::filesystem::file_size(name_.path, failed));
    if (failed) {
      return invalid_input(fmt::format("cannot read '{}': {}", name_.path, failed.message()));
    }
    const Calls calls;
    const bool sound = comes_back([&] { touch(name_); }, kLongestTrial);
    if (sound) file_ = Handle(H5Fopen(name_.path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose);
    if (!file_.valid()) {
      if (sound && met_unknown_version())
        return invalid_input(fmt::format("'{}': {}", name_.path, newer_than_this_library()));
      return invalid_input(
          fmt::format("'{}': expected an HDF5 file, found another or a damaged one", name_.path));
    }
    data_ = Handle(H5Dopen2(file_.id(), name_.dataset.c_str(), H5P_DEFAULT), H5Dclose);
    if (!data_.valid()) {
      if (met_unknown_version()) {
        return invalid_input(fmt::format("'{}': the dataset '{}' was {}", name_.path, name_.dataset,
                                         newer_than_this_library()));
      }
      if (H5Lexists(file_.id(), name_.dataset.c_str(), H5P_DEFAULT) > 0) {
        return invalid_input(
            fmt::format("'{}': expected '{}' to be a dataset, found a group or something damaged",
                        name_.path, name_.dataset));
      }
      return invalid_input(fmt::format("'{}': expected a dataset '{}', found {}", name_.path,
                                       name_.dataset, members_of(file_.id())));
    }
    const Handle type(H5Dget_type(data_.id()), H5Tclose), space(H5Dget_space(data_.id()), H5Sclose);
    const auto number = number_of(type.id());
    const int rank = H5Sget_simple_extent_ndims(space.id());
    if (!number || rank < 1) {
      return invalid_input(fmt::format(
          "'{}': expected the dataset '{}' to be an array of integers or of floats of "
          "at most 64 bits, found {}",
          name_.path, name_.dataset, number ? "a single number" : kind_of_elements(type.id())));
    }
    if (const std::string missing = missing_source(name_.path, file_.id(), data_.id());
        !missing.empty()) {
      return invalid_input(
          fmt::format("'{}': expected '{}', of which the virtual dataset '{}' is made, found none",
                      name_.path, one_line(missing), name_.dataset));
    }
    number_ = *number;
    std::vector<hsize_t> sizes(static_cast<size_t>(rank));
    H5Sget_simple_extent_dims(space.id(), sizes.data(), nullptr);
    shape_.assign(sizes.begin(), sizes.end());
    return check_elements();
  }

  int64_t file_bytes() const override { return bytes_; }

 private:
  // Checks that the dataset has at least one element, and not more than can be counted, because a
  // head may state any number.
  Status check_elements() const {
    constexpr int64_t kMost = int64_t{1} << 50;
    int64_t elements = 1;
    for (const int64_t size : shape_) {
      if (size < 1 || size > kMost / elements) {
        return invalid_input(
            fmt::format("'{}': expected 1 to 2^50 elements in the dataset '{}', "
                        "found the shape [{}]",
                        name_.path, name_.dataset, fmt::join(shape_, ", ")));
      }
      elements *= size;
    }
    return {};
  }

 protected:
  Status read_box(const Box& box, std::byte* to) const override {
    std::vector<hsize_t> begin, size;
    for (const Interval& dim : box.dims) {
      begin.push_back(static_cast<hsize_t>(dim.begin));
      size.push_back(static_cast<hsize_t>(dim.size));
    }
    const auto volume = static_cast<hsize_t>(box.volume());
    const Calls calls;
    const Handle space(H5Dget_space(data_.id()), H5Sclose),
        memory(H5Screate_simple(1, &volume, nullptr), H5Sclose);
    const bool selected = H5Sselect_hyperslab(space.id(), H5S_SELECT_SET, begin.data(), nullptr,
                                              size.data(), nullptr) >= 0;
    if (selected && H5Dread(data_.id(), type_in_memory(number_), memory.id(), space.id(),
                            H5P_DEFAULT, to) >= 0) {
      return {};
    }
    return invalid_input(
        fmt::format("cannot read {} of the dataset '{}' of '{}': it is damaged, or "
                    "packed by a filter that is not here",
                    box.to_string(), name_.dataset, name_.path));
  }

 private:
  ArrayName name_;
  int64_t bytes_ = 0;
  Handle file_, data_;
};

}  // namespace

bool have_hdf5() { return true; }

namespace {

// Writes the datasets to the file `temporary`. Messages name `path`, the name that the file will
// get.
Status write_datasets(const std::string& temporary, const std::string& path,
                      const std::vector<std::pair<std::string, const ArrayFile*>>& arrays) {
  Calls calls;
  const auto failed = [&] { return fault(fmt::format("cannot write '{}'", path)); };
  const Handle file(H5Fcreate(temporary.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT),
                    H5Fclose);
  if (!file.valid()) return failed();
  for (const auto& [name, array] : arrays) {
    const std::vector<hsize_t> sizes(array->shape().begin(), array->shape().end());
    const Handle space(H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr),
                       H5Sclose);
    const hid_t type = type_in_memory(array->number());
    const Handle data(H5Dcreate2(file.id(), name.c_str(), type, space.id(), H5P_DEFAULT,
                                 H5P_DEFAULT, H5P_DEFAULT),
                      H5Dclose);
    if (!data.valid()) return failed();
    // Copies one sample at a time, because an array may be larger than memory.
    Box box = Box::whole(array->shape());
    box.dims[0].size = 1;
    const auto volume = static_cast<hsize_t>(box.volume());
    std::vector<std::byte> sample(
        static_cast<size_t>(box.volume() * number_bytes(array->number())));
    const Handle memory(H5Screate_simple(1, &volume, nullptr), H5Sclose);
    std::vector<hsize_t> begin(sizes.size(), 0), size = sizes;
    size[0] = 1;
    for (int64_t i = 0; i < array->shape()[0]; ++i) {
      box.dims[0].begin = i;
      begin[0] = static_cast<hsize_t>(i);
      calls.unlock();  // the array's reader takes the lock if it is a dataset
      Status read = array->read(box, sample.data());
      calls.lock();
      if (!read) return read;
      const bool selected = H5Sselect_hyperslab(space.id(), H5S_SELECT_SET, begin.data(), nullptr,
                                                size.data(), nullptr) >= 0;
      if (!selected ||
          H5Dwrite(data.id(), type, memory.id(), space.id(), H5P_DEFAULT, sample.data()) < 0)
        return failed();
    }
  }
  if (H5Fflush(file.id(), H5F_SCOPE_LOCAL) < 0) return failed();
  return {};
}

}  // namespace

Status write_hdf5(const std::string& path,
                  const std::vector<std::pair<std::string, const ArrayFile*>>& arrays) {
  TESSERA_TRY_VOID(check_replaceable(path));
  const std::string temporary = fmt::format("{}.tmp.{}", path, ::getpid());
  Status written = write_datasets(temporary, path, arrays);
  if (written && std::rename(temporary.c_str(), path.c_str()) == 0) return {};
  if (written) written = fault(fmt::format("cannot write '{}'", path));
  std::remove(temporary.c_str());
  return written;
}

Result<std::unique_ptr<ArrayFile>> open_hdf5(const ArrayName& name) {
  auto file = std::make_unique<Hdf5File>(name);
  TESSERA_TRY_VOID(file->open());
  return std::unique_ptr<ArrayFile>(std::move(file));
}

}  // namespace tessera
