#include "tessera/orchestrate/live/slurm_commands.h"

#include <gtest/gtest.h>

#include "tessera/orchestrate/live/ask_program.h"

namespace tessera::share::slurm {
namespace {

TEST(Slurm, ResourcesOfANodeAreItsGpus) {
  struct Case {
    const char* text;
    const char* type;
    int gpus;
  };
  for (const Case& is : {Case{"gpu:4", "gpu", 4}, Case{"gpu:a100:8", "a100", 8},
                         Case{"gpu:a100:4(S:0-1),mps:200", "a100", 4},
                         Case{"mps:200,gpu:v100:2(IDX:0,1)", "v100", 2}, Case{"(null)", "gpu", 0},
                         Case{"gpu", "gpu", 0}, Case{"gpu:many", "gpu", 0}, Case{"", "gpu", 0}}) {
    const BackendNode node = node_of("n0", is.text);
    EXPECT_EQ(node.name, "n0");
    EXPECT_EQ(node.type, is.type) << is.text;
    EXPECT_EQ(node.gpus, is.gpus) << is.text;
  }
}

TEST(Slurm, AMarkIsReadAsItWasWritten) {
  const Mark mark{"0123456789abcdef", "a-job.1", 1, 3, "n7", 4};
  EXPECT_EQ(mark.text(), "tessera 0123456789abcdef a-job.1 1/3 n7:4");
  EXPECT_EQ(mark_of(mark.text()), mark);
}

TEST(Slurm, OtherCommentsAreNoMarks) {
  for (const char* text : {"", "(null)", "tessera", "tessera a b 1/1 n0:1", "tessera a b 0 n0:1",
                           "other a b 0/1 n0:1", "tessera a b -1/1 n0:1", "tessera a b 0/1 n0",
                           "tessera a b x/1 n0:1", "tessera a b 0/0 n0:1"})
    EXPECT_EQ(mark_of(text).parts, 0) << text;
}

TEST(AskProgram, ReturnsWhatIsPrintedAndTheExitCode) {
  const auto answer =
      ask_program({"sh", "-c", "echo \"$1\"; echo err >&2; exit 3", "sh", "a $(b) ;c"},
                  std::chrono::seconds(30));
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->out, "a $(b) ;c\n");
  EXPECT_EQ(answer->errors, "err\n");
  EXPECT_EQ(answer->exit_code, 3);
}

TEST(AskProgram, EndsAProgramThatDoesNotAnswer) {
  const auto answer = ask_program({"sleep", "1000"}, std::chrono::milliseconds(1));
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code, ErrorCode::kFault);
  EXPECT_EQ(answer.error().message, "expected an answer of sleep within 0 s, found none");
}

TEST(AskProgram, NamesAProgramThatIsNotThere) {
  const auto answer = ask_program({"no-such-program-of-tessera"}, std::chrono::seconds(1));
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code, ErrorCode::kInvalidInput);
}

}  // namespace
}  // namespace tessera::share::slurm
