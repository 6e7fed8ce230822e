// Random questions for the tests of this folder: equal in each run and on each platform.
#pragma once

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "tessera/base/test_random.h"
#include "tessera/tables/placement.h"

namespace tessera::tables {

using test::Random;

inline std::vector<Table> random_tables(Random& random, int count, int64_t most_rows = 4000000) {
  std::vector<Table> tables;
  for (int i = 0; i < count; ++i) {
    Table table;
    table.name = "t" + std::to_string(i);
    table.dim = int64_t{4} << random.up_to(5);
    table.rows = 100 + static_cast<int64_t>(random.from(0, 1) * static_cast<double>(most_rows));
    table.pooling_factor = std::exp(random.from(0, 4.5));
    for (double& share : table.reuse) share = random.from(0, 0.1);
    tables.push_back(table);
  }
  return tables;
}

// Makes a problem with memory for `slack` times the bytes of all tables.
inline Problem random_problem(Random& random, int count, int devices, double slack,
                              const CostModel& cost) {
  Problem problem;
  problem.tables = random_tables(random, count);
  problem.devices = devices;
  problem.cost = &cost;
  int64_t bytes = 0;
  for (const Table& table : problem.tables) bytes += table.bytes();
  problem.memory_bytes = static_cast<int64_t>(slack * static_cast<double>(bytes) / devices);
  return problem;
}

}  // namespace tessera::tables
