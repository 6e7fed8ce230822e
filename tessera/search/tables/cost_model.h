// The interface of models that price pieces of tables on devices; planners know nothing else of
// them. A model codes a piece as a vector. The computation of a device is a function of the sum of
// its pieces' vectors, whatever their order and number (so costs of pieces need not add up); the
// exchange is a function of all devices' sums and computation times.
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
#include "tessera/search/tables/sharding.h"

namespace tessera::tables {

struct Problem;

struct DeviceCost {
  double compute_ms = 0;   // forward, backward and update of all pieces
  double backward_ms = 0;  // gradients of pooled vectors on their way to the tables
  double forward_ms = 0;   // pooled vectors on their way to the samples, waiting included
  double total() const { return compute_ms + backward_ms + forward_ms; }
};

class CostModel {
 public:
  CostModel() = default;
  CostModel(const CostModel&) = default;
  CostModel& operator=(const CostModel&) = default;
  virtual ~CostModel() = default;

  virtual std::string name() const = 0;
  // Checks that the model knows so many devices; an error says which numbers it knows.
  virtual Status check(int devices) const;
  // Returns whether the model can price pieces of this kind.
  virtual bool prices(Sharding kind) const = 0;

  // Returns whether the model was made for such a piece; its costs of other pieces are a guess.
  virtual bool in_range(const Table& table, const Piece& piece) const;
  // Returns the fewest and most columns of a device for which the model was made; none if not
  // known.
  virtual std::optional<std::pair<double, double>> range_of_columns() const;

  virtual size_t width() const = 0;  // numbers of a code
  virtual void encode(const Table& table, const Piece& piece, int devices,
                      std::span<double> code) const = 0;
  // Returns the computing time of a device. A device without pieces computes nothing and is not
  // asked about.
  virtual double compute_ms(std::span<const double> sum) const = 0;
  // Sets both exchange times. `sums` has width() numbers a device, zeros for an empty device;
  // `costs` comes with compute_ms.
  virtual void communicate(std::span<const double> sums, std::span<DeviceCost> costs) const = 0;

  // Returns the bytes that a piece takes of its device's memory beside resting_bytes.
  virtual int64_t working_bytes(const Table& table, const Piece& piece, int devices) const;
  // Returns the bytes of parameters and state on the device; less than resting_bytes for kernels
  // whose rows lie elsewhere.
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
