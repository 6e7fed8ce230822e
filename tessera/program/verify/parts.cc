#include "tessera/program/verify/parts.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/text.h"

namespace tessera::verifying {
namespace {

// Returns whether the boxes differ in only one dim and are next to each other there. If so, makes
// `a` the union of both.
bool fuse(Box& a, const Box& b) {
  size_t differing = a.rank();
  for (size_t i = 0; i < a.rank(); ++i) {
    if (a.dims[i] == b.dims[i]) continue;
    if (differing != a.rank()) return false;
    differing = i;
  }
  if (differing == a.rank()) return false;
  Interval& dim = a.dims[differing];
  const Interval& other = b.dims[differing];
  if (dim.end() != other.begin && other.end() != dim.begin) return false;
  dim = {std::min(dim.begin, other.begin), dim.size + other.size};
  return true;
}

void insert_fused(std::vector<Box>& set, Box box) {
  for (bool again = true; again;) {
    again = false;
    for (size_t i = 0; i < set.size(); ++i) {
      if (!fuse(box, set[i])) continue;
      set.erase(set.begin() + static_cast<std::ptrdiff_t>(i));
      again = true;
      break;
    }
  }
  set.push_back(std::move(box));
}

bool fills(const Op& op, const std::vector<int>& dims, const std::vector<Box>& boxes) {
  int64_t whole = 1;
  for (int dim : dims) whole *= op.annotation.dims[static_cast<size_t>(dim)].size;
  return volume_of(boxes) == whole;
}

std::vector<int> reduced_dims(const Op& op, size_t output) {
  std::vector<int> dims;
  for (size_t i = 0; i < op.annotation.dims.size(); ++i) {
    if (!op.annotation.outputs[output].contains(static_cast<int>(i))) {
      dims.push_back(static_cast<int>(i));
    }
  }
  return dims;
}

std::string merge_leaves(const Graph& graph, PartsRef& into, const Parts& from) {
  auto merged = std::make_shared<Parts>(*into);
  for (const Box& box : from.boxes) {
    if (!add_disjoint(merged->boxes, box)) {
      return fmt::format("counted twice: the part {} of {}", box.to_string(),
                         graph.op(from.op).path);
    }
  }
  const Op& op = graph.op(from.op);
  into = fills(op, reduced_dims(op, from.output), merged->boxes) ? nullptr : std::move(merged);
  return "";
}

std::string merge_nodes(const Graph& graph, PartsRef& into, const Parts& from) {
  auto terms = into->terms;
  for (size_t i = 0; i < terms.size(); ++i) {
    if (!from.terms[i]) continue;
    if (!terms[i]) {
      terms[i] = from.terms[i];
    } else if (std::string error = merge_parts(graph, *terms[i], *from.terms[i], Combiner::kSum);
               !error.empty()) {
      return fmt::format("{} (input {} of {})", error, i, graph.op(from.op).path);
    }
  }
  into = make_node(graph.op(from.op), std::move(terms));
  return "";
}

}  // namespace

bool add_disjoint(std::vector<Box>& set, const Box& box) {
  for (const Box& other : set) {
    if (overlaps(other, box)) return false;
  }
  insert_fused(set, box);
  return true;
}

void add_union(std::vector<Box>& set, const Box& box) {
  std::vector<Box> rest{box};
  for (const Box& have : set) {
    if (have.contains(box)) return;
    if (!overlaps(have, box)) continue;
    std::vector<Box> next;
    for (const Box& part : rest) {
      for (Box& outside : subtract(part, have)) next.push_back(std::move(outside));
    }
    rest = std::move(next);
  }
  for (Box& part : rest) insert_fused(set, std::move(part));
}

int64_t volume_of(const std::vector<Box>& set) {
  int64_t volume = 0;
  for (const Box& box : set) volume += box.volume();
  return volume;
}

PartsRef make_leaf(const Op& op, size_t output, const std::vector<int>& dims, const Box& box) {
  bool whole = true;
  for (int dim : dims) {
    const size_t i = static_cast<size_t>(dim);
    whole = whole && box.dims[i] == Interval{0, op.annotation.dims[i].size};
  }
  if (whole) return nullptr;
  Box part;
  part.dims.reserve(dims.size());
  for (int dim : dims) part.dims.push_back(box.dims[static_cast<size_t>(dim)]);
  auto parts = std::make_shared<Parts>();
  parts->op = op.id;
  parts->output = output;
  if (!part.empty()) parts->boxes.push_back(std::move(part));
  return parts;
}

PartsRef make_node(const Op& op, std::vector<std::optional<PartsRef>> terms) {
  const bool complete = std::all_of(terms.begin(), terms.end(), [](const auto& term) {
    return term.has_value() && *term == nullptr;
  });
  if (complete) return nullptr;
  auto parts = std::make_shared<Parts>();
  parts->op = op.id;
  parts->terms = std::move(terms);
  return parts;
}

// Returns whether the parts contain nothing. Such parts are made by a rank with an empty piece (if
// there are more ranks than elements), and their value is the identity of the combiner.
bool is_nothing(const PartsRef& parts) {
  if (parts == nullptr) return false;
  if (!parts->is_node()) return parts->boxes.empty();
  return std::all_of(parts->terms.begin(), parts->terms.end(),
                     [](const auto& term) { return !term.has_value() || is_nothing(*term); });
}

std::string merge_parts(const Graph& graph, PartsRef& into, const PartsRef& from,
                        Combiner combiner) {
  if (is_nothing(from)) return "";
  if (is_nothing(into)) {
    into = from;
    return "";
  }
  if (into == nullptr || from == nullptr) {
    return into == nullptr && from == nullptr
               ? "counted twice: both values are complete"
               : fmt::format("counted twice: a complete value and {}",
                             describe(graph, into == nullptr ? from : into));
  }
  if (into->op != from->op || into->output != from->output || into->is_node() != from->is_node()) {
    return fmt::format("merges {} with {}", describe(graph, into), describe(graph, from));
  }
  const Combiner wanted = from->is_node()
                              ? Combiner::kSum
                              : graph.op(from->op).annotation.outputs[from->output].combiner;
  if (combiner != wanted) {
    return fmt::format("merges parts of {} by {}, expected {}", graph.op(from->op).path,
                       combiner_name(combiner), combiner_name(wanted));
  }
  return from->is_node() ? merge_nodes(graph, into, *from) : merge_leaves(graph, into, *from);
}

std::string describe(const Graph& graph, const PartsRef& parts) {
  if (parts == nullptr) return "the complete value";
  const Op& op = graph.op(parts->op);
  std::vector<std::string> texts;
  if (parts->is_node()) {
    for (size_t i = 0; i < parts->terms.size(); ++i) {
      if (!parts->terms[i]) texts.push_back(fmt::format("input {}: nothing", i));
      if (parts->terms[i] && *parts->terms[i] != nullptr) {
        texts.push_back(fmt::format("input {}: {}", i, describe(graph, *parts->terms[i])));
      }
    }
    return fmt::format("a part of {} ({})", op.path, join(texts, "; "));
  }
  std::vector<std::string> names;
  for (int dim : reduced_dims(op, parts->output)) {
    names.push_back(op.annotation.dims[static_cast<size_t>(dim)].name);
  }
  for (const Box& box : parts->boxes) texts.push_back(box.to_string());
  return fmt::format("the part ({}) in {} of {}", join(names, ", "), join(texts, " + "), op.path);
}

Box moved(Box box, const Box& from, const Box& to) {
  for (size_t i = 0; i < box.rank(); ++i)
    box.dims[i].begin += to.dims[i].begin - from.dims[i].begin;
  return box;
}

bool overlaps(const Box& a, const Box& b) {
  for (size_t i = 0; i < a.rank(); ++i) {
    if (std::max(a.dims[i].begin, b.dims[i].begin) >= std::min(a.dims[i].end(), b.dims[i].end())) {
      return false;
    }
  }
  return true;
}

Piece clip(const Piece& piece, const Box& local) {
  return {local, moved(local, piece.local, piece.global), piece.tensor, piece.parts, piece.named};
}

void erase_region(std::vector<Piece>& content, const Box& region) {
  std::vector<Piece> added;
  std::erase_if(content, [&](const Piece& piece) {
    if (!overlaps(piece.local, region)) return false;
    if (!region.contains(piece.local)) {
      for (const Box& rest : subtract(piece.local, region)) added.push_back(clip(piece, rest));
    }
    return true;
  });
  for (Piece& piece : added) content.push_back(std::move(piece));
}

std::string merge_piece(const Graph& graph, std::vector<Piece>& content, const Piece& piece,
                        Combiner combiner) {
  std::vector<Box> rest{piece.local};
  std::vector<Piece> next;
  next.reserve(content.size() + 1);
  for (Piece& have : content) {
    if (!overlaps(have.local, piece.local)) {
      next.push_back(std::move(have));
      continue;
    }
    const Box common = intersect(have.local, piece.local);
    if (common != have.local) {
      for (const Box& outside : subtract(have.local, common)) next.push_back(clip(have, outside));
    }
    Piece merged = clip(have, common);
    if (std::string error = merge_parts(graph, merged.parts, piece.parts, combiner);
        !error.empty()) {
      return error;
    }
    std::vector<Box> left;
    for (const Box& box : rest) {
      for (Box& outside : subtract(box, common)) left.push_back(std::move(outside));
    }
    rest = std::move(left);
    next.push_back(std::move(merged));
  }
  for (const Box& box : rest) next.push_back(clip(piece, box));
  content = std::move(next);
  return "";
}

}  // namespace tessera::verifying
