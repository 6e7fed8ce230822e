// Criteo's text format of display advertising logs, and its conversion to a file of clicks.
//
// A line is a sample of 40 fields, separated by tabs: the label (0 or 1), 13 integers I1 to I13,
// and 26 categories C1 to C26 of up to 8 hexadecimal digits. An empty field means that the value is
// missing. Some files separate fields by commas, begin with a line of column names, or write
// numbers as "260.0"; they can be read, too. Lines may end in \r\n.
//
//   dense number i    ln(1 + max(I, 0)); 0 if I is missing
//   bag of feature j  one id: hash(C, j) mod the number of rows of table j; empty if C is missing
//
// hash(C, j) is the finaliser of MurmurHash3 (64 bits), applied to C + (j << 32); j counts from 1.
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
// Parses a line. Errors name the field but not the line: "expected 40 fields, found 39", "field 3
// (I2): expected ...".
Result<CriteoSample> parse_criteo(std::string_view line, char separator);

float criteo_dense(std::optional<double> number);
uint32_t criteo_id(uint32_t category, int64_t feature, int64_t rows);  // `feature` counts from 1

// Writes the samples of all files, in the order of `files`, to one file of clicks `out`, and
// returns their number. `rows` has the number of rows of each of the 26 tables, or one number for
// all tables. Errors: a bad line, "day_0.txt:17: ..."; then nothing is written.
Result<int64_t> convert_criteo(const std::vector<std::string>& files,
                               const std::vector<int64_t>& rows, const std::string& out);

}  // namespace tessera
