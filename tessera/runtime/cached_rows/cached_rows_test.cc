// Tests fetches of rows ahead of their step: which fetch takes them over, and when they are given
// up.
#include "tessera/runtime/cached_rows/cached_rows.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tessera/compile/compile.h"

namespace tessera {
namespace {

using Ids = std::vector<int64_t>;

// A table of 40 rows with places for 12 of them, and memory for the buffers of its program.
class Table {
 public:
  // `split` is part of the plan. If a step also looks up ahead, it makes two fetches.
  explicit Table(const char* split = "") {
    Compiler compiler;
    const auto model =
        compiler.model("dlrm:rows=40,bags=2,dense=2,bottom=4,width=4,top=1,mode=position", 4);
    EXPECT_TRUE(model.has_value()) << (model ? "" : model.error().message);
    auto plan = parse_plan(std::string(split) +
                               "store = [{ tensors = \"{,optimizer.*.}tables.*\", tier = \"host\", "
                               "cache = { slots = 12 } "
                               "}]",
                           "plan");
    EXPECT_TRUE(plan.has_value()) << (plan ? "" : plan.error().message);
    CompileOptions options;
    options.optimizer.kind = "row_sgd";
    auto compiled = compiler.compile(*model, *std::move(plan), DType::kFloat32, options);
    EXPECT_TRUE(compiled.has_value()) << (compiled ? "" : compiled.error().message);
    compiled_ = std::make_unique<Compiled>(*std::move(compiled));
    programs_ = lower_and_verify(*compiled_->lowering).value();
    CachedRowsWants wants;
    wants.graph = &compiled_->graph();
    wants.program = programs_.data();
    wants.memory = [this](BufferId id) {
      auto& bytes = memory_[id];
      bytes.resize(static_cast<size_t>(programs_[0].buffer(id).bytes()));
      return bytes.data();
    };
    wants.settle = [this]() -> Status {
      ++settled;
      return {};
    };
    auto made = CachedRows::make(std::move(wants));
    EXPECT_TRUE(made.has_value()) << (made ? "" : made.error().message);
    rows = *std::move(made);
  }

  // Returns the job of a fetch of the data's ids by this handle; null if the rows are there.
  const Copier::Job* fetch(int handle, int64_t step, const Ids& ids) const {
    return rows->fetch(handle, step, ids, CachedRows::Whose::kInTurn).value();
  }

  std::unique_ptr<CachedRows> rows;
  int settled = 0;  // times

 private:
  std::unique_ptr<Compiled> compiled_;
  std::vector<Program> programs_;
  std::map<BufferId, std::vector<std::byte>> memory_;
};

TEST(CachedRows, AFetchOfTheSameStepTakesOverWhatWasFetchedAhead) {
  Table table;
  const Copier::Job* ahead = table.rows->fetch_ahead(1, Ids{3, 5}).value();
  ASSERT_TRUE((*ahead)().has_value());
  EXPECT_EQ(table.fetch(0, 1, {3, 5}), nullptr);
  ASSERT_TRUE(table.rows->release(0, false).has_value());
}

// With look-ups one step ahead, a step fetches the rows of its own batch and then those of the next
// batch. The rows fetched ahead for the next step's first fetch are those of this step's last
// fetch, but their copy is awaited only at the end of the step.
TEST(CachedRows, AFetchOfAnEarlierStepDoesNotTakeOverRowsThatAreUnderWay) {
  Table table("split = [{ ops = \"{tables,positions}.*\", dim = \"step\", over = \"ahead\" }]\n");
  const Copier::Job* ahead = table.rows->fetch_ahead(1, Ids{3, 5}).value();
  const Copier::Job* own = table.fetch(7, 0, {3, 5});
  ASSERT_NE(own, nullptr);
  EXPECT_NE(own, ahead);
  ASSERT_TRUE((*ahead)().has_value());
  ASSERT_TRUE((*own)().has_value());
  ASSERT_TRUE(table.rows->release(7, true).has_value());
  EXPECT_EQ(table.fetch(0, 1, {3, 5}), nullptr);
  ASSERT_TRUE(table.rows->release(0, false).has_value());
}

TEST(CachedRows, FetchesThatNobodyTakesOverAreGivenUpWhenTheirCopiesAreDone) {
  Table table;
  ASSERT_TRUE(table.rows->fetch_ahead(1, Ids{3, 5}).has_value());
  EXPECT_EQ(table.settled, 0);
  const Copier::Job* own = table.fetch(0, 1, {4, 6});
  EXPECT_EQ(table.settled, 1);
  ASSERT_NE(own, nullptr);
  ASSERT_TRUE((*own)().has_value());
  ASSERT_TRUE(table.rows->release(0, false).has_value());
}

}  // namespace
}  // namespace tessera
