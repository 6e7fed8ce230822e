// Tests graph files as models.
#include "tessera/models/graph_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tessera/base/text.h"
#include "tessera/graph/builder.h"
#include "tessera/models/families.h"

namespace tessera {
namespace {

class GraphFileTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ =
        std::filesystem::path(testing::TempDir()) / (std::string("graph_file_") + test->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& text) {
    const std::string path = (folder_ / "my.graph").string();
    EXPECT_TRUE(write_file(path, text));
    return path;
  }
  std::string error_of(const std::string& text, int64_t batch = 0) {
    const std::string path = write(text);
    const auto model = load_graph_model(path, batch, std::nullopt);
    EXPECT_FALSE(model);
    return model ? "" : model.error().message.substr(path.size());
  }

 private:
  std::filesystem::path folder_;
};

constexpr std::string_view kText =
    "input %x [batch=4, in=3] float32\n"
    "input %kind [batch=4] int64\n"
    "parameter %w [in=3, classes=5] float32 init=normal(0.1)\n"
    "activation %y [batch=4, classes=5] float32\n"
    "forward op \"y\" %y = einsum(%x, %w) {spec=\"batch in+, in classes -> batch classes\"}\n"
    "activation %lse [batch=4] float32\n"
    "activation %picked [batch=4] float32\n"
    "forward op \"ce\" %lse, %picked = cross_entropy(%y, %kind)\n"
    "activation %nll [batch=4] float32\n"
    "forward op \"nll\" %nll = sub(%lse, %picked)\n"
    "activation %loss [] float32\n"
    "forward op \"loss\" %loss = reduce_sum(%nll) {dims=\"batch\", factor=0.25}\n";

// `tessera inspect MODEL --text` prints a graph file, and the model of that file is MODEL.
TEST_F(GraphFileTest, ThePrintedGraphOfEveryFamilyIsItsModel) {
  for (const ModelFamily& family : all_families()) {
    const std::string& spec = family.examples.at(0);
    const auto model = build_model(spec, 4);
    ASSERT_TRUE(model) << spec << ": " << model.error().message;
    const auto trained = differentiate(model->graph, OptimizerSpec{});
    ASSERT_TRUE(trained) << spec << ": " << trained.error().message;
    const auto again =
        build_model(write(to_text(*trained)), model->graph.tensors()[0].dims[0].size);
    ASSERT_TRUE(again) << spec << ": " << again.error().message;
    EXPECT_EQ(to_text(again->graph), to_text(model->graph)) << spec;
  }
}

TEST_F(GraphFileTest, InputsOfLanguageModelsAreTheSameText) {
  const auto model = build_model("gpt:layers=1,hidden=8,heads=2,seq=6,vocab=11", 2);
  ASSERT_TRUE(model);
  const auto again = build_model(write(to_text(model->graph)), 2);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->vocab, model->vocab);
  EXPECT_EQ(again->seq, model->seq);
  EXPECT_EQ(again->text, model->text);
  ASSERT_EQ(again->inputs.size(), 2U);
  EXPECT_EQ(again->inputs[1].shift, 1);
  EXPECT_EQ(again->inputs[1].row, 7);
}

TEST_F(GraphFileTest, IndicesStayBelowTheDimThatTheyIndex) {
  const auto model = build_model(write(std::string(kText) + "loss %loss\n"), 4);
  ASSERT_TRUE(model) << model.error().message;
  ASSERT_EQ(model->inputs.size(), 1U);
  EXPECT_EQ(model->inputs[0].input, "kind");
  EXPECT_EQ(model->inputs[0].values, 5);
  EXPECT_EQ(model->text, 0);
}

TEST_F(GraphFileTest, TheFileFixesTheBatch) {
  const std::string text = std::string(kText) + "loss %loss\n", path = write(text);
  EXPECT_EQ(batch_of(path, 0, 8), 4);
  EXPECT_EQ(batch_of(path, 2, 8), 2);
  EXPECT_EQ(batch_of("gpt", 0, 8), 8);
  EXPECT_EQ(build_model_of(path, 0, 8)->batch, 4);
  EXPECT_EQ(build_model_of(path, 4, 8)->batch, 4);
  EXPECT_THAT(build_model_of(path, 2, 8).error().message, testing::HasSubstr("expected --batch 4"));
  EXPECT_EQ(build_model_of("mlp", 0, 8)->batch, 8);
  EXPECT_EQ(error_of(text, 8),
            ": expected --batch 4, the size of the dim 'batch' that the file fixes, found 8");
}

TEST_F(GraphFileTest, TheRunsDTypeTakesThePlaceOfTheFiles) {
  const auto model = build_model(write(std::string(kText) + "loss %loss\n"), 4, DType::kFloat64);
  ASSERT_TRUE(model) << model.error().message;
  for (const Tensor& tensor : model->graph.tensors()) {
    if (is_floating(tensor.dtype)) {
      EXPECT_EQ(tensor.dtype, DType::kFloat64) << tensor.name;
    }
  }
}

TEST_F(GraphFileTest, ErrorsNameFileAndLine) {
  EXPECT_EQ(error_of(std::string(kText)),
            ": expected a line 'loss %name' that names a scalar made by a forward op");
  EXPECT_EQ(error_of(std::string(kText) + "forward op \"z\" %z = gelu(%x)\n"),
            ":13: tensor 'z' is not declared above");
  EXPECT_EQ(error_of(std::string(kText) +
                     "activation %z [batch=4] float32\nforward op \"z\" %z = gelu(%x)\n"),
            ":14: op 'z' (gelu): expected output 0 to be 'z' [batch=4, in=3] float32, found 'z' "
            "[batch=4] float32");
  EXPECT_THAT(load_graph_model("none.graph", 0, std::nullopt).error().message,
              testing::HasSubstr("none.graph"));
}

}  // namespace
}  // namespace tessera
