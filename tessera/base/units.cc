#include "tessera/base/units.h"

#include <fmt/format.h>

#include <cmath>
#include <span>
#include <vector>

#include "tessera/base/text.h"

namespace tessera {
namespace {

struct Unit {
  std::string_view name;
  double scale;  // one such unit in base units
};

// A quantity for messages (`noun`, `example`) and its units. Decimal units come first; decimal and
// other units are each sorted from small to large.
struct Scale {
  std::string_view noun, example;
  std::span<const Unit> units;
  size_t decimal;  // number of decimal units, which short_quantity() uses
};

constexpr double kKi = 1024, kMi = kKi * 1024, kGi = kMi * 1024, kTi = kGi * 1024;
constexpr Unit kBytes[] = {{"B", 1},     {"kB", 1e3},  {"MB", 1e6},  {"GB", 1e9},  {"TB", 1e12},
                           {"PB", 1e15}, {"KiB", kKi}, {"MiB", kMi}, {"GiB", kGi}, {"TiB", kTi}};
constexpr Unit kRates[] = {
    {"B/s", 1},       {"kB/s", 1e3},     {"MB/s", 1e6},     {"GB/s", 1e9},     {"TB/s", 1e12},
    {"PB/s", 1e15},   {"KiB/s", kKi},    {"MiB/s", kMi},    {"GiB/s", kGi},    {"TiB/s", kTi},
    {"b/s", 1.0 / 8}, {"kb/s", 1e3 / 8}, {"Mb/s", 1e6 / 8}, {"Gb/s", 1e9 / 8}, {"Tb/s", 1e12 / 8}};
constexpr Unit kFlops[] = {
    {"FLOP/s", 1}, {"MFLOP/s", 1e6}, {"GFLOP/s", 1e9}, {"TFLOP/s", 1e12}, {"PFLOP/s", 1e15}};
constexpr Unit kSeconds[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
constexpr Unit kHertz[] = {{"Hz", 1}, {"kHz", 1e3}, {"MHz", 1e6}, {"GHz", 1e9}};

Scale scale_of(Quantity what) {
  switch (what) {
    case Quantity::kBytes: return {"a size", "80 GB", kBytes, 6};
    case Quantity::kBytesPerSecond: return {"a rate", "300 GB/s", kRates, 6};
    case Quantity::kFlops: return {"a rate", "312 TFLOP/s", kFlops, 5};
    case Quantity::kSeconds: return {"a time", "5 us", kSeconds, 4};
    case Quantity::kHertz: return {"a frequency", "1410 MHz", kHertz, 4};
  }
  return {};
}

// Returns number * scale. A scale below 0.1 (a negative power of ten) is not exact in floating
// point, so the function divides by its inverse, which is exact, and rounds only once.
double times(double number, double scale) {
  return scale < 1e-1 && scale > 0 ? number / std::round(1 / scale) : number * scale;
}

}  // namespace

std::string example_of(Quantity what) {
  const Scale scale = scale_of(what);
  return fmt::format("{} as '{}'", scale.noun, scale.example);
}

Result<double> parse_quantity(std::string_view text, Quantity what) {
  const Scale scale = scale_of(what);
  const std::string_view figure = trim(text);
  const size_t end = std::min(figure.find_first_not_of("0123456789.eE+-"), figure.size());
  const auto number = parse_double(trim(figure.substr(0, end)));
  const std::string_view unit = trim(figure.substr(end));
  if (!number || !std::isfinite(*number)) {
    return invalid_input(fmt::format("expected {} with a unit, as '{}', found '{}'", scale.noun,
                                     scale.example, text));
  }
  std::vector<std::string> names;
  for (const Unit& known : scale.units) {
    if (known.name == unit) return times(*number, known.scale);
    names.emplace_back(known.name);
  }
  if (unit.empty()) {
    return invalid_input(fmt::format("expected {} with a unit, as '{}', found '{}' without one",
                                     scale.noun, scale.example, text));
  }
  return invalid_input(
      fmt::format("expected {} in one of {}, found the unit '{}', did you mean '{}'?", scale.noun,
                  join(names, " "), unit, nearest(unit, names)));
}

std::string format_quantity(double value, Quantity what) {
  const Scale scale = scale_of(what);
  std::string best;
  for (const Unit& unit : scale.units) {
    for (const double number : {value / unit.scale, value * std::round(1 / unit.scale)}) {
      const std::string text = fmt::format("{} {}", number, unit.name);
      const bool better = best.empty() || text.size() < best.size();
      if (!better) continue;
      const auto parsed = parse_quantity(text, what);
      if (parsed && *parsed == value) best = text;
    }
  }
  return best;
}

std::string short_quantity(double value, Quantity what) {
  const Scale scale = scale_of(what);
  const Unit* best = &scale.units[0];
  for (const Unit& unit : scale.units.first(scale.decimal)) {
    if (std::abs(value) >= unit.scale * (1 - 1e-9)) best = &unit;
  }
  if (value == 0 && what == Quantity::kSeconds) best = &scale.units[scale.decimal - 1];
  return fmt::format("{:.4g} {}", value / best->scale, best->name);
}

}  // namespace tessera
