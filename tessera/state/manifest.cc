#include "tessera/state/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "tessera/base/array_bytes.h"
#include "tessera/base/check.h"
#include "tessera/base/json_text.h"
#include "tessera/base/one_line.h"
#include "tessera/state/checksum.h"

namespace tessera {
namespace {

using Json = nlohmann::json;
constexpr std::string_view kFormat = "tessera checkpoint";
// How the text begins. After it come 16 digits: the checksum of the text, computed with zeros in
// place of these digits.
constexpr std::string_view kHead = "{\"checksum\":\"";
constexpr size_t kDigits = 16;
constexpr size_t kMostDims = 32;

std::string with_digits(std::string_view text, std::string_view digits) {
  std::string changed(text);
  changed.replace(kHead.size(), kDigits, digits);
  return changed;
}

std::string quoted(const std::string& text) { return dumped(Json(text)); }

std::string box_text(const ManifestBox& one) {
  std::vector<int64_t> offset, size;
  for (const Interval& interval : one.box.dims) {
    offset.push_back(interval.begin);
    size.push_back(interval.size);
  }
  return fmt::format(R"({{"offset":{},"size":{},"file":{},"name":{},"checksum":"{}"}})",
                     Json(offset).dump(), Json(size).dump(), one.file, quoted(one.name),
                     checksum_text(one.checksum));
}

// Reads members of JSON objects. The first error is kept in `error`.
class Reader {
 public:
  const Json* member(const Json& object, const char* key, const std::string& where) {
    if (!object.is_object()) return fail(where, "an object", object);
    const auto found = object.find(key);
    if (found != object.end()) return &*found;
    return fail(where, fmt::format("the key {}", key), Json());
  }
  int64_t number(const Json& object, const char* key, const std::string& where) {
    const Json* json = member(object, key, where);
    return json == nullptr ? 0 : number(*json, where + "." + key);
  }
  int64_t number(const Json& json, const std::string& where) {
    if (json.is_number_unsigned() && json.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX))
      return json.get<int64_t>();
    fail(where, "a whole number", json);
    return 0;
  }
  std::string text(const Json& object, const char* key, const std::string& where) {
    const Json* json = member(object, key, where);
    if (json == nullptr) return "";
    if (json->is_string()) return json->get<std::string>();
    fail(where + "." + key, "a text", *json);
    return "";
  }
  uint64_t hash(const Json& object, const char* key, const std::string& where) {
    const auto value = parse_checksum(text(object, key, where));
    if (value) return *value;
    if (error.empty()) error = fmt::format("{}.{}: expected 16 hexadecimal digits", where, key);
    return 0;
  }
  std::vector<int64_t> numbers(const Json& object, const char* key, const std::string& where) {
    const Json& list = array(object, key, where);
    std::vector<int64_t> values;
    if (list.size() > kMostDims) {
      fail(where + "." + key, fmt::format("at most {} dims", kMostDims), Json(list.size()));
      return values;
    }
    for (const Json& one : list) values.push_back(number(one, where + "." + key));
    return values;
  }
  // Returns the member if it is a list, else an empty list.
  const Json& array(const Json& object, const char* key, const std::string& where) {
    static const Json none = Json::array();
    const Json* json = member(object, key, where);
    if (json != nullptr && json->is_array()) return *json;
    if (json != nullptr) fail(where + "." + key, "a list", *json);
    return none;
  }

  std::string error;

 private:
  const Json* fail(const std::string& where, const std::string& expected, const Json& found) {
    if (!error.empty()) return nullptr;
    error = fmt::format("{}: expected {}, found {}", where, expected, shown(found));
    return nullptr;
  }
};

ManifestTensor read_tensor(Reader& in, const Json& json) {
  ManifestTensor tensor;
  tensor.name = in.text(json, "name", "tensors");
  tensor.role = in.text(json, "role", tensor.name);
  const auto dtype = parse_dtype(in.text(json, "dtype", tensor.name));
  if (!dtype && in.error.empty()) in.error = tensor.name + ".dtype: " + dtype.error().message;
  tensor.dtype = dtype.value_or(DType::kFloat32);
  tensor.shape = in.numbers(json, "shape", tensor.name);
  for (const Json& one : in.array(json, "boxes", tensor.name)) {
    ManifestBox box;
    const std::vector<int64_t> offset = in.numbers(one, "offset", tensor.name),
                               size = in.numbers(one, "size", tensor.name);
    if (offset.size() != tensor.shape.size() || size.size() != tensor.shape.size()) {
      if (in.error.empty()) {
        in.error = fmt::format("{}: expected boxes of {} dims, found {} and {}", tensor.name,
                               tensor.shape.size(), offset.size(), size.size());
      }
      return tensor;
    }
    for (size_t d = 0; d < size.size(); ++d) box.box.dims.push_back({offset[d], size[d]});
    box.file = static_cast<size_t>(in.number(one, "file", tensor.name));
    box.name = in.text(one, "name", tensor.name);
    box.checksum = in.hash(one, "checksum", tensor.name);
    tensor.boxes.push_back(std::move(box));
    if (!in.error.empty()) return tensor;
  }
  return tensor;
}

Manifest read_manifest(Reader& in, const Json& json) {
  Manifest manifest;
  manifest.step = in.number(json, "step", "manifest");
  manifest.seed = in.number(json, "seed", "manifest");
  manifest.ranks = in.number(json, "ranks", "manifest");
  manifest.model = in.text(json, "model", "manifest");
  manifest.plan = in.text(json, "plan", "manifest");
  manifest.run = in.text(json, "run", "manifest");
  for (const Json& one : in.array(json, "files", "manifest")) {
    ManifestFile file;
    file.name = in.text(one, "name", "files");
    file.bytes = in.number(one, "bytes", "files");
    file.head_checksum = in.hash(one, "head", "files");
    manifest.files.push_back(std::move(file));
    if (!in.error.empty()) return manifest;
  }
  for (const Json& one : in.array(json, "tensors", "manifest")) {
    manifest.tensors.push_back(read_tensor(in, one));
    if (!in.error.empty()) return manifest;
  }
  return manifest;
}

bool is_file_name(const std::string& name) {
  constexpr size_t kMostName = 255;
  return !name.empty() && name.front() != '.' && name.find('/') == std::string::npos &&
         name.size() <= kMostName && one_line(name) == name && name != kManifestName;
}

bool overlap(const Box& a, const Box& b) {
  for (size_t d = 0; d < a.rank(); ++d) {
    if (a.dims[d].end() <= b.dims[d].begin || b.dims[d].end() <= a.dims[d].begin) return false;
  }
  return true;
}

// Returns the text of two boxes that overlap; "" if no two overlap. The boxes are sorted by their
// begin, so that a box is compared only with the boxes that begin before it ends.
std::string overlapping(const std::vector<ManifestBox>& boxes) {
  std::vector<const Box*> sorted;
  for (const ManifestBox& one : boxes) sorted.push_back(&one.box);
  if (sorted.empty() || sorted.front()->rank() == 0) return sorted.size() > 1 ? "[] and []" : "";
  // Boxes are sorted along the dim with the most distinct begins.
  size_t best = 0, most = 0;
  for (size_t d = 0; d < sorted.front()->rank(); ++d) {
    std::set<int64_t> begins;
    for (const Box* box : sorted) begins.insert(box->dims[d].begin);
    if (begins.size() > most) {
      most = begins.size();
      best = d;
    }
  }
  std::sort(sorted.begin(), sorted.end(),
            [&](const Box* a, const Box* b) { return a->dims[best].begin < b->dims[best].begin; });
  for (size_t i = 0; i < sorted.size(); ++i) {
    for (size_t k = i + 1;
         k < sorted.size() && sorted[k]->dims[best].begin < sorted[i]->dims[best].end(); ++k) {
      if (overlap(*sorted[i], *sorted[k]))
        return sorted[i]->to_string() + " and " + sorted[k]->to_string();
    }
  }
  return "";
}

std::string why_invalid(const ManifestTensor& tensor, const std::vector<ManifestFile>& files) {
  if (!array_bytes(tensor.dtype, tensor.shape))
    return fmt::format("{}: expected less than 2^63 bytes", tensor.name);
  int64_t volume = 0;
  const Box whole = Box::whole(tensor.shape);
  for (const ManifestBox& one : tensor.boxes) {
    for (size_t d = 0; d < whole.rank(); ++d) {
      const Interval& interval = one.box.dims[d];
      // These comparisons compute no sum, because a sum could overflow.
      if (interval.begin < 0 || interval.size <= 0 || interval.begin > whole.dims[d].size ||
          interval.size > whole.dims[d].size - interval.begin) {
        return fmt::format(
            "{}: expected boxes inside of {}, found one that begins at {} and has {} along dim {}",
            tensor.name, whole.to_string(), interval.begin, interval.size, d);
      }
    }
    if (one.file >= files.size()) {
      return fmt::format("{}: expected a file below {}, found {}", tensor.name, files.size(),
                         one.file);
    }
    if (one.box.volume() > whole.volume() - volume) {
      return fmt::format("{}: expected boxes of {} elements in all, found more", tensor.name,
                         whole.volume());
    }
    volume += one.box.volume();
  }
  if (volume != whole.volume()) {
    return fmt::format("{}: expected boxes of {} elements in all, found {}", tensor.name,
                       whole.volume(), volume);
  }
  const std::string two = overlapping(tensor.boxes);
  return two.empty() ? "" : fmt::format("{}: expected disjoint boxes, found {}", tensor.name, two);
}

}  // namespace

int64_t Manifest::bytes() const {
  int64_t sum = 0;
  for (const ManifestFile& file : files) sum += file.bytes;
  return sum;
}

std::string why_invalid(const Manifest& manifest) {
  std::set<std::string> files, tensors;
  std::set<std::pair<size_t, std::string>> arrays;
  int64_t bytes = 0;
  for (const ManifestFile& file : manifest.files) {
    if (!is_file_name(file.name)) {
      return fmt::format("files: expected the name of a file in the folder, found {}",
                         quoted(file.name));
    }
    if (!files.insert(file.name).second)
      return fmt::format("files: expected each once, found {} twice", file.name);
    if (file.bytes < 0 || __builtin_add_overflow(bytes, file.bytes, &bytes))
      return fmt::format("files: expected less than 2^63 bytes, found more at {}", file.name);
  }
  for (const ManifestTensor& tensor : manifest.tensors) {
    if (!tensors.insert(tensor.name).second)
      return fmt::format("tensors: expected each once, found {} twice", tensor.name);
    if (std::string why = why_invalid(tensor, manifest.files); !why.empty()) return why;
    for (const ManifestBox& box : tensor.boxes) {
      if (!arrays.insert({box.file, box.name}).second) {
        return fmt::format("{}: expected an array for each box, found {} of file {} twice",
                           tensor.name, quoted(box.name), box.file);
      }
    }
  }
  return "";
}

std::string to_text(const Manifest& manifest) {
  std::string text = fmt::format(
      "{}{}\",\n\"format\":\"{}\",\"version\":{},\n\"step\":{},\"seed\":{},\"ranks\":{},\n"
      "\"model\":{},\n\"plan\":{},\n\"run\":{},\n\"files\":[",
      kHead, std::string(kDigits, '0'), kFormat, kManifestVersion, manifest.step, manifest.seed,
      manifest.ranks, quoted(manifest.model), quoted(manifest.plan), quoted(manifest.run));
  for (size_t i = 0; i < manifest.files.size(); ++i) {
    const ManifestFile& file = manifest.files[i];
    text += fmt::format("{}\n{{\"name\":{},\"bytes\":{},\"head\":\"{}\"}}", i == 0 ? "" : ",",
                        quoted(file.name), file.bytes, checksum_text(file.head_checksum));
  }
  text += "],\n\"tensors\":[";
  for (size_t i = 0; i < manifest.tensors.size(); ++i) {
    const ManifestTensor& tensor = manifest.tensors[i];
    text += fmt::format("{}\n{{\"name\":{},\"role\":{},\"dtype\":\"{}\",\"shape\":{},\"boxes\":[",
                        i == 0 ? "" : ",", quoted(tensor.name), quoted(tensor.role),
                        dtype_name(tensor.dtype), Json(tensor.shape).dump());
    for (size_t k = 0; k < tensor.boxes.size(); ++k)
      text += (k == 0 ? "" : ",") + box_text(tensor.boxes[k]);
    text += "]}";
  }
  text += "]}\n";
  return with_digits(text, checksum_text(checksum(text)));
}

Result<Manifest> parse_manifest(std::string_view text, const std::string& where) {
  // The statements of the text count only if the text is as it was written.
  const size_t head = kHead.size() + kDigits;
  if (text.size() < head || !text.starts_with(kHead)) {
    return fault(fmt::format(
        "{}: damaged: expected to begin with its checksum, found text that is cut or changed",
        where));
  }
  const std::string_view digits = text.substr(kHead.size(), kDigits);
  const std::string found = checksum_text(checksum(with_digits(text, std::string(kDigits, '0'))));
  if (digits != found) {
    return fault(
        fmt::format("{}: damaged: expected checksum {}, found {}", where, found, one_line(digits)));
  }
  const auto error = [&](const std::string& message) {
    return invalid_input(fmt::format("{}: {}", where, short_line(message)));
  };
  const auto parsed = parse_json(text);
  if (!parsed) return error("expected JSON, found other text");
  const Json& json = *parsed;
  Reader in;
  const std::string format = in.text(json, "format", "manifest");
  if (!in.error.empty()) return error(in.error);
  if (format != kFormat) {
    return error(fmt::format("expected the format {}, found {}", quoted(std::string(kFormat)),
                             quoted(format)));
  }
  const int64_t version = in.number(json, "version", "manifest");
  if (!in.error.empty()) return error(in.error);
  if (version > kManifestVersion) {
    return error(
        fmt::format("expected format version {} or older, found {}; a newer Tessera has written it",
                    kManifestVersion, version));
  }
  Manifest manifest = read_manifest(in, json);
  if (!in.error.empty()) return error(in.error);
  if (const std::string why = why_invalid(manifest); !why.empty()) return error(why);
  return manifest;
}

}  // namespace tessera
