#include "tessera/import/pt2/dims.h"

#include <algorithm>

namespace tessera::pt2 {

bool holds(const Vars& vars, Var var) {
  return std::find(vars.begin(), vars.end(), var) != vars.end();
}

Var DimTable::fresh(int64_t size) {
  Node node;
  node.size = size;
  nodes_.push_back(std::move(node));
  return {static_cast<int>(nodes_.size()) - 1};
}

Vars DimTable::list(int64_t size) { return size == 1 ? Vars{} : Vars{fresh(size)}; }

Vars DimTable::all() const {
  Vars out;
  for (size_t i = 0; i < nodes_.size(); ++i) out.push_back({static_cast<int>(i)});
  return out;
}

Var DimTable::find(Var var) const {
  while (nodes_[index(var)].parent >= 0) var.id = nodes_[index(var)].parent;
  return var;
}

int64_t DimTable::size(const Vars& vars) const {
  int64_t product = 1;
  for (const Var var : vars) {
    if (__builtin_mul_overflow(product, size(var), &product)) return INT64_MAX;
  }
  return product;
}

void DimTable::expand(Var var, bool units, Vars& out) const {
  const Var root = find(var);
  const Node& node = nodes_[index(root)];
  for (const Var part : node.parts) expand(part, units, out);
  if (node.parts.empty() && (units || node.size != 1)) out.push_back(root);
}

Vars DimTable::leaves(const Vars& vars, bool units) const {
  Vars out;
  for (const Var var : vars) expand(var, units, out);
  return out;
}

void DimTable::keep_distinct(const Vars& vars) {
  const Vars all = leaves(vars, true);
  for (const Var a : all) {
    std::vector<int>& others = nodes_[index(a)].others;
    for (const Var b : all) {
      if (a != b) others.push_back(b.id);
    }
    std::sort(others.begin(), others.end());
    others.erase(std::unique(others.begin(), others.end()), others.end());
  }
}

bool DimTable::distinct(Var a, Var b) const {
  a = find(a);
  b = find(b);
  if (nodes_[index(a)].others.size() > nodes_[index(b)].others.size()) std::swap(a, b);
  return std::any_of(nodes_[index(a)].others.begin(), nodes_[index(a)].others.end(), [&](int id) {
    const Vars beside = leaves({Var{id}}, true);
    return std::find(beside.begin(), beside.end(), b) != beside.end();
  });
}

bool DimTable::refine(Var leaf, int64_t outer) {
  const Node whole = nodes_[index(leaf)];
  if (whole.solid || whole.size % outer != 0) return false;
  const Var first = fresh(outer), second = fresh(whole.size / outer);
  for (const Var part : {first, second}) {
    Node& node = nodes_[index(part)];
    node.others = whole.others;
    node.others.push_back(part == first ? second.id : first.id);
    node.spatial = whole.spatial;
  }
  nodes_[index(leaf)].parts = {first, second};
  return true;
}

bool DimTable::unify(const Vars& a, const Vars& b) {
  size_t i = 0;
  while (true) {
    const Vars left = leaves(a), right = leaves(b);
    while (i < left.size() && i < right.size() && left[i] == right[i]) ++i;
    if (i == left.size() || i == right.size()) return left.size() == right.size();
    const int64_t l = size(left[i]), r = size(right[i]);
    if (l > r && !refine(left[i], r)) return false;
    if (r > l && !refine(right[i], l)) return false;
    if (l != r) continue;
    if (distinct(left[i], right[i])) return false;
    // find() now returns `kept` for both variables, so what is known of `merged` is copied to
    // `kept`.
    Node &kept = nodes_[index(left[i])], &merged = nodes_[index(right[i])];
    merged.parent = left[i].id;
    kept.others.insert(kept.others.end(), merged.others.begin(), merged.others.end());
    std::sort(kept.others.begin(), kept.others.end());
    kept.others.erase(std::unique(kept.others.begin(), kept.others.end()), kept.others.end());
    kept.solid = kept.solid || merged.solid;
    kept.spatial = kept.spatial || merged.spatial;
  }
}

std::optional<std::vector<Vars>> DimTable::view(const std::vector<Vars>& dims,
                                                const std::vector<int64_t>& sizes) {
  Vars rest;
  for (const Vars& dim : dims) {
    const Vars expanded = leaves(dim);
    rest.insert(rest.end(), expanded.begin(), expanded.end());
  }
  std::reverse(rest.begin(), rest.end());  // so that the next variable is at the end
  std::vector<Vars> out;
  for (const int64_t wanted : sizes) {
    Vars taken;
    int64_t missing = wanted;
    while (missing > 1) {
      if (rest.empty()) return std::nullopt;
      const Var leaf = rest.back();
      rest.pop_back();
      if (missing % size(leaf) == 0) {
        missing /= size(leaf);
        taken.push_back(leaf);
        continue;
      }
      if (!refine(leaf, missing)) return std::nullopt;
      const Vars parts = leaves({leaf});
      rest.insert(rest.end(), parts.rbegin(), parts.rend());
    }
    out.push_back(std::move(taken));
  }
  if (!rest.empty()) return std::nullopt;
  return out;
}

std::optional<std::pair<Vars, Vars>> DimTable::cut(const Vars& vars, int64_t outer) {
  const int64_t whole = size(vars);
  if (outer < 1 || whole % outer != 0) return std::nullopt;
  const auto lists = view({vars}, {outer, whole / outer});
  if (!lists) return std::nullopt;
  return std::pair{(*lists)[0], (*lists)[1]};
}

}  // namespace tessera::pt2
