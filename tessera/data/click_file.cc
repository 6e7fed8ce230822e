#include "tessera/data/click_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <set>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/base/one_line.h"
#include "tessera/base/permutation.h"
#include "tessera/base/text_file.h"
#include "tessera/data/numbers.h"

namespace tessera {
namespace {

constexpr std::string_view kMagic = "TSRCLCK1";
constexpr int64_t kBlock = 256;  // samples of a block
constexpr int64_t kHead = 24, kFeature = 80, kNameBytes = 64;
constexpr int64_t kMostFeatures = 4096, kMostDense = 65536, kMostBag = 65535;
constexpr int64_t kMostRows = (int64_t{1} << 32) - 1, kMostSamples = int64_t{1} << 48;

constexpr int64_t rounded(int64_t bytes) { return (bytes + 3) / 4 * 4; }

Status check_sizes(int64_t dense, int64_t features) {
  if (dense < 0 || dense > kMostDense) {
    return invalid_input(
        fmt::format("expected 0 to {} dense numbers, found {}", kMostDense, dense));
  }
  if (features < 0 || features > kMostFeatures || dense + features == 0) {
    return invalid_input(
        fmt::format("expected at most {} features, and one or a dense number, found {}",
                    kMostFeatures, features));
  }
  return {};
}

}  // namespace

int64_t ClickSchema::rows() const {
  int64_t sum = 0;
  for (const ClickFeature& feature : features) sum += feature.rows;
  return sum;
}

Status check_schema(const ClickSchema& schema) {
  TESSERA_TRY_VOID(check_sizes(schema.dense, std::ssize(schema.features)));
  std::set<std::string> names;
  for (const ClickFeature& feature : schema.features) {
    const std::string name = short_line(feature.name, 60);
    if (feature.name.empty() || std::ssize(feature.name) >= kNameBytes) {
      return invalid_input(
          fmt::format("expected a feature's name of 1 to 63 bytes, found '{}'", name));
    }
    if (!names.insert(feature.name).second) {
      return invalid_input(fmt::format("expected one feature '{}', found two", name));
    }
    if (feature.rows < 1 || feature.rows > kMostRows) {
      return invalid_input(fmt::format("feature '{}': expected 1 to {} rows of its table, found {}",
                                       name, kMostRows, feature.rows));
    }
    if (feature.bag < 1 || feature.bag > kMostBag) {
      return invalid_input(
          fmt::format("feature '{}': expected bags of 1 to {} ids at most, found "
                      "{}",
                      name, kMostBag, feature.bag));
    }
  }
  return {};
}

std::vector<int64_t> padded(const Bags& bags, int64_t capacity) {
  std::vector<int64_t> out(bags.lengths.size() * static_cast<size_t>(capacity), -1);
  const int64_t* from = bags.ids.data();
  int64_t* row = out.data();
  for (const int32_t length : bags.lengths) {
    TESSERA_CHECK(length <= capacity, "a bag of {} ids, capacity {}", length, capacity);
    std::copy_n(from, length, row);
    from += length;
    row += capacity;
  }
  return out;
}

// ---- reading

// The addresses of the parts of a block, in the order of the file: the number of ids of each
// feature (uint32), labels (uint8), dense numbers (float32), lengths of bags by feature (uint16),
// ids by feature (uint32). Each part begins at a multiple of four bytes.
struct ClickFile::Block {
  int64_t first = 0, samples = 0;  // the block's first sample, and its number of samples
  const std::byte* counts = nullptr;
  const std::byte* labels = nullptr;
  const std::byte* dense = nullptr;
  const std::byte* lengths = nullptr;
  const std::byte* ids = nullptr;

  // Returns the bytes of all parts before the ids, whose sizes follow from the schema.
  static int64_t fixed(int64_t samples, const ClickSchema& schema) {
    const int64_t features = std::ssize(schema.features);
    return 4 * features + rounded(samples) + 4 * samples * schema.dense +
           features * rounded(2 * samples);
  }
  const std::byte* lengths_of(size_t feature) const {
    return lengths + static_cast<int64_t>(feature) * rounded(2 * samples);
  }
  int64_t count(size_t feature) const { return read_number<uint32_t>(counts + 4 * feature); }
  int64_t length(size_t feature, int64_t sample) const {
    return read_number<uint16_t>(lengths_of(feature) + 2 * sample);
  }
  // Returns the ids of a sample. `of_feature` is where the ids of the feature begin in this block.
  std::span<const uint32_t> bag(size_t feature, int64_t sample, const std::byte* of_feature) const {
    const auto* lengths_here = reinterpret_cast<const uint16_t*>(lengths_of(feature));
    const int32_t before = std::accumulate(lengths_here, lengths_here + sample, int32_t{0});
    return {reinterpret_cast<const uint32_t*>(of_feature) + before, lengths_here[sample]};
  }
  const std::byte* ids_of(size_t feature) const {
    int64_t before = 0;
    for (size_t f = 0; f < feature; ++f) before += count(f);
    return ids + 4 * before;
  }
};

tl::unexpected<Error> ClickFile::error(const std::string& message) const {
  return invalid_input(fmt::format("'{}': {}", path_, message));
}

Result<ClickFile> ClickFile::open(const std::string& path) {
  ClickFile file;
  file.path_ = path;
  TESSERA_TRY(file.file_, MappedFile::open(path));
  TESSERA_TRY_VOID(file.read_head());
  TESSERA_TRY_VOID(file.find_blocks());
  file.ids_.resize(file.schema_.features.size());
  for (int64_t block = 0; block + 1 < std::ssize(file.blocks_); ++block) {
    TESSERA_TRY_VOID(file.check_block(block));
  }
  return file;
}

Status ClickFile::read_head() {
  const std::byte* bytes = file_.bytes();
  const std::string_view text(reinterpret_cast<const char*>(bytes),
                              static_cast<size_t>(file_.size()));
  if (file_.size() < kHead || !text.starts_with(kMagic)) {
    return error("expected a file of clicks (TSRCLCK1), found another head");
  }
  const auto samples = read_number<uint64_t>(bytes + 8);
  schema_.dense = read_number<uint32_t>(bytes + 16);
  const int64_t features = read_number<uint32_t>(bytes + 20);
  if (auto status = check_sizes(schema_.dense, features); !status) {
    return error(status.error().message);
  }
  if (samples > kMostSamples || kHead + features * kFeature > file_.size()) {
    return error(fmt::format("expected {} samples of {} features, the file has {} bytes", samples,
                             features, file_.size()));
  }
  samples_ = static_cast<int64_t>(samples);
  for (int64_t f = 0; f < features; ++f) {
    const std::byte* at = bytes + kHead + f * kFeature;
    const std::string_view name(reinterpret_cast<const char*>(at + 16), kNameBytes);
    ClickFeature feature;
    const auto rows = read_number<uint64_t>(at);
    feature.rows = static_cast<int64_t>(std::min<uint64_t>(rows, kMostRows + 1));
    feature.bag =
        static_cast<int64_t>(std::min<uint64_t>(read_number<uint64_t>(at + 8), kMostBag + 1));
    feature.name = name.substr(0, name.find('\0'));
    schema_.features.push_back(std::move(feature));
  }
  if (auto status = check_schema(schema_); !status) return error(status.error().message);
  return {};
}

Status ClickFile::find_blocks() {
  int64_t at = kHead + std::ssize(schema_.features) * kFeature;
  for (int64_t first = 0; first < samples_; first += kBlock) {
    blocks_.push_back(at);
    const int64_t fixed = Block::fixed(std::min(kBlock, samples_ - first), schema_);
    int64_t ids = 0;
    if (fixed > file_.size() - at) {
      at = file_.size() + 1;
      break;
    }
    for (size_t f = 0; f < schema_.features.size(); ++f) {
      ids += read_number<uint32_t>(file_.bytes() + at + 4 * f);
    }
    at += fixed;
    if (ids > (file_.size() - at) / 4) {
      at = file_.size() + 1;
      break;
    }
    at += 4 * ids;
  }
  const int64_t blocks = (samples_ + kBlock - 1) / kBlock;
  if (at != file_.size() || std::ssize(blocks_) != blocks) {
    return error(
        fmt::format("expected {} samples, found a file of {} bytes that ends elsewhere: "
                    "block {} of {}",
                    samples_, file_.size(), blocks_.size(), blocks));
  }
  blocks_.push_back(at);
  return {};
}

ClickFile::Block ClickFile::block(int64_t number) const {
  const int64_t features = std::ssize(schema_.features);
  Block block;
  block.first = number * kBlock;
  block.samples = std::min(kBlock, samples_ - block.first);
  block.counts = file_.bytes() + blocks_[static_cast<size_t>(number)];
  block.labels = block.counts + 4 * features;
  block.dense = block.labels + rounded(block.samples);
  block.lengths = block.dense + 4 * block.samples * schema_.dense;
  block.ids = block.lengths + features * rounded(2 * block.samples);
  return block;
}

Status ClickFile::check_block(int64_t number) {
  const Block block = this->block(number);
  for (int64_t i = 0; i < block.samples; ++i) {
    const auto label = read_number<uint8_t>(block.labels + i);
    if (label > 1) {
      return error(
          fmt::format("sample {}: expected label 0 or 1, found {}", block.first + i, label));
    }
    clicks_ += label;
  }
  for (int64_t i = 0; i < block.samples * schema_.dense; ++i) {
    if (std::isfinite(read_number<float>(block.dense + 4 * i))) continue;
    return error(fmt::format("sample {}: expected dense number {} to be finite, found another",
                             block.first + i / schema_.dense, i % schema_.dense));
  }
  const std::byte* ids = block.ids;
  for (size_t f = 0; f < schema_.features.size(); ++f) {
    const ClickFeature& feature = schema_.features[f];
    const std::string name = one_line(feature.name);
    const int64_t count = block.count(f);
    int64_t sum = 0;
    for (int64_t i = 0; i < block.samples; ++i) {
      const int64_t length = block.length(f, i);
      if (length > feature.bag) {
        return error(
            fmt::format("feature '{}', sample {}: expected a bag of at most {} ids, found "
                        "{}",
                        name, block.first + i, feature.bag, length));
      }
      sum += length;
      if (sum > count) {
        return error(fmt::format(
            "feature '{}', sample {}: expected lengths of samples {} to {} "
            "that add up to {}, found {} by now",
            name, block.first + i, block.first, block.first + block.samples - 1, count, sum));
      }
      for (int64_t k = 0; k < length; ++k, ids += 4) {
        const auto id = read_number<uint32_t>(ids);
        if (id < feature.rows) continue;
        return error(
            fmt::format("feature '{}', sample {}: expected ids below {} (rows of its "
                        "table), found row {}",
                        name, block.first + i, feature.rows, id));
      }
    }
    if (sum != count) {
      return error(
          fmt::format("feature '{}', sample {}: expected lengths of samples {} to {} that "
                      "add up to {}, found {}",
                      name, block.first + block.samples - 1, block.first,
                      block.first + block.samples - 1, count, sum));
    }
    ids_[f] += sum;
  }
  return {};
}

float ClickFile::label(int64_t sample) const {
  return read_number<uint8_t>(block(sample / kBlock).labels + sample % kBlock);
}

std::span<const float> ClickFile::dense(int64_t sample) const {
  const std::byte* at = block(sample / kBlock).dense + 4 * (sample % kBlock) * schema_.dense;
  return {reinterpret_cast<const float*>(at), static_cast<size_t>(schema_.dense)};
}

std::span<const uint32_t> ClickFile::bag(size_t feature, int64_t sample) const {
  const Block block = this->block(sample / kBlock);
  return block.bag(feature, sample % kBlock, block.ids_of(feature));
}

void ClickFile::read(std::span<const int64_t> samples, ClickBatch& batch) const {
  batch.labels.clear();
  batch.dense.clear();
  batch.bags.resize(schema_.features.size());
  for (Bags& bags : batch.bags) {
    bags.lengths.clear();
    bags.ids.clear();
  }
  for (const int64_t sample : samples) {
    TESSERA_CHECK(sample >= 0 && sample < samples_, "sample {} of {}", sample, samples_);
    batch.labels.push_back(label(sample));
    const auto numbers = dense(sample);
    batch.dense.insert(batch.dense.end(), numbers.begin(), numbers.end());
    const Block block = this->block(sample / kBlock);
    const std::byte* of_feature = block.ids;
    for (size_t f = 0; f < batch.bags.size(); ++f) {
      const auto ids = block.bag(f, sample % kBlock, of_feature);
      batch.bags[f].lengths.push_back(static_cast<int32_t>(ids.size()));
      batch.bags[f].ids.insert(batch.bags[f].ids.end(), ids.begin(), ids.end());
      of_feature += 4 * block.count(f);
    }
  }
}

// ---- writing

struct ClickWriter::State {
  std::string path, temporary;
  ClickSchema schema;
  std::FILE* file = nullptr;
  int64_t samples = 0;
  // The samples of the block that is not full yet.
  std::vector<uint8_t> labels;
  std::vector<float> dense;
  std::vector<std::vector<uint16_t>> lengths;
  std::vector<std::vector<uint32_t>> ids;

  ~State() {
    if (file == nullptr) return;
    std::fclose(file);
    std::remove(temporary.c_str());
  }

  Status failed() const {
    return fault(fmt::format("cannot write '{}': {}", path, std::strerror(errno)));
  }

  template <class T>
  void put(std::string& bytes, const std::vector<T>& numbers) const {
    bytes.append(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T));
    bytes.resize(static_cast<size_t>(rounded(std::ssize(bytes))));
  }

  Status write(const std::string& bytes) const {
    if (std::fwrite(bytes.data(), 1, bytes.size(), file) != bytes.size()) return failed();
    return {};
  }

  std::string head() const {
    std::string bytes(kMagic);
    const auto append = [&](auto value) {
      bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    };
    append(static_cast<uint64_t>(samples));
    append(static_cast<uint32_t>(schema.dense));
    append(static_cast<uint32_t>(schema.features.size()));
    for (const ClickFeature& feature : schema.features) {
      append(static_cast<uint64_t>(feature.rows));
      append(static_cast<uint64_t>(feature.bag));
      std::string name = feature.name;
      name.resize(kNameBytes);
      bytes += name;
    }
    return bytes;
  }

  Status flush() {
    if (labels.empty()) return {};
    std::string bytes;
    std::vector<uint32_t> counts;
    for (const auto& of_feature : ids) counts.push_back(static_cast<uint32_t>(of_feature.size()));
    put(bytes, counts);
    put(bytes, labels);
    put(bytes, dense);
    for (const auto& of_feature : lengths) put(bytes, of_feature);
    for (const auto& of_feature : ids) put(bytes, of_feature);
    labels.clear();
    dense.clear();
    for (auto& of_feature : lengths) of_feature.clear();
    for (auto& of_feature : ids) of_feature.clear();
    return write(bytes);
  }
};

ClickWriter::ClickWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
ClickWriter::~ClickWriter() = default;
ClickWriter::ClickWriter(ClickWriter&&) noexcept = default;
ClickWriter& ClickWriter::operator=(ClickWriter&&) noexcept = default;

int64_t ClickWriter::samples() const { return state_->samples; }

Result<ClickWriter> ClickWriter::create(const std::string& path, const ClickSchema& schema) {
  if (auto status = check_schema(schema); !status) {
    return invalid_input(fmt::format("'{}': {}", path, status.error().message));
  }
  TESSERA_TRY_VOID(check_replaceable(path));
  auto state = std::make_unique<State>();
  state->path = path;
  state->temporary = fmt::format("{}.tmp.{}", path, ::getpid());
  state->schema = schema;
  state->lengths.resize(schema.features.size());
  state->ids.resize(schema.features.size());
  state->file = std::fopen(state->temporary.c_str(), "wb");
  if (state->file == nullptr) {
    return invalid_input(fmt::format("cannot write '{}': {}", path, std::strerror(errno)));
  }
  TESSERA_TRY_VOID(state->write(state->head()));
  return ClickWriter(std::move(state));
}

Status ClickWriter::add(bool clicked, std::span<const float> dense,
                        std::span<const std::vector<uint32_t>> bags) {
  State& state = *state_;
  TESSERA_CHECK(
      std::ssize(dense) == state.schema.dense && bags.size() == state.schema.features.size(),
      "{} dense numbers, {} bags", dense.size(), bags.size());
  const auto wrong = [&](const std::string& message) {
    return invalid_input(fmt::format("'{}': sample {}: {}", state.path, state.samples, message));
  };
  for (const float number : dense) {
    if (!std::isfinite(number)) return wrong("expected dense numbers to be finite");
  }
  for (size_t f = 0; f < bags.size(); ++f) {
    const ClickFeature& feature = state.schema.features[f];
    const std::string name = one_line(feature.name);
    if (std::ssize(bags[f]) > feature.bag) {
      return wrong(fmt::format("feature '{}': expected a bag of at most {} ids, found {}", name,
                               feature.bag, bags[f].size()));
    }
    for (const uint32_t id : bags[f]) {
      if (id < feature.rows) continue;
      return wrong(
          fmt::format("feature '{}': expected ids below {} (rows of its table), found row "
                      "{}",
                      name, feature.rows, id));
    }
  }
  state.labels.push_back(clicked ? 1 : 0);
  state.dense.insert(state.dense.end(), dense.begin(), dense.end());
  for (size_t f = 0; f < bags.size(); ++f) {
    state.lengths[f].push_back(static_cast<uint16_t>(bags[f].size()));
    state.ids[f].insert(state.ids[f].end(), bags[f].begin(), bags[f].end());
  }
  ++state.samples;
  return std::ssize(state.labels) == kBlock ? state.flush() : Status();
}

// Writes the last block and then the head with the number of samples, syncs the file to the disk,
// and then gives the file its name.
Status ClickWriter::close() {
  State& state = *state_;
  TESSERA_TRY_VOID(state.flush());
  if (std::fseek(state.file, 0, SEEK_SET) != 0) return state.failed();
  TESSERA_TRY_VOID(state.write(state.head()));
  if (std::fflush(state.file) != 0 || ::fsync(::fileno(state.file)) != 0) return state.failed();
  const bool closed = std::fclose(std::exchange(state.file, nullptr)) == 0;
  if (!closed || std::rename(state.temporary.c_str(), state.path.c_str()) != 0) {
    Status status = state.failed();
    std::remove(state.temporary.c_str());
    return status;
  }
  return {};
}

}  // namespace tessera
