#include "acceptance.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <string>

#include "random_stream.h"
#include "tessera/base/broken_invariant.h"
#include "tessera/graph/builder.h"
#include "tessera/plan/prepare.h"
#include "tessera/program/lower.h"
#include "tessera/program/verify/verify.h"

namespace tessera {
namespace {

enum class Outcome { kAccepted, kRefused, kWrong };
struct Judged {
  Outcome outcome = Outcome::kAccepted;
  std::string reason;
};

// A refusal is an error of the plan language that a random plan may run into, and names a file and
// a line. Any other error is wrong.
template <class T>
Judged refused(const Result<T>& result, std::string_view what) {
  const std::string& message = result.error().message;
  const bool names_a_line = message.find("plan.toml:") != std::string::npos;
  return {names_a_line ? Outcome::kRefused : Outcome::kWrong, fmt::format("{}: {}", what, message)};
}

Result<Judged> judge_whole(const RandomCase& random) {
  const auto plan = parse_plan(random.plan, "plan.toml");
  if (!plan) return Judged{Outcome::kWrong, "parse_plan: " + plan.error().message};
  const auto graph = training_graph(random.graph, *plan, plan->precision, OptimizerSpec{});
  if (!graph) return refused(graph, "training_graph");
  const auto prepared = prepare(*graph, *plan);
  if (!prepared) return refused(prepared, "prepare");
  const auto shared = std::make_shared<const Graph>(prepared->graph);
  const auto lowering = Lowering::create(shared, prepared->plan);
  if (!lowering) return refused(lowering, "lower");
  std::vector<Program> programs;
  for (int rank = 0; rank < static_cast<int>(prepared->plan.ranks); ++rank) {
    auto program = lowering->lower(rank);
    if (!program) return Judged{Outcome::kWrong, "lower(rank): " + program.error().message};
    programs.push_back(std::move(*program));
  }
  const auto rejections = verify(*shared, programs);
  if (rejections.empty()) return Judged{};
  return Judged{Outcome::kWrong, rejections[0].to_string()};
}

Judged judge(const RandomCase& random) {
  BrokenInvariants broken;
  const auto judged = broken.run([&] { return judge_whole(random); });
  return judged ? *judged : Judged{Outcome::kWrong, judged.error().message};
}

// If a fault ends the process, the case that was being judged is shown first.
std::string case_at_hand;
void show_case_at_hand(int signal) {
  std::signal(signal, SIG_DFL);  // the fault happens again, and ends the program
  [[maybe_unused]] const auto written =
      write(STDERR_FILENO, case_at_hand.data(), case_at_hand.size());
}

}  // namespace

void expect_lowered_programs_are_accepted(RandomCase (*draw)(const std::vector<uint32_t>&),
                                          int cases, int accepted_a_refusal) {
  const auto before = std::signal(SIGABRT, show_case_at_hand);
  const auto before_fault = std::signal(SIGSEGV, show_case_at_hand);
  SCOPED_TRACE(seed_text());
  default_properties(cases);
  int accepted = 0;
  int refusals = 0;
  bool failed = false;
  const bool holds = rc::check("the verifier accepts what lowering writes", [&] {
    const RandomCase random = draw(random_stream());
    case_at_hand =
        fmt::format("---- plan\n{}\n---- graph\n{}\n", random.plan, to_text(random.graph));
    const Judged judged = judge(random);
    // Finding a simpler case takes minutes, so the drawn case is shown at once.
    if (!failed && judged.outcome == Outcome::kWrong) {
      failed = true;
      fmt::print(stderr, "first case that fails, after {}: {}\n{}", accepted + refusals,
                 judged.reason, case_at_hand);
    }
    if (judged.outcome == Outcome::kAccepted) ++accepted;
    if (judged.outcome == Outcome::kRefused) ++refusals;
    RC_LOG() << judged.reason << "\n" << case_at_hand;
    RC_ASSERT(judged.outcome != Outcome::kWrong);
  });
  std::signal(SIGABRT, before);
  std::signal(SIGSEGV, before_fault);
  EXPECT_TRUE(holds) << "the failing plan and graph are above";
  fmt::print("{} random plans are accepted, {} are refused\n", accepted, refusals);
  EXPECT_GE(accepted, accepted_a_refusal * refusals)
      << "too many random plans are refused before lowering";
}

}  // namespace tessera
