// tessera accuracy: compares predictions with the measured times that a CSV lists.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "tessera/base/text.h"
#include "tessera/cli/cli.h"
#include "tessera/cli/output.h"
#include "tessera/cli/with_planning/commands.h"
#include "tessera/predict/accuracy.h"

namespace tessera::cli {
namespace {

struct AccuracyJob {
  std::string rows, constants, out, check, each;
  std::vector<std::string> reality;
  AccuracyOptions how;
  bool json = false;
};

// How many characters of each of two lines are shown, and how many of these are before the first
// difference.
constexpr size_t kShown = 120, kShownBefore = 40;

// Returns an error that names the first line in which the page differs from the committed one. The
// error shows both lines, from a few words before the place where they differ.
Status check_page(const std::string& path, const std::string& page) {
  TESSERA_TRY(const std::string committed, read_file(path));
  if (committed == page) return {};
  const auto old_lines = split_text(committed, '\n'), new_lines = split_text(page, '\n');
  size_t line = 0;
  while (line < old_lines.size() && line < new_lines.size() && old_lines[line] == new_lines[line]) {
    ++line;
  }
  const auto at = [line](const std::vector<std::string>& lines) {
    return line < lines.size() ? lines[line] : std::string();
  };
  const std::string now = at(new_lines), before = at(old_lines);
  const auto differ = std::mismatch(now.begin(), now.end(), before.begin(), before.end());
  const auto equal = static_cast<size_t>(differ.first - now.begin());
  const size_t from = equal < kShownBefore ? 0 : equal - kShownBefore;
  const auto shown = [&](const std::string& text) {
    return fmt::format("{}{}{}", from > 0 ? "..." : "", text.substr(from, kShown),
                       text.size() > from + kShown ? "..." : "");
  };
  return check_failed(fmt::format("{}:{}: expected '{}', found '{}'; make accuracy writes it anew",
                                  path, line + 1, shown(now), shown(before)));
}

// Compares the page with a committed one, writes it, or prints it, as the options ask.
Result<int> put_out(const AccuracyJob& options, const std::string& page, const std::string& json) {
  if (!options.check.empty()) TESSERA_TRY_VOID(check_page(options.check, page));
  if (!options.out.empty()) TESSERA_TRY_VOID(write_file(options.out, page));
  if (options.json) return print(json);
  const bool written = !options.out.empty() || !options.each.empty();
  return written || !options.check.empty() ? 0 : print(page);
}

Result<int> run_accuracy(const AccuracyJob& options) {
  std::vector<Reality> reality;  // read first, so faults are found before rows are priced
  for (const std::string& file : options.reality) {
    TESSERA_TRY(const std::string measured, read_file(file));
    TESSERA_TRY(Reality one, parse_reality(measured, file));
    reality.push_back(std::move(one));
  }
  if (options.rows.empty()) {
    if (reality.empty() || !options.each.empty()) {
      return invalid_input(reality.empty() ? "expected ROWS.csv or --reality FILE, found neither"
                                           : "--each: expected ROWS.csv, found none");
    }
    if (reality.size() > 1) {
      return invalid_input("--reality: expected ROWS.csv beside more than one file, found none");
    }
    return put_out(options, reality_markdown(reality.front()), reality_json(reality.front()));
  }
  TESSERA_TRY(const std::string text, read_file(options.rows));
  TESSERA_TRY(const CsvTable table, parse_csv(text, options.rows));
  TESSERA_TRY(const Constants constants, load_constants(options.constants));
  TESSERA_TRY(Accuracy accuracy, measure_accuracy(table, options.rows, constants, options.how));
  accuracy.reality = std::move(reality);
  if (!options.each.empty()) TESSERA_TRY_VOID(write_file(options.each, accuracy_csv(accuracy)));
  return put_out(options, accuracy_markdown(accuracy), accuracy_json(accuracy));
}

}  // namespace

void add_accuracy(Commands& commands) {
  const auto options = std::make_shared<AccuracyJob>();
  Command command = commands.add(
      "accuracy", "Compare predictions with the step times and memory that a CSV reports");
  command.option("ROWS.csv", options->rows, "Runs with their results");
  command.option("--constants", options->constants,
                 "Constants, also without each source (docs/reference/predict.md)");
  command.option("--reality", options->reality,
                 "Steps measured on a machine (benchmarks/run_reality.py and run_slow_links.py "
                 "write such files; may be repeated): a section of the page, or all of it without "
                 "ROWS.csv");
  command.option("-o,--out", options->out, "Write the page to this file");
  command.option("--check", options->check,
                 "Exit with 1 if this file is not the page, and say where");
  command.option("--each", options->each,
                 "Write reported and predicted step time and memory of each row as CSV");
  command.option("--threads", options->how.threads, "Rows priced at the same time").at_least(1);
  command.flag("--unnamed", options->how.unnamed,
               "Hide the names of sources in all figures, not only in those that say so");
  command.flag("--json", options->json, "Print all scores as JSON");
  command.footer(
      "Example:\n"
      "  tessera accuracy data/published-throughput.csv --reality "
      "data/measured/reality.json -o docs/accuracy.md\n"
      "  tessera accuracy --reality data/measured/reality.json\n");
  command.action([options] { return run_accuracy(*options); });
}

}  // namespace tessera::cli
