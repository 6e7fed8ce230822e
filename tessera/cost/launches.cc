#include "tessera/cost/launches.h"

#include <algorithm>

#include "tessera/base/check.h"
#include "tessera/base/text.h"
#include "tessera/cost/style_data.h"

namespace tessera {
namespace {

Result<std::vector<KindLaunches>> read_launches(std::string_view toml, std::string_view file) {
  TESSERA_TRY(const DataTable root, parse_data(toml, file));
  TESSERA_TRY(const auto rows, root.rows("counts"));
  std::vector<KindLaunches> out;
  for (const std::vector<std::string>& row : rows) {
    const bool whole = row.size() == 3;
    const auto wide = parse_double(whole ? row[1] : ""), narrow = parse_double(whole ? row[2] : "");
    if (!wide || !narrow) {
      return root.error("counts",
                        "expected rows of a kind and two numbers, found '" + join(row, ", ") + "'");
    }
    out.push_back({row[0], *wide, *narrow});
  }
  TESSERA_TRY_VOID(root.done());
  return out;
}

double count_of(const KindLaunches& row, DType dtype) {
  return dtype_bytes(dtype) > 2 ? row.wide : row.narrow;
}

}  // namespace

const std::vector<KindLaunches>& all_launches() {
  static const std::vector<KindLaunches> all = [] {
    auto parsed = read_launches(text_of(cost_data(), "launches"), "launches.toml");
    TESSERA_CHECK(parsed.has_value(), "{}", parsed.error().message);
    TESSERA_CHECK(std::ranges::is_sorted(*parsed, {}, &KindLaunches::kind), "kinds are sorted");
    return *std::move(parsed);
  }();
  return all;
}

double launches_of(std::string_view kind, DType dtype) {
  const std::vector<KindLaunches>& all = all_launches();
  const auto found = std::ranges::lower_bound(all, kind, {}, &KindLaunches::kind);
  if (found != all.end() && found->kind == kind) return count_of(*found, dtype);
  std::vector<double> counts;
  counts.reserve(all.size());
  for (const KindLaunches& row : all) counts.push_back(count_of(row, dtype));
  const auto middle = counts.begin() + static_cast<std::ptrdiff_t>(counts.size() / 2);
  std::nth_element(counts.begin(), middle, counts.end());
  return *middle;
}

}  // namespace tessera
