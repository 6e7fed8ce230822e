// The named schedules against the closed forms of their sources, for every size up to 8 places and
// 32 micro-batches.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>

#include "tessera/plan/schedules/test_shapes.h"

namespace tessera::schedules {
namespace {

constexpr int64_t kPlaces = 8;
constexpr int64_t kMicroBatches = 32;

Schedule make(std::string_view name, const PipelineShape& shape) {
  auto schedule = make_schedule(name, shape);
  EXPECT_TRUE(schedule.has_value()) << name << ": " << schedule.error().message;
  return schedule ? *schedule : Schedule{};
}
double span(std::string_view name, const PipelineShape& shape, const UnitCosts& costs) {
  return makespan(make(name, shape), shape, costs);
}
double worst_bubble(const Schedule& schedule, const PipelineShape& shape, const UnitCosts& costs) {
  double worst = 0;
  for (const PlaceTimes& times : place_times(schedule, shape, costs)) {
    worst = std::max(worst, times.bubble());
  }
  return worst;
}
template <class Body>
void for_all(Body body) {
  for (int64_t n = 1; n <= kPlaces; ++n) {
    for (int64_t m = 1; m <= kMicroBatches; ++m) {
      SCOPED_TRACE(testing::Message() << n << " places, " << m << " micro-batches");
      body(n, m);
    }
  }
}

class Named : public testing::TestWithParam<std::string> {};

TEST_P(Named, IsCompleteAndFinishesWhereItIsDefined) {
  for_all([&](int64_t n, int64_t m) {
    for (const PipelineShape& shape : shapes_of(GetParam(), n, m)) {
      const auto schedule = make_schedule(GetParam(), shape);
      ASSERT_TRUE(schedule.has_value()) << schedule.error().message;
      const auto status = check_schedule(*schedule, shape);
      EXPECT_TRUE(status.has_value()) << status.error().message;
      const auto finishes = check_schedule_finishes(*schedule, shape);
      EXPECT_TRUE(finishes.has_value()) << finishes.error().message;
    }
  });
}

TEST_P(Named, RunsForwardsAloneWhereNoStageHasABackward) {
  for (PipelineShape shape : shapes_of(GetParam(), 4, 8)) {
    shape.backward.assign(shape.at.size(), false);
    const Schedule schedule = make(GetParam(), shape);
    EXPECT_TRUE(check_schedule(schedule, shape).has_value());
    for (const int64_t held : in_flight(schedule, shape)) EXPECT_EQ(held, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, Named, testing::ValuesIn(schedule_names()),
                         [](const auto& name) { return "of_" + name.param; });

TEST(Chain, TimesAndMicroBatchesInFlight) {
  const UnitCosts costs{.forward = 1, .backward = 2};
  for_all([&](int64_t n, int64_t m) {
    const PipelineShape shape = chunks(n, 1, m);
    for (const std::string name : {"gpipe", "1f1b", "eager_1f1b"}) {
      const Schedule schedule = make(name, shape);
      EXPECT_EQ(makespan(schedule, shape, costs), static_cast<double>(3 * (m + n - 1))) << name;
      const auto held = in_flight(schedule, shape);
      for (int64_t i = 0; i < n; ++i) {
        const int64_t expected = name == "gpipe"  ? m
                                 : name == "1f1b" ? std::min(m, n - i)
                                                  : std::min(m, 2 * (n - i) - 1);
        EXPECT_EQ(held[static_cast<size_t>(i)], expected) << name << " place " << i;
      }
    }
  });
}

TEST(Chain, InterleavedDividesTheBubbleByTheChunks) {
  for_all([&](int64_t n, int64_t m) {
    if (m % n != 0) return;
    for (const int64_t c : {1, 2, 4}) {
      const PipelineShape shape = chunks(n, c, m);
      const double chunk = 1.0 / static_cast<double>(c);
      const UnitCosts costs{.forward = chunk, .backward = 2 * chunk};
      const Schedule schedule = make("interleaved", shape);
      EXPECT_DOUBLE_EQ(makespan(schedule, shape, costs),
                       3 * (static_cast<double>(m) + static_cast<double>(n - 1) * chunk));
      for (int64_t i = 0; i < n; ++i) {
        const int64_t warm_up = std::min(n * (c - 1) + 2 * (n - 1 - i), m * c);
        EXPECT_EQ(in_flight(schedule, shape)[static_cast<size_t>(i)], std::min(warm_up + 1, m * c));
      }
    }
  });
  // The vector of docs/strategies/pipelines.md section 2: P = 4, m = 8, F = B = W = 1 with a fused
  // backward.
  EXPECT_EQ(span("1f1b", chunks(4, 1, 8), {.forward = 1, .backward = 2}), 33);
  EXPECT_EQ(span("interleaved", chunks(4, 2, 8), {.forward = 0.5, .backward = 1}), 28.5);
}

TEST(Chain, MessagesCostWhatTheTableSays) {
  struct Row {
    int64_t n;
    double c, one_f_one_b, eager, gpipe;
  };
  for (const Row& row : {Row{2, 0, 27, 27, 27}, Row{2, 0.5, 31, 28, 28}, Row{2, 1, 35, 29, 29},
                         Row{2, 2, 43, 33, 38}, Row{4, 0, 33, 33, 33}, Row{4, 0.5, 41, 36, 36},
                         Row{4, 1, 49, 39, 39}, Row{4, 2, 65, 48, 52}}) {
    SCOPED_TRACE(testing::Message() << row.n << " stages, message " << row.c);
    const UnitCosts costs{.forward = 1, .backward = 2, .message = row.c};
    const PipelineShape shape = chunks(row.n, 1, 8);
    EXPECT_EQ(span("1f1b", shape, costs), row.one_f_one_b);
    EXPECT_EQ(span("eager_1f1b", shape, costs), row.eager);
    EXPECT_EQ(span("gpipe", shape, costs), row.gpipe);
  }
}

// Returns P = max(t_f + t_b, c, max over i of [(n-i)(t_f+t_b) + 2(n-1-i)c] / w_i).
double period(int64_t n, double c, bool eager) {
  double out = std::max(3.0, c);
  for (int64_t i = 0; i < n; ++i) {
    const auto left = static_cast<double>(n - i);
    out = std::max(out, (left * 3 + 2 * (left - 1) * c) / (eager ? 2 * left - 1 : left));
  }
  return out;
}

TEST(Chain, TheSteadyPeriodIsThatOfTheFormula) {
  for (int64_t n = 2; n <= 6; ++n) {
    for (const double c : {0.0, 0.5, 1.0, 1.5, 2.0}) {
      const UnitCosts costs{.forward = 1, .backward = 2, .message = c};
      for (const bool eager : {false, true}) {
        const std::string name = eager ? "eager_1f1b" : "1f1b";
        // The number of micro-batches is one that every w_i divides, so that no cycle is
        // incomplete.
        const int64_t cycle = eager ? 3465 : 60;
        const double steps =
            span(name, chunks(n, 1, 60 + cycle), costs) - span(name, chunks(n, 1, 60), costs);
        EXPECT_NEAR(steps / static_cast<double>(cycle), period(n, c, eager), 1e-9)
            << name << " n=" << n << " c=" << c;
      }
    }
  }
}

TEST(ZeroBubble, H1AndH2HaveTheBubblesAndMemoryOfThePaper) {
  for_all([&](int64_t n, int64_t m) {
    for (const auto& [f, b, w] : {std::array{1.0, 1.0, 1.0}, std::array{2.0, 3.0, 1.0}}) {
      const UnitCosts costs{.forward = f, .backward = b, .weight = w};
      const PipelineShape shape = chunks(n, 1, m);
      const auto gap = static_cast<double>(n - 1);
      const Schedule h1 = make("zb_h1", shape);
      if (m >= n) {
        EXPECT_EQ(worst_bubble(h1, shape, costs), gap * (f + b - w));
        for (const int64_t held : in_flight(h1, shape)) EXPECT_EQ(held, n);
      }
      const Schedule h2 = make("zb_h2", shape);
      if (m >= 2 * n - 1) {
        EXPECT_EQ(worst_bubble(h2, shape, costs), gap * (f + b - 2 * w));
        for (const int64_t held : in_flight(h2, shape)) EXPECT_EQ(held, 2 * n - 1);
      }
      EXPECT_LE(makespan(h1, shape, costs), span("1f1b", shape, {.forward = f, .backward = b + w}));
    }
  });
}

TEST(ZeroBubble, VHasNoBubbleAtTheMemoryOf1F1B) {
  for_all([&](int64_t n, int64_t m) {
    const PipelineShape shape = v_shape(n, m);
    const Schedule schedule = make("zb_v", shape);
    for (const int64_t held : in_flight(schedule, shape)) EXPECT_LE(held, 2 * n);
    if (m < 2 * n - 1) return;
    EXPECT_EQ(worst_bubble(schedule, shape, {}), 0);
    EXPECT_EQ(makespan(schedule, shape, {}), static_cast<double>(6 * m + n - 1));
  });
}

TEST(ZeroBubble, VHasNoBubbleOnLongerPipelines) {
  for (const int64_t n : {12, 16, 24}) {
    const PipelineShape shape = v_shape(n, 2 * n);
    EXPECT_EQ(worst_bubble(make("zb_v", shape), shape, {}), 0) << n;
  }
}

// Returns the shortest time of any order with blocks of one step and at most `held` activations a
// place, by breadth-first search over how many F, B and W each stage has run.
int64_t shortest(const PipelineShape& shape, int64_t held) {
  const auto stages = static_cast<size_t>(shape.stages());
  const auto m = static_cast<uint8_t>(shape.micro_batches);
  using State = std::vector<uint8_t>;  // by stage: F, B, W
  const auto moves = [&](const State& state, int64_t place) {
    std::vector<size_t> out;
    int64_t kept = 0;
    for (const int64_t s : shape.stages_of(place)) {
      const auto at = static_cast<size_t>(s) * 3;
      kept += state[at] - state[at + 2];
    }
    for (const int64_t s : shape.stages_of(place)) {
      const auto stage = static_cast<size_t>(s);
      const size_t at = stage * 3;
      const uint8_t fed = stage == 0 ? m : state[at - 3];
      const uint8_t back = stage + 1 == stages ? m : state[at + 4];
      if (state[at] < fed && kept < held) out.push_back(at);
      if (state[at + 1] < std::min(state[at], back)) out.push_back(at + 1);
      if (state[at + 2] < state[at + 1]) out.push_back(at + 2);
    }
    return out;
  };
  std::vector<State> level{State(stages * 3, 0)};
  const State goal(stages * 3, m);
  for (int64_t time = 0;; ++time) {
    std::vector<State> after;
    for (const State& state : level) {
      if (state == goal) return time;
      std::vector<State> partial{state};
      for (int64_t place = 0; place < shape.places; ++place) {
        const size_t count = partial.size();
        for (const size_t move : moves(state, place)) {
          for (size_t k = 0; k < count; ++k) {
            partial.push_back(partial[k]);
            ++partial.back()[move];
          }
        }
      }
      after.insert(after.end(), partial.begin(), partial.end());
    }
    std::sort(after.begin(), after.end());
    after.erase(std::unique(after.begin(), after.end()), after.end());
    level = std::move(after);
  }
}

TEST(ZeroBubble, H1AndH2AreTheShortestOrdersWithinTheirMemory) {
  for (int64_t n = 1; n <= 3; ++n) {
    for (int64_t m = 1; m <= 4; ++m) {
      const PipelineShape shape = chunks(n, 1, m);
      EXPECT_EQ(span("zb_h1", shape, {}), static_cast<double>(shortest(shape, n))) << n << " " << m;
      EXPECT_EQ(span("zb_h2", shape, {}), static_cast<double>(shortest(shape, 2 * n - 1)))
          << n << " " << m;
    }
  }
}

TEST(ZeroBubble, VIsTheShortestOrderWithinItsMemory) {
  for (int64_t m = 1; m <= 4; ++m) {
    const PipelineShape shape = v_shape(2, m);
    EXPECT_EQ(span("zb_v", shape, {}), static_cast<double>(shortest(shape, 4))) << m;
  }
}

TEST(Chimera, FourPlacesAreThoseOfThePaper) {
  const PipelineShape shape = two_chains(4, 2);
  const Schedule schedule = make("chimera", shape);
  EXPECT_EQ(text(schedule[0]), "F0@0 F1@0 F0@7 B0@7 F1@7 B1@7 B0@0 B1@0");
  EXPECT_EQ(text(schedule[1]), "F0@1 F0@6 F1@1 F1@6 B0@6 B0@1 B1@6 B1@1");
  EXPECT_EQ(makespan(schedule, shape, {.forward = 1, .backward = 2}), 16);
}

TEST(Chimera, UnitsFollowWithoutAGap) {
  for_all([&](int64_t n, int64_t m) {
    if (n % 2 != 0 || m % (n / 2) != 0) return;
    const PipelineShape shape = two_chains(n, m);
    const Schedule schedule = make("chimera", shape);
    EXPECT_EQ(makespan(schedule, shape, {}), static_cast<double>(4 * m + n - 2));
    for (const int64_t held : in_flight(schedule, shape)) {
      EXPECT_GE(held, n / 2 + 1);
      EXPECT_LE(held, n);
    }
  });
}

TEST(NF1B, TheWorkedExample) {
  const PipelineShape shape = recycling(2, 2, 3);
  const Schedule schedule = make("nf1b", shape);
  EXPECT_EQ(text(schedule[0]), "F0@0 F1@0 F0@2 F2@0 F1@2 B0@2 F2@2 B1@2 B2@2");
  EXPECT_EQ(text(schedule[1]), "F0@1 F1@1 F0@3 B0@3 F2@1 F1@3 B1@3 F2@3 B2@3");
}

TEST(NF1B, ARoundAMicroBatchAndTheActivationsOf1F1B) {
  for (int64_t n = 1; n <= kPlaces; ++n) {
    for (int64_t passes = 1; passes <= 4; ++passes) {
      const PipelineShape shape = recycling(n, passes, 24);
      const Schedule schedule = make("nf1b", shape);
      EXPECT_EQ(makespan(make("nf1b", recycling(n, passes, 32)), recycling(n, passes, 32), {}) -
                    makespan(schedule, shape, {}),
                static_cast<double>(8 * (passes + 1)))
          << n << " places, " << passes << " passes";
      for (int64_t i = 0; i < n; ++i) {
        EXPECT_EQ(in_flight(schedule, shape)[static_cast<size_t>(i)], n - i);
      }
    }
  }
}

TEST(Interlaced, TheEncoderDecoderForm) {
  const PipelineShape shape = embedded(4, {0, 2}, 1);  // 0 and 3 span; 1, 2, 4, 5 at places 0..3
  const Schedule schedule = make("interlaced", shape);
  EXPECT_EQ(text(schedule[0]), "F0@0 F0@1 F0@3 B0@3 B0@1 B0@0");
  EXPECT_EQ(text(schedule[3]), "F0@0 F0@3 F0@5 B0@5 B0@3 B0@0");
  // Lags of four stages: backward of stage 0 three steps after its forward, of stage 3 one.
  const Schedule longer = make("interlaced", embedded(4, {0, 2}, 4));
  EXPECT_EQ(text(longer[0]).substr(0, 62),
            "F0@0 F0@1 F1@0 F0@3 F1@1 F2@0 F1@3 F2@1 B0@3 F3@0 F2@3 F3@1 B0");
}

TEST(Interlaced, TheEncoderDecoderFormRunsAMicroBatchInTwoStagesAStep) {
  // In each step a place runs F and B of both, so the form takes m + S-1 steps of at most F + B + F
  // + B in a row (two stages), and stage i holds S - 2 floor(i/2) micro-batches, one less if i is
  // odd.
  for (const int64_t n : {4, 6, 8}) {
    const PipelineShape shape = encoder_decoder(n, 32);
    UnitCosts costs;
    for (const auto& at : shape.at) costs.scale.push_back(at.size() == 1 ? 1 : 0);
    const Schedule schedule = make("interlaced", shape);
    EXPECT_LE(makespan(schedule, shape, costs), static_cast<double>(4 * (32 + n - 1)));
    const auto held = in_flight(schedule, shape);
    for (int64_t i = 0; i < n; ++i) {
      // The two embeddings are kept from their forward to their backward on every place.
      const int64_t embeddings = n + n - 2 * (n / 4);
      EXPECT_LE(held[static_cast<size_t>(i)], n - 2 * (i / 2) + embeddings) << n << " place " << i;
    }
  }
}

TEST(Interlaced, IsOneForwardOneBackwardWhereTheSpanningStagesAreFree) {
  for_all([&](int64_t n, int64_t m) {
    if (n == 1) return;  // nothing spans
    PipelineShape shape = embedded(n, {0, n}, m);
    UnitCosts costs;
    for (const auto& at : shape.at) costs.scale.push_back(at.size() == 1 ? 1 : 0);
    EXPECT_EQ(span("interlaced", shape, costs), static_cast<double>(2 * (m + n - 1)));
  });
}

TEST(Token, TimesAndUnitsInFlight) {
  for_all([&](int64_t n, int64_t m) {
    for (const int64_t slices : {1, 2, 5}) {
      const PipelineShape shape = sliced(n, slices, m);
      const int64_t units = slices * m;
      const UnitCosts costs{.forward = 1, .backward = 2};
      const Schedule all = make("token", shape);
      EXPECT_EQ(makespan(all, shape, costs), static_cast<double>(3 * (units + n - 1)));
      const Schedule in_turn = make("token_1f1b", shape);
      EXPECT_EQ(makespan(in_turn, shape, costs), static_cast<double>(3 * (units + n - 1)));
      for (int64_t k = 0; k < n; ++k) {
        EXPECT_EQ(in_flight(all, shape)[static_cast<size_t>(k)], units);
        EXPECT_EQ(in_flight(in_turn, shape)[static_cast<size_t>(k)],
                  std::min(units, n - k + slices - 1));
      }
    }
  });
}

}  // namespace
}  // namespace tessera::schedules
