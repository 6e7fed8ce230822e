// Searches the order of machines with the least cost (order_cost.h).
//
//   to 9 machines      every order is tried; orders that differ only by equal machines count once
//   rings to 16        Held and Karp's dynamic program, with costs of pairs; for the length of the
//                      cycle and for its longest hop
//   otherwise          simulated annealing with restarts: exchanges of two positions (70 %),
//                      reversed segments (20 %) and moved machines (10 %); the temperature falls
//                      from 10 % of the first cost geometrically to 1e-4 of that
//
// A search ends early at an order that costs no more than OrderCosts::bound(). Equal arguments give
// equal answers: the effort is counted in messages that are priced, not in seconds.
//
//   const OrderAnswer answer = find_order(OrderCosts(network, pattern), {});
//   answer.order;                            // by rank: the machine
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tessera/network/order_cost.h"

namespace tessera {

// The present order is kept if the best one gains less than this share of its time, because less is
// within the noise of a network.
inline constexpr double kLeastGain = 0.05;

struct OrderSearch {
  uint64_t seed = 1;
  double least_gain = kLeastGain;
  // Messages that may be priced; by default less than a second of one core. Each restart has an equal
  // share, and no restart has more than 30 moves for each pair of machines.
  int64_t effort = 8'000'000;
  int64_t restarts = 0;  // 0: 24 for up to 32 machines, else 6
};

enum class OrderProof : uint8_t {
  kAllOrders,  // every order was tried
  kHeldKarp,   // the dynamic program
  kBound,      // no order costs less than the bound
  kBestFound,  // annealing: no proof
};
std::string_view proof_text(OrderProof proof);  // "all orders were tried", ...

struct OrderAnswer {
  Order order;              // the best one, or the present one if that is kept
  double seconds = 0;       // of `order`
  double now_seconds = 0;   // of the present order 0, 1, 2, ...
  double best_seconds = 0;  // of the best order, even if the present one is kept
  bool kept = false;        // the best order gains less than `least_gain`
  OrderProof proof = OrderProof::kBestFound;
  int64_t tried = 0;  // orders that were priced
};
OrderAnswer find_order(const OrderCosts& costs, const OrderSearch& search);

// Returns the best of all orders. This and the next two are the parts of find_order(); they do not
// regard `least_gain`. `held_karp` returns nothing unless the pattern is a ring over 2 to 16 machines with
// costs of pairs.
OrderAnswer try_all_orders(const OrderCosts& costs);
std::optional<OrderAnswer> held_karp(const OrderCosts& costs);
OrderAnswer anneal(const OrderCosts& costs, const OrderSearch& search);

}  // namespace tessera
