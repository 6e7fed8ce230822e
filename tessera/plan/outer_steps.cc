#include "tessera/plan/outer_steps.h"

#include <fmt/format.h>

#include <tuple>
#include <utility>
#include <vector>

#include "tessera/base/toml_reader.h"
#include "tessera/graph/optimizers.h"

namespace tessera {

bool operator==(const OuterSteps& a, const OuterSteps& b) {
  return std::tie(a.axis, a.every, a.fragments, a.delay, a.mix, a.optimizer, a.lr, a.momentum,
                  a.nesterov, a.compression) == std::tie(b.axis, b.every, b.fragments, b.delay,
                                                         b.mix, b.optimizer, b.lr, b.momentum,
                                                         b.nesterov, b.compression);
}

std::string to_toml(const OuterSteps& outer) {
  const OuterSteps usual;
  std::string out = fmt::format("{{ axis = \"{}\", every = {}", outer.axis, outer.every);
  if (outer.fragments != usual.fragments) out += fmt::format(", fragments = {}", outer.fragments);
  if (outer.delay != usual.delay) out += fmt::format(", delay = {}", outer.delay);
  if (outer.mix != usual.mix) out += fmt::format(", mix = {}", outer.mix);
  if (outer.optimizer != usual.optimizer)
    out += fmt::format(", optimizer = \"{}\"", outer.optimizer);
  if (outer.lr != usual.lr) out += fmt::format(", lr = {}", outer.lr);
  if (outer.momentum != usual.momentum) out += fmt::format(", momentum = {}", outer.momentum);
  if (outer.nesterov != usual.nesterov) out += fmt::format(", nesterov = {}", outer.nesterov);
  if (outer.compression) {
    out += fmt::format(", with = \"{}\"", codec_text(outer.compression->codec));
    if (outer.compression->error_feedback) out += ", error_feedback = true";
  }
  return out + " }";
}

namespace {

const std::vector<std::string> kOuterKeys{"axis",          "every", "fragments", "delay",    "mix",
                                          "optimizer",     "lr",    "momentum",  "nesterov", "with",
                                          "error_feedback"};

// Reads a number from `least` to `most`.
Status read_number(const TomlReader& reader, std::string_view key, double least, double most,
                   double& value) {
  const toml::node* node = reader.find(key);
  if (node == nullptr) return {};
  if (!node->is_number()) return reader.wrong_type(key, "a number", *node);
  value = node->value<double>().value_or(least);
  if (value >= least && value <= most) return {};
  return reader.error(reader.line_of(*node),
                      fmt::format("'{}' in {}: expected a number from {:g} to {:g}, found {:g}",
                                  key, reader.where(), least, most, value));
}

}  // namespace

Result<OuterSteps> read_outer_steps(const TomlReader& reader) {
  TESSERA_TRY_VOID(reader.allow(kOuterKeys));
  for (const std::string_view key : {"axis", "every"}) TESSERA_TRY_VOID(reader.require(key));
  OuterSteps outer;
  outer.line = reader.line();
  TESSERA_TRY_VOID(reader.string("axis", outer.axis));
  TESSERA_TRY_VOID(reader.integer("every", 1, outer.every));
  TESSERA_TRY_VOID(reader.integer("fragments", 1, outer.fragments));
  TESSERA_TRY_VOID(reader.integer("delay", 0, outer.delay));
  TESSERA_TRY_VOID(read_number(reader, "mix", 0, 1, outer.mix));
  TESSERA_TRY_VOID(reader.string("optimizer", outer.optimizer));
  if (find_optimizer(outer.optimizer) == nullptr)
    return reader.not_one_of("optimizer", "optimizer", outer.optimizer, optimizer_names());
  TESSERA_TRY_VOID(reader.positive("lr", outer.lr));
  TESSERA_TRY_VOID(read_number(reader, "momentum", 0, 1, outer.momentum));
  TESSERA_TRY_VOID(reader.boolean("nesterov", outer.nesterov));
  if (reader.has("with")) {
    std::string text;
    TESSERA_TRY_VOID(reader.string("with", text));
    const auto codec = parse_codec(text);
    if (!codec) return reader.error(reader.line_of("with"), codec.error().message);
    outer.compression = Compression{*codec, false};
    TESSERA_TRY_VOID(reader.boolean("error_feedback", outer.compression->error_feedback));
  } else if (reader.has("error_feedback")) {
    return reader.error(reader.line_of("error_feedback"), "'error_feedback' needs 'with'");
  }
  return outer;
}

}  // namespace tessera
