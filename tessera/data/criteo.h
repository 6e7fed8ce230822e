// Criteo's text format of display advertising logs, and its conversion to a file of clicks.
//
// A line is a sample of 40 fields, separated by tabs: the label (0 or 1), 13 integers I1 to I13, and
// 26 categories C1 to C26 of up to 8 hexadecimal digits. A field may be empty: missing. Files with
// commas instead, with a first line of column names, and with numbers such as "260.0" are read as
// well. Lines may end in \r\n.
//
//   dense number i    ln(1 + max(I, 0)), 0 if it is missing
//   bag of feature j  one id, hash(C, j) mod rows of table j; empty if the category is missing
//
// hash(C, j) is the finaliser of MurmurHash3 (64 bits) of C + (j << 32), j from 1.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/data/click_file.h"

namespace tessera {

inline constexpr int64_t kCriteoDense = 13, kCriteoFeatures = 26;

struct CriteoSample {
  bool clicked = false;
  std::array<std::optional<double>, kCriteoDense> numbers;
  std::array<std::optional<uint32_t>, kCriteoFeatures> categories;
};
// Parses a line. Errors lack the place: "expected 40 fields, found 39", "field 3 (I2): expected
// ...".
Result<CriteoSample> parse_criteo(std::string_view line, char separator);

float criteo_dense(std::optional<double> number);
uint32_t criteo_id(uint32_t category, int64_t feature, int64_t rows);  // feature from 1

// Writes the samples of the files, one file behind the other, as a file of clicks. `rows` gives
// those of each of the 26 tables, or one number for all. Returns the number of samples. Errors: a
// bad line, as "day_0.txt:17: ..."; nothing is written then.
Result<int64_t> convert_criteo(const std::vector<std::string>& files,
                               const std::vector<int64_t>& rows, const std::string& out);

}  // namespace tessera
