#include "tessera/base/units.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

namespace tessera::units_test {
namespace {

const std::vector<Quantity> kAll{Quantity::kBytes, Quantity::kBytesPerSecond, Quantity::kFlops,
                                 Quantity::kSeconds, Quantity::kHertz};

std::string error_of(std::string_view text, Quantity what) {
  const auto value = parse_quantity(text, what);
  return value ? "accepted" : value.error().message;
}

TEST(Units, AreScaled) {
  EXPECT_EQ(parse_quantity("312 TFLOP/s", Quantity::kFlops), 312e12);
  EXPECT_EQ(parse_quantity("80 GB", Quantity::kBytes), 80e9);
  EXPECT_EQ(parse_quantity("80 GiB", Quantity::kBytes), 85899345920.0);
  EXPECT_EQ(parse_quantity("2039GB/s", Quantity::kBytesPerSecond), 2039e9);
  EXPECT_EQ(parse_quantity("200 Gb/s", Quantity::kBytesPerSecond), 25e9);
  EXPECT_EQ(parse_quantity(" 5 us ", Quantity::kSeconds), 5e-6);
  EXPECT_EQ(parse_quantity("1.5e3 ms", Quantity::kSeconds), 1.5);
  EXPECT_EQ(parse_quantity("1410 MHz", Quantity::kHertz), 1.41e9);
}

TEST(Units, ErrorsSayWhatIsAllowed) {
  EXPECT_EQ(error_of("80", Quantity::kBytes),
            "expected a size with a unit, as '80 GB', found '80' without one");
  EXPECT_EQ(error_of("fast", Quantity::kFlops),
            "expected a rate with a unit, as '312 TFLOP/s', found 'fast'");
  EXPECT_EQ(error_of("5 usec", Quantity::kSeconds),
            "expected a time in one of ns us ms s, found the unit 'usec', did you mean 'us'?");
  EXPECT_EQ(error_of("1 GB", Quantity::kHertz),
            "expected a frequency in one of Hz kHz MHz GHz, found the unit 'GB', did you mean "
            "'Hz'?");
  EXPECT_EQ(error_of("", Quantity::kSeconds), "expected a time with a unit, as '5 us', found ''");
  EXPECT_EQ(error_of("1e999 s", Quantity::kSeconds),
            "expected a time with a unit, as '5 us', found '1e999 s'");
}

TEST(Units, PrintTheShortestText) {
  EXPECT_EQ(format_quantity(312e12, Quantity::kFlops), "312 TFLOP/s");
  EXPECT_EQ(format_quantity(80e9, Quantity::kBytes), "80 GB");
  EXPECT_EQ(format_quantity(81920.0 * 1024 * 1024, Quantity::kBytes), "80 GiB");
  EXPECT_EQ(format_quantity(3.5e-6, Quantity::kSeconds), "3.5 us");
  EXPECT_EQ(format_quantity(0, Quantity::kSeconds), "0 s");
  EXPECT_EQ(short_quantity(2.0391e12, Quantity::kBytesPerSecond), "2.039 TB/s");
  EXPECT_EQ(short_quantity(5e-6, Quantity::kSeconds), "5 us");
  EXPECT_EQ(short_quantity(0.03, Quantity::kSeconds), "30 ms");
  EXPECT_EQ(short_quantity(0, Quantity::kSeconds), "0 s");
  EXPECT_EQ(short_quantity(12, Quantity::kBytes), "12 B");
}

// Beyond 2^53 a value plus one equals the value, and a large value has no finite number of
// nanoseconds.
TEST(Units, LargeFiguresParseToTheSameValue) {
  const double value = std::bit_cast<double>(uint64_t{9084092552057378453});
  EXPECT_EQ(parse_quantity(format_quantity(value, Quantity::kSeconds), Quantity::kSeconds).value(),
            value);
}

RC_GTEST_PROP(Units, PrintedFiguresParseToTheSameValue, ()) {
  const double value = std::bit_cast<double>(*rc::gen::arbitrary<uint64_t>());
  RC_PRE(std::isfinite(value));
  for (const Quantity what : kAll) {
    const auto parsed = parse_quantity(format_quantity(value, what), what);
    RC_ASSERT(parsed.has_value());
    RC_ASSERT(*parsed == value);
  }
}

}  // namespace
}  // namespace tessera::units_test
