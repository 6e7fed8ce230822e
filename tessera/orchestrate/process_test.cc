// Oracle: shell commands whose ending is known.
#include "tessera/orchestrate/process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace tessera {
namespace {

using testing::HasSubstr;

Ended shell(const std::string& command) {
  const auto ended = run_process({"sh", "-c", command}, std::chrono::milliseconds(20000), true);
  EXPECT_TRUE(ended) << ended.error().message;
  return ended ? *ended : Ended{};
}

TEST(Process, ExitCodesAndSignals) {
  EXPECT_EQ(shell("exit 0").exit_code, 0);
  EXPECT_EQ(shell("exit 3").exit_code, 3);
  EXPECT_EQ(shell("kill -9 $$").signal, SIGKILL);
  EXPECT_FALSE(shell("exit 0").stopped);
}

TEST(Process, TheLastErrorLineIsKept) {
  EXPECT_EQ(shell("echo 'tessera: first' >&2; echo other >&2; echo 'tessera: second' >&2").error,
            "second");
  EXPECT_EQ(shell("printf 'tessera: unfinished' >&2").error, "unfinished");
  EXPECT_EQ(shell("echo nothing of ours >&2").error, "");
  // This is more than a pipe holds.
  EXPECT_EQ(
      shell("head -c 300000 /dev/zero | tr '\\0' x >&2; echo >&2; echo 'tessera: end' >&2").error,
      "end");
}

TEST(Process, DescendantsThatLiveOnAreNotWaitedFor) {
  const Ended ended = shell("sleep 60 & echo \"tessera: child $!\" >&2; exit 3");
  EXPECT_EQ(ended.exit_code, 3);
  EXPECT_LT(ended.seconds, 20);
  ASSERT_THAT(ended.error, HasSubstr("child "));
  ::kill(std::stoi(ended.error.substr(6)), SIGKILL);  // the one that this test started
}

TEST(Process, AProcessThatRunsTooLongIsKilled) {
  const auto ended = run_process({"sleep", "60"}, std::chrono::milliseconds(50), true);
  ASSERT_TRUE(ended);
  EXPECT_TRUE(ended->timed_out);
  EXPECT_EQ(ended->signal, SIGKILL);
}

TEST(Process, SignalsArePassedOnAndSaid) {
  // The child tells its parent, this process, to end; this process passes the signal on to the
  // child.
  const auto ended =
      run_process({"sh", "-c", "trap 'exit 7' TERM; kill -TERM $PPID; while :; do :; done"},
                  std::chrono::milliseconds(20000), true);
  ASSERT_TRUE(ended) << ended.error().message;
  EXPECT_TRUE(ended->stopped);
  EXPECT_EQ(ended->exit_code, 7);
}

TEST(Process, AProgramThatIsNotThereIsNamed) {
  const auto ended = run_process({"no_such_program_of_ours"});
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, ErrorCode::kInvalidInput);
  EXPECT_THAT(ended.error().message, HasSubstr("no_such_program_of_ours"));
  EXPECT_EQ(find_program("no_such_program_of_ours"), "");
  EXPECT_THAT(find_program("sh"), HasSubstr("/sh"));
}

}  // namespace
}  // namespace tessera
