#include "tessera/tables/auto_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>

#include "tessera/base/philox.h"
#include "tessera/tables/baselines.h"
#include "tessera/tables/neuroshard.h"
#include "tessera/tables/row_law.h"

namespace tessera::tables {
namespace {

using Devices = std::vector<std::vector<const CodedPiece*>>;
using Edit = Assignment::Edit;

// Constants of annealing. kHot, kCold: first and last temperature as shares of the cost. kShortage:
// the price of missing memory; if the missing bytes are as many as a device has, the cost is raised
// by so many times itself. kEvenness: the weight of even loads.
constexpr double kHot = 0.01, kCold = 1e-4, kShortage = 5, kEvenness = 0.02;
constexpr int64_t kMostPackingSteps = 200000;
constexpr std::array<double, 7> kShares = {1.0 / 2, 1.0 / 4, 3.0 / 4, 1.0 / 8,
                                           3.0 / 8, 5.0 / 8, 7.0 / 8};
// Share of drawn edits that concern hot rows, where rows may be hot.
constexpr double kHotEdits = 0.15;
constexpr int kHotHalvings = 18;  // the fewest hot rows are the table's rows, halved so often
// Number of blocks of a table's rows; rows are cut only between blocks.
constexpr int64_t kRowBlocks = 64;

class Draws {
 public:
  explicit Draws(uint64_t seed) : philox_{seed, 0x7ab1e5} {}
  double uniform() {
    if (at_ == 4) {
      block_ = philox_.block(next_++);
      at_ = 0;
    }
    return (block_[at_++] >> 8) * 0x1p-24;
  }
  size_t below(size_t count) { return static_cast<size_t>(uniform() * static_cast<double>(count)); }

 private:
  Philox philox_;
  std::array<uint32_t, 4> block_{};
  size_t at_ = 4;
  uint64_t next_ = 0;
};

Sharding cut_kind(const Table& table, const Piece& piece) {
  const bool columns = piece.columns < table.dim;
  const bool rows = piece.rows < table.rows;
  if (columns) return rows ? Sharding::kGrid : Sharding::kColumns;
  return rows ? Sharding::kRows : Sharding::kTable;
}

// Makes the pieces that the problem allows.
class Cuts {
 public:
  explicit Cuts(const Problem& problem) : problem_(problem) {
    const auto priced = [&](Sharding kind) { return problem.cost->prices(kind); };
    columns_ = problem.splits.columns && priced(Sharding::kColumns);
    rows_ = problem.splits.rows && priced(Sharding::kRows);
    replicas_ = problem.splits.replicas && problem.devices > 1 && priced(Sharding::kReplicated);
    hot_ = may_keep_hot(problem);
  }

  bool cuts_columns() const { return columns_; }
  bool cuts_rows() const { return rows_; }
  bool makes_replicas() const { return replicas_; }
  // Cuts the columns of a piece. Returns two pieces, the first with about `share` of the columns;
  // nothing if a piece would be empty or is not allowed.
  std::optional<std::pair<Piece, Piece>> columns(const Piece& piece, double share) const {
    const int64_t unit = problem_.splits.least_columns;
    const int64_t units = piece.columns / unit;
    if (!columns_ || replica(piece) || units < 2 || piece.columns % unit != 0) return std::nullopt;
    if (piece.rows < table(piece).rows && !problem_.cost->prices(Sharding::kGrid))
      return std::nullopt;
    auto out = std::pair(piece, piece);
    out.first.columns = part(units, share) * unit;
    out.second.first_column += out.first.columns;
    out.second.columns -= out.first.columns;
    return kinds(out);
  }
  // Cuts the rows of a piece, between blocks of a 64th of the table. Returns two pieces, the first
  // with about `share` of the rows; nothing if a piece would be empty or is not allowed.
  std::optional<std::pair<Piece, Piece>> rows(const Piece& piece, double share) const {
    const int64_t unit = (table(piece).rows + kRowBlocks - 1) / kRowBlocks;
    const int64_t units = (piece.rows + unit - 1) / unit;
    if (!rows_ || replica(piece) || units < 2) return std::nullopt;
    if (piece.columns < table(piece).dim && !problem_.cost->prices(Sharding::kGrid)) {
      return std::nullopt;
    }
    auto out = std::pair(piece, piece);
    out.first.rows = part(units, share) * unit;
    out.second.first_row += out.first.rows;
    out.second.rows -= out.first.rows;
    return kinds(out);
  }
  // Joins two pieces into one. Returns nothing if they are no neighbours in the table with equal
  // rows or equal columns.
  std::optional<Piece> join(const Piece& a, const Piece& b) const {
    if (a.table != b.table || replica(a) || replica(b)) return std::nullopt;
    const Piece& first = std::min(a, b);
    const Piece& second = std::max(a, b);
    Piece out = first;
    if (first.first_row == second.first_row && first.rows == second.rows &&
        first.first_column + first.columns == second.first_column) {
      out.columns += second.columns;
    } else if (first.first_column == second.first_column && first.columns == second.columns &&
               first.first_row + first.rows == second.first_row) {
      out.rows += second.rows;
    } else {
      return std::nullopt;
    }
    out = kind(out);
    if (!may_be(out)) return std::nullopt;
    return out;
  }
  // Moves the border between two neighbouring pieces so that the first has about `share` of both.
  std::optional<std::pair<Piece, Piece>> shift(const Piece& a, const Piece& b, double share) const {
    const auto joined = join(a, b);
    if (!joined) return std::nullopt;
    return a.first_row == b.first_row ? columns(*joined, share) : rows(*joined, share);
  }
  std::optional<Piece> replicate(const Piece& piece) const {
    if (!replicas_ || piece.kind != Sharding::kTable) return std::nullopt;
    Piece out = piece;
    out.kind = Sharding::kReplicated;
    out.share = 1.0 / problem_.devices;
    if (!may_be(out)) return std::nullopt;
    return out;
  }
  // Returns whether the piece is allowed: the cost model was made for such pieces, or may be used
  // beyond its range, or the piece is a whole table.
  bool may_be(const Piece& piece) const {
    return piece.kind == Sharding::kTable || problem_.beyond_range ||
           problem_.cost->in_range(table(piece), piece);
  }
  static bool replica(const Piece& piece) { return piece.kind == Sharding::kReplicated; }

  // Makes the first rows of a piece hot. Returns the hot piece, which goes to every device, and the
  // rest of `piece`. Returns nothing if the piece does not begin with the table's first row, lacks
  // columns, or would be empty afterwards.
  std::optional<std::pair<Piece, Piece>> hot(const Piece& piece, int64_t rows) const {
    const Table& of = table(piece);
    if (!hot_ || replica(piece) || piece.first_row > 0 || piece.columns < of.dim || rows < 1 ||
        rows >= piece.rows || !knows_frequency(of))
      return std::nullopt;
    Piece first = piece, rest = piece;
    first.kind = Sharding::kReplicated;
    first.rows = rows;
    first.share = share_of_piece(of, first, problem_.devices);
    rest.first_row += rows;
    rest.rows -= rows;
    rest = kind(rest);
    if (!may_be(first) || !may_be(rest)) return std::nullopt;
    return std::pair(first, rest);
  }
  bool is_hot(const Piece& piece) const { return replica(piece) && piece.rows < table(piece).rows; }
  // Returns `rest`, the piece that begins right after the hot rows, joined with the hot rows.
  // Returns nothing if `rest` is not this piece.
  std::optional<Piece> without_hot(const Piece& hot, const Piece& rest) const {
    if (rest.table != hot.table || replica(rest) || rest.first_row != hot.rows ||
        rest.columns < table(rest).dim)
      return std::nullopt;
    Piece out = rest;
    out.first_row = 0;
    out.rows += hot.rows;
    out = kind(out);
    if (!may_be(out)) return std::nullopt;
    return out;
  }

 private:
  const Table& table(const Piece& piece) const { return problem_.tables[piece.table]; }
  // Returns how many of the units the first of two parts has, at least one and not all.
  static int64_t part(int64_t units, double share) {
    const auto first = std::llround(share * static_cast<double>(units));
    return std::clamp<int64_t>(first, 1, units - 1);
  }
  Piece kind(Piece piece) const {
    piece.kind = cut_kind(table(piece), piece);
    piece.share = share_of_piece(table(piece), piece, problem_.devices);
    return piece;
  }
  std::optional<std::pair<Piece, Piece>> kinds(const std::pair<Piece, Piece>& two) const {
    const std::pair<Piece, Piece> out(kind(two.first), kind(two.second));
    if (!may_be(out.first) || !may_be(out.second)) return std::nullopt;
    return out;
  }

  const Problem& problem_;
  bool columns_, rows_, replicas_, hot_;
};

// Returns whether there are so few placements of whole tables that all are tried.
bool tries_all(const Problem& problem, const AutoOptions& options) {
  return std::pow(problem.devices, static_cast<double>(problem.tables.size())) <=
         static_cast<double>(options.enumerate);
}

class AutoSearch {
 public:
  AutoSearch(const Problem& problem, const AutoOptions& options)
      : problem_(problem),
        options_(options),
        coder_(problem),
        cuts_(problem),
        draws_(options.seed),
        devices_(problem.devices),
        hot_(may_keep_hot(problem)) {}

  // Searches from the seeds and from answers with fewer kinds of splits. The answer is at least as
  // fast as each of these.
  Answer search(const std::vector<const Answer*>& narrower) {
    say("seeds");
    keep_answers(narrower);
    std::vector<Devices> seeds = this->seeds();
    if (seeds.empty() && !best_.empty()) seeds.push_back(best_);
    if (seeds.empty()) {
      return not_found(problem_, searched_,
                       exact_ ? "no placement within the allowed splits fits"
                              : "packing by bytes found nothing within its limit of steps");
    }
    if (tries_all(problem_, options_)) {
      say("all placements of whole tables");
      const Answer all = brute_force(problem_);
      searched_ += all.searched;
      if (all.found) seeds.insert(seeds.begin(), devices_of(all.placement));
    }
    double worst = 0;
    std::vector<std::pair<double, size_t>> ranked;
    for (size_t i = 0; i < seeds.size(); ++i) {
      const double ms = Assignment(problem_, seeds[i]).cost();
      keep(ms, seeds[i]);
      ranked.emplace_back(ms, i);
      worst = std::max(worst, ms);
    }
    std::sort(ranked.begin(), ranked.end());
    const int64_t each = options_.budget / std::max(1, options_.restarts);
    for (int restart = 0; restart < options_.restarts && devices_ > 1; ++restart) {
      say(fmt::format("restart {} of {}", restart + 1, options_.restarts));
      // The last restart starts from the best placement so far, at a lower temperature.
      const bool last = restart > 0 && restart + 1 == options_.restarts;
      const Devices& from =
          last ? best_ : seeds[ranked[static_cast<size_t>(restart) % ranked.size()].second];
      Assignment state(problem_, from);
      anneal(state, each * 3 / 4, last ? kHot / 8 : kHot);
      Assignment cooled(problem_, annealed_);
      descend(cooled, each / 4);
    }
    return answer_with(problem_, Assignment(problem_, best_).placement(), searched_,
                       fmt::format("{} restarts", options_.restarts));
  }

  // Searches from an answer with edits of hot rows, too. The answer is at least as fast as `start`.
  Answer search_hot_rows(const Answer& start, const std::vector<const Answer*>& narrower) {
    say("hot rows");
    const Devices from = devices_of(start.placement);
    keep(start.evaluation.ms, from);
    keep_answers(narrower);
    std::vector<Devices> starts = seeds();
    starts.insert(starts.begin(), from);
    searched_ = 0;
    const int64_t each = options_.budget / std::max(1, options_.restarts);
    Assignment near(problem_, from);
    descend(near, each / 4);
    for (int restart = 0; restart < options_.restarts; ++restart) {
      const bool last = restart > 0 && restart + 1 == options_.restarts;
      Assignment state(problem_,
                       last ? best_ : starts[static_cast<size_t>(restart) % starts.size()]);
      anneal(state, each * 3 / 4, last ? kHot / 8 : kHot);
      Assignment cooled(problem_, annealed_);
      descend(cooled, each / 4);
    }
    return answer_with(problem_, Assignment(problem_, best_).placement(), searched_,
                       start.ended + ", then with hot rows");
  }

 private:
  void say(const std::string& what) const {
    if (options_.progress) options_.progress(what);
  }

  void keep(double ms, const Devices& devices) {
    if (ms >= best_ms_) return;
    best_ms_ = ms;
    best_ = devices;
  }

  void keep_answers(const std::vector<const Answer*>& answers) {
    for (const Answer* answer : answers) {
      if (!answer->found) continue;
      const Devices devices = devices_of(answer->placement);
      keep(Assignment(problem_, devices).cost(), devices);
    }
  }

  Devices devices_of(const Placement& placement) {
    Devices out(static_cast<size_t>(devices_));
    for (const PlacedPiece& placed : placement) {
      out[static_cast<size_t>(placed.device)].push_back(coder_(placed.piece));
    }
    return out;
  }
  Devices snapshot(const Assignment& state) const {
    Devices out;
    for (int device = 0; device < devices_; ++device) out.push_back(state.on(device));
    return out;
  }

  // ---- Seeds ----
  std::vector<Devices> seeds() {
    std::vector<Devices> out;
    const auto add = [&](const Answer& answer) {
      ++searched_;
      const bool known =
          std::all_of(answer.placement.begin(), answer.placement.end(),
                      [&](const PlacedPiece& one) { return cuts_.may_be(one.piece); });
      if (answer.found && known) out.push_back(devices_of(answer.placement));
    };
    for (const GreedyKey key :
         {GreedyKey::kDim, GreedyKey::kSize, GreedyKey::kLookup, GreedyKey::kSizeLookup}) {
      add(greedy(problem_, key));
    }
    NeuroshardOptions beam;
    if (!cuts_.cuts_columns()) beam.depth = 0;
    const Answer theirs = neuroshard(problem_, beam);
    searched_ += theirs.searched;
    add(theirs);
    std::vector<double> single;
    for (size_t i = 0; i < problem_.tables.size(); ++i) {
      single.push_back(coder_(Piece::whole(i, problem_.tables[i]))->single_ms);
    }
    for (const auto& devices :
         {longest_first(single, devices_), karmarkar_karp(single, devices_)}) {
      const Placement placement = whole_tables(problem_, devices);
      ++searched_;
      if (evaluate(problem_, placement).fits()) out.push_back(devices_of(placement));
    }
    if (out.empty()) {
      if (auto packed = pack_pieces()) out.push_back(std::move(*packed));
    }
    return out;
  }

  // Packs whole tables by bytes. If that fails, cuts the largest piece in two and packs again,
  // until packing succeeds. First tries to cut columns before rows, because cut columns add no
  // exchange. If that fails, starts anew and cuts rows before columns, because cut columns need
  // more memory if the optimizer keeps one number a row.
  std::optional<Devices> pack_pieces() {
    for (const bool columns_first : {true, false}) {
      std::vector<Piece> pieces = split_columns(problem_.tables, {});
      const size_t most = pieces.size() + 64 * static_cast<size_t>(devices_);
      while (true) {
        std::vector<int64_t> bytes;
        for (const Piece& piece : pieces) bytes.push_back(coder_(piece)->bytes);
        const bool whole = pieces.size() == problem_.tables.size();
        bool exact = false;
        const std::vector<int> at =
            pack(bytes, devices_, problem_.memory_bytes,
                 whole ? kMostPackingSteps : kMostPackingSteps / 100, exact);
        if (whole) exact_ = exact;
        if (!at.empty()) {
          Devices out(static_cast<size_t>(devices_));
          for (size_t i = 0; i < pieces.size(); ++i) {
            out[static_cast<size_t>(at[i])].push_back(coder_(pieces[i]));
          }
          return out;
        }
        if (pieces.size() > most || !cut_largest(pieces, bytes, columns_first)) break;
      }
    }
    return std::nullopt;
  }

  bool cut_largest(std::vector<Piece>& pieces, const std::vector<int64_t>& bytes,
                   bool columns_first) const {
    std::vector<size_t> order(pieces.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return bytes[a] > bytes[b]; });
    for (const size_t at : order) {
      auto two = columns_first ? cuts_.columns(pieces[at], 0.5) : cuts_.rows(pieces[at], 0.5);
      if (!two) two = columns_first ? cuts_.rows(pieces[at], 0.5) : cuts_.columns(pieces[at], 0.5);
      if (!two) continue;
      pieces[at] = two->first;
      pieces.push_back(two->second);
      return true;
    }
    return false;
  }

  // ---- Edits ----
  int other_device(int device) {
    const auto draw = static_cast<int>(draws_.below(static_cast<size_t>(devices_ - 1)));
    return draw < device ? draw : draw + 1;
  }
  static int slowest(const std::vector<DeviceCost>& costs) {
    // Compares times without the forward exchange, because in that exchange all devices wait for
    // the slowest one.
    int at = 0;
    for (size_t i = 1; i < costs.size(); ++i) {
      const auto late = [](const DeviceCost& c) { return c.compute_ms + c.backward_ms; };
      if (late(costs[i]) > late(costs[static_cast<size_t>(at)])) at = static_cast<int>(i);
    }
    return at;
  }

  // Draws a random edit. Returns an empty edit if the drawn kind does not apply to the drawn piece.
  Edit draw(const Assignment& state) {
    Edit edit;
    const int device = draws_.uniform() < 0.5
                           ? slowest(state.costs())
                           : static_cast<int>(draws_.below(static_cast<size_t>(devices_)));
    const auto& pieces = state.on(device);
    if (pieces.empty()) return edit;
    const size_t at = draws_.below(pieces.size());
    const CodedPiece* piece = pieces[at];
    const int other = other_device(device);
    if (hot_ && draws_.uniform() < kHotEdits) return draw_hot(state, device, at);
    const double what = draws_.uniform();
    if (cuts_.is_hot(piece->piece)) return edit;
    if (Cuts::replica(piece->piece)) {
      return what < 0.2 ? gather(state, piece->piece, device) : edit;
    }
    if (what < 0.3) {
      edit.out = {{device, at}};
      edit.in = {{other, piece}};
    } else if (what < 0.55) {
      const auto& others = state.on(other);
      if (others.empty()) return edit;
      const size_t with = draws_.below(others.size());
      if (Cuts::replica(others[with]->piece)) return edit;
      edit.out = {{device, at}, {other, with}};
      edit.in = {{other, piece}, {device, others[with]}};
    } else if (what < 0.7) {
      const bool rows = draws_.uniform() < 0.5;
      const double share = draws_.uniform();
      auto two = rows ? cuts_.rows(piece->piece, share) : cuts_.columns(piece->piece, share);
      if (!two) two = rows ? cuts_.columns(piece->piece, share) : cuts_.rows(piece->piece, share);
      if (two) edit = cut(device, at, *two, other);
    } else if (what < 0.8) {
      edit = join(state, device, at);
    } else if (what < 0.97) {
      edit = shift(state, device, at, draws_.uniform());
    } else {
      edit = replicate(device, at, piece->piece);
    }
    return edit;
  }

  // Puts the first `rows` rows of the piece's table on every device. If the piece is itself hot
  // rows, changes their number.
  Edit keep_hot(const Assignment& state, int device, size_t at, int64_t rows) {
    const Piece& piece = state.on(device)[at]->piece;
    if (cuts_.is_hot(piece)) return change_hot(state, piece, rows);
    Edit edit;
    const auto two = cuts_.hot(piece, rows);
    if (!two) return edit;
    edit.out = {{device, at}};
    edit.in = {{device, coder_(two->second)}};
    for (int to = 0; to < devices_; ++to) edit.in.emplace_back(to, coder_(two->first));
    return edit;
  }
  // Changes the number of hot rows of a table. With 0 rows the hot rows are joined with the piece
  // that follows them.
  Edit change_hot(const Assignment& state, const Piece& hot, int64_t rows) {
    Edit edit;
    // Device and piece of the following rows, joined with the hot rows.
    std::optional<std::pair<int, Piece>> whole;
    for (int from = 0; from < devices_; ++from) {
      const auto& pieces = state.on(from);
      for (size_t at = 0; at < pieces.size(); ++at) {
        const Piece& other = pieces[at]->piece;
        const auto joined = cuts_.without_hot(hot, other);
        if (joined) whole = {from, *joined};
        if (joined || (other.table == hot.table && Cuts::replica(other)))
          edit.out.emplace_back(from, at);
      }
    }
    if (!whole || rows == hot.rows) return {};
    if (rows < 1) {
      edit.in = {{whole->first, coder_(whole->second)}};
      return edit;
    }
    const auto two = cuts_.hot(whole->second, rows);
    if (!two) return {};
    edit.in = {{whole->first, coder_(two->second)}};
    for (int to = 0; to < devices_; ++to) edit.in.emplace_back(to, coder_(two->first));
    return edit;
  }
  Edit draw_hot(const Assignment& state, int device, size_t at) {
    const Piece& piece = state.on(device)[at]->piece;
    const auto rows = static_cast<double>(problem_.tables[piece.table].rows);
    if (cuts_.is_hot(piece) && draws_.uniform() < 0.2) return change_hot(state, piece, 0);
    const double share = std::exp2(-kHotHalvings * draws_.uniform());
    return keep_hot(state, device, at, std::max<int64_t>(1, std::llround(share * rows)));
  }

  Edit cut(int device, size_t at, const std::pair<Piece, Piece>& two, int other) {
    return {{{device, at}}, {{device, coder_(two.first)}, {other, coder_(two.second)}}};
  }
  // Returns device and index of the first piece, on any device, that can be joined with `piece`.
  std::optional<std::pair<int, size_t>> neighbour(const Assignment& state,
                                                  const Piece& piece) const {
    if (piece.kind == Sharding::kTable) return std::nullopt;
    for (int other = 0; other < devices_; ++other) {
      const auto& others = state.on(other);
      for (size_t with = 0; with < others.size(); ++with) {
        if (others[with]->piece.table == piece.table && cuts_.join(piece, others[with]->piece)) {
          return std::pair(other, with);
        }
      }
    }
    return std::nullopt;
  }
  Edit join(const Assignment& state, int device, size_t at) {
    const Piece& piece = state.on(device)[at]->piece;
    const auto with = neighbour(state, piece);
    if (!with) return {};
    const auto joined = cuts_.join(piece, state.on(with->first)[with->second]->piece);
    return {{{device, at}, *with}, {{device, coder_(*joined)}}};
  }
  // Moves the border between a piece and its neighbour. Both pieces stay on their devices.
  Edit shift(const Assignment& state, int device, size_t at, double share) {
    const Piece& piece = state.on(device)[at]->piece;
    const auto with = neighbour(state, piece);
    if (!with) return {};
    const Piece& other = state.on(with->first)[with->second]->piece;
    const auto two = cuts_.shift(piece, other, share);
    if (!two) return {};
    const bool first = piece < other;
    return {{{device, at}, *with},
            {{first ? device : with->first, coder_(two->first)},
             {first ? with->first : device, coder_(two->second)}}};
  }
  Edit replicate(int device, size_t at, const Piece& piece) {
    Edit edit;
    const auto replica = cuts_.replicate(piece);
    if (!replica) return edit;
    edit.out = {{device, at}};
    for (int to = 0; to < devices_; ++to) edit.in.emplace_back(to, coder_(*replica));
    return edit;
  }
  // Gathers the replicas of a table into the whole table on one device.
  Edit gather(const Assignment& state, const Piece& piece, int device) {
    Edit edit;
    for (int from = 0; from < devices_; ++from) {
      const auto& pieces = state.on(from);
      for (size_t at = 0; at < pieces.size(); ++at) {
        if (pieces[at]->piece.table == piece.table) edit.out.emplace_back(from, at);
      }
    }
    edit.in = {{device, coder_(Piece::whole(piece.table, problem_.tables[piece.table]))}};
    return edit;
  }

  // Returns the cost, plus a price for missing memory and a small term for the devices' loads.
  // Because of this term, among placements with an equally slow slowest device the one with faster
  // other devices is better.
  double objective(Assignment& state) {
    ++searched_;
    const double ms = state.cost();
    double squares = 0;
    for (const DeviceCost& cost : state.costs()) {
      const double late = cost.compute_ms + cost.backward_ms;
      squares += late * late;
    }
    last_overflow_ = state.overflow_bytes();
    const double over =
        static_cast<double>(last_overflow_) / static_cast<double>(problem_.memory_bytes);
    last_ms_ = last_overflow_ > 0 ? std::numeric_limits<double>::infinity() : ms;
    return ms * (1 + kShortage * over) + kEvenness * std::sqrt(squares / devices_);
  }

  void anneal(Assignment& state, int64_t most, double heat) {
    double now = objective(state);
    keep(last_ms_, snapshot(state));
    double best = now;
    annealed_ = snapshot(state);
    const double hot = heat * now, cold = kCold * now;
    for (int64_t step = 0; step < most; ++step) {
      const double share = static_cast<double>(step) / static_cast<double>(most);
      const double temperature = hot * std::pow(cold / hot, share);
      const Edit edit = draw(state);
      if (edit.out.empty()) continue;
      state.apply(edit);
      const double then = objective(state);
      if (then > now && draws_.uniform() >= std::exp((now - then) / temperature)) {
        state.undo();
        continue;
      }
      now = then;
      if (last_ms_ < best_ms_) keep(last_ms_, snapshot(state));
      if (now < best && last_overflow_ == 0) {
        best = now;
        annealed_ = snapshot(state);
      }
    }
  }

  bool improves(Assignment& state, const Edit& edit, double& now) {
    if (edit.out.empty() || !state.has_room(edit)) return false;
    state.apply(edit);
    const double then = objective(state);
    if (then < now * (1 - 1e-12)) {
      now = then;
      if (last_ms_ < best_ms_) keep(last_ms_, snapshot(state));
      return true;
    }
    state.undo();
    return false;
  }

  // Tries to keep none, a half, a quarter, ... of the rows of the piece's table on every device.
  // Applies the first of these edits that improves the objective and returns true, else false.
  bool improves_hot(Assignment& state, int device, size_t at, double& now) {
    const Piece piece = state.on(device)[at]->piece;
    if (cuts_.is_hot(piece) && improves(state, change_hot(state, piece, 0), now)) return true;
    int64_t rows = problem_.tables[piece.table].rows / 2;
    for (int halving = 0; halving < kHotHalvings && rows > 0; ++halving, rows /= 2) {
      if (improves(state, keep_hot(state, device, at, rows), now)) return true;
    }
    return false;
  }

  // Applies the first edit of a piece on `device` that improves the objective and returns true,
  // else false.
  bool improve_at(Assignment& state, int device, double& now) {
    for (size_t at = 0; at < state.on(device).size(); ++at) {
      const CodedPiece* piece = state.on(device)[at];
      if (hot_ && improves_hot(state, device, at, now)) return true;
      if (cuts_.is_hot(piece->piece)) continue;
      if (Cuts::replica(piece->piece)) {
        if (improves(state, gather(state, piece->piece, device), now)) return true;
        continue;
      }
      if (improves(state, join(state, device, at), now)) return true;
      if (improves(state, replicate(device, at, piece->piece), now)) return true;
      for (const double share : kShares) {
        if (improves(state, shift(state, device, at, share), now)) return true;
      }
      for (int other = 0; other < devices_; ++other) {
        if (other == device) continue;
        if (improves(state, {{{device, at}}, {{other, piece}}}, now)) return true;
        for (const double share : kShares) {
          const auto columns = cuts_.columns(piece->piece, share);
          const auto rows = cuts_.rows(piece->piece, share);
          for (const auto& two : {columns, rows}) {
            if (two && improves(state, cut(device, at, *two, other), now)) return true;
          }
        }
        for (size_t with = 0; with < state.on(other).size(); ++with) {
          const CodedPiece* partner = state.on(other)[with];
          if (Cuts::replica(partner->piece)) continue;
          if (improves(state, {{{device, at}, {other, with}}, {{other, piece}, {device, partner}}},
                       now)) {
            return true;
          }
        }
      }
    }
    return false;
  }

  void descend(Assignment& state, int64_t most) {
    double now = objective(state);
    keep(last_ms_, snapshot(state));
    const int64_t until = searched_ + most;
    while (searched_ < until) {
      if (!improve_at(state, slowest(state.costs()), now)) break;
    }
  }

  const Problem& problem_;
  const AutoOptions& options_;
  Coder coder_;
  Cuts cuts_;
  Draws draws_;
  int devices_;
  bool hot_;
  int64_t searched_ = 0;
  bool exact_ = true;
  double last_ms_ = 0;  // cost of the last placement; infinite if memory is missing
  int64_t last_overflow_ = 0;
  double best_ms_ = std::numeric_limits<double>::infinity();
  Devices best_, annealed_;
};

// Finds an answer for each set of kinds of splits that the problem allows. The search with a set
// also starts from the answers with one kind less, and is at least as fast as these, so one more
// kind never makes an answer slower. Hot rows are searched last.
class Kinds {
 public:
  Kinds(const Problem& problem, const AutoOptions& options) : problem_(problem), options_(options) {
    const Cuts cuts(problem);
    if (cuts.cuts_columns()) all_ |= kColumns;
    if (cuts.cuts_rows()) all_ |= kRows;
    if (cuts.makes_replicas()) all_ |= kReplicas;
    if (may_keep_hot(problem)) all_ |= kHot;
  }

  Answer answer() {
    Answer out = answer(all_);
    out.searched = 0;
    for (const auto& [kinds, known] : known_) out.searched += known.searched;
    if (out.found && tries_all(problem_, options_))
      out.ended += ", and all placements of whole tables";
    return out;
  }

 private:
  static constexpr unsigned kColumns = 1, kRows = 2, kReplicas = 4, kHot = 8;

  const Answer& answer(unsigned kinds) {
    const auto found = known_.find(kinds);
    if (found != known_.end()) return found->second;
    std::vector<const Answer*> narrower;
    for (const unsigned kind : {kColumns, kRows, kReplicas, kHot}) {
      if ((kinds & kind) != 0) narrower.push_back(&answer(kinds & ~kind));
    }
    Problem problem = problem_;
    problem.splits.columns = (kinds & kColumns) != 0;
    problem.splits.rows = (kinds & kRows) != 0;
    problem.splits.replicas = (kinds & kReplicas) != 0;
    problem.splits.hot = (kinds & kHot) != 0;
    const Answer* start = (kinds & kHot) != 0 ? narrower.back() : nullptr;
    AutoOptions own_options = options_;
    // All placements of whole tables are tried only once.
    if (kinds != 0) own_options.enumerate = 0;
    AutoSearch search(problem, own_options);
    Answer own;
    if (start == nullptr) {
      own = search.search(narrower);
    } else {
      own = start->found ? search.search_hot_rows(*start, narrower) : *start;
      if (!start->found) own.searched = 0;
    }
    return known_.emplace(kinds, std::move(own)).first->second;
  }

  const Problem& problem_;
  const AutoOptions& options_;
  unsigned all_ = 0;
  std::map<unsigned, Answer> known_;
};

}  // namespace

Answer auto_search(const Problem& problem, const AutoOptions& options) {
  return Kinds(problem, options).answer();
}

}  // namespace tessera::tables
