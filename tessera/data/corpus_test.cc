#include "tessera/data/corpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>

#include "tessera/data/test_files.h"

namespace tessera::corpus_test {
namespace {

using ::testing::ElementsAre;
using Corpus = TestFiles;
using Source = TokenCorpus::Source;

TokenCorpus open(const std::vector<Source>& sources, int64_t length, int64_t vocab = 256) {
  auto corpus = TokenCorpus::open(sources, {"data", length, vocab});
  EXPECT_TRUE(corpus) << corpus.error().message;
  return std::move(corpus).value();
}

std::string open_error(const std::vector<Source>& sources, int64_t length, int64_t vocab = 256) {
  const auto corpus = TokenCorpus::open(sources, {"data", length, vocab});
  return corpus ? "" : corpus.error().message;
}

std::vector<int64_t> read(const TokenCorpus& corpus, int64_t step, int64_t sequence, int64_t offset,
                          int64_t count, int64_t seed = 1) {
  std::vector<int64_t> tokens(static_cast<size_t>(count));
  const Status status = corpus.read(seed, step, sequence, offset, count, tokens.data());
  EXPECT_TRUE(status) << status.error().message;
  return tokens;
}

std::string numbers(uint16_t from, size_t count) {
  std::vector<uint16_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), from);
  return bytes_of(tokens);
}

TEST_F(Corpus, AWindowIsConsecutiveTokensOfOneFile) {
  std::string letters, digits;
  for (int i = 0; i < 26; ++i) letters += static_cast<char>('a' + i);
  for (int i = 0; i < 10; ++i) digits += static_cast<char>('0' + i);
  const TokenCorpus corpus = open(
      {{.paths = {write("a.txt", letters), write("b.txt", digits), write("short.txt", "#")}}}, 5);
  EXPECT_EQ(corpus.files(), 2);
  EXPECT_EQ(corpus.bytes(), 36);
  std::set<int64_t> starts;
  for (int64_t sequence = 0; sequence < 400; ++sequence) {
    const std::vector<int64_t> tokens = read(corpus, 1, sequence, 0, 5);
    starts.insert(tokens[0]);
    for (size_t i = 1; i < tokens.size(); ++i)
      EXPECT_EQ(tokens[i], tokens[0] + static_cast<int64_t>(i));
  }
  EXPECT_EQ(starts.size(), 26U - 4 + 10 - 4);
}

// Any part that a rank reads, in any order, is that part of the whole.
TEST_F(Corpus, APartIsThatPartOfTheWhole) {
  const std::string a = write("a.bin", numbers(0, 500));
  write("b.bin", numbers(1000, 60));
  const std::string b = write("b.idx", megatron_index({5, 30, 2, 23}));
  const TokenCorpus corpus = open(
      {{.paths = {a}, .format = TokenFormat::kUint16}, {.paths = {b}, .padded = true}}, 17, 60'000);
  for (int64_t step = 1; step < 30; ++step) {
    const std::vector<int64_t> whole = read(corpus, step, 2, 0, 17);
    EXPECT_EQ(read(corpus, step, 2, 5, 6),
              std::vector<int64_t>(whole.begin() + 5, whole.begin() + 11));
    EXPECT_EQ(read(corpus, step, 2, 16, 1), std::vector<int64_t>(whole.begin() + 16, whole.end()));
    EXPECT_EQ(read(corpus, step, 2, 0, 17), whole);
    EXPECT_NE(read(corpus, step + 1, 2, 0, 17), whole);
    EXPECT_NE(read(corpus, step, 2, 0, 17, 2), whole);
  }
}

// A run that goes on at step 6 opens the files anew and reads what it would have read.
TEST_F(Corpus, APositionInTheDataIsAFunctionOfSeedAndStepAlone) {
  const std::string a = write("a.bin", numbers(0, 500));
  const std::vector<Source> sources{{.paths = {a}, .format = TokenFormat::kUint16}};
  std::map<std::pair<int64_t, int64_t>, std::vector<int64_t>> undisturbed;
  {
    const TokenCorpus corpus = open(sources, 9, 60'000);
    for (int64_t step = 1; step <= 10; ++step) {
      for (int64_t i = 0; i < 4; ++i) undisturbed[{step, i}] = read(corpus, step, i, 0, 9);
    }
  }
  const TokenCorpus resumed = open(sources, 9, 60'000);
  for (int64_t step = 10; step >= 6; --step) {
    for (int64_t i = 3; i >= 0; --i)
      EXPECT_EQ(read(resumed, step, i, 0, 9), (undisturbed[{step, i}]));
  }
}

TEST_F(Corpus, PackedWindowsRunOverTheBordersOfDocuments) {
  write("a.bin", numbers(0, 12));
  const std::string index = write("a.idx", megatron_index({4, 4, 4}));
  const TokenCorpus corpus = open({{.paths = {index}}}, 9, 60'000);
  std::set<int64_t> starts;
  for (int64_t i = 0; i < 100; ++i) starts.insert(read(corpus, 1, i, 0, 9)[0]);
  EXPECT_THAT(starts, ElementsAre(0, 1, 2, 3));
}

TEST_F(Corpus, APaddedSequenceIsOneDocumentAndALongOneAWindowOfIt) {
  write("a.bin", numbers(100, 16));
  const std::string index = write("a.idx", megatron_index({3, 1, 7, 5}));
  const TokenCorpus corpus = open({{.paths = {index}, .padded = true}}, 5, 60'000);
  std::set<std::vector<int64_t>> seen;
  for (int64_t i = 0; i < 200; ++i) seen.insert(read(corpus, 1, i, 0, 5));
  EXPECT_THAT(seen, ElementsAre(std::vector<int64_t>{100, 101, 102, kNoToken, kNoToken},
                                std::vector<int64_t>{104, 105, 106, 107, 108},
                                std::vector<int64_t>{105, 106, 107, 108, 109},
                                std::vector<int64_t>{106, 107, 108, 109, 110},
                                std::vector<int64_t>{111, 112, 113, 114, 115}));
}

TEST_F(Corpus, WeightsAreSharesOfTheSequences) {
  const std::string a = write("a.bin", numbers(0, 50)), b = write("b.bin", numbers(100, 1000));
  constexpr int64_t kDraws = 4000;
  const auto share_of_a = [&](double weight_a, double weight_b) {
    const TokenCorpus corpus =
        open({{.paths = {a}, .format = TokenFormat::kUint16, .weight = weight_a},
              {.paths = {b}, .format = TokenFormat::kUint16, .weight = weight_b}},
             11, 60'000);
    int64_t of_a = 0;
    for (int64_t i = 0; i < kDraws; ++i) of_a += read(corpus, 1 + i / 8, i % 8, 0, 1)[0] < 100;
    return static_cast<double>(of_a) / kDraws;
  };
  // The margin is four standard deviations of a share of 4000 draws.
  EXPECT_NEAR(share_of_a(3, 1), 0.75, 0.028);
  EXPECT_NEAR(share_of_a(0, 0), 40.0 / (40 + 990), 0.0125);
  EXPECT_EQ(open_error({{.paths = {a}, .format = TokenFormat::kUint16, .weight = 1},
                        {.paths = {b}, .format = TokenFormat::kUint16}},
                       11, 60'000),
            "data: expected a weight in each of 2 sources or in none, found 1");
}

TEST_F(Corpus, TokensThatTheVocabularyLacksAreFoundWhenOpenedOrRead) {
  std::vector<uint16_t> tokens(70'000, 1);
  tokens[70] = 300;
  const std::string early = write("early.bin", bytes_of(tokens));
  EXPECT_EQ(open_error({{.paths = {early}, .format = TokenFormat::kUint16}}, 5),
            "data: '" + early + "', token 70: expected a token below 256 (vocab = 256), found 300");
  tokens[70] = 1;
  tokens[69'999] = 256;
  const std::string late = write("late.bin", bytes_of(tokens));
  const TokenCorpus corpus = open({{.paths = {late}, .format = TokenFormat::kUint16}}, 69'999);
  int errors = 0;
  std::vector<int64_t> read(69'999);
  for (int64_t i = 0; i < 20; ++i) {
    const Status status = corpus.read(1, 1, i, 0, 69'999, read.data());
    if (status) continue;
    ++errors;
    EXPECT_EQ(status.error().message, "data: '" + late +
                                          "', token 69999: expected a token below 256 (vocab = "
                                          "256), found 256");
  }
  EXPECT_GT(errors, 0);
  EXPECT_LT(errors, 20);
}

TEST_F(Corpus, ErrorsAreOneLine) {
  const std::string a = write("a.txt", "1234");
  EXPECT_EQ(
      open_error({{.paths = {a}}}, 5),
      "data: expected a file of more than 4 bytes (seq = 4), the longest of 1, '" + a + "', has 4");
  EXPECT_EQ(open_error({}, 5), "data: expected at least one file or glob");
  const std::string b = write("b.bin", "1234");
  EXPECT_EQ(open_error({{.paths = {b}}}, 2),
            "data: '" + b +
                "': expected format = \"uint16\", \"uint32\" or \"megatron\" for it, found none");
  EXPECT_EQ(open_error({{.paths = {b}, .format = TokenFormat::kUint16, .padded = true}}, 2),
            "data: '" + b +
                "': expected end_of_document with documents = \"padded\", since the file does not "
                "say where documents end");
  EXPECT_EQ(open_error({{.paths = {write("c.txt", "ab"), write("d.txt", "b")},
                         .padded = true,
                         .end_of_document = 'a'}},
                       2),
            "data: expected a document of at least 2 tokens, found none in 2 files, of which '" +
                path("c.txt") + "' has the most bytes");
}

}  // namespace
}  // namespace tessera::corpus_test
