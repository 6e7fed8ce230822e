#include "tessera/data/generated_array.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/one_line.h"
#include "tessera/base/text.h"
#include "tessera/base/toml_reader.h"
#include "tessera/data/universes.h"

namespace tessera {
namespace {

using Opened = Result<std::unique_ptr<ArrayFile>>;

constexpr int64_t kMostSamples = int64_t{1} << 32;

// An argument of a generator: an integer and its range.
struct Argument {
  std::string name;
  int64_t* value;
  int64_t least, most;
  bool power_of_two = false;
};

Status set_argument(const Argument& argument, const std::string& text) {
  const auto number = parse_int(text);
  const bool fits = number && *number >= argument.least && *number <= argument.most &&
                    (!argument.power_of_two || std::has_single_bit(static_cast<uint64_t>(*number)));
  if (!fits) {
    return invalid_input(fmt::format("expected {} to be a {} from {} to {}, found '{}'",
                                     argument.name,
                                     argument.power_of_two ? "power of two" : "whole number",
                                     argument.least, argument.most, short_line(text)));
  }
  *argument.value = *number;
  return {};
}

Status set_arguments(const std::vector<Argument>& arguments, const Call& call) {
  std::vector<std::string> names;
  for (const Argument& argument : arguments) names.push_back(argument.name);
  for (const auto& [key, text] : call.arguments) {
    const auto found = std::find(names.begin(), names.end(), key);
    if (found == names.end()) {
      return invalid_input(fmt::format("expected the arguments {}, found '{}'{}", join(names, ", "),
                                       short_line(key.empty() ? text : key),
                                       did_you_mean(key, names)));
    }
    TESSERA_TRY_VOID(set_argument(arguments[static_cast<size_t>(found - names.begin())], text));
  }
  return {};
}

// The volumes of universes. With `cut` above 1, each volume is cut into `cut` parts in each dim,
// and each piece is a sample.
class Volumes : public ArrayFile {
 public:
  Volumes(UniverseOptions options, int64_t samples, int64_t cut)
      : universes_(options), width_(options.width), cut_(cut) {
    const int64_t side = width_ / cut;
    shape_ = {samples, side, side, side};
    number_ = Number::kFloat32;
  }
  int64_t file_bytes() const override { return elements() * number_bytes(number_); }

 protected:
  Status read_box(const Box& box, std::byte* to) const override {
    const int64_t pieces = cut_ * cut_ * cut_, side = width_ / cut_;
    const Interval samples = box.dims[0], x = box.dims[3];
    for (int64_t sample = samples.begin; sample < samples.end(); ++sample) {
      const std::vector<float> field = universes_.field(sample / pieces);
      const int64_t piece = sample % pieces;
      const std::array<int64_t, 3> at = {piece / cut_ / cut_ * side, piece / cut_ % cut_ * side,
                                         piece % cut_ * side};
      const size_t bytes = static_cast<size_t>(x.size) * sizeof(float);
      for (int64_t z = box.dims[1].begin; z < box.dims[1].end(); ++z) {
        for (int64_t y = box.dims[2].begin; y < box.dims[2].end(); ++y) {
          const int64_t from = ((at[0] + z) * width_ + at[1] + y) * width_ + at[2] + x.begin;
          std::memcpy(to, field.data() + from, bytes);
          to += bytes;
        }
      }
    }
    return {};
  }

 private:
  Universes universes_;
  int64_t width_, cut_;
};

// The parameters of the samples: a piece of a universe has the parameter of the universe.
class Parameters : public ArrayFile {
 public:
  Parameters(UniverseOptions options, int64_t samples, int64_t cut)
      : universes_(options), pieces_(cut * cut * cut) {
    shape_ = {samples, 1};
    number_ = Number::kFloat32;
  }
  int64_t file_bytes() const override { return elements() * number_bytes(number_); }

 protected:
  Status read_box(const Box& box, std::byte* to) const override {
    const Interval samples = box.dims[0];
    for (int64_t sample = samples.begin; sample < samples.end(); ++sample) {
      const auto value = static_cast<float>(universes_.parameter(sample / pieces_));
      std::memcpy(to, &value, sizeof value);
      to += sizeof value;
    }
    return {};
  }

 private:
  Universes universes_;
  int64_t pieces_;
};

Opened open_universes(const Call& call, const std::string& dataset) {
  constexpr int64_t kLeast = 4, kMost = 256;  // the range of the width
  constexpr int64_t kSteepest = 4;
  UniverseOptions options;
  int64_t samples = 1024, cut = 1;
  TESSERA_TRY_VOID(set_arguments({{"width", &options.width, kLeast, kMost, true},
                                  {"samples", &samples, 1, kMostSamples},
                                  {"seed", &options.seed, 0, kMostSamples},
                                  {"cut", &cut, 1, kMost, true},
                                  {"exponent", &options.exponent, 0, kSteepest}},
                                 call));
  if (cut > options.width) {
    return invalid_input(
        fmt::format("expected cut to be at most width, {}, found {}", options.width, cut));
  }
  if (dataset == "volumes") return std::make_unique<Volumes>(options, samples, cut);
  if (dataset == "parameters") return std::make_unique<Parameters>(options, samples, cut);
  return invalid_input(
      fmt::format("expected a dataset volumes or parameters, found '{}'", short_line(dataset)));
}

struct Generator {
  std::string name;
  Opened (*open)(const Call& call, const std::string& dataset);
};

const std::vector<Generator>& generators() {
  static const std::vector<Generator> table = {{"universes", open_universes}};
  return table;
}

}  // namespace

bool is_generator(std::string_view path) {
  return !path.empty() && path.back() == ')' && path.find('/') == std::string_view::npos;
}

Opened open_generated(const ArrayName& name) {
  const auto error = [&](std::string_view message) {
    return invalid_input(fmt::format("'{}': {}", short_line(name.path), message));
  };
  const auto call = parse_call(name.path);
  if (!call) return error(call.error().message);
  std::vector<std::string> names;
  for (const Generator& generator : generators()) {
    names.push_back(generator.name);
    if (generator.name != call->name) continue;
    auto opened = generator.open(*call, name.dataset);
    if (!opened) return error(opened.error().message);
    return opened;
  }
  return error(fmt::format("expected a generator of arrays, {}, found '{}'", join(names, ", "),
                           short_line(call->name)));
}

}  // namespace tessera
