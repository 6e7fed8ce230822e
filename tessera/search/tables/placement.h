// Defines the questions and answers of the planner of tables. Every planner's placement, brute
// force and placements by hand are priced by evaluate(), which recomputes everything.
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

#include "tessera/search/tables/cost_model.h"
#include "tessera/search/tables/sharding.h"

namespace tessera::tables {

// The pieces that a planner may make. (Published planners have their own rules.)
struct Splits {
  bool columns = true;
  bool rows = true;
  bool replicas = true;
  bool hot = true;            // first rows on every device, for tables of known frequencies
  int64_t least_columns = 4;  // widths are multiples of it
};

struct Problem {
  std::vector<Table> tables;
  int devices = 1;
  int64_t memory_bytes = 0;  // of a device
  const CostModel* cost = nullptr;
  Optimizer optimizer = Optimizer::kSgd;
  Splits splits;
  bool beyond_range = false;  // whether pieces may be made for which the cost model was not made
};

struct PlacedPiece {
  Piece piece;
  int device = 0;
  auto operator<=>(const PlacedPiece&) const = default;
};
using Placement = std::vector<PlacedPiece>;

struct Evaluation {
  double ms = 0;  // of the slowest device
  std::vector<DeviceCost> devices;
  std::vector<int64_t> bytes;           // by device
  std::vector<std::string> violations;  // one line each: memory, numbers not covered or held twice
  bool fits() const { return violations.empty(); }
};
Evaluation evaluate(const Problem& problem, const Placement& placement);

// Returns the number of devices with pieces whose columns are fewer or more than those for which
// the cost model was made.
int devices_beyond_range(const Problem& problem, const Placement& placement);

// Returns whether splits, cost model and tables allow some table to keep hot rows on every device.
bool may_keep_hot(const Problem& problem);
// Returns the placement with the shares of ids that the frequencies of rows give its pieces.
Placement with_known_shares(const Problem& problem, Placement placement);

// Puts each table whole on the device that is named for it.
Placement whole_tables(const Problem& problem, const std::vector<int>& devices);

// The answer of a planner. If `found` is false, `reason` says what the planner needed and had, and
// whether nothing at all can fit or only this planner found nothing.
struct Answer {
  bool found = false;
  std::string reason;
  Placement placement;
  Evaluation evaluation;
  double bound_ms = 0;   // no placement that the problem allows is faster than this
  int64_t searched = 0;  // placements that were priced
  std::string ended;     // why the search ended
};
// Evaluates the placement and makes the answer; one that does not fit counts as not found.
Answer answer_with(const Problem& problem, Placement placement, int64_t searched,
                   std::string ended);
// Makes an answer whose reason is: tables of so many bytes on devices of so many.
Answer not_found(const Problem& problem, int64_t searched, const std::string& ended);

// A piece that is coded once for all placements of a problem.
struct CodedPiece {
  Piece piece;
  int64_t bytes = 0;
  std::vector<double> code;  // cost_model.h: added to the sum of the piece's device
  double single_ms = 0;      // of a device with this piece alone
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

// The pieces on each device while a search changes them. The sums and the computation of a device
// are computed again when the device changes, communication when the cost is asked for. cost()
// agrees with evaluate() up to the rounding of sums in another order.
class Assignment {
 public:
  Assignment(const Problem& problem, std::vector<std::vector<const CodedPiece*>> devices);

  const std::vector<const CodedPiece*>& on(int device) const { return on_[index(device)]; }
  int64_t bytes(int device) const { return bytes_[index(device)]; }
  const std::vector<DeviceCost>& costs() const { return costs_; }
  Placement placement() const;

  // An edit: pieces leave devices and others come. It is tried as a whole and may be undone.
  struct Edit {
    std::vector<std::pair<int, size_t>> out;  // device and index of a piece in on(device)
    std::vector<std::pair<int, const CodedPiece*>> in;
  };
  bool has_room(const Edit& edit) const;
  int64_t overflow_bytes() const;  // beyond the memory of each device
  void apply(const Edit& edit);
  void undo();    // the last apply(), once; restores costs() too
  double cost();  // ms of the slowest device; sets costs()

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
