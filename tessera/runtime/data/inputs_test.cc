// Tests what programs load for inputs that count documents: the number of tokens that end a
// document before each token, in text and in random tokens, for any part of the input that a rank
// loads.
#include "tessera/runtime/data/inputs.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "tessera/base/text.h"
#include "tessera/runtime/testing.h"

namespace tessera::inputs_test {
namespace {

constexpr int64_t kBatch = 5, kSeq = 12, kSeed = 3, kStep = 7;

class Documents : public ::testing::Test {
 protected:
  using Rows = std::vector<std::vector<int64_t>>;

  Documents() {
    path_ = (std::filesystem::temp_directory_path() /
             ("tessera_inputs_" + std::to_string(getpid()) + ".txt"))
                .string();
    std::string text;
    for (int i = 0; i < 400; ++i) text += i * 7 % 5 == 0 ? '\n' : static_cast<char>('a' + i % 26);
    EXPECT_TRUE(write_file(path_, text));
  }
  ~Documents() override { std::filesystem::remove(path_); }

  // Loads from the file `text`, or random tokens if it is null.
  static Rows load(const Model& model, const TokenCorpus* text, const char* input, Interval rows,
                   Interval columns) {
    const Tensor& tensor = model.graph.tensor(model.graph.find_tensor(input));
    std::vector<int64_t> memory(static_cast<size_t>(rows.size * columns.size), -7);
    kernels::Array to;
    to.data = reinterpret_cast<std::byte*>(memory.data());
    to.dtype = DType::kInt64;
    to.shape = {rows.size, columns.size};
    to.strides = {columns.size, 1};
    const Box region{{rows, columns}};
    if (text != nullptr) {
      EXPECT_TRUE(load_text(model, *text, kSeed, kStep, tensor, region, to));
    } else {
      load_random(model, kSeed, kStep, tensor, region, to);
    }
    Rows out;
    for (int64_t row = 0; row < rows.size; ++row) {
      const auto begin = memory.begin() + row * columns.size;
      out.emplace_back(begin, begin + columns.size);
    }
    return out;
  }

  static void expect_documents(const Model& model, const TokenCorpus* text, int64_t end) {
    const Interval all_rows{0, kBatch}, all_columns{0, kSeq};
    const Rows tokens = load(model, text, "tokens", all_rows, all_columns),
               documents = load(model, text, "documents", all_rows, all_columns);
    int64_t ends = 0;
    for (size_t row = 0; row < tokens.size(); ++row) {
      int64_t before = 0;
      for (size_t i = 0; i < tokens[row].size(); ++i) {
        // A document includes the token that ends it.
        EXPECT_EQ(documents[row][i], before) << "row " << row << ", token " << i;
        before += tokens[row][i] == end ? 1 : 0;
      }
      ends += before;
    }
    EXPECT_GT(ends, kBatch) << "the tokens have too few ends for the test to tell anything";
    for (const Interval rows : {Interval{0, 1}, Interval{2, 3}}) {
      for (const Interval columns : {Interval{0, 5}, Interval{4, 8}, Interval{11, 1}}) {
        const Rows part = load(model, text, "documents", rows, columns);
        for (int64_t row = 0; row < rows.size; ++row) {
          const auto& whole = documents[static_cast<size_t>(rows.begin + row)];
          EXPECT_EQ(
              part[static_cast<size_t>(row)],
              std::vector<int64_t>(whole.begin() + columns.begin, whole.begin() + columns.end()))
              << "rows from " << rows.begin << ", tokens from " << columns.begin;
        }
      }
    }
  }

  std::string path_;
};

Model model_of(const std::string& spec) {
  auto model = build_model(spec, kBatch);
  EXPECT_TRUE(model) << model.error().message;
  return model.value_or(Model{});
}

TEST_F(Documents, OfTextAreCountedByTheTokenThatEndsThem) {
  const Model model = model_of("gpt:layers=1,hidden=8,heads=2,seq=12,vocab=256,eod=10");
  const auto text = TokenCorpus::open({{.paths = {path_}}}, {"data", kSeq + 1, 256});
  ASSERT_TRUE(text) << text.error().message;
  expect_documents(model, &*text, '\n');
}

TEST_F(Documents, OfRandomTokensAreCountedInTheSameTokens) {
  expect_documents(model_of("gpt:layers=1,hidden=8,heads=2,seq=12,vocab=5,eod=1"), nullptr, 1);
  expect_documents(model_of("llama:layers=1,hidden=8,heads=2,kv_heads=2,seq=12,vocab=4,eod=0"),
                   nullptr, 0);
}

TEST_F(Documents, ThatEndWithinASequenceArePaddedWhereNoLossAndNoTokenSees) {
  TokenCorpus::Source source{.paths = {path_}, .padded = true, .end_of_document = '\n'};
  const auto text = TokenCorpus::open({source}, {"data", kSeq + 1, 256});
  ASSERT_TRUE(text) << text.error().message;
  const Interval rows{0, kBatch}, columns{0, kSeq};
  for (const int64_t eod : {-1, 10}) {
    const Model model =
        model_of("gpt:layers=1,hidden=8,heads=2,seq=12,vocab=256,eod=" + std::to_string(eod));
    const Rows tokens = load(model, &*text, "tokens", rows, columns),
               targets = load(model, &*text, "targets", rows, columns);
    const int64_t padding = eod < 0 ? 0 : eod;
    for (size_t row = 0; row < tokens.size(); ++row) {
      size_t length = 0;  // the document, which its end token belongs to
      while (length < tokens[row].size() && tokens[row][length] != '\n') ++length;
      ASSERT_LT(length, tokens[row].size());
      for (size_t i = 0; i < tokens[row].size(); ++i) {
        EXPECT_EQ(targets[row][i], i < length ? tokens[row][i + 1] : -1) << row << ", " << i;
        if (i > length) {
          EXPECT_EQ(tokens[row][i], padding) << row << ", " << i;
        }
      }
    }
  }
}

TEST_F(Documents, ATokenThatTheTextLacksEndsNone) {
  const Model model = model_of("gpt:layers=1,hidden=8,heads=2,seq=12,vocab=256,eod=0");
  const auto text = TokenCorpus::open({{.paths = {path_}}}, {"data", kSeq + 1, 256});
  ASSERT_TRUE(text) << text.error().message;
  for (const auto& row : load(model, &*text, "documents", {0, kBatch}, {0, kSeq}))
    EXPECT_EQ(row, std::vector<int64_t>(static_cast<size_t>(kSeq), 0));
}

}  // namespace
}  // namespace tessera::inputs_test
