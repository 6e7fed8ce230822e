#include "tessera/tables/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tessera/base/text.h"
#include "tessera/tables/row_law.h"

namespace tessera::tables {
namespace {

int64_t piece_bytes(const Problem& problem, const Piece& piece) {
  const Table& table = problem.tables[piece.table];
  return problem.cost->device_bytes(table, piece, problem.optimizer) +
         problem.cost->working_bytes(table, piece, problem.devices);
}

bool inside(const Table& table, const Piece& piece) {
  return piece.rows >= 1 && piece.columns >= 1 && piece.first_row >= 0 && piece.first_column >= 0 &&
         piece.first_row + piece.rows <= table.rows &&
         piece.first_column + piece.columns <= table.dim && piece.share > 0;
}

bool overlap(const Piece& a, const Piece& b) {
  return a.first_row < b.first_row + b.rows && b.first_row < a.first_row + a.rows &&
         a.first_column < b.first_column + b.columns && b.first_column < a.first_column + a.columns;
}

// Checks that the pieces of table `at` cover each of its numbers once, where replicas of the table
// or of its first rows count once and must be on all devices. Returns the violation; "" if there
// is none.
std::string coverage(const Problem& problem, size_t at, const Placement& pieces) {
  const Table& table = problem.tables[at];
  std::vector<int> copies(static_cast<size_t>(problem.devices), 0);
  int64_t numbers = 0, replicated = 0;  // rows
  std::vector<const Piece*> once;       // pieces, of which equal replicas are one
  for (const PlacedPiece& placed : pieces) {
    const Piece& piece = placed.piece;
    if (!inside(table, piece)) return "a piece lies outside of the table";
    if (piece.kind != Sharding::kReplicated) {
      once.push_back(&piece);
      numbers += piece.rows * piece.columns;
      continue;
    }
    const bool alike = replicated == 0 || replicated == piece.rows;
    if (piece.first_row != 0 || piece.columns != table.dim || !alike)
      return "expected the same first rows on each device, all columns of them";
    if (replicated == 0) {
      once.push_back(&piece);
      numbers += piece.rows * piece.columns;
    }
    replicated = piece.rows;
    ++copies[static_cast<size_t>(placed.device)];
  }
  const bool all = std::all_of(copies.begin(), copies.end(), [](int n) { return n == 1; });
  if (replicated > 0 && !all) {
    return replicated == table.rows ? "expected a whole replica on each device"
                                    : "expected its first rows on each device";
  }
  for (size_t i = 0; i < once.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (overlap(*once[i], *once[j])) return "two pieces overlap";
    }
  }
  return numbers == table.rows * table.dim ? "" : "its pieces do not cover the table";
}

}  // namespace

Evaluation evaluate(const Problem& problem, const Placement& placement) {
  const auto devices = static_cast<size_t>(problem.devices);
  const CostModel& model = *problem.cost;
  Evaluation out;
  out.devices.resize(devices);
  out.bytes.assign(devices, 0);
  const size_t width = model.width();
  std::vector<double> sums(devices * width, 0.0), code(width);
  std::vector<bool> used(devices, false);
  std::vector<Placement> by_table(problem.tables.size());
  for (const PlacedPiece& placed : placement) {
    const bool known = placed.device >= 0 && placed.device < problem.devices &&
                       placed.piece.table < problem.tables.size();
    if (!known) {
      out.violations.push_back(fmt::format("a piece on device {} of {} is of table {} of {}",
                                           placed.device, devices, placed.piece.table,
                                           problem.tables.size()));
      continue;
    }
    const auto device = static_cast<size_t>(placed.device);
    by_table[placed.piece.table].push_back(placed);
    std::fill(code.begin(), code.end(), 0.0);
    model.encode(problem.tables[placed.piece.table], placed.piece, problem.devices, code);
    for (size_t i = 0; i < width; ++i) sums[device * width + i] += code[i];
    used[device] = true;
    out.bytes[device] += piece_bytes(problem, placed.piece);
  }
  for (size_t device = 0; device < devices; ++device) {
    if (used[device]) {
      out.devices[device].compute_ms = model.compute_ms({&sums[device * width], width});
    }
  }
  model.communicate(sums, out.devices);
  for (const DeviceCost& cost : out.devices) out.ms = std::max(out.ms, cost.total());
  for (size_t table = 0; table < by_table.size(); ++table) {
    const std::string wrong = coverage(problem, table, by_table[table]);
    if (!wrong.empty()) {
      out.violations.push_back(fmt::format("table '{}': {}", problem.tables[table].name, wrong));
    }
  }
  for (size_t device = 0; device < devices; ++device) {
    if (out.bytes[device] > problem.memory_bytes) {
      out.violations.push_back(fmt::format("device {} needs {} and has {}", device,
                                           format_bytes(out.bytes[device]),
                                           format_bytes(problem.memory_bytes)));
    }
  }
  return out;
}

int devices_beyond_range(const Problem& problem, const Placement& placement) {
  const auto range = problem.cost->range_of_columns();
  if (!range) return 0;
  std::vector<double> columns(static_cast<size_t>(problem.devices), 0);
  std::vector<bool> holds(columns.size(), false);
  for (const auto& [piece, device] : placement) {
    const auto at = static_cast<size_t>(device);
    holds[at] = true;
    if (piece.kind == Sharding::kReplicated) continue;
    columns[at] += static_cast<double>(piece.columns) * problem.tables[piece.table].bags;
  }
  int count = 0;
  for (size_t i = 0; i < columns.size(); ++i) {
    const bool outside = columns[i] < range->first || columns[i] > range->second;
    if (holds[i] && outside) ++count;
  }
  return count;
}

bool may_keep_hot(const Problem& problem) {
  return problem.splits.hot && problem.devices > 1 && problem.cost->prices(Sharding::kReplicated) &&
         problem.cost->prices(Sharding::kRows) &&
         std::any_of(problem.tables.begin(), problem.tables.end(), knows_frequency);
}

Placement with_known_shares(const Problem& problem, Placement placement) {
  for (PlacedPiece& placed : placement) {
    const Table& table = problem.tables[placed.piece.table];
    if (knows_frequency(table))
      placed.piece.share = share_of_piece(table, placed.piece, problem.devices);
  }
  return placement;
}

Placement whole_tables(const Problem& problem, const std::vector<int>& devices) {
  Placement out;
  for (size_t i = 0; i < problem.tables.size(); ++i) {
    out.push_back({Piece::whole(i, problem.tables[i]), devices[i]});
  }
  return out;
}

Answer answer_with(const Problem& problem, Placement placement, int64_t searched,
                   std::string ended) {
  std::sort(placement.begin(), placement.end());
  Evaluation evaluation = evaluate(problem, placement);
  if (!evaluation.fits()) {
    Answer none = not_found(problem, searched, ended);
    none.reason = evaluation.violations.front();
    return none;
  }
  Answer out;
  out.found = true;
  out.placement = std::move(placement);
  out.evaluation = std::move(evaluation);
  out.bound_ms = problem.cost->bound_ms(problem);
  out.searched = searched;
  out.ended = std::move(ended);
  return out;
}

Answer not_found(const Problem& problem, int64_t searched, const std::string& ended) {
  Answer out;
  out.searched = searched;
  out.ended = ended;
  int64_t needed = 0;
  const Table* largest = nullptr;
  for (const Table& table : problem.tables) {
    needed += piece_bytes(problem,
                          Piece::whole(static_cast<size_t>(&table - problem.tables.data()), table));
    if (largest == nullptr || table.bytes() > largest->bytes()) largest = &table;
  }
  const int64_t has = problem.memory_bytes * problem.devices;
  out.reason = fmt::format(
      "{} tables need {} and {} devices have {} together ({} each); the largest table, '{}', needs "
      "{}{}",
      problem.tables.size(), format_bytes(needed), problem.devices, format_bytes(has),
      format_bytes(problem.memory_bytes), largest->name, format_bytes(largest->bytes()),
      needed > has ? "" : "; " + ended);
  return out;
}

// ---- Coder ----

struct Coder::Known {
  std::map<Piece, std::unique_ptr<CodedPiece>> pieces;
};

Coder::Coder(const Problem& problem) : problem_(&problem), known_(std::make_unique<Known>()) {}
Coder::~Coder() = default;

const CodedPiece* Coder::operator()(const Piece& piece) {
  std::unique_ptr<CodedPiece>& slot = known_->pieces[piece];
  if (!slot) {
    const CostModel& model = *problem_->cost;
    slot = std::make_unique<CodedPiece>();
    slot->piece = piece;
    slot->bytes = piece_bytes(*problem_, piece);
    slot->code.assign(model.width(), 0.0);
    model.encode(problem_->tables[piece.table], piece, problem_->devices, slot->code);
    slot->single_ms = model.compute_ms(slot->code);
  }
  return slot.get();
}

// ---- Assignment ----

Assignment::Assignment(const Problem& problem, std::vector<std::vector<const CodedPiece*>> devices)
    : problem_(&problem), on_(std::move(devices)), width_(problem.cost->width()) {
  bytes_.assign(on_.size(), 0);
  sums_.assign(on_.size() * width_, 0.0);
  compute_ms_.assign(on_.size(), 0.0);
  costs_.resize(on_.size());
  for (size_t device = 0; device < on_.size(); ++device) {
    for (const CodedPiece* piece : on_[device]) bytes_[device] += piece->bytes;
    refresh(device);
  }
}

void Assignment::refresh(size_t device) {
  double* sum = &sums_[device * width_];
  std::fill(sum, sum + width_, 0.0);
  for (const CodedPiece* piece : on_[device]) {
    const double* code = piece->code.data();
    for (size_t i = 0; i < width_; ++i) sum[i] += code[i];
  }
  compute_ms_[device] = on_[device].empty() ? 0 : problem_->cost->compute_ms({sum, width_});
}

double Assignment::cost() {
  for (size_t device = 0; device < on_.size(); ++device) {
    costs_[device] = {compute_ms_[device], 0, 0};
  }
  problem_->cost->communicate(sums_, costs_);
  double worst = 0;
  for (const DeviceCost& cost : costs_) worst = std::max(worst, cost.total());
  return worst;
}

bool Assignment::has_room(const Edit& edit) const {
  // Sums up a device's bytes anew for each piece that comes to it, because edits have few pieces.
  for (const auto& [device, piece] : edit.in) {
    int64_t bytes = bytes_[index(device)];
    for (const auto& [from, at] : edit.out) {
      if (from == device) bytes -= on_[index(from)][at]->bytes;
    }
    for (const auto& [to, other] : edit.in) {
      if (to == device) bytes += other->bytes;
    }
    if (bytes > problem_->memory_bytes) return false;
  }
  return true;
}

int64_t Assignment::overflow_bytes() const {
  int64_t out = 0;
  for (const int64_t bytes : bytes_) out += std::max<int64_t>(0, bytes - problem_->memory_bytes);
  return out;
}

void Assignment::apply(const Edit& edit) {
  before_.clear();
  costs_before_ = costs_;
  const auto keep = [&](int device) {
    const size_t at = index(device);
    const bool kept = std::any_of(before_.begin(), before_.end(),
                                  [&](const Before& entry) { return entry.device == at; });
    if (kept) return;
    const auto sum = sums_.begin() + static_cast<std::ptrdiff_t>(at * width_);
    before_.push_back({at,
                       bytes_[at],
                       compute_ms_[at],
                       on_[at],
                       {sum, sum + static_cast<std::ptrdiff_t>(width_)}});
  };
  for (const auto& [device, at] : edit.out) keep(device);
  for (const auto& [device, piece] : edit.in) keep(device);
  std::vector<std::pair<int, size_t>> out = edit.out;
  // From the last index to the first, so that the others stay valid.
  std::sort(out.rbegin(), out.rend());
  for (const auto& [device, at] : out) {
    auto& pieces = on_[index(device)];
    bytes_[index(device)] -= pieces[at]->bytes;
    pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(at));
  }
  for (const auto& [device, piece] : edit.in) {
    on_[index(device)].push_back(piece);
    bytes_[index(device)] += piece->bytes;
  }
  for (const Before& entry : before_) refresh(entry.device);
}

void Assignment::undo() {
  for (Before& entry : before_) {
    on_[entry.device] = std::move(entry.pieces);
    bytes_[entry.device] = entry.bytes;
    compute_ms_[entry.device] = entry.compute_ms;
    std::copy(entry.sum.begin(), entry.sum.end(),
              sums_.begin() + static_cast<std::ptrdiff_t>(entry.device * width_));
  }
  before_.clear();
  std::swap(costs_, costs_before_);
}

Placement Assignment::placement() const {
  Placement out;
  for (size_t device = 0; device < on_.size(); ++device) {
    for (const CodedPiece* piece : on_[device]) {
      out.push_back({piece->piece, static_cast<int>(device)});
    }
  }
  return out;
}

}  // namespace tessera::tables
