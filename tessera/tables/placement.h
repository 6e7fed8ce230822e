// Defines the questions and answers of the planners of tables. Every placement, whether of a
// planner, by brute force or by hand, is priced by evaluate(), which computes everything anew.
//
//   Problem problem{.tables = tables, .devices = 4, .memory_bytes = 4LL << 30, .cost = &model};
//   const Evaluation found = evaluate(problem, placement);
//   if (found.fits()) use(found.ms);
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/tables/cost_model.h"
#include "tessera/tables/sharding.h"

namespace tessera::tables {

// The kinds of pieces that Tessera's planner may make. (Published planners have their own rules.)
struct Splits {
  bool columns = true;
  bool rows = true;
  bool replicas = true;
  bool hot = true;  // the first rows of tables with known frequencies may be on every device
  int64_t least_columns = 4;  // widths of cut pieces are multiples of this number
};

struct Problem {
  std::vector<Table> tables;
  int devices = 1;
  int64_t memory_bytes = 0;  // of a device
  const CostModel* cost = nullptr;
  Optimizer optimizer = Optimizer::kSgd;
  Splits splits;
  // Whether planners may make pieces for which the cost model was not made.
  bool beyond_range = false;
};

struct PlacedPiece {
  Piece piece;
  int device = 0;
  auto operator<=>(const PlacedPiece&) const = default;
};
using Placement = std::vector<PlacedPiece>;

struct Evaluation {
  double ms = 0;  // time of the slowest device
  std::vector<DeviceCost> devices;
  std::vector<int64_t> bytes;  // by device
  // One line each, such as missing memory, numbers that no piece covers or that two pieces hold.
  std::vector<std::string> violations;
  bool fits() const { return violations.empty(); }
};
Evaluation evaluate(const Problem& problem, const Placement& placement);

// Returns the number of devices whose columns are fewer or more than those for which the cost model
// was made. Devices without pieces do not count.
int devices_beyond_range(const Problem& problem, const Placement& placement);

// Returns whether the splits, the cost model and the tables allow hot rows: first rows of a table
// that are on every device.
bool may_keep_hot(const Problem& problem);
// Returns the placement with each Piece::share set from the frequencies of rows, for tables where
// these are known.
Placement with_known_shares(const Problem& problem, Placement placement);

// Puts each table whole on the device that is named for it.
Placement whole_tables(const Problem& problem, const std::vector<int>& devices);

// The answer of a planner. If `found` is false, `reason` says how much memory is needed and
// available, and whether nothing can fit or only this planner found nothing.
struct Answer {
  bool found = false;
  std::string reason;
  Placement placement;
  Evaluation evaluation;
  double bound_ms = 0;   // no placement that the problem allows is faster than this
  int64_t searched = 0;  // number of placements that were priced
  std::string ended;     // why the search ended
};
// Evaluates the placement and makes the answer. If the placement does not fit, `found` is false.
Answer answer_with(const Problem& problem, Placement placement, int64_t searched,
                   std::string ended);
// Makes an answer that found nothing. Its reason states the bytes of the tables and of the devices.
Answer not_found(const Problem& problem, int64_t searched, const std::string& ended);

// A piece with its vector (cost_model.h), which is computed once for all placements of a problem.
struct CodedPiece {
  Piece piece;
  int64_t bytes = 0;
  std::vector<double> code;  // the piece's vector, which is added to the sum of its device
  double single_ms = 0;      // computing time of a device that has this piece alone
};
class Coder {
 public:
  explicit Coder(const Problem& problem);
  ~Coder();
  Coder(const Coder&) = delete;
  Coder& operator=(const Coder&) = delete;
  const CodedPiece* operator()(const Piece& piece);

 private:
  struct Known;
  const Problem* problem_;
  std::unique_ptr<Known> known_;
};

// The pieces on each device while a search changes them. The sum and the computing time of a device
// are computed again when its pieces change. Exchange times are computed in cost(). cost() agrees
// with evaluate() up to the rounding of sums in another order.
class Assignment {
 public:
  Assignment(const Problem& problem, std::vector<std::vector<const CodedPiece*>> devices);

  const std::vector<const CodedPiece*>& on(int device) const { return on_[index(device)]; }
  int64_t bytes(int device) const { return bytes_[index(device)]; }
  const std::vector<DeviceCost>& costs() const { return costs_; }
  Placement placement() const;

  // An edit takes pieces from devices and puts pieces on devices, in one step that may be undone.
  struct Edit {
    std::vector<std::pair<int, size_t>> out;  // pieces to take: device, and index in on(device)
    std::vector<std::pair<int, const CodedPiece*>> in;
  };
  bool has_room(const Edit& edit) const;
  int64_t overflow_bytes() const;  // bytes beyond the memory of each device, summed
  void apply(const Edit& edit);
  void undo();    // undoes the last apply(), once, and restores costs()
  double cost();  // returns the ms of the slowest device, and sets costs()

 private:
  static size_t index(int device) { return static_cast<size_t>(device); }
  void refresh(size_t device);

  const Problem* problem_;
  std::vector<std::vector<const CodedPiece*>> on_;
  std::vector<int64_t> bytes_;
  size_t width_;
  std::vector<double> sums_;  // devices x width
  std::vector<double> compute_ms_;
  std::vector<DeviceCost> costs_;
  struct Before {
    size_t device = 0;
    int64_t bytes = 0;
    double compute_ms = 0;
    std::vector<const CodedPiece*> pieces;
    std::vector<double> sum;
  };
  std::vector<Before> before_;  // devices that the last edit changed
  std::vector<DeviceCost> costs_before_;
};

}  // namespace tessera::tables
