// The interface of models that price pieces of tables on devices. Planners use nothing else of a
// model. A model encodes each piece as a vector. The computing time of a device is a function of
// the sum of its pieces' vectors, so costs of pieces need not add up. The exchange times are
// functions of the sums and computing times of all devices.
//
//   cost of a plan = max over devices of (compute + backward exchange + forward exchange), ms
//
// A model is a value without state: safe for several threads.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/tables/sharding.h"

namespace tessera::tables {

struct Problem;

struct DeviceCost {
  double compute_ms = 0;   // forward, backward and update of all pieces
  double backward_ms = 0;  // exchange of the gradients of pooled vectors, to the tables
  double forward_ms = 0;   // exchange of pooled vectors, to the samples, including waits
  double total() const { return compute_ms + backward_ms + forward_ms; }
};

class CostModel {
 public:
  CostModel() = default;
  CostModel(const CostModel&) = default;
  CostModel& operator=(const CostModel&) = default;
  virtual ~CostModel() = default;

  virtual std::string name() const = 0;
  // Checks that the model can price so many devices. The error says which numbers it can price.
  virtual Status check(int devices) const;
  // Returns whether the model can price pieces of this kind.
  virtual bool prices(Sharding kind) const = 0;

  // Returns whether the model was made for such a piece. Costs of other pieces are extrapolated.
  virtual bool in_range(const Table& table, const Piece& piece) const;
  // Returns the least and the greatest number of columns of a device that the model was made for;
  // nothing if these are not known.
  virtual std::optional<std::pair<double, double>> range_of_columns() const;

  virtual size_t width() const = 0;  // length of a piece's vector
  virtual void encode(const Table& table, const Piece& piece, int devices,
                      std::span<double> code) const = 0;
  // Returns the computing time of a device with at least one piece.
  virtual double compute_ms(std::span<const double> sum) const = 0;
  // Sets backward_ms and forward_ms of each device. `sums`: width() numbers for each device, zeros
  // for a device without pieces. compute_ms is set.
  virtual void communicate(std::span<const double> sums, std::span<DeviceCost> costs) const = 0;

  // Returns the bytes that a piece needs on its device in addition to device_bytes().
  virtual int64_t working_bytes(const Table& table, const Piece& piece, int devices) const;
  // Returns the bytes of a piece's parameters and state on the device. They are fewer than
  // resting_bytes() for kernels that keep rows in other memory.
  virtual int64_t device_bytes(const Table& table, const Piece& piece, Optimizer optimizer) const;

  // Returns a time that no placement with the problem's splits can beat. 0 is always valid.
  virtual double bound_ms(const Problem& problem) const = 0;
};

// Loads a cost model: "closed", "torchrec", or the path of a JSON file that names a model and sets
// its constants (docs/reference/tables.md). Errors: an unknown name, file:key of a wrong value.
Result<std::shared_ptr<const CostModel>> load_cost_model(const std::string& spec);
Result<std::shared_ptr<const CostModel>> parse_cost_model(std::string_view json,
                                                          std::string_view file);

}  // namespace tessera::tables
