// Slurm: topology.conf with a tree of switches or with blocks, and the addresses that Slurm gives
// the ranks of a job.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tessera/base/one_line.h"
#include "tessera/base/text.h"
#include "tessera/network/readers.h"
#include "tessera/network/readers_build.h"

namespace tessera::network {
namespace {

using Names = std::vector<std::string>;

struct ConfLine {
  int number = 0;                             // of its first line in the file
  std::map<std::string, std::string> values;  // by key in lower case
};

// Returns the lines that say something: without comments, joined where one ends in a backslash.
Result<std::vector<ConfLine>> conf_lines(std::string_view text, const std::string& file) {
  std::vector<ConfLine> out;
  std::string whole;
  int number = 0, first = 1;
  for (const std::string& raw : split_text(text, '\n')) {
    ++number;
    std::string_view line = trim(std::string_view(raw).substr(0, raw.find('#')));
    const bool goes_on = line.ends_with('\\');
    if (goes_on) line.remove_suffix(1);
    if (whole.empty()) first = number;
    whole += line;
    if (goes_on) continue;
    ConfLine one{first, {}};
    std::replace(whole.begin(), whole.end(), '\t', ' ');
    for (const std::string& word : split_text(whole, ' ')) {
      if (trim(word).empty()) continue;
      const size_t equals = word.find('=');
      if (equals == std::string::npos || equals == 0) {
        return invalid_input(
            fmt::format("{}:{}: expected KEY=VALUE, found '{}'", file, first, short_line(word)));
      }
      one.values[lower_case(word.substr(0, equals))] = word.substr(equals + 1);
    }
    whole.clear();
    if (!one.values.empty()) out.push_back(std::move(one));
  }
  return out;
}

Status add_switch_line(NetworkBuilder& builder, const ConfLine& line, const std::string& where) {
  const std::string& name = line.values.at("switchname");
  TESSERA_TRY_VOID(builder.add_switch(name, "", line.number));
  bool any = false;
  if (const auto below = line.values.find("switches"); below != line.values.end()) {
    TESSERA_TRY(const Names names, expand_names(below->second, where));
    for (const std::string& one : names)
      TESSERA_TRY_VOID(builder.add_switch(one, name, line.number));
    any = true;
  }
  if (const auto nodes = line.values.find("nodes"); nodes != line.values.end()) {
    TESSERA_TRY(const Names names, expand_names(nodes->second, where));
    for (const std::string& one : names) TESSERA_TRY_VOID(builder.add_node(one, name, line.number));
    any = true;
  }
  if (!any) {
    return builder.error(
        line.number, fmt::format("expected Nodes= or Switches= of switch '{}', found none", name));
  }
  return {};
}

// Puts blocks together as BlockSizes says: "18,36,72" joins two blocks of 18 nodes, then two pairs.
Status join_blocks(NetworkBuilder& builder, Names blocks, std::string_view sizes, int line) {
  std::vector<int64_t> joined;
  for (const std::string& text : split_text(sizes, ',')) {
    const auto size = parse_int(trim(text));
    if (!size || *size < 1 ||
        (!joined.empty() && (*size <= joined.back() || *size % joined.back() != 0))) {
      return builder.error(
          line, fmt::format("expected BlockSizes of rising multiples, found '{}'", sizes));
    }
    joined.push_back(*size);
  }
  for (size_t level = 1; level < joined.size(); ++level) {
    const auto share = static_cast<size_t>(joined[level] / joined[level - 1]);
    Names above;
    for (size_t i = 0; i < blocks.size(); i += share) {
      const size_t end = std::min(blocks.size(), i + share);
      const std::string first = blocks[i].substr(0, blocks[i].find(".."));
      const size_t dots = blocks[end - 1].rfind("..");
      const std::string last =
          dots == std::string::npos ? blocks[end - 1] : blocks[end - 1].substr(dots + 2);
      const std::string name = fmt::format("{}..{}", first, last);
      if (end - i == 1 && above.empty() && end == blocks.size()) break;  // one switch is on top
      if (end - i == 1 && name == blocks[i]) {
        above.push_back(name);
        continue;
      }
      for (size_t k = i; k < end; ++k) TESSERA_TRY_VOID(builder.add_switch(blocks[k], name, line));
      above.push_back(name);
    }
    if (above.empty()) break;
    blocks = std::move(above);
  }
  return {};
}

}  // namespace

Result<Network> read_slurm(std::string_view conf, const std::string& file) {
  TESSERA_TRY(const auto lines, conf_lines(conf, file));
  NetworkBuilder builder(file);
  Names blocks;
  const ConfLine* sizes = nullptr;
  for (const ConfLine& line : lines) {
    const std::string where = fmt::format("{}:{}", file, line.number);
    if (line.values.contains("switchname")) {
      TESSERA_TRY_VOID(add_switch_line(builder, line, where));
    } else if (line.values.contains("blockname")) {
      const std::string& name = line.values.at("blockname");
      const auto nodes = line.values.find("nodes");
      if (nodes == line.values.end()) {
        return builder.error(line.number,
                             fmt::format("expected Nodes= of block '{}', found none", name));
      }
      TESSERA_TRY(const Names names, expand_names(nodes->second, where));
      for (const std::string& one : names) {
        TESSERA_TRY_VOID(builder.add_node(one, name, line.number));
        TESSERA_TRY_VOID(builder.set_domain(one, name, line.number));
      }
      blocks.push_back(name);
    } else if (line.values.contains("blocksizes")) {
      sizes = &line;
    } else {
      return builder.error(
          line.number, fmt::format("expected SwitchName=, BlockName= or BlockSizes=, found '{}'",
                                   line.values.begin()->first));
    }
  }
  if (sizes != nullptr)
    TESSERA_TRY_VOID(join_blocks(builder, blocks, sizes->values.at("blocksizes"), sizes->number));
  return builder.finish();
}

Result<Network> read_slurm_addresses(std::string_view text, const std::string& file) {
  NetworkBuilder builder(file);
  int number = 0;
  for (const std::string& raw : split_text(text, '\n')) {
    ++number;
    const std::string_view line = trim(std::string_view(raw).substr(0, raw.find('#')));
    if (line.empty()) continue;
    Names parts = split_text(line, '.');
    const std::string node = parts.back();
    parts.pop_back();
    TESSERA_TRY_VOID(builder.add_chain(node, parts, number));
  }
  return builder.finish();
}

}  // namespace tessera::network
