// Compares hybrid sharding of dhen with the closed forms of docs/theory/dhen.md section 5: G ranks
// of a host, H hosts (the axes dp and replicas of the recipe fsdp), P parameters, in elements
// summed over ranks: G H times the elements that one device sends.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "models_and_tensors.h"

namespace tessera::volumes::dhen_test {
namespace {

// The number of embeddings stays four from layer to layer, and all modules are used. Two and four
// ranks divide a dim of each parameter except the last bias, which has one element.
const std::string kModel =
    "dhen:dense=8,rows=16-8-24,bags=2,width=8,bottom=16-8,top=8-1,layers=4,embeddings=2,heads=2,"
    "ffn=16,modules=attention-linear+dlrm-cross+dot-convolution";
constexpr int64_t kBatch = 24;

bool is_cut(const Tensor& tensor) { return tensor.elements() > 1; }
bool is_cut_parameter(const Tensor& tensor) { return is_parameter(tensor) && is_cut(tensor); }
bool is_cut_gradient(const Tensor& tensor) { return is_gradient(tensor) && is_cut(tensor); }
// The backward pass reads no biases, nor tables and the first weight, whose input needs no
// gradient.
bool is_read_backward(const Tensor& tensor) {
  return is_parameter(tensor) && !tensor.name.ends_with(".bias") &&
         !tensor.name.starts_with("tables.") && tensor.name != "bottom.0.weight";
}

struct Hosts {
  int64_t ranks, hosts;  // ranks of each
};
constexpr Hosts kHosts[] = {{2, 2}, {4, 2}, {2, 4}, {2, 3}};

MeasuredPlan hybrid(const Hosts& of) {
  return measure(kModel, fmt::format("fsdp({}, replicas={}, prefetch=0)", of.ranks, of.hosts),
                 kBatch);
}

TEST(DhenHybridSharding, sends_the_closed_form_inside_hosts_and_between_them) {
  for (const auto& [ranks, hosts] : kHosts) {
    SCOPED_TRACE(fmt::format("{} hosts of {}", hosts, ranks));
    const MeasuredPlan found = hybrid({ranks, hosts});
    const int64_t all = found.parameters(is_cut_parameter),
                  again = found.parameters(is_read_backward);
    // It would be 3 P (G - 1)/G a rank if the backward pass read all parameters.
    EXPECT_EQ(found.sent_along({"dp"}, is_cut_parameter), hosts * (ranks - 1) * (all + again));
    EXPECT_EQ(found.sent_along({"dp"}, is_cut_gradient), hosts * (ranks - 1) * all);
    // 2 (P/G) (H - 1)/H a rank.
    EXPECT_EQ(found.sent_along({"replicas"}, is_cut_gradient), 2 * (hosts - 1) * all);
    EXPECT_EQ(found.sent_along({"replicas"}, is_parameter), 0);
    EXPECT_EQ(found.sent(is_updated), 0);
  }
}

// Sharding over all ranks sends these tensors around all hosts.
TEST(DhenHybridSharding, sends_between_hosts_a_fraction_of_what_sharding_over_all_ranks_sends) {
  const int64_t ranks = 4, hosts = 2, all_ranks = ranks * hosts;
  const MeasuredPlan all = measure(kModel, "fsdp(8, prefetch=0)", kBatch),
                     groups = hybrid({ranks, hosts});
  const int64_t parameters = all.parameters(is_cut_parameter),
                again = all.parameters(is_read_backward);
  EXPECT_EQ(all.sent_along({"dp"}, is_cut), (all_ranks - 1) * (2 * parameters + again));
  EXPECT_EQ(groups.sent_along({"replicas"}, is_cut), 2 * (hosts - 1) * parameters);
}

TEST(DhenHybridSharding, sends_nothing_between_hosts_in_the_forward_pass) {
  for (const Hosts& of : kHosts) {
    for (const Program& program : hybrid(of).programs) {
      for (const Instruction& instruction : program.block(BlockKind::kForward)) {
        EXPECT_FALSE(std::holds_alternative<Send>(instruction.body));
        const auto* issue = std::get_if<Issue>(&instruction.body);
        if (issue == nullptr) continue;
        EXPECT_EQ(program.groups[static_cast<size_t>(issue->group)].axes,
                  std::vector<std::string>{"dp"});
      }
    }
  }
}

TEST(DhenHybridSharding, sums_shards_over_the_ranks_of_equal_place_in_their_hosts) {
  for (const Hosts& of : kHosts) {
    const MeasuredPlan found = hybrid(of);
    for (const Program& program : found.programs) {
      std::vector<int> expected;
      for (int64_t host = 0; host < of.hosts; ++host)
        expected.push_back(static_cast<int>(host * of.ranks + program.rank % of.ranks));
      int sums = 0;
      for (const auto& [kind, block] : program.blocks) {
        for (const Instruction& instruction : block) {
          const auto* issue = std::get_if<Issue>(&instruction.body);
          if (issue == nullptr || issue->kind != CollectiveKind::kAllReduce) continue;
          if (!is_cut_gradient(found.graph.tensor(issue->transfers[0].tensor))) continue;
          EXPECT_EQ(program.groups[static_cast<size_t>(issue->group)].members, expected);
          ++sums;
        }
      }
      EXPECT_GT(sums, 0);
    }
  }
}

// ---- memory
bool is_state(const Tensor& tensor) { return tensor.role == Role::kOptimizerState; }

TEST(DhenHybridSharding, holds_the_share_of_a_host_at_rest) {
  for (const Hosts& of : {Hosts{2, 2}, Hosts{4, 2}, Hosts{2, 4}}) {
    const MeasuredPlan found = hybrid(of);
    int64_t parameters = 0, states = 0;  // of a host
    for (size_t rank = 0; rank < static_cast<size_t>(of.ranks); ++rank) {
      parameters += found.at_rest(rank, is_parameter);
      states += found.at_rest(rank, is_state);
    }
    EXPECT_EQ(parameters, found.parameters());
    EXPECT_EQ(states, 2 * found.parameters());
  }
}

// Returns the most elements of blocks' parameters that a rank's forward pass holds whole at a time.
int64_t whole_at_a_time(const MeasuredPlan& found) {
  const Program& program = found.programs[0];
  std::set<BufferId> live;
  int64_t elements = 0, most = 0;
  for (const Instruction& instruction : program.block(BlockKind::kForward)) {
    if (const auto* freed = std::get_if<Free>(&instruction.body)) {
      if (live.erase(freed->buffer) > 0) elements -= program.buffer(freed->buffer).bytes() / 8;
    }
    const auto* issue = std::get_if<Issue>(&instruction.body);
    if (issue == nullptr) continue;
    for (const Transfer& transfer : issue->transfers) {
      const Tensor& tensor = found.graph.tensor(transfer.tensor);
      if (!is_parameter(tensor) || !tensor.name.starts_with("blocks.") || !transfer.out) continue;
      if (live.insert(transfer.out->buffer).second)
        elements += program.buffer(transfer.out->buffer).bytes() / 8;
    }
    most = std::max(most, elements);
  }
  return most;
}

TEST(DhenHybridSharding, holds_the_layers_whole_that_are_gathered_ahead) {
  const std::string alike =
      "dhen:dense=8,rows=16-8-24,bags=2,width=8,bottom=16-8,top=8-1,layers=5,embeddings=2,heads=2,"
      "ffn=16,modules=dlrm-linear";
  for (const int64_t ahead : {1, 2, 3}) {
    const MeasuredPlan found =
        measure(alike, fmt::format("fsdp(2, replicas=2, prefetch={})", ahead), kBatch);
    const int64_t layer =
        found.parameters([](const Tensor& t) { return t.name.starts_with("blocks.1."); });
    EXPECT_EQ(whole_at_a_time(found), (ahead + 1) * layer) << ahead;
  }
}

}  // namespace
}  // namespace tessera::volumes::dhen_test
