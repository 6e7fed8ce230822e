#include "tessera/search/choices/scoped_dims.h"

#include <fmt/format.h>

#include <set>
#include <string>

namespace tessera {
namespace {

// Returns the scopes of all ops in blocks; scopes of fewer words come first.
std::vector<std::string> scopes_of(const Graph& forward) {
  std::set<std::pair<int, std::string>> scopes;
  for (const Op& op : forward.ops()) {
    if (op.phase != Phase::kForward || op.block < 0) continue;
    const std::string_view path = path_in_block(op);
    int words = 1;
    for (size_t end = path.find('.'); end != std::string_view::npos; end = path.find('.', end + 1))
      scopes.emplace(words++, path.substr(0, end));
    scopes.emplace(words, path);
  }
  std::vector<std::string> out;
  for (const auto& [words, scope] : scopes) out.push_back(scope);
  return out;
}

std::string without_scope(const std::string& entry) { return entry.substr(entry.find('/') + 1); }

}  // namespace

std::string_view path_in_block(const Op& op) {
  constexpr std::string_view kBlocks = "blocks.";
  const std::string_view path = op.path;
  const size_t at = op.block < 0 ? std::string_view::npos : path.find(kBlocks);
  const size_t end = at == std::string_view::npos ? at : path.find('.', at + kBlocks.size());
  return end == std::string_view::npos ? path : path.substr(end + 1);
}

bool is_in_scope(const Op& op, std::string_view scope) {
  const std::string_view path = path_in_block(op);
  return path.starts_with(scope) && (path.size() == scope.size() || path[scope.size()] == '.');
}

std::vector<std::vector<std::string>> scoped_edits(const Graph& forward, const ChoiceAxis& axis) {
  std::vector<std::vector<std::string>> out;
  std::set<std::string> known = {cuts_of(forward, {axis})}, dims;
  for (const std::string& entry : axis.dims) dims.insert(without_scope(entry));
  if (dims.size() < 2) return out;
  for (const std::string& scope : scopes_of(forward)) {
    for (const std::string& dim : dims) {
      ChoiceAxis edited = axis;
      edited.dims.insert(edited.dims.begin(), fmt::format("{}/{}", scope, dim));
      if (known.insert(cuts_of(forward, {edited})).second) out.push_back(std::move(edited.dims));
    }
  }
  return out;
}

}  // namespace tessera
