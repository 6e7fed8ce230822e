// Tests codecs: decoded values, sizes of messages, what error feedback keeps; coded calls on
// threads.
#include "tessera/comm/coded.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

namespace tessera::comm {
namespace {

Codec codec(const std::string& text) {
  const auto parsed = parse_codec(text);
  EXPECT_TRUE(parsed) << text;
  return *parsed;
}

std::vector<double> round_trip(const std::string& text, const std::vector<double>& values) {
  const Codec c = codec(text);
  const std::vector<std::byte> bytes = encode(c, DType::kFloat32, values);
  const auto n = static_cast<int64_t>(values.size());
  EXPECT_EQ(static_cast<int64_t>(bytes.size()), message_bytes(c, DType::kFloat32, n));
  return decode(c, DType::kFloat32, n, bytes.data());
}

std::vector<double> wave(size_t n) {
  std::vector<double> values(n);
  for (size_t i = 0; i < n; ++i)
    values[i] = static_cast<double>(static_cast<float>(std::sin(0.7 * static_cast<double>(i * i))));
  return values;
}

TEST(Codecs, SizesAreFunctionsOfTheNumberOfElements) {
  const auto bytes = [](const char* text, DType dtype, int64_t n) {
    return message_bytes(codec(text), dtype, n);
  };
  EXPECT_EQ(bytes("int8", DType::kFloat32, 128), 132);
  EXPECT_EQ(bytes("int8", DType::kFloat32, 129), 137);
  EXPECT_EQ(bytes("int8", DType::kFloat32, 1), 4);  // 5 would be more than the element itself
  EXPECT_EQ(bytes("float16", DType::kFloat32, 10), 20);
  EXPECT_EQ(bytes("bfloat16", DType::kFloat64, 10), 20);
  EXPECT_EQ(bytes("bfloat16", DType::kBFloat16, 10), 20);
  EXPECT_EQ(bytes("int4", DType::kFloat32, 129), 65 + 8);
  EXPECT_EQ(bytes("topk:0.01", DType::kFloat32, 1000), 40 + 13);  // 10 indices of 10 bits
  EXPECT_EQ(bytes("topk:0.01", DType::kFloat32, 50), 4 + 1);      // one element at least
  EXPECT_EQ(bytes("topk:0.5", DType::kFloat32, 100), 200 + 13);   // a bit for each of all
  EXPECT_EQ(bytes("topk:1", DType::kFloat32, 100), 400);          // no smaller than as it is
  EXPECT_EQ(bytes("dct:32", DType::kFloat32, 4096), 6 * 32);
  EXPECT_EQ(bytes("dct:32", DType::kFloat32, 4097), 6 * 64);
  EXPECT_EQ(bytes("dct:32", DType::kFloat32, 40), 160);  // no smaller than as it is
  EXPECT_EQ(bytes("int8", DType::kInt32, 100), 400);
}

TEST(Codecs, Int8IsWithinHalfAStepOfEachChunk) {
  std::vector<double> values = wave(300);
  for (size_t i = 128; i < 256; ++i) values[i] *= 1000;  // a chunk of its own scale
  const std::vector<double> back = round_trip("int8", values);
  for (size_t i = 0; i < values.size(); ++i) {
    const double largest = i >= 128 && i < 256 ? 1000.0 : 1.0;
    EXPECT_LE(std::abs(back[i] - values[i]), largest / 127 / 2 * 1.0001) << i;
  }
  std::vector<double> steps(8);  // 127, then halves: to even
  std::iota(steps.begin(), steps.end(), 0.0);
  for (double& step : steps) step += 0.5;
  steps[0] = 127;
  EXPECT_EQ(round_trip("int8", steps), (std::vector<double>{127, 2, 2, 4, 4, 6, 6, 8}));
  EXPECT_EQ(round_trip("int8", std::vector<double>(200, 0.0)), std::vector<double>(200, 0.0));
}

TEST(Codecs, Int4IsWithinHalfAStepOfEachChunk) {
  const std::vector<double> values = wave(301);
  const std::vector<double> back = round_trip("int4", values);
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_LE(std::abs(back[i] - values[i]), 1.0 / 7 / 2 * 1.0001) << i;
  EXPECT_EQ(round_trip("int4", {7, -7, 3, -4, 0, 1, -1, 2.4}),
            (std::vector<double>{7, -7, 3, -4, 0, 1, -1, 2}));
}

TEST(Codecs, DctKeepsTheLargestCoefficients) {
  // A chunk that is one cosine along each side has one coefficient.
  std::vector<double> values(4096 + 100, 0);
  for (int row = 0; row < 64; ++row) {
    for (int column = 0; column < 64; ++column) {
      values[static_cast<size_t>(64 * row + column)] =
          std::cos(std::numbers::pi * 3 * (2 * row + 1) / 128) *
          std::cos(std::numbers::pi * 5 * (2 * column + 1) / 128);
    }
  }
  const std::vector<double> back = round_trip("dct:1", values);
  for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(back[i], values[i], 1e-6) << i;
  // All coefficients give the values again, and the transform keeps the sum of squares.
  std::vector<double> any(4096);
  for (size_t i = 0; i < any.size(); ++i) any[i] = std::sin(.002 * static_cast<double>(i));
  std::vector<double> one = round_trip("dct:300", any);
  double all = 0, kept = 0, dropped = 0;
  for (size_t i = 0; i < any.size(); ++i) {
    all += any[i] * any[i];
    kept += one[i] * one[i];
    dropped += (any[i] - one[i]) * (any[i] - one[i]);
  }
  EXPECT_NEAR(kept + dropped, all, 1e-3 * all);
  EXPECT_LT(dropped, .01 * all) << "a slow wave has few coefficients";
}

TEST(Codecs, TopKWritesIndicesOrABitmap) {
  const std::vector<double> values = wave(200);
  for (const char* text : {"topk:0.02", "topk:0.3"}) {
    const std::vector<double> back = round_trip(text, values);
    const int64_t kept = kept_elements(codec(text), 200);
    EXPECT_EQ(top_has_bitmap(kept, 200), std::string_view(text) == "topk:0.3");
    EXPECT_EQ(std::count_if(back.begin(), back.end(), [](double v) { return v != 0; }), kept);
    for (size_t i = 0; i < back.size(); ++i) {
      EXPECT_TRUE(back[i] == 0 || std::abs(back[i] - values[i]) < 1e-6) << i;
    }
  }
}

TEST(Codecs, TopKKeepsTheLargestTiesByLowestIndex) {
  const std::vector<double> values{1, -5, 2, 5, 5, 0, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(round_trip("topk:0.17", values),
            (std::vector<double>{0, -5, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0}));
}

TEST(Codecs, WhatIsNotFiniteStaysSo) {
  for (const char* text : {"int8", "int4", "float16", "bfloat16", "topk:0.01"}) {
    for (const double bad : {std::numeric_limits<double>::infinity(), std::nan("")}) {
      std::vector<double> values = wave(200);
      values[77] = bad;
      EXPECT_FALSE(std::isfinite(round_trip(text, values)[77])) << text << " " << bad;
    }
  }
  EXPECT_EQ(round_trip("float16", {1e6, -1e6, 1}), (std::vector<double>{65504, -65504, 1}));
}

TEST(Codecs, ErrorsNameWhatIsMeant) {
  EXPECT_EQ(
      parse_codec("int9").error().message,
      "expected a codec (int8, int4, float16, bfloat16, topk:R, dct:K), found 'int9'; nearest: "
      "'int8'");
  EXPECT_EQ(parse_codec("dct:0").error().message,
            "expected dct:K with 1 <= K <= 4096, found 'dct:0'");
  EXPECT_EQ(parse_codec("int8,decay=2").error().message,
            "expected a codec and ',decay=R' with 0 < R <= 1, found 'int8,decay=2'");
  EXPECT_EQ(parse_codec("topk:2").error().message,
            "expected topk:R with 0 < R <= 1, found 'topk:2'");
  for (const char* text :
       {"int8", "int4", "float16", "bfloat16", "topk:0.01", "dct:32,decay=0.999"})
    EXPECT_EQ(codec_text(codec(text)), text);
}

Box range(int64_t begin, int64_t size) { return Box{{{begin, size}}}; }

// A call of two members on one array of 256 elements: float32, one message each way.
struct Outcome {
  std::array<std::vector<float>, 2> out;
  std::array<Counters, 2> counters;
  std::array<std::vector<float>, 2> residual;
};
Outcome run(const Redistribution& what, const std::string& text, int calls,
            const std::array<std::vector<float>, 2>& in) {
  Outcome outcome;
  const Codec c = codec(text);
  const Status status = run_threads(2, {}, [&](Communicator& world) {
    const auto me = static_cast<size_t>(world.rank());
    std::vector<float> from = in[me];
    std::vector<float>& to = outcome.out[me];
    to.assign(static_cast<size_t>(what.need[me].volume()), -1);
    outcome.residual[me].assign(static_cast<size_t>(coded_elements(what, me)), 0);
    const int group = world.group({0, 1});
    for (int i = 0; i < calls; ++i) {
      CodedCall call;
      const Item item{&what,
                      {reinterpret_cast<std::byte*>(from.data()), what.hold[me], {1}},
                      {reinterpret_cast<std::byte*>(to.data()), what.need[me], {1}}};
      const Handle handle =
          call.begin(world, group, me, {item}, c, outcome.residual[me].data(), {});
      if (handle != kNoHandle) world.wait(handle);
      call.finish();
    }
    outcome.counters[me] = world.counters();
  });
  EXPECT_TRUE(status) << status.error().message;
  return outcome;
}

std::vector<float> floats(size_t n, float factor) {
  std::vector<float> out;
  for (const double value : wave(n)) out.push_back(factor * static_cast<float>(value));
  return out;
}

void expect_counted(const Outcome& outcome, const Redistribution& what, const std::string& text) {
  for (size_t me = 0; me < 2; ++me) {
    const Traffic expected = coded_traffic({&what}, codec(text), me);
    EXPECT_EQ(outcome.counters[me].collectives[static_cast<size_t>(what.kind)], expected) << text;
    EXPECT_EQ(outcome.counters[me].total_bytes(), expected.bytes) << text;
  }
}

TEST(CodedCalls, GatheredValuesAreTheSameEverywhere) {
  const Redistribution what{CollectiveKind::kAllGather,
                            std::nullopt,
                            DType::kFloat32,
                            {range(0, 150), range(150, 106)},
                            {range(0, 256), range(0, 256)}};
  for (const char* text : {"int8", "int4", "float16", "bfloat16", "topk:0.1", "dct:8"}) {
    const Outcome outcome = run(what, text, 1, {floats(150, 1), floats(106, 3)});
    EXPECT_EQ(outcome.out[0], outcome.out[1]) << text;
    expect_counted(outcome, what, text);
  }
}

TEST(CodedCalls, SumsAreOfDecodedParts) {
  const Redistribution what{CollectiveKind::kReduceScatter,
                            Combiner::kSum,
                            DType::kFloat32,
                            {range(0, 256), range(0, 256)},
                            {range(0, 128), range(128, 128)}};
  const std::array<std::vector<float>, 2> in{floats(256, 1), floats(256, 3)};
  const Outcome outcome = run(what, "bfloat16", 1, in);
  expect_counted(outcome, what, "bfloat16");
  for (size_t me = 0; me < 2; ++me) {
    for (size_t i = 0; i < 128; ++i) {
      const double sum =
          static_cast<double>(in[0][128 * me + i]) + static_cast<double>(in[1][128 * me + i]);
      EXPECT_NEAR(outcome.out[me][i], sum, 4.0 / 256) << me << " " << i;
    }
  }
}

// For constant values, the sum of n calls' outputs plus the residual is n times the values.
TEST(CodedCalls, ErrorFeedbackLosesNothing) {
  const Redistribution what{CollectiveKind::kPermute,
                            std::nullopt,
                            DType::kFloat32,
                            {range(0, 64), Box{{{64, 0}}}},
                            {Box{{{0, 0}}}, range(0, 64)}};
  std::vector<double> sent(64, 0.0);
  const std::vector<float> values = floats(64, 1);
  // Each run repeats all calls so far; the run's output is that of its last call.
  Outcome outcome;
  for (int calls = 1; calls <= 40; ++calls) {
    outcome = run(what, "topk:0.05", calls, {values, {}});
    for (size_t i = 0; i < 64; ++i) sent[i] += static_cast<double>(outcome.out[1][i]);
  }
  for (size_t i = 0; i < 64; ++i) {
    EXPECT_NEAR(sent[i] + static_cast<double>(outcome.residual[0][i]),
                40 * static_cast<double>(values[i]), 1e-3)
        << i;
  }
}

TEST(CodedCalls, OverlappingPiecesAreNotCoded) {
  const Redistribution what{CollectiveKind::kExchange,
                            std::nullopt,
                            DType::kFloat32,
                            {range(0, 64), Box{{{0, 0}}}},
                            {range(0, 32), range(0, 64)}};
  EXPECT_FALSE(can_code(what));
  Redistribution integers = what;
  integers.need.set(0, range(0, 64));
  EXPECT_TRUE(can_code(integers));
  integers.dtype = DType::kInt64;
  EXPECT_FALSE(can_code(integers));
}

}  // namespace
}  // namespace tessera::comm
