#include <fmt/format.h>

#include <algorithm>

#include "tessera/graph/rows.h"
#include "tessera/program/verify/interpretation.h"

namespace tessera::verifying {

bool fetch_rows(Interpreting& v, Rank& rank, const Instruction& instruction, const FetchRows& fetch,
                const Prepared& prepared) {
  const int64_t mb = rank.step().micro_batch;
  Fetched fetched{fetch.handle, fetch.cache, {}, false, false};
  for (size_t i = 0; i < fetch.ids.size(); ++i) {
    const RowIds& ids = fetch.ids[i];
    const Box region = prepared.regions[i].at(mb);
    if (ids.view &&
        !v.check(rank, rank.state.read(*ids.view, mb, ids.tensor, region, true, nullptr))) {
      return false;
    }
    fetched.ids.emplace_back(ids.tensor, region);
  }
  if (!fetch.ahead) rank.fetched.push_back(std::move(fetched));
  const size_t id = v.add_communication({rank.program().rank});
  v.communications[id]->arrive(0);
  v.block_at(rank, id, instruction, fetch.handle);
  return true;
}

bool release_rows(Interpreting& v, Rank& rank, const ReleaseRows& release) {
  const auto found = std::find_if(rank.fetched.begin(), rank.fetched.end(),
                                  [&](const Fetched& f) { return f.handle == release.fetch; });
  const auto wrong = [&](const std::string& what) {
    return v.reject(&rank, "rows", {},
                    fmt::format("releases rows of fetch #{} {}", release.fetch, what));
  };
  if (found == rank.fetched.end()) return wrong("that was not made, or is released");
  if (!found->there) return wrong("before they are there: expected its wait before");
  if (found->changed && !release.changed) return wrong("as unchanged, which an op has changed");
  rank.fetched.erase(found);
  return true;
}

namespace {

// Refines `cells`, disjoint pieces of a linear op's output, by the pieces of one more input. After
// all inputs, every input has a single value in each cell, so the output has a single value there
// too. `terms`: by cell, the parts of each input so far.
void refine(std::vector<Piece>& cells, std::vector<std::vector<std::optional<PartsRef>>>& terms,
            const std::vector<Piece>& input) {
  std::vector<Piece> next;
  std::vector<std::vector<std::optional<PartsRef>>> next_terms;
  for (size_t c = 0; c < cells.size(); ++c) {
    for (const Piece& piece : input) {
      if (!overlaps(cells[c].local, piece.local)) continue;
      next.push_back(clip(cells[c], intersect(cells[c].local, piece.local)));
      next_terms.push_back(terms[c]);
      next_terms.back().emplace_back(piece.parts);
    }
  }
  cells = std::move(next);
  terms = std::move(next_terms);
}

bool touch_rows(Interpreting& v, Rank& rank, const Compute& compute, const Prepared& prepared) {
  if (!prepared.rows) return true;
  const int64_t mb = rank.step().micro_batch;
  for (const size_t input : prepared.rows->ids) {
    const TensorId tensor = prepared.op->inputs[input];
    const Box region = prepared.regions[input].at(mb);
    if (region.empty()) continue;
    bool there = false;
    for (Fetched& fetched : rank.fetched) {
      if (fetched.cache != prepared.rows->cache || !fetched.there) continue;
      const bool names = std::any_of(fetched.ids.begin(), fetched.ids.end(), [&](const auto& ids) {
        return ids.first == tensor && ids.second.contains(region);
      });
      if (!names) continue;
      there = true;
      fetched.changed = fetched.changed || prepared.rows->changes;
    }
    if (there) continue;
    return v.reject(
        &rank, "rows", tensor,
        fmt::format("touches rows of %{} that the ids {} name: expected a fetch of them, "
                    "and its wait, before",
                    compute.inputs[input].buffer.value, region.to_string()));
  }
  return true;
}

std::vector<Piece> results(Interpreting& v, const Compute& compute, const Prepared& prepared,
                           size_t o, const std::vector<std::vector<Piece>>& inputs,
                           int64_t micro_batch) {
  const Op& op = *prepared.op;
  const Output& output = compute.outputs[o];
  const Box region = prepared.outputs[o].region.at(micro_batch);
  std::vector<Piece> pieces{{relative(region, region), region, output.tensor, nullptr}};
  if (inputs.empty() && !prepared.outputs[o].stretches.empty()) {
    pieces.clear();
    for (const PreparedOutput::Stretch& stretch : prepared.outputs[o].stretches) {
      const Box here = stretch.region.at(micro_batch);
      pieces.push_back(
          {relative(here, region), here, output.tensor,
           make_leaf(op, o, prepared.outputs[o].reduced, stretch.box.at(micro_batch))});
    }
  } else if (inputs.empty()) {
    pieces[0].parts =
        make_leaf(op, o, prepared.outputs[o].reduced, prepared.outputs[o].box.at(micro_batch));
  } else {
    std::vector<std::vector<std::optional<PartsRef>>> terms(1);
    for (const std::vector<Piece>& input : inputs) refine(pieces, terms, input);
    for (size_t c = 0; c < pieces.size(); ++c) {
      pieces[c].parts = make_node(op, std::move(terms[c]));
    }
  }
  if (output.terms == 1) return pieces;
  const Op& sum = v.graph.op(v.graph.tensor(output.tensor).producer);
  v.fused[sum.id.index()] = true;
  for (Piece& piece : pieces) {
    std::vector<std::optional<PartsRef>> terms(static_cast<size_t>(output.terms));
    terms[static_cast<size_t>(output.term)] = piece.parts;
    piece.parts = make_node(sum, std::move(terms));
  }
  return pieces;
}

}  // namespace

bool run_compute(Interpreting& v, Rank& rank, const Compute& compute, const Prepared& prepared) {
  if (!touch_rows(v, rank, compute, prepared)) return false;
  const int64_t mb = rank.step().micro_batch;
  const Op& op = *prepared.op;
  std::vector<std::vector<Piece>> inputs;
  bool incomplete = false;
  if (prepared.linear) inputs.resize(op.inputs.size());
  const RowNaming* naming = naming_of(op);
  RowsThere named;
  if (naming != nullptr) named = {op.id, prepared.regions[naming->begin].at(mb).dims[0]};
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const bool by_name = naming != nullptr && naming->input == static_cast<int>(i);
    const Failure failure = rank.state.read(
        compute.inputs[i], mb, op.inputs[i], prepared.regions[i].at(mb), !prepared.linear,
        prepared.linear ? &inputs[i] : nullptr, by_name ? &named : nullptr);
    if (failure) return v.check(rank, failure);
    if (!prepared.linear) continue;
    for (const Piece& piece : inputs[i]) incomplete = incomplete || piece.parts != nullptr;
  }
  if (!incomplete) inputs.clear();
  add_union(v.executed[op.id.index()], prepared.box.at(mb));
  for (size_t o = 0; o < compute.outputs.size(); ++o) {
    const Output& output = compute.outputs[o];
    const std::vector<Piece> pieces = results(v, compute, prepared, o, inputs, mb);
    const int alias = prepared.outputs[o].alias;
    const Failure failure =
        sets(rank, output.write)
            ? rank.state.write(output.view, mb, pieces,
                               alias < 0 ? nullptr : &compute.inputs[static_cast<size_t>(alias)])
            : rank.state.add(output.view, mb, pieces, op.annotation.outputs[o].combiner);
    if (failure) return v.check(rank, failure);
  }
  return true;
}

}  // namespace tessera::verifying
