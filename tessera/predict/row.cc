#include "tessera/predict/row.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

#include "tessera/base/text.h"

namespace tessera {
namespace {

struct TextColumn {
  const char* name;
  std::string Row::*member;
};
constexpr TextColumn kTexts[] = {
    {"row_id", &Row::id}, {"source", &Row::source}, {"model", &Row::model}, {"gpu", &Row::gpu}};

struct SizeColumn {
  const char* name;
  std::optional<int64_t> Row::*member;
  int64_t minimum;
};
constexpr SizeColumn kSizes[] = {
    {"layers", &Row::layers, 1},
    {"hidden", &Row::hidden, 1},
    {"heads", &Row::heads, 1},
    {"kv_heads", &Row::kv_heads, 1},
    {"ffn", &Row::ffn, 1},
    {"seq", &Row::seq, 1},
    {"vocab", &Row::vocab, 1},
    {"n_gpus", &Row::gpus, 1},
    {"gpus_per_node", &Row::gpus_a_node, 1},
    {"tp", &Row::tp, 1},
    {"pp", &Row::pp, 1},
    {"vpp", &Row::vpp, 1},
    {"dp", &Row::dp, 1},
    {"cp", &Row::cp, 1},
    {"ep", &Row::ep, 1},
    {"zero", &Row::zero, 0},
    {"microbatch", &Row::microbatch, 1},
    {"global_batch", &Row::global_batch, 1},
};

constexpr SizeColumn kLowRank = {"lora", &Row::lora, 0};  // this column may be absent

constexpr double kLargest = 1e15;

// Reads a number >= 0, which may be written as "8.0" or "1e3". Returns no value if the cell is
// empty.
Result<std::optional<double>> number_or_none(const std::string& cell) {
  const std::string text(trim(cell));
  if (text.empty()) return std::optional<double>();
  const auto value = parse_double(text);
  if (!value || !(*value >= 0) || *value > kLargest) {
    return invalid_input(fmt::format("expected a number, found '{}'", text));
  }
  return std::optional<double>(*value);
}

Status read_size(const std::string& cell, const SizeColumn& column, Row& row) {
  TESSERA_TRY(const std::optional<double> value, number_or_none(cell));
  if (!value) return {};
  if (std::floor(*value) != *value || *value < static_cast<double>(column.minimum)) {
    return invalid_input(fmt::format("expected a whole number of at least {}, found '{}'",
                                     column.minimum, trim(cell)));
  }
  row.*column.member = static_cast<int64_t>(*value);
  return {};
}

// Returns the words of a text in lower case. A word is a sequence of letters or a sequence of
// digits; all other characters separate words ("r=8" has the words "r" and "8").
std::vector<std::string> plain_words(std::string_view text) {
  const auto kind = [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return std::isdigit(byte) != 0 ? 1 : std::isalpha(byte) != 0 ? 2 : 0;
  };
  std::vector<std::string> words;
  int last = 0;
  for (const char c : lower_case(text)) {
    const int now = kind(c);
    if (now != 0 && now != last) words.emplace_back();
    if (now != 0) words.back() += c;
    last = now;
  }
  return words;
}

// Returns whether the text means selective recomputation: it begins with "selective", or is a list
// of modules of Megatron-Core that selective recomputation covers.
bool is_selective(const std::string& text) {
  if (text.starts_with("selective")) return true;
  constexpr std::array<std::string_view, 9> kModules = {"core_attn",   "layernorm", "moe_act",
                                                        "mla_up_proj", "core",      "norm",
                                                        "act",         "mla_up",    "attention"};
  std::string words = text;
  std::replace_if(
      words.begin(), words.end(), [](char c) { return c == '+' || c == ' ' || c == ';'; }, ',');
  const std::vector<std::string> parts = split_text(words, ',');
  return std::all_of(parts.begin(), parts.end(), [&](const std::string& part) {
    return part.empty() || std::find(kModules.begin(), kModules.end(), part) != kModules.end();
  });
}

bool means_full(const std::string& text) {
  constexpr std::array<std::string_view, 7> kMeansFull = {"full", "uniform", "block", "all",
                                                          "yes",  "true",    "1"};
  return std::any_of(kMeansFull.begin(), kMeansFull.end(),
                     [&](std::string_view word) { return text.starts_with(word); });
}

Status check_columns(const CsvTable& table, std::string_view file) {
  std::vector<std::string> missing;
  for (const std::string& name : required_columns()) {
    if (table.find(name) < 0) missing.push_back(name);
  }
  if (missing.empty()) return {};
  const std::string best = nearest(missing[0], table.columns);
  return invalid_input(fmt::format(
      "{}:1: expected the column{} {}, found none{}", file, missing.size() == 1 ? "" : "s",
      "'" + join(missing, "', '") + "'", best.empty() ? "" : fmt::format("; nearest: '{}'", best)));
}

}  // namespace

std::string_view arithmetic_name(Arithmetic arithmetic) {
  constexpr std::array<std::string_view, 6> kNames = {"fp32", "tf32", "fp16", "bf16", "fp8", "fp4"};
  return kNames[static_cast<size_t>(arithmetic)];
}

bool is_wide(Arithmetic arithmetic) {
  return arithmetic == Arithmetic::kFp32 || arithmetic == Arithmetic::kTf32;
}

StatedLowRank low_rank_in(std::string_view text) {
  const std::vector<std::string> words = plain_words(text);
  StatedLowRank out;
  const auto at = [&](size_t i) { return i < words.size() ? words[i] : std::string(); };
  for (size_t i = 0; i < words.size(); ++i) {
    const bool two = words[i] == "low" && at(i + 1) == "rank";
    const bool quantised = words[i] == "qlora";
    if (!two && !quantised && words[i] != "lora" && words[i] != "lowrank") continue;
    const std::string before = i > 0 ? words[i - 1] : std::string();
    if (before == "no" || before == "not" || before == "without" || before == "non") continue;
    out.trains = true;
    out.narrow_base = out.narrow_base || quantised;
  }
  for (size_t i = 0; out.trains && !out.rank && i + 1 < words.size(); ++i) {
    if (words[i] != "rank" && words[i] != "r") continue;
    const auto number = parse_int(words[i + 1]);
    if (number && *number >= 1) out.rank = *number;
  }
  return out;
}

std::string_view recompute_name(Recompute what) {
  switch (what) {
    case Recompute::kNone: return "none";
    case Recompute::kSelective: return "selective";
    case Recompute::kExperts: return "experts";
    case Recompute::kFull: return "full";
  }
  return "";
}

StatedDtype::StatedDtype(std::string_view stated) : text(stated) {
  const std::string dtype = lower_case(stated);
  const auto has = [&](std::string_view part) { return dtype.find(part) != std::string::npos; };
  const bool half = has("fp16") || has("float16") || has("half");
  const bool brain = has("bf16") || has("bfloat16");
  either = brain && has("fp16");
  if (has("fp4")) {
    arithmetic = Arithmetic::kFp4;
  } else if (has("fp8") || has("float8") || has("f8")) {
    arithmetic = Arithmetic::kFp8;
  } else if ((has("bf16") && dtype.find("bf16") < dtype.find("fp16")) || has("bfloat16")) {
    arithmetic = Arithmetic::kBf16;
  } else if (half || has("amp") || has("mixed") || has("16")) {
    arithmetic = Arithmetic::kFp16;
  } else if (has("tf32") || has("tensorfloat")) {
    arithmetic = Arithmetic::kTf32;
  } else if (has("fp32") || has("float32") || has("32")) {
    arithmetic = Arithmetic::kFp32;
  }
}

StatedRecompute::StatedRecompute(std::string_view stated) : text(stated) {
  if (text.empty()) return;
  if (text.starts_with("none") || text == "no" || text == "false" || text == "0") {
    what = Recompute::kNone;
  } else if (text == "experts") {
    what = Recompute::kExperts;
  } else if (is_selective(text)) {
    what = Recompute::kSelective;
  } else {
    what = Recompute::kFull;
    known = means_full(text);
  }
}

const std::vector<std::string>& required_columns() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const TextColumn& column : kTexts) all.emplace_back(column.name);
    for (const SizeColumn& column : kSizes) all.emplace_back(column.name);
    for (const char* name : {"dtype", "recompute", "params"}) all.emplace_back(name);
    return all;
  }();
  return names;
}

Result<std::vector<Row>> read_rows(const CsvTable& table, std::string_view file) {
  TESSERA_TRY_VOID(check_columns(table, file));
  std::vector<Row> rows;
  rows.reserve(table.rows.size());
  for (size_t i = 0; i < table.rows.size(); ++i) {
    Row row;
    row.line = table.lines[i];
    const auto cell = [&](const char* name) -> const std::string& {
      return table.rows[i][static_cast<size_t>(table.find(name))];
    };
    for (const TextColumn& column : kTexts) {
      row.*column.member = std::string(trim(cell(column.name)));
    }
    row.dtype = trim(cell("dtype"));
    row.recompute = trim(cell("recompute"));
    const auto note = [&](const char* name, const Status& status) {
      if (status || !row.problem.empty()) return;
      row.problem = fmt::format("column '{}': {}", name, status.error().message);
    };
    for (const SizeColumn& column : kSizes) {
      note(column.name, read_size(cell(column.name), column, row));
    }
    if (table.find(kLowRank.name) >= 0)
      note(kLowRank.name, read_size(cell(kLowRank.name), kLowRank, row));
    if (table.find("notes") >= 0) row.notes = trim(cell("notes"));
    auto params = number_or_none(cell("params"));
    if (params) {
      row.params = *params;
    } else {
      note("params", tl::unexpected(params.error()));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace tessera
