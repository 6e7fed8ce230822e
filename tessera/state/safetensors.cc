#include "tessera/state/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "tessera/base/array_bytes.h"
#include "tessera/base/check.h"
#include "tessera/base/json_text.h"
#include "tessera/base/one_line.h"
#include "tessera/state/checksum.h"
#include "tessera/state/storage.h"

namespace tessera {

static_assert(std::endian::native == std::endian::little, "the format is little endian");

namespace {

using Json = nlohmann::json;
constexpr int64_t kLengthBytes = 8;
constexpr int64_t kAlignment = 8;
constexpr std::string_view kMetadata = "__metadata__";

constexpr std::array<std::pair<DType, std::string_view>, 8> kDTypes{{{DType::kFloat64, "F64"},
                                                                     {DType::kFloat32, "F32"},
                                                                     {DType::kBFloat16, "BF16"},
                                                                     {DType::kFloat16, "F16"},
                                                                     {DType::kInt64, "I64"},
                                                                     {DType::kInt32, "I32"},
                                                                     {DType::kUInt8, "U8"},
                                                                     {DType::kBool, "BOOL"}}};

// Other dtypes of the format. Files may have arrays of these dtypes, but the arrays cannot be read.
constexpr std::array<std::string_view, 14> kOtherDTypes{
    "I8",      "I16",         "U16",         "U32", "U64", "F8_E4M3", "F8_E5M2",
    "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "C64", "F4",  "F6_E2M3", "F6_E3M2"};

std::optional<DType> dtype_of(std::string_view name) {
  for (const auto& [dtype, known] : kDTypes) {
    if (known == name) return dtype;
  }
  return std::nullopt;
}

tl::unexpected<Error> malformed(const std::string& path, const std::string& message) {
  return invalid_input(fmt::format("{}: not a safetensors file: {}", path, short_line(message)));
}

// Parses the header. Each name must occur once; JSON libraries silently keep the last of two equal
// names, so names are checked while the text is parsed.
Result<Json> parse_header(const std::string& path, const std::string& text) {
  if (json_depth(text) > kMostJsonDepth)
    return malformed(path, "expected a JSON object as header, found one of deeper nesting");
  std::set<std::string> names;
  std::string twice;
  const Json::parser_callback_t count = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::key && depth == 1 && twice.empty() &&
        !names.insert(parsed.get<std::string>()).second) {
      twice = parsed.get<std::string>();
    }
    return true;
  };
  Json json = Json::parse(text, count, false);
  if (json.is_discarded() || !json.is_object())
    return malformed(path, "expected a JSON object as header, found none");
  if (!twice.empty()) return malformed(path, fmt::format("the name '{}' occurs twice", twice));
  return json;
}

std::optional<int64_t> whole_number(const Json& json) {
  if (!json.is_number_unsigned()) return std::nullopt;
  const auto value = json.get<uint64_t>();
  if (value > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
  return static_cast<int64_t>(value);
}

// Parses one entry of the header. The file's data begins at byte `data` and has `limit` bytes.
Result<ArrayEntry> parse_entry(const std::string& path, const std::string& name, const Json& json,
                               int64_t data, int64_t limit) {
  const auto error = [&](const std::string& message) {
    return malformed(path, fmt::format("'{}': {}", name, message));
  };
  if (!json.is_object()) return error("expected dtype, shape and data_offsets, found no object");
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    if (!json.contains(key)) return error(fmt::format("expected the key {}, found none", key));
  }
  ArrayEntry entry;
  entry.name = name;
  const Json& dtype = json["dtype"];
  if (!dtype.is_string()) return error("dtype: expected a name as F32");
  const auto known = dtype_of(dtype.get<std::string>());
  if (!known) {
    std::string names;
    for (const auto& [one, text] : kDTypes)
      names += fmt::format("{}{}", names.empty() ? "" : ", ", text);
    const std::string expected =
        fmt::format("dtype: expected one of {}, found {}", names, shown(dtype));
    const auto other =
        std::find(kOtherDTypes.begin(), kOtherDTypes.end(), dtype.get<std::string>());
    if (other == kOtherDTypes.end()) return error(expected);
    return invalid_input(
        fmt::format("{}: '{}': {}, which is not read", path, short_line(name), expected));
  }
  entry.dtype = *known;
  if (!json["shape"].is_array()) return error("shape: expected a list of sizes");
  for (const Json& size : json["shape"]) {
    const auto value = whole_number(size);
    if (!value) return error(fmt::format("shape: expected sizes, found {}", shown(size)));
    entry.shape.push_back(*value);
  }
  const Json& offsets = json["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2 || !whole_number(offsets[0]) ||
      !whole_number(offsets[1])) {
    return error("data_offsets: expected [begin, end]");
  }
  const int64_t begin = *whole_number(offsets[0]), end = *whole_number(offsets[1]);
  if (begin > end || end > limit) {
    return error(
        fmt::format("data_offsets: expected a range inside the {} bytes of data, found "
                    "[{}, {}]",
                    limit, begin, end));
  }
  const auto bytes = array_bytes(entry.dtype, entry.shape);
  if (!bytes || *bytes != end - begin) {
    return error(fmt::format("expected {} bytes for its shape and dtype, found {}",
                             bytes ? std::to_string(*bytes) : "more than 2^63", end - begin));
  }
  entry.begin = data + begin;
  entry.bytes = end - begin;
  return entry;
}

Result<std::map<std::string, std::string>> parse_metadata(const std::string& path,
                                                          const Json& json) {
  std::map<std::string, std::string> metadata;
  if (!json.is_object()) return malformed(path, "__metadata__: expected an object of texts");
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string())
      return malformed(path, fmt::format("__metadata__: '{}': expected a text", key));
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

// Checks that the arrays follow one another without gaps from the end of the header to the end of
// the file.
Status check_ranges(const std::string& path, const std::vector<ArrayEntry>& arrays, int64_t data,
                    int64_t file_bytes) {
  int64_t at = data;
  for (const ArrayEntry& array : arrays) {
    if (array.begin != at) {
      return malformed(path, fmt::format("'{}': expected to begin at byte {} of the data, found {}",
                                         array.name, at - data, array.begin - data));
    }
    at += array.bytes;
  }
  if (at == file_bytes) return {};
  return malformed(
      path, fmt::format("expected {} bytes of data, found {}", at - data, file_bytes - data));
}

}  // namespace

struct SafetensorsFile::Descriptor {
  explicit Descriptor(int opened) : number(opened) {}
  ~Descriptor() {
    ::close(number);
    if (direct >= 0) ::close(direct);
    if (mapped != nullptr) ::munmap(mapped, static_cast<size_t>(mapped_bytes));
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  // Reads all bytes of the range. Returns the text of the error if that fails, else nothing.
  std::optional<std::string> read(int64_t offset, int64_t bytes, std::byte* out) const {
    constexpr int64_t kFewestDirect = 256 << 10;
    if (direct >= 0 && bytes >= kFewestDirect && !is_cached(offset, bytes)) {
      const int64_t done = read_direct(offset, bytes, out);
      offset += done;
      bytes -= done;
      out += done;
    }
    while (bytes > 0) {
      const ssize_t got = ::pread(number, out, static_cast<size_t>(bytes), offset);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return std::string(std::strerror(errno));  // NOLINT(concurrency-mt-unsafe)
      if (got == 0) {
        return fmt::format("expected {} more bytes at byte {}, found the end of the file", bytes,
                           offset);
      }
      offset += got;
      bytes -= got;
      out += got;
    }
    return std::nullopt;
  }
  int number;
  int direct = -1;  // opened to bypass the page cache; -1 if that cannot be done

  void open_direct([[maybe_unused]] const std::string& path) {
#ifdef O_DIRECT
    struct stat status {};
    if (mapped != nullptr || ::fstat(number, &status) != 0) return;
    void* memory =
        ::mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_SHARED, number, 0);
    if (memory == MAP_FAILED) return;
    mapped = static_cast<std::byte*>(memory);
    mapped_bytes = status.st_size;
    direct = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
#endif
  }

 private:
  std::byte* mapped = nullptr;  // the mapped file, only for mincore(); its bytes are not read
  int64_t mapped_bytes = 0;

  // Returns whether the first and the last of the bytes are in the page cache. mincore() says so
  // without reading. A non-blocking read would instead start read-ahead, and the same bytes would
  // then be read a second time.
  bool is_cached(int64_t offset, int64_t bytes) const {
    const auto page = static_cast<int64_t>(::sysconf(_SC_PAGESIZE));
    for (const int64_t at : {offset, offset + bytes - 1}) {
      unsigned char in_memory = 0;
      if (::mincore(mapped + at / page * page, 1, &in_memory) != 0 || (in_memory & 1) == 0)
        return false;
    }
    return true;
  }

  // Reads into memory that is aligned as the device demands, and copies from there. Returns the
  // number of bytes read; the caller reads the rest, or finds the error, by a normal read.
  int64_t read_direct(int64_t offset, int64_t bytes, std::byte* out) const {
    constexpr int64_t kMost = 4 << 20;
    struct FreeMemory {
      void operator()(std::byte* memory) const { std::free(memory); }
    };
    thread_local const std::unique_ptr<std::byte, FreeMemory> memory(
        static_cast<std::byte*>(std::aligned_alloc(kStorageBlock, kMost)));
    int64_t done = 0;
    while (memory != nullptr && done < bytes) {
      const int64_t before = (offset + done) % kStorageBlock;
      const int64_t wanted = std::min(
          kMost, (before + bytes - done + kStorageBlock - 1) / kStorageBlock * kStorageBlock);
      const ssize_t got =
          ::pread(direct, memory.get(), static_cast<size_t>(wanted), offset + done - before);
      if (got <= before) break;
      const int64_t some = std::min<int64_t>(got - before, bytes - done);
      std::memcpy(out + done, memory.get() + before, static_cast<size_t>(some));
      done += some;
    }
    return done;
  }
};

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path, int64_t begin) {
  const int number = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (number < 0) {
    return invalid_input(fmt::format("{}: expected a readable safetensors file, found: {}", path,
                                     std::strerror(errno)));  // NOLINT(concurrency-mt-unsafe)
  }
  SafetensorsFile file;
  file.path_ = path;
  file.descriptor_ = std::make_shared<Descriptor>(number);
  struct stat status {};
  if (::fstat(number, &status) != 0 || !S_ISREG(status.st_mode))
    return malformed(path, "expected a regular file");
  const auto end = static_cast<int64_t>(status.st_size);
  if (begin < 0 || begin > end || end - begin < kLengthBytes)
    return malformed(path, fmt::format("expected at least 8 bytes, found {}", end - begin));
  const int64_t size = end - begin;
  uint64_t length = 0;
  if (const auto why =
          file.descriptor_->read(begin, kLengthBytes, reinterpret_cast<std::byte*>(&length))) {
    return malformed(path, *why);
  }
  const int64_t most = std::min(kMostHeaderBytes, size - kLengthBytes);
  if (length > static_cast<uint64_t>(most)) {
    return malformed(path,
                     fmt::format("expected a header of at most {} bytes, found {}", most, length));
  }
  std::string text(length, '\0');
  if (const auto why = file.descriptor_->read(begin + kLengthBytes, static_cast<int64_t>(length),
                                              reinterpret_cast<std::byte*>(text.data()))) {
    return malformed(path, *why);
  }
  Checksum sum;
  sum.add(reinterpret_cast<const std::byte*>(&length), kLengthBytes);
  sum.add(reinterpret_cast<const std::byte*>(text.data()), static_cast<int64_t>(length));
  file.head_checksum_ = sum.value();
  TESSERA_TRY(const Json json, parse_header(path, text));
  const int64_t data = begin + kLengthBytes + static_cast<int64_t>(length);
  for (const auto& [name, value] : json.items()) {
    if (name == kMetadata) {
      TESSERA_TRY(file.metadata_, parse_metadata(path, value));
      continue;
    }
    TESSERA_TRY(ArrayEntry entry, parse_entry(path, name, value, data, end - data));
    file.arrays_.push_back(std::move(entry));
  }
  std::sort(file.arrays_.begin(), file.arrays_.end(), [](const ArrayEntry& a, const ArrayEntry& b) {
    return std::pair(a.begin, a.bytes) < std::pair(b.begin, b.bytes);
  });
  TESSERA_TRY_VOID(check_ranges(path, file.arrays_, data, end));
  for (size_t i = 0; i < file.arrays_.size(); ++i) file.by_name_[file.arrays_[i].name] = i;
  return file;
}

const ArrayEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &arrays_[found->second];
}

Status SafetensorsFile::read(const ArrayEntry& array, int64_t offset, int64_t bytes,
                             std::byte* out) const {
  TESSERA_CHECK(offset >= 0 && bytes >= 0 && offset + bytes <= array.bytes, "{}: bytes {} to {}",
                array.name, offset, offset + bytes);
  const auto why = descriptor_->read(array.begin + offset, bytes, out);
  if (!why) return {};
  return fault(fmt::format("{}: '{}': {}", path_, short_line(array.name), *why));
}

void SafetensorsFile::announce() {
  ::posix_fadvise(descriptor_->number, 0, 0, POSIX_FADV_SEQUENTIAL);
  descriptor_->open_direct(path_);
}

SafetensorsLayout layout_safetensors(std::vector<ArrayEntry> arrays,
                                     const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!metadata.empty()) json[std::string(kMetadata)] = metadata;
  int64_t at = 0;
  for (ArrayEntry& array : arrays) {
    const auto bytes = array_bytes(array.dtype, array.shape);
    TESSERA_CHECK(bytes.has_value(), "{}", array.name);
    TESSERA_CHECK(!json.contains(array.name), "{} occurs twice", array.name);
    json[array.name] = {{"dtype", safetensors_dtype(array.dtype)},
                        {"shape", array.shape},
                        {"data_offsets", {at, at + *bytes}}};
    array.begin = at;
    array.bytes = *bytes;
    at += *bytes;
  }
  std::string text = json.dump();
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  SafetensorsLayout layout;
  const uint64_t length = text.size();
  layout.head.assign(reinterpret_cast<const char*>(&length), kLengthBytes);
  layout.head += text;
  const auto data = static_cast<int64_t>(layout.head.size());
  for (ArrayEntry& array : arrays) array.begin += data;
  layout.arrays = std::move(arrays);
  layout.bytes = data + at;
  return layout;
}

std::string_view safetensors_dtype(DType dtype) {
  for (const auto& [known, name] : kDTypes) {
    if (known == dtype) return name;
  }
  return "";
}

}  // namespace tessera
