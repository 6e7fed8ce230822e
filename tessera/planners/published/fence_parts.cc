#include "tessera/planners/published/fence_parts.h"

#include <algorithm>

namespace tessera::published::fence {

double sum_of(const std::vector<double>& values, size_t first, size_t last) {
  double sum = 0;
  for (size_t i = first; i < last; ++i) sum += values[i];
  return sum;
}

bool fits(const FenceProblem& problem, size_t device, size_t first, size_t last) {
  return sum_of(problem.memory, first, last) <= problem.capacity[device] * (1 + 1e-12);
}

double compute_seconds(const FenceProblem& problem, size_t device, size_t first, size_t last) {
  return sum_of(problem.work, first, last) / problem.speed[device];
}

double border_seconds(const FenceProblem& problem, size_t p, size_t q, size_t op, double share) {
  return problem.messages * (problem.latency_seconds[p][q] +
                             problem.bytes[op] * share / problem.bytes_per_second[p][q]);
}

bool may_end(const FenceProblem& problem, size_t devices, size_t end) {
  if (problem.stages == 0) return true;
  if (devices >= problem.stages) return devices == problem.stages && end == problem.work.size();
  return problem.stages - devices <= problem.work.size() - end;
}

double share_of(const FenceProblem& problem, double dense, double slowest) {
  if (problem.ratio <= 0 || slowest <= 0) return 1;
  return compressed_share(problem, std::max(1.0, problem.phi * problem.ratio * dense / slowest));
}

std::vector<std::vector<size_t>> classes_of(const FenceProblem& problem) {
  const size_t count = problem.speed.size();
  const auto has_equal = [&](const Matrix& links, size_t p, size_t q) {
    if (links[p][q] != links[q][p]) return false;
    for (size_t r = 0; r < count; ++r) {
      if (r == p || r == q) continue;
      if (links[p][r] != links[q][r] || links[r][p] != links[r][q]) return false;
    }
    return true;
  };
  std::vector<std::vector<size_t>> out;
  for (size_t q = 0; q < count; ++q) {
    const auto own = std::find_if(out.begin(), out.end(), [&](const std::vector<size_t>& members) {
      const size_t p = members.front();
      return problem.speed[p] == problem.speed[q] && problem.capacity[p] == problem.capacity[q] &&
             has_equal(problem.latency_seconds, p, q) && has_equal(problem.bytes_per_second, p, q);
    });
    if (own == out.end()) {
      out.push_back({q});
    } else {
      own->push_back(q);
    }
  }
  return out;
}

std::set<double> slowest_values(const FenceProblem& problem) {
  std::set<double> out;
  const size_t count = problem.speed.size();
  for (size_t p = 0; p < count; ++p) {
    for (size_t q = 0; q < count; ++q) {
      for (size_t op = 0; p != q && op + 1 < problem.work.size(); ++op)
        out.insert(border_seconds(problem, p, q, op, 1));
    }
  }
  return out;
}

}  // namespace tessera::published::fence
