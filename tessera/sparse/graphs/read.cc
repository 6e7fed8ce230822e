#include "tessera/sparse/graphs/read.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "tessera/base/one_line.h"
#include "tessera/base/text.h"
#include "tessera/base/text_file.h"

namespace tessera::sparse {
namespace {

constexpr std::string_view kBlanks = " \t\r";
constexpr int32_t kMostFeatures = 1 << 20;

// Goes through the lines of a text and through the fields of the current line.
class Lines {
 public:
  Lines(std::string_view text, std::string path) : rest_(text), path_(std::move(path)) {}

  // Moves to the next line that is neither empty nor a comment; returns false at the end.
  bool next(bool comments = true) {
    while (!rest_.empty()) {
      const size_t end = rest_.find('\n');
      line_ = rest_.substr(0, end);
      rest_ = end == std::string_view::npos ? std::string_view() : rest_.substr(end + 1);
      ++number_;
      const size_t first = line_.find_first_not_of(kBlanks);
      if (first == std::string_view::npos) continue;
      if (comments && (line_[first] == '%' || line_[first] == '#')) continue;
      return true;
    }
    ++number_;
    return false;
  }
  // Returns the next field of the line; empty if there is none.
  std::string_view field() {
    const size_t begin = line_.find_first_not_of(kBlanks);
    if (begin == std::string_view::npos) return line_ = {};
    const size_t end = std::min(line_.find_first_of(kBlanks, begin), line_.size());
    const std::string_view found = line_.substr(begin, end - begin);
    line_.remove_prefix(end);
    return found;
  }
  template <class Number>
  Result<Number> number(std::string_view what) {
    return number<Number>(what, field());
  }
  template <class Number>
  Result<Number> number(std::string_view what, std::string_view text) const {
    Number value{};
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (code != std::errc() || end != text.data() + text.size()) {
      return error(fmt::format("expected {}, found '{}'", what, short_line(text, 60)));
    }
    return value;
  }
  // Reads an integer in [begin, end).
  Result<int32_t> index(std::string_view what, int64_t begin, int64_t end) {
    TESSERA_TRY(const int64_t value, number<int64_t>(what));
    if (value < begin || value >= end) {
      return error(fmt::format("expected {} in [{}, {}), found {}", what, begin, end, value));
    }
    return static_cast<int32_t>(value);
  }
  Result<float> real(std::string_view what) {
    TESSERA_TRY(const double value, number<double>(what));
    const float narrow = static_cast<float>(value);
    if (!std::isfinite(narrow)) {
      return error(fmt::format("expected {} that is finite, found {}", what, value));
    }
    return narrow;
  }
  Status end_of_line() {
    const std::string_view more = field();
    if (more.empty()) return {};
    return error(fmt::format("expected the end of the line, found '{}'", short_line(more, 60)));
  }
  tl::unexpected<Error> error(const std::string& message) const {
    return invalid_input(fmt::format("{}:{}: {}", path_, number_, message));
  }

 private:
  std::string_view rest_, line_;
  std::string path_;
  int64_t number_ = 0;
};

// Returns the most nodes that a file may state. Nodes take memory, so the limit is in proportion to
// the n bytes of the file, 16 n + 65536, even though most of so many nodes would have no edges.
int64_t most_nodes(const std::string& text) {
  return std::min<int64_t>(std::numeric_limits<int32_t>::max(),
                           16 * static_cast<int64_t>(text.size()) + 65536);
}

tl::unexpected<Error> in_file(const std::string& path, const Error& error) {
  return tl::unexpected(Error{error.code, path + ": " + error.message});
}

// Checks that entries come in ascending order, either by rows or by columns.
class Ascending {
 public:
  // Returns an error if neither order is possible any more.
  Status add(const Edge& edge, const Lines& lines) {
    const std::pair<int32_t, int32_t> by_row{edge.row, edge.column};
    const std::pair<int32_t, int32_t> by_column{edge.column, edge.row};
    rows_ = rows_ && (first_ || by_row > by_row_);
    columns_ = columns_ && (first_ || by_column > by_column_);
    first_ = false;
    if (!rows_ && !columns_) {
      return lines.error(
          fmt::format("expected entries in ascending order, by rows or by columns, found ({}, {}) "
                      "after ({}, {}), counted from 0",
                      edge.row, edge.column, by_row_.first, by_row_.second));
    }
    by_row_ = by_row;
    by_column_ = by_column;
    return {};
  }

 private:
  bool first_ = true, rows_ = true, columns_ = true;
  std::pair<int32_t, int32_t> by_row_, by_column_;
};

// The words after "%%MatrixMarket" that matter.
struct MatrixHead {
  std::string field;
  bool symmetric = false;
};
Result<MatrixHead> read_matrix_head(Lines& lines) {
  const auto one_of = [&](std::string_view what,
                          const std::vector<std::string>& known) -> Result<std::string> {
    std::string word = lower_case(lines.field());
    if (std::find(known.begin(), known.end(), word) == known.end()) {
      return lines.error(fmt::format("expected {} {}, found '{}'", what, join(known, " or "),
                                     short_line(word, 60)));
    }
    return word;
  };
  if (!lines.next(false) || lines.field() != "%%MatrixMarket") {
    return lines.error("expected a first line that begins with %%MatrixMarket, found another");
  }
  TESSERA_TRY(const std::string object, one_of("the object", {"matrix"}));
  TESSERA_TRY(const std::string format, one_of("the format", {"coordinate"}));
  MatrixHead head;
  TESSERA_TRY(head.field, one_of("the field", {"real", "integer", "pattern"}));
  TESSERA_TRY(const std::string symmetry, one_of("the symmetry", {"general", "symmetric"}));
  head.symmetric = symmetry == "symmetric";
  TESSERA_TRY_VOID(lines.end_of_line());
  return head;
}

// Calls f(lines, node) for every line of a file, after the line's node has been read from `lines`.
// Returns the number of lines. Errors: a node that has two lines, and those of f.
template <class F>
Result<int64_t> read_nodes(const std::string& path, int64_t nodes, const F& f) {
  TESSERA_TRY(const std::string text, read_text_file(path, kMostDataTextBytes));
  Lines lines(text, path);
  std::vector<bool> seen(static_cast<size_t>(nodes), false);
  int64_t count = 0;
  for (; lines.next(); ++count) {
    TESSERA_TRY(const int32_t node, lines.index("a node", 0, nodes));
    if (seen[static_cast<size_t>(node)]) {
      return lines.error(fmt::format("expected each node once, found {} again", node));
    }
    seen[static_cast<size_t>(node)] = true;
    TESSERA_TRY_VOID(f(lines, node));
  }
  return count;
}

Status expect_all(const std::string& path, int64_t nodes, int64_t found) {
  if (found == nodes) return {};
  return invalid_input(
      fmt::format("{}: expected a line for each of {} nodes, found {}", path, nodes, found));
}

Status read_split(const std::string& path, NodeData& data) {
  TESSERA_TRY(const int64_t listed,
              read_nodes(path, data.nodes(), [&](Lines& lines, int32_t node) -> Status {
                const std::string_view part = lines.field();
                if (part == "train") {
                  data.train.push_back(node);
                } else if (part == "val") {
                  data.validation.push_back(node);
                } else if (part == "test") {
                  data.test.push_back(node);
                } else {
                  return lines.error(
                      fmt::format("expected train, val or test, found '{}'", short_line(part, 60)));
                }
                return lines.end_of_line();
              }));
  if (listed == 0) return invalid_input(path + ": expected nodes to train on, found none");
  for (auto* part : {&data.train, &data.validation, &data.test}) {
    std::sort(part->begin(), part->end());
  }
  return {};
}

}  // namespace

Result<CsrGraph> read_matrix_market(const std::string& path, const ReadOptions& options) {
  TESSERA_TRY(const std::string text, read_text_file(path, kMostDataTextBytes));
  Lines lines(text, path);
  TESSERA_TRY(const MatrixHead head, read_matrix_head(lines));
  if (!lines.next())
    return lines.error("expected the size of the matrix, found the end of the file");
  const int64_t most = most_nodes(text) + 1;
  TESSERA_TRY(const int32_t rows, lines.index("a number of rows", 0, most));
  TESSERA_TRY(const int32_t columns, lines.index("a number of columns", 0, most));
  TESSERA_TRY(const int64_t entries, lines.number<int64_t>("a number of entries"));
  TESSERA_TRY_VOID(lines.end_of_line());
  // An entry takes at least four characters; the check keeps a wrong number from reserving memory.
  if (entries < 0 || entries > static_cast<int64_t>(text.size()) / 4) {
    return lines.error(
        fmt::format("expected a number of entries that fits the file, found {}", entries));
  }
  const bool valued = options.valued && head.field != "pattern";
  std::vector<Edge> edges;
  edges.reserve(static_cast<size_t>(entries));
  Ascending ascending;
  for (int64_t i = 0; i < entries; ++i) {
    if (!lines.next()) {
      return lines.error(fmt::format("expected {} entries, found {}", entries, i));
    }
    Edge edge;
    TESSERA_TRY(edge.row, lines.index("a row", 1, int64_t{rows} + 1));
    TESSERA_TRY(edge.column, lines.index("a column", 1, int64_t{columns} + 1));
    --edge.row;
    --edge.column;
    if (head.field != "pattern") {
      TESSERA_TRY(edge.value, lines.real("a value"));
    }
    TESSERA_TRY_VOID(lines.end_of_line());
    if (head.symmetric && edge.row < edge.column) {
      return lines.error(fmt::format(
          "expected the lower triangle of a symmetric matrix, found row {} and column {}",
          edge.row + 1, edge.column + 1));
    }
    if (!options.sort) TESSERA_TRY_VOID(ascending.add(edge, lines));
    edges.push_back(edge);
  }
  if (lines.next()) {
    return lines.error(fmt::format("expected {} entries, found more", entries));
  }
  auto graph =
      csr_from_edges(rows, columns, edges,
                     {.mirror = head.symmetric, .symmetric = options.symmetric, .valued = valued});
  if (!graph) return in_file(path, graph.error());
  return graph;
}

Result<CsrGraph> read_edge_list(const std::string& path, const EdgeListOptions& options) {
  TESSERA_TRY(const std::string text, read_text_file(path, kMostDataTextBytes));
  Lines lines(text, path);
  std::vector<Edge> edges;
  const int64_t most = most_nodes(text);
  int64_t nodes = options.nodes;
  bool valued = false;
  Ascending ascending;
  while (lines.next()) {
    Edge edge;
    TESSERA_TRY(edge.row, lines.index("a node", 0, options.nodes > 0 ? options.nodes : most));
    TESSERA_TRY(edge.column, lines.index("a node", 0, options.nodes > 0 ? options.nodes : most));
    const std::string_view value = lines.field();
    if (!edges.empty() && value.empty() == valued) {
      return lines.error("expected values in all lines or in none, found both");
    }
    valued = !value.empty();
    if (valued) {
      TESSERA_TRY(const double number, lines.number<double>("a value", value));
      edge.value = static_cast<float>(number);
      TESSERA_TRY_VOID(lines.end_of_line());
    }
    if (!options.sort) TESSERA_TRY_VOID(ascending.add(edge, lines));
    nodes = std::max<int64_t>({nodes, int64_t{edge.row} + 1, int64_t{edge.column} + 1});
    edges.push_back(edge);
  }
  if (nodes == 0) return lines.error("expected edges, found the end of the file");
  auto graph = csr_from_edges(nodes, nodes, edges,
                              {.mirror = options.mirror,
                               .symmetric = options.symmetric,
                               .valued = valued && options.valued});
  if (!graph) return in_file(path, graph.error());
  return graph;
}

Result<NodeData> read_node_data(const std::string& folder, const std::string& name) {
  const auto file = [&](std::string_view part) {
    return fmt::format("{}/{}_{}.tsv", folder, name, part);
  };
  NodeData data;
  // The number of nodes is the number of lines in the file of classes, because nodes without edges
  // count, too.
  {
    TESSERA_TRY(const std::string text, read_text_file(file("labels"), kMostDataTextBytes));
    int64_t nodes = 0;
    for (Lines lines(text, file("labels")); lines.next();) ++nodes;
    data.labels.resize(static_cast<size_t>(nodes));
  }
  const int64_t nodes = static_cast<int64_t>(data.labels.size());
  TESSERA_TRY_VOID(read_nodes(file("labels"), nodes, [&](Lines& lines, int32_t node) -> Status {
    TESSERA_TRY(const int32_t label, lines.index("a class", 0, nodes));
    data.labels[static_cast<size_t>(node)] = label;
    data.classes = std::max<int64_t>(data.classes, int64_t{label} + 1);
    return lines.end_of_line();
  }));
  EdgeListOptions undirected;
  undirected.nodes = nodes;
  undirected.mirror = true;
  TESSERA_TRY(data.graph, read_edge_list(file("edges"), undirected));

  std::vector<Edge> features;
  int64_t count = 0;
  TESSERA_TRY(const int64_t described,
              read_nodes(file("features"), nodes, [&](Lines& lines, int32_t node) -> Status {
                for (std::string_view text = lines.field(); !text.empty(); text = lines.field()) {
                  TESSERA_TRY(const int32_t feature, lines.number<int32_t>("a feature", text));
                  if (feature < 0 || feature >= kMostFeatures) {
                    return lines.error(fmt::format("expected a feature in [0, {}), found {}",
                                                   kMostFeatures, feature));
                  }
                  count = std::max<int64_t>(count, int64_t{feature} + 1);
                  features.push_back({node, feature});
                }
                return {};
              }));
  TESSERA_TRY_VOID(expect_all(file("features"), nodes, described));
  auto sparse = csr_from_edges(nodes, count, features, {.valued = false});
  if (!sparse) return in_file(file("features"), sparse.error());
  data.features = std::move(*sparse);
  TESSERA_TRY_VOID(read_split(file("split"), data));
  return data;
}

}  // namespace tessera::sparse
