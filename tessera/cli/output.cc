#include "tessera/cli/output.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "tessera/base/json_text.h"
#include "tessera/base/memory_text.h"
#include "tessera/base/one_line.h"
#include "tessera/base/text.h"
#include "tessera/cli/libraries/caller.h"

namespace tessera::cli {
namespace {

// Returns the rank that an MPI launcher gave this process; 0 if there is no launcher.
int launched_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    if (const char* value = std::getenv(name)) return std::atoi(value);
  }
  return 0;
}

// Returns an object's text with the number of the format, and the lines that stand first, as its
// first keys. `text` begins with '{'; its indentation is kept.
std::string with_schema(std::string_view text, const std::vector<std::string>& first) {
  nlohmann::ordered_json head{{"schema", kJsonSchema}};
  if (!first.empty()) head["notes"] = first;
  std::string keys = dumped(head);
  keys = keys.substr(1, keys.size() - 2);  // without the braces
  size_t after = 1;
  while (after < text.size() && (text[after] == '\n' || text[after] == ' ')) ++after;
  const std::string_view gap = text.substr(1, after - 1);
  const bool is_empty = after < text.size() && text[after] == '}';
  return fmt::format("{{{}{}{}{}{}", gap, keys, is_empty ? "" : ",", is_empty ? "" : gap,
                     text.substr(after));
}

// Returns the text as it is printed: in JSON with the number of the format, else after the lines
// that stand first.
std::string in_manner(std::string_view text) {
  Call& call = this_call();
  const std::vector<std::string> first = std::exchange(call.first, {});
  if (call.json) {
    if (call.has_schema || !text.starts_with('{')) return std::string(text);
    call.has_schema = true;
    return with_schema(text, first);
  }
  std::string before;
  for (const std::string& line : first)
    before += fmt::format("{}{}\n", text.starts_with('#') ? "# " : "", one_line(line));
  if (!text.starts_with('{')) return before.append(text);
  call.caller->note(before);  // the text is JSON for another program
  return std::string(text);
}

}  // namespace

void answer_in_json() { this_call().json = true; }

void say_first(std::string line) { this_call().first.push_back(std::move(line)); }

int print(std::string_view given) {
  const Status written = this_call().caller->answer(in_manner(given));
  return written ? 0 : fail(written.error());
}

void note(std::string_view text) { this_call().caller->note(text); }

int fail(const Error& error) {
  // Every rank finds the same wrong input, so only rank 0 reports it. A fault is reported by each
  // rank that met it, with its rank.
  if (error.code == ErrorCode::kFault || launched_rank() == 0) {
    const Call& call = this_call();
    call.caller->note(fmt::format("tessera: {}\n", message_line(error.message)));
    if (call.json && !call.has_schema) {  // an answer that was printed stays one object
      const nlohmann::ordered_json object{
          {"schema", kJsonSchema},
          {"error", {{"code", exit_code(error.code)}, {"message", message_line(error.message)}}}};
      // An answer that cannot be written either has been reported by the line above.
      (void)call.caller->answer(dumped(object) + "\n");
    }
  }
  return exit_code(error.code);
}

void Table::add(std::vector<std::string> row) {
  for (std::string& cell : row) cell = one_line(cell);
  rows_.push_back(std::move(row));
}

std::string Table::to_string(std::string_view indent) const {
  std::vector<size_t> width;
  for (const auto& row : rows_) {
    width.resize(std::max(width.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows_) {
    std::string line(indent);
    for (size_t i = 0; i < row.size(); ++i) {
      line += i == 0 ? fmt::format("{:<{}}", row[i], width[i])
                     : fmt::format("  {:>{}}", row[i], width[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string grouped(int64_t value) {
  std::string digits = std::to_string(value);
  const size_t first = value < 0 ? 1 : 0;
  for (size_t at = digits.size(); at > first + 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

std::string short_bytes(int64_t bytes) { return memory_text(static_cast<double>(bytes)); }

std::string short_number(double value) {
  constexpr std::array<std::string_view, 7> kUnits = {"", " K", " M", " G", " T", " P", " E"};
  size_t unit = 0;
  for (; std::abs(value) >= 1000 && unit + 1 < kUnits.size(); value /= 1000) ++unit;
  return unit == 0 ? fmt::format("{:g}", value) : fmt::format("{:.4g}{}", value, kUnits[unit]);
}

std::string short_seconds(double s) {
  const double size = std::abs(s);
  if (size == 0) return "0 s";
  if (size < 1e-3) return fmt::format("{:.3g} us", s * 1e6);
  if (size < 1) return fmt::format("{:.3g} ms", s * 1e3);
  return size < 100 ? fmt::format("{:.3g} s", s) : fmt::format("{:.0f} s", s);
}

std::string accuracy_text(double share) {
  return std::isfinite(share) ? fmt::format("accuracy {:.2f} %", 100 * share) : "accuracy none";
}

std::string plural(int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", grouped(count), noun, count == 1 ? "" : "s");
}

}  // namespace tessera::cli
