#include "tessera/import/pt2/naming.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace tessera::pt2 {
namespace {

class Namer {
 public:
  explicit Namer(const DimTable& dims) : dims_(dims) {}

  bool named(Var leaf) const { return names_.contains(leaf); }

  // Returns whether the dim may get the name, that is, no dim that must be distinct from it has
  // this name.
  bool free(Var leaf, const std::string& name) const {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) return true;
    return std::none_of(found->second.begin(), found->second.end(),
                        [&](Var other) { return dims_.distinct(leaf, other); });
  }

  void give(Var leaf, const std::string& name) {
    names_[leaf] = name;
    by_name_[name].push_back(leaf);
  }

  void give_numbered(Var leaf, const std::string& name) {
    std::string numbered = name;
    for (int i = 2; !free(leaf, numbered); ++i) numbered = fmt::format("{}_{}", name, i);
    give(leaf, numbered);
  }

  std::map<Var, std::string> take() { return std::move(names_); }

 private:
  const DimTable& dims_;
  std::map<Var, std::string> names_;
  std::map<std::string, Vars> by_name_;
};

// Returns the hints, of which those of a width come in the order of how many there are for the same
// dim: a model's width is that of most norms.
std::vector<Hints::Hint> by_number(const DimTable& dims, const Hints& hints) {
  const auto leaves = [&](const Hints::Hint& hint) {
    return std::pair(hint.name, dims.leaves(hint.vars, true));
  };
  std::map<std::pair<std::string, Vars>, int> counts;
  for (const Hints::Hint& hint : hints.hints()) {
    if (hint.sure == Sure::kWidth) ++counts[leaves(hint)];
  }
  std::vector<Hints::Hint> out = hints.hints();
  std::stable_sort(out.begin(), out.end(), [&](const Hints::Hint& a, const Hints::Hint& b) {
    const bool widths = a.sure == Sure::kWidth && b.sure == Sure::kWidth;
    return widths ? counts[leaves(a)] > counts[leaves(b)] : a.sure < b.sure;
  });
  return out;
}

// Names inner widths "ffn": dims without a name that are the output of one product and the input of
// another.
void name_inner_widths(const DimTable& dims, const Hints& hints, Namer& namer) {
  std::map<Var, int> made, taken;
  std::set<Var> shared;  // widths of norms are not inner ones
  for (const Hints::Hint& hint : hints.hints()) {
    if (hint.sure != Sure::kWidth) continue;
    for (const Var leaf : dims.leaves(hint.vars)) shared.insert(leaf);
  }
  for (const Hints::Product& product : hints.products()) {
    for (const Var leaf : dims.leaves(product.out)) ++made[leaf];
    for (const Var leaf : dims.leaves(product.in)) ++taken[leaf];
  }
  for (const Hints::Product& product : hints.products()) {
    for (const Var leaf : dims.leaves(product.out)) {
      if (taken.contains(leaf) && !namer.named(leaf) && !shared.contains(leaf))
        namer.give_numbered(leaf, "ffn");
    }
  }
}

}  // namespace

void Hints::add(const Vars& vars, std::string name, Sure sure) {
  hints_.push_back({vars, std::move(name), sure});
}

void Hints::add_product(const Vars& in, const Vars& out) { products_.push_back({in, out}); }

std::map<Var, std::string> name_dims(const DimTable& dims, const Hints& hints) {
  Namer namer(dims);
  const std::vector<Hints::Hint> ordered = by_number(dims, hints);
  for (const Sure sure : {Sure::kRole, Sure::kWidth, Sure::kInner, Sure::kPart, Sure::kLast}) {
    if (sure == Sure::kInner) name_inner_widths(dims, hints, namer);
    // First names the dims that can have the name of their hint without a number, and then the
    // others, with a number.
    for (const bool numbered : {false, true}) {
      if (numbered && sure < Sure::kPart) continue;
      for (const Hints::Hint& hint : ordered) {
        if (hint.sure != sure) continue;
        for (const Var leaf : dims.leaves(hint.vars, true)) {
          if (namer.named(leaf)) continue;
          if (numbered) {
            namer.give_numbered(leaf, hint.name);
          } else if (namer.free(leaf, hint.name)) {
            namer.give(leaf, hint.name);
          }
        }
      }
    }
  }
  for (const Var leaf : dims.leaves(dims.all(), true)) {
    if (!namer.named(leaf)) namer.give_numbered(leaf, "dim");
  }
  return namer.take();
}

}  // namespace tessera::pt2
