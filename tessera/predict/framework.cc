#include "tessera/predict/framework.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <variant>

#include "tessera/base/check.h"
#include "tessera/base/text.h"
#include "tessera/cost/style.h"
#include "tessera/models/architecture.h"
#include "tessera/predict/machine.h"

namespace tessera {
namespace {

// ---- conditions on a row that suggest a framework; frameworks.toml explains each

enum class Condition : uint8_t {
  kRecent,
  kLate,
  kTuned,
  kFp4,
  kXla,
  kImages,
  kCut,
  kZero3,
  kSharded,
  kSilent,
  kFp16,
  kNarrow,
  kBf16,
  kLateMegatron
};
constexpr std::array<std::string_view, 14> kConditions = {
    "recent", "late",    "tuned",  "fp4",  "xla",    "images", "cut",
    "zero3",  "sharded", "silent", "fp16", "narrow", "bf16",   "late_megatron"};

using Features = std::array<bool, kConditions.size()>;

Features features_of(const Row& row, bool recent) {
  // A machine with an unknown name is treated as a recent one.
  const Machine machine = find_machine(row.gpu).value_or(Machine());
  const auto model = find_architecture(row.model);
  const auto more_than_one = [](const std::optional<int64_t>& degree) {
    return degree.value_or(1) > 1;
  };
  const auto is = [&](Arithmetic what) { return row.dtype.arithmetic == what; };
  Features out{};
  const auto set = [&out](Condition what, bool value) { out[static_cast<size_t>(what)] = value; };
  const bool sharded = row.zero.value_or(0) > 0;
  set(Condition::kRecent, recent);
  set(Condition::kLate, !machine.early);
  set(Condition::kTuned, machine.tuned);
  set(Condition::kFp4, machine.fp4);
  set(Condition::kXla, machine.xla);
  set(Condition::kImages, model && takes_images(*model));
  set(Condition::kCut, more_than_one(row.tp) || more_than_one(row.pp) || more_than_one(row.ep));
  set(Condition::kZero3, row.zero == 3);
  set(Condition::kSharded, sharded);
  set(Condition::kSilent, !row.tp && !row.pp && !row.zero && more_than_one(row.gpus));
  set(Condition::kFp16, is(Arithmetic::kFp16) && !row.dtype.either);
  set(Condition::kNarrow, is(Arithmetic::kFp8) || is(Arithmetic::kFp4));
  set(Condition::kBf16,
      row.dtype.empty() ? machine.bfloat16 : is(Arithmetic::kBf16) || row.dtype.either);
  set(Condition::kLateMegatron, !machine.early || sharded || more_than_one(row.cp) ||
                                    more_than_one(row.ep) ||
                                    row.recompute.what == Recompute::kSelective);
  return out;
}

// Conditions, each with whether it must hold (true) or must not hold (false).
using Wanted = std::vector<std::pair<Condition, bool>>;

bool holds(const Wanted& wanted, const Features& features) {
  return std::all_of(wanted.begin(), wanted.end(), [&](const auto& one) {
    return features[static_cast<size_t>(one.first)] == one.second;
  });
}

Result<Wanted> read_wanted(const DataTable& table, const std::vector<std::string>& names) {
  Wanted out;
  for (const std::string& name : names) {
    const bool is_not = name.starts_with('!');
    const auto* found = std::find(kConditions.begin(), kConditions.end(),
                                  std::string_view(name).substr(is_not ? 1 : 0));
    if (found == kConditions.end()) {
      return table.error("when",
                         fmt::format("expected conditions of {}, found '{}'",
                                     join({kConditions.begin(), kConditions.end()}, ", "), name));
    }
    out.emplace_back(static_cast<Condition>(found - kConditions.begin()), !is_not);
  }
  return out;
}

// ---- names of sources

struct Names {
  std::vector<std::string> names, words;  // in lower case
};

bool begins_word(std::string_view text, std::string_view word) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    if (at == 0 || !letter(text[at - 1]) || !letter(text[at])) return true;
  }
  return false;
}

// Returns whether the source is one of the names or has one of the words. `source` must be in lower
// case.
bool is_named_by(const Names& known, const std::string& source) {
  return std::find(known.names.begin(), known.names.end(), source) != known.names.end() ||
         std::any_of(known.words.begin(), known.words.end(),
                     [&](const std::string& word) { return begins_word(source, word); });
}

Result<Names> read_names(const DataTable& table) {
  Names out;
  TESSERA_TRY_VOID(table.texts("names", out.names));
  TESSERA_TRY_VOID(table.texts("words", out.words));
  if (out.names.empty() && out.words.empty()) return table.error("expected `names` or `words`");
  for (auto* list : {&out.names, &out.words}) {
    for (std::string& name : *list) name = lower_case(name);
  }
  return out;
}

// ---- options

using Option =
    std::variant<bool Framework::*, double Framework::*, int64_t Framework::*,
                 std::string Framework::*, Recompute Framework::*, CountedMemory Framework::*>;
const std::vector<std::pair<std::string, Option>>& options() {
  static const std::vector<std::pair<std::string, Option>> all = {
      {"recompute", &Framework::recompute},
      {"selective", &Framework::selective},
      {"recompute_last_stage", &Framework::recompute_last_stage},
      {"sequence_shard", &Framework::sequence_shard},
      {"sequence_shard_selective", &Framework::sequence_shard_selective},
      {"interleaved", &Framework::interleaved},
      {"sharded_state", &Framework::sharded_state},
      {"sharded_parameters", &Framework::sharded_parameters},
      {"gathers_once", &Framework::gathers_once},
      {"keeps_gathered", &Framework::keeps_gathered},
      {"narrow_gradients", &Framework::narrow_gradients},
      {"narrow_bf16_gradients", &Framework::narrow_bf16_gradients},
      {"fused_gating", &Framework::fused_gating},
      {"weigh_inside", &Framework::weigh_inside},
      {"flash_attention", &Framework::flash_attention},
      {"memory", &Framework::memory},
      {"dropout", &Framework::dropout},
      {"bucket_bytes", &Framework::bucket_bytes},
      {"prefetch", &Framework::prefetch},
      {"persistent_elements", &Framework::persistent_elements},
      {"whole_blocks", &Framework::whole_blocks},
      {"vocab_multiple", &Framework::vocab_multiple},
      {"vocab_from_tp", &Framework::vocab_from_tp},
      {"recompute_as_stated", &Framework::recompute_as_stated},
      {"benchmark_fine_tuning", &Framework::benchmark_fine_tuning},
      {"machine", &Framework::machine},
      {"style", &Framework::style}};
  return all;
}

Status set_value(Framework& framework, const Option& option, std::string_view value) {
  const auto number = parse_double(value);
  const auto wrong = [&](std::string_view expected) {
    return invalid_input(fmt::format("expected {}, found '{}'", expected, value));
  };
  if (const auto* flag = std::get_if<bool Framework::*>(&option)) {
    if (value != "true" && value != "false") return wrong("true or false");
    framework.** flag = value == "true";
  } else if (const auto* real = std::get_if<double Framework::*>(&option)) {
    if (!number || *number < 0 || *number >= 1) return wrong("a number from 0 to 1");
    framework.** real = *number;
  } else if (const auto* whole = std::get_if<int64_t Framework::*>(&option)) {
    if (!number || *number < 0 || *number > 1e15) return wrong("a whole number");
    framework.** whole = static_cast<int64_t>(*number);
  } else if (const auto* text = std::get_if<std::string Framework::*>(&option)) {
    framework.** text = std::string(value);
  } else if (const auto* counted = std::get_if<CountedMemory Framework::*>(&option)) {
    for (const CountedMemory what :
         {CountedMemory::kDevice, CountedMemory::kReserved, CountedMemory::kAllocated}) {
      if (memory_name(what) != value) continue;
      framework.** counted = what;
      return {};
    }
    return wrong("device, reserved or allocated");
  } else {
    for (const Recompute what :
         {Recompute::kNone, Recompute::kSelective, Recompute::kExperts, Recompute::kFull}) {
      if (recompute_name(what) != value) continue;
      framework.*std::get<Recompute Framework::*>(option) = what;
      return {};
    }
    return wrong("none, selective, experts or full");
  }
  return {};
}

}  // namespace

// ---- the file

struct FrameworkData {
  struct Source {
    Names names;
    std::string framework, sharded;
  };
  struct Site {
    Names names;
    std::string machine;
  };
  struct Successor {
    std::vector<std::string> of;
    std::string framework, said;
    std::vector<Wanted> when;  // one of these must hold
  };
  struct Guess {
    Wanted when;
    std::string framework;
  };
  std::vector<Framework> frameworks;
  std::vector<Source> sources;
  std::vector<Site> sites;
  std::vector<Successor> successors;
  std::vector<Guess> guesses;
};

namespace {

const Framework* find_framework(const std::vector<Framework>& all, std::string_view name) {
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const Framework& known) { return known.name == name; });
  return found == all.end() ? nullptr : &*found;
}

// Reads the name of a framework under `key`. Returns an error if the file does not define this
// framework earlier.
Status read_framework_name(const DataTable& table, std::string_view key,
                           const FrameworkData& framework_data, std::string& out) {
  TESSERA_TRY_VOID(table.text(key, out));
  if (!out.empty() && find_framework(framework_data.frameworks, out) == nullptr)
    return table.error(key, fmt::format("expected the name of a framework above, found '{}'", out));
  return {};
}

Status read_set(const DataTable& block, Framework& framework) {
  constexpr std::string_view kStyle = "style.";
  TESSERA_TRY(const Origin origin, block.origin());
  static_cast<void>(origin);
  TESSERA_TRY(const auto settings, block.settings());
  for (const auto& [key, value] : settings) {
    if (key.starts_with(kStyle)) {
      framework.style += fmt::format(",{}={}", key.substr(kStyle.size()), value);
    } else if (auto set = set_option(framework, key, value); !set) {
      return block.error(key, set.error().message);
    }
  }
  return {};
}

Result<Framework> read_framework(const DataTable& table, const FrameworkData& framework_data) {
  std::string name, like, style;
  for (const char* key : {"name", "style"}) TESSERA_TRY_VOID(table.require(key));
  TESSERA_TRY_VOID(table.text("name", name));
  TESSERA_TRY_VOID(table.text("style", style));
  TESSERA_TRY_VOID(read_framework_name(table, "like", framework_data, like));
  Framework out = like.empty() ? Framework() : *find_framework(framework_data.frameworks, like);
  out.name = name;
  out.style = style;
  if (find_framework(framework_data.frameworks, name) != nullptr)
    return table.error("name", fmt::format("the framework '{}' is there twice", name));
  TESSERA_TRY(const auto blocks, table.tables("set"));
  for (const DataTable& block : blocks) TESSERA_TRY_VOID(read_set(block, out));
  if (const auto parsed = parse_style(out.style); !parsed)
    return table.error("style", parsed.error().message);
  TESSERA_TRY_VOID(table.done());
  return out;
}

Status finish_framework(const DataTable& table) {
  TESSERA_TRY(const Origin origin, table.origin());
  static_cast<void>(origin);
  return table.done();
}

Result<FrameworkData::Source> read_source(const DataTable& table,
                                          const FrameworkData& framework_data) {
  FrameworkData::Source out;
  TESSERA_TRY(out.names, read_names(table));
  TESSERA_TRY_VOID(table.require("framework"));
  TESSERA_TRY_VOID(read_framework_name(table, "framework", framework_data, out.framework));
  TESSERA_TRY_VOID(read_framework_name(table, "sharded", framework_data, out.sharded));
  TESSERA_TRY_VOID(finish_framework(table));
  return out;
}

Result<FrameworkData::Site> read_site(const DataTable& table, const FrameworkData&) {
  FrameworkData::Site out;
  TESSERA_TRY(out.names, read_names(table));
  TESSERA_TRY_VOID(table.require("machine"));
  TESSERA_TRY_VOID(table.text("machine", out.machine));
  TESSERA_TRY_VOID(finish_framework(table));
  return out;
}

Result<FrameworkData::Successor> read_successor(const DataTable& table,
                                                const FrameworkData& framework_data) {
  FrameworkData::Successor out;
  for (const char* key : {"of", "framework", "when"}) TESSERA_TRY_VOID(table.require(key));
  TESSERA_TRY_VOID(table.texts("of", out.of));
  for (const std::string& name : out.of) {
    if (find_framework(framework_data.frameworks, name) == nullptr)
      return table.error("of", fmt::format("expected names of frameworks, found '{}'", name));
  }
  TESSERA_TRY_VOID(read_framework_name(table, "framework", framework_data, out.framework));
  TESSERA_TRY_VOID(table.text("said", out.said));
  TESSERA_TRY(const auto lists, table.rows("when"));
  for (const auto& names : lists) {
    TESSERA_TRY(Wanted wanted, read_wanted(table, names));
    out.when.push_back(std::move(wanted));
  }
  TESSERA_TRY_VOID(finish_framework(table));
  return out;
}

Result<FrameworkData::Guess> read_guess(const DataTable& table,
                                        const FrameworkData& framework_data) {
  FrameworkData::Guess out;
  for (const char* key : {"framework", "when"}) TESSERA_TRY_VOID(table.require(key));
  std::vector<std::string> names;
  TESSERA_TRY_VOID(table.texts("when", names));
  TESSERA_TRY(out.when, read_wanted(table, names));
  TESSERA_TRY_VOID(read_framework_name(table, "framework", framework_data, out.framework));
  TESSERA_TRY_VOID(finish_framework(table));
  return out;
}

template <class Value>
Status read_all(const DataTable& root, std::string_view key, FrameworkData& framework_data,
                Result<Value> (*read)(const DataTable&, const FrameworkData&),
                std::vector<Value>& out) {
  TESSERA_TRY(const auto tables, root.tables(key));
  for (const DataTable& table : tables) {
    TESSERA_TRY(Value value, read(table, framework_data));
    out.push_back(std::move(value));
  }
  return {};
}

const FrameworkData& framework_data() {
  static const std::shared_ptr<const FrameworkData> known = [] {
    auto parsed = parse_frameworks(text_of(predict_data(), "frameworks"), "frameworks.toml");
    TESSERA_CHECK(parsed.has_value(), "{}", parsed.error().message);
    return *std::move(parsed);
  }();
  return *known;
}

Framework named(std::string_view name) {
  return *find_framework(framework_data().frameworks, name);
}

// Returns the framework that replaced `name` by the time of the row (frameworks.toml, successors),
// or `name` itself. `reason` gets what the entry says about it.
std::string successor(const std::string& name, const Features& features, std::string& reason) {
  for (const auto& entry : framework_data().successors) {
    if (std::find(entry.of.begin(), entry.of.end(), name) == entry.of.end()) continue;
    if (std::none_of(entry.when.begin(), entry.when.end(),
                     [&](const Wanted& wanted) { return holds(wanted, features); }))
      continue;
    if (!entry.said.empty()) reason = entry.said;
    return entry.framework;
  }
  return name;
}

// Returns whether the framework is one of Megatron's family, which cannot shard parameters (zero =
// 3). Rows of its sources that state zero = 3 are of another framework.
bool shards_no_parameters(const Framework& framework) {
  return framework.vocab_multiple > 1 && framework.style != "deepspeed-2022";
}

Framework by_source(const Row& row, bool recent, std::string& reason) {
  const std::string source = lower_case(row.source);
  const Features features = features_of(row, recent);
  for (const auto& [names, framework, sharded] : framework_data().sources) {
    if (!is_named_by(names, source)) continue;
    if (row.zero == 3 && shards_no_parameters(named(framework))) {
      if (sharded.empty()) break;
      return named(sharded);
    }
    return named(successor(framework, features, reason));
  }
  for (const auto& [when, framework] : framework_data().guesses) {
    if (!holds(when, features)) continue;
    std::string said;
    const std::string name = successor(framework, features, said);
    reason = fmt::format("framework {} by model, degrees, dtype and GPU", name);
    Framework out = named(name);
    out.guessed = true;
    return out;
  }
  TESSERA_CHECK(false, "no guess holds for the row '{}'", row.id);
  return {};
}

}  // namespace

Result<std::shared_ptr<const FrameworkData>> parse_frameworks(std::string_view toml,
                                                              std::string_view file) {
  TESSERA_TRY(const DataTable root, parse_data(toml, file));
  auto out = std::make_shared<FrameworkData>();
  TESSERA_TRY_VOID(read_all(root, "framework", *out, read_framework, out->frameworks));
  TESSERA_TRY_VOID(read_all(root, "source", *out, read_source, out->sources));
  TESSERA_TRY_VOID(read_all(root, "site", *out, read_site, out->sites));
  TESSERA_TRY_VOID(read_all(root, "successor", *out, read_successor, out->successors));
  TESSERA_TRY_VOID(read_all(root, "guess", *out, read_guess, out->guesses));
  TESSERA_TRY_VOID(root.done());
  if (out->guesses.empty() || !out->guesses.back().when.empty())
    return root.error("expected a last [[guess]] without conditions");
  return std::shared_ptr<const FrameworkData>(std::move(out));
}

std::string_view memory_name(CountedMemory what) {
  switch (what) {
    case CountedMemory::kDevice: return "device";
    case CountedMemory::kReserved: return "reserved";
    case CountedMemory::kAllocated: return "allocated";
  }
  return "";
}

const std::vector<Framework>& all_frameworks() { return framework_data().frameworks; }

Framework framework_of(const Row& row, std::string& reason, bool recent) {
  Framework framework = by_source(row, recent, reason);
  const std::string source = lower_case(row.source);
  for (const auto& [names, machine] : framework_data().sites) {
    if (!is_named_by(names, source)) continue;
    framework.machine = machine;
    break;
  }
  return framework;
}

std::vector<std::string> framework_options() {
  std::vector<std::string> names;
  for (const auto& [name, option] : options()) names.push_back(name);
  return names;
}

Status set_option(Framework& framework, std::string_view key, std::string_view value) {
  for (const auto& [name, option] : options()) {
    if (name != key) continue;
    if (auto status = set_value(framework, option, value); !status) {
      return invalid_input(fmt::format("plan option '{}': {}", key, status.error().message));
    }
    return {};
  }
  return invalid_input(fmt::format("unknown plan option '{}', did you mean '{}'?", key,
                                   nearest(key, framework_options())));
}

}  // namespace tessera
