#include "tessera/data/criteo.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

#include "tessera/base/one_line.h"
#include "tessera/base/text.h"
#include "tessera/data/mapped_file.h"

namespace tessera {
namespace {

constexpr int64_t kFields = 1 + kCriteoDense + kCriteoFeatures;

std::string field_name(int64_t field) {
  if (field == 0) return "field 1 (label)";
  if (field <= kCriteoDense) return fmt::format("field {} (I{})", field + 1, field);
  return fmt::format("field {} (C{})", field + 1, field - kCriteoDense);
}

tl::unexpected<Error> bad_field(int64_t field, std::string_view what, std::string_view text) {
  return invalid_input(
      fmt::format("{}: expected {}, found '{}'", field_name(field), what, short_line(text, 60)));
}

Status read_field(int64_t field, std::string_view text, CriteoSample& sample) {
  if (field == 0) {
    const auto label = parse_double(text);
    if (!label || (*label != 0 && *label != 1)) return bad_field(field, "0 or 1", text);
    sample.clicked = *label == 1;
    return {};
  }
  if (text.empty()) return {};
  if (field <= kCriteoDense) {
    const auto number = parse_double(text);
    if (!number || *number != std::trunc(*number) || std::abs(*number) > 0x1p53) {
      return bad_field(field, "an integer or nothing", text);
    }
    sample.numbers[static_cast<size_t>(field - 1)] = *number;
    return {};
  }
  uint32_t category = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), category, 16);
  if (error != std::errc() || end != text.data() + text.size() || text.size() > 8) {
    return bad_field(field, "up to 8 hexadecimal digits or nothing", text);
  }
  sample.categories[static_cast<size_t>(field - 1 - kCriteoDense)] = category;
  return {};
}

// Calls f(line, its number) for each line that is not empty.
template <class F>
Status for_lines(std::string_view text, F&& f) {
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) TESSERA_TRY_VOID(f(line, number));
  }
  return {};
}

Status add_file(const std::string& path, const ClickSchema& schema, ClickWriter& writer) {
  TESSERA_TRY(const MappedFile file, MappedFile::open(path));
  const std::string_view text(reinterpret_cast<const char*>(file.bytes()),
                              static_cast<size_t>(file.size()));
  const std::string_view first = text.substr(0, text.find('\n'));
  const char separator = first.find('\t') == std::string_view::npos ? ',' : '\t';
  std::vector<float> dense(kCriteoDense);
  std::vector<std::vector<uint32_t>> bags(kCriteoFeatures);
  return for_lines(text, [&](std::string_view line, int64_t number) -> Status {
    if (number == 1 && line.starts_with("label")) return {};
    const auto sample = parse_criteo(line, separator);
    if (!sample) {
      return invalid_input(fmt::format("{}:{}: {}", path, number, sample.error().message));
    }
    for (size_t i = 0; i < dense.size(); ++i) dense[i] = criteo_dense(sample->numbers[i]);
    for (size_t f = 0; f < bags.size(); ++f) {
      bags[f].clear();
      if (const auto category = sample->categories[f]) {
        bags[f].push_back(
            criteo_id(*category, static_cast<int64_t>(f) + 1, schema.features[f].rows));
      }
    }
    return writer.add(sample->clicked, dense, bags);
  });
}

}  // namespace

Result<CriteoSample> parse_criteo(std::string_view line, char separator) {
  const auto fields = std::count(line.begin(), line.end(), separator) + 1;
  if (fields != kFields) {
    return invalid_input(fmt::format("expected {} fields, found {}", kFields, fields));
  }
  CriteoSample sample;
  for (int64_t field = 0; field < kFields; ++field) {
    const size_t end = std::min(line.find(separator), line.size());
    TESSERA_TRY_VOID(read_field(field, line.substr(0, end), sample));
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return sample;
}

float criteo_dense(std::optional<double> number) {
  return static_cast<float>(std::log1p(std::max(number.value_or(0), 0.0)));
}

uint32_t criteo_id(uint32_t category, int64_t feature, int64_t rows) {
  uint64_t h = category + (static_cast<uint64_t>(feature) << 32);
  h ^= h >> 33;
  h *= 0xff51afd7ed558ccdULL;
  h ^= h >> 33;
  h *= 0xc4ceb9fe1a85ec53ULL;
  h ^= h >> 33;
  return static_cast<uint32_t>(h % static_cast<uint64_t>(rows));
}

Result<int64_t> convert_criteo(const std::vector<std::string>& files,
                               const std::vector<int64_t>& rows, const std::string& out) {
  if (rows.size() != 1 && std::ssize(rows) != kCriteoFeatures) {
    return invalid_input(fmt::format("expected rows of {} tables, or one number for all, found {}",
                                     kCriteoFeatures, rows.size()));
  }
  ClickSchema schema;
  schema.dense = kCriteoDense;
  for (int64_t f = 0; f < kCriteoFeatures; ++f) {
    const int64_t of_table = rows.size() == 1 ? rows[0] : rows[static_cast<size_t>(f)];
    schema.features.push_back({fmt::format("C{}", f + 1), of_table, 1});
  }
  TESSERA_TRY(ClickWriter writer, ClickWriter::create(out, schema));
  for (const std::string& file : files) TESSERA_TRY_VOID(add_file(file, schema, writer));
  TESSERA_TRY_VOID(writer.close());
  return writer.samples();
}

}  // namespace tessera
