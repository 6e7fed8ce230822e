// Compares the kinds of a mixture of experts with a reference that sorts: ties, overflow, top 1 to
// 3, dropped tokens; and the model with that reference, through the graph.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "tessera/graph/builder.h"
#include "tessera/models/model.h"
#include "tessera/runtime/initialise.h"
#include "tessera/runtime/testing.h"

namespace tessera {
namespace {

using testing::relative_error;
using testing::Workspace;
using Values = std::vector<double>;

struct Sizes {
  int64_t batch = 3, seq = 7, experts = 5, top_k = 2, capacity = 2, hidden = 4;
  int64_t normalize = 1;
};

std::ostream& operator<<(std::ostream& out, const Sizes& s) {
  return out << "experts " << s.experts << " top_k " << s.top_k << " capacity " << s.capacity
             << " normalize " << s.normalize;
}

struct Route {
  Values slot, weight, load, dropped;
};

// One claim of a token on an expert.
struct Claim {
  int64_t choice, token, expert;
};

Route reference_route(const Sizes& s, const Values& probs) {
  Route out;
  for (int64_t b = 0; b < s.batch; ++b) {
    const double* of_sequence = &probs[static_cast<size_t>(b * s.seq * s.experts)];
    std::vector<Claim> claims;
    Values weight(static_cast<size_t>(s.seq * s.top_k)), slot(weight.size(), -1.0);
    for (int64_t t = 0; t < s.seq; ++t) {
      const double* p = of_sequence + t * s.experts;
      std::vector<int64_t> order(static_cast<size_t>(s.experts));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](int64_t l, int64_t r) { return p[l] > p[r]; });
      double sum = 0;
      for (int64_t c = 0; c < s.top_k; ++c) {
        const int64_t expert = order[static_cast<size_t>(c)];
        claims.push_back({c, t, expert});
        sum += p[expert];
        weight[static_cast<size_t>(t * s.top_k + c)] = p[expert];
      }
      for (int64_t c = 0; c < s.top_k && s.normalize == 1; ++c)
        weight[static_cast<size_t>(t * s.top_k + c)] /= sum;
    }
    std::stable_sort(claims.begin(), claims.end(),
                     [](const Claim& l, const Claim& r) { return l.choice < r.choice; });
    double dropped = 0;
    for (int64_t e = 0; e < s.experts; ++e) {
      int64_t taken = 0;
      for (const Claim& claim : claims) {
        if (claim.expert != e) continue;
        if (taken < s.capacity) {
          slot[static_cast<size_t>(claim.token * s.top_k + claim.choice)] =
              static_cast<double>(e * s.capacity + taken);
        } else {
          ++dropped;
        }
        ++taken;
      }
      out.load.push_back(static_cast<double>(taken));
    }
    out.dropped.push_back(dropped);
    out.slot.insert(out.slot.end(), slot.begin(), slot.end());
    out.weight.insert(out.weight.end(), weight.begin(), weight.end());
  }
  return out;
}

// probs -> route; tokens -> dispatch -> combine.
struct Layer {
  explicit Layer(const Sizes& s) {
    GraphBuilder g("layer");
    const Dim b{"batch", s.batch}, t{"seq", s.seq}, e{"experts", s.experts}, h{"hidden", s.hidden};
    probs = g.input("probs", {b, t, e}, DType::kFloat64);
    tokens = g.input("tokens", {b, t, h}, DType::kFloat64);
    route = g.op("route", "moe_route", {probs},
                 {{"top_k", s.top_k}, {"capacity", s.capacity}, {"normalize", s.normalize}});
    slots = g.op1("dispatch", "moe_dispatch", {tokens, route.at(0)},
                  {{"experts", s.experts}, {"capacity", s.capacity}});
    y = g.op1("combine", "moe_combine", {slots, route.at(0), route.at(1)});
    const TensorId weights = g.op1("slot_weight", "moe_slot_weight", {route.at(1), route.at(0)},
                                   {{"experts", s.experts}, {"capacity", s.capacity}});
    weighed = g.op1("combine_weighed", "moe_combine",
                    {g.op1("weigh", "mul", {slots, weights}), route.at(0)});
    balance = g.op1("balance", "moe_balance", {probs, route.at(2)}, {{"top_k", s.top_k}});
    auto built = g.finish();
    EXPECT_TRUE(built) << (built ? "" : built.error().message);
    graph = built.value_or(Graph());
    workspace = std::make_unique<Workspace>(graph);
    workspace->randomise(tokens);
  }
  void run(const Values& probabilities) {
    workspace->set(probs, probabilities);
    workspace->run();
  }
  Graph graph;
  TensorId probs, tokens, slots, y, weighed, balance;
  std::vector<TensorId> route;
  std::unique_ptr<Workspace> workspace;
};

class Routing : public ::testing::TestWithParam<Sizes> {
 protected:
  // Returns probabilities of few values, so that most tokens have ties.
  Values probabilities() const {
    const Sizes& s = GetParam();
    Values probs(static_cast<size_t>(s.batch * s.seq * s.experts));
    for (size_t i = 0; i < probs.size(); ++i)
      probs[i] = static_cast<double>(1 + i * i * 7 % 5) / 16;
    return probs;
  }
};

TEST_P(Routing, EqualsTheSortingReference) {
  const Values probs = probabilities();
  const Route expected = reference_route(GetParam(), probs);
  Layer layer(GetParam());
  layer.run(probs);
  EXPECT_EQ(layer.workspace->get(layer.route[0]), expected.slot);
  EXPECT_EQ(layer.workspace->get(layer.route[1]), expected.weight);
  EXPECT_EQ(layer.workspace->get(layer.route[2]), expected.load);
  EXPECT_EQ(layer.workspace->get(layer.route[3]), expected.dropped);
  const double dropped = std::accumulate(expected.dropped.begin(), expected.dropped.end(), 0.0);
  EXPECT_EQ(dropped > 0, GetParam().capacity < GetParam().seq);
}

TEST_P(Routing, TokensGoToTheirSlotsAndBack) {
  const Sizes& s = GetParam();
  const Values probs = probabilities();
  const Route route = reference_route(s, probs);
  Layer layer(s);
  layer.run(probs);
  const Values x = layer.workspace->get(layer.tokens);
  Values slots(static_cast<size_t>(s.experts * s.batch * s.capacity * s.hidden)), y(x.size());
  for (int64_t token = 0; token < s.batch * s.seq; ++token) {
    for (int64_t c = 0; c < s.top_k; ++c) {
      const auto claim = static_cast<size_t>(token * s.top_k + c);
      if (route.slot[claim] < 0) continue;
      const auto number = static_cast<int64_t>(route.slot[claim]);
      const int64_t row =
          (number / s.capacity * s.batch + token / s.seq) * s.capacity + number % s.capacity;
      for (int64_t h = 0; h < s.hidden; ++h) {
        const double value = x[static_cast<size_t>(token * s.hidden + h)];
        slots[static_cast<size_t>(row * s.hidden + h)] = value;
        y[static_cast<size_t>(token * s.hidden + h)] += route.weight[claim] * value;
      }
    }
  }
  EXPECT_EQ(layer.workspace->get(layer.slots), slots);
  EXPECT_LT(relative_error(layer.workspace->get(layer.y), y), 1e-15);
  EXPECT_EQ(layer.workspace->get(layer.weighed), layer.workspace->get(layer.y));
}

TEST_P(Routing, BalanceIsExpertsTimesShareTimesProbability) {
  const Sizes& s = GetParam();
  const Values probs = probabilities();
  const Route route = reference_route(s, probs);
  Layer layer(s);
  layer.run(probs);
  Values expected;
  for (int64_t b = 0; b < s.batch; ++b) {
    double sum = 0;
    for (int64_t e = 0; e < s.experts; ++e) {
      double mean = 0;
      for (int64_t t = 0; t < s.seq; ++t)
        mean += probs[static_cast<size_t>((b * s.seq + t) * s.experts + e)];
      mean /= static_cast<double>(s.seq);
      const double share =
          route.load[static_cast<size_t>(b * s.experts + e)] / static_cast<double>(s.seq * s.top_k);
      sum += share * mean;
    }
    expected.push_back(static_cast<double>(s.experts) * sum);
  }
  EXPECT_LT(relative_error(layer.workspace->get(layer.balance), expected), 1e-14);
}

INSTANTIATE_TEST_SUITE_P(All, Routing,
                         ::testing::Values(Sizes{}, Sizes{.top_k = 1}, Sizes{.capacity = 1},
                                           Sizes{.top_k = 1, .normalize = 0}, Sizes{.normalize = 0},
                                           Sizes{.capacity = 7}, Sizes{.top_k = 3},
                                           Sizes{.experts = 2, .top_k = 2, .capacity = 3},
                                           Sizes{.experts = 2, .top_k = 1, .capacity = 7}));

TEST(RoutingByHand, FirstChoicesGoBeforeSecondOnesAndTiesToTheFirstExpert) {
  Layer layer(Sizes{.batch = 1, .seq = 3, .experts = 2, .top_k = 2, .capacity = 2});
  layer.run({0.25, 0.75,    // expert 1, then 0
             0.5, 0.5,      // a tie: expert 0, then 1
             0.75, 0.25});  // expert 0, then 1
  // Expert 0 gets tokens 1 and 2 by first choice, and token 0 is dropped; expert 1 gets tokens 0
  // and 1, and token 2 is dropped.
  EXPECT_EQ(layer.workspace->get(layer.route[0]), (Values{2, -1, 0, 3, 1, -1}));
  EXPECT_EQ(layer.workspace->get(layer.route[1]), (Values{0.75, 0.25, 0.5, 0.5, 0.75, 0.25}));
  EXPECT_EQ(layer.workspace->get(layer.route[2]), (Values{3, 3}));
  EXPECT_EQ(layer.workspace->get(layer.route[3]), (Values{2}));
}

TEST(RoutingByHand, BalanceIsOneIfAllExpertsGetTheSame) {
  Layer layer(Sizes{.batch = 1, .seq = 2, .experts = 2, .top_k = 1, .capacity = 2});
  layer.run({0.75, 0.25, 0.25, 0.75});
  EXPECT_DOUBLE_EQ(layer.workspace->get(layer.balance)[0], 1);
  layer.run({0.75, 0.25, 0.75, 0.25});
  EXPECT_DOUBLE_EQ(layer.workspace->get(layer.balance)[0], 1.5);
}

TEST(RouterZLoss, IsTheMeanSquaredLogSumExp) {
  GraphBuilder g("z");
  const TensorId logits =
      g.input("logits", {{"batch", 1}, {"seq", 2}, {"experts", 3}}, DType::kFloat64);
  const TensorId value = g.op1("value", "moe_z_loss", {logits});
  const auto graph = g.finish();
  ASSERT_TRUE(graph) << graph.error().message;
  Workspace w(*graph);
  w.set(logits, {1, 2, 3, -1, 0, 1});
  w.run();
  const double first = std::log(std::exp(1) + std::exp(2) + std::exp(3)), second = first - 2;
  EXPECT_NEAR(w.get(value)[0], (first * first + second * second) / 2, 1e-14);
}

// With room for all, the slots do not matter: the layer is a sum over experts of weighted MLPs.
TEST(Mixtral, OfIdenticalExpertsIsTheirCommonMlp) {
  auto model = build_model(
      "mixtral:layers=1,hidden=8,heads=2,seq=5,vocab=11,ffn=6,experts=4,capacity_factor=2", 2,
      DType::kFloat64);
  ASSERT_TRUE(model) << model.error().message;
  const Graph& graph = model->graph;
  Workspace w(graph);
  w.initialise();
  for (const Tensor& tensor : graph.tensors()) {
    if (tensor.role == Role::kInput) {
      Values ids(static_cast<size_t>(tensor.elements()));
      for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<double>(i * 7 % 11);
      w.set(tensor.id, ids);
    }
    if (tensor.role != Role::kParameter || tensor.dims[0].name != "experts") continue;
    Values all = w.get(tensor.id);
    const size_t one = all.size() / 4;
    for (size_t i = one; i < all.size(); ++i) all[i] = all[i % one];
    w.set(tensor.id, all);
  }
  w.run();
  const auto get = [&](const char* name) { return w.get(graph.find_tensor(name)); };
  const Values h = get("blocks.0.ln_2.y"), gate = get("blocks.0.moe.gate.weight"),
               up = get("blocks.0.moe.up.weight"), down = get("blocks.0.moe.down.weight");
  Values expected(h.size());
  for (size_t token = 0; token < 10; ++token) {
    for (size_t f = 0; f < 6; ++f) {
      double g = 0, u = 0;
      for (size_t i = 0; i < 8; ++i) {
        g += h[token * 8 + i] * gate[i * 6 + f];
        u += h[token * 8 + i] * up[i * 6 + f];
      }
      for (size_t i = 0; i < 8; ++i)
        expected[token * 8 + i] += g / (1 + std::exp(-g)) * u * down[f * 8 + i];
    }
  }
  EXPECT_EQ(get("blocks.0.moe.route.dropped"), (Values{0, 0}));
  EXPECT_LT(relative_error(get("blocks.0.moe.combine"), expected), 1e-13);
}

}  // namespace
}  // namespace tessera
